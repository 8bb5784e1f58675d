package metadata

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// damaged is a sound tree, for tests to damage:
//
//	sim0/dir/sub/deep    directories
//	sim0/dir/file        a file with a further link sim0/link, two xattrs, a
//	                     key and two mappings
//	sim1/other           a file
//	publish/pub          a file of sim1 that ends
type damaged struct {
	s                         *Store
	dev, dir, sub, deep       Inode
	file, other, device1, pub Inode
}

// pubEnds returns the time at which publish/pub ends.
func pubEnds() Timespec { return Timespec{Sec: 1 << 40, Nsec: 5} }

func newDamaged(t *testing.T) *damaged {
	t.Helper()
	s := newMapStore(t)
	d := &damaged{s: s}
	ctx := t.Context()
	var errs []error
	try := func(in Inode, err error) Inode {
		errs = append(errs, err)
		return in
	}
	d.dev = try(s.Lookup(ctx, RootIno, "sim0"))
	d.device1 = try(s.Lookup(ctx, RootIno, "sim1"))
	d.dir = try(s.Create(ctx, d.dev.Ino, "dir", Node{Mode: TypeDir | 0o755}))
	d.sub = try(s.Create(ctx, d.dir.Ino, "sub", Node{Mode: TypeDir | 0o755}))
	d.deep = try(s.Create(ctx, d.sub.Ino, "deep", Node{Mode: TypeDir | 0o755}))
	d.file = try(s.Create(ctx, d.dir.Ino, "file", Node{Mode: TypeRegular | 0o644}))
	d.other = try(s.Create(ctx, d.device1.Ino, "other", Node{Mode: TypeRegular | 0o644}))
	try(s.Link(ctx, d.file.Ino, d.dev.Ino, "link"))
	d.pub = try(s.Create(ctx, d.device1.Ino, "pub", Node{Mode: TypeRegular | 0o600}))
	errs = append(errs, s.Expire(ctx, d.pub.Ino, pubEnds()))
	d.pub = try(s.Publish(ctx, d.device1.Ino, "pub", "pub"))
	try(s.SaveContent(ctx, d.file.Ino, nil, []Mapping{{Len: 5, Device: "sim0"}, {FileOff: 9, Len: 5}}))
	errs = append(errs, s.SetXattr(ctx, d.file.Ino, "user.a", []byte("1"), 0),
		s.SetXattr(ctx, d.file.Ino, "user.b", []byte("2"), 0), s.BindKey(ctx, d.file.Ino, "key"))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if found := problems(t, s); len(found) > 0 {
		t.Fatalf("the sound tree has problems: %v", found)
	}
	return d
}

// edit changes one inode's record, bypassing all rules.
func (d *damaged) edit(t *txn, ino Ino, fn func(*record)) error {
	rec, err := t.inode(ino)
	if err != nil {
		return err
	}
	fn(&rec)
	t.putInode(&rec)
	return nil
}

// dropEntry deletes an entry and nothing else.
func (d *damaged) dropEntry(t *txn, dir Ino, name string) error {
	sl, err := t.findDirent(dir, name)
	if err != nil || !sl.found {
		return errors.Join(err, ErrNotExist)
	}
	t.removeDirent(dir, sl)
	return nil
}

// forgeEntry adds an entry and nothing else.
func (d *damaged) forgeEntry(t *txn, dir Ino, name string, in Inode) error {
	sl, err := t.findDirent(dir, name)
	if err != nil {
		return err
	}
	t.addDirent(dir, name, sl, &record{Inode: in})
	return nil
}

// damage is one way to break the tree, with what Check has to find.
type damage struct {
	name string
	do   func(d *damaged, t *txn) error
	want string
}

func damages() []damage {
	return slices.Concat(entryDamages(), inodeDamages(), publishDamages(), expiryDamages(), partDamages())
}

func publishDamages() []damage {
	const missing = "publish/ is missing; wrong directory size"
	return []damage{
		{"missing publish", func(_ *damaged, t *txn) error {
			return t.kv.Delete(t.key(kindInode, uint64(PublishIno)))
		}, missing},
		{"corrupt publish", func(_ *damaged, t *txn) error {
			return t.kv.Set(t.key(kindInode, uint64(PublishIno)), []byte{1, 2, 3})
		}, "corrupt record; " + missing},
		{"publish is a file", func(d *damaged, t *txn) error {
			return d.edit(t, PublishIno, func(r *record) { r.Mode = TypeRegular })
		}, missing},
		{"publish is a device's", func(d *damaged, t *txn) error {
			return d.edit(t, PublishIno, func(r *record) { r.Device = "sim0" })
		}, missing},
		{"publish has an entry", func(d *damaged, t *txn) error {
			return d.forgeEntry(t, RootIno, publishName, Inode{Ino: PublishIno, Mode: TypeDir})
		}, "directory with a second entry; wrong directory size; wrong link count"},
		{"unpublished", func(d *damaged, t *txn) error {
			return d.dropEntry(t, PublishIno, "pub")
		}, "inode without entry; wrong directory size"},
		{"publish size", func(d *damaged, t *txn) error {
			return d.edit(t, PublishIno, func(r *record) { r.Size = 7 })
		}, "wrong directory size"},
		{"received elsewhere", func(d *damaged, t *txn) error {
			return d.edit(t, d.other.Ino, func(r *record) { r.Taken = true })
		}, "marked as received, outside publish/"},
	}
}

