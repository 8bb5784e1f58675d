package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/measure"
)

// The seeds of the contents; each check that overwrites a file uses another one.
const (
	seedA uint64 = 101 + iota
	seedB
	seedC
)

// fileChecks checks files in the device's directory.
func (s *suite) fileChecks(ctx context.Context) {
	s.check(ctx, "what is written is read, by odd calls and by a map", s.roundTrip)
	s.check(ctx, "cp in, cp inside the device, mv to the host tier, cp out", s.copies)
	s.check(ctx, "hmcfs cp between host tier and device", s.toolCopies)
	s.check(ctx, "fresh memory and holes are zeros after other files", s.oldBytes)
	s.check(ctx, "more than the device has is ENOSPC, the log says why, and files live on", s.noSpace)
	s.check(ctx, "two daemons on one device", s.twoDaemons)
	s.check(ctx, "kill -9 of the daemon: files on the device go on", s.killedDaemon)
	s.check(ctx, "what removed files had is given back to the device", s.givesBack)
}

// roundTrip writes and reads whole pages, parts of pages, and more than fits into one request.
func (s *suite) roundTrip(ctx context.Context) (string, error) {
	f := s.path("round-trip")
	defer func() { _ = os.Remove(f) }()
	for _, size := range []devices.Size{1, 4095, devices.MiB + 1, s.sizes.check} {
		for seed, call := range map[uint64]int{seedA: 16 << 20, seedB: odd, seedC: 1 << 20} {
			if err := errors.Join(ctx.Err(), writeContent(f, seed, size, call)); err != nil {
				return "", err
			}
			if err := errors.Join(sameContent(f, seed, size, odd), sameContent(f, seed, size, 1<<20),
				sameContent(f, seed, size, 16<<20), sameMapped(f, seed, size)); err != nil {
				return "", err
			}
		}
	}
	return "1 B to " + s.sizes.check.String(), nil
}

func (s *suite) copies(ctx context.Context) (string, error) {
	outside, out := filepath.Join(s.opts.scratch, "in"), filepath.Join(s.opts.scratch, "out")
	in, inside, host := s.path("in"), s.path("inside"), s.hostPath("moved")
	defer func() { _ = remove(outside, out, in, inside, host) }()
	if err := writeContent(outside, seedA, s.sizes.check, 1<<20); err != nil {
		return "", err
	}
	var ways []string
	for _, step := range []struct {
		verb, from, to string
		away           bool
	}{{"cp", outside, in, false}, {"cp", in, inside, false}, {"mv", inside, host, true}, {"cp", host, out, false}} {
		if err := s.command(ctx, step.verb, step.from, step.to); err != nil {
			return "", err
		}
		if err := sameContent(step.to, seedA, s.sizes.check, 1<<20); err != nil {
			return "", err
		}
		if way, err := xattr(step.to, "user.hmc.path"); err == nil {
			ways = append(ways, way)
		}
	}
	if len(ways) < 2 || ways[1] != "d2d" {
		return "", fmt.Errorf("the copy inside the device took another path: the paths were %v", ways)
	}
	return s.sizes.check.String() + ", paths " + strings.Join(ways, ", "), nil
}

func (s *suite) toolCopies(ctx context.Context) (string, error) {
	host, on, back := s.hostPath("tool"), s.path("tool"), s.hostPath("back")
	defer func() { _ = remove(host, on, back) }()
	if err := writeContent(host, seedB, s.sizes.check, 1<<20); err != nil {
		return "", err
	}
	for _, pair := range [][2]string{{host, on}, {on, back}} {
		if err := s.command(ctx, "hmcfs", "cp", pair[0], pair[1]); err != nil {
			return "", err
		}
		if err := sameContent(pair[1], seedB, s.sizes.check, 1<<20); err != nil {
			return "", err
		}
	}
	return s.sizes.check.String(), nil
}

