package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/measure"
)

// errUntested reports that the machine prevents a part of the checks from running, which must
// not count as passed.
var errUntested = errors.New("not tested")

// withhold records that something was not tested, and why.
func (s *suite) withhold(what string, why error) {
	reason := oneLine(why.Error())
	s.untested = append(s.untested, what+": "+reason)
	s.add(row{what: what, measured: reason, verdict: skipped})
}

// shareable returns an error if the card admits only one process at a time: hmcfs and the
// programs that it is compared with are several.
func (s *suite) shareable(ctx context.Context) error {
	if s.device.family != "cuda" {
		return nil
	}
	mode, err := measure.Output(s.tool(ctx, "cudaraw", "mode", s.device.ordinal()))
	if err != nil {
		return err
	}
	names := map[string]string{"2": "prohibited", "3": "exclusive process"}
	name, limited := names[mode]
	if !limited {
		return nil
	}
	return fmt.Errorf("%s: %w: its compute mode is %q, and the checks need several processes; change it by nvidia-smi -i %s -c DEFAULT",
		s.device.name, errUntested, name, s.device.ordinal())
}

// takesDescriptors returns nil if a process may duplicate a descriptor of another process that
// is not its child, as hmcfs does when it binds.
func (s *suite) takesDescriptors(ctx context.Context) error {
	const size = 4096
	fd, err := unix.MemfdCreate("gpu", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if err = unix.Ftruncate(fd, size); err != nil {
		return err
	}
	opener, err := s.open(ctx, fmt.Sprintf(
		`{"family":"host","pid":%d,"size":%d,"pieces":[{"kind":"memfd","fd":%d,"offset":0,"size":%d,"allocation":%d}]}`,
		os.Getpid(), size, fd, size, size))
	if err != nil {
		return fmt.Errorf("a process may not take another's descriptor here (pidfd_getfd); "+
			"in a container, start it with --cap-add SYS_PTRACE: %w", err)
	}
	return opener.end()
}

// sandbox names the sandbox between this machine's programs and Linux, "" if none is detected.
func sandbox() string {
	log := make([]byte, 1<<16)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, log)
	if err != nil {
		n = 0
	}
	return sandboxOf(measure.Kernel(), string(log[:n]))
}

func sandboxOf(kernel, log string) string {
	for _, text := range []string{kernel, log} {
		if strings.Contains(strings.ToLower(text), "gvisor") {
			return "gVisor, which is not Linux: what fails here may be the sandbox's"
		}
	}
	return ""
}
