package metadata

import "errors"

func (r repairer) missingPublish(Problem) error {
	old, err := r.maybe(PublishIno)
	if err != nil {
		return err
	}
	if old != nil && old.isPublishDir() {
		return ErrChanged
	}
	publish := r.publishDir()
	return r.recount(&publish)
}

func (r repairer) danglingExpiry(p Problem) error {
	rec, err := r.maybe(p.Ino)
	if err != nil {
		return err
	}
	if rec != nil && rec.Expires == p.expires {
		return ErrChanged
	}
	return r.deleteExpiry(p.Ino, p.expires)
}

func (r repairer) missingExpiry(p Problem) error {
	rec, err := r.inode(p.Ino)
	if err != nil {
		return err
	}
	if rec.Expires == (Timespec{}) {
		return ErrChanged
	}
	_, err = r.kv.Get(r.expiryKey(rec.Expires, p.Ino))
	if !errors.Is(err, ErrNoKey) {
		return errors.Join(err, ErrChanged)
	}
	return r.putExpiry(p.Ino, rec.Expires)
}

func (r repairer) taken(p Problem) error {
	rec, err := r.inode(p.Ino)
	if err != nil {
		return err
	}
	if !rec.Taken || rec.Parent == PublishIno {
		return ErrChanged
	}
	rec.Taken = false
	return r.putInode(&rec)
}
