package content

import (
	"sync/atomic"

	"github.com/hmcfs/hmcfs/metadata"
)

func (kt *keptTable) word(entry, at int) *atomic.Uint64 {
	return kt.words.At((entry+1)*entryWords + at)
}

// ownerOf returns the owner of an entry's pages.
func ownerOf(entry int) uint64 { return uint64(entry) + 1 }

// facts returns the valid facts of an entry.
func (kt *keptTable) facts(entry int) Facts {
	at := entryFacts
	if kt.word(entry, entryState).Load()&stateSecond != 0 {
		at += factWords
	}
	get := func(i int) uint64 { return kt.word(entry, at+i).Load() }
	spec := func(sec, nsec uint64) metadata.Timespec {
		return metadata.Timespec{Sec: int64(sec), Nsec: uint32(nsec)}
	}
	return Facts{
		Size:  get(0),
		Atime: spec(get(1), get(4)>>32), Mtime: spec(get(2), get(4)), Ctime: spec(get(3), get(5)),
		Epoch: metadata.Epoch(get(6)),
	}
}

// maxOffset is beyond the end of every object.
const maxOffset = 1 << 63

// possible reports whether an object can have the facts.
func (f Facts) possible() bool {
	const second = 1e9
	return f.Size < maxOffset && f.Atime.Nsec < second && f.Mtime.Nsec < second && f.Ctime.Nsec < second
}

// setFacts changes the facts of an entry and bits of its state. Calls for one entry are
// not concurrent.
func (kt *keptTable) setFacts(entry int, f Facts, set uint64) {
	state := kt.word(entry, entryState).Load()
	at := (entry+1)*entryWords + entryFacts
	if state&stateSecond == 0 {
		at += factWords
	}
	copy(kt.words.Plain()[at:], []uint64{
		f.Size, uint64(f.Atime.Sec), uint64(f.Mtime.Sec), uint64(f.Ctime.Sec),
		uint64(f.Atime.Nsec)<<32 | uint64(f.Mtime.Nsec), uint64(f.Ctime.Nsec), uint64(f.Epoch),
	})
	kt.word(entry, entryState).Store(state ^ stateSecond | set)
}

// setState sets and clears bits of an entry's state, as setFacts does.
func (kt *keptTable) setState(entry int, set, clear uint64) {
	w := kt.word(entry, entryState)
	if state := w.Load(); state&^clear|set != state {
		w.Store(state&^clear | set)
	}
}

// belong makes an entry that of an inode, instead of any other entry that is.
func (kt *keptTable) belong(entry int, ino uint64) {
	w := kt.word(entry, entryState)
	w.Store(w.Load()%stateRank | kt.nextRank()*stateRank)
	kt.word(entry, entryIno).Store(ino)
}

// isOf reports whether an entry is that of an inode.
func (kt *keptTable) isOf(entry int, ino uint64) bool {
	return entry >= 0 && entry < kt.size && kt.word(entry, entryIno).Load() == ino
}
