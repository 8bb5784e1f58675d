package metadata_test

import (
	"context"
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/tests/memkv"
)

// committedKV calls committed after each commit, before the operation returns.
type committedKV struct {
	metadata.KV
	committed func() // nil for no call
}

func (k *committedKV) Update(ctx context.Context, fn func(metadata.KVTxn) error) error {
	err := k.KV.Update(ctx, fn)
	if tell := k.committed; err == nil && tell != nil {
		k.committed = nil
		tell()
	}
	return err
}

// abortKV runs a transaction, and aborts it.
type abortKV struct {
	metadata.KV
	abort func() error // nil for no abort; its error ends the transaction
}

func (k *abortKV) Update(ctx context.Context, fn func(metadata.KVTxn) error) error {
	if abort := k.abort; abort != nil {
		k.abort = nil
		err := k.KV.Update(ctx, func(t metadata.KVTxn) error { return errors.Join(fn(t), errAborted) })
		if !errors.Is(err, errAborted) {
			return err
		}
		if err = abort(); err != nil {
			return err
		}
	}
	return k.KV.Update(ctx, fn)
}

var errAborted = errors.New("given up")

// TestCacheOfWhatIsNotMade checks that the cache contains nothing of a transaction that was
// aborted, for good or for another run in which the name is taken.
func TestCacheOfWhatIsNotMade(t *testing.T) {
	ctx := t.Context()
	kv := &abortKV{KV: memkv.New()}
	s, err := metadata.Open(ctx, kv, metadata.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Store: s, t: t, kv: kv}
	f.sim0 = f.device("sim0")
	for name, abort := range map[string]func() error{
		"failed":   func() error { return errAborted },
		"repeated": func() error { return f.rival("repeated") },
	} {
		files := f.newFiles(1, func(_ int, n *metadata.NewFile) { n.Name = name })
		kv.abort = abort
		results, failure := s.Put(ctx, f.sim0, files)
		if results[0].Err == nil {
			t.Errorf("%s: put: %v", name, failure)
		}
		in, absent := s.Get(ctx, files[0].Ino)
		if !errors.Is(absent, metadata.ErrNotExist) {
			t.Errorf("%s: what is not made is found: %+v, %v", name, in, absent)
		}
	}
}

// rival creates a file in sim0 without the store's knowledge, like a conflicting
// transaction.
func (f *fixture) rival(name string) error {
	inos, err := f.NewInos(f.t.Context(), 1)
	if err != nil {
		return err
	}
	other, err := metadata.Open(f.t.Context(), f.kv, metadata.Options{})
	if err != nil {
		return err
	}
	results, err := other.Put(f.t.Context(), f.sim0, []metadata.NewFile{{Ino: inos[0], Name: name, Node: benchFile()}})
	return errors.Join(err, results[0].Err)
}

// TestCacheOfWhatIsJustMade has another operation find a new name and write the inode
// before the operation that created it has returned: the cache must keep what it wrote.
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
