package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
)

// xattrKey is the extended attribute that is also a name under keys/.
const xattrKey = "user.hmc.key"

// modeGroupExec is the mode bit that lets a set-group-id program run with its group.
const modeGroupExec metadata.Mode = 0o010

// modeSetID are the set-user-id and set-group-id bits.
const modeSetID metadata.Mode = 0o6000

// User is a caller whose permissions no kernel has checked: one of another node, mapped to its ids
// here, or one of a session. Its methods apply the rules that a kernel applies to its own
// processes.
type User struct{ objects.Caller }

// mapped returns a caller of another node with its ids on this node.
func (q Squash) mapped(c objects.Caller) User {
	uid, gid := cmp.Or(q.UID, Nobody), cmp.Or(q.GID, Nobody)
	switch q.Mode {
	case SquashNone:
		return User{c}
	case SquashAll:
		return User{objects.Caller{UID: uid, GID: gid, Groups: []uint32{}}}
	default:
	}
	c.Groups = slices.Clone(c.Groups)
	if c.UID == 0 {
		c.UID = uid
	}
	if c.GID == 0 {
		c.GID = gid
	}
	for i := range c.Groups {
		if c.Groups[i] == 0 {
			c.Groups[i] = gid
		}
	}
	return User{c}
}

// user maps the caller of a request.
//
// Errors: ErrDenied if the user has no access at all.
func (s *server) user(c proto.Cred) (User, error) {
	u := s.o.Squash.mapped(credFromProto(c))
	if s.o.Owner != nil && u.UID != *s.o.Owner {
		return User{}, fmt.Errorf("user %d of another node, mapped to user %d, has no access; only user %d may use the mount: %w",
			c.UID, u.UID, *s.o.Owner, ErrDenied)
	}
	return u, nil
}

// Need returns an error unless May grants the requested permissions.
//
// Errors: ErrDenied.
func (u User) Need(a *objects.Attr, want objects.Permission) error {
	if u.May(&a.Inode, want) {
		return nil
	}
	return fmt.Errorf("user %d has no permission %03b for inode %d, which belongs to user %d and has mode %o: %w",
		u.UID, want, a.Ino, a.UID, a.Mode.Perm(), ErrDenied)
}

// mayOpen checks whether the user may open a file. The file's owner may open it whatever its
// mode, since the user's own kernel has checked that: a file that its creator has just made
// read-only can still be written. Permission to execute a file implies permission to read it.
//
// Errors: ErrDenied.
func (u User) mayOpen(a *objects.Attr, access objects.Permission) error {
	if u.Owns(&a.Inode) {
		return nil
	}
	if access&objects.PermWrite != 0 {
		if err := u.Need(a, objects.PermWrite); err != nil {
			return err
		}
	}
	if access&objects.PermRead != 0 && !u.May(&a.Inode, objects.PermExec) {
		return u.Need(a, objects.PermRead)
	}
	return nil
}

// MayRemove checks whether the user may remove an entry of a directory that the user may
// write.
//
// Errors: objects.ErrForbidden in a sticky directory.
func (u User) MayRemove(dir, victim *objects.Attr) error {
	if u.MayUnlink(&dir.Inode, &victim.Inode) {
		return nil
	}
	return fmt.Errorf("user %d may not remove a name of inode %d, which belongs to user %d, from a sticky directory: %w",
		u.UID, victim.Ino, victim.UID, objects.ErrForbidden)
}

// ChangeRights describes, beside the mode, what entitles a user to a change.
type ChangeRights struct {
	// Writer is true if the user has the file open for writing.
	Writer bool
	// Present is true if the times are to be set to the present.
	Present bool
}

// PermitChange checks whether the user may change these attributes, and drops from the change
// what the user may not change, as the kernel does for its own files.
//
// Errors: objects.ErrForbidden for changes reserved to the owner, or to root; ErrDenied if
// write permission is missing.
func (u User) PermitChange(a *objects.Attr, c *objects.Change, r ChangeRights) error {
	if err := u.permitOwner(a, c); err != nil {
		return err
	}
	if !u.IsRoot() {
		c.Ctime = nil // it records changes, so users cannot set it
	}
	only := c.Mode == nil && c.UID == nil && c.GID == nil
	times := c.Atime != nil || c.Mtime != nil
	switch {
	case c.Size != nil && !r.Writer:
		if err := u.Need(a, objects.PermWrite); err != nil {
			return err
		}
	case times && r.Present, only && !times && c.Size == nil:
		if !u.Owns(&a.Inode) && !r.Writer {
			if err := u.Need(a, objects.PermWrite); err != nil {
				return err
			}
		}
	}
	if times && !r.Present && !u.Owns(&a.Inode) {
		return u.forbidden(a, "set the times of")
	}
	if a.IsRegular() && (c.UID != nil || c.GID != nil || c.Size != nil && !u.IsRoot()) {
		c.KillPriv = true
	}
	return nil
}

