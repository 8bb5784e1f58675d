package fs

import (
	"fmt"
	"slices"

	"github.com/hmcfs/hmcfs/metadata"
)

// The attributes of a tensor: two of its own, and those of its file that apply to it too.
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
	return []string{dtypeXattr, shapeXattr}, nil
}
