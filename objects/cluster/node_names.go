package cluster

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/transport/rpc"
)

// Lookup finds a name.
func (n *Node) Lookup(ctx context.Context, who objects.Caller, dir objects.Ino, name string) (objects.Attr, error) {
	user := userKey(who)
	if a, ok := n.cache.lookup(user, dir, name); ok {
		return a, nil
	}
	m := n.cache.begin()
	ask := &proto.LookupAsk{Cred: credToProto(who), Dir: uint64(dir), Name: name}
	out, err := query[proto.Attr](ctx, n, proto.MethodLookup, ask)
	if err != nil {
		return objects.Attr{}, err
	}
	a, err := n.entered(&out, dir)
	if err == nil {
		m.order = out.Order
		n.noteSize(m, &a)
		n.cache.putName(m, user, dir, name, &a, out.Keep)
	}
	return a, err
}

// received decodes an inode that the node has sent, which must be the one that was asked
// about; 0 accepts any.
//
// Errors: proto.ErrBody.
func (n *Node) received(out *proto.Attr, asked objects.Ino) (objects.Attr, error) {
	a, err := attrFromProto(out)
	if err == nil && asked != 0 && a.Ino != asked {
		err = fmt.Errorf("the request was for inode %d, but the answer is for inode %d: %w", asked, a.Ino, proto.ErrBody)
	}
	if err != nil {
		return objects.Attr{}, fmt.Errorf("node %s: %w", n.name, err)
	}
	return a, nil
}

// entered is received for an inode that was found or created in a directory: it can be neither
// the root nor the directory itself.
func (n *Node) entered(out *proto.Attr, dir objects.Ino) (objects.Attr, error) {
	a, err := n.received(out, 0)
	if err == nil && (a.Ino == metadata.RootIno || a.Ino == dir) {
		return objects.Attr{}, fmt.Errorf("node %s sent inode %d, which can't be in directory %d: %w", n.name, a.Ino, dir, proto.ErrBody)
	}
	return a, err
}

// noteSize sets the size of a file that may be open from an answer, unless the inode was
// invalidated since the request began.
func (n *Node) noteSize(m mark, a *objects.Attr) {
	if !n.cache.overtaken(m, a.Ino) {
		n.inos.noteSize(a, m.order)
	}
}

// newEntry describes a name that a user asks the node to add to a directory, for an inode that
// the request creates or for an existing one.
type newEntry struct {
	method rpc.Method
	in     any
	who    objects.Caller
	dir    objects.Ino
	name   string
	// kind is the expected type of the inode in the answer; 0 accepts any.
	kind metadata.Mode
	// ino is the expected inode; 0 accepts any.
	ino objects.Ino
	// target is that of a symlink.
	target string
}

// addEntry asks the node to add a name.
func (n *Node) addEntry(ctx context.Context, e newEntry) (objects.Attr, error) {
	begun := n.cache.begin()
	var out proto.Attr
	err := n.ask(ctx, question{method: e.method, in: e.in, out: &out, settle: func(ctx context.Context, s *session, err error) error {
		return n.added(ctx, s, &e, &out, err)
	}})
	n.dropNames(e.dir)
	if err != nil {
		return objects.Attr{}, err
	}
	a, err := n.entered(&out, e.dir)
	if err == nil && e.ino != 0 && a.Ino != e.ino || err == nil && e.kind != 0 && a.Mode.Type() != e.kind {
		err = fmt.Errorf("node %s sent inode %d with mode %o for %q: %w", n.name, a.Ino, a.Mode, e.name, proto.ErrBody)
	}
	if err != nil {
		return objects.Attr{}, err
	}
	begun.order = out.Order
	n.cache.putName(begun, userKey(e.who), e.dir, e.name, &a, out.Keep)
	return a, nil
}

// dropNames drops cached answers about directories in which this node has, or may have, changed
// names.
func (n *Node) dropNames(dirs ...objects.Ino) {
	n.cache.forget(Invalidation{Inos: dirs, Dirs: dirs})
}

// touched drops cached answers about inodes that this node has changed.
func (n *Node) touched(inos ...objects.Ino) {
	n.cache.forget(Invalidation{Inos: inos})
}

// Create creates a file, directory, symlink or special file. UID and GID of in are ignored:
// the caller's are used.
func (n *Node) Create(ctx context.Context, who objects.Caller, dir objects.Ino, name string, in metadata.Node) (objects.Attr, error) {
	return n.addEntry(ctx, newEntry{
		method: proto.MethodCreate, who: who, dir: dir, name: name, kind: in.Mode.Type(), target: in.Target,
		in: &proto.CreateAsk{
			Cred: credToProto(who), Dir: uint64(dir), Name: name,
			Mode: uint32(in.Mode), Rdev: in.Rdev, Target: in.Target,
		},
	})
}

// Link adds a name.
func (n *Node) Link(ctx context.Context, who objects.Caller, ino, dir objects.Ino, name string) (objects.Attr, error) {
	defer n.touched(ino)
	return n.addEntry(ctx, newEntry{
		method: proto.MethodLink, who: who, dir: dir, name: name, ino: ino,
		in: &proto.LinkAsk{Cred: credToProto(who), Ino: uint64(ino), Dir: uint64(dir), Name: name},
	})
}

// Unlink removes a name.
func (n *Node) Unlink(ctx context.Context, who objects.Caller, dir objects.Ino, name string) error {
	return n.remove(ctx, who, dir, name, false)
}

// Rmdir removes an empty directory.
func (n *Node) Rmdir(ctx context.Context, who objects.Caller, dir objects.Ino, name string) error {
	return n.remove(ctx, who, dir, name, true)
}

func (n *Node) remove(ctx context.Context, who objects.Caller, dir objects.Ino, name string, folder bool) error {
	var out proto.Invalid
	err := n.ask(ctx, question{
		method: proto.MethodRemove, out: &out,
		in:     &proto.RemoveAsk{Cred: credToProto(who), Dir: uint64(dir), Name: name, Folder: folder},
		settle: unlessGone,
	})
	n.dropNames(dir)
	n.touched(inosOf(out.Inos)...)
	return err
}

// Rename moves a name within the node. An exchange that the node may have carried out before its
// daemon died fails: the names do not tell.
func (n *Node) Rename(ctx context.Context, who objects.Caller, r metadata.Rename) error {
	var out proto.Invalid
	exchange := r.Flags&metadata.Exchange != 0
	err := n.ask(ctx, question{method: proto.MethodRename, out: &out, once: exchange, settle: unlessGone, in: &proto.RenameAsk{
		Cred: credToProto(who), From: uint64(r.From), Name: r.Name,
		To: uint64(r.To), NewName: r.NewName, Flags: uint32(r.Flags),
	}})
	n.dropNames(r.From, r.To)
	n.touched(inosOf(out.Inos)...)
	return err
}
