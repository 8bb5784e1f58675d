package metadata

import (
	"context"
	"errors"
)

// Check looks for inconsistencies among all records, in one snapshot. It calls fn with each
// after it has read everything, so fn may call Repair. It needs about 200 bytes of memory
// for every inode while it runs.
//
// Errors: those of the KV; ErrNewer for a record of a newer version. A record that cannot
// be decoded is a problem, not an error.
func (s *Store) Check(ctx context.Context, fn func(Problem)) error {
	c := &checker{nodes: map[Ino]*checkNode{}, purged: map[Ino]bool{}}
	err := s.view(ctx, func(t *txn) error {
		c.t = t
		for _, pass := range []struct {
			kind byte
			read func(key, value []byte) error
		}{
			{kindInode, c.readInode},
			{kindPurge, c.readPurge},
			{kindDirent, c.readEntry},
			{kindLink, c.readLink},
			{kindXattr, c.readXattr},
			{kindMapping, c.readMapping},
			{kindKey, c.readKey},
			{kindPart, c.readPart},
			{kindDevice, c.readDevice},
			{kindBinding, c.readBinding},
			{kindExpiry, c.readExpiry},
		} {
			if err := c.scan(ctx, pass.kind, pass.read); err != nil {
				return err
			}
			if pass.kind == kindInode {
				c.checkPublish()
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

func (c *checker) readInode(key, value []byte) error {
	rec, err := decodeRecord(keyIno(key), value)
	if err == nil {
		c.nodes[rec.Ino] = &checkNode{rec: rec}
	}
	return err
}

// checkPublish checks that PublishIno exists. If not, the directory's entries are checked
// as if it did, so that Repair creates it before it handles them.
func (c *checker) checkPublish() {
	if n := c.nodes[PublishIno]; n == nil || !n.rec.isPublishDir() {
		c.report(Problem{Kind: MissingPublish, Ino: PublishIno})
		c.nodes[PublishIno] = &checkNode{rec: c.t.publishDir()}
	}
}

func (c *checker) readPurge(key, _ []byte) error {
	c.purged[keyIno(key)] = true
	return nil
}

func (c *checker) readEntry(key, value []byte) error {
	d, err := decodeDirent(value)
	if err != nil || d.ino == 0 {
		return err
	}
	return c.entry(linkPlace{dir: keyIno(key), at: Cookie(keyNumber(key, 1)), name: d.name}, d)
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
	_, err := c.t.kv.Get(c.t.key(kindLink, uint64(p.Ino), uint64(p.Parent), uint64(p.cookie)))
	if errors.Is(err, ErrNoKey) {
		p.Kind = MissingLink
		c.report(p)
		return nil
	}
	return err
}

func (c *checker) readLink(key, value []byte) error {
	name, err := decodeLink(value)
	if err != nil {
		return err
	}
	p := Problem{
		Ino: keyIno(key), Parent: Ino(keyNumber(key, 1)), Name: name, cookie: Cookie(keyNumber(key, 2)),
	}
	node := c.nodes[p.Ino]
	if node == nil {
		c.dangling(p.Ino)
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
}

func (c *checker) readXattr(key, value []byte) error {
	node := c.nodes[keyIno(key)]
	if node == nil {
		c.dangling(keyIno(key))
		return nil
	}
	node.xattrs++
	_, err := decodeXattr(value)
	return err
}

func (c *checker) readMapping(key, value []byte) error {
	node := c.nodes[keyIno(key)]
	if node == nil {
		c.dangling(keyIno(key))
		return nil
	}
	if node.maps == 0 {
		node.firstMap = keyNumber(key, 1)
	}
	node.maps++
	_, err := decodeMapping(keyNumber(key, 1), value)
	return err
}

func (c *checker) readKey(key, value []byte) error {
	h, err := decodeKeyHolder(value)
	if err != nil {
		return err
	}
	has, err := c.hasKey(h, string(key[1:]))
	if err != nil || has {
		return err
	}
	c.report(Problem{Kind: DanglingKey, Ino: h.ino, Key: string(key[1:])})
	return nil
}

// hasKey reports whether an inode, or a part of one, has a key that refers to it.
func (c *checker) hasKey(h keyHolder, key string) (bool, error) {
	node := c.nodes[h.ino]
	switch {
	case node == nil:
		return false, nil
	case h.part == "":
		has := node.rec.Key == key
		node.keyed = node.keyed || has
		return has, nil
	}
	has, err := c.t.part(h.ino, h.part)
	if errors.Is(err, ErrCorrupt) {
		return false, nil
	}
	return has == key, err
}

func (c *checker) readPart(key, value []byte) error {
	name, err := decodeLink(value)
	if err != nil {
		return err
	}
	h := keyHolder{keyIno(key), string(key[inoKeyLen:])}
	if node := c.nodes[h.ino]; node != nil {
		node.parts++
		found, err := c.t.keyHolder(name)
		if err == nil && found == h {
			return nil
		}
		if err != nil && !errors.Is(err, ErrNotExist) && !errors.Is(err, ErrCorrupt) {
			return err
		}
	}
	c.report(Problem{Kind: DanglingPart, Ino: h.ino, Key: name, Part: h.part})
	return nil
}

func (c *checker) readDevice(key, value []byte) error {
	d, err := decodeDevice(DeviceName(key[1:]), value)
	if err != nil {
		return err
	}
	node := c.nodes[d.Ino]
	if node == nil || !node.rec.IsDir() || node.rec.Device != d.Name {
		c.report(Problem{Kind: DanglingDevice, Ino: d.Ino, Device: d.Name})
		return nil
	}
	node.device = true
	return nil
}

func (c *checker) readBinding(key, value []byte) error {
	ino := keyIno(key)
	node := c.nodes[ino]
	if node == nil || !node.rec.hasBinding() {
		c.report(Problem{Kind: DanglingBinding, Ino: ino})
		return nil
	}
	node.bound = true
	_, err := decodeBinding(value)
	return err
}

func (c *checker) readExpiry(key, value []byte) error {
	at, ino, err := parseExpiry(key, value)
	if err != nil {
		return err
	}
	node := c.nodes[ino]
	if node == nil || node.rec.Expires != at {
		c.report(Problem{Kind: DanglingExpiry, Ino: ino, expires: at})
		return nil
	}
	node.expires = true
	return nil
}
