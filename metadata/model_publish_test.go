package metadata_test

import (
	"cmp"
	"slices"

	"github.com/hmcfs/hmcfs/metadata"
)

// published reports whether a node is in publish/.
func (m *model) published(n *modelNode) bool {
	for _, c := range m.publish.children {
		if c == n {
			return true
		}
	}
	return false
}

// permitPublish returns nil if a rename moves a name out of publish/, or does not involve
// it.
func (m *model) permitPublish(r metadata.Rename, src *modelNode) error {
	const publish = metadata.PublishIno
	switch {
	case r.Flags == metadata.Exchange && (r.From == publish || r.To == publish):
		return metadata.ErrInvalid
	case r.To == publish:
		return metadata.ErrPermission
	case src.in.Taken:
		return metadata.ErrNotExist
	}
	return nil
}

func (m *model) publishFile(parent metadata.Ino, name, newName string) error {
	from, err := m.dir(parent)
	if err != nil {
		return err
	}
	src := from.children[name]
	switch {
	case src == nil:
		return metadata.ErrNotExist
	case m.publish.children[newName] != nil:
		return metadata.ErrExist
	case from == m.root || from == m.publish:
		return metadata.ErrPermission
	case src.children != nil:
		return metadata.ErrIsDir
	case src.in.Mode.Type() != metadata.TypeRegular:
		return metadata.ErrInvalid
	case src.in.Nlink > 1:
		return metadata.ErrTooManyLinks
	}
	src.in.Key = ""
	m.moveName(metadata.Rename{Name: name, NewName: newName}, src, nil, from, m.publish)
	return nil
}

func (m *model) take(ino metadata.Ino) error {
	n, err := m.node(ino)
	if err != nil || !m.published(n) || n.in.Taken {
		return metadata.ErrNotExist
	}
	n.in.Taken = true
	return nil
}

func (m *model) expire(ino metadata.Ino, at metadata.Timespec) error {
	n, err := m.node(ino)
	if err != nil {
		return err
	}
	if n.in.Mode.Type() != metadata.TypeRegular {
		return metadata.ErrInvalid
	}
	n.in.Expires, n.in.Ctime = at, m.now
	return nil
}

// ending lists all nodes with an expiry time, in order of that.
func (m *model) ending() []metadata.Inode {
	var out []metadata.Inode
	for _, n := range m.nodes {
		if n.in.Expires != (metadata.Timespec{}) {
			out = append(out, n.in)
		}
	}
	slices.SortFunc(out, func(a, b metadata.Inode) int {
		return cmp.Or(cmp.Compare(a.Expires.Sec, b.Expires.Sec), cmp.Compare(a.Expires.Nsec, b.Expires.Nsec),
			cmp.Compare(a.Ino, b.Ino))
	})
	return out
}

// put creates one file of Put in a directory.
func (m *model) put(dir *modelNode, f *metadata.NewFile) (replaced, unkeyed metadata.Ino, err error) {
	old, owner := dir.children[f.Name], metadata.Ino(0)
	if f.Key != "" {
		owner = m.keys()[f.Key]
	}
	switch {
	case dir == m.publish && f.Device == "":
		return 0, 0, metadata.ErrInvalid
	case dir == m.publish && f.Key != "":
		return 0, 0, metadata.ErrPermission
	case dir != m.publish && f.Device != "" && f.Device != dir.in.Device:
		return 0, 0, metadata.ErrCrossDevice
	case old != nil && !f.Replace:
		return 0, 0, metadata.ErrExist
	case old != nil && old.children != nil:
		return 0, 0, metadata.ErrIsDir
	case owner != 0 && !f.Replace:
		return 0, 0, metadata.ErrExist
	}
	n := m.made(dir, f.Node, f.Ino)
	if f.Device != "" {
		n.in.Device = f.Device
	}
	if old != nil {
		replaced = old.in.Ino
		m.leave(dir, f.Name)
		m.drop(old)
	}
	if carrier := m.nodes[owner]; carrier != nil {
		carrier.in.Key, carrier.in.Ctime, unkeyed = "", m.now, owner
	}
	m.enter(dir, f.Name, n)
	n.in.Key, n.in.Size, n.in.Allocated, n.in.Epoch, n.in.Path = f.Key, f.Size, f.Allocated, f.Epoch, f.Path
	n.in.Expires = f.Expires
	if f.Fleeting || f.Binding != nil {
		n.in.Bound = metadata.BoundLive
	}
	for name, value := range f.Xattrs {
		n.xattrs[name] = string(value)
	}
	n.setMaps(f.Maps)
	return replaced, unkeyed, nil
}
