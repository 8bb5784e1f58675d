package metadata

import (
	"context"
	"encoding/binary"
	"fmt"
)

// expirySign is inverted in the seconds, so that negative ones sort first.
const expirySign = 1 << 63

// expiryKeyLen is the length of an expiry record's key: kind, seconds, nanoseconds, inode.
const expiryKeyLen = 1 + 8 + 4 + 8

func (t *txn) expiryKey(at Timespec, ino Ino) []byte {
	key := appendKey(t.room(expiryKeyLen), kindExpiry, uint64(at.Sec)^expirySign)
	key = binary.BigEndian.AppendUint32(key, at.Nsec)
	return binary.BigEndian.AppendUint64(key, uint64(ino))
}

// expiryIno returns the inode at the end of an expiry record's key; 0 if it is no such key.
func expiryIno(key []byte) Ino {
	if len(key) != expiryKeyLen {
		return 0
	}
	return Ino(binary.BigEndian.Uint64(key[expiryKeyLen-8:]))
}

// parseExpiry decodes an expiry record.
func parseExpiry(key, value []byte) (at Timespec, ino Ino, err error) {
	if len(key) != expiryKeyLen {
		return at, 0, fmt.Errorf("%w: expiry: key of %d bytes", ErrCorrupt, len(key))
	}
	at.Sec = int64(binary.BigEndian.Uint64(key[1:]) ^ expirySign)
	at.Nsec = binary.BigEndian.Uint32(key[9:])
	if at.Nsec >= 1e9 || at == (Timespec{}) {
		return at, 0, fmt.Errorf("%w: expiry: no time", ErrCorrupt)
	}
	_, err = decodeNumber("expiry", value)
	return at, expiryIno(key), err
}

// expire sets the expiry time of an inode, and its expiry record. The caller stores the
// inode.
func (t *txn) expire(rec *record, at Timespec) {
	if rec.Expires == at {
		return
	}
	t.deleteExpiry(rec.Ino, rec.Expires)
	rec.Expires = at
	t.putExpiry(rec.Ino, at)
}

func (t *txn) putExpiry(ino Ino, at Timespec) {
	if at != (Timespec{}) {
		t.set(t.expiryKey(at, ino), encodeNumber(t.room(2), 1))
	}
}

func (t *txn) deleteExpiry(ino Ino, at Timespec) {
	if at != (Timespec{}) {
		t.del(t.expiryKey(at, ino))
	}
}

// Expire sets the expiry time of a regular file; zero means never. The inode's ctime
// changes. The file is not removed automatically: Expired lists expired files.
//
// Errors: ErrNotExist; ErrInvalid if it is not a regular file, and for nanoseconds out of
// range.
func (s *Store) Expire(ctx context.Context, ino Ino, at Timespec) error {
	if at.Nsec >= 1e9 {
		return fmt.Errorf("%w: %d nanoseconds", ErrInvalid, at.Nsec)
	}
	if err := s.Room(ctx); err != nil {
		return err
	}
	_, err := s.change(ctx, ino, nil, func(t *txn, rec *record) error {
		if !rec.IsRegular() {
			return ErrInvalid
		}
		rec.Ctime = t.now
		t.expire(rec, at)
		return nil
	})
	return err
}

// Expired lists up to limit files that have expired at the given time, oldest first. next
// is the expiry time of the first file that is not listed; zero if there is none. A limit
// of 0 or less means 1024.
func (s *Store) Expired(ctx context.Context, now Timespec, limit int) (over []Ino, next Timespec, err error) {
	if limit <= 0 {
		limit = 1024
	}
	err = s.view(ctx, func(t *txn) error {
		return t.kv.Scan([]byte{kindExpiry}, nil, func(key, value []byte) (bool, error) {
			at, ino, bad := parseExpiry(key, value)
			if bad != nil {
				return false, bad
			}
			if at.After(now) || len(over) == limit {
				next = at
				return false, nil
			}
			over = append(over, ino)
			return true, nil
		})
	})
	return over, next, err
}
