package metadata

import (
	"encoding/hex"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// readStore reads a whole store from a golden file: a key and a value per line.
func readStore(t *testing.T, name string) *mapKV {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "stores", name))
	if err != nil {
		t.Fatal(err)
	}
	kv := &mapKV{data: map[string]string{}}
	for line := range strings.Lines(string(text)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), " ")
		key, badKey := hex.DecodeString(k)
		value, badValue := hex.DecodeString(v)
		if badKey != nil || badValue != nil || len(key) == 0 {
			t.Fatalf("%s: %q", name, line)
		}
		kv.data[string(key)] = string(value)
	}
	return kv
}

// TestUpgrade opens a store written by the last program of format 1: it gets publish/ and
// the number of the current format, and everything else is unchanged.
func TestUpgrade(t *testing.T) {
	kv := readStore(t, "format1.hex")
	old := maps.Clone(kv.data)
	publish := appendKey(nil, kindInode, uint64(PublishIno))
	if _, ok := old[string(publish)]; ok || old[string(rune(kindSuper))][1] != 1 {
		t.Fatal("that is no store of format 1")
	}
	for range 2 { // the second time there is nothing to do
		s, err := Open(t.Context(), kv, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if found := problems(t, s); len(found) > 0 {
			t.Errorf("problems: %v", found)
		}
		in, err := s.Get(t.Context(), PublishIno)
		if err != nil || !in.IsDir() || in.Gen != s.Generation() || in.Nlink != 2 || in.Device != "" {
			t.Errorf("publish/ is %+v, %v", in, err)
		}
		super, err := decodeSuperblock([]byte(kv.data[string(rune(kindSuper))]))
		if err != nil || super != s.super || super.format != formatVersion {
			t.Errorf("superblock %+v, %v, in use %+v", super, err, s.super)
		}
		before, err := decodeSuperblock([]byte(old[string(rune(kindSuper))]))
		if before.format = formatVersion; err != nil || before != super {
			t.Errorf("superblock was %+v, %v, is %+v", before, err, super)
		}
	}
	for k, v := range old {
		if k[0] != kindSuper && kv.data[k] != v {
			t.Errorf("record %x was %x, is %x", k, v, kv.data[k])
		}
	}
	if len(kv.data) != len(old)+1 {
		t.Errorf("%d records became %d", len(old), len(kv.data))
	}
}
