package metadata_test

import "github.com/hmcfs/hmcfs/metadata"

// modelNode is an inode of the model: a plain tree of pointers.
type modelNode struct {
	in       metadata.Inode // Parent, Name and Gen are not kept
	children map[string]*modelNode
	parent   *modelNode // of a directory
	xattrs   map[string]string
	maps     []metadata.Mapping
}

// model is the namespace as specified by POSIX, written as simply as possible and sharing
// nothing with the store.
type model struct {
	root    *modelNode
	publish *modelNode                  // not among the root's children
	nodes   map[metadata.Ino]*modelNode // those that have links
	now     metadata.Timespec
}

func newModel() *model {
	m := &model{nodes: map[metadata.Ino]*modelNode{}}
	m.root = &modelNode{children: map[string]*modelNode{}, xattrs: map[string]string{}}
	m.root.in = metadata.Inode{Ino: metadata.RootIno, Mode: metadata.TypeDir | 0o755, Nlink: 2}
	m.nodes[metadata.RootIno] = m.root
	m.publish = &modelNode{children: map[string]*modelNode{}, xattrs: map[string]string{}, parent: m.root}
	m.publish.in = metadata.Inode{Ino: metadata.PublishIno, Mode: metadata.TypeDir | 0o755, Nlink: 2}
	m.nodes[metadata.PublishIno] = m.publish
	return m
}

// begin sets the times of the directories that always exist.
func (m *model) begin(now metadata.Timespec) {
	m.now = now
	for _, n := range []*modelNode{m.root, m.publish} {
		n.in.Atime, n.in.Btime = now, now
		m.touch(n)
	}
}

func (m *model) addDevice(in metadata.Inode) {
	n := &modelNode{in: in, children: map[string]*modelNode{}, xattrs: map[string]string{}, parent: m.root}
	m.enter(m.root, string(in.Device), n)
	m.nodes[in.Ino] = n
}

// dir finds a directory.
func (m *model) dir(ino metadata.Ino) (*modelNode, error) {
	n := m.nodes[ino]
	switch {
	case n == nil:
		return nil, metadata.ErrNotExist
	case n.children == nil:
		return nil, metadata.ErrNotDir
	}
	return n, nil
}

func (m *model) node(ino metadata.Ino) (*modelNode, error) {
	if n := m.nodes[ino]; n != nil {
		return n, nil
	}
	return nil, metadata.ErrNotExist
}

func (m *model) touch(dir *modelNode) {
	dir.in.Mtime, dir.in.Ctime = m.now, m.now
}

func (m *model) enter(dir *modelNode, name string, n *modelNode) {
	dir.children[name] = n
	dir.in.Size = uint64(len(dir.children))
	if n.children != nil {
		dir.in.Nlink++
		n.parent = dir
	}
	m.touch(dir)
}

func (m *model) leave(dir *modelNode, name string) {
	n := dir.children[name]
	delete(dir.children, name)
	dir.in.Size = uint64(len(dir.children))
	if n.children != nil {
		dir.in.Nlink--
	}
	m.touch(dir)
}

// drop removes one link of a node.
func (m *model) drop(n *modelNode) {
	n.in.Ctime = m.now
	if n.in.Nlink--; n.in.Nlink == 0 || n.children != nil {
		n.in.Nlink = 0
		delete(m.nodes, n.in.Ino)
	}
}

func (m *model) create(parent metadata.Ino, name string, node metadata.Node, ino metadata.Ino) error {
	dir, err := m.dir(parent)
	switch {
	case err != nil:
		return err
	case dir.children[name] != nil:
		return metadata.ErrExist
	case dir == m.root || dir == m.publish:
		return metadata.ErrPermission
	}
	m.enter(dir, name, m.made(dir, node, ino))
	return nil
}

// made returns a new node that has no name yet.
func (m *model) made(dir *modelNode, node metadata.Node, ino metadata.Ino) *modelNode {
	n := &modelNode{xattrs: map[string]string{}}
	n.in = metadata.Inode{
		Ino: ino, Mode: node.Mode, UID: node.UID, GID: node.GID, Nlink: 1, Rdev: node.Rdev,
		Target: node.Target, Size: uint64(len(node.Target)), Device: dir.in.Device,
		Atime: m.now, Mtime: m.now, Ctime: m.now, Btime: m.now,
	}
	if node.Mode.Type() == metadata.TypeDir {
		n.children = map[string]*modelNode{}
		n.in.Nlink = 2
	}
	if dir.in.Mode&metadata.ModeSetGID != 0 {
		n.in.GID = dir.in.GID
		if n.children != nil {
			n.in.Mode |= metadata.ModeSetGID
		}
	}
	m.nodes[ino] = n
	return n
}

