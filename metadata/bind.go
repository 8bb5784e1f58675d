package metadata

import (
	"context"
	"fmt"
	"slices"
)

// MaxBinding is the maximum size, in bytes, of a binding record.
const MaxBinding = 1 << 20

// Bind records that the content of a regular file is memory of another process. It stores
// binding, the data needed to find that memory again, beside the inode, and changes the
// inode by fn, as Update does, in the same transaction.
//
// Errors: those of Update; ErrExist if the file is bound already; ErrTooLarge; ErrInvalid
// if it is not a regular file.
func (s *Store) Bind(ctx context.Context, ino Ino, binding []byte, fn func(*Inode) error) (Inode, error) {
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
		case rec.Bound == BoundLive:
			return ErrExist
		}
		rec.Bound = BoundLive
		t.putBinding(ino, binding)
		return nil
	})
}

func (t *txn) putBinding(ino Ino, binding []byte) {
	value := append(append(t.room(1+len(binding)), bindingVersion), binding...)
	t.set(t.key(kindBinding, uint64(ino)), value)
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
	if rec.Bound == BoundLive {
		rec.Bound = Unbound
		t.del(t.key(kindBinding, uint64(rec.Ino)))
	}
}

// Binding returns the data that Bind stored for a file; the caller owns the slice.
//
// Errors: ErrNoXattr if the file is not bound, or lost.
func (s *Store) Binding(ctx context.Context, ino Ino) ([]byte, error) {
	return read(ctx, s, func(t *txn) ([]byte, error) {
		data, err := t.get(t.key(kindBinding, uint64(ino)), ErrNoXattr)
		if err != nil {
			return nil, err
		}
		data, err = decodeBinding(data)
		return slices.Clone(data), err
	})
}

// Bindings lists the bound files, by inode number.
func (s *Store) Bindings(ctx context.Context) ([]Ino, error) {
	return read(ctx, s, func(t *txn) (bound []Ino, err error) {
		err = t.kv.Scan([]byte{kindBinding}, nil, func(key, _ []byte) (bool, error) {
			bound = append(bound, keyIno(key))
			return true, nil
		})
		return bound, err
	})
}
