package objects

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
)

// Ino is the number of an object, a directory or any other inode.
type Ino = metadata.Ino

// State tells whether an object's bytes are there.
type State string

// The states that a reader can meet.
const (
	// StateLive is an object whose bytes are where its record says.
	StateLive State = "live"
	// StateLost is an object whose device memory is gone: its device is in
	// another epoch. It keeps its name, and reading it fails with ErrLost.
	StateLost State = "lost"
	// StateBound is an object whose bytes are memory of another process.
	StateBound State = "bound"
)

// Attr is an inode as its user sees it now: the record, with what open
// handles have changed since laid over it.
type Attr struct {
	metadata.Inode
	// State is StateLive for everything but content that is gone.
	State State
	// Resident is the number of bytes of device memory that the content takes. It is
	// Allocated for a live object and 0 for a lost one.
	Resident uint64
	// Keep bounds how long a cache may answer with these attributes, and KeepName how
	// long with the name by which they were found; 0 is no bound.
	Keep, KeepName time.Duration
}

// Change has the attributes that SetAttr sets; nil leaves a field as it is.
type Change struct {
	Mode  *metadata.Mode // permission bits only; the type never changes
	UID   *uint32
	GID   *uint32
	Size  *uint64
	Atime *metadata.Timespec
	Mtime *metadata.Timespec
	// Ctime is set to the present where it is nil.
	Ctime *metadata.Timespec
	// KillPriv clears the set-user-id bit, and the set-group-id bit of a
	// file that its group may execute, as after a write by another user.
	KillPriv bool
}

// resolveNow replaces times of UTIME_NOW nanoseconds by the present.
func (c *Change) resolveNow() {
	now := metadata.TimespecOf(time.Now())
	for _, t := range []**metadata.Timespec{&c.Atime, &c.Mtime, &c.Ctime} {
		if *t != nil && (*t).Nsec == unix.UTIME_NOW {
			*t = &now
		}
	}
}

// Write tells where bytes go.
type Write struct {
	Off uint64
	// Append writes at the object's end, wherever that is, instead of Off.
	Append bool
	// KillPriv clears the set-id bits first, as Change.KillPriv does.
	KillPriv bool
}

// AllocateMode selects what Allocate does with a range.
type AllocateMode int

// The ways of fallocate(2) that hmcfs has.
const (
	// AllocateExtend takes memory for the range and grows the size to its end.
	AllocateExtend AllocateMode = iota
	// AllocateKeepSize takes memory and leaves the size.
	AllocateKeepSize
	// AllocatePunch gives the memory of the range back; it reads as zeros.
	AllocatePunch
	// AllocateZero makes the range read as zeros, keeps its memory, and grows
	// the size.
	AllocateZero
	// AllocateZeroKeepSize is AllocateZero without growing the size.
	AllocateZeroKeepSize
)

// Whence selects what Seek looks for.
type Whence int

// Data or a hole, as lseek(2) has them.
const (
	SeekData Whence = iota
	SeekHole
)

// Views is the content of a range in place, without a copy.
type Views struct {
	// Slices are the bytes in order. They must not be written, and not
	// touched after Release.
	Slices [][]byte
	// Len is the sum of their lengths; it is short only at the object's end.
	Len int
	// Release must be called exactly once.
	Release func()
}