func (m *model) link(ino, parent metadata.Ino, name string) error {
	n, err := m.node(ino)
	if err != nil {
		return err
	}
	dir, err := m.dir(parent)
	switch {
	case err != nil:
		return err
	case dir.children[name] != nil:
		return metadata.ErrExist
	case n.children != nil:
		return metadata.ErrIsDir
	case dir == m.publish || m.published(n):
		return metadata.ErrPermission
	case n.in.Device != dir.in.Device:
		return metadata.ErrCrossDevice
	}
	n.in.Nlink++
	n.in.Ctime = m.now
	m.enter(dir, name, n)
	return nil
}

func (m *model) remove(parent metadata.Ino, name string, isDir bool) error {
	dir, err := m.dir(parent)
	if err != nil {
		return err
	}
	n := dir.children[name]
	switch {
	case n == nil:
		return metadata.ErrNotExist
	case isDir && n.children == nil:
		return metadata.ErrNotDir
	case isDir && dir == m.root:
		return metadata.ErrPermission
	case isDir && len(n.children) > 0:
		return metadata.ErrNotEmpty
	case !isDir && n.children != nil:
		return metadata.ErrIsDir
	}
	m.leave(dir, name)
	m.drop(n)
	return nil
}

// within reports whether dir is n or below it.
func within(n, dir *modelNode) bool {
	for ; dir != nil; dir = dir.parent {
		if dir == n {
			return true
		}
	}
	return false
}

// rename is Rename, or MoveDevice if to is not nil.
func (m *model) rename(r metadata.Rename, to *metadata.DeviceName, epoch metadata.Epoch, mapped []metadata.Mapping) error {
	from, err := m.dir(r.From)
	if err != nil {
		return err
	}
	target, err := m.dir(r.To)
	if err != nil {
		return err
	}
	src, dst := from.children[r.Name], target.children[r.NewName]
	if src == nil {
		return metadata.ErrNotExist
	}
	if src == dst {
		if r.Flags == metadata.NoReplace {
			return metadata.ErrExist
		}
		return nil
	}
	if err := m.permit(r, src, dst, from, target); err != nil {
		return err
	}
	if err := m.crossing(r, to, src, target); err != nil {
		return err
	}
	if to != nil {
		src.in.Device, src.in.Epoch, src.in.Bound = *to, epoch, metadata.Unbound
		src.setMaps(mapped)
		src.in.Allocated = 0
		for _, mp := range mapped {
			src.in.Allocated += mp.Len
		}
	}
	m.moveName(r, src, dst, from, target)
	return nil
}

// moveName changes the names of a rename that is permitted.
func (m *model) moveName(r metadata.Rename, src, dst, from, target *modelNode) {
	m.leave(from, r.Name)
	if dst != nil {
		m.leave(target, r.NewName)
	}
	m.enter(target, r.NewName, src)
	src.in.Ctime = m.now
	switch {
	case r.Flags == metadata.Exchange:
		m.enter(from, r.Name, dst)
		dst.in.Ctime = m.now
	case dst != nil:
		m.drop(dst)
	}
}

// crossing applies the rules about devices and about publish/.
func (m *model) crossing(r metadata.Rename, to *metadata.DeviceName, src, target *modelNode) error {
	if err := m.permitPublish(r, src); err != nil {
		return err
	}
	switch {
	case to == nil && src.in.Device != target.in.Device:
		return metadata.ErrCrossDevice
	case to != nil && target.in.Device != *to:
		return metadata.ErrInvalid
	case to != nil && src.children != nil:
		return metadata.ErrIsDir
	case to != nil && src.in.Nlink > 1:
		return metadata.ErrTooManyLinks
	}
	return nil
}

func (m *model) permit(r metadata.Rename, src, dst, from, to *modelNode) error {
	switch {
	case r.Flags == metadata.NoReplace && dst != nil:
		return metadata.ErrExist
	case r.Flags == metadata.Exchange && dst == nil:
		return metadata.ErrNotExist
	case from == m.root || to == m.root:
		return metadata.ErrPermission
	case within(src, to):
		return metadata.ErrInvalid
	case dst == nil:
		return nil
	case r.Flags == metadata.Exchange:
		if within(dst, from) {
			return metadata.ErrInvalid
		}
		return nil
	case src.children != nil && dst.children == nil:
		return metadata.ErrNotDir
	case src.children == nil && dst.children != nil:
		return metadata.ErrIsDir
	case len(dst.children) > 0:
		return metadata.ErrNotEmpty
	}
	return nil
}
