package metadata_test

import (
	"context"
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/memkv"
)

// committedKV tells of each commit before the operation hears of it.
type committedKV struct {
	metadata.KV
	committed func() // nil when nobody asks
}

func (k *committedKV) Update(ctx context.Context, fn func(metadata.KVTxn) error) error {
	err := k.KV.Update(ctx, fn)
	if tell := k.committed; err == nil && tell != nil {
		k.committed = nil
		tell()
	}
	return err
}

// TestCacheOfWhatIsJustMade lets somebody find a new name and write the inode
// before the operation that made it has returned: what he wrote stays.
func TestCacheOfWhatIsJustMade(t *testing.T) {
	ctx := t.Context()
	kv := &committedKV{KV: memkv.New()}
	s, err := metadata.Open(ctx, kv, metadata.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dev, err := s.EnsureDevice(ctx, "sim0", 0o755, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	const size = 4711
	write := func(name string) func() {
		return func() {
			in, err := s.Lookup(ctx, dev.Ino, name)
			if err != nil {
				t.Errorf("%s is committed, but: %v", name, err)
				return
			}
			if _, err = s.Update(ctx, in.Ino, func(in *metadata.Inode) error { in.Size = size; return nil }); err != nil {
				t.Error(err)
			}
		}
	}
	for _, c := range []struct {
		name string
		make func(name string) error
	}{
		{"create", func(name string) error {
			_, err := s.Create(ctx, dev.Ino, name, benchFile())
			return err
		}},
		{"put", func(name string) error {
			inos, err := s.NewInos(ctx, 1)
			if err != nil {
				return err
			}
			results, err := s.Put(ctx, dev.Ino, []metadata.NewFile{{Ino: inos[0], Name: name, Node: benchFile()}})
			return errors.Join(err, results[0].Err)
		}},
	} {
		if _, err := s.Create(ctx, dev.Ino, "filler "+c.name, benchFile()); err != nil { // numbers are at hand
			t.Fatal(err)
		}
		kv.committed = write(c.name)
		if err := c.make(c.name); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		in, err := s.Lookup(ctx, dev.Ino, c.name)
		if err != nil || in.Size != size {
			t.Errorf("%s: size %d, %v, want %d", c.name, in.Size, err, size)
		}
		if in, err = s.Get(ctx, in.Ino); err != nil || in.Size != size {
			t.Errorf("%s: Get says size %d, %v, want %d", c.name, in.Size, err, size)
		}
	}
}
