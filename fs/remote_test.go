package fs

import (
	"hash/maphash"
	"slices"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/cluster"
)

// TestNumbers: the ranges of inode numbers don't overlap.
func TestNumbers(t *testing.T) {
	const other = 1 << 60 // belongs to another node
	for _, c := range []struct {
		ino                       metadata.Ino
		own, reserved, view, keys bool
	}{
		{metadata.RootIno, false, true, false, false},
		{nodesIno, false, true, false, false},
		{metadata.PublishIno, true, false, false, false},
		{metadata.FirstIno, true, false, false, false},
		{other | 1, false, false, false, false},
		{other | 77<<44 | 2000, false, false, false, false},
		{viewBit, false, true, true, false},
		{viewBit | other, false, true, true, false},
		{keyBit | 5, false, true, false, true},
		{keyBit | otherKeyBit | 5, false, true, false, true},
	} {
		if isOwn(c.ino) != c.own || isReserved(c.ino) != c.reserved || isView(c.ino) != c.view || isKey(c.ino) != c.keys {
			t.Errorf("%#x: own %t, reserved %t, of a view %t, a key %t", uint64(c.ino), isOwn(c.ino), isReserved(c.ino), isView(c.ino), isKey(c.ino))
		}
	}
	if !isOtherKey(keyBit|otherKeyBit|5) || isOtherKey(keyBit|5) || isOtherKey(other|5) {
		t.Error("other nodes' keys are not told from ours")
	}
}

// TestOtherKeyNumbers: a key keeps its number as long as the kernel knows it, and two keys
// with the same hash have different numbers.
func TestOtherKeyNumbers(t *testing.T) {
	keys := otherKeys{seed: maphash.MakeSeed(), keys: map[metadata.Ino]*otherKey{}}
	a := keys.enter("a")
	if again := keys.enter("a"); again != a || a != keys.number("a") {
		t.Errorf("numbers %#x and %#x", uint64(a), uint64(again))
	}
	keys.mu.Lock()
	keys.keys[keys.number("b")] = &otherKey{key: "other", refs: 1}
	keys.mu.Unlock()
	b := keys.enter("b")
	if key, ok := keys.key(b); !ok || key != "b" || !isOtherKey(b) {
		t.Errorf("%#x is %q", uint64(b), key)
	}
	keys.forget(a, 1)
	if key, ok := keys.key(a); !ok || key != "a" {
		t.Errorf("%q, %v after one of two references", key, ok)
	}
	keys.forget(a, 1)
	if _, ok := keys.key(a); ok {
		t.Error("a key that the kernel has forgotten stays")
	}
}

// TestSharedPages: for which inodes the kernel has pages.
func TestSharedPages(t *testing.T) {
	s := newShared()
	const ino = metadata.Ino(1<<60 | 5000)
	for range 2 {
		s.mapped(ino)
	}
	s.mapped(2000)
	s.unmapped(ino)
	if !s.hasPages(ino) || !s.hasPages(2000) || s.hasPages(5000) {
		t.Error("pages of other inodes")
	}
	if got := s.pagesWhere(cluster.OfAnotherNode); !slices.Equal(got, []metadata.Ino{ino}) {
		t.Errorf("of other nodes there are pages of %v", got)
	}
	s.unmapped(ino)
	if s.hasPages(ino) {
		t.Error("pages of a closed file")
	}
}

// TestSharedDrops: a drop requested during a drop of the same inode runs once more, not
// concurrently.
func TestSharedDrops(t *testing.T) {
	s := newShared()
	began, goOn := make(chan struct{}), make(chan struct{})
	calls := 0
	fn := func() {
		calls++
		began <- struct{}{}
		<-goOn
	}
	s.drop(5, fn)
	<-began
	s.drop(5, fn)
	s.drop(5, fn)
	goOn <- struct{}{}
	<-began
	goOn <- struct{}{}
	s.close()
	s.drop(5, fn)
	if calls != 2 {
		t.Errorf("dropped %d times, want 2", calls)
	}
}

// TestKeepFor: data that other nodes may change is cached for a short time.
func TestKeepFor(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want time.Duration
	}{
		{Options{CacheTimeout: time.Hour}, time.Hour},
		{Options{CacheTimeout: -1}, 0},
		{Options{CacheTimeout: time.Hour, Cluster: new(cluster.Cluster)}, keepShared},
		{Options{CacheTimeout: time.Millisecond, Cluster: new(cluster.Cluster)}, time.Millisecond},
		{Options{CacheTimeout: -1, Cluster: new(cluster.Cluster)}, 0},
	} {
		if got := keepFor(&c.o); got != c.want {
			t.Errorf("%v with a cluster %t: %v, want %v", c.o.CacheTimeout, c.o.Cluster != nil, got, c.want)
		}
	}
}
