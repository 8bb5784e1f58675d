package metadata

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

const keyPunctuation = "-_!@#%^*()+=:;."

// ValidKey reports whether a key is valid.
//
// Errors: ErrInvalidKey for an empty key, more than MaxKey bytes, a byte other than
// letters, digits and -_!@#%^*()+=:;. and for "." and "..", which can't be the name of a
// link.
func ValidKey(key string) error {
	if key == "" || key == "." || key == ".." || len(key) > MaxKey {
		return ErrInvalidKey
	}
	for i := range len(key) {
		c := key[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte(keyPunctuation, c) >= 0:
		default:
			return ErrInvalidKey
		}
	}
	return nil
}

// BindKey gives an inode a key, in place of its current one; an empty key only removes the
// current one. The inode's ctime changes.
//
// Errors: ErrNotExist; ErrExist if another inode has the key; ErrPermission for a file in
// PublishIno, which can't have one; ErrInvalidKey.
func (s *Store) BindKey(ctx context.Context, ino Ino, key string) error {
	if key != "" {
		if err := ValidKey(key); err != nil {
			return err
		}
	}
	run := s.update
	if key != "" {
		run = s.grow
	}
	defer s.locks.lock(ino)()
	return run(ctx, func(t *txn) error {
		rec, err := t.inode(ino)
		if err != nil || rec.Key == key {
			return err
		}
		if key != "" {
			if rec.Parent == PublishIno {
				return ErrPermission
			}
			if _, err := t.keyIno(key); err == nil {
				return ErrExist
			} else if !errors.Is(err, ErrNotExist) {
				return err
			}
			t.putKey(key, ino)
		}
		if rec.Key != "" {
			t.del(t.keyString(kindKey, rec.Key))
		}
		rec.Key = key
		rec.Ctime = t.now
		t.putInode(&rec)
		return nil
	})
}

func (t *txn) putKey(key string, ino Ino) {
	t.set(t.keyString(kindKey, key), encodeNumber(t.room(12), uint64(ino)))
}

func (t *txn) keyIno(key string) (Ino, error) {
	data, err := t.get(t.keyString(kindKey, key), ErrNotExist)
	if err != nil {
		return 0, err
	}
	ino, err := decodeNumber("key", data)
	return Ino(ino), err
}

// keyOfNothing turns ErrNotExist for the inode of a key into ErrCorrupt.
func keyOfNothing(key string, err error) error {
	if errors.Is(err, ErrNotExist) {
		return fmt.Errorf("%w: key %q names an inode that is missing", ErrCorrupt, key)
	}
	return err
}

// KeyIno returns the inode that has a key.
//
// Errors: ErrNotExist.
func (s *Store) KeyIno(ctx context.Context, key string) (Ino, error) {
	shard := s.cache.ofKey(key)
	ino, ok, drops := shard.get(key)
	if ok {
		return ino, ctx.Err()
	}
	ino, err := read(ctx, s, func(t *txn) (Ino, error) { return t.keyIno(key) })
	if err == nil {
		shard.put(key, ino, drops)
	}
	return ino, err
}

// Keys lists up to limit keys that sort after the given one, in ascending order; fewer than
// limit means that the end is reached. A limit of 0 or less means 1024.
func (s *Store) Keys(ctx context.Context, after string, limit int) ([]KeyEntry, error) {
	if limit <= 0 {
		limit = 1024
	}
	var entries []KeyEntry
	err := s.view(ctx, func(t *txn) error {
		from := append(t.keyString(kindKey, after), 0)
		return t.kv.Scan([]byte{kindKey}, from, func(key, value []byte) (bool, error) {
			ino, err := decodeNumber("key", value)
			if err != nil {
				return false, err
			}
			entries = append(entries, KeyEntry{Key: string(key[1:]), Ino: Ino(ino)})
			return len(entries) < limit, nil
		})
	})
	return entries, err
}
