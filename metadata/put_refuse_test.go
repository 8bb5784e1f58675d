package metadata_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/tests/memkv"
)

// TestPutRefuses puts one file with each fault among valid files.
func TestPutRefuses(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	f.mkdir(f.sim0, "dir")
	taken := f.touch(f.sim0, "taken")
	f.ok(f.BindKey(ctx, taken, "taken"))
	faults := []struct {
		want error
		make func(*metadata.NewFile)
	}{
		{metadata.ErrExist, func(n *metadata.NewFile) { n.Name = "taken" }},
		{metadata.ErrExist, func(n *metadata.NewFile) { n.Key = "taken" }},
		{metadata.ErrExist, func(n *metadata.NewFile) { n.Name = "dir" }},
		{metadata.ErrIsDir, func(n *metadata.NewFile) { n.Name, n.Replace = "dir", true }},
		{metadata.ErrInvalidName, func(n *metadata.NewFile) { n.Name = "a/b" }},
		{metadata.ErrNameTooLong, func(n *metadata.NewFile) { n.Name = string(make([]byte, 256)) }},
		{metadata.ErrInvalidKey, func(n *metadata.NewFile) { n.Key = "a b" }},
		{metadata.ErrCrossDevice, func(n *metadata.NewFile) { n.Device = "sim1" }},
		{metadata.ErrInvalid, func(n *metadata.NewFile) { n.Ino = metadata.PublishIno }},
		{metadata.ErrInvalid, func(n *metadata.NewFile) { n.Node.Mode = metadata.TypeDir }},
		{metadata.ErrInvalid, func(n *metadata.NewFile) { n.Expires.Nsec = 1e9 }},
		{metadata.ErrInvalid, func(n *metadata.NewFile) { n.Maps = []metadata.Mapping{{}} }},
		{metadata.ErrRange, func(n *metadata.NewFile) { n.Xattrs = map[string][]byte{"": nil} }},
		{metadata.ErrTooLarge, func(n *metadata.NewFile) {
			n.Xattrs = map[string][]byte{"user.a": make([]byte, metadata.MaxXattr+1)}
		}},
		{metadata.ErrTooLarge, func(n *metadata.NewFile) { n.Binding = make([]byte, metadata.MaxBinding+1) }},
	}
	files := f.newFiles(2*len(faults), func(i int, n *metadata.NewFile) {
		n.Key = fmt.Sprint("key", i)
		if i%2 == 1 {
			faults[i/2].make(n)
		}
	})
	results, err := f.Put(ctx, f.sim0, files)
	f.ok(err)
	for i, res := range results {
		var want error
		if i%2 == 1 {
			want = faults[i/2].want
		}
		if !errors.Is(res.Err, want) || want == nil && res.Inode.Ino != files[i].Ino {
			t.Errorf("file %d: %+v, want %v", i, res, want)
		}
		if want != nil && files[i].Ino >= metadata.FirstIno {
			_, err = f.Get(ctx, files[i].Ino)
			fails(t, fmt.Sprintf("file %d that was refused", i), err, metadata.ErrNotExist)
		}
	}
	if dir := f.must(f.Get(ctx, f.sim0)); dir.Size != uint64(len(faults)+2) {
		t.Errorf("the directory has %d entries", dir.Size)
	}
	results, err = f.Put(ctx, metadata.PublishIno, f.newFiles(1, func(int, *metadata.NewFile) {}))
	if f.ok(err); !errors.Is(results[0].Err, metadata.ErrInvalid) {
		t.Errorf("a publication of no device: %v", results[0].Err)
	}
}

// TestPutNowhere gives every file the error of the directory, except files that were
// refused anyway.
func TestPutNowhere(t *testing.T) {
	f := newFixture(t)
	file := f.touch(f.sim0, "file")
	for _, c := range []struct {
		dir  metadata.Ino
		want error
	}{
		{f.sim0 + 1000, metadata.ErrNotExist},
		{file, metadata.ErrNotDir},
		{metadata.RootIno, metadata.ErrPermission},
		{f.sim0, context.Canceled},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		if c.dir == f.sim0 {
			cancel()
		}
		files := f.newFiles(300, func(i int, n *metadata.NewFile) {
			if i == 299 {
				n.Name = ""
			}
		})
		results, err := f.Put(ctx, c.dir, files)
		cancel()
		fails(t, "put", err, c.want)
		for i, res := range results[:299] {
			fails(t, fmt.Sprint("file ", i), res.Err, c.want)
		}
		fails(t, "the last", results[299].Err, metadata.ErrInvalidName)
	}
}

