package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/host"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/badgerkv"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// Fsck checks the records of the running mount. The kernel is notified of what is removed
// or repaired, so that it drops cached names and attributes.
func (d *Daemon) Fsck(ctx context.Context, r adminapi.FsckRequest) (adminapi.FsckReport, error) {
	devs, err := d.store.Devices(ctx)
	if err != nil {
		return adminapi.FsckReport{}, err
	}
	c := checker{meta: d.meta, epochs: epochsOf(devs), kernel: d.files}
	report, err := c.check(ctx, r)
	if err == nil {
		err = listAside(&report, r, d.store)
	}
	if err != nil || !r.RemoveLost || len(report.Lost) == 0 {
		return report, err
	}
	return report, c.remove(ctx, &report, func(ino metadata.Ino) error { return d.store.RemoveLost(ctx, ino) })
}

// asideKeeper holds host memory that was set aside: it is a store, or a tier that no
// process has open.
type asideKeeper interface {
	Aside() ([]devices.AsideFile, error)
	RemoveAside(name string) error
}

// listAside adds the files that were set aside to a report, and removes them if requested.
func listAside(report *adminapi.FsckReport, r adminapi.FsckRequest, from asideKeeper) error {
	files, err := from.Aside()
	if err != nil {
		return err
	}
	var faults []error
	for _, f := range files {
		row := adminapi.AsideFile{Path: f.Path, Ino: metadata.Ino(f.ID), Size: f.Size, Used: f.Used, Changed: f.Changed}
		if r.RemoveAside {
			fault := from.RemoveAside(f.Name)
			if row.Removed = fault == nil; row.Removed {
				report.RemovedAside++
			}
			faults = append(faults, fault)
		}
		report.Aside = append(report.Aside, row)
	}
	return errors.Join(faults...)
}

// CheckState checks the records in a state directory that no daemon uses.
func CheckState(ctx context.Context, stateDir string, r adminapi.FsckRequest) (report adminapi.FsckReport, err error) {
	p := place.Paths{State: stateDir}
	empty, err := badgerkv.IsEmpty(p.Metadata())
	if err != nil {
		return report, fmt.Errorf("look at the records: %w", err)
	}
	if empty {
		return report, fmt.Errorf("state directory %s has no records: nothing was kept there, or it is the wrong directory", stateDir)
	}
	if err = p.StateIsOf(os.Geteuid()); err != nil {
		return report, err
	}
	last, _, _ := place.ReadHolder(p.StateLock())
	lock, err := place.Acquire(p.StateLock(), last)
	if err != nil {
		if held, ok := errors.AsType[*place.HeldError](err); ok {
			return report, fmt.Errorf("state directory %s is in use by process %d; check the running mount instead: hmcfs fsck %s",
				stateDir, held.Holder.PID, held.Holder.MountPoint)
		}
		return report, err
	}
	defer lock.Release()
	opts := badgerkv.Options{Dir: p.Metadata()}
	if p.Runtime = last.RuntimeDir; last.RuntimeDir != "" && p.TrustsRuntime(os.Geteuid()) {
		opts.Witness, opts.LookOnly = p.Witness(), true
		switch opts.Journal, err = p.OpenJournal(false); {
		case err == nil:
			defer func() { _ = opts.Journal.Close() }()
		case !errors.Is(err, os.ErrNotExist):
			return report, err
		}
	}
	meta, rows, err := openState(ctx, opts, r.Repair)
	if err != nil {
		return report, stateFault(stateDir, err)
	}
	defer func() { err = errors.Join(err, meta.Close()) }()
	left := survivingTiers(last, meta.Generation())
	c := checker{meta: meta, epochs: survivingEpochs(left), kernel: noKernel{}}
	report, err = c.check(ctx, r)
	report.Problems = slices.Insert(report.Problems, 0, rows...)
	report.Repaired += len(rows)
	for _, l := range left {
		if err == nil && !l.InUse {
			err = listAside(&report, r, l)
		}
	}
	if err != nil || !r.RemoveLost {
		return report, err
	}
	return report, c.remove(ctx, &report, func(ino metadata.Ino) error { return c.removeNames(ctx, ino) })
}

