package content

import (
	"fmt"
	"sync"

	"github.com/hmcfs/hmcfs/devices/arena"
)

// keeping is the state of extents in the table of a tier whose memory outlives the process.
//
// INVARIANT (kept): after a kill at any moment, the labels and the entry describe the
// content as some moment of the change under way would show it. For that
//   - the entry is dirty before the first label changes;
//   - a label counts bytes as data only after they have been stored;
//   - the size of a truncated object is lower before a label changes;
//   - a page has no label any more before its memory is freed.
type keeping struct {
	table *keptTable // nil for memory that ends with the process

	mu sync.Mutex
	// entry is -1 before the first claim.
	// +checklocks:mu
	entry int
	// changes counts the changes since the object was loaded.
	// +checklocks:mu
	changes uint64
}

// Keep records the facts of the object that the content belongs to. dirty says that the
// record in the metadata is older.
//
// Errors: devices.ErrOutOfMemory.
func (x *Extents) Keep(ino uint64, f Facts, dirty bool) error {
	k := &x.kept
	if k.table == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.entry < 0 && !dirty {
		return nil // it has no content
	}
	if err := k.claimLocked(); err != nil {
		return err
	}
	var set uint64
	if dirty {
		set = stateDirty
		k.changes++
	}
	k.table.setFacts(k.entry, f, set)
	if k.table.word(k.entry, entryIno).Load() != ino {
		k.table.belong(k.entry, ino)
	}
	return nil
}

// +checklocks:k.mu
func (k *keeping) claimLocked() error {
	if k.entry >= 0 {
		return nil
	}
	entry, err := k.table.claim()
	if err == nil {
		k.entry = entry
	}
	return err
}

// claim makes sure that pages can have labels.
func (x *Extents) claim() error {
	k := &x.kept
	if k.table == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.claimLocked()
}

// Changes returns the number of changes that Keep and labels have recorded, for Saved.
func (x *Extents) Changes() uint64 {
	x.kept.mu.Lock()
	defer x.kept.mu.Unlock()
	return x.kept.changes
}

// Saved records that the record in the metadata is as the content was when Changes returned
// changes. The caller holds the object's lane.
func (x *Extents) Saved(changes uint64) {
	k := &x.kept
	if k.table == nil {
		return
	}
	empty := x.Usage() == 0
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.entry < 0 || k.changes != changes:
	case empty:
		k.table.release(k.entry)
		k.entry = -1
	default:
		k.table.setState(k.entry, 0, stateDirty)
	}
}

// stain records that the record in the metadata is about to be older than the labels.
// It returns the owner of the labels; 0 for memory without labels.
func (x *Extents) stain() uint64 {
	k := &x.kept
	if k.table == nil {
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.entry < 0 {
		return 0
	}
	k.changes++
	k.table.setState(k.entry, stateDirty, 0)
	return ownerOf(k.entry)
}

// label records which bytes of [from, to), both page boundaries inside an extent, are data.
func (x *Extents) label(e extent, from, to uint64) {
	if x.kept.table == nil || from >= to || e.whole != nil {
		return
	}
	of := x.stain()
	p := e.part(from, to)
	if of == 0 || !x.tier.arena.Label(p.lease, arena.Label{Owner: of, Off: p.off, Written: p.written}) {
		x.flag(stateLoose, true)
	}
}

// relabel records that an extent that had data up to the offset before has it up to the
// offset after.
func (x *Extents) relabel(e extent, before, after uint64) {
	if x.kept.table != nil && before != after {
		x.label(e, x.floor(min(before, after)), min(x.ceil(max(before, after)), e.end()))
	}
}

// unlabel records that an extent is no longer part of the content.
func (x *Extents) unlabel(e extent) {
	if x.kept.table != nil && e.whole == nil {
		x.stain()
		x.tier.arena.Unlabel(e.lease)
	}
}

// flag sets or clears stateLoose or stateDamaged.
func (x *Extents) flag(bit uint64, on bool) {
	k := &x.kept
	if k.table == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.entry < 0:
	case on:
		k.changes++
		k.table.setState(k.entry, bit|stateDirty, 0)
	default:
		k.table.setState(k.entry, 0, bit)
	}
}

// endKept ends the content's entry; none of its pages has a label any more.
func (x *Extents) endKept() {
	k := &x.kept
	if k.table == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.entry >= 0 {
		k.table.release(k.entry)
		k.entry = -1
	}
}

// loadKept finds the entry of content that was loaded from records, and fails unless all
// of its pages have its labels.
//
// Errors: ErrLost.
func (x *Extents) loadKept(ino uint64) error {
	k := &x.kept
	if k.table == nil {
		return nil
	}
	found := k.entryNow()
	var fault error
	x.tree.Scan(func(_ uint64, e extent) bool {
		of, ok := x.tier.arena.LabelOf(e.lease)
		entry := int(of.Owner) - 1
		if !ok || of.Off != e.off || of.Written != e.written || !k.table.isOf(entry, ino) || found >= 0 && found != entry {
			fault = fmt.Errorf("the record of object %d does not match the memory of %s: %w", ino, x.tier.Name, ErrLost)
			return false
		}
		found = entry
		return true
	})
	if fault == nil {
		k.begin(found)
	}
	return fault
}

func (k *keeping) entryNow() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.entry
}

// begin continues an entry of an earlier process.
func (k *keeping) begin(entry int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.entry = entry
}

// IsKept reports whether the content has an entry, or needs none.
func (x *Extents) IsKept() bool {
	k := &x.kept
	if k.table == nil {
		return true
	}
	return k.entryNow() >= 0
}
