package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
)

// Mesh is the tree of a mount: the store of this node and the trees of all other nodes. It
// numbers their inodes, passes each call to the inode's owner, and refuses operations that
// span two nodes.
//
// If an owner does not answer, operations on names return ErrUnreachable; see Node for the
// other errors. Links and renames between nodes return metadata.ErrCrossDevice.
type Mesh struct {
	local   objects.Local
	cluster *Cluster // nil where there are no other nodes
	others  incarnations
	later   later
	born    metadata.Timespec
}

var _ objects.Tree = (*Mesh)(nil)

// NewMesh returns the tree of a mount. cluster is nil for a single node.
func NewMesh(store *objects.Store, cluster *Cluster) *Mesh {
	return &Mesh{local: objects.Local{Store: store}, cluster: cluster, born: metadata.TimespecOf(time.Now())}
}

// Locate returns the node that has an inode, and the inode's number there; nil for an
// inode of this node.
//
// Errors: ErrStale.
func (m *Mesh) Locate(ino objects.Ino) (*Node, objects.Ino, error) {
	if !OfAnotherNode(ino) {
		return nil, ino, nil
	}
	p, err := m.others.find(ino)
	if err != nil {
		return nil, 0, err
	}
	return p.Node, p.ino, nil
}

// Reference adds references to an inode, which exists as long as it has any.
func (m *Mesh) Reference(ino objects.Ino, n uint64) {
	if OfAnotherNode(ino) {
		m.others.refer(ino, int64(n))
		return
	}
	m.local.Reference(ino, n)
}

// Forget drops references. last is true for the last one to an inode of this node.
func (m *Mesh) Forget(ino objects.Ino, n uint64) (last bool) {
	if OfAnotherNode(ino) {
		m.others.refer(ino, -int64(n))
		return false
	}
	return m.local.Forget(ino, n)
}

// NodeAttr finds another node by its name, and returns the attributes of its directory without
// sending a request. It counts no reference.
//
// Errors: ErrNoNode, ErrStale, ENFILE.
func (m *Mesh) NodeAttr(ctx context.Context, name members.Name) (objects.Attr, error) {
	n, err := m.named(name)
	if err != nil {
		return objects.Attr{}, err
	}
	return m.topAttr(ctx, n)
}

// NodeIno returns the number of another node's directory, whether the node is present or not.
//
// Errors: ErrNoNode, ENFILE.
func (m *Mesh) NodeIno(name members.Name) (objects.Ino, error) {
	n, err := m.named(name)
	if err != nil {
		return 0, err
	}
	return n.number(metadata.RootIno), nil
}

func (m *Mesh) named(name members.Name) (*incarnation, error) {
	node, err := m.cluster.Node(name)
	if err != nil {
		return nil, err
	}
	return m.others.of(node)
}

// topAttr returns the attributes of a node's directory.
//
// Errors: ErrStale.
func (m *Mesh) topAttr(ctx context.Context, n *incarnation) (objects.Attr, error) {
	r := n.Record()
	if n.Gone() {
		return objects.Attr{}, fmt.Errorf("node %s: %w", r.Name, ErrStale)
	}
	root, err := m.local.Store.Attr(ctx, metadata.RootIno)
	if err != nil {
		return objects.Attr{}, err
	}
	return objects.Attr{State: objects.StateLive, Inode: metadata.Inode{
		Ino: n.number(metadata.RootIno), Gen: n.gen,
		Mode: metadata.TypeDir | 0o555, Nlink: 2 + uint32(len(r.Devices)),
		UID: root.UID, GID: root.GID, Parent: NodesIno,
		Atime: m.born, Mtime: m.born, Ctime: m.born, Btime: m.born,
	}}, nil
}

