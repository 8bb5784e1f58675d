package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/bench"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/measure"
)

// suite is one run.
type suite struct {
	opts     options
	progress io.Writer
	begin    time.Time
	device   device
	sizes    sizes
	facts    []string
	rows     []row
	// mount is nil if the machine can't mount; unmountable is the reason.
	mount       *mount
	unmountable error
	// descriptors is the reason why a process can't duplicate another's descriptors here.
	descriptors error
	// untested lists the checks that the machine, or lack of time, prevented.
	untested []string
	// tmpfs is a directory on a tmpfs, for comparison.
	tmpfs string
	// raw measures the driver's own copies; nil for other families.
	raw *session
	// log is the daemon's output, once it has ended.
	log  string
	undo measure.Undo
}

// sizes holds the sizes of files and limits, in bytes.
type sizes struct {
	// file is the size of a file that is read or written, large of one that is copied inside
	// the device, staged of one that is copied to and from the host tier; check of one whose
	// content is checked.
	file, large, staged, check devices.Size
	// device and host are the mount's limits; 0 is hmcfs's default.
	device, host devices.Size
}

// choose fits the sizes to the free memory.
func choose(quick bool, deviceFree, hostFree devices.Size) sizes {
	if quick {
		return sizes{
			file: 8 * devices.MiB, large: 16 * devices.MiB, staged: 16 * devices.MiB, check: 5*devices.MiB + 12345,
			device: 96 * devices.MiB, host: 128 * devices.MiB,
		}
	}
	// The device holds at most three large files, the raw side's two buffers of that size, and
	// a reserve at once.
	large := min(8*devices.GiB, deviceFree/7)
	// A staged file is in the host tier, in addition to a file of the tmpfs.
	staged := min(4*devices.GiB, large, hostFree/6)
	return sizes{
		file: floor(min(2*devices.GiB, large/2, staged)), large: floor(large), staged: floor(staged),
		check: 192*devices.MiB + 12345, host: floor(staged)*2 + devices.GiB,
	}
}

// floor rounds down to a multiple that every side of a row can move.
func floor(n devices.Size) devices.Size { return max(n/(64*devices.MiB), 1) * 64 * devices.MiB }

// newSuite finds the device and sets up what the machine supports.
func newSuite(ctx context.Context, o options, progress io.Writer) (*suite, error) {
	s := &suite{opts: o, progress: progress, begin: time.Now()}
	var err error
	if s.device, err = s.find(ctx); err != nil {
		return nil, err
	}
	if err = s.shareable(ctx); err != nil {
		return nil, err
	}
	s.sizes = choose(o.quick, s.device.free, available())
	s.unmountable = s.setUp(ctx)
	s.descriptors = s.takesDescriptors(ctx)
	s.facts = s.lookAround(ctx)
	if s.device.family != "cuda" {
		return s, nil
	}
	if s.raw, err = s.talk(ctx, "cudaraw", "serve", s.device.ordinal()); err != nil {
		s.close()
		return nil, err
	}
	s.undo.Later(s.raw.end)
	return s, nil
}

// setUp mounts hmcfs and a tmpfs. It returns an error if the machine can't.
func (s *suite) setUp(ctx context.Context) error {
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("no FUSE on this machine: %w", err)
	}
	if err = f.Close(); err != nil {
		return err
	}
	if s.mount, err = s.mountAt(ctx, "mnt"); err != nil {
		s.mount = nil
		return err
	}
	s.undo.Later(func() error { return s.endMount(ctx) })
	return s.setUpTmpfs()
}

// setUpTmpfs mounts a tmpfs, or uses the machine's.
func (s *suite) setUpTmpfs() error {
	dir, done, err := bench.PrivateTmpfs(max(4*s.sizes.file, 2*s.sizes.staged) + devices.GiB)
	if errors.Is(err, unix.EPERM) {
		if dir, err = os.MkdirTemp("/dev/shm", "hmcfs-gpu-"); err != nil {
			return err
		}
		done = func() error { return os.RemoveAll(dir) }
	}
	if err != nil {
		return err
	}
	s.tmpfs = dir
	s.undo.Later(done)
	return nil
}

// close removes everything; what can't be removed is reported as a failed row.
func (s *suite) close() {
	r := row{what: "unmount, nothing left behind", measured: "the daemon has ended, its directories are empty", verdict: passed}
	if err := errors.Join(s.undo.Close(), s.leftovers()); err != nil {
		r.verdict, r.measured = failed, oneLine(err.Error())
	}
	s.add(r)
}

// leftovers looks for what an unmount should have removed.
func (s *suite) leftovers() error {
	var errs []error
	for _, dir := range []string{"mnt", "mnt.run", "second", "second.run", "killed", "killed.run"} {
		left, err := filepath.Glob(filepath.Join(s.opts.scratch, dir, "*"))
		if err != nil || len(left) > 0 {
			errs = append(errs, fmt.Errorf("left behind: %v, %w", left, err))
		}
	}
	return errors.Join(errs...)
}

// all runs every row: first correctness, then speed.
func (s *suite) all(ctx context.Context) {
	s.deviceChecks(ctx)
	if s.mount == nil {
		s.withhold("everything through a mount", s.unmountable)
		return
	}
	if s.unmountable != nil {
		s.add(row{what: "a tmpfs to compare with", measured: oneLine(s.unmountable.Error()), verdict: skipped})
	}
	s.fileChecks(ctx)
	s.sharingChecks(ctx)
	s.recipeChecks(ctx)
	s.speed(ctx)
	s.check(ctx, "the daemon after all of it", s.healthy)
}
