package holder

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// shrink gives back the pages of the program's file that were touched, most of them at the start for packages that a
// holder does not use. The kernel reads a page again when it is needed.
func (s *server) shrink() {
	if err := dropProgram(); err != nil {
		s.log.Debug("can't give memory back", zap.Error(err))
	}
}

// dropProgram drops the pages of the program's mappings that are only read. Pages that were written to, as those that the
// linker has relocated, are no longer the file's, so mappings with such pages stay.
func dropProgram() error {
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return err
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	var from, to uintptr // the mapping, if it is of the program and is only read
	for s := bufio.NewScanner(bytes.NewReader(maps)); s.Scan(); {
		line := s.Text()
		var first, end uintptr
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &first, &end, &mode); err == nil {
			if from, to = 0, 0; strings.HasSuffix(line, program) && (mode == "r-xp" || mode == "r--p") {
				from, to = first, end
			}
			continue
		}
		if fields := strings.Fields(line); len(fields) < 2 || fields[0] != "Anonymous:" || fields[1] != "0" || to == from {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			return errno
		}
	}
	return nil
}
