package metadata

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

const keyPunctuation = "-_!@#%^*()+=:;."

// ValidKey reports whether a key is valid. Its error says what to do instead.
//
// Errors: ErrInvalidKey for an empty key, more than MaxKey bytes, a byte other than
// letters, digits and -_!@#%^*()+=:;. and for "." and "..", which can't be the name of a
// link. A key contains no "/": docs/adr/0022 gives the reasons.
func ValidKey(key string) error {
	if key == "" || key == "." || key == ".." || len(key) > MaxKey {
		return invalidKey(key)
	}
	for i := range len(key) {
		c := key[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte(keyPunctuation, c) >= 0:
		default:
			return invalidKey(key)
		}
	}
	return nil
}

func invalidKey(key string) error {
	if strings.IndexByte(key, '/') >= 0 {
		return fmt.Errorf("%w %.80q: a key has no directories; write : instead of /, as in %.80q",
			ErrInvalidKey, key, strings.ReplaceAll(key, "/", ":"))
	}
	return fmt.Errorf("%w %.80q: use 1 to %d of A-Z a-z 0-9 and %s but not \".\" or \"..\"", ErrInvalidKey, key, MaxKey, keyPunctuation)
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
			if _, err := t.keyHolder(key); err == nil {
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
	t.set(t.keyString(kindKey, key), encodeKeyHolder(t.room(12), keyHolder{ino: ino}))
}

func (t *txn) keyHolder(key string) (keyHolder, error) {
	data, err := t.get(t.keyString(kindKey, key), ErrNotExist)
	if err != nil {
		return keyHolder{}, err
	}
	return decodeKeyHolder(data)
}

// keyOfNothing turns ErrNotExist for the inode of a key into ErrCorrupt.
func keyOfNothing(key string, err error) error {
	if errors.Is(err, ErrNotExist) {
		return fmt.Errorf("%w: key %q names an inode that is missing", ErrCorrupt, key)
	}
	return err
}

// Key returns what has a key: an inode, or a part of one.
//
// Errors: ErrNotExist.
func (s *Store) Key(ctx context.Context, key string) (KeyEntry, error) {
	shard := s.cache.ofKey(key)
	cached, ok, drops := shard.get(key)
	if ino := cached.ino; ok {
		// A transaction that has just moved the key may not have dropped it yet. Callers that miss
		// the inode look again, and must not find the same one then.
		if in, err := s.Get(ctx, ino); err == nil && in.Key == key {
			return KeyEntry{Key: key, Ino: ino}, nil
		}
	}
	h, err := read(ctx, s, func(t *txn) (keyHolder, error) { return t.keyHolder(key) })
	if err == nil && h.part == "" {
		shard.put(key, cachedKey{ino: h.ino}, drops)
	}
	return KeyEntry{Key: key, Ino: h.ino, Part: h.part}, err
}

// KnownKey returns the inode of a store that has a key, and the value of one of its extended attributes, empty
// for none, without reading records. ok is false if they are not known, or the key is that of a
// part: Key, Get and GetXattr find them then. The caller must not change the inode.
func KnownKey(s *Store, key, xattr string) (in *Inode, value string, ok bool) {
	in, known, ok := s.cache.known(key, xattr)
	return in, known.value, ok
}

// KnowsKey reports whether a key was in use when it was last read. It reads no records: false
// does not mean that the key is free.
func (s *Store) KnowsKey(key string) bool {
	_, ok, _ := s.cache.ofKey(key).get(key)
	return ok
}

// KeyIno returns the inode that has a key, or a part that has it.
//
// Errors: ErrNotExist.
func (s *Store) KeyIno(ctx context.Context, key string) (Ino, error) {
	e, err := s.Key(ctx, key)
	return e.Ino, err
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
			h, err := decodeKeyHolder(value)
			if err != nil {
				return false, err
			}
			entries = append(entries, KeyEntry{Key: string(key[1:]), Ino: h.ino, Part: h.part})
			return len(entries) < limit, nil
		})
	})
	return entries, err
}
