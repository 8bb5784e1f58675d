package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/tensors"
)

// hmcPrefix is the prefix of the attributes that are interfaces of an object.
const hmcPrefix = "user.hmc."

// The attributes of an object.
const (
	xattrDevice   = hmcPrefix + "device"
	xattrResident = hmcPrefix + "resident"
	xattrState    = hmcPrefix + "state"
	xattrPath     = hmcPrefix + "path"
	xattrKey      = hmcPrefix + "key"
	XattrTTL      = hmcPrefix + "ttl"
	xattrDtype    = hmcPrefix + "dtype"
	xattrShape    = hmcPrefix + "shape"
	xattrBlobs    = hmcPrefix + "blobs"
)

// The attributes for memory shared with other processes: Bind and Export as attributes.
// They are not listed, so that a program that copies all attributes binds and exports
// nothing.
const (
	XattrBind   = hmcPrefix + "bind"
	XattrHandle = hmcPrefix + "handle"
)

// computedXattrs returns the attributes that are computed rather than stored; one with an empty
// value does not exist.
func (s *Store) computedXattrs(a Attr) []struct{ name, value string } {
	return []struct{ name, value string }{
		{xattrDevice, string(a.Device)},
		{xattrResident, strconv.FormatUint(a.Resident, 10)},
		{xattrState, string(a.State)},
		{xattrPath, a.Path},
		{xattrKey, a.Key},
		{XattrTTL, s.ttlText(a.Inode)},
	}
}

// GetXattr reads an extended attribute by its full name.
func (s *Store) GetXattr(ctx context.Context, ino Ino, name string) ([]byte, error) {
	if !strings.HasPrefix(name, hmcPrefix) {
		return s.attrs.getXattr(ctx, ino, name)
	}
	a, err := s.attrs.get(ctx, ino)
	if err != nil {
		return nil, err
	}
	if !a.IsRegular() {
		return nil, fmt.Errorf("attribute %s of inode %d: %w", name, ino, metadata.ErrNoXattr)
	}
	for _, t := range s.computedXattrs(a) {
		if t.name == name && t.value != "" {
			return []byte(t.value), nil
		}
	}
	switch name {
	case xattrDtype, xattrShape, xattrBlobs:
		return s.headers.tensorXattr(ctx, a, name)
	case XattrBind:
		return s.bindings.boundTo(ctx, a)
	case XattrHandle:
		return nil, fmt.Errorf("read %s without a caller: %w", name, ErrForbidden)
	}
	return nil, fmt.Errorf("attribute %s of inode %d: %w", name, ino, metadata.ErrNoXattr)
}

// tensorXattr returns a description of the bytes that was set, or is in the file's
// header. A description that no longer fits the object's size does not exist.
func (h *headers) tensorXattr(ctx context.Context, a Attr, name string) ([]byte, error) {
	value, err := h.attrs.getXattr(ctx, a.Ino, name)
	if err == nil && name != xattrDtype {
		if err = h.checkTensor(ctx, a, name, string(value)); errors.Is(err, ErrInvalid) {
			err = fmt.Errorf("attribute %s does not fit the current size: %w", name, metadata.ErrNoXattr)
		}
	}
	if errors.Is(err, metadata.ErrNoXattr) {
		if told, ok := h.headerXattr(ctx, a, name); ok {
			return []byte(told), nil
		}
	}
	if err != nil {
		return nil, err
	}
	return value, nil
}

// forgetTensor removes the descriptions of bytes that no longer exist.
func (h *headers) forgetTensor(ctx context.Context, ino Ino) error {
	names, err := h.attrs.listXattr(ctx, ino)
	if err != nil {
		return err
	}
	for _, name := range names {
		if name != xattrDtype && name != xattrShape && name != xattrBlobs {
			continue
		}
		if err := h.attrs.removeXattr(ctx, ino, name); err != nil && !errors.Is(err, metadata.ErrNoXattr) {
			return err
		}
	}
	return nil
}

// SetXattr sets an extended attribute.
func (s *Store) SetXattr(ctx context.Context, ino Ino, name string, value []byte, flags metadata.XattrFlags) error {
	if !strings.HasPrefix(name, hmcPrefix) {
		return s.attrs.setXattr(ctx, ino, name, value, flags)
	}
	a, err := s.attrs.get(ctx, ino)
	if err != nil {
		return err
	}
	if !a.IsRegular() {
		return fmt.Errorf("attribute %s of inode %d: %w", name, ino, ErrUnsupported)
	}
	switch name {
	case xattrKey:
		return s.setKey(ctx, carrier{Inode: a.Inode}, string(value), flags)
	case xattrDtype, xattrShape, xattrBlobs:
		if err := s.headers.checkTensor(ctx, a, name, string(value)); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
		if _, told := s.headers.headerXattr(ctx, a, name); told {
			flags &^= metadata.XattrReplace // the value from the header exists
		}
		return s.attrs.setXattr(ctx, ino, name, value, flags)
	case xattrDevice, xattrResident, xattrState, xattrPath, XattrHandle:
		return fmt.Errorf("set %s: %w", name, ErrReadOnly)
	case XattrBind, XattrTTL:
		return fmt.Errorf("set %s without a caller: %w", name, ErrForbidden)
	}
	return fmt.Errorf("set %s, which is not an attribute of hmcfs: %w", name, ErrUnsupported)
}

