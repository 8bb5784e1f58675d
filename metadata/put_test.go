package metadata_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/tests/memkv"
)

// newFiles returns n files for Put, with numbers of their own.
func (f *fixture) newFiles(n int, fill func(i int, file *metadata.NewFile)) []metadata.NewFile {
	f.t.Helper()
	inos, err := f.NewInos(f.t.Context(), n)
	f.ok(err)
	files := make([]metadata.NewFile, n)
	for i := range files {
		files[i] = metadata.NewFile{Ino: inos[i], Name: fmt.Sprintf("n%05d", i), Node: benchFile()}
		fill(i, &files[i])
	}
	return files
}

// put makes files that must all succeed.
func (f *fixture) put(dir metadata.Ino, files ...metadata.NewFile) []metadata.PutResult {
	f.t.Helper()
	results, err := f.Put(f.t.Context(), dir, files)
	f.ok(err)
	for i := range results {
		if results[i].Err != nil {
			f.t.Fatalf("put %s: %v", files[i].Name, results[i].Err)
		}
	}
	return results
}

// TestPut creates more files than one transaction can, with everything that a file can
// have, and reads it all back.
func TestPut(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	keys := f.must(f.EnsureDir(ctx, f.sim0, ".keys", metadata.Node{Mode: 0o700}))
	files := f.newFiles(700, func(i int, n *metadata.NewFile) {
		n.Key = fmt.Sprint("key;", i)
		n.Size, n.Allocated, n.Epoch, n.Path = uint64(i), uint64(2*i), 3, "h2d"
		n.Xattrs = map[string][]byte{"user.hmc.blobs": []byte(n.Key), "user.b": {}}
		n.Maps = []metadata.Mapping{{FileOff: 5, Len: 5}, {Len: 5}}
		switch i % 4 {
		case 1:
			n.Binding = []byte(n.Name)
		case 2:
			n.Fleeting = true
		}
		if i%3 == 1 {
			n.Expires = metadata.Timespec{Sec: int64(i)}
		}
	})
	results := f.put(keys.Ino, files...)
	for i := range files {
		f.comparePut(&files[i], &results[i], keys.Ino)
	}
	if in, err := f.Get(ctx, keys.Ino); err != nil || in.Size != 700 {
		t.Errorf("the directory has %d entries, %v", in.Size, err)
	}
}

// comparePut checks that a file is as requested.
func (f *fixture) comparePut(n *metadata.NewFile, res *metadata.PutResult, dir metadata.Ino) {
	f.t.Helper()
	ctx := f.t.Context()
	in := f.must(f.Lookup(ctx, dir, n.Name))
	want := metadata.Inode{
		Ino: n.Ino, Gen: f.Generation(), Mode: n.Node.Mode, UID: n.Node.UID, GID: n.Node.GID, Nlink: 1,
		Size: n.Size, Allocated: n.Allocated, Epoch: n.Epoch, Path: n.Path, Device: "sim0",
		Atime: in.Atime, Mtime: in.Mtime, Ctime: in.Ctime, Btime: in.Btime,
		Parent: dir, Name: n.Name, Key: n.Key, Expires: n.Expires,
	}
	if n.Fleeting {
		want.Bound = metadata.BoundLive
		if _, err := f.Binding(ctx, n.Ino); !errors.Is(err, metadata.ErrNoXattr) {
			f.t.Errorf("binding of %s: %v", n.Name, err)
		}
	}
	if n.Binding != nil {
		want.Bound = metadata.BoundLive
		if b, err := f.Binding(ctx, n.Ino); err != nil || string(b) != string(n.Binding) {
			f.t.Errorf("binding of %s: %q, %v", n.Name, b, err)
		}
	}
	if in != want || *res.Inode != want || res.Replaced != nil || res.Unkeyed != 0 {
		f.t.Errorf("%s is %+v, and the answer %+v, want %+v", n.Name, in, res, want)
	}
	if ino, err := f.KeyIno(ctx, n.Key); err != nil || ino != n.Ino {
		f.t.Errorf("key %s: %d, %v", n.Key, ino, err)
	}
	if v, err := f.GetXattr(ctx, n.Ino, "user.hmc.blobs"); err != nil || string(v) != n.Key {
		f.t.Errorf("attribute of %s: %q, %v", n.Name, v, err)
	}
	if maps, err := f.Mappings(ctx, n.Ino); err != nil || len(maps) != 2 || maps[1].FileOff != 5 {
		f.t.Errorf("mappings of %s: %v, %v", n.Name, maps, err)
	}
}

// TestPutEndsInBetween ends the context after the first transaction: its files remain, and
// the others have the error.
func TestPutEndsInBetween(t *testing.T) {
	kv := &committedKV{KV: memkv.New()}
	s, err := metadata.Open(t.Context(), kv, metadata.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Store: s, t: t, kv: kv}
	f.sim0 = f.device("sim0")
	files := f.newFiles(600, func(int, *metadata.NewFile) {})
	ctx, cancel := context.WithCancel(t.Context())
	kv.committed = cancel
	results, err := s.Put(ctx, f.sim0, files)
	fails(t, "put", err, context.Canceled)
	made := 0
	for i, res := range results {
		in, err := s.Lookup(t.Context(), f.sim0, files[i].Name)
		if res.Err == nil && (err != nil || in != *res.Inode || made != i) {
			t.Errorf("file %d of %d is %+v, %v, and was said to be %+v", i, made, in, err, res.Inode)
		}
		if res.Err == nil {
			made++
			continue
		}
		fails(t, "the rest", res.Err, context.Canceled)
		fails(t, "the name of the rest", err, metadata.ErrNotExist)
	}
	if made == 0 || made == len(files) {
		t.Errorf("%d files are made", made)
	}
	checkStore(t, s)
}
