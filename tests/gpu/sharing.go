package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/measure"
)

// The attributes by which memory is shared.
const (
	bindAttr   = "user.hmc.bind"
	handleAttr = "user.hmc.handle"
)

// shared is one way in which memory of a device is shared.
type shared struct {
	*suite

	// dir is the directory in the mount, family the family's name in handles.
	dir, family, kind string
}

// path returns a path in that directory.
func (s shared) path(name string) string { return s.mount.Path(s.dir, name) }

// ways returns the ways to share memory that the mount has.
func (s *suite) ways() []shared {
	ways := []shared{{s, "host", "host", "memfd"}}
	if s.device.family == "sim" {
		ways = append(ways, shared{s, s.device.name, "sim", "memfd"})
	}
	for _, kind := range s.shareKinds() {
		ways = append(ways, shared{s, s.device.name, s.device.family, kind})
	}
	return ways
}

// sharingChecks runs the truth tests and the faults around them.
func (s *suite) sharingChecks(ctx context.Context) {
	for _, w := range s.ways() {
		name := " (" + w.dir + ", " + w.kind + ")"
		if w.kind != "ipc" && s.descriptors != nil {
			s.withhold("bind and export"+name, s.descriptors)
			continue
		}
		s.check(ctx, "bind: another process's memory is the file, both ways"+name, unsupported(w.bindTruth))
		s.check(ctx, "export: another process has the file's memory, both ways"+name, unsupported(w.exportTruth))
		s.check(ctx, "the owner is killed in mid-read: EIO, lost, nothing hangs"+name, unsupported(w.ownerKilled))
		s.check(ctx, "what can't be bound is refused"+name, unsupported(w.refusedBinds))
		s.check(ctx, "strangers can't bind and export"+name, unsupported(w.strangers))
	}
}

// unsupported turns the error for something that the device or this hmcfs does not support
// into a skip: a card need not have every kind of handle.
func unsupported(fn func(context.Context) (string, error)) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		seen, err := fn(ctx)
		if errors.Is(err, unix.EOPNOTSUPP) {
			err = skip("%v", oneLine(err.Error()))
		}
		return seen, err
	}
}

// handleOf returns the value of user.hmc.bind for the output of truth.
func (s shared) handleOf(text string) string {
	return strings.Replace(text, `"family":"host"`, `"family":"`+s.family+`"`, 1)
}

// bind binds a new file to the memory of a handle.
func (s shared) bind(file, handle string) error {
	return errors.Join(
		create(file, func(*os.File) error { return nil }),
		setBind(file, handle))
}

func setBind(file, handle string) error {
	if err := unix.Setxattr(file, bindAttr, []byte(handle), 0); err != nil {
		return fmt.Errorf("set %s of %s: %w", bindAttr, file, err)
	}
	return nil
}

// bindTruth binds memory of an independent process: one allocation, and several allocations
// with other bytes around the object's.
func (s shared) bindTruth(ctx context.Context) (string, error) {
	var errs []error
	for _, shape := range []struct {
		size         devices.Size
		pieces, lead int
	}{{4096, 1, 0}, {s.sizes.check, 1, 0}, {s.sizes.check, 4, 12288}} {
		if err := s.bindOne(ctx, shape.size, shape.pieces, shape.lead); err != nil {
			errs = append(errs, fmt.Errorf("%v in %d pieces: %w", shape.size, shape.pieces, err))
		}
	}
	return fmt.Sprintf("4 KiB, %v in 1 and in 4 pieces", s.sizes.check), errors.Join(errs...)
}

func (s shared) bindOne(ctx context.Context, size devices.Size, pieces, lead int) (err error) {
	owner, handle, err := s.own(ctx, s.kind, size, pieces, lead)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, owner.end()) }()
	file := s.path("bound")
	defer func() { _ = remove(file) }()
	if err := s.bind(file, s.handleOf(handle)); err != nil {
		return err
	}
	steps := []func() error{
		func() error { return sameContent(file, seedA, size, odd) },
		func() error { return writeContent(file, seedB, size, odd) },
		func() error { return owner.agree(verify(seedB)) },
		func() error { return owner.agree("guards") },
		// The owner's changes are visible at once: nothing caches old bytes.
		func() error { return owner.agree(fill(seedC)) },
		func() error { return sameContent(file, seedC, size, 1<<20) },
		func() error { return s.copyOfBound(ctx, file, size) },
		func() error { return s.isIn(file, "bound") },
		func() error { return os.Remove(file) },
		// Unbinding neither frees nor changes the owner's memory.
		func() error { return owner.agree(verify(seedC)) },
		func() error { return owner.agree("guards") },
	}
	return inOrder(steps)
}

