package metadata

import (
	"context"
	"errors"
	"maps"
	"slices"
)

// Check looks for inconsistencies among all records, in one snapshot. It calls fn with each
// after it has read everything, so fn may call Repair. It needs about 200 bytes of memory
// for every inode while it runs.
//
// Errors: those of the KV; ErrNewer for a record of a newer version. A record that cannot
// be decoded is a problem, not an error.
func (s *Store) Check(ctx context.Context, fn func(Problem)) error {
	c := &checker{s: s, nodes: map[Ino]*checkNode{}, purged: map[Ino]bool{}}
	err := s.view(ctx, func(t *txn) error {
		c.t = t
		for _, pass := range []func(context.Context) error{
			c.readInodes, c.readPurges, c.readEntries, c.readLinks, c.readXattrs,
			c.readMappings, c.readKeys, c.readDevices, c.readBindings, c.readExpiries,
		} {
			if err := pass(ctx); err != nil {
				return err
			}
		}
		c.examine()
		return nil
	})
	if err != nil {
		return err
	}
	for _, p := range c.problems {
		fn(p)
	}
	return nil
}

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
	keyed    bool // the key refers to the inode
	device   bool // a device refers to the directory
	bound    bool // a binding exists
	expires  bool // an expiry record exists
}

// checker is the state of a running Check.
type checker struct {
	s        *Store
	t        *txn
	nodes    map[Ino]*checkNode
	purged   map[Ino]bool
	problems []Problem
}

func (c *checker) report(p Problem) { c.problems = append(c.problems, p) }

// scan reads all records of a kind; a record that decode cannot read is a problem.
func (c *checker) scan(ctx context.Context, kind byte, decode func(key, value []byte) error) error {
	n := 0
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
	case kindInode, kindLink, kindXattr, kindMapping, kindDirent, kindBinding:
		return keyIno(key)
	case kindExpiry:
		return expiryIno(key)
	}
	return 0
}

func (c *checker) readInodes(ctx context.Context) error {
	err := c.scan(ctx, kindInode, func(key, value []byte) error {
		rec, err := decodeRecord(keyIno(key), value)
		if err == nil {
			c.nodes[rec.Ino] = &checkNode{rec: rec}
		}
		return err
	})
	if n := c.nodes[PublishIno]; n == nil || !n.rec.isPublishDir() {
		// This problem is reported first, and the directory's entries are checked as if it
		// existed, so that Repair creates it before it handles them.
		c.report(Problem{Kind: MissingPublish, Ino: PublishIno})
		c.nodes[PublishIno] = &checkNode{rec: c.t.publishDir()}
	}
	return err
}

func (c *checker) readPurges(ctx context.Context) error {
	return c.scan(ctx, kindPurge, func(key, _ []byte) error {
		c.purged[keyIno(key)] = true
		return nil
	})
}

func (c *checker) readEntries(ctx context.Context) error {
	return c.scan(ctx, kindDirent, func(key, value []byte) error {
		d, err := decodeDirent(value)
		if err != nil || d.ino == 0 {
			return err
		}
		place := linkPlace{dir: keyIno(key), at: Cookie(keySecond(key)), name: d.name}
		return c.entry(place, d)
	})
}

// entry checks one entry.
func (c *checker) entry(at linkPlace, d dirent) error {
	p := Problem{Ino: d.ino, Parent: at.dir, Name: at.name, cookie: at.at}
	dir, node := c.nodes[at.dir], c.nodes[d.ino]
	if dir == nil || !dir.rec.IsDir() || node == nil {
		p.Kind = DanglingEntry
		c.report(p)
		return nil
	}
	rec := &node.rec
	primary := rec.isPrimary(at.dir, at.name) && !isTop(d.ino)
	if rec.IsDir() && (isTop(d.ino) || node.links > 0) {
		p.Kind = SecondEntry
		if primary { // then the entry found before is the surplus one
			p.Parent, p.Name, p.cookie = node.place.dir, node.place.name, node.place.at
			node.primary, node.place = true, at
		}
		c.report(p)
		dir.entries++ // as long as the entry exists
		dir.subdirs++
		return nil
	}
	if d.mode != rec.Mode.Type() {
		p.Kind = WrongEntryType
		c.report(p)
	}
	dir.entries++
	if rec.IsDir() {
		dir.subdirs++
	}
	node.links++
	node.primary = node.primary || primary
	if primary || node.links == 1 {
		node.place = at
	}
	if primary || rec.IsDir() {
		return nil
	}
	return c.knownLink(p)
}

// knownLink checks that an inode has a record of a further link.
func (c *checker) knownLink(p Problem) error {
	_, err := c.t.kv.Get(c.t.key3(kindLink, uint64(p.Ino), uint64(p.Parent), uint64(p.cookie)))
	if errors.Is(err, ErrNoKey) {
		p.Kind = MissingLink
		c.report(p)
		return nil
	}
	return err
}

func (c *checker) readLinks(ctx context.Context) error {
	var last Ino
	return c.scan(ctx, kindLink, func(key, value []byte) error {
		name, err := decodeLink(value)
		if err != nil {
			return err
		}
		p := Problem{
			Ino: keyIno(key), Parent: Ino(keySecond(key)), Name: name, cookie: Cookie(keyThird(key)),
		}
		node := c.nodes[p.Ino]
		if node == nil {
			c.dangling(p.Ino, &last)
			return nil
		}
		d, err := c.t.direntAt(p.Parent, p.cookie)
		if err != nil {
			return err
		}
		if d.ino != p.Ino || d.name != name || node.rec.isPrimary(p.Parent, name) {
			p.Kind = DanglingLink
			c.report(p)
		}
		return nil
	})
}

// direntAt reads the entry with a cookie; it returns the zero dirent if there is none.
func (t *txn) direntAt(dir Ino, at Cookie) (dirent, error) {
	data, err := t.kv.Get(t.key2(kindDirent, uint64(dir), uint64(at)))
	if errors.Is(err, ErrNoKey) {
		return dirent{}, nil
	}
	if err != nil {
		return dirent{}, err
	}
	return decodeDirent(data)
}

// dangling reports, once per inode, records that outlived their inode.
func (c *checker) dangling(ino Ino, last *Ino) {
	if ino != *last && !c.purged[ino] {
		c.report(Problem{Kind: DanglingRecords, Ino: ino})
	}
	*last = ino
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
