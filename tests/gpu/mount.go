package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/tests/measure"
)

// mount is one mount of the program under test.
type mount struct{ measure.Mount }

// mountAt mounts the host tier and the device below the scratch directory.
func (s *suite) mountAt(ctx context.Context, name string) (*mount, error) {
	m := &mount{measure.Mount{Program: s.opts.hmcfs, Point: filepath.Join(s.opts.scratch, name), Command: system}}
	flags := measure.Devices("host,size="+bytes(s.sizes.host), s.spec())
	if os.Geteuid() == 0 { // one check acts as another user
		flags = append(flags, "--allow-other")
	}
	if err := m.Start(ctx, flags...); err != nil {
		return nil, err
	}
	return m, nil
}

// spec returns the device in the form that hmcfs mount expects.
func (s *suite) spec() string {
	spec := s.device.spec
	if s.sizes.device > 0 {
		spec += ",size=" + bytes(s.sizes.device)
	} else if s.device.family == "sim" {
		spec += ",size=" + bytes(s.device.free)
	}
	return spec
}

func bytes(n devices.Size) string { return fmt.Sprint(uint64(n)) }

// deviceStatus returns the daemon's status of one device.
func (m *mount) deviceStatus(ctx context.Context, name string) (adminapi.Device, error) {
	st, err := m.Status(ctx)
	if err != nil {
		return adminapi.Device{}, err
	}
	for _, d := range st.Devices {
		if string(d.Name) == name {
			return d, nil
		}
	}
	return adminapi.Device{}, fmt.Errorf("the mount has no %s", name)
}

// endMount unmounts and saves the log.
func (s *suite) endMount(ctx context.Context) error {
	err := s.mount.Unmount(ctx)
	var failed error
	s.log, failed = s.mount.log()
	return errors.Join(err, failed)
}

// log returns the daemon's output.
func (m *mount) log() (string, error) {
	log, err := os.ReadFile(filepath.Join(m.State, "hmcfs.log"))
	return string(log), err
}

// healthy checks that the daemon answers, and has not crashed.
func (s *suite) healthy(ctx context.Context) (string, error) {
	st, err := s.mount.Status(ctx)
	if err != nil {
		return "", err
	}
	if st.PID != s.mount.PID {
		return "", fmt.Errorf("the daemon is process %d, it was %d", st.PID, s.mount.PID)
	}
	return fmt.Sprintf("answers, up %v, %v resident", time.Duration(st.UptimeSeconds)*time.Second, st.Memory.Resident), nil
}

// path returns a path in the device's directory.
func (s *suite) path(elem ...string) string {
	return s.mount.Path(append([]string{s.device.name}, elem...)...)
}

// hostPath returns a path in the host tier.
func (s *suite) hostPath(elem ...string) string {
	return s.mount.Path(append([]string{"host"}, elem...)...)
}

// remove removes files that may not exist.
func remove(paths ...string) error {
	var errs []error
	for _, p := range paths {
		if err := os.Remove(p); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// xattr reads an attribute as text; an error names the file.
func xattr(path, name string) (string, error) {
	p := make([]byte, 1<<16)
	n, err := unix.Getxattr(path, name, p)
	if err != nil {
		return "", fmt.Errorf("read %s of %s: %w", name, path, err)
	}
	return strings.TrimSpace(string(p[:n])), nil
}