func (s *Store) setKey(ctx context.Context, in carrier, key string, flags metadata.XattrFlags) error {
	switch {
	case flags&metadata.XattrCreate != 0 && in.Key != "":
		return fmt.Errorf("set %s: %w", xattrKey, metadata.ErrExist)
	case flags&metadata.XattrReplace != 0 && in.Key == "":
		return fmt.Errorf("set %s: %w", xattrKey, metadata.ErrNoXattr)
	case key == "":
		return fmt.Errorf("set %s to an empty value: %w", xattrKey, metadata.ErrInvalidKey)
	}
	err := metadata.ValidKey(key)
	if err == nil {
		err = s.keyed.claimAndGive(ctx, in, key)
	}
	if err != nil {
		return fmt.Errorf("set %s to %q: %w", xattrKey, key, err)
	}
	return nil
}

// checkTensor checks that dtype, shape and blobs are consistent: the new value with the
// present ones.
func (h *headers) checkTensor(ctx context.Context, a Attr, name, value string) error {
	switch name {
	case xattrBlobs:
		return checkBlobs(value, a.Size)
	case xattrShape:
		dtype, err := h.attrs.textXattr(ctx, a.Ino, xattrDtype)
		if err != nil {
			return err
		}
		return checkShape(value, dtype, h.tensorSize(ctx, a))
	}
	if err := checkDtype(value); err != nil {
		return err
	}
	shape, err := h.attrs.getXattr(ctx, a.Ino, xattrShape)
	if err == nil {
		err = h.checkTensor(ctx, a, xattrShape, string(shape))
	}
	if errors.Is(err, metadata.ErrNoXattr) || errors.Is(err, ErrInvalid) {
		return nil // no shape is set, or it fits no longer
	}
	if err != nil {
		return err
	}
	return checkShape(string(shape), value, h.tensorSize(ctx, a))
}

// textXattr returns the value of an attribute; "" if it does not exist.
func (as *attributes) textXattr(ctx context.Context, ino Ino, name string) (string, error) {
	value, err := as.getXattr(ctx, ino, name)
	if errors.Is(err, metadata.ErrNoXattr) {
		return "", nil
	}
	return string(value), err
}

// ListXattr lists the names of the attributes that were set. Programs use the list to
// copy all attributes and to compare two files; the attributes that hmcfs computes
// would differ there, and can't be set.
func (s *Store) ListXattr(ctx context.Context, ino Ino) ([]string, error) {
	a, err := s.attrs.get(ctx, ino)
	if err != nil {
		return nil, err
	}
	names, err := s.attrs.listXattr(ctx, ino)
	if err != nil || !a.IsRegular() {
		return names, err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		if name != xattrShape && name != xattrBlobs {
			return false
		}
		value, err := s.attrs.getXattr(ctx, ino, name)
		return err == nil && errors.Is(s.headers.checkTensor(ctx, a, name, string(value)), ErrInvalid)
	})
	if a.Key != "" {
		names = append(names, xattrKey)
	}
	if s.ttlText(a.Inode) != "" {
		names = append(names, XattrTTL)
	}
	slices.Sort(names)
	return names, nil
}

// RemoveXattr removes an extended attribute.
func (s *Store) RemoveXattr(ctx context.Context, ino Ino, name string) error {
	switch name {
	case xattrKey:
		a, err := s.attrs.get(ctx, ino)
		if err != nil {
			return err
		}
		if a.Key == "" {
			return fmt.Errorf("remove %s: %w", name, metadata.ErrNoXattr)
		}
		return s.keyed.takeKey(context.WithoutCancel(ctx), carrier{Inode: a.Inode})
	case XattrTTL:
		return s.keyed.removeTTL(ctx, ino)
	case xattrDevice, xattrResident, xattrState, xattrPath, XattrBind:
		return fmt.Errorf("remove %s: %w", name, ErrReadOnly)
	case XattrHandle:
		return s.EndExport(ctx, ino)
	}
	err := s.attrs.removeXattr(ctx, ino, name)
	if errors.Is(err, metadata.ErrNoXattr) && s.headers.isComputed(ctx, ino, name) {
		return fmt.Errorf("remove %s, which comes from the file's header: %w", name, ErrReadOnly)
	}
	return err
}

// Keys lists the keys after the key after, in order.
func (s *Store) Keys(ctx context.Context, after string, limit int) ([]metadata.KeyEntry, error) {
	return s.meta.Keys(ctx, after, limit)
}

// Key returns the inode that carries the key, or whose tensor does.
func (s *Store) Key(ctx context.Context, key string) (metadata.KeyEntry, error) {
	return s.meta.Key(ctx, key)
}

// KeyPath returns the path, from the root of the mount, of the object or the tensor that
// carries the key ("sim0/a/b", "sim0/m.safetensors.tensors/wte.npy").
func (s *Store) KeyPath(ctx context.Context, key string) (string, error) {
	in, err := s.index.holder(ctx, key)
	if err != nil {
		return "", err
	}
	path, err := s.meta.PathOf(ctx, in.Ino)
	if err == nil && in.tensor != "" {
		path += tensors.ViewSuffix + "/" + tensors.PathOf(in.Name, in.tensor)
	}
	return path, err
}
