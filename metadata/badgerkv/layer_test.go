package badgerkv

import (
	"slices"
	"testing"

	"github.com/tidwall/btree"
)

// TestEqualHashes has keys whose hashes are equal: each is found by its own changes.
func TestEqualHashes(t *testing.T) {
	const hash = 7
	set := func(key, value string) change { return change{key: []byte(key), value: []byte(value), hash: hash} }
	l := newLayer(nil)
	l.add(1, commit{writes: []change{set("a", "a1"), set("b", "b1")}})
	l.sort()
	l.add(2, commit{writes: []change{set("a", "a2"), {key: []byte("c"), hash: hash, deleted: true}}})
	for _, c := range []struct {
		key     string
		version uint64
		want    string
	}{{"a", 0, ""}, {"a", 1, "a1"}, {"a", 2, "a2"}, {"b", 1, "b1"}, {"b", 2, "b1"}, {"d", 2, ""}} {
		got := ""
		if found := l.at([]byte(c.key), hash, c.version); found != nil {
			got = string(found.value)
		}
		if got != c.want {
			t.Errorf("%s as of %d is %q, want %q", c.key, c.version, got, c.want)
		}
	}
	var all btree.Map[string, *change]
	l.under("", "", 2, &all)
	if got := all.Keys(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("a scan finds %q", got)
	}
	if l.conflicts(2, []uint64{hash}) || !l.conflicts(1, []uint64{1, hash}) || l.conflicts(1, []uint64{1}) {
		t.Error("wrong conflicts")
	}
	tx := txn{commit: commit{writes: []change{set("a", "own"), set("b", "own")}}}
	*tx.own.at(hash) = 2
	if w := tx.wrote([]byte("a"), hash); w == nil || string(w.key) != "a" {
		t.Errorf("the own change of a is %v", w)
	}
	if w := tx.wrote([]byte("c"), hash); w != nil {
		t.Errorf("the own change of c is %v", w)
	}
}

// TestReplaced looks for changes that need not be written.
func TestReplaced(t *testing.T) {
	l := newLayer(nil)
	l.add(1, commit{writes: []change{{key: []byte("a"), hash: 1}, {key: []byte("b"), hash: 2}}})
	l.add(2, commit{writes: []change{{key: []byte("a"), hash: 1}, {key: []byte("a"), hash: 1}}})
	for _, c := range []struct {
		commit, change int
		version        uint64
		want           bool
	}{{0, 0, 1, false}, {0, 0, 2, true}, {0, 1, 2, false}, {1, 0, 2, true}, {1, 1, 2, false}} {
		if got := l.replaced(&l.commits[c.commit].writes[c.change], c.version); got != c.want {
			t.Errorf("change %d of commit %d, written up to %d: replaced is %v", c.change, c.commit+1, c.version, got)
		}
	}
}
