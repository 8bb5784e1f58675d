package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
)

// newTier sets up a device; if there is a keeper, as one whose memory outlives the process.
func (st *startup) newTier(ctx context.Context, dev devices.Device, o Options) (*content.Tier, error) {
	if o.Keeper == nil {
		return content.NewTier(dev, o.Arena)
	}
	before, err := st.meta.DeviceEpoch(ctx, metadata.DeviceName(dev.Info().Name))
	if err != nil && !errors.Is(err, metadata.ErrNotExist) {
		return nil, err
	}
	return content.NewKeptTier(dev, o.Arena, content.KeepOptions{
		Keeper: o.Keeper, Generation: st.meta.Generation(), Before: before, Logger: st.log,
	})
}

// survivors compares the memory that an earlier process has left with the records.
type survivors struct {
	*startup
	tier *content.Tier
	// live are those whose memory is still needed, by inode; the records of lost are to be
	// changed.
	live []*content.Survivor
	lost []Ino
	// orphans are live, but have no name.
	orphans map[Ino]*content.Survivor
	// found are all inodes that have memory, or an entry in the table.
	found map[Ino]bool
}

// revive continues with the memory of an earlier process, if the tier has any, and writes
// the records that it had not written. It can be repeated at any point.
func (st *startup) revive(ctx context.Context, t *content.Tier) error {
	if !t.HasSurvivors() {
		return nil
	}
	sv := &survivors{startup: st, tier: t, orphans: map[Ino]*content.Survivor{}, found: map[Ino]bool{}}
	for _, s := range t.Survivors() {
		sv.found[Ino(s.Ino)] = true
		if err := sv.classify(ctx, s); err != nil {
			return err
		}
	}
	if err := sv.doubt(ctx); err != nil {
		return err
	}
	for _, ino := range sv.lost { // first, since nothing tells it once their memory is freed
		if err := st.setEpoch(ctx, ino, t.PastEpoch()); err != nil {
			return err
		}
	}
	restored, err := t.Revive(ctx, sv.live)
	if errors.Is(err, ErrLost) {
		st.log.Error("device memory of an earlier process can't be used; its objects are lost", zap.String("device", string(t.Name)), zap.Error(err))
		return nil
	}
	if err != nil {
		return fmt.Errorf("continue with the memory of an earlier process: %w; it is kept: mount again, or unmount to give it up", err)
	}
	if err := sv.record(ctx); err != nil {
		return err
	}
	for ino, s := range sv.orphans {
		if !s.Broken {
			st.orphans[ino] = orphan{tier: t, survivor: s}
		}
	}
	sv.empty()
	st.recovery.Survived += len(sv.live)
	st.recovery.SurvivedBytes += restored.Leased
	st.recovery.Freed += restored.Freed
	st.log.Info("device memory of an earlier process continued", zap.String("device", string(t.Name)), zap.Int("objects", len(sv.live)),
		zap.Int("lost", len(sv.lost)), zap.Uint64("bytes", uint64(restored.Leased)), zap.Uint64("freed", uint64(restored.Freed)))
	return nil
}

// empty finds the inodes without names and without content: the table has no entry for them, and
// would have one if they had been changed since their record was written.
func (sv *survivors) empty() {
	for ino, in := range sv.nameless {
		ours := in.IsRegular() && in.Device == sv.tier.Name && in.Bound == metadata.Unbound && !sv.found[ino] && !sv.meta.Cut()
		if ours && in.Allocated == 0 && (in.Epoch == 0 || in.Epoch == sv.tier.Epoch()) {
			sv.startup.orphans[ino] = orphan{tier: sv.tier}
		}
	}
}

// classify decides what becomes of an object. A record that says something else about the
// place of its bytes is right: it is written before the memory is freed or used.
func (sv *survivors) classify(ctx context.Context, s *content.Survivor) error {
	ino := Ino(s.Ino)
	in, err := sv.meta.Get(ctx, ino)
	switch now := sv.tier.Epoch(); {
	case errors.Is(err, metadata.ErrNotExist):
		if held, ok := sv.nameless[ino]; ok && held.Device == sv.tier.Name && !s.Broken {
			s.Dirty = true
			sv.live, sv.orphans[ino] = append(sv.live, s), s
		}
	case err != nil:
		return err
	case !in.IsRegular() || in.Device != sv.tier.Name || in.Bound != metadata.Unbound:
	case in.Epoch != 0 && in.Epoch != now && !s.Dirty:
	case s.Broken:
		sv.lost = append(sv.lost, ino)
	default:
		// Records that were cut off may be those of this object.
		s.Dirty, s.Recorded = s.Dirty || sv.meta.Cut(), in.Allocated
		sv.live = append(sv.live, s)
	}
	return nil
}

// doubt makes objects lost whose records say that they have memory, but which have none.
// There are none unless the memory is damaged, or the records are older than it.
func (sv *survivors) doubt(ctx context.Context) error {
	live := map[Ino]bool{}
	for _, s := range sv.live {
		live[Ino(s.Ino)] = true
	}
	return sv.meta.Walk(ctx, func(in metadata.Inode) error {
		ours := in.IsRegular() && in.Device == sv.tier.Name && in.Bound == metadata.Unbound && in.Epoch == sv.tier.Epoch()
		if ours && !live[in.Ino] && (in.Allocated > 0 || sv.meta.Cut()) {
			sv.lost = append(sv.lost, in.Ino)
		}
		return nil
	})
}

