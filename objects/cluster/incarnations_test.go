package cluster

import (
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// TestIncarnationNumbers resolves numbers to what they were composed of.
func TestIncarnationNumbers(t *testing.T) {
	var all incarnations
	nodes := make([]*Node, 3)
	for i := range nodes {
		nodes[i] = new(Node)
		n, err := all.of(nodes[i])
		if err != nil {
			t.Fatal(err)
		}
		for _, ino := range []objects.Ino{metadata.RootIno, metadata.FirstIno, MaxInos - 1} {
			number := n.number(ino)
			if !OfAnotherNode(number) {
				t.Errorf("%#x is not another node's", uint64(number))
			}
			p, err := all.find(number)
			if err != nil || p.Node != nodes[i] || p.ino != ino || p.isTop() != (ino == metadata.RootIno) {
				t.Errorf("%#x leads to inode %d: %v", uint64(number), p.ino, err)
			}
		}
		if again, err := all.of(nodes[i]); err != nil || again != n {
			t.Errorf("another one for the same node: %v", err)
		}
	}
	if _, err := all.find(otherBit | 77<<indexShift | 1); !errors.Is(err, ErrStale) {
		t.Errorf("an index that nobody has: %v", err)
	}
	for _, ino := range []objects.Ino{metadata.RootIno, metadata.PublishIno, metadata.FirstIno, otherBit - 1, otherEnd, otherEnd | otherBit} {
		if OfAnotherNode(ino) {
			t.Errorf("%#x is taken for another node's", uint64(ino))
		}
	}
}

// TestAdopt refuses inode numbers of an owner that would have another meaning here.
func TestAdopt(t *testing.T) {
	var all incarnations
	n, err := all.of(new(Node))
	if err != nil {
		t.Fatal(err)
	}
	a, err := n.adopt(objects.Attr{Inode: metadata.Inode{Ino: 2000, Parent: 1024}}, nil)
	if err != nil || a.Ino != n.number(2000) || a.Parent != n.number(1024) || a.Gen != n.gen || a.Keep != keepOther || a.KeepName != keepOther {
		t.Errorf("adopted as %+v, %v", a, err)
	}
	for _, ino := range []objects.Ino{0, MaxInos, otherBit | 7, otherEnd} {
		if a, err := n.adopt(objects.Attr{Inode: metadata.Inode{Ino: ino, Parent: otherEnd}}, nil); !errors.Is(err, ErrVersion) {
			t.Errorf("inode %#x of another node: %+v, %v", uint64(ino), a, err)
		}
	}
}
