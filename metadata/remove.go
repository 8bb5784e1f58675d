package metadata

// removeInode removes an inode's record and all records that depend on it. If they are too
// many for one transaction, the rest is announced for purge.
func (t *txn) removeInode(rec *record) error {
	if err := t.kv.Delete(t.key(kindInode, uint64(rec.Ino))); err != nil {
		return err
	}
	if rec.Key != "" {
		if err := t.kv.Delete(t.keyString(kindKey, rec.Key)); err != nil {
			return err
		}
	}
	if rec.Bound == BoundLive {
		if err := t.kv.Delete(t.key(kindBinding, uint64(rec.Ino))); err != nil {
			return err
		}
	}
	if err := t.deleteExpiry(rec.Ino, rec.Expires); err != nil {
		return err
	}
	leftover := t.s.leftover(rec)
	held := (rec.xattrs > 0 || leftover) && t.isHeld(rec.Ino)
	if err := t.discharge(rec, held); err != nil {
		return err
	}
	switch {
	case held:
		if err := t.hold(rec); err != nil {
			return err
		}
	case leftover:
		key := t.key(kindPurge, uint64(rec.Ino))
		if err := t.kv.Set(key, encodeNumber(t.room(2), 1)); err != nil {
			return err
		}
	}
	if leftover {
		return nil
	}
	if rec.xattrs > 0 && !held {
		if _, err := t.deleteUnder(t.key(kindXattr, uint64(rec.Ino)), 0); err != nil {
			return err
		}
	}
	switch rec.maps {
	case 0:
		return nil
	case 1:
		return t.kv.Delete(t.key(kindMapping, uint64(rec.Ino), rec.firstMap))
	}
	_, err := t.deleteUnder(t.key(kindMapping, uint64(rec.Ino)), 0)
	return err
}

// removeDir removes the inode of an empty directory.
func (t *txn) removeDir(rec *record) error {
	rec.Nlink = 0
	rec.Ctime = t.now
	return t.removeInode(rec)
}