func partDamages() []damage {
	part := PartKey{"a", "k"}
	bind := func(d *damaged, t *txn) error {
		t.putPart(d.file.Ino, part)
		return d.edit(t, d.file.Ino, func(r *record) { r.Parts = 1 })
	}
	return []damage{
		{"part without key", func(d *damaged, t *txn) error {
			return errors.Join(bind(d, t), t.kv.Delete(t.keyString(kindKey, part.Key)))
		}, "part of a file without key"},
		{"part without inode", func(d *damaged, t *txn) error {
			return t.kv.Set(t.partKey(1<<40, part.Part), encodeLink(nil, part.Key))
		}, "part of a file without key"},
		{"key without part", func(d *damaged, t *txn) error {
			return errors.Join(bind(d, t), t.kv.Delete(t.partKey(d.file.Ino, part.Part)))
		}, "key without inode; wrong count of attributes, mappings or parts"},
		{"key of another part", func(d *damaged, t *txn) error {
			t.putKey(part.Key, d.dir.Ino)
			return errors.Join(d.edit(t, d.file.Ino, func(r *record) { r.Parts = 1 }), t.kv.Set(t.partKey(d.file.Ino, part.Part), encodeLink(nil, part.Key)))
		}, "key without inode; part of a file without key"},
	}
}

func expiryDamages() []damage {
	set := func(t *txn, at Timespec, ino Ino, value ...byte) error {
		return t.kv.Set(t.expiryKey(at, ino), value)
	}
	return []damage{
		{"dangling expiry", func(d *damaged, t *txn) error {
			return errors.Join(set(t, Timespec{Sec: 5}, d.other.Ino, 1, 1), set(t, pubEnds(), 999_999, 1, 1),
				set(t, Timespec{Sec: 1 << 40, Nsec: 6}, d.pub.Ino, 1, 1))
		}, strings.Repeat("; expiry of an inode that does not expire then", 3)[2:]},
		{"missing expiry", func(d *damaged, t *txn) error {
			return t.kv.Delete(t.expiryKey(pubEnds(), d.pub.Ino))
		}, "missing expiry"},
		{"expiry of another time", func(d *damaged, t *txn) error {
			return d.edit(t, d.pub.Ino, func(r *record) { r.Expires.Sec++ })
		}, "expiry of an inode that does not expire then; missing expiry"},
		{"corrupt expiry", func(d *damaged, t *txn) error {
			return errors.Join(set(t, pubEnds(), d.pub.Ino, 1), set(t, Timespec{}, d.other.Ino, 1, 1),
				set(t, Timespec{Nsec: 1e9}, d.other.Ino, 1, 1), t.kv.Set([]byte{kindExpiry, 1, 2}, []byte{1, 1}))
		}, "corrupt record; corrupt record; corrupt record; corrupt record; missing expiry"},
	}
}

func entryDamages() []damage {
	return []damage{
		{"corrupt inode", func(d *damaged, t *txn) error {
			return t.kv.Set(t.key(kindInode, uint64(d.other.Ino)), []byte{1, 2, 3})
		}, "corrupt record; entry without inode or directory; wrong directory size"},
		{"corrupt entry", func(d *damaged, t *txn) error {
			sl, err := t.findDirent(d.device1.Ino, "other")
			return errors.Join(err, t.kv.Set(t.key(kindDirent, uint64(d.device1.Ino), uint64(sl.cookie)), []byte{1}))
		}, "corrupt record; inode without entry; wrong directory size"},
		{"corrupt mapping", func(d *damaged, t *txn) error {
			return t.kv.Set(t.key(kindMapping, uint64(d.file.Ino), 9), []byte{1, 77})
		}, "corrupt record"},
		{"missing inode", func(d *damaged, t *txn) error {
			return t.kv.Delete(t.key(kindInode, uint64(d.other.Ino)))
		}, "entry without inode or directory; wrong directory size"},
		{"missing directory", func(d *damaged, t *txn) error {
			return t.kv.Delete(t.key(kindInode, uint64(d.sub.Ino)))
		}, "entry without inode or directory; entry without inode or directory; " +
			"inode without entry; wrong directory size; wrong link count"},
		{"entry type", func(d *damaged, t *txn) error {
			sl, err := t.findDirent(d.device1.Ino, "other")
			t.setDirent(d.device1.Ino, sl, &record{Inode: Inode{Ino: d.other.Ino, Mode: TypeSymlink}})
			return err
		}, "entry of the wrong type"},
		{"directory linked twice", func(d *damaged, t *txn) error {
			return d.forgeEntry(t, d.device1.Ino, "twice", d.deep)
		}, "directory with a second entry; wrong directory size; wrong link count"},
		{"root linked", func(d *damaged, t *txn) error {
			return d.forgeEntry(t, d.deep.Ino, "root", Inode{Ino: RootIno, Mode: TypeDir})
		}, "directory with a second entry; wrong directory size; wrong link count"},
		{"orphan", func(d *damaged, t *txn) error {
			return d.dropEntry(t, d.device1.Ino, "other")
		}, "inode without entry; wrong directory size"},
		{"orphaned directory", func(d *damaged, t *txn) error {
			return d.dropEntry(t, d.dir.Ino, "sub")
		}, "inode without entry; wrong directory size; wrong link count"},
		{"orphan whose place is taken", func(d *damaged, t *txn) error {
			return d.edit(t, d.other.Ino, func(r *record) { r.Ino += 100 })
		}, "inode without entry"},
		{"circle", func(d *damaged, t *txn) error {
			return errors.Join(d.dropEntry(t, d.dir.Ino, "sub"), d.forgeEntry(t, d.deep.Ino, "sub", d.sub),
				d.edit(t, d.sub.Ino, func(r *record) { r.Parent = d.deep.Ino }))
		}, "directory inside itself; wrong directory size; wrong directory size; " +
			"wrong link count; wrong link count"},
		{"own parent", func(d *damaged, t *txn) error {
			return errors.Join(d.dropEntry(t, d.sub.Ino, "deep"), d.forgeEntry(t, d.deep.Ino, "deep", d.deep),
				d.edit(t, d.deep.Ino, func(r *record) { r.Parent = d.deep.Ino }))
		}, "directory inside itself; wrong directory size; wrong directory size; " +
			"wrong link count; wrong link count"},
	}
}

