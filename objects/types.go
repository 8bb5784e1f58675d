package objects

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
)

// Ino is the number of an object, a directory or any other inode.
type Ino = metadata.Ino

// State says whether an object's bytes are available.
type State string

// The states that a reader can find.
const (
	// StateLive is an object whose bytes are where its record says.
	StateLive State = "live"
	// StateLost is an object whose memory no longer exists. It keeps its name, and reading
	// it fails with ErrLost.
	StateLost State = "lost"
	// StateBound is an object whose bytes are memory of another process.
	StateBound State = "bound"
)

// Attr is the current state of an inode: its record, overlaid with later changes
// through open handles.
type Attr struct {
	metadata.Inode
	// State is StateLost or StateBound for such an object, StateLive for everything else.
	State State
	// Resident is the number of bytes of device memory that the content occupies: Allocated
	// for a live object, 0 for a lost one.
	Resident uint64
	// Keep bounds how long a cache may use these attributes, and KeepName how long the name
	// by which they were found; 0 is no bound.
	Keep, KeepName time.Duration
}

// Change holds the attributes that SetAttr sets; a nil field is left unchanged.
type Change struct {
	Mode  *metadata.Mode // permission bits only; the type never changes
	UID   *uint32
	GID   *uint32
	Size  *uint64
	Atime *metadata.Timespec
	Mtime *metadata.Timespec
	// Ctime is set to the present if it is nil.
	Ctime *metadata.Timespec
	// KillPriv clears the set-user-id bit, and the set-group-id bit of a file that its
	// group may execute, as a write by another user does.
	KillPriv bool
}

// resolveNow replaces times whose nanoseconds are UTIME_NOW by the present.
func (c *Change) resolveNow() {
	now := metadata.TimespecOf(time.Now())
	for _, t := range []**metadata.Timespec{&c.Atime, &c.Mtime, &c.Ctime} {
		if *t != nil && (*t).Nsec == unix.UTIME_NOW {
			*t = &now
		}
	}
}

// Write describes where bytes are written.
type Write struct {
	Off uint64
	// Append writes at the object's present end instead of at Off.
	Append bool
	// KillPriv clears the set-id bits first, as Change.KillPriv does.
	KillPriv bool
}

// AllocateMode selects what Allocate does with a range.
type AllocateMode int

// The modes of fallocate(2) that hmcfs supports.
const (
	// AllocateExtend reserves memory for the range and extends the size to its end.
	AllocateExtend AllocateMode = iota
	// AllocateKeepSize reserves memory and keeps the size.
	AllocateKeepSize
	// AllocatePunch frees the memory of the range, which then reads as zeros.
	AllocatePunch
	// AllocateZero makes the range read as zeros, keeps its memory, and extends the size.
	AllocateZero
	// AllocateZeroKeepSize is AllocateZero without extending the size.
	AllocateZeroKeepSize
)

// Whence selects what Seek looks for.
type Whence int

// Data or a hole, as for lseek(2).
const (
	SeekData Whence = iota
	SeekHole
)

// Views is the content of a range in place, without a copy.
type Views struct {
	// Slices are the bytes in order. They must not be written to, and not be accessed after
	// Release.
	Slices [][]byte
	// Len is the sum of their lengths; it is short only at the object's end.
	Len int
	// Release must be called exactly once.
	Release func()
}