// Lookup finds a name; see objects.Names. The names of devices never expire.
func (m *Mesh) Lookup(ctx context.Context, who objects.Caller, dir objects.Ino, name string) (objects.Attr, error) {
	if !OfAnotherNode(dir) {
		return m.local.Lookup(ctx, who, dir, name)
	}
	p, err := m.others.find(dir)
	if err == nil && len(name) > metadata.MaxName {
		err = metadata.ErrNameTooLong
	}
	if err != nil {
		return objects.Attr{}, err
	}
	a, err := p.adopt(p.Lookup(ctx, who, p.ino, name))
	if p.isTop() {
		a.KeepName = 0
	}
	return a, err
}

// Attr returns an inode; see objects.Inodes.
func (m *Mesh) Attr(ctx context.Context, who objects.Caller, ino objects.Ino) (objects.Attr, error) {
	if !OfAnotherNode(ino) {
		return m.local.Attr(ctx, who, ino)
	}
	p, err := m.others.find(ino)
	switch {
	case err != nil:
		return objects.Attr{}, err
	case p.isTop():
		return m.topAttr(ctx, p.incarnation)
	}
	return p.adopt(p.Attr(ctx, who, p.ino))
}

// below resolves an inode of another node for a change.
//
// Errors: ErrStale; metadata.ErrPermission for the directory of a node, whose entries
// are the devices.
func (m *Mesh) below(ino objects.Ino) (place, error) {
	p, err := m.others.find(ino)
	if err == nil && p.isTop() {
		err = fmt.Errorf("can't change directory %s, which lists the nodes: %w", p.name, metadata.ErrPermission)
	}
	return p, err
}

// SetAttr changes attributes; see objects.Inodes.
func (m *Mesh) SetAttr(ctx context.Context, who objects.Caller, ino objects.Ino, c objects.Change, by objects.OpenFile) (objects.Attr, error) {
	if !OfAnotherNode(ino) {
		return m.local.SetAttr(ctx, who, ino, c, by)
	}
	p, err := m.below(ino)
	if err != nil {
		return objects.Attr{}, err
	}
	var writer *File
	if f, ok := by.(*meshFile); ok {
		writer = f.File
	}
	return p.adopt(p.SetAttr(ctx, who, p.ino, c, writer))
}

// Create makes an inode; see objects.Names.
func (m *Mesh) Create(ctx context.Context, who objects.Caller, dir objects.Ino, name string, n metadata.Node) (objects.Attr, error) {
	if !OfAnotherNode(dir) {
		return m.local.Create(ctx, who, dir, name, n)
	}
	p, err := m.below(dir)
	if err != nil {
		return objects.Attr{}, err
	}
	return p.adopt(p.Create(ctx, who, p.ino, name, n))
}

// Link adds a name; see objects.Names.
func (m *Mesh) Link(ctx context.Context, who objects.Caller, ino, dir objects.Ino, name string) (objects.Attr, error) {
	if !OfAnotherNode(dir) && !OfAnotherNode(ino) {
		return m.local.Link(ctx, who, ino, dir, name)
	}
	to, what, err := m.both(dir, ino)
	if err != nil {
		return objects.Attr{}, err
	}
	return to.adopt(to.Link(ctx, who, what.ino, to.ino, name))
}

// both resolves a directory and another inode, at least one of which belongs to another node.
//
// Errors: metadata.ErrCrossDevice where they are of two nodes; those of below.
func (m *Mesh) both(dir, other objects.Ino) (to, what place, err error) {
	if !OfAnotherNode(dir) || !OfAnotherNode(other) {
		return to, what, errApart()
	}
	if to, err = m.below(dir); err == nil {
		what, err = m.others.find(other)
	}
	switch {
	case err != nil:
	case what.incarnation != to.incarnation:
		err = errApart()
	case what.isTop():
		_, err = m.below(other)
	}
	return to, what, err
}

func errApart() error {
	return fmt.Errorf("the files belong to two nodes: %w", metadata.ErrCrossDevice)
}

