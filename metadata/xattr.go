package metadata

import (
	"context"
	"errors"
	"slices"
)

func validXattr(name string) error {
	if name == "" || len(name) > MaxName {
		return ErrRange
	}
	return nil
}

func (t *txn) xattrKey(ino Ino, name string) []byte {
	return append(appendKey(t.room(inoKeyLen+len(name)), kindXattr, uint64(ino)), name...)
}

func (t *txn) putXattr(ino Ino, name string, value []byte) {
	t.set(t.xattrKey(ino, name), encodeXattr(t.room(1+len(value)), value))
}

// GetXattr returns the value of an extended attribute; the caller owns the slice.
//
// Errors: ErrNotExist; ErrNoXattr; ErrRange.
func (s *Store) GetXattr(ctx context.Context, ino Ino, name string) ([]byte, error) {
	if err := validXattr(name); err != nil {
		return nil, err
	}
	shard, k := s.cache.ofXattr(ino), xattrName{ino, name}
	known, ok, drops := shard.get(k)
	if ok {
		// The attributes of an inode that was removed go later.
		if _, err := s.Get(ctx, ino); err == nil {
			return known.get()
		}
	}
	data, err := s.readXattr(ctx, ino, name)
	if none := errors.Is(err, ErrNoXattr); none || err == nil && len(data) <= longestCached {
		shard.put(k, cachedXattr{string(data), none}, drops)
	}
	return data, err
}

// get returns what GetXattr does.
func (x cachedXattr) get() ([]byte, error) {
	if x.absent {
		return nil, ErrNoXattr
	}
	return []byte(x.value), nil
}

func (s *Store) readXattr(ctx context.Context, ino Ino, name string) ([]byte, error) {
	return read(ctx, s, func(t *txn) ([]byte, error) {
		data, err := t.get(t.xattrKey(ino, name), ErrNoXattr)
		if errors.Is(err, ErrNoXattr) {
			if _, absent := t.bearer(ino); absent != nil {
				err = absent
			}
		}
		if err != nil {
			return nil, err
		}
		data, err = decodeXattr(data)
		return slices.Clone(data), err
	})
}

// SetXattr sets an extended attribute. The inode's ctime changes.
//
// Errors: ErrNotExist; ErrExist with XattrCreate; ErrNoXattr with
// XattrReplace; ErrRange; ErrTooLarge; ErrXattrSpace; ErrQuota of the inode's
// owner; ErrInvalid for unknown flags.
func (s *Store) SetXattr(ctx context.Context, ino Ino, name string, value []byte, flags XattrFlags) error {
	switch {
	case flags > XattrReplace:
		return ErrInvalid
	case len(value) > MaxXattr:
		return ErrTooLarge
	}
	if err := validXattr(name); err != nil {
		return err
	}
	defer s.locks.lock(ino)()
	return s.grow(ctx, func(t *txn) error {
		rec, err := t.bearer(ino)
		if err != nil {
			return err
		}
		key := t.xattrKey(ino, name)
		old, err := t.kv.Get(key)
		add, more := 0, int64(len(name)+len(value))
		switch {
		case err == nil && flags == XattrCreate:
			return ErrExist
		case err == nil:
			more -= int64(xattrWeight(key, old))
		case !errors.Is(err, ErrNoKey):
			return err
		case flags == XattrReplace:
			return ErrNoXattr
		default:
			add = 1
		}
		if err := t.growXattrs(&rec, add, more); err != nil {
			return err
		}
		rec.Ctime = t.now
		t.putXattr(ino, name, value)
		t.putBearer(&rec)
		return nil
	})
}

// ListXattr returns the names of all extended attributes, in ascending order.
//
// Errors: ErrNotExist.
func (s *Store) ListXattr(ctx context.Context, ino Ino) ([]string, error) {
	var names []string
	err := s.view(ctx, func(t *txn) error {
		rec, err := t.bearer(ino)
		if err != nil || rec.xattrs == 0 {
			return err
		}
		prefix := t.key(kindXattr, uint64(ino))
		return t.kv.Scan(prefix, nil, func(key, _ []byte) (bool, error) {
			names = append(names, string(key[inoKeyLen:]))
			return true, nil
		})
	})
	return names, err
}

// RemoveXattr removes an extended attribute. The inode's ctime changes.
//
// Errors: ErrNotExist; ErrNoXattr; ErrRange.
func (s *Store) RemoveXattr(ctx context.Context, ino Ino, name string) error {
	if err := validXattr(name); err != nil {
		return err
	}
	defer s.locks.lock(ino)()
	return s.update(ctx, func(t *txn) error {
		rec, err := t.bearer(ino)
		if err != nil {
			return err
		}
		key := t.xattrKey(ino, name)
		old, err := t.get(key, ErrNoXattr)
		if err != nil {
			return err
		}
		t.use(rec.UID, 0, -int64(xattrWeight(key, old)))
		rec.xattrs--
		rec.Ctime = t.now
		t.del(key)
		t.putBearer(&rec)
		return nil
	})
}
