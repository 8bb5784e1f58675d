package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/tensors"
)

// carrier describes what a key names: an inode, whose Key it is, or a tensor of a file.
type carrier struct {
	// Inode has the key as its Key, also if only a tensor of the file has it.
	metadata.Inode
	// tensor is the tensor's name among the parts of the file; empty for a key of all of it.
	tensor string
	// blobs is user.hmc.blobs of an inode that has the key as a whole, if it was read.
	blobs string
}

// tensorOf returns the tensor of a file that a key names, as the file contains it now.
//
// Errors: metadata.ErrNotExist if the file does not contain it; ErrLost.
func (s *Store) tensorOf(ctx context.Context, in carrier) (*tensors.Tensor, error) {
	path := tensors.PathOf(in.Name, in.tensor)
	f, err := s.Tensors(ctx, in.Ino, in.Name)
	if errors.Is(err, tensors.ErrFormat) {
		return nil, fmt.Errorf("%s is no valid file of tensors now: %w (%w)", in.Name, metadata.ErrNotExist, err)
	}
	if err != nil {
		return nil, err
	}
	e, ok := f.Find(path)
	if !ok || e.Tensor == nil {
		return nil, fmt.Errorf("%s does not contain the tensor %s, which has key %q; write the tensor again, or remove the key: %w",
			in.Name, path, in.Key, metadata.ErrNotExist)
	}
	return e.Tensor, nil
}

// describeTensor makes the information about a file that about a tensor of it, which a key
// names.
func (s *Store) describeTensor(ctx context.Context, in carrier, info *KeyInfo) error {
	info.Attr.Size, info.Blobs = 0, []uint64{0}
	if info.Attr.State == StateLost {
		return nil
	}
	t, err := s.tensorOf(ctx, in)
	if err == nil {
		info.Off, info.Attr.Size, info.Blobs = t.Off, t.Len, []uint64{t.Len}
	}
	return err
}

// steadyCopies bounds the copies of a tensor that are attempted during changes of its file,
// before changes are excluded.
const steadyCopies = 3

// scatterTensor is Scatter for the key of a tensor, whose file is pinned: blobs get the
// tensor's bytes, without a header, of a single version of the file, except for what the
// kernel writes by passthrough. A replica is a copy like any other.
//
// Errors: those of tensorOf and of Scatter; ErrBusy if the blobs are in a file and the
// tensor's file is changed again and again.
func (h *Holder) scatterTensor(ctx context.Context, o *object, in carrier, sc Scatter) error {
	f := &File{obj: o}
	copied := func() error {
		t, err := h.store.tensorOf(ctx, in)
		if err == nil {
			err = o.scatterFrom(ctx, sc, t.Off, []uint64{t.Len})
		}
		return err
	}
	for range steadyCopies {
		mark, err := f.Mark()
		if err != nil {
			return err
		}
		if err = copied(); f.Same(mark) {
			return err
		}
	}
	if slices.ContainsFunc(sc.Blobs, func(b Blob) bool { return b.Region.body == nil }) {
		// The file to be written may be the same one, or be copied to this one meanwhile.
		return fmt.Errorf("%s is being changed; try again: %w", in.Name, ErrBusy)
	}
	return f.Still(ctx, copied)
}

// TensorKey returns the key of a tensor of a file, by its path in the view; "" for none.
func (s *Store) TensorKey(ctx context.Context, ino Ino, path string) (string, error) {
	in, err := s.meta.Get(ctx, ino)
	if err != nil {
		return "", err
	}
	return s.meta.PartKeyOf(ctx, ino, tensors.PartOf(in.Name, path))
}

// SetTensorKey gives a tensor of a file, by its path in the view, a key in place of its
// present one. The key names the tensor of that name, whatever bytes the file has for it,
// until the file is removed or published. For a file with several names, the oldest one
// determines the format.
//
// Errors: metadata.ErrExist, metadata.ErrNoXattr, depending on the flags;
// metadata.ErrNotExist if the file does not contain the tensor; those of metadata.BindPart.
func (s *Store) SetTensorKey(ctx context.Context, ino Ino, path, key string, flags metadata.XattrFlags) error {
	in, err := s.meta.Get(ctx, ino)
	if err != nil {
		return err
	}
	c := carrier{Inode: in, tensor: tensors.PartOf(in.Name, path)}
	t, err := s.tensorOf(ctx, c)
	if err != nil {
		return err
	}
	c.Size = t.Len
	if c.Key, err = s.meta.PartKeyOf(ctx, ino, c.tensor); err != nil {
		return err
	}
	return s.setKey(ctx, c, key, flags)
}