// Unlink removes a name; see objects.Names.
func (m *Mesh) Unlink(ctx context.Context, who objects.Caller, dir objects.Ino, name string) error {
	if !OfAnotherNode(dir) {
		return m.local.Unlink(ctx, who, dir, name)
	}
	p, err := m.below(dir)
	if err != nil {
		return err
	}
	return p.Unlink(ctx, who, p.ino, name)
}

// Rmdir removes an empty directory; see objects.Names.
func (m *Mesh) Rmdir(ctx context.Context, who objects.Caller, dir objects.Ino, name string) error {
	if !OfAnotherNode(dir) {
		return m.local.Rmdir(ctx, who, dir, name)
	}
	p, err := m.below(dir)
	if err != nil {
		return err
	}
	return p.Rmdir(ctx, who, p.ino, name)
}

// Rename moves a name; see objects.Names. Between nodes it returns metadata.ErrCrossDevice, on
// which mv copies. Into publish/ it returns objects.ErrUnsupported: on ErrCrossDevice mv would
// remove an existing target, and then could not create the new one; publish and subscribe
// serve that purpose.
func (m *Mesh) Rename(ctx context.Context, who objects.Caller, r metadata.Rename) (objects.Ino, error) {
	if r.To == metadata.PublishIno && OfAnotherNode(r.From) {
		return 0, fmt.Errorf("can't publish a file of another node: %w", objects.ErrUnsupported)
	}
	if !OfAnotherNode(r.From) && !OfAnotherNode(r.To) {
		return m.local.Rename(ctx, who, r)
	}
	to, from, err := m.both(r.To, r.From)
	if err != nil {
		return 0, err
	}
	r.From, r.To = from.ino, to.ino
	return 0, to.Rename(ctx, who, r)
}

// StatFS returns the use of devices; see objects.Inodes. For the directory of a node it is the
// use of all of its devices.
func (m *Mesh) StatFS(ctx context.Context, who objects.Caller, ino objects.Ino) (devices.Usage, error) {
	if !OfAnotherNode(ino) {
		return m.local.StatFS(ctx, who, ino)
	}
	p, err := m.others.find(ino)
	if err != nil {
		return devices.Usage{}, err
	}
	return p.StatFS(ctx, who, p.ino)
}

// isOfMachine reports whether an attribute has no meaning on another machine: it passes memory
// between processes, or belongs to the security rules of the machine whose kernel asks, as it
// does for every file that ls lists.
func isOfMachine(name string) bool {
	return name == objects.XattrHandle || name == objects.XattrBind || strings.HasPrefix(name, "security.")
}

// GetXattr reads an extended attribute; see objects.Inodes.
func (m *Mesh) GetXattr(ctx context.Context, who objects.Caller, ino objects.Ino, name string) ([]byte, error) {
	if !OfAnotherNode(ino) {
		return m.local.GetXattr(ctx, who, ino, name)
	}
	p, err := m.others.find(ino)
	switch {
	case err != nil:
		return nil, err
	case p.isTop():
		return nil, metadata.ErrNoXattr
	case name == objects.XattrHandle:
		return nil, fmt.Errorf("memory of another node can't be exported here: %w", objects.ErrUnsupported)
	case isOfMachine(name):
		return nil, metadata.ErrNoXattr
	}
	return p.GetXattr(ctx, who, p.ino, name)
}

// ListXattr lists extended attributes; see objects.Inodes.
func (m *Mesh) ListXattr(ctx context.Context, who objects.Caller, ino objects.Ino) ([]string, error) {
	if !OfAnotherNode(ino) {
		return m.local.ListXattr(ctx, who, ino)
	}
	p, err := m.others.find(ino)
	if err != nil || p.isTop() {
		return nil, err
	}
	return p.ListXattr(ctx, who, p.ino)
}

// SetXattr sets an extended attribute; see objects.Inodes.
func (m *Mesh) SetXattr(ctx context.Context, who objects.Caller, ino objects.Ino, x objects.Xattr) error {
	if !OfAnotherNode(ino) {
		return m.local.SetXattr(ctx, who, ino, x)
	}
	p, err := m.changeable(ino, x.Name)
	if err != nil {
		return err
	}
	return p.SetXattr(ctx, who, p.ino, x)
}

