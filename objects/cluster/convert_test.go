package cluster

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
)

func someAttr() objects.Attr {
	return objects.Attr{
		Inode: metadata.Inode{
			Ino: 77, Gen: 0xfedcba9876543210, Mode: metadata.TypeRegular | 0o7654,
			UID: 1<<32 - 1, GID: 65534, Nlink: 3, Rdev: 0x801, Size: 1<<63 - 1,
			Atime: metadata.Timespec{Sec: -1 << 62, Nsec: 999_999_999}, Mtime: metadata.Timespec{Sec: 16_725_225_600, Nsec: 1},
			Ctime: metadata.Timespec{Sec: -1, Nsec: 500}, Btime: metadata.Timespec{Sec: 1<<63 - 1},
			Device: "sim0", Allocated: 1 << 41, Parent: 1 << 50, Key: "k;ey", Path: "d2d-peer",
			Expires: metadata.Timespec{Sec: 5, Nsec: 6},
		},
		State: objects.StateLive, Resident: 1 << 41,
	}
}

func TestAttributesComeBack(t *testing.T) {
	bound, lost := someAttr(), someAttr()
	bound.State, bound.Bound = objects.StateBound, metadata.BoundLive
	lost.State, lost.Resident = objects.StateLost, 0
	link := someAttr()
	link.Mode, link.Target = metadata.TypeSymlink|0o777, "../a/\nb"
	for _, want := range []objects.Attr{someAttr(), bound, lost, link} {
		p := attrToProto(&want, 1000)
		got, err := attrFromProto(&p)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", want.State, diff)
		}
	}
}

// TestAttributesThatCantBe refuses invalid attributes, since they come from another machine.
func TestAttributesThatCantBe(t *testing.T) {
	for name, spoil := range map[string]func(*proto.Attr){
		"no number":      func(a *proto.Attr) { a.Ino = 0 },
		"too large":      func(a *proto.Attr) { a.Size = math.MaxInt64 + 1 },
		"no type":        func(a *proto.Attr) { a.Mode = 0o644 },
		"unknown type":   func(a *proto.Attr) { a.Mode = 0o170644 },
		"bits beyond":    func(a *proto.Attr) { a.Mode |= 1 << 20 },
		"unknown state":  func(a *proto.Attr) { a.State = "well" },
		"without states": func(a *proto.Attr) { a.State = "" },
	} {
		a := someAttr()
		p := attrToProto(&a, 0)
		spoil(&p)
		if _, err := attrFromProto(&p); !errors.Is(err, proto.ErrBody) {
			t.Errorf("%s: %v", name, err)
		}
		e := proto.Entry{Name: "a", Ino: 77, Type: uint32(metadata.TypeRegular), Cookie: 5, Attr: p}
		if _, err := entryFromProto(&e); name != "no number" && !errors.Is(err, proto.ErrBody) {
			t.Errorf("%s in an entry: %v", name, err)
		}
	}
}

func TestEntriesComeBack(t *testing.T) {
	a := someAttr()
	entry := metadata.Entry{Name: "näme\xff", Ino: 77, Type: metadata.TypeRegular, Cookie: 1 << 62}
	for _, attr := range []*objects.Attr{nil, &a} {
		p := entryToProto(&entry)
		if attr != nil {
			p.Attr = attrToProto(attr, 5)
		}
		got, err := entryFromProto(&p)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(Entry{Entry: entry, Attr: attr}, got); diff != "" {
			t.Error(diff)
		}
	}
	for name, spoil := range map[string]func(*proto.Entry){
		"no name":        func(e *proto.Entry) { e.Name = "" },
		"a long name":    func(e *proto.Entry) { e.Name = string(make([]byte, 256)) },
		"no number":      func(e *proto.Entry) { e.Ino = 0 },
		"no cookie":      func(e *proto.Entry) { e.Cookie = 0 },
		"no type":        func(e *proto.Entry) { e.Type = 0 },
		"of another one": func(e *proto.Entry) { e.Ino++ },
	} {
		p := entryToProto(&entry)
		p.Attr = attrToProto(&a, 5)
		spoil(&p)
		if _, err := entryFromProto(&p); !errors.Is(err, proto.ErrBody) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Names that would lead elsewhere are refused in their encoded form.
	for _, name := range []string{"a/b", "..", ".", "a\x00b"} {
		p := entryToProto(&entry)
		p.Name = name
		if _, err := entryFromProto(&p); !errors.Is(err, proto.ErrBody) {
			t.Errorf("name %q: %v", name, err)
		}
	}
}

func TestChangesComeBack(t *testing.T) {
	at := metadata.Timespec{Sec: 5, Nsec: 6}
	for name, want := range map[string]objects.Change{
		"nothing": {},
		"mode":    {Mode: new(metadata.Mode(0o4755))},
		"uid":     {UID: new(uint32(0))},
		"gid":     {GID: new(uint32(7))},
		"size":    {Size: new(uint64(0))},
		"atime":   {Atime: &at},
		"mtime":   {Mtime: &at},
		"ctime":   {Ctime: &at},
		"bits":    {KillPriv: true},
		"all": {
			Mode: new(metadata.Mode(0o600)), UID: new(uint32(1)), GID: new(uint32(2)), Size: new(uint64(3)),
			Atime: &at, Mtime: &at, Ctime: &at, KillPriv: true,
		},
	} {
		var ask proto.SetAttrAsk
		changeToProto(want, &ask)
		got, err := changeFromProto(&ask)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	for _, ask := range []proto.SetAttrAsk{{Set: 1 << 8}, {Set: 1 << 31}, {Set: proto.SetMode, Mode: 0o100644}} {
		if _, err := changeFromProto(&ask); !errors.Is(err, objects.ErrInvalid) {
			t.Errorf("%+v: %v", ask, err)
		}
	}
}

func TestManyGroups(t *testing.T) {
	c := objects.Caller{UID: 1, GID: 2, Groups: make([]uint32, 100)}
	if got := credToProto(c); len(got.Groups) != proto.MaxGroups {
		t.Errorf("%d groups are told of", len(got.Groups))
	}
}
