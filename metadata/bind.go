package metadata

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

const (
	// MaxBinding is the maximum size, in bytes, of a binding.
	MaxBinding = 1 << 20
	// maxInline is the maximum size, in bytes, of one that is stored in the inode's record. A key needs no
	// further record then.
	maxInline = 128
)

// Bind records that the content of a regular file is memory of another process. It stores
// binding, the data needed to find that memory again, beside the inode, and changes the
// inode by fn, as Update does, in the same transaction. A nil binding is for memory that can't be
// found by a later process; see Fleeting.
//
// Errors: those of Update; ErrExist if the file is bound already; ErrTooLarge; ErrInvalid
// if it is not a regular file.
func (s *Store) Bind(ctx context.Context, ino Ino, binding []byte, fn func(*Inode) error) (Inode, error) {
	return s.bind(ctx, ino, binding, fn, false)
}

// Rebind is Bind for a file that may be bound already, or lost: its binding is replaced.
//
// Errors: those of Bind, without ErrExist.
func (s *Store) Rebind(ctx context.Context, ino Ino, binding []byte, fn func(*Inode) error) (Inode, error) {
	return s.bind(ctx, ino, binding, fn, true)
}

func (s *Store) bind(ctx context.Context, ino Ino, binding []byte, fn func(*Inode) error, replaces bool) (Inode, error) {
	if len(binding) > MaxBinding {
		return Inode{}, fmt.Errorf("binding of %d bytes: %w", len(binding), ErrTooLarge)
	}
	if err := s.Room(ctx); err != nil {
		return Inode{}, err
	}
	return s.change(ctx, ino, fn, func(t *txn, rec *record) error {
		switch {
		case !rec.IsRegular():
			return ErrInvalid
		case rec.Bound == BoundLive && !replaces:
			return ErrExist
		}
		t.unbind(rec)
		t.bind(rec, binding)
		return nil
	})
}

// bind binds an inode, which the caller stores.
func (t *txn) bind(rec *record, binding []byte) {
	rec.Bound = BoundLive
	if rec.fleeting = binding == nil; rec.fleeting {
		return
	}
	if n := len(binding); 0 < n && n <= maxInline {
		rec.binding = binding
		return
	}
	value := append(append(t.room(1+len(binding)), bindingVersion), binding...)
	t.set(t.key(kindBinding, uint64(rec.Ino)), value)
}

// Unbind removes the binding that Bind stored. With lost, the file stays marked as bound
// but lost; otherwise it may have content of its own again.
//
// Errors: ErrNotExist.
func (s *Store) Unbind(ctx context.Context, ino Ino, lost bool) error {
	_, err := s.change(ctx, ino, nil, func(t *txn, rec *record) error {
		t.unbind(rec)
		rec.Bound = Unbound
		if lost {
			rec.Bound = BoundLost
		}
		return nil
	})
	return err
}

// unbind removes the binding of an inode, if it has one. The caller stores the inode.
func (t *txn) unbind(rec *record) {
	if rec.hasBinding() {
		t.del(t.key(kindBinding, uint64(rec.Ino)))
	}
	if rec.Bound == BoundLive {
		rec.Bound, rec.fleeting, rec.binding = Unbound, false, nil
	}
}

// hasBinding reports whether an inode has a 'b' record.
func (i *record) hasBinding() bool { return i.Bound == BoundLive && !i.fleeting && len(i.binding) == 0 }

// Binding returns the data that Bind stored for a file; the caller owns the slice.
//
// Errors: ErrNoXattr if the file is not bound, fleeting, or lost.
func (s *Store) Binding(ctx context.Context, ino Ino) ([]byte, error) {
	return read(ctx, s, func(t *txn) ([]byte, error) {
		rec, err := t.inode(ino)
		switch {
		case errors.Is(err, ErrNotExist) || err == nil && len(rec.binding) == 0 && !rec.hasBinding():
			return nil, ErrNoXattr
		case err != nil:
			return nil, err
		case len(rec.binding) > 0:
			return slices.Clone(rec.binding), nil
		}
		data, err := t.get(t.key(kindBinding, uint64(ino)), ErrNoXattr)
		if err != nil {
			return nil, err
		}
		data, err = decodeBinding(data)
		return slices.Clone(data), err
	})
}

// Bindings lists the bound files, by inode number: first those whose binding has a record, then the
// others, which it finds among all inodes that can be read.
func (s *Store) Bindings(ctx context.Context) ([]Ino, error) {
	return read(ctx, s, func(t *txn) (bound []Ino, err error) {
		err = t.kv.Scan([]byte{kindBinding}, nil, func(key, _ []byte) (bool, error) {
			bound = append(bound, keyIno(key))
			return true, nil
		})
		if err != nil {
			return nil, err
		}
		err = t.kv.Scan([]byte{kindInode}, nil, func(key, value []byte) (bool, error) {
			if len(value) == 0 || value[0] < fleetingVersion { // most are, and this is cheaper than to decode them
				return true, nil
			}
			if rec, unreadable := decodeRecord(keyIno(key), value); unreadable == nil && rec.Bound == BoundLive && !rec.hasBinding() {
				bound = append(bound, rec.Ino)
			}
			return true, ctx.Err()
		})
		return bound, err
	})
}
