package objects

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/owner"
)

// Caller is the process that asks for something which its user must be
// entitled to beyond the file's mode.
type Caller struct {
	UID, GID uint32
	PID      int
	// Groups are the supplementary groups; nil where they are to be looked up
	// by the PID.
	Groups []uint32
}

// modes of access, as in the permission bits of others.
const (
	modeRead   metadata.Mode = 0o4
	modeWrite  metadata.Mode = 0o2
	modeSearch metadata.Mode = 0o1
)

// MayReadWrite says whether the mode of a file lets the caller both read and
// write it, as memory that is shared is.
func (c Caller) MayReadWrite(a Attr) bool { return c.may(a, modeRead|modeWrite) }

// MayRead says whether the mode of a file lets the caller read it.
func (c Caller) MayRead(a Attr) bool { return c.may(a, modeRead) }

// MayWrite says whether the mode of a file lets the caller write it.
func (c Caller) MayWrite(a Attr) bool { return c.may(a, modeWrite) }

// MaySearch says whether the mode of a directory lets the caller reach what is in
// it.
func (c Caller) MaySearch(dir Attr) bool { return c.may(dir, modeSearch) }

// may says whether the mode of a file gives the caller what he wants. Root may
// everything.
func (c Caller) may(a Attr, want metadata.Mode) bool {
	if c.UID == 0 {
		return true
	}
	have := a.Mode.Perm()
	if all := want | want<<3 | want<<6; have&all == all {
		return true
	}
	switch {
	case a.UID == c.UID:
		have >>= 6
	case a.GID == c.GID || slices.Contains(c.groups(), a.GID):
		have >>= 3
	}
	return have&want == want
}

// Supplementary are the supplementary groups, looked up where they are not
// known.
func (c Caller) Supplementary() []uint32 { return c.groups() }

// groups are the caller's supplementary groups.
func (c Caller) groups() []uint32 {
	if c.Groups != nil {
		return c.Groups
	}
	return owner.Groups(c.PID, c.UID)
}

// process finds a process that must be the caller's.
func (c Caller) process(pid int) (*owner.Process, error) {
	p, err := owner.Find(pid)
	if err != nil {
		return nil, handleError(err)
	}
	mine, err := p.BelongsTo(c.UID)
	if err == nil && !mine {
		err = fmt.Errorf("process %d is not user %d's: %w", pid, c.UID, ErrForbidden)
	}
	if err != nil {
		return nil, errors.Join(handleError(err), p.Close())
	}
	return p, nil
}