// oldBytes frees memory that is full of content, and allocates it again in every way that does
// not overwrite all of it.
func (s *suite) oldBytes(context.Context) (string, error) {
	f := s.path("old")
	defer func() { _ = os.Remove(f) }()
	size := s.sizes.check
	for _, grow := range []func(*os.File) error{
		func(f *os.File) error { return f.Truncate(int64(size)) },
		func(f *os.File) error { return devices.Fallocate(int(f.Fd()), 0, 0, size) },
		func(f *os.File) error { _, err := f.WriteAt([]byte{0}, int64(size)-1); return err },
	} {
		if err := errors.Join(writeContent(f, seedC, size, 1<<20), os.Remove(f), create(f, grow), onlyZeros(f, 0, size),
			os.Remove(f)); err != nil {
			return "", err
		}
	}
	return size.String(), nil
}

// create creates a file and calls fn with it.
func create(path string, fn func(*os.File) error) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(fn(f), f.Close())
}

// noSpace requests more than the device has.
func (s *suite) noSpace(ctx context.Context) (string, error) {
	kept, f := s.path("kept"), s.path("too-large")
	defer func() { _ = remove(kept, f) }()
	if err := writeContent(kept, seedA, s.sizes.check, 1<<20); err != nil {
		return "", err
	}
	d, err := s.mount.deviceStatus(ctx, s.device.name)
	if err != nil {
		return "", err
	}
	err = create(f, func(f *os.File) error { return devices.Fallocate(int(f.Fd()), 0, 0, d.Total) })
	if !errors.Is(err, unix.ENOSPC) {
		return "", fmt.Errorf("fallocate of all %v: %w, should be ENOSPC", d.Total, orNil(err))
	}
	log, err := s.mount.log()
	if err != nil {
		return "", err
	}
	told := regexp.MustCompile(s.device.name + `: out of memory: [^"]* asked, [^"]* free`).FindString(log)
	if told == "" {
		return "", errors.New("the log names neither the card nor what was asked and what is free")
	}
	if err = errors.Join(sameContent(kept, seedA, s.sizes.check, 1<<20), remove(f)); err != nil {
		return "", err
	}
	return told, errors.Join(writeContent(f, seedB, s.sizes.check, 1<<20), sameContent(f, seedB, s.sizes.check, 1<<20),
		sameContent(kept, seedA, s.sizes.check, 1<<20))
}

// givesBack waits until the daemon holds only the device memory that its files need: other
// programs need the card too. The daemon delays this, in case another file needs the memory.
func (s *suite) givesBack(ctx context.Context) (string, error) {
	const limit = time.Minute
	if s.opts.quick {
		return "", skip("it takes half a minute")
	}
	begin := time.Now()
	err := within(ctx, limit, func() error {
		d, err := s.mount.deviceStatus(ctx, s.device.name)
		if err == nil && d.Held > d.Used {
			err = fmt.Errorf("%v of %s are held and %v are used, after %v", d.Held, d.Name, d.Used, limit)
		}
		return err
	})
	return fmt.Sprintf("within %v", time.Since(begin).Round(time.Second)), err
}

// twoDaemons mounts the device a second time, in another process.
func (s *suite) twoDaemons(ctx context.Context) (_ string, err error) {
	second, err := s.mountAt(ctx, "second")
	if err != nil {
		return "", err
	}
	here, there := s.path("here"), second.Path(s.device.name, "there")
	defer func() { _ = remove(here) }()
	err = errors.Join(
		writeContent(here, seedA, s.sizes.check, 1<<20), writeContent(there, seedB, s.sizes.check, 1<<20),
		sameContent(here, seedA, s.sizes.check, 1<<20), sameContent(there, seedB, s.sizes.check, 1<<20),
		second.Unmount(ctx), sameContent(here, seedA, s.sizes.check, 1<<20))
	return "each keeps its own bytes, also when the other ends", err
}

// errNone represents success where an error was expected.
var errNone = errors.New("no error")

func orNil(err error) error {
	if err == nil {
		return errNone
	}
	return err
}

// command runs a program of the system, or hmcfs.
func (s *suite) command(ctx context.Context, name string, args ...string) error {
	cmd := s.tool(ctx, name, args...)
	if name != "hmcfs" {
		cmd = system(ctx, name, args...)
	}
	_, err := measure.Output(cmd)
	return err
}
