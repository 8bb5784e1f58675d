package fs

import (
	"fmt"
	"slices"

	"github.com/hmcfs/hmcfs/metadata"
)

// The attributes that a tensor has: two of its own, and those of its file
// that hold for it too.
const (
	dtypeXattr = "user.hmc.dtype"
	shapeXattr = "user.hmc.shape"
)

func fileXattrs() []string {
	return []string{"user.hmc.device", "user.hmc.path", "user.hmc.state"}
}

// viewXattr reads an attribute of a node.
func (f *filesystem) viewXattr(id metadata.Ino, name string) ([]byte, error) {
	n, err := f.views.get(id)
	if err != nil {
		return nil, err
	}
	if err = f.views.check(background(), n); err != nil {
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

// viewXattrs lists the attributes of a node that a copy of it keeps.
func (f *filesystem) viewXattrs(id metadata.Ino) ([]string, error) {
	n, err := f.views.get(id)
	if err != nil || n.tensor == nil {
		return nil, err
	}
	return []string{dtypeXattr, shapeXattr}, nil
}