// permitOwner is PermitChange for mode, owner and group.
func (u User) permitOwner(a *objects.Attr, c *objects.Change) error {
	if (c.Mode != nil || c.UID != nil || c.GID != nil) && !u.Owns(&a.Inode) {
		return u.forbidden(a, "change mode, owner or group of")
	}
	if u.IsRoot() {
		return nil
	}
	gid := a.GID
	if c.UID != nil && *c.UID != a.UID {
		return u.forbidden(a, "change the owner of")
	}
	if c.GID != nil {
		if gid = *c.GID; gid != a.GID && !u.InGroup(gid) {
			return u.forbidden(a, "assign a non-member group to")
		}
	}
	if c.Mode != nil && *c.Mode&metadata.ModeSetGID != 0 && !u.InGroup(gid) {
		c.Mode = new(*c.Mode &^ metadata.ModeSetGID)
	}
	return nil
}

func (u User) forbidden(a *objects.Attr, what string) error {
	return fmt.Errorf("user %d may not %s inode %d, which belongs to user %d: %w", u.UID, what, a.Ino, a.UID, objects.ErrForbidden)
}

// PermitCreate checks whether the user may create an inode in a directory that the user may
// write, and clears mode bits that the user may not set.
//
// Errors: objects.ErrForbidden.
func (u User) PermitCreate(dir *objects.Attr, n *metadata.Node) error {
	if u.IsRoot() {
		return nil
	}
	if t := n.Mode.Type(); t == metadata.TypeChar || t == metadata.TypeBlock {
		return fmt.Errorf("user %d may not create a device file: %w", u.UID, objects.ErrForbidden)
	}
	// A file created in such a directory gets its group, with which a program of this user
	// must not run.
	const both = metadata.ModeSetGID | modeGroupExec
	if dir.Mode&metadata.ModeSetGID != 0 && n.Mode.Type() != metadata.TypeDir && n.Mode&both == both && !u.InGroup(dir.GID) {
		n.Mode &^= metadata.ModeSetGID
	}
	return nil
}

// XattrAccess is an operation on an extended attribute.
type XattrAccess bool

// The operations on an extended attribute.
const (
	XattrRead  XattrAccess = false
	XattrWrite XattrAccess = true
)

// permitXattr is PermitXattr for a user of another node.
//
// Errors: also objects.ErrUnsupported for an attribute that is not available between nodes: it
// names memory of a machine, which descriptors share that don't leave it.
func (u User) permitXattr(a *objects.Attr, name string, access XattrAccess) error {
	if name == objects.XattrBind || name == objects.XattrHandle {
		return fmt.Errorf("attribute %q is not available between nodes: %w", name, objects.ErrUnsupported)
	}
	return u.PermitXattr(a, name, access)
}

// PermitXattr checks whether the user may read or change an extended attribute.
//
// Errors: metadata.ErrNoXattr for one that the user may not see; objects.ErrForbidden;
// ErrDenied; objects.ErrUnsupported for one that can't be set.
func (u User) PermitXattr(a *objects.Attr, name string, access XattrAccess) error {
	space, rest, _ := strings.Cut(name, ".")
	if rest == "" {
		return fmt.Errorf("attribute %q: %w", name, metadata.ErrRange)
	}
	switch space {
	case "user":
		return u.permitUserXattr(a, name, access)
	case "trusted":
		return u.permitRootXattr(name, access, false)
	case "security":
		if name == "security.capability" {
			break
		}
		return u.permitRootXattr(name, access, true)
	}
	if access == XattrRead {
		return fmt.Errorf("attribute %q: %w", name, metadata.ErrNoXattr)
	}
	return fmt.Errorf("attribute %q can't be set: %w", name, objects.ErrUnsupported)
}

func (u User) permitUserXattr(a *objects.Attr, name string, access XattrAccess) error {
	switch {
	case !a.IsRegular() && !a.IsDir():
		if access == XattrRead {
			return fmt.Errorf("attribute %q: %w", name, metadata.ErrNoXattr)
		}
		return u.forbidden(a, "set "+name+" of")
	case access == XattrRead:
		return u.Need(a, objects.PermRead)
	case a.IsDir() && a.Mode&metadata.ModeSticky != 0 && !u.Owns(&a.Inode):
		return u.forbidden(a, "set "+name+" of")
	}
	return u.Need(a, objects.PermWrite)
}

// permitRootXattr is PermitXattr for attributes that only root sets; allRead says whether
// other users may read them.
func (u User) permitRootXattr(name string, access XattrAccess, allRead bool) error {
	switch {
	case u.IsRoot(), access == XattrRead && allRead:
		return nil
	case access == XattrRead:
		return fmt.Errorf("attribute %q: %w", name, metadata.ErrNoXattr)
	}
	return fmt.Errorf("user %d may not set %q: %w", u.UID, name, objects.ErrForbidden)
}

// MayKnowXattr reports whether an attribute is listed for the user.
func (u User) MayKnowXattr(name string) bool {
	return u.IsRoot() || !strings.HasPrefix(name, "trusted.")
}