// RemoveTensorKey takes the key from a tensor of a file.
//
// Errors: metadata.ErrNoXattr if it has none.
func (s *Store) RemoveTensorKey(ctx context.Context, ino Ino, path string) error {
	in, err := s.meta.Get(ctx, ino)
	if err != nil {
		return err
	}
	c := carrier{Inode: in, tensor: tensors.PartOf(in.Name, path)}
	if c.Key, err = s.meta.PartKeyOf(ctx, ino, c.tensor); err != nil {
		return err
	}
	if c.Key == "" {
		return fmt.Errorf("remove %s: %w", xattrKey, metadata.ErrNoXattr)
	}
	return s.keyed.takeKey(context.WithoutCancel(ctx), c)
}

// describeTensorExport limits what is known of a file's exported memory to a tensor, whose
// bytes may begin at any offset. JSON has no field for the order of dimensions, so a tensor
// with several of them, of which the first varies fastest, has no shape there.
//
// Errors: ErrInvalid for a tensor without bytes; ErrBusy if it is behind the exported part;
// those of tensorOf.
func (s *Store) describeTensorExport(ctx context.Context, ino Ino, path string, out *Exported) error {
	in, err := s.meta.Get(ctx, ino)
	if err != nil {
		return err
	}
	t, err := s.tensorOf(ctx, carrier{Inode: in, tensor: tensors.PartOf(in.Name, path)})
	m := &out.Memory
	switch {
	case err != nil:
		return err
	case t.Len == 0:
		return fmt.Errorf("tensor %s has no bytes to export: %w", path, ErrInvalid)
	case t.Off+t.Len > uint64(m.Size):
		return fmt.Errorf("tensor %s ends at byte %d, and only %d bytes of the file are exported since it has grown; end its exports first: %w",
			path, t.Off+t.Len, m.Size, ErrBusy)
	}
	m.Dtype, m.Size = t.Type.Name, devices.Size(t.Len)
	if !t.Fortran || len(t.Shape) < 2 {
		m.Shape = t.ShapeText()
	}
	piece := &m.Pieces[0]
	piece.Offset, piece.Size = piece.Offset+devices.Offset(t.Off), m.Size
	out.Handle.Offset, out.Handle.Size = piece.Offset, m.Size
	return nil
}

// bindTensor gives a tensor a key in place of its present one, or only removes that. The
// lock of the file's directory orders the events with those of the file's removal. The
// caller has keyed.turn.
func (ks *keyed) bindTensor(ctx context.Context, in carrier, key string) error {
	for {
		unlock := ks.names.lock(in.Parent, in.Parent)
		now, err := ks.meta.Get(ctx, in.Ino)
		if err == nil && now.Parent != in.Parent {
			unlock()
			in.Parent = now.Parent
			continue
		}
		if err == nil {
			now.Size = in.Size
			err = ks.replaceTensorKey(ctx, carrier{Inode: now, tensor: in.tensor}, key)
		}
		unlock()
		return err
	}
}

func (ks *keyed) replaceTensorKey(ctx context.Context, in carrier, key string) error {
	old, err := ks.meta.PartKeyOf(ctx, in.Ino, in.tensor)
	if err == nil {
		err = ks.meta.BindPart(ctx, in.Ino, in.tensor, key)
	}
	if err != nil || old == key {
		return err
	}
	if old != "" {
		ks.events.emit(EventRemoved, old, &in.Inode)
	}
	if key != "" {
		in.Key = key
		ks.keyCame(&in.Inode)
	}
	return nil
}

// eachTensorKey emits an event for the key of each tensor of a file.
func (h *events) eachTensorKey(kind EventKind, parts []metadata.PartKey, in metadata.Inode) {
	in.Size = 0 // that of the tensor is not known
	for _, p := range parts {
		h.emit(kind, p.Key, &in)
	}
}
