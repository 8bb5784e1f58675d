package metadata_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/tests/memkv"
)

// keep is a KV that survives the Close of the store on it.
type keep struct{ metadata.KV }

func (keep) Close() error { return nil }

func TestReopenKeepsAll(t *testing.T) {
	ctx := t.Context()
	kv := keep{memkv.New()}
	s, err := metadata.Open(ctx, kv, metadata.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dev, err := s.EnsureDevice(ctx, "sim0", 0o750, 5, 6)
	if err != nil {
		t.Fatal(err)
	}
	made, err := s.Create(ctx, dev.Ino, "f", benchFile())
	if err != nil {
		t.Fatal(err)
	}
	gen, next := s.Generation(), s.NextIno()
	if err = s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = metadata.Open(ctx, kv, metadata.Options{}); err != nil {
		t.Fatal(err)
	}
	if s.Generation() != gen || gen == 0 {
		t.Errorf("generation %d became %d", gen, s.Generation())
	}
	if s.NextIno() < next || made.Ino >= next || made.Ino < metadata.FirstIno {
		t.Errorf("next inode was %d, is %d; %d was given", next, s.NextIno(), made.Ino)
	}
	again, err := s.EnsureDevice(ctx, "sim0", 0o777, 9, 9)
	if err != nil || again.Ino != dev.Ino || again.Mode != metadata.TypeDir|0o750 || again.UID != 5 {
		t.Errorf("the device came back as %+v, %v", again, err)
	}
	got, err := s.Lookup(ctx, dev.Ino, "f")
	if diff := cmp.Diff(made, got); err != nil || diff != "" {
		t.Errorf("the file came back different (%v):\n%s", err, diff)
	}
	other, err := metadata.Open(ctx, memkv.New(), metadata.Options{})
	if err != nil || other.Generation() == gen {
		t.Errorf("another store has the same generation (%v)", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	tests := []struct {
		name   string
		damage func(tx metadata.KVTxn) error
		want   error
		text   string
	}{
		{"newer record", func(tx metadata.KVTxn) error {
			return tx.Set([]byte("S"), []byte{9, 1})
		}, metadata.ErrNewer, "superblock has format version 9, but this hmcfs supports versions up to 1"},
		{"newer format", func(tx metadata.KVTxn) error {
			return tx.Set([]byte("S"), []byte{1, 42, 0, 0})
		}, metadata.ErrNewer, "store has format version 42, but this hmcfs supports versions up to 2"},
		{"cut", func(tx metadata.KVTxn) error {
			return tx.Set([]byte("S"), []byte{1, 1, 0})
		}, metadata.ErrCorrupt, "superblock"},
		{"no counter", func(tx metadata.KVTxn) error {
			return tx.Delete([]byte("A"))
		}, metadata.ErrCorrupt, "inode counter"},
	}
	for _, test := range tests {
		kv := keep{memkv.New()}
		if _, err := metadata.Open(t.Context(), kv, metadata.Options{}); err != nil {
			t.Fatal(err)
		}
		if err := kv.Update(t.Context(), test.damage); err != nil {
			t.Fatal(err)
		}
		before := dump(t, kv)
		_, err := metadata.Open(t.Context(), kv, metadata.Options{})
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: Open = %v", test.name, err)
		}
		if dump(t, kv) != before {
			t.Errorf("%s: Open has changed what it refused", test.name)
		}
	}
}

func TestNames(t *testing.T) {
	f := newFixture(t)
	long := strings.Repeat("x", 256)
	tests := []struct {
		name string
		want error
	}{
		{"", metadata.ErrInvalidName},
		{".", metadata.ErrInvalidName},
		{"..", metadata.ErrInvalidName},
		{"a/b", metadata.ErrInvalidName},
		{"a\x00", metadata.ErrInvalidName},
		{long, metadata.ErrNameTooLong},
		{long[:255], nil},
		{"...", nil},
		{"\xff\xfe\n", nil},
		{" ", nil},
	}
	f.touch(f.sim0, "file")
	for _, test := range tests {
		ctx, name := t.Context(), test.name
		_, err := f.Create(ctx, f.sim0, name, benchFile())
		fails(t, "Create "+name, err, test.want)
		if test.want == nil {
			f.must(f.Lookup(ctx, f.sim0, name))
			f.must(f.Unlink(ctx, f.sim0, name))
			continue
		}
		_, err = f.Lookup(ctx, f.sim0, name)
		fails(t, "Lookup "+name, err, test.want)
		_, err = f.Link(ctx, f.sim0, f.sim0, name)
		fails(t, "Link "+name, err, test.want)
		_, err = f.Unlink(ctx, f.sim0, name)
		fails(t, "Unlink "+name, err, test.want)
		_, err = f.Rmdir(ctx, f.sim0, name)
		fails(t, "Rmdir "+name, err, test.want)
		_, err = f.Rename(ctx, metadata.Rename{From: f.sim0, Name: name, To: f.sim0, NewName: "x"})
		fails(t, "Rename from "+name, err, test.want)
		_, err = f.Rename(ctx, metadata.Rename{From: f.sim0, Name: "file", To: f.sim0, NewName: name})
		fails(t, "Rename to "+name, err, test.want)
		_, err = f.EnsureDevice(ctx, metadata.DeviceName(name), 0, 0, 0)
		fails(t, "EnsureDevice "+name, err, test.want)
	}
}

func TestCreateTypes(t *testing.T) {
	f := newFixture(t)
	long := strings.Repeat("t", metadata.MaxTarget)
	tests := []struct {
		name string
		node metadata.Node
		want error
		size uint64
	}{
		{"plain", metadata.Node{Mode: 0o644}, nil, 0},
		{"regular", metadata.Node{Mode: metadata.TypeRegular | 0o7777, Rdev: 5, Target: "x"}, nil, 0},
		{"fifo", metadata.Node{Mode: metadata.TypeFIFO}, nil, 0},
		{"socket", metadata.Node{Mode: metadata.TypeSocket}, nil, 0},
		{"char", metadata.Node{Mode: metadata.TypeChar, Rdev: 0x103}, nil, 0},
		{"block", metadata.Node{Mode: metadata.TypeBlock, Rdev: 1<<32 - 1}, nil, 0},
		{"symlink", metadata.Node{Mode: metadata.TypeSymlink | 0o777, Target: long}, nil, metadata.MaxTarget},
		{"longer", metadata.Node{Mode: metadata.TypeSymlink, Target: long + "t"}, metadata.ErrNameTooLong, 0},
		{"nowhere", metadata.Node{Mode: metadata.TypeSymlink}, metadata.ErrInvalid, 0},
		{"unknown", metadata.Node{Mode: 0o030000}, metadata.ErrInvalid, 0},
		{"excess", metadata.Node{Mode: metadata.TypeRegular | 1<<20}, metadata.ErrInvalid, 0},
	}
	for _, test := range tests {
		in, err := f.Create(t.Context(), f.sim0, test.name, test.node)
		fails(t, test.name, err, test.want)
		if err != nil {
			continue
		}
		want := test.node
		if want.Mode.Type() == 0 {
			want.Mode |= metadata.TypeRegular
		}
		if want.Mode.Type() == metadata.TypeRegular {
			want.Rdev, want.Target = 0, ""
		}
		if in.Mode != want.Mode || in.Rdev != want.Rdev || in.Target != want.Target ||
			in.Size != test.size || in.Nlink != 1 || in.Device != "sim0" || in.Gen != f.Generation() {
			t.Errorf("%s became %+v", test.name, in)
		}
		if got := f.must(f.Get(t.Context(), in.Ino)); got != in {
			t.Errorf("%s is stored as %+v, but was answered as %+v", test.name, got, in)
		}
	}
}

func TestSetGroupID(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	node := metadata.Node{Mode: metadata.TypeDir | metadata.ModeSetGID | 0o770, UID: 1, GID: 500}
	dir := f.must(f.Create(ctx, f.sim0, "shared", node)).Ino
	sub := f.must(f.Create(ctx, dir, "sub", metadata.Node{Mode: metadata.TypeDir | 0o700, UID: 2, GID: 2}))
	if sub.GID != 500 || sub.Mode != metadata.TypeDir|metadata.ModeSetGID|0o700 || sub.UID != 2 {
		t.Errorf("the directory became %+v", sub)
	}
	file := f.must(f.Create(ctx, sub.Ino, "file", metadata.Node{Mode: 0o600, UID: 3, GID: 3}))
	if file.GID != 500 || file.Mode != metadata.TypeRegular|0o600 {
		t.Errorf("the file became %+v", file)
	}
	plain := f.must(f.Create(ctx, f.sim0, "plain", metadata.Node{Mode: 0o600, UID: 3, GID: 3}))
	if plain.GID != 3 {
		t.Errorf("without the bit the group became %d", plain.GID)
	}
}

func TestUpdate(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	ino := f.touch(f.sim0, "file")
	before := f.must(f.Get(ctx, ino))
	boom := errors.New("boom")
	_, err := f.Update(ctx, ino, func(in *metadata.Inode) error {
		in.Size = 7
		return boom
	})
	fails(t, "Update", err, boom)
	forbidden := map[string]func(in *metadata.Inode){
		"number": func(in *metadata.Inode) { in.Ino++ }, "links": func(in *metadata.Inode) { in.Nlink++ },
		"type":   func(in *metadata.Inode) { in.Mode ^= metadata.TypeRegular ^ metadata.TypeDir },
		"device": func(in *metadata.Inode) { in.Device = "sim1" },
		"parent": func(in *metadata.Inode) { in.Parent = f.sim1 },
		"name":   func(in *metadata.Inode) { in.Name = "x" }, "key": func(in *metadata.Inode) { in.Key = "x" },
		"generation": func(in *metadata.Inode) { in.Gen++ }, "target": func(in *metadata.Inode) { in.Target = "x" },
	}
	for name, change := range forbidden {
		_, err = f.Update(ctx, ino, func(in *metadata.Inode) error {
			change(in)
			return nil
		})
		fails(t, "Update of the "+name, err, metadata.ErrInvalid)
	}
	_, err = f.Update(ctx, f.sim0, func(in *metadata.Inode) error {
		in.Size++
		return nil
	})
	fails(t, "Update of a directory's size", err, metadata.ErrInvalid)
	_, err = f.Update(ctx, 999_999, func(*metadata.Inode) error { return nil })
	fails(t, "Update of nothing", err, metadata.ErrNotExist)
	if got := f.must(f.Get(ctx, ino)); got != before {
		t.Errorf("failed updates changed the inode: %s", cmp.Diff(before, got))
	}
}

func TestContextEnds(t *testing.T) {
	f := newFixture(t)
	ino := f.touch(f.sim0, "file")
	before := dump(t, f.kv)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var errs []error
	add := func(_ any, err error) { errs = append(errs, err) }
	add(f.Create(ctx, f.sim0, "x", benchFile()))
	add(f.Unlink(ctx, f.sim0, "file"))
	add(f.Rename(ctx, metadata.Rename{From: f.sim0, Name: "file", To: f.sim0, NewName: "y"}))
	add(f.Update(ctx, ino, func(in *metadata.Inode) error { in.Size = 1; return nil }))
	add(f.SaveContent(ctx, ino, nil, bigMappings(3)))
	add(nil, f.SetXattr(ctx, ino, "user.x", nil, 0))
	add(nil, f.BindKey(ctx, ino, "k"))
	add(f.Get(ctx, ino))
	for i, err := range errs {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("operation %d = %v", i, err)
		}
	}
	// The context ends within the transaction, before its commit.
	ctx, cancel = context.WithCancel(t.Context())
	_, err := f.Update(ctx, ino, func(in *metadata.Inode) error {
		cancel()
		in.Size = 1
		return nil
	})
	fails(t, "Update", err, context.Canceled)
	if dump(t, f.kv) != before {
		t.Error("an operation whose context had ended changed something")
	}
}
