package cluster

import (
	"fmt"
	"math"
	"slices"
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
	return slices.Contains([]metadata.Mode{
		metadata.TypeFIFO, metadata.TypeChar, metadata.TypeDir, metadata.TypeBlock,
		metadata.TypeRegular, metadata.TypeSymlink, metadata.TypeSocket,
	}, m)
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

// entryToProto encodes an entry of a directory without the attributes.
func entryToProto(e *metadata.Entry) proto.Entry {
	return proto.Entry{Name: e.Name, Ino: uint64(e.Ino), Type: uint32(e.Type), Cookie: uint64(e.Cookie)}
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
	ask.Mode = uint32(valueOf(c.Mode, proto.SetMode, &ask.Set))
	ask.UID = valueOf(c.UID, proto.SetUID, &ask.Set)
	ask.GID = valueOf(c.GID, proto.SetGID, &ask.Set)
	ask.Size = valueOf(c.Size, proto.SetSize, &ask.Set)
	ask.Atime = timeToProto(valueOf(c.Atime, proto.SetAtime, &ask.Set))
	ask.Mtime = timeToProto(valueOf(c.Mtime, proto.SetMtime, &ask.Set))
	ask.Ctime = timeToProto(valueOf(c.Ctime, proto.SetCtime, &ask.Set))
	if c.KillPriv {
		ask.Set |= proto.SetKillPriv
	}
}

// valueOf returns the value of a change, and sets its bit if there is one.
func valueOf[T any](change *T, bit uint32, set *uint32) (value T) {
	if change != nil {
		*set |= bit
		value = *change
	}
	return value
}

// changeFromProto returns the change of a SetAttrAsk. Unknown bits are refused.
//
// Errors: objects.ErrInvalid.
func changeFromProto(ask *proto.SetAttrAsk) (objects.Change, error) {
	const known = proto.SetKillPriv<<1 - 1
	if ask.Set&^known != 0 || ask.Mode&^0o7777 != 0 {
		return objects.Change{}, fmt.Errorf("invalid change %#x, mode %o: %w", ask.Set, ask.Mode, objects.ErrInvalid)
	}
	return objects.Change{
		Mode:     changeOf(metadata.Mode(ask.Mode), proto.SetMode, ask.Set),
		UID:      changeOf(ask.UID, proto.SetUID, ask.Set),
		GID:      changeOf(ask.GID, proto.SetGID, ask.Set),
		Size:     changeOf(ask.Size, proto.SetSize, ask.Set),
		Atime:    changeOf(timeFromProto(ask.Atime), proto.SetAtime, ask.Set),
		Mtime:    changeOf(timeFromProto(ask.Mtime), proto.SetMtime, ask.Set),
		Ctime:    changeOf(timeFromProto(ask.Ctime), proto.SetCtime, ask.Set),
		KillPriv: ask.Set&proto.SetKillPriv != 0,
	}, nil
}

// changeOf returns a value if its bit is set, and nil otherwise.
func changeOf[T any](value T, bit, set uint32) *T {
	if set&bit == 0 {
		return nil
	}
	return new(value)
}
