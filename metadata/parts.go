package metadata

import (
	"context"
	"errors"
	"fmt"
)

const (
	// MaxParts is the maximum number of parts of a file that have keys. It bounds the
	// transaction that removes the file together with them.
	MaxParts = 1024
	// MaxPart is the maximum length, in bytes, of the name of a part.
	MaxPart = 512
)

// PartKey is the key of one part of a file. The name of a part is plain data.
type PartKey struct{ Part, Key string }

func (t *txn) partKey(ino Ino, part string) []byte {
	return append(appendKey(t.room(inoKeyLen+len(part)), kindPart, uint64(ino)), part...)
}

func (t *txn) putPart(ino Ino, p PartKey) {
	t.set(t.partKey(ino, p.Part), encodeLink(t.room(3+len(p.Key)), p.Key))
	t.set(t.keyString(kindKey, p.Key), encodeKeyHolder(t.room(16+len(p.Part)), keyHolder{ino, p.Part}))
}

// part returns the key of a part; "" if it has none.
func (t *txn) part(ino Ino, part string) (string, error) {
	data, err := t.get(t.partKey(ino, part), ErrNotExist)
	if errors.Is(err, ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return decodeLink(data)
}

// parts returns the keys of all parts of a file, by the names of the parts.
func (t *txn) parts(ino Ino) ([]PartKey, error) {
	var out []PartKey
	err := t.kv.Scan(t.key(kindPart, uint64(ino)), nil, func(key, value []byte) (bool, error) {
		name, err := decodeLink(value)
		out = append(out, PartKey{Part: string(key[inoKeyLen:]), Key: name})
		return true, err
	})
	return out, err
}

// dropParts removes the keys of all parts of a file. The caller stores the inode.
func (t *txn) dropParts(rec *record) {
	if rec.Parts == 0 {
		return
	}
	parts, err := t.parts(rec.Ino)
	t.fail(err)
	for _, p := range parts {
		t.del(t.partKey(rec.Ino, p.Part))
		t.del(t.keyString(kindKey, p.Key))
	}
	rec.Parts = 0
}

// BindPart gives a part of a regular file a key, in place of its current one; an empty key
// only removes the current one. The inode's ctime changes. The key is removed with the file.
//
// Errors: ErrNotExist; ErrExist if the key names something else; ErrPermission for a file in
// PublishIno; ErrInvalid if it is not a regular file, or for an invalid name of a part;
// ErrTooManyLinks beyond MaxParts; ErrQuota of the inode's owner; ErrInvalidKey.
func (s *Store) BindPart(ctx context.Context, ino Ino, part, key string) error {
	if part == "" || len(part) > MaxPart {
		return fmt.Errorf("name of a part of %d bytes, of at most %d: %w", len(part), MaxPart, ErrInvalid)
	}
	run := s.update
	if key != "" {
		if err := ValidKey(key); err != nil {
			return err
		}
		run = s.grow
	}
	defer s.locks.lock(ino)()
	return run(ctx, func(t *txn) error {
		rec, err := t.inode(ino)
		if err != nil {
			return err
		}
		old, err := t.part(ino, part)
		if err != nil || old == key {
			return err
		}
		return t.bindPart(&rec, old, PartKey{part, key})
	})
}

// bindPart gives a part of a file a key in place of the key old.
func (t *txn) bindPart(rec *record, old string, p PartKey) error {
	if p.Key != "" {
		if err := t.mayBindPart(rec, old == "", p.Key); err != nil {
			return err
		}
	}
	if old != "" {
		t.del(t.keyString(kindKey, old))
		t.del(t.partKey(rec.Ino, p.Part))
		rec.Parts--
	}
	if p.Key != "" {
		t.putPart(rec.Ino, p)
		rec.Parts++
	}
	rec.Ctime = t.now
	t.putInode(rec)
	return nil
}

// mayBindPart checks that a part of a file may have a key; more says that it has none yet.
func (t *txn) mayBindPart(rec *record, more bool, key string) error {
	switch {
	case !rec.IsRegular():
		return ErrInvalid
	case rec.Parent == PublishIno:
		return ErrPermission
	case more && rec.Parts >= MaxParts:
		return fmt.Errorf("at most %d parts of a file have keys: %w", MaxParts, ErrTooManyLinks)
	}
	if _, err := t.keyHolder(key); err == nil {
		return ErrExist
	} else if !errors.Is(err, ErrNotExist) {
		return err
	}
	if more {
		return t.mayName(rec.UID)
	}
	return nil
}

// PartKeyOf returns the key of a part of a file; "" if it has none.
func (s *Store) PartKeyOf(ctx context.Context, ino Ino, part string) (string, error) {
	return read(ctx, s, func(t *txn) (string, error) { return t.part(ino, part) })
}

// PartKeys lists the keys of the parts of a file, by the names of the parts.
func (s *Store) PartKeys(ctx context.Context, ino Ino) ([]PartKey, error) {
	return read(ctx, s, func(t *txn) ([]PartKey, error) { return t.parts(ino) })
}
