package content

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/arena"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/transport"
)

// Survivor is an object whose memory has outlived the process that wrote it.
type Survivor struct {
	Ino   uint64
	Facts Facts
	// Dirty reports that the object's record is older than Facts and the memory, and Broken
	// that the content is not complete.
	Dirty, Broken bool
	// Recorded is the memory of an object that is not dirty, in bytes, by its record. The
	// caller of Revive sets it.
	Recorded uint64
	// Maps are the mappings of a dirty object, after Revive.
	Maps []metadata.Mapping

	entry int
	rank  uint64
}

// HasSurvivors reports whether the tier continues the memory of an earlier process.
func (t *Tier) HasSurvivors() bool { return t.kept != nil && t.kept.found != nil }

// Survivors returns the objects that the memory of the earlier process holds, by inode.
func (t *Tier) Survivors() []*Survivor {
	kt := t.table(t.Epoch())
	var all []*Survivor
	for entry := range int(kt.words.At(headTop).Load()) {
		state, ino := kt.word(entry, entryState).Load(), kt.word(entry, entryIno).Load()
		if state&stateUsed == 0 || ino == 0 {
			continue
		}
		f := kt.facts(entry)
		all = append(all, &Survivor{
			Ino: ino, Facts: f, Dirty: state&stateDirty != 0,
			Broken: state&(stateLoose|stateDamaged) != 0 || !f.possible(), entry: entry, rank: state / stateRank,
		})
	}
	slices.SortFunc(all, func(a, b *Survivor) int {
		return cmp.Or(cmp.Compare(a.Ino, b.Ino), cmp.Compare(b.rank, a.rank))
	})
	return slices.CompactFunc(all, func(a, b *Survivor) bool { return a.Ino == b.Ino })
}

// Revive leases the memory of the survivors that are still objects, and frees that of all
// others. It fills in the mappings of dirty ones. Their bytes end at their size: what a
// write had stored beyond it was not confirmed. Survivors whose memory contradicts itself,
// or their record, are then broken and without memory.
//
// Errors: ErrLost for a file that is no slab. The device is then in a new epoch, and all
// objects of the earlier process are lost. After any other error everything is still kept,
// and the tier can only be left.
func (t *Tier) Revive(ctx context.Context, live []*Survivor) (arena.Restored, error) {
	sum, err := t.revive(context.WithoutCancel(ctx), live)
	switch {
	case errors.Is(err, arena.ErrNoSlab):
		err = errors.Join(ErrLost, err)
		if failed := t.startOver(); failed != nil {
			return sum, failed
		}
	case err != nil:
		return sum, err
	}
	t.warnUnfreed(errors.Join(t.arena.Trim(), t.endFound()))
	return sum, err
}

// startOver begins a new epoch, which loses all objects.
func (t *Tier) startOver() error {
	k := t.kept
	next := metadata.Epoch(devices.NextEpoch(t.Dev.Epoch()))
	if err := k.dev.Resume(devices.Epoch(next)); err != nil {
		return err
	}
	k.id.first = next
	if t.table(next) == nil {
		return fmt.Errorf("could not keep the state of %s", t.Name)
	}
	return nil
}

func (t *Tier) revive(ctx context.Context, live []*Survivor) (arena.Restored, error) {
	k, kt := t.kept, t.table(t.Epoch())
	byOwner := make(map[uint64]*Survivor, len(live))
	for _, s := range live {
		byOwner[ownerOf(s.entry)] = s
	}
	sum, err := t.arena.Restore(ctx, k.found, func(f arena.Found) bool {
		s := byOwner[f.Owner]
		if s != nil {
			s.Maps = append(s.Maps, metadata.Mapping{
				FileOff: f.Off, Len: uint64(f.Range.Len), Written: f.Written,
				Device: t.Name, Epoch: kt.epoch, Allocation: metadata.AllocationID(f.Slab), Off: uint64(f.Range.Off),
			})
		}
		return s != nil
	})
	if err != nil {
		return sum, err
	}
	for _, s := range live {
		if !s.Dirty {
			t.checkMaps(kt, s)
		} else if err := t.settleMaps(kt, s); err != nil {
			return sum, err
		}
	}
	kt.adopt(byOwner)
	return sum, nil
}

