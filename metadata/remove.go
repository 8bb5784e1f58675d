package metadata

// removeInode removes an inode's record and all records that depend on it. If they are too
// many for one transaction, the rest is announced for purge.
func (t *txn) removeInode(rec *record) {
	ino := uint64(rec.Ino)
	t.del(t.key(kindInode, ino))
	if rec.Key != "" {
		t.del(t.keyString(kindKey, rec.Key))
	}
	t.dropParts(rec)
	if rec.hasBinding() {
		t.del(t.key(kindBinding, ino))
	}
	t.deleteExpiry(rec.Ino, rec.Expires)
	leftover := t.s.leftover(rec)
	held := (rec.xattrs > 0 || leftover || t.s.keepNameless) && t.isHeld(rec.Ino)
	t.discharge(rec, held)
	switch {
	case held:
		t.hold(rec)
	case leftover:
		t.set(t.key(kindPurge, ino), encodeNumber(t.room(2), 1))
	}
	if leftover {
		return
	}
	if rec.xattrs > 0 && !held {
		_, err := t.deleteUnder(t.key(kindXattr, ino), 0)
		t.fail(err)
	}
	switch rec.maps {
	case 0:
	case 1:
		t.del(t.key(kindMapping, ino, rec.firstMap))
	default:
		_, err := t.deleteUnder(t.key(kindMapping, ino), 0)
		t.fail(err)
	}
}

// removeDir removes the inode of an empty directory.
func (t *txn) removeDir(rec *record) {
	rec.Nlink = 0
	rec.Ctime = t.now
	t.removeInode(rec)
}
