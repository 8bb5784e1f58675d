package cluster

import (
	"fmt"
	"math"
	"strings"
	"unicode"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
)

// MaxInos is above all inode numbers of a node. The mount puts the node's index in the bits
// above them.
const MaxInos metadata.Ino = 1 << 44

// maxText is the maximum length of an inode's texts other than names, keys and targets.
const maxText = 1024

func timeToProto(t metadata.Timespec) proto.Time { return proto.Time{Sec: t.Sec, Nsec: t.Nsec} }

func timeFromProto(t proto.Time) metadata.Timespec {
	return metadata.Timespec{Sec: t.Sec, Nsec: t.Nsec}
}

// attrToProto encodes an inode for other nodes. keep is the time they may cache it, in
// milliseconds.
func attrToProto(a *objects.Attr, keep uint32) proto.Attr {
	return proto.Attr{
		Ino: uint64(a.Ino), Gen: uint64(a.Gen), Mode: uint32(a.Mode), UID: a.UID, GID: a.GID,
		Nlink: a.Nlink, Rdev: a.Rdev, Size: a.Size, Allocated: a.Allocated,
		Atime: timeToProto(a.Atime), Mtime: timeToProto(a.Mtime),
		Ctime: timeToProto(a.Ctime), Btime: timeToProto(a.Btime),
		Device: string(a.Device), Parent: uint64(a.Parent), Target: a.Target, Key: a.Key,
		Path: a.Path, State: string(a.State), Expires: timeToProto(a.Expires), Keep: keep,
	}
}

// attrFromProto decodes an inode of another node. Its Name is unknown.
//
// Errors: proto.ErrBody for values that no inode can have.
func attrFromProto(a *proto.Attr) (objects.Attr, error) {
	out := objects.Attr{
		Inode: metadata.Inode{
			Ino: metadata.Ino(a.Ino), Gen: metadata.Generation(a.Gen), Mode: metadata.Mode(a.Mode),
			UID: a.UID, GID: a.GID, Nlink: a.Nlink, Rdev: a.Rdev, Size: a.Size, Allocated: a.Allocated,
			Atime: timeFromProto(a.Atime), Mtime: timeFromProto(a.Mtime),
			Ctime: timeFromProto(a.Ctime), Btime: timeFromProto(a.Btime),
			Device: metadata.DeviceName(a.Device), Parent: metadata.Ino(a.Parent), Target: a.Target,
			Key: a.Key, Path: a.Path, Expires: timeFromProto(a.Expires),
		},
		State: objects.State(a.State), Resident: a.Allocated,
	}
	if a.Ino == 0 || out.Ino >= MaxInos {
		return objects.Attr{}, fmt.Errorf("invalid inode number %#x: %w", a.Ino, proto.ErrBody)
	}
	if a.Size > math.MaxInt64 || a.Allocated > math.MaxInt64 {
		return objects.Attr{}, fmt.Errorf("inode %d has invalid sizes: %d bytes, %d allocated: %w", a.Ino, a.Size, a.Allocated, proto.ErrBody)
	}
	if err := checkTexts(a, out.Mode); err != nil {
		return objects.Attr{}, fmt.Errorf("inode %d: %w: %w", a.Ino, proto.ErrBody, err)
	}
	if !isType(out.Mode.Type()) || out.Mode != out.Mode.Type()|out.Mode.Perm() {
		return objects.Attr{}, fmt.Errorf("inode %d has invalid mode %o: %w", a.Ino, a.Mode, proto.ErrBody)
	}
	switch out.State {
	case objects.StateLive:
	case objects.StateLost:
		out.Resident = 0
	case objects.StateBound:
		out.Bound = metadata.BoundLive
	default:
		return objects.Attr{}, fmt.Errorf("inode %d has invalid state %q: %w", a.Ino, a.State, proto.ErrBody)
	}
	return out, nil
}

// checkTexts checks that the texts of an inode are valid. They are cached, so they must be
// bounded.
func checkTexts(a *proto.Attr, mode metadata.Mode) error {
	link := mode.Type() == metadata.TypeSymlink
	switch {
	case a.Device != "" && (!isName(a.Device) || !IsShown(a.Device)):
		return fmt.Errorf("invalid device %q", a.Device[:min(len(a.Device), maxPath)])
	case !IsShown(a.Path):
		return fmt.Errorf("invalid path attribute of %d bytes", len(a.Path))
	case a.Key != "" && metadata.ValidKey(a.Key) != nil:
		return fmt.Errorf("invalid key of %d bytes", len(a.Key))
	case link != (a.Target != "") || len(a.Target) > metadata.MaxTarget || strings.Contains(a.Target, "\x00"):
		return fmt.Errorf("invalid link target of %d bytes", len(a.Target))
	}
	return nil
}

// IsShown reports whether a text may be shown to users: it is bounded, and has no control
// characters.
func IsShown(text string) bool {
	return len(text) <= maxText && !strings.ContainsFunc(text, unicode.IsControl)
}

func isType(m metadata.Mode) bool {
	switch m {
	case metadata.TypeFIFO, metadata.TypeChar, metadata.TypeDir, metadata.TypeBlock,
		metadata.TypeRegular, metadata.TypeSymlink, metadata.TypeSocket:
		return true
	default:
		return false
	}
}

// credToProto encodes a caller for the owner. Only the first MaxGroups groups are included.
func credToProto(c objects.Caller) proto.Cred {
	groups := c.WithGroups().Groups
	return proto.Cred{UID: c.UID, GID: c.GID, Groups: groups[:min(len(groups), proto.MaxGroups)]}
}

