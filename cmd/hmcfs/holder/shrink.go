package holder

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// shrink gives back the pages of the program's text that its start has touched, most
// of them for packages that a holder does not use. The kernel reads a page again when it is needed.
func shrink() error {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	for s := bufio.NewScanner(bytes.NewReader(maps)); s.Scan(); {
		line := s.Text()
		var from, to uintptr
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); err != nil {
			return fmt.Errorf("read the line %q: %w", line, err)
		}
		if !strings.HasSuffix(line, program) || mode != "r-xp" {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			return errno
		}
	}
	return nil
}
