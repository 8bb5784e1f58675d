package fs

import (
	"fmt"
	"slices"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// The attributes of a tensor: three of its own, and those of its file that apply to it too.
const (
	dtypeXattr = "user.hmc.dtype"
	shapeXattr = "user.hmc.shape"
)

func fileXattrs() []string {
	return []string{"user.hmc.device", "user.hmc.path", "user.hmc.state"}
}

func (v viewInode) xattr(name string) ([]byte, error) {
	f := v.fs
	n, err := f.views.checked(v.ino)
	if err != nil {
		return nil, err
	}
	if n.tensor != nil {
		switch name {
		case dtypeXattr:
			return []byte(n.tensor.Type.Name), nil
		case shapeXattr:
			return []byte(n.tensor.ShapeText()), nil
		case keyXattr:
			return f.views.key(n)
		}
		if slices.Contains(fileXattrs(), name) {
			return f.store.GetXattr(background(), n.file, name)
		}
	}
	return nil, fmt.Errorf("attribute %s of a view: %w", name, metadata.ErrNoXattr)
}

// xattrs returns the attributes that a copy of the tensor should keep.
func (v viewInode) xattrs() ([]string, error) {
	n, err := v.fs.views.get(v.ino)
	if err != nil || n.tensor == nil {
		return nil, err
	}
	names := []string{dtypeXattr, shapeXattr}
	if key, err := v.fs.views.key(n); err == nil && len(key) > 0 {
		names = append(names, keyXattr)
	}
	return names, nil
}

// key returns the key of a tensor.
//
// Errors: ENODATA.
func (v *views) key(n *viewNode) ([]byte, error) {
	key, err := v.store.TensorKey(background(), n.file, n.path)
	if err == nil && key == "" {
		err = fmt.Errorf("key of tensor %s: %w", n.path, metadata.ErrNoXattr)
	}
	return []byte(key), err
}

// changeKey gives a tensor a key, or with a nil value takes it away: the only change of a
// view that is possible. It does nothing for any other change.
func (v *views) changeKey(ino metadata.Ino, x *objects.Xattr) (done bool, err error) {
	if !isView(ino) || x.Name != keyXattr {
		return false, nil
	}
	n, err := v.checked(ino)
	switch {
	case err != nil:
		return true, err
	case n.tensor == nil:
		return false, nil
	case x.Value == nil:
		return true, v.store.RemoveTensorKey(background(), n.file, n.path)
	}
	return true, v.store.SetTensorKey(background(), n.file, n.path, string(x.Value), x.Flags)
}