// RemoveXattr removes an extended attribute; see objects.Inodes.
func (m *Mesh) RemoveXattr(ctx context.Context, who objects.Caller, ino objects.Ino, name string) error {
	if !OfAnotherNode(ino) {
		return m.local.RemoveXattr(ctx, who, ino, name)
	}
	p, err := m.changeable(ino, name)
	if err != nil {
		return err
	}
	return p.RemoveXattr(ctx, who, p.ino, name)
}

// changeable resolves an inode for a change of an attribute.
func (m *Mesh) changeable(ino objects.Ino, name string) (place, error) {
	p, err := m.below(ino)
	if err == nil && isOfMachine(name) {
		err = fmt.Errorf("attribute %q is not available for a file of another node: %w", name, objects.ErrUnsupported)
	}
	return p, err
}

// OpenDir opens a directory; see objects.Names. It requests the first entries from another
// node at once: on ErrStale from opening, for instance after another incarnation has come, the
// kernel repeats the lookup of the name, but on ErrStale from reading it does not.
func (m *Mesh) OpenDir(ctx context.Context, who objects.Caller, dir objects.Ino) (objects.Dir, error) {
	if !OfAnotherNode(dir) {
		return m.local.OpenDir(ctx, who, dir)
	}
	p, err := m.others.find(dir)
	if err != nil {
		return nil, err
	}
	d := &meshDir{place: p, dir: p.OpenDir(who, p.ino)}
	d.first, err = d.dir.After(ctx, 0)
	return d, err
}

// meshDir reads a directory of another node. It omits entries that have no valid number or
// cookie here.
type meshDir struct {
	place
	dir *Dir
	// first is the entries read by opening, until they are listed.
	first []Entry
}

// After returns the entries after a cookie; see objects.Dir.
func (d *meshDir) After(ctx context.Context, at metadata.Cookie, _ int) ([]metadata.Entry, error) {
	for {
		found, err := d.page(ctx, at)
		if errors.Is(err, metadata.ErrNotExist) {
			return nil, nil
		}
		if err != nil || len(found) == 0 {
			return nil, err
		}
		entries := make([]metadata.Entry, 0, len(found))
		for i := range found {
			e := found[i].Entry
			if at = e.Cookie; at >= objects.FirstCookie && e.Ino > 0 && e.Ino < MaxInos {
				e.Ino = d.number(e.Ino)
				entries = append(entries, e)
			}
		}
		if len(entries) > 0 {
			return entries, nil
		}
	}
}

func (d *meshDir) page(ctx context.Context, at metadata.Cookie) ([]Entry, error) {
	first := d.first
	if d.first = nil; at == 0 && len(first) > 0 {
		return first, nil
	}
	return d.dir.After(ctx, at)
}

// OnInvalidate registers changed to be called with the inodes of other nodes whose content has
// changed there. If all is not nil, it returns true for each inode that may have changed. A
// nil changed ends the notifications.
func (m *Mesh) OnInvalidate(changed func(inos []objects.Ino, all func(objects.Ino) bool)) {
	if m.cluster == nil {
		return
	}
	if changed == nil {
		m.cluster.OnInvalidate(nil)
		return
	}
	m.cluster.OnInvalidate(func(i Invalidation) {
		n, err := m.others.of(i.Node)
		if err != nil {
			return // none of its inodes is known
		}
		if i.All {
			changed(nil, func(ino objects.Ino) bool {
				p, failure := m.others.find(ino)
				return failure == nil && OfAnotherNode(ino) && p.incarnation == n
			})
			return
		}
		inos := make([]objects.Ino, len(i.Inos))
		for k, own := range i.Inos {
			inos[k] = n.number(own)
		}
		changed(inos, nil)
	})
}