// record writes the records of the survivors that are newer than theirs.
func (sv *survivors) record(ctx context.Context) error {
	for _, s := range sv.live {
		if _, nameless := sv.orphans[Ino(s.Ino)]; nameless || !s.Dirty && !s.Broken {
			continue
		}
		_, err := sv.meta.SaveContent(ctx, Ino(s.Ino), func(in *metadata.Inode) error {
			if s.Dirty {
				applyFacts(in, s.Facts)
			}
			in.Allocated = 0
			for i := range s.Maps {
				in.Allocated += s.Maps[i].Len
			}
			if s.Broken {
				in.Epoch = sv.tier.PastEpoch()
			}
			return nil
		}, s.Maps)
		if err != nil {
			return fmt.Errorf("write the record of object %d: %w", s.Ino, err)
		}
		sv.tier.Record(s)
	}
	return nil
}

// orphan is an inode without names that was open when the earlier process died.
type orphan struct {
	tier     *content.Tier
	survivor *content.Survivor // nil on the host tier, and for an object without content
}

// adoptOrphans puts the orphans into the table, where they stay until ReleaseUnclaimed, and
// releases what is left of the others.
func (s *Store) adoptOrphans(ctx context.Context, st *startup) error {
	for ino, in := range st.nameless {
		from, ok := st.orphans[ino]
		if t, err := s.tiers.named(in.Device); err == nil && t.Files != nil && in.IsRegular() && in.Bound == metadata.Unbound {
			from, ok = orphan{tier: t}, true
		}
		switch {
		case in.IsDir():
			s.adoptDir(ctx, in)
			ok = true
		case ok:
			ok = s.adoptOrphan(ctx, in, from)
		}
		if ok {
			s.orphans = append(s.orphans, in.Ino)
		} else if err := s.meta.ReleaseXattrs(ctx, ino); err != nil {
			return err
		}
	}
	slices.Sort(s.orphans)
	return nil
}

func (s *Store) adoptOrphan(ctx context.Context, in metadata.Inode, from orphan) bool {
	tb := s.table
	var x *content.Extents
	switch {
	case from.survivor != nil:
		applyFacts(&in, from.survivor.Facts)
		var err error
		if x, err = content.NewSurvivor(from.tier, tb.engine, tb.warn, from.survivor); err != nil {
			s.log.Warn("could not continue a file without a name", zap.Uint64("ino", uint64(in.Ino)), zap.Error(err))
			return false
		}
	case from.tier.Files == nil:
		x = tb.emptyContent(from.tier)
	}
	var o *object // nil is loaded when it is pinned
	if x != nil {
		o = &object{table: tb, ino: in.Ino, tier: from.tier, body: x, facts: facts{
			size: in.Size, atime: in.Atime, mtime: in.Mtime, ctime: in.Ctime, epoch: in.Epoch,
		}}
	}
	sh := tb.shard(in.Ino)
	sh.mu.Lock()
	e := sh.getLocked(in.Ino)
	e.orphan, e.xattrs, e.obj = &in, s.attrs.xattrsEnd(ctx, in.Ino), o
	e.lookups++ // reachable until it is pinned
	sh.mu.Unlock()
	_, err := tb.pin(ctx, in.Ino, pinUse)
	tb.forget(in.Ino, 1)
	return err == nil
}

// adoptDir is adoptOrphan for a directory.
func (s *Store) adoptDir(ctx context.Context, in metadata.Inode) {
	sh := s.table.shard(in.Ino)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.getLocked(in.Ino)
	e.orphan, e.xattrs = &in, s.attrs.xattrsEnd(ctx, in.Ino)
	e.opens++ // until ReleaseUnclaimed
}

// Orphans returns the inodes without names that were open when the process before died.
// They can be opened and referenced until ReleaseUnclaimed.
func (s *Store) Orphans() []Ino {
	s.unclaimed.Lock()
	defer s.unclaimed.Unlock()
	return slices.Clone(s.orphans)
}

// ReleaseUnclaimed ends the inodes that Orphans returned and that are not in use, removes the names of files of publish/ that
// were received and are not in use, and frees memory that no device of the records has. Calling it again, also after Close, does nothing.
func (s *Store) ReleaseUnclaimed(ctx context.Context) {
	s.unclaimed.Lock()
	defer s.unclaimed.Unlock()
	for _, ino := range s.orphans {
		if o := s.table.peek(ino); o != nil {
			s.table.unpin(ctx, o, pinUse)
		} else {
			s.UnpinDir(ino)
		}
	}
	s.orphans = nil
	s.publications.removeReceived(ctx, s.received)
	s.received = nil
	if s.keeper == nil {
		return
	}
	if err := s.freeAbsent(ctx); err != nil {
		s.log.Warn("could not free the memory of devices that are not mounted", zap.Error(err))
	}
	s.keeper = nil
}
