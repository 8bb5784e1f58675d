package metadata

import (
	"context"
	"slices"
)

func (c *checker) readXattrs(ctx context.Context) error {
	var last Ino
	return c.scan(ctx, kindXattr, func(key, value []byte) error {
		node := c.nodes[keyIno(key)]
		if node == nil {
			c.dangling(keyIno(key), &last)
			return nil
		}
		node.xattrs++
		_, err := decodeXattr(value)
		return err
	})
}

func (c *checker) readMappings(ctx context.Context) error {
	var last Ino
	return c.scan(ctx, kindMapping, func(key, value []byte) error {
		node := c.nodes[keyIno(key)]
		if node == nil {
			c.dangling(keyIno(key), &last)
			return nil
		}
		if node.maps == 0 {
			node.firstMap = keySecond(key)
		}
		node.maps++
		_, err := decodeMapping(keySecond(key), value)
		return err
	})
}

func (c *checker) readKeys(ctx context.Context) error {
	return c.scan(ctx, kindKey, func(key, value []byte) error {
		ino, err := decodeNumber("key", value)
		if err != nil {
			return err
		}
		node := c.nodes[Ino(ino)]
		if name := string(key[1:]); node == nil || node.rec.Key != name {
			c.report(Problem{Kind: DanglingKey, Ino: Ino(ino), Key: name})
			return nil
		}
		node.keyed = true
		return nil
	})
}

func (c *checker) readDevices(ctx context.Context) error {
	return c.scan(ctx, kindDevice, func(key, value []byte) error {
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
	})
}

func (c *checker) readBindings(ctx context.Context) error {
	return c.scan(ctx, kindBinding, func(key, value []byte) error {
		ino := keyIno(key)
		node := c.nodes[ino]
		if node == nil || node.rec.Bound != BoundLive {
			c.report(Problem{Kind: DanglingBinding, Ino: ino})
			return nil
		}
		node.bound = true
		_, err := decodeBinding(value)
		return err
	})
}

func (c *checker) readExpiries(ctx context.Context) error {
	return c.scan(ctx, kindExpiry, func(key, value []byte) error {
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
	})
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
		if n.rec.Bound == BoundLive && !n.bound {
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