// stateFault describes an error of the records in a state directory, with the remedy.
func stateFault(dir string, err error) error {
	if damaged, ok := errors.AsType[*badgerkv.JournalError](err); ok {
		return journalFault(dir, damaged)
	}
	switch {
	case errors.Is(err, badgerkv.ErrLocked):
		return fmt.Errorf("state directory %s: %w; check the running mount instead: hmcfs fsck MOUNTPOINT", dir, err)
	case errors.Is(err, metadata.ErrNoSpace):
		return err
	case errors.Is(err, metadata.ErrNewer):
		return fmt.Errorf("state directory %s: %w; use the newer hmcfs that wrote it", dir, err)
	case !errors.Is(err, metadata.ErrCorrupt):
		return fmt.Errorf("state directory %s can't be opened, although no damage is known: %w; remove the cause, and check it again", dir, err)
	}
	return fmt.Errorf("state directory %s can't be read: %w; restore a good copy, or recover what can be read: hmcfs fsck --repair --state-dir %s", dir, err, dir)
}

type checker struct {
	meta *metadata.Store
	// epochs are the incarnations of the devices whose memory exists.
	epochs map[metadata.DeviceName]metadata.Epoch
	kernel kernel
}

// check finds contradictions, which it repairs if requested, and lost objects.
func (c *checker) check(ctx context.Context, r adminapi.FsckRequest) (adminapi.FsckReport, error) {
	report := adminapi.FsckReport{Problems: []adminapi.Problem{}, Lost: []adminapi.LostObject{}, Aside: []adminapi.AsideFile{}}
	found, err := c.problems(ctx)
	if err != nil {
		return report, err
	}
	if r.Repair {
		err = c.repair(ctx, &report, found)
	} else {
		for _, p := range found {
			report.Problems = append(report.Problems, adminapi.Problem{Text: p.String(), Ino: p.Ino})
		}
	}
	if err != nil {
		return report, err
	}
	err = c.meta.Walk(ctx, func(i metadata.Inode) error {
		report.Checked++
		if !objects.IsLost(i, c.epochs[i.Device]) {
			return nil
		}
		path, perr := c.meta.PathOf(ctx, i.Ino)
		if perr != nil {
			path = filepath.Join(string(i.Device), fmt.Sprintf("#%d", i.Ino))
		}
		report.Lost = append(report.Lost, adminapi.LostObject{Path: path, Ino: i.Ino, Device: i.Device, Size: i.Size})
		return nil
	})
	if err != nil && len(report.Problems) == report.Repaired {
		return report, fmt.Errorf("read the records: %w", err)
	}
	return report, nil
}

func (c *checker) problems(ctx context.Context) ([]metadata.Problem, error) {
	var found []metadata.Problem
	err := c.meta.Check(ctx, func(p metadata.Problem) { found = append(found, p) })
	if err != nil {
		return nil, fmt.Errorf("check the records: %w", err)
	}
	return found, nil
}

func (c *checker) remove(ctx context.Context, report *adminapi.FsckReport, one func(metadata.Ino) error) error {
	var faults []error
	for n := range report.Lost {
		l := &report.Lost[n]
		if err := cmp.Or(ctx.Err(), one(l.Ino)); err != nil {
			faults = append(faults, fmt.Errorf("remove lost object %s: %w", l.Path, err))
			continue
		}
		l.Removed = true
		report.Removed++
	}
	return errors.Join(faults...)
}

func (c *checker) removeNames(ctx context.Context, ino metadata.Ino) error {
	for {
		i, err := c.meta.Get(ctx, ino)
		if errors.Is(err, metadata.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if i, err = c.meta.Unlink(ctx, i.Parent, i.Name); err != nil || i.Nlink == 0 {
			return err
		}
	}
}

// survivingTiers returns the host tiers in the places that the last lock holder used; their
// memory outlives a daemon. Tiers that other records have claimed since are excluded.
func survivingTiers(last place.Holder, g metadata.Generation) []host.Left {
	if last.RuntimeDir == "" {
		return nil
	}
	left, err := host.Leftover(host.Options{Dir: last.RuntimeDir})
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(left, func(l host.Left) bool {
		owner, unreadable := l.Owner()
		return unreadable != nil || owner != objects.TierOwner(g)
	})
}

// survivingEpochs returns the incarnations of the tiers.
func survivingEpochs(left []host.Left) map[metadata.DeviceName]metadata.Epoch {
	out := map[metadata.DeviceName]metadata.Epoch{}
	for _, l := range left {
		text, err := os.Readlink(filepath.Join(l.Path, "epoch"))
		if err != nil {
			continue
		}
		if n, err := strconv.ParseUint(text, 10, 64); err == nil {
			out[metadata.DeviceName(host.Family)] = metadata.Epoch(n)
		}
	}
	return out
}