// checkMaps compares the memory of a survivor with its record.
func (t *Tier) checkMaps(kt *keptTable, s *Survivor) {
	n := uint64(0)
	for i := range s.Maps {
		n += s.Maps[i].Len
	}
	if n != s.Recorded {
		t.breakUp(kt, s)
	}
	s.Maps = nil
}

// settleMaps puts the mappings of a survivor into order.
func (t *Tier) settleMaps(kt *keptTable, s *Survivor) error {
	if len(s.Maps) > 0 {
		s.Facts.Epoch = kt.epoch
	}
	slices.SortFunc(s.Maps, func(a, b metadata.Mapping) int { return cmp.Compare(a.FileOff, b.FileOff) })
	end := uint64(0)
	for i := range s.Maps {
		m := &s.Maps[i]
		if m.FileOff < end || m.FileOff+m.Len > maxOffset {
			t.breakUp(kt, s)
			return nil
		}
		end = m.FileOff + m.Len
		data := min(m.Written, max(s.Facts.Size, m.FileOff)-m.FileOff)
		if data == m.Written {
			continue
		}
		m.Written = data
		lease, err := t.arena.Resolve(arena.SlabID(m.Allocation), mappedRange(m))
		if err != nil {
			return err
		}
		t.arena.Label(lease, arena.Label{Owner: ownerOf(s.entry), Off: m.FileOff, Written: data})
	}
	return nil
}

// breakUp frees the memory of a survivor.
func (t *Tier) breakUp(kt *keptTable, s *Survivor) {
	kt.setState(s.entry, stateLoose, 0)
	s.Broken = true
	var errs []error
	for i := range s.Maps {
		lease, err := t.arena.Resolve(arena.SlabID(s.Maps[i].Allocation), mappedRange(&s.Maps[i]))
		if err == nil {
			err = t.arena.Free(lease)
		}
		errs = append(errs, err)
	}
	s.Maps = nil
	t.warnUnfreed(errors.Join(errs...))
}

// warnUnfreed logs a failure to free memory that no object needs; it may be nil. What is still
// kept of it is freed by the next start.
func (t *Tier) warnUnfreed(err error) {
	if err != nil {
		t.kept.Logger.Warn("could not free all memory of an earlier process", zap.String("device", string(t.Name)), zap.Error(err))
	}
}

func mappedRange(m *metadata.Mapping) devices.Range {
	return devices.Range{Off: devices.Offset(m.Off), Len: devices.Size(m.Len)}
}

// endFound drops the files of an earlier process that are not in use.
func (t *Tier) endFound() error {
	k := t.kept
	var errs []error
	for name, f := range k.found {
		errs = append(errs, f.Close())
		if name != keptName(k.device) && !t.arena.Has(name) {
			errs = append(errs, keptSlabs{k}.Drop(name)) // which also takes it from the list
		}
	}
	k.found = nil
	return errors.Join(errs...)
}

// adopt frees the entries of all owners but the given.
func (kt *keptTable) adopt(live map[uint64]*Survivor) {
	for entry := range int(kt.words.At(headTop).Load()) {
		if live[ownerOf(entry)] == nil {
			kt.release(entry)
		}
	}
	kt.mu.Lock()
	defer kt.mu.Unlock()
	for _, s := range live {
		kt.rank = max(kt.rank, s.rank)
	}
}

// Record records that the record of a dirty survivor now is as Facts and Maps say or, if
// it is broken, that the object is lost.
func (t *Tier) Record(s *Survivor) {
	kt := t.table(t.Epoch())
	if s.Broken || len(s.Maps) == 0 {
		kt.release(s.entry)
		return
	}
	kt.setState(s.entry, 0, stateDirty)
}

// NewSurvivor returns the content of a dirty survivor that has no record.
func NewSurvivor(t *Tier, e *transport.Engine, logf func(string, error), s *Survivor) (*Extents, error) {
	x := NewExtents(t, e, logf)
	x.kept.begin(s.entry)
	if err := x.Load(s.Ino, s.Maps); err != nil {
		return nil, fmt.Errorf("object %d without a name: %w", s.Ino, err)
	}
	return x, nil
}