// TestPutReplaces takes over names and keys of other files.
func TestPutReplaces(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	named, linked, keyed := f.touch(f.sim0, "n00000"), f.touch(f.sim0, "n00001"), f.touch(f.sim1, "elsewhere")
	f.must(f.Link(ctx, linked, f.sim0, "second"))
	for key, ino := range map[string]metadata.Ino{"key0": named, "key1": linked, "key2": keyed, "key3": f.sim0} {
		f.ok(f.BindKey(ctx, ino, key))
	}
	_, err := f.SaveContent(ctx, named, nil, bigMappings(2500)) // more than one transaction removes
	f.ok(err)
	results := f.put(f.sim0, f.newFiles(4, func(i int, n *metadata.NewFile) {
		n.Key, n.Replace = fmt.Sprint("key", i), true
	})...)
	if r := results[0]; r.Replaced == nil || r.Replaced.Ino != named || r.Replaced.Nlink != 0 || r.Unkeyed != 0 {
		t.Errorf("over a name: %+v", r)
	}
	if r := results[1]; r.Replaced == nil || r.Replaced.Ino != linked || r.Replaced.Nlink != 1 || r.Replaced.Key != "" || r.Unkeyed != linked {
		t.Errorf("over one of two names: %+v", r)
	}
	if r := results[2]; r.Replaced != nil || r.Unkeyed != keyed {
		t.Errorf("over a key: %+v", r)
	}
	if r := results[3]; r.Replaced != nil || r.Unkeyed != f.sim0 {
		t.Errorf("over the directory's key: %+v", r)
	}
	for i, r := range results {
		ino, missing := f.KeyIno(ctx, fmt.Sprint("key", i))
		if f.ok(missing); ino != r.Inode.Ino {
			t.Errorf("key%d is of %d", i, ino)
		}
	}
	for _, ino := range []metadata.Ino{linked, keyed, f.sim0} {
		if in := f.must(f.Get(ctx, ino)); in.Key != "" {
			t.Errorf("inode %d still carries %s", ino, in.Key)
		}
	}
	_, err = f.Get(ctx, named)
	fails(t, "what was replaced", err, metadata.ErrNotExist)
	if text := dump(t, f.kv); strings.Contains(text, "\n7a") {
		t.Errorf("records of what was replaced are left:\n%s", text)
	}
	if in := f.must(f.Lookup(ctx, f.sim0, "second")); in.Ino != linked {
		t.Errorf("the second name is of %d", in.Ino)
	}
}

// TestPutOneNameTwice creates two files with one name and key in one transaction: the
// second replaces the first, of which nothing remains, not even in the cache.
func TestPutOneNameTwice(t *testing.T) {
	f := newFixture(t)
	files := f.newFiles(2, func(_ int, n *metadata.NewFile) { n.Name, n.Key, n.Replace = "one", "key", true })
	results := f.put(f.sim0, files...)
	if r := results[1].Replaced; r == nil || r.Ino != files[0].Ino || r.Nlink != 0 {
		t.Errorf("the second replaces %+v", r)
	}
	_, err := f.Get(t.Context(), files[0].Ino)
	fails(t, "the first", err, metadata.ErrNotExist)
	if in := f.must(f.Lookup(t.Context(), f.sim0, "one")); in.Ino != files[1].Ino {
		t.Errorf("the name is of %d", in.Ino)
	}
	files = f.newFiles(2, func(i int, n *metadata.NewFile) { n.Name, n.Key, n.Replace = fmt.Sprint("two", i), "k", true })
	if r := f.put(f.sim0, files...); r[1].Unkeyed != files[0].Ino {
		t.Errorf("the key was taken from %d", r[1].Unkeyed)
	}
	if in := f.must(f.Get(t.Context(), files[0].Ino)); in.Key != "" {
		t.Errorf("the first still carries %s", in.Key)
	}
}

// smallKV accepts few records per transaction.
type smallKV struct {
	metadata.KV
	limit int // 0 for none
	most  int // records that one transaction has set
}

func (k *smallKV) Update(ctx context.Context, fn func(metadata.KVTxn) error) error {
	return k.KV.Update(ctx, func(t metadata.KVTxn) error {
		small := &smallTxn{KVTxn: t, left: k.limit}
		err := fn(small)
		k.most = max(k.most, k.limit-small.left)
		return err
	})
}

type smallTxn struct {
	metadata.KVTxn
	left int
}

func (t *smallTxn) Set(key, value []byte) error {
	if t.left--; t.left == 0 {
		return metadata.ErrTooLarge
	}
	return t.KVTxn.Set(key, value)
}

// TestPutInBatches puts more mappings than every KV accepts at once, and stays within the
// guaranteed limit.
func TestPutInBatches(t *testing.T) {
	kv := &smallKV{KV: memkv.New()}
	s, err := metadata.Open(t.Context(), kv, metadata.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Store: s, t: t, kv: kv}
	f.sim0 = f.device("sim0")
	f.put(f.sim0, f.newFiles(256, func(_ int, n *metadata.NewFile) { n.Maps = bigMappings(40) })...)
	if kv.most > 8192 || kv.most < 1000 {
		t.Errorf("one transaction has %d records", kv.most)
	}
}

// TestPutInHalves puts more than the KV accepts at once, and one file that it does not
// accept at all.
func TestPutInHalves(t *testing.T) {
	ctx := t.Context()
	kv := &smallKV{KV: memkv.New()}
	s, err := metadata.Open(ctx, kv, metadata.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Store: s, t: t, kv: kv}
	f.sim0 = f.device("sim0")
	files := f.newFiles(100, func(i int, n *metadata.NewFile) {
		n.Key = fmt.Sprint("key", i)
		if i == 37 {
			n.Maps = bigMappings(40)
		}
	})
	kv.limit = 20
	results, err := f.Put(ctx, f.sim0, files)
	f.ok(err)
	for i, res := range results {
		var want error
		if i == 37 {
			want = metadata.ErrTooLarge
		}
		fails(t, files[i].Name, res.Err, want)
		if _, err := f.Lookup(ctx, f.sim0, files[i].Name); (want == nil) != (err == nil) {
			t.Errorf("%s is found: %v", files[i].Name, err)
		}
	}
	checkStore(t, s)
}
