package fs

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
)

// TestRemoteNumbers: what a number means is what it was made of, and no two
// sets of numbers overlap.
func TestRemoteNumbers(t *testing.T) {
	var all remotes
	nodes := make([]*cluster.Node, 3)
	for i := range nodes {
		nodes[i] = new(cluster.Node)
		n, err := all.of(nodes[i], 1)
		must(t, err)
		for _, ino := range []metadata.Ino{1, metadata.FirstIno, remoteInos - 1} {
			number := n.number(ino)
			if !isRemote(number) || isReserved(number) || isView(number) || isKey(number) {
				t.Errorf("%#x is not only another node's", uint64(number))
			}
			p, err := all.find(number)
			must(t, err)
			if p.Node != nodes[i] || p.ino != ino || p.isTop() != (ino == metadata.RootIno) {
				t.Errorf("%#x leads to inode %d", uint64(number), p.ino)
			}
		}
		if again, err := all.of(nodes[i], 0); err != nil || again != n {
			t.Errorf("another one for the same node: %v", err)
		}
	}
	if _, err := all.find(remoteBit | 77<<remoteShift | 1); !errors.Is(err, cluster.ErrStale) {
		t.Errorf("an index that nobody has: %v", err)
	}
	for _, ino := range []metadata.Ino{metadata.RootIno, nodesIno, metadata.PublishIno, metadata.FirstIno, viewBit, viewBit | remoteBit, keyBit, keyBit | remoteBit} {
		if isRemote(ino) {
			t.Errorf("%#x is taken for another node's", uint64(ino))
		}
	}
	if !isRemoteKey(keyBit|remoteBit|5) || isRemoteKey(keyBit|5) || isRemoteKey(remoteBit|5) {
		t.Error("other nodes' keys are not told from ours")
	}
}

// TestRemoteAdopt: an owner can't give a number that means something else here.
func TestRemoteAdopt(t *testing.T) {
	var all remotes
	n, err := all.of(new(cluster.Node), 0)
	must(t, err)
	a := objects.Attr{Inode: metadata.Inode{Ino: 2000, Parent: 1024}}
	must(t, n.adopt(&a))
	if a.Ino != n.number(2000) || a.Parent != n.number(1024) || uint32(a.Gen) != n.gen {
		t.Errorf("adopted as %#x in %#x", uint64(a.Ino), uint64(a.Parent))
	}
	for _, ino := range []metadata.Ino{0, remoteInos, keyBit | 7, viewBit} {
		a = objects.Attr{Inode: metadata.Inode{Ino: ino, Parent: viewBit}}
		if err := n.adopt(&a); !errors.Is(err, cluster.ErrVersion) {
			t.Errorf("inode %#x of another node: %v", uint64(ino), err)
		}
	}
}

func TestMergeKeys(t *testing.T) {
	f := &filesystem{remoteKeys: newRemoteKeys()}
	own := func(names ...string) (entries []dirEntry) {
		for _, name := range names {
			entries = append(entries, dirEntry{name: name, ino: 1 | keyBit})
		}
		return entries
	}
	for _, c := range []struct {
		own, others, want []string
		limit             int
	}{
		{nil, nil, nil, 4},
		{[]string{"a", "c"}, nil, []string{"a", "c"}, 4},
		{nil, []string{"a", "c"}, []string{"a", "c"}, 4},
		{[]string{"b", "d"}, []string{"a", "c", "e"}, []string{"a", "b", "c", "d", "e"}, 5},
		{[]string{"b", "d"}, []string{"a", "c", "e"}, []string{"a", "b"}, 2},
		{[]string{"a", "b"}, []string{"a", "b", "c"}, []string{"a", "b", "c"}, 3},
	} {
		var got []string
		for _, e := range f.mergeKeys(own(c.own...), c.others, c.limit) {
			got = append(got, e.name)
			if isRemoteKey(e.ino) == slices.Contains(c.own, e.name) {
				t.Errorf("%s of %v and %v is taken for the other's", e.name, c.own, c.others)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v and %v, at most %d: %v, want %v", c.own, c.others, c.limit, got, c.want)
		}
	}
}

// TestRemoteKeyNumbers: a key keeps its number as long as the kernel knows it,
// and two keys of one hash have two.
func TestRemoteKeyNumbers(t *testing.T) {
	keys := newRemoteKeys()
	a := keys.enter("a")
	if again := keys.enter("a"); again != a || a != keys.number("a") {
		t.Errorf("numbers %#x and %#x", uint64(a), uint64(again))
	}
	keys.mu.Lock()
	keys.keys[keys.number("b")] = &remoteKey{key: "other", refs: 1}
	keys.mu.Unlock()
	b := keys.enter("b")
	if key, ok := keys.key(b); !ok || key != "b" || !isRemoteKey(b) {
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

// TestSharedPages: which inodes the kernel has pages of, by incarnation.
func TestSharedPages(t *testing.T) {
	s, all := newShared(), remotes{}
	n, err := all.of(new(cluster.Node), 0)
	must(t, err)
	other, err := all.of(new(cluster.Node), 0)
	must(t, err)
	ino := n.number(5000)
	for range 2 {
		s.mapped(ino)
	}
	s.mapped(2000)
	s.unmapped(ino)
	if !s.hasPages(ino) || !s.hasPages(2000) || s.hasPages(5000) {
		t.Error("pages of other inodes")
	}
	if got := s.pagesOf(n); !slices.Equal(got, []metadata.Ino{ino}) {
		t.Errorf("of one node there are pages of %v", got)
	}
	if got := s.pagesOf(other); got != nil {
		t.Errorf("of another node there are pages of %v", got)
	}
	s.unmapped(ino)
	if s.hasPages(ino) {
		t.Error("pages of a closed file")
	}
}

// TestSharedDrops: what comes while an inode is dropped is done once more, not
// at the same time.
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

// TestKeepFor: what other nodes may change is kept for a short time.
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
