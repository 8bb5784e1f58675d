package metadata

import (
	"context"
	"errors"
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
	return s.changeBinding(ctx, ino, fn, func(t *txn, rec *record) error {
		switch {
		case !rec.IsRegular():
			return ErrInvalid
		case rec.Bound == BoundLive:
			return ErrExist
		}
		rec.Bound = BoundLive
		return t.putBinding(ino, binding)
	})
}

func (t *txn) putBinding(ino Ino, binding []byte) error {
	value := append(append(t.room(1+len(binding)), bindingVersion), binding...)
	return t.kv.Set(t.key1(kindBinding, uint64(ino)), value)
}

// Unbind removes the binding that Bind stored. With lost, the file stays marked as bound
// but lost; otherwise it may have content of its own again.
//
// Errors: ErrNotExist.
func (s *Store) Unbind(ctx context.Context, ino Ino, lost bool) error {
	_, err := s.changeBinding(ctx, ino, nil, func(t *txn, rec *record) error {
		if rec.Bound != BoundLive {
			rec.Bound = unboundState(lost)
			return nil
		}
		return t.unbind(rec, lost)
	})
	return err
}

func unboundState(lost bool) BindState {
	if lost {
		return BoundLost
	}
	return Unbound
}

// unbind removes the binding of an inode, if it has one. The caller stores the inode.
func (t *txn) unbind(rec *record, lost bool) error {
	if rec.Bound != BoundLive {
		return nil
	}
	rec.Bound = unboundState(lost)
	return t.kv.Delete(t.key1(kindBinding, uint64(rec.Ino)))
}

// changeBinding is Update with an additional change that fn may not make.
func (s *Store) changeBinding(ctx context.Context, ino Ino, fn func(*Inode) error, change func(*txn, *record) error) (Inode, error) {
	defer s.locks.lock(ino)()
	var rec record
	err := s.update(ctx, func(t *txn) (err error) {
		if rec, err = t.inode(ino); err != nil {
			return err
		}
		if err = rec.apply(fn); err != nil {
			return err
		}
		if err = change(t, &rec); err != nil {
			return err
		}
		return t.putInode(&rec)
	})
	return rec.Inode, err
}

// Binding returns the data that Bind stored for a file; the caller owns the slice.
//
// Errors: ErrNoXattr if the file is not bound, or lost.
func (s *Store) Binding(ctx context.Context, ino Ino) ([]byte, error) {
	var binding []byte
	err := s.view(ctx, func(t *txn) error {
		data, err := t.kv.Get(t.key1(kindBinding, uint64(ino)))
		if errors.Is(err, ErrNoKey) {
			return ErrNoXattr
		}
		if err != nil {
			return err
		}
		data, err = decodeBinding(data)
		binding = slices.Clone(data)
		return err
	})
	return binding, err
}

// Bindings lists the bound files, by inode number.
func (s *Store) Bindings(ctx context.Context) ([]Ino, error) {
	var bound []Ino
	err := s.view(ctx, func(t *txn) error {
		return t.kv.Scan([]byte{kindBinding}, nil, func(key, _ []byte) (bool, error) {
			bound = append(bound, keyIno(key))
			return true, nil
		})
	})
	return bound, err
}

func (r repairer) danglingBinding(p Problem) error {
	rec, err := r.maybe(p.Ino)
	if err != nil {
		return err
	}
	if rec != nil && rec.Bound == BoundLive {
		return ErrChanged
	}
	return r.kv.Delete(r.key1(kindBinding, uint64(p.Ino)))
}

func (r repairer) missingBinding(p Problem) error {
	rec, err := r.inode(p.Ino)
	if err != nil {
		return err
	}
	if _, err = r.kv.Get(r.key1(kindBinding, uint64(p.Ino))); !errors.Is(err, ErrNoKey) {
		return errors.Join(err, ErrChanged)
	}
	if rec.Bound != BoundLive {
		return ErrChanged
	}
	rec.Bound = BoundLost
	return r.putInode(&rec)
}
