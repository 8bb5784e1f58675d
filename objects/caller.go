package objects

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/owner"
)

// Caller is the user, and if known the process, for which an operation runs. The zero
// value is root.
type Caller struct {
	UID, GID uint32
	// PID is 0 for a caller on another node.
	PID int
	// Groups are the supplementary groups; if nil, they are read from /proc when they are
	// needed, and a caller without PID has none.
	Groups []uint32
}

// Permission is a set of rights to a file, in the bits that a mode has for others.
type Permission = metadata.Mode

// The rights to a file. For a directory PermExec is the right to search it.
const (
	PermRead  Permission = 0o4
	PermWrite Permission = 0o2
	PermExec  Permission = 0o1
)

// IsRoot reports whether the caller is root, which is granted every permission.
func (c Caller) IsRoot() bool { return c.UID == 0 }

// Owns reports whether the caller has the rights of a file's owner.
func (c Caller) Owns(in *metadata.Inode) bool { return c.IsRoot() || c.UID == in.UID }

// InGroup reports whether a group is the caller's own or a supplementary one.
func (c Caller) InGroup(gid uint32) bool {
	return c.GID == gid || slices.Contains(c.WithGroups().Groups, gid)
}

// May reports whether a file's mode grants all of the wanted rights. Root is granted
// everything.
func (c Caller) May(in *metadata.Inode, want Permission) bool {
	if c.IsRoot() {
		return true
	}
	have := in.Mode.Perm()
	if all := want | want<<3 | want<<6; have&all == all {
		return true // avoids reading the groups
	}
	switch {
	case in.UID == c.UID:
		have >>= 6
	case c.InGroup(in.GID):
		have >>= 3
	}
	return have&want == want
}

// MayUnlink reports whether the caller, which must have write permission on a
// directory, may remove or rename one of its entries. Only the sticky bit of the
// directory restricts that.
func (c Caller) MayUnlink(dir, entry *metadata.Inode) bool {
	return dir.Mode&metadata.ModeSticky == 0 || c.Owns(entry) || c.Owns(dir)
}

// WithGroups returns the caller with its supplementary groups, which it reads if they
// are not known. Groups is not nil in the result.
func (c Caller) WithGroups() Caller {
	if c.Groups == nil {
		c.Groups = append([]uint32{}, owner.Groups(c.PID, c.UID)...)
	}
	return c
}

// process finds a process, which must belong to the caller.
func (c Caller) process(pid int) (*owner.Process, error) {
	p, err := owner.Find(pid)
	if err != nil {
		return nil, handleError(err)
	}
	mine, err := p.BelongsTo(c.UID)
	if err == nil && !mine {
		err = fmt.Errorf("process %d does not belong to user %d: %w", pid, c.UID, ErrForbidden)
	}
	if err != nil {
		return nil, errors.Join(handleError(err), p.Close())
	}
	return p, nil
}