// credFromProto returns a caller of another node, which has no process on this node.
func credFromProto(c proto.Cred) objects.Caller {
	return objects.Caller{UID: c.UID, GID: c.GID, Groups: append([]uint32{}, c.Groups...)}
}

// accessToProto encodes the permissions that a file is opened with.
func accessToProto(p objects.Permission) (access uint32) {
	if p&objects.PermRead != 0 {
		access |= proto.AccessRead
	}
	if p&objects.PermWrite != 0 {
		access |= proto.AccessWrite
	}
	return access
}

// accessFromProto decodes them; ok is false for none, and for unknown bits.
func accessFromProto(access uint32) (p objects.Permission, ok bool) {
	if access&proto.AccessRead != 0 {
		p |= objects.PermRead
	}
	if access&proto.AccessWrite != 0 {
		p |= objects.PermWrite
	}
	return p, p != 0 && access&^(proto.AccessRead|proto.AccessWrite) == 0
}

// entryToProto encodes an entry of a directory; attributes that the requester may not see are
// nil.
func entryToProto(e *metadata.Entry, a *objects.Attr, keep uint32) proto.Entry {
	out := proto.Entry{Name: e.Name, Ino: uint64(e.Ino), Type: uint32(e.Type), Cookie: uint64(e.Cookie)}
	if a != nil {
		out.Attr = attrToProto(a, keep)
	}
	return out
}

// isName reports whether a name may be shown in a directory: the kernel relies on it being
// free of path syntax.
func isName(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= metadata.MaxName && !strings.ContainsAny(name, "/\x00")
}

// entryFromProto decodes an entry of another node's directory.
//
// Errors: proto.ErrBody.
func entryFromProto(e *proto.Entry) (Entry, error) {
	out := Entry{Entry: metadata.Entry{
		Name: e.Name, Ino: metadata.Ino(e.Ino), Type: metadata.Mode(e.Type), Cookie: metadata.Cookie(e.Cookie),
	}}
	if e.Ino == 0 || out.Ino >= MaxInos || out.Ino == metadata.RootIno || e.Cookie == 0 || !isName(e.Name) || !isType(out.Type) {
		return Entry{}, fmt.Errorf("invalid entry %q, inode %d, type %o: %w", e.Name, e.Ino, e.Type, proto.ErrBody)
	}
	if e.Attr.Ino == 0 {
		return out, nil
	}
	a, err := attrFromProto(&e.Attr)
	if err != nil {
		return Entry{}, err
	}
	if a.Ino != out.Ino || a.Mode.Type() != out.Type {
		return Entry{}, fmt.Errorf("entry %q has inode %d, but the attributes of inode %d: %w", e.Name, e.Ino, a.Ino, proto.ErrBody)
	}
	out.Attr = &a
	return out, nil
}

// changeToProto fills in the changes in a SetAttrAsk.
func changeToProto(c objects.Change, ask *proto.SetAttrAsk) {
	if c.Mode != nil {
		ask.Set, ask.Mode = ask.Set|proto.SetMode, uint32(*c.Mode)
	}
	if c.UID != nil {
		ask.Set, ask.UID = ask.Set|proto.SetUID, *c.UID
	}
	if c.GID != nil {
		ask.Set, ask.GID = ask.Set|proto.SetGID, *c.GID
	}
	if c.Size != nil {
		ask.Set, ask.Size = ask.Set|proto.SetSize, *c.Size
	}
	if c.Atime != nil {
		ask.Set, ask.Atime = ask.Set|proto.SetAtime, timeToProto(*c.Atime)
	}
	if c.Mtime != nil {
		ask.Set, ask.Mtime = ask.Set|proto.SetMtime, timeToProto(*c.Mtime)
	}
	if c.Ctime != nil {
		ask.Set, ask.Ctime = ask.Set|proto.SetCtime, timeToProto(*c.Ctime)
	}
	if c.KillPriv {
		ask.Set |= proto.SetKillPriv
	}
}

// changeFromProto returns the change of a SetAttrAsk. Unknown bits are refused.
//
// Errors: objects.ErrInvalid.
func changeFromProto(ask *proto.SetAttrAsk) (objects.Change, error) {
	const known = proto.SetKillPriv<<1 - 1
	if ask.Set&^known != 0 || ask.Mode&^0o7777 != 0 {
		return objects.Change{}, fmt.Errorf("invalid change %#x, mode %o: %w", ask.Set, ask.Mode, objects.ErrInvalid)
	}
	var c objects.Change
	if ask.Set&proto.SetMode != 0 {
		c.Mode = new(metadata.Mode(ask.Mode))
	}
	if ask.Set&proto.SetUID != 0 {
		c.UID = new(ask.UID)
	}
	if ask.Set&proto.SetGID != 0 {
		c.GID = new(ask.GID)
	}
	if ask.Set&proto.SetSize != 0 {
		c.Size = new(ask.Size)
	}
	if ask.Set&proto.SetAtime != 0 {
		c.Atime = new(timeFromProto(ask.Atime))
	}
	if ask.Set&proto.SetMtime != 0 {
		c.Mtime = new(timeFromProto(ask.Mtime))
	}
	if ask.Set&proto.SetCtime != 0 {
		c.Ctime = new(timeFromProto(ask.Ctime))
	}
	c.KillPriv = ask.Set&proto.SetKillPriv != 0
	return c, nil
}