// inOrder runs the steps up to the first error.
func inOrder(steps []func() error) error {
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return nil
}

// copyOfBound copies a bound file inside its device.
func (s shared) copyOfBound(ctx context.Context, file string, size devices.Size) error {
	defer func() { _ = remove(file + ".copy") }()
	return errors.Join(s.command(ctx, "cp", file, file+".copy"), sameContent(file+".copy", seedC, size, 1<<20))
}

// isIn checks that a file is in a state.
func (s shared) isIn(file, wanted string) error {
	state, err := xattr(file, "user.hmc.state")
	if err == nil && state != wanted {
		err = fmt.Errorf("user.hmc.state of %s is %q, should be %q", file, state, wanted)
	}
	return err
}

// exportTruth lets an independent process open the memory of a file: of one that was written
// in one piece, and of one whose memory is fragmented.
func (s shared) exportTruth(ctx context.Context) (string, error) {
	var errs []error
	for _, scattered := range []bool{false, true} {
		if err := s.exportOne(ctx, scattered); err != nil {
			errs = append(errs, fmt.Errorf("scattered %v: %w", scattered, err))
		}
	}
	return s.sizes.check.String(), errors.Join(errs...)
}

func (s shared) exportOne(ctx context.Context, scattered bool) (err error) {
	file, other, size := s.path("exported"), s.path("between"), s.sizes.check
	defer func() { _ = remove(file, other) }()
	if scattered {
		err = interleave(file, other, size)
	} else {
		err = writeContent(file, seedA, size, 1<<20)
	}
	if err != nil {
		return err
	}
	handle, err := s.export(ctx, file)
	if err != nil {
		return err
	}
	opener, err := s.open(ctx, handle)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opener.end()) }()
	return inOrder([]func() error{
		func() error { return opener.agree(verify(seedA)) },
		func() error { return opener.agree(fill(seedB)) },
		func() error { return sameContent(file, seedB, size, odd) },
		func() error { return writeContent(file, seedC, size, odd) },
		func() error { return opener.agree(verify(seedC)) },
		func() error { return refused(os.Truncate(file, int64(size/2)), "cut what is exported", unix.EBUSY) },
		func() error { return sameContent(file, seedC, size, 1<<20) },
		func() error { return endExport(file) },
		func() error { return os.Truncate(file, int64(size/2)) },
	})
}

// interleave writes two files in alternation, so that their memory alternates too.
func interleave(file, other string, size devices.Size) error {
	const part = 3 << 18
	return create(file, func(f *os.File) error {
		return create(other, func(g *os.File) error {
			for at := int64(0); at < int64(size); at += part {
				n := int(min(part, int64(size)-at))
				_, err1 := f.WriteAt(content(seedA, at, n), at)
				_, err2 := g.WriteAt(content(seedC, at, n), at)
				if err := errors.Join(err1, err2); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// export exports a file's memory: by the attribute if its kind is the device's default, and by
// the program if it is not.
func (s shared) export(ctx context.Context, file string) (string, error) {
	handle, err := xattr(file, handleAttr)
	if err != nil || strings.Contains(handle, `"kind":"`+s.kind+`"`) {
		return handle, err
	}
	if err := endExport(file); err != nil {
		return "", err
	}
	return measure.Output(s.tool(ctx, "hmcfs", "export", "--json", "--kind", s.kind, file))
}

// endExport ends the exports of a file, which could not be removed otherwise if a handle does
// not keep the memory.
func endExport(file string) error {
	if err := unix.Removexattr(file, handleAttr); err != nil {
		return fmt.Errorf("remove %s of %s: %w", handleAttr, file, err)
	}
	return nil
}

// refused returns nil if err is one of the wanted errors.
func refused(err error, what string, wanted ...unix.Errno) error {
	for _, w := range wanted {
		if errors.Is(err, w) {
			return nil
		}
	}
	return fmt.Errorf("%s: %w, should be one of %v", what, orNil(err), wanted)
}