func inodeDamages() []damage {
	return []damage{
		{"wrong primary", func(d *damaged, t *txn) error {
			return d.edit(t, d.other.Ino, func(r *record) { r.Name = "elsewhere" })
		}, "missing link; wrong primary link"},
		{"missing link", func(d *damaged, t *txn) error {
			_, err := t.deleteUnder(t.key(kindLink, uint64(d.file.Ino)), 0)
			return err
		}, "missing link"},
		{"dangling link", func(d *damaged, t *txn) error {
			t.putLink(d.other.Ino, d.dev.Ino, 1<<20, "nowhere")
			return nil
		}, "link without entry"},
		{"link count", func(d *damaged, t *txn) error {
			return d.edit(t, d.file.Ino, func(r *record) { r.Nlink = 9 })
		}, "wrong link count"},
		{"directory link count", func(d *damaged, t *txn) error {
			return d.edit(t, d.dir.Ino, func(r *record) { r.Nlink = 2 })
		}, "wrong link count"},
		{"directory size", func(d *damaged, t *txn) error {
			return d.edit(t, d.dir.Ino, func(r *record) { r.Size = 0 })
		}, "wrong directory size"},
		{"counts", func(d *damaged, t *txn) error {
			return d.edit(t, d.file.Ino, func(r *record) { r.xattrs, r.maps, r.firstMap = 1, 1, 9 })
		}, "wrong count of attributes, mappings or parts; wrong count of attributes, mappings or parts"},
		{"dangling key", func(d *damaged, t *txn) error {
			return t.kv.Set(t.keyString(kindKey, "gone"), encodeNumber(nil, 999_999))
		}, "key without inode"},
		{"missing key", func(d *damaged, t *txn) error {
			return t.kv.Delete(t.keyString(kindKey, "key"))
		}, "missing key"},
		{"two carry one key", func(d *damaged, t *txn) error {
			return d.edit(t, d.other.Ino, func(r *record) { r.Key = "key" })
		}, "missing key"},
		{"dangling records", func(d *damaged, t *txn) error {
			t.putXattr(888_888, "user.x", nil)
			t.putMapping(999_999, &Mapping{Len: 1})
			t.putLink(777_777, d.dev.Ino, 1<<20, "nowhere")
			return nil
		}, strings.Repeat("; attributes, mappings or links without inode", 3)[2:]},
		{"dangling device", func(d *damaged, t *txn) error {
			t.putDevice(&DeviceRecord{Name: "gone", Ino: 999_999})
			return nil
		}, "device without directory"},
		{"missing device", func(d *damaged, t *txn) error {
			return t.kv.Delete(t.keyString(kindDevice, "sim1"))
		}, "directory without device"},
		{"dangling binding", func(d *damaged, t *txn) error {
			return errors.Join(t.kv.Set(t.key(kindBinding, uint64(d.file.Ino)), []byte{bindingVersion}),
				t.kv.Set(t.key(kindBinding, 999_999), []byte{bindingVersion}))
		}, strings.Repeat("; binding of an inode that is not bound", 2)[2:]},
		{"missing binding", func(d *damaged, t *txn) error {
			return d.edit(t, d.other.Ino, func(r *record) { r.Bound = BoundLive })
		}, "bound inode without binding"},
	}
}
