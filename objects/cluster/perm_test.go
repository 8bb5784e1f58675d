package cluster

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
)

func TestSquash(t *testing.T) {
	root := Cred{UID: 0, GID: 0, Groups: []uint32{0, 10}}
	person := Cred{UID: 7, GID: 8, Groups: []uint32{9, 0}}
	for name, c := range map[string]struct {
		squash Squash
		who    Cred
		want   user
	}{
		"root by default":         {Squash{}, root, user{nobody, nobody, []uint32{nobody, 10}}},
		"root by name":            {Squash{Mode: SquashRoot}, root, user{nobody, nobody, []uint32{nobody, 10}}},
		"root to somebody":        {Squash{Mode: SquashRoot, UID: 5, GID: 6}, root, user{5, 6, []uint32{6, 10}}},
		"a person keeps his":      {Squash{}, person, user{7, 8, []uint32{9, nobody}}},
		"gid 0 alone":             {Squash{}, Cred{UID: 7}, user{7, nobody, nil}},
		"none: root is root":      {Squash{Mode: SquashNone}, root, user{0, 0, []uint32{0, 10}}},
		"none: a person":          {Squash{Mode: SquashNone}, person, user{7, 8, []uint32{9, 0}}},
		"all: a person":           {Squash{Mode: SquashAll}, person, user{nobody, nobody, nil}},
		"all: to somebody":        {Squash{Mode: SquashAll, UID: 5, GID: 6}, person, user{5, 6, nil}},
		"all: root":               {Squash{Mode: SquashAll, UID: 5, GID: 6}, root, user{5, 6, nil}},
		"what is unknown is root": {Squash{Mode: "some"}, root, user{nobody, nobody, []uint32{nobody, 10}}},
	} {
		if diff := cmp.Diff(c.want, c.squash.mapped(c.who), cmp.AllowUnexported(user{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if root.Groups[0] != 0 {
		t.Error("the user's own list was changed")
	}
}

func TestOwnerAlone(t *testing.T) {
	for name, c := range map[string]struct {
		owner  *uint32
		squash Squash
		uid    uint32
		gets   bool
	}{
		"everybody":              {nil, Squash{}, 7, true},
		"himself":                {new(uint32(7)), Squash{}, 7, true},
		"another":                {new(uint32(7)), Squash{}, 8, false},
		"root, who is nobody":    {new(uint32(0)), Squash{}, 0, false},
		"root, who is root":      {new(uint32(0)), Squash{Mode: SquashNone}, 0, true},
		"root is not the owner":  {new(uint32(7)), Squash{Mode: SquashNone}, 0, false},
		"all, mapped to him":     {new(uint32(7)), Squash{Mode: SquashAll, UID: 7, GID: 7}, 8, true},
		"mapped to another":      {new(uint32(8)), Squash{Mode: SquashAll, UID: 7, GID: 7}, 8, false},
		"nobody owns it himself": {new(uint32(nobody)), Squash{}, 0, true},
	} {
		s := &server{o: serverOptions{Owner: c.owner, Squash: c.squash}}
		_, err := s.user(proto.Cred{UID: c.uid})
		if _, same := s.caller(proto.Cred{UID: c.uid}); (err == nil) != c.gets || (same == nil) != c.gets || err != nil && !errors.Is(err, ErrDenied) {
			t.Errorf("%s: %v, %v", name, err, same)
		}
	}
	s := &server{o: serverOptions{Squash: Squash{Mode: SquashNone}}}
	if who, err := s.caller(proto.Cred{UID: 7, GID: 8}); err != nil || who.Groups == nil {
		t.Errorf("a caller without groups is looked up by his process: %+v, %v", who, err)
	}
}

func TestXattrsOfOthers(t *testing.T) {
	file := objects.Attr{Inode: metadata.Inode{Mode: metadata.TypeRegular | 0o640, UID: 1, GID: 1}}
	link := objects.Attr{Inode: metadata.Inode{Mode: metadata.TypeSymlink | 0o777, UID: 1, GID: 1}}
	shared := objects.Attr{Inode: metadata.Inode{Mode: metadata.TypeDir | 0o1777, UID: 1, GID: 1}}
	root, owner, member, other := user{}, user{uid: 1, gid: 1}, user{uid: 2, gid: 1}, user{uid: 3, gid: 3}
	for _, c := range []struct {
		who         user
		a           objects.Attr
		name        string
		read, write error
	}{
		{owner, file, "user.a", nil, nil},
		{member, file, "user.a", nil, ErrDenied},
		{other, file, "user.a", ErrDenied, ErrDenied},
		{root, file, "user.a", nil, nil},
		{owner, file, "user.hmc.device", nil, nil}, // the store refuses to set it
		{root, file, objects.XattrHandle, objects.ErrUnsupported, objects.ErrUnsupported},
		{owner, file, objects.XattrBind, objects.ErrUnsupported, objects.ErrUnsupported},
		{owner, link, "user.a", metadata.ErrNoXattr, objects.ErrForbidden},
		{owner, shared, "user.a", nil, nil},
		{other, shared, "user.a", nil, objects.ErrForbidden},
		{root, file, "trusted.a", nil, nil},
		{owner, file, "trusted.a", metadata.ErrNoXattr, objects.ErrForbidden},
		{root, file, "security.a", nil, nil},
		{other, file, "security.a", nil, objects.ErrForbidden},
		{root, file, "security.capability", metadata.ErrNoXattr, objects.ErrUnsupported},
		{root, file, "system.posix_acl_access", metadata.ErrNoXattr, objects.ErrUnsupported},
		{root, file, "user.", metadata.ErrRange, metadata.ErrRange},
		{root, file, "user", metadata.ErrRange, metadata.ErrRange},
		{root, file, "", metadata.ErrRange, metadata.ErrRange},
	} {
		for access, want := range map[xattrAccess]error{xattrRead: c.read, xattrWrite: c.write} {
			if err := c.who.permitXattr(&c.a, c.name, access); !errors.Is(err, want) {
				t.Errorf("user %d, %q of mode %o, write %t: %v, want %v", c.who.uid, c.name, uint32(c.a.Mode), access, err, want)
			}
		}
	}
	if owner.mayKnowXattr("trusted.a") || !root.mayKnowXattr("trusted.a") || !owner.mayKnowXattr("user.a") {
		t.Error("lists have other attributes than may be known")
	}
}

// TestRightsOfAHandle: who has a file open for writing may cut it and set its
// times to the present, whatever its mode is now.
func TestRightsOfAHandle(t *testing.T) {
	file := objects.Attr{Inode: metadata.Inode{Mode: metadata.TypeRegular | 0o400, UID: 1, GID: 1}}
	other := user{uid: 3, gid: 3}
	at := metadata.Timespec{Sec: 1}
	for name, c := range map[string]struct {
		change objects.Change
		rights changeRights
		want   error
	}{
		"cut":                     {objects.Change{Size: new(uint64(0))}, changeRights{}, ErrDenied},
		"cut by a writer":         {objects.Change{Size: new(uint64(0))}, changeRights{writer: true}, nil},
		"touch":                   {objects.Change{Atime: &at, Mtime: &at}, changeRights{present: true}, ErrDenied},
		"touch by a writer":       {objects.Change{Atime: &at, Mtime: &at}, changeRights{present: true, writer: true}, nil},
		"times by a writer":       {objects.Change{Mtime: &at}, changeRights{writer: true}, objects.ErrForbidden},
		"cut and times":           {objects.Change{Size: new(uint64(0)), Mtime: &at}, changeRights{writer: true}, objects.ErrForbidden},
		"ctime":                   {objects.Change{Ctime: &at}, changeRights{}, ErrDenied},
		"set-id bits":             {objects.Change{KillPriv: true}, changeRights{}, ErrDenied},
		"set-id bits by a writer": {objects.Change{KillPriv: true}, changeRights{writer: true}, nil},
		"mode by a writer":        {objects.Change{Mode: new(metadata.Mode(0o777))}, changeRights{writer: true}, objects.ErrForbidden},
	} {
		if err := other.permitChange(&file, &c.change, c.rights); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
