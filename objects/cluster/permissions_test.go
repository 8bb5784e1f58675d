package cluster

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
)

// as returns a user of another node with its ids here.
func as(uid, gid uint32, groups ...uint32) User {
	return User{objects.Caller{UID: uid, GID: gid, Groups: append([]uint32{}, groups...)}}
}

func TestSquash(t *testing.T) {
	root := objects.Caller{UID: 0, GID: 0, Groups: []uint32{0, 10}}
	person := objects.Caller{UID: 7, GID: 8, Groups: []uint32{9, 0}}
	for name, c := range map[string]struct {
		squash Squash
		who    objects.Caller
		want   User
	}{
		"root by default":         {Squash{}, root, as(Nobody, Nobody, Nobody, 10)},
		"root by name":            {Squash{Mode: SquashRoot}, root, as(Nobody, Nobody, Nobody, 10)},
		"root to somebody":        {Squash{Mode: SquashRoot, UID: 5, GID: 6}, root, as(5, 6, 6, 10)},
		"a user is not squashed":  {Squash{}, person, as(7, 8, 9, Nobody)},
		"gid 0 alone":             {Squash{}, objects.Caller{UID: 7}, User{objects.Caller{UID: 7, GID: Nobody}}},
		"none: root is root":      {Squash{Mode: SquashNone}, root, as(0, 0, 0, 10)},
		"none: a person":          {Squash{Mode: SquashNone}, person, as(7, 8, 9, 0)},
		"all: a person":           {Squash{Mode: SquashAll}, person, as(Nobody, Nobody)},
		"all: to somebody":        {Squash{Mode: SquashAll, UID: 5, GID: 6}, person, as(5, 6)},
		"all: root":               {Squash{Mode: SquashAll, UID: 5, GID: 6}, root, as(5, 6)},
		"what is unknown is root": {Squash{Mode: "some"}, root, as(Nobody, Nobody, Nobody, 10)},
	} {
		if diff := cmp.Diff(c.want, c.squash.mapped(c.who)); diff != "" {
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
		"nobody owns it himself": {new(Nobody), Squash{}, 0, true},
	} {
		s := &server{o: serverOptions{Owner: c.owner, Squash: c.squash}}
		_, err := s.user(proto.Cred{UID: c.uid})
		if (err == nil) != c.gets || err != nil && !errors.Is(err, ErrDenied) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := &server{o: serverOptions{Squash: Squash{Mode: SquashNone}}}
	if who, err := s.user(proto.Cred{UID: 7, GID: 8}); err != nil || who.Groups == nil {
		t.Errorf("a caller without groups is looked up by his process: %+v, %v", who, err)
	}
}

func TestXattrsOfOthers(t *testing.T) {
	file := objects.Attr{Inode: metadata.Inode{Mode: metadata.TypeRegular | 0o640, UID: 1, GID: 1}}
	link := objects.Attr{Inode: metadata.Inode{Mode: metadata.TypeSymlink | 0o777, UID: 1, GID: 1}}
	shared := objects.Attr{Inode: metadata.Inode{Mode: metadata.TypeDir | 0o1777, UID: 1, GID: 1}}
	root, owner, member, other := User{}, as(1, 1), as(2, 1), as(3, 3)
	for _, c := range []struct {
		who         User
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
		for access, want := range map[XattrAccess]error{XattrRead: c.read, XattrWrite: c.write} {
			if err := c.who.permitXattr(&c.a, c.name, access); !errors.Is(err, want) {
				t.Errorf("user %d, %q of mode %o, write %t: %v, want %v", c.who.UID, c.name, uint32(c.a.Mode), access, err, want)
			}
		}
	}
	if owner.MayKnowXattr("trusted.a") || !root.MayKnowXattr("trusted.a") || !owner.MayKnowXattr("user.a") {
		t.Error("lists have other attributes than may be known")
	}
}

// TestRightsOfAHandle: a user with a file open for writing may truncate it and set its times
// to the present, whatever its present mode.
func TestRightsOfAHandle(t *testing.T) {
	file := objects.Attr{Inode: metadata.Inode{Mode: metadata.TypeRegular | 0o400, UID: 1, GID: 1}}
	other := as(3, 3)
	at := metadata.Timespec{Sec: 1}
	for name, c := range map[string]struct {
		change objects.Change
		rights ChangeRights
		want   error
	}{
		"cut":                     {objects.Change{Size: new(uint64(0))}, ChangeRights{}, ErrDenied},
		"cut by a writer":         {objects.Change{Size: new(uint64(0))}, ChangeRights{Writer: true}, nil},
		"touch":                   {objects.Change{Atime: &at, Mtime: &at}, ChangeRights{Present: true}, ErrDenied},
		"touch by a writer":       {objects.Change{Atime: &at, Mtime: &at}, ChangeRights{Present: true, Writer: true}, nil},
		"times by a writer":       {objects.Change{Mtime: &at}, ChangeRights{Writer: true}, objects.ErrForbidden},
		"cut and times":           {objects.Change{Size: new(uint64(0)), Mtime: &at}, ChangeRights{Writer: true}, objects.ErrForbidden},
		"ctime":                   {objects.Change{Ctime: &at}, ChangeRights{}, ErrDenied},
		"set-id bits":             {objects.Change{KillPriv: true}, ChangeRights{}, ErrDenied},
		"set-id bits by a writer": {objects.Change{KillPriv: true}, ChangeRights{Writer: true}, nil},
		"mode by a writer":        {objects.Change{Mode: new(metadata.Mode(0o777))}, ChangeRights{Writer: true}, objects.ErrForbidden},
	} {
		if err := other.PermitChange(&file, &c.change, c.rights); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
