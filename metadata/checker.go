package metadata

import (
	"context"
	"errors"
	"maps"
	"slices"
)

// checkNode holds an inode's record, and what was found about the inode elsewhere.
type checkNode struct {
	rec record

	entries  uint64 // in the directory
	subdirs  uint64 // in the directory
	links    uint64 // entries that refer to the inode
	primary  bool   // the primary link is among them
	place    linkPlace
	xattrs   uint64
	maps     uint64
	firstMap uint64
	parts    uint64 // parts that have keys
	keyed    bool   // the key refers to the inode
	device   bool   // a device refers to the directory
	bound    bool   // a binding exists
	expires  bool   // an expiry record exists
}

// checker is the state of a running Check.
type checker struct {
	t        *txn
	nodes    map[Ino]*checkNode
	purged   map[Ino]bool
	last     Ino // the inode of the last record without one, of the kind that is read
	problems []Problem
}

func (c *checker) report(p Problem) { c.problems = append(c.problems, p) }

// scan reads all records of a kind; a record that decode cannot read is a problem.
func (c *checker) scan(ctx context.Context, kind byte, decode func(key, value []byte) error) error {
	n := 0
	c.last = 0
	return c.t.kv.Scan([]byte{kind}, nil, func(key, value []byte) (bool, error) {
		if n++; n%1024 == 0 && ctx.Err() != nil {
			return false, ctx.Err()
		}
		err := decode(key, value)
		if errors.Is(err, ErrCorrupt) {
			c.report(Problem{Kind: CorruptRecord, Ino: inoOfKey(key), Key: string(key)})
			err = nil
		}
		return true, err
	})
}

// inoOfKey returns the inode that a key is about; 0 if it is about none.
func inoOfKey(key []byte) Ino {
	switch key[0] {
	case kindInode, kindLink, kindXattr, kindMapping, kindDirent, kindBinding, kindPart:
		return keyIno(key)
	case kindExpiry:
		return expiryIno(key)
	}
	return 0
}

// dangling reports, once per inode, records of a kind that outlived their inode.
func (c *checker) dangling(ino Ino) {
	if ino != c.last && !c.purged[ino] {
		c.report(Problem{Kind: DanglingRecords, Ino: ino})
	}
	c.last = ino
}

// sorted returns the inodes by number, so that the order of problems does not change from
// run to run.
func (c *checker) sorted() []*checkNode {
	nodes := make([]*checkNode, 0, len(c.nodes))
	for _, ino := range slices.Sorted(maps.Keys(c.nodes)) {
		nodes = append(nodes, c.nodes[ino])
	}
	return nodes
}

// examine compares the inodes' records with what was found elsewhere.
func (c *checker) examine() {
	for _, n := range c.sorted() {
		c.checkLinks(n)
		c.checkCounts(n)
		if n.rec.Expires != (Timespec{}) && !n.expires {
			c.report(Problem{Kind: MissingExpiry, Ino: n.rec.Ino})
		}
		if n.rec.Taken && n.rec.Parent != PublishIno {
			c.report(Problem{Kind: WrongTaken, Ino: n.rec.Ino})
		}
		if n.rec.Key != "" && !n.keyed {
			c.report(Problem{Kind: MissingKey, Ino: n.rec.Ino, Key: n.rec.Key})
		}
		if n.rec.hasBinding() && !n.bound {
			c.report(Problem{Kind: MissingBinding, Ino: n.rec.Ino})
		}
		if n.primary && n.rec.Parent == RootIno && !n.device {
			c.report(Problem{
				Kind: MissingDevice, Ino: n.rec.Ino, Parent: RootIno, Name: n.rec.Name,
				Device: n.rec.Device,
			})
		}
	}
	c.checkCycles()
}

func (c *checker) checkLinks(n *checkNode) {
	rec := &n.rec
	p := Problem{Ino: rec.Ino, Parent: rec.Parent, Name: rec.Name}
	if !isTop(rec.Ino) {
		switch {
		case n.links == 0:
			p.Kind = Orphan
			c.report(p)
		case !n.primary:
			p.Kind, p.Parent, p.Name, p.cookie = WrongPrimary, n.place.dir, n.place.name, n.place.at
			c.report(p)
		}
	}
	want := n.links
	if rec.IsDir() {
		want = 2 + n.subdirs
		if rec.Size != n.entries {
			c.report(Problem{Kind: WrongSize, Ino: rec.Ino, Want: n.entries, Got: rec.Size})
		}
	}
	if uint64(rec.Nlink) != want && want > 0 {
		c.report(Problem{Kind: WrongNlink, Ino: rec.Ino, Want: want, Got: uint64(rec.Nlink)})
	}
}

func (c *checker) checkCounts(n *checkNode) {
	rec := &n.rec
	if uint64(rec.xattrs) != n.xattrs {
		c.report(Problem{Kind: WrongCount, Ino: rec.Ino, Want: n.xattrs, Got: uint64(rec.xattrs)})
	}
	if uint64(rec.Parts) != n.parts {
		c.report(Problem{Kind: WrongCount, Ino: rec.Ino, Want: n.parts, Got: uint64(rec.Parts)})
	}
	if rec.maps != n.maps || n.maps > 0 && rec.firstMap != n.firstMap {
		c.report(Problem{Kind: WrongCount, Ino: rec.Ino, Want: n.maps, Got: rec.maps})
	}
}

// checkCycles finds directories that are their own ancestors, and reports one of each
// circle.
func (c *checker) checkCycles() {
	const onThisWay, done = 1, 2
	state := map[Ino]int{}
	for _, n := range c.sorted() {
		var way []Ino
		at := n
		for at != nil && at.rec.IsDir() && at.links > 0 && state[at.rec.Ino] == 0 {
			state[at.rec.Ino] = onThisWay
			way = append(way, at.rec.Ino)
			at = c.nodes[at.place.dir]
		}
		if at != nil && state[at.rec.Ino] == onThisWay {
			circle := way[slices.Index(way, at.rec.Ino):]
			worst := c.nodes[slices.Min(circle)]
			c.report(Problem{
				Kind: Circle, Ino: worst.rec.Ino,
				Parent: worst.place.dir, Name: worst.place.name, cookie: worst.place.at,
			})
		}
		for _, ino := range way {
			state[ino] = done
		}
	}
}
