package metadata

import "errors"

func (t *txn) repairMissingPublish(Problem) error {
	old, err := t.maybe(PublishIno)
	if err != nil {
		return err
	}
	if old != nil && old.isPublishDir() {
		return ErrChanged
	}
	publish := t.publishDir()
	return t.recount(&publish)
}

func (t *txn) repairDanglingExpiry(p Problem) error {
	rec, err := t.maybe(p.Ino)
	if err != nil {
		return err
	}
	if rec != nil && rec.Expires == p.expires {
		return ErrChanged
	}
	return t.deleteExpiry(p.Ino, p.expires)
}

func (t *txn) repairMissingExpiry(p Problem) error {
	rec, err := t.inode(p.Ino)
	if err != nil {
		return err
	}
	if rec.Expires == (Timespec{}) {
		return ErrChanged
	}
	_, err = t.kv.Get(t.expiryKey(rec.Expires, p.Ino))
	if !errors.Is(err, ErrNoKey) {
		return errors.Join(err, ErrChanged)
	}
	return t.putExpiry(p.Ino, rec.Expires)
}

func (t *txn) repairTaken(p Problem) error {
	rec, err := t.inode(p.Ino)
	if err != nil {
		return err
	}
	if !rec.Taken || rec.Parent == PublishIno {
		return ErrChanged
	}
	rec.Taken = false
	return t.putInode(&rec)
}
