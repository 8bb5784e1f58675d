package metadata_test

import (
	"context"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/tests/memkv"
)

// countKV counts the operations on a KV.
type countKV struct {
	metadata.KV
	reads, writes, scans, txns int
}

func (k *countKV) View(ctx context.Context, fn func(metadata.KVTxn) error) error {
	k.txns++
	return k.KV.View(ctx, func(t metadata.KVTxn) error { return fn(&countTxn{t, k}) })
}

func (k *countKV) Update(ctx context.Context, fn func(metadata.KVTxn) error) error {
	k.txns++
	return k.KV.Update(ctx, func(t metadata.KVTxn) error { return fn(&countTxn{t, k}) })
}

type countTxn struct {
	metadata.KVTxn
	k *countKV
}

func (t *countTxn) Get(key []byte) ([]byte, error) {
	t.k.reads++
	return t.KVTxn.Get(key)
}

func (t *countTxn) Set(key, value []byte) error {
	t.k.writes++
	return t.KVTxn.Set(key, value)
}

func (t *countTxn) Delete(key []byte) error {
	t.k.writes++
	return t.KVTxn.Delete(key)
}

func (t *countTxn) Scan(prefix, from []byte, fn func(key, value []byte) (bool, error)) error {
	t.k.scans++
	return t.KVTxn.Scan(prefix, from, fn)
}

// TestCost fixes how often the frequent operations use the KV, which determines their cost.
func TestCost(t *testing.T) {
	ctx := t.Context()
	kv := &countKV{KV: memkv.New()}
	s, err := metadata.Open(ctx, kv, metadata.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dev, err := s.EnsureDevice(ctx, "sim0", 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var in metadata.Inode
	one := []metadata.Mapping{{FileOff: 3, Len: 10}}
	tests := []struct {
		name                       string
		reads, writes, scans, txns int
		run                        func() error
	}{
		{"create", 2, 3, 0, 1, func() (err error) { in, err = s.Create(ctx, dev.Ino, "f", benchFile()); return err }},
		{"lookup after create", 1, 0, 0, 1, func() error { _, err := s.Lookup(ctx, dev.Ino, "f"); return err }},
		{"lookup again", 0, 0, 0, 0, func() error { _, err := s.Lookup(ctx, dev.Ino, "f"); return err }},
		{"get", 0, 0, 0, 0, func() error { _, err := s.Get(ctx, in.Ino); return err }},
		{"save", 1, 2, 0, 1, func() error { _, err := s.SaveContent(ctx, in.Ino, nil, one); return err }},
		{"mappings", 2, 0, 0, 1, func() error { _, err := s.Mappings(ctx, in.Ino); return err }},
		{"rename", 4, 4, 0, 1, func() error {
			_, err := s.Rename(ctx, metadata.Rename{From: dev.Ino, Name: "f", To: dev.Ino, NewName: "g"})
			return err
		}},
		{"update", 1, 1, 0, 1, func() error {
			_, err := s.Update(ctx, in.Ino, func(in *metadata.Inode) error { in.Size++; return nil })
			return err
		}},
		{"get after update", 1, 0, 0, 1, func() error { _, err := s.Get(ctx, in.Ino); return err }},
		{"list attributes", 1, 0, 0, 1, func() error { _, err := s.ListXattr(ctx, in.Ino); return err }},
		{"read directory", 1, 0, 1, 1, func() error { _, err := s.ReadDir(ctx, dev.Ino, 0, 10); return err }},
		{"unlink", 3, 4, 0, 1, func() error { _, err := s.Unlink(ctx, dev.Ino, "g"); return err }},
	}
	for _, test := range tests {
		kv.reads, kv.writes, kv.scans, kv.txns = 0, 0, 0, 0
		if err := test.run(); err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if kv.reads != test.reads || kv.writes != test.writes || kv.scans != test.scans || kv.txns != test.txns {
			t.Errorf("%s: %d reads, %d writes, %d scans in %d transactions, want %d, %d, %d in %d", test.name,
				kv.reads, kv.writes, kv.scans, kv.txns, test.reads, test.writes, test.scans, test.txns)
		}
	}
}
