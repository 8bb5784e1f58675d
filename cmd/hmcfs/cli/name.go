package cli

import (
	"os"
	"path/filepath"
	"strings"
)

// nameProcess gives the process the name that ps and top show. A program started by /proc/self/exe, as daemons and their
// helpers are, is named "exe" by the kernel, and one started by /proc/self/fd/N by the number; every other name is left.
// A thread takes the name of the one that creates it, so all that exist get it. A name that can't be set is left.
func nameProcess(args []string) {
	const self = "/proc/self/comm"
	now, err := os.ReadFile(self)
	if was := strings.TrimSpace(string(now)); err != nil || was != "exe" && strings.Trim(was, "0123456789") != "" {
		return
	}
	name := "hmcfs"
	if len(args) > 1 {
		switch args[1] {
		case holdName:
			name = "hmcfs-holder"
		case guardName:
			name = "hmcfs-guard"
		}
	}
	threads, _ := filepath.Glob("/proc/self/task/*/comm") // the pattern is right
	for _, path := range append(threads, self) {
		_ = os.WriteFile(path, []byte(name), 0)
	}
}
