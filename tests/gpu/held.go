package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

// killedDaemon kills the daemon of another mount while a file is written and read. The daemons
// that follow have its device memory, no program sees an error, and nothing of it is left in the end.
func (s *suite) killedDaemon(ctx context.Context) (_ string, err error) {
	kills := 5
	if s.opts.quick {
		kills = 1
	}
	if s.device.family == "opencl" {
		return "", skip("device memory of OpenCL ends with the daemon, unless it is the host's")
	}
	before, err := s.mount.deviceStatus(ctx, s.device.name)
	if err != nil {
		return "", err
	}
	m, err := s.mountAt(ctx, "killed")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, m.Unmount(ctx), s.regained(ctx, before.Free)) }()
	if err = m.outlives(ctx); err != nil {
		return "", err
	}
	kept := m.Path(s.device.name, "kept")
	if err = writeContent(kept, seedA, s.sizes.check, 1<<20); err != nil {
		return "", err
	}
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() { stopped <- rewrite(m.Path(s.device.name, "written"), s.sizes.check, stop) }()
	var longest time.Duration
	for range kills {
		pause, kerr := m.kill(ctx)
		longest = max(longest, pause)
		err = errors.Join(err, kerr, sameContent(kept, seedA, s.sizes.check, 1<<20))
	}
	close(stop)
	err = errors.Join(err, <-stopped, os.Remove(kept), within(ctx, patience, func() error {
		d, derr := m.deviceStatus(ctx, s.device.name)
		if derr == nil && d.Used != 0 {
			derr = fmt.Errorf("%v of %s are in use without files", d.Used, d.Name)
		}
		return derr
	}))
	return fmt.Sprintf("%d kills, another daemon answered after at most %v", kills, longest.Round(time.Millisecond)), err
}

// outlives returns an error if the memory of the mount ends with its daemon: without a holder, and
// where the driver makes no descriptors of memory.
func (m *mount) outlives(ctx context.Context) error {
	st, err := m.Status(ctx)
	if err != nil {
		return err
	}
	if st.Holder == nil {
		return skip("the mount has no holder, which needs Linux 6.9")
	}
	log, err := m.log()
	if err == nil && strings.Contains(log, "device memory ends with the daemon") {
		err = skip("the driver makes no descriptors of memory")
	}
	return err
}

// kill kills the daemon at a random moment, and returns how long it took until another one answered.
func (m *mount) kill(ctx context.Context) (pause time.Duration, err error) {
	st, err := m.Status(ctx)
	if err != nil {
		return 0, err
	}
	<-time.After(time.Duration(100+rand.IntN(900)) * time.Millisecond)
	begin := time.Now()
	if err = unix.Kill(st.PID, unix.SIGKILL); err != nil {
		return 0, fmt.Errorf("kill the daemon, process %d: %w", st.PID, err)
	}
	err = within(ctx, patience, func() error {
		now, serr := m.Status(ctx)
		if serr == nil && now.PID == st.PID {
			serr = errors.New("the daemon lives although it was killed")
		}
		m.PID = now.PID
		return serr
	})
	return time.Since(begin), err
}

// rewrite writes, reads and removes a file until it is stopped, with other content each time.
func rewrite(path string, size devices.Size, stop <-chan struct{}) error {
	for seed := seedC; ; seed++ {
		if err := errors.Join(writeContent(path, seed, size, 1<<20), sameContent(path, seed, size, odd)); err != nil {
			return err
		}
		select {
		case <-stop:
			return os.Remove(path)
		default:
		}
	}
}

// regained waits until the device has as much free memory as before, but for what other programs
// may have taken meanwhile.
func (s *suite) regained(ctx context.Context, before devices.Size) error {
	return within(ctx, patience, func() error {
		d, err := s.mount.deviceStatus(ctx, s.device.name)
		if err == nil && d.Free+s.sizes.check < before {
			err = fmt.Errorf("%s has %v free after the unmount, and had %v", d.Name, d.Free, before)
		}
		return err
	})
}
