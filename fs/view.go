package fs

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/tensors"
)

// viewNode is an inode of a view that the kernel knows: the directory FILE.tensors, a
// directory below it, or a tensor as a file. It is immutable, except for refs.
type viewNode struct {
	id metadata.Ino
	// file is the file that the view is of, and name the name under which it was found.
	file metadata.Ino
	name string
	// path is the node's path in the view; "" is FILE.tensors itself.
	path string
	// tensor is nil for a directory; header is the file header before the tensor's bytes.
	tensor *tensors.Tensor
	header []byte

	// refs counts the kernel's references, protected by views.mu.
	refs uint64
}

// size returns the size of a tensor's file.
func (n *viewNode) size() uint64 { return uint64(len(n.header)) + n.tensor.Len }

// views holds the nodes of views that the kernel knows. The number of a node is a hash of
// what it shows, including the place and the type of a tensor: so a listing can report it
// without making the node, a file keeps its number while the kernel forgets it and asks
// again, and a tensor that has replaced another one does not share its pages.
type views struct {
	store *objects.Store
	seed  maphash.Seed

	mu sync.Mutex
	// +checklocks:mu
	nodes map[metadata.Ino]*viewNode
	// open holds the open tensors, by their files.
	// +checklocks:mu
	open map[metadata.Ino][]*viewFile
	// opens counts them. Usually it is 0, and no lookup is needed.
	opens atomic.Int64
}

func newViews(store *objects.Store) views {
	return views{store: store, seed: maphash.MakeSeed(), nodes: map[metadata.Ino]*viewNode{}, open: map[metadata.Ino][]*viewFile{}}
}

// number returns the number for a node, unless another node already has it.
func (v *views) number(file metadata.Ino, name, path string, t *tensors.Tensor) metadata.Ino {
	key := struct {
		file             metadata.Ino
		name, path       string
		isFile           bool
		off, len         uint64
		descr, dtype, at string
		fortran          bool
	}{file: file, name: name, path: path}
	if t != nil {
		key.isFile, key.off, key.len, key.fortran = true, t.Off, t.Len, t.Fortran
		key.descr, key.dtype, key.at = t.Type.Descr, t.Type.Name, t.ShapeText()
	}
	return viewBit | metadata.Ino(maphash.Comparable(v.seed, key))&(viewBit-1)
}

// enter returns the node for a path of a view and counts one kernel reference. As long as
// the node has references, the file has one too.
func (v *views) enter(file metadata.Ino, name, path string, t *tensors.Tensor) *viewNode {
	id := v.number(file, name, path, t)
	v.mu.Lock()
	defer v.mu.Unlock()
	for ; ; id = viewBit | (id+1)&(viewBit-1) {
		n := v.nodes[id]
		if n == nil {
			break
		}
		if n.file == file && n.name == name && n.path == path && sameTensor(n.tensor, t) {
			n.refs++
			return n
		}
	}
	n := &viewNode{id: id, file: file, name: name, path: path, refs: 1}
	n.show(t)
	v.nodes[id] = n
	v.store.ReferencePart(file)
	return n
}

// show makes a node that of a tensor, unless it is nil.
func (n *viewNode) show(t *tensors.Tensor) {
	if t != nil {
		own := *t // a pointer into the parsed header would keep all of it alive
		n.tensor, n.header = &own, t.Header()
	}
}

// adopt enters a node that the kernel knows from an earlier process. How many references it has is
// not known: the kernel gives them up together.
func (v *views) adopt(n *viewNode) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.nodes[n.id] != nil {
		return // by another handle
	}
	n.refs = 1
	v.nodes[n.id] = n
	v.store.ReferencePart(n.file)
}

func sameTensor(a, b *tensors.Tensor) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(b)
}

// get returns the node with a number.
//
// Errors: ESTALE.
func (v *views) get(id metadata.Ino) (*viewNode, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := v.nodes[id]
	if n == nil {
		return nil, fmt.Errorf("view node %d: %w", id, syscall.ESTALE)
	}
	return n, nil
}

// tensor returns the file, and the path in its view, of the tensor that a number is for.
func (v *views) tensor(id metadata.Ino) (file metadata.Ino, path string, ok bool) {
	n, err := v.get(id)
	if err != nil || n.tensor == nil {
		return 0, "", false
	}
	return n.file, n.path, true
}

func (v *views) forget(id metadata.Ino, refs uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := v.nodes[id]
	if n == nil {
		return
	}
	if n.refs -= min(refs, n.refs); n.refs == 0 {
		delete(v.nodes, id)
		v.store.ForgetPart(n.file)
	}
}

func (v *views) len() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.nodes)
}

// tensors returns the present tensors of a node's file. A file whose content does not match
// its name is logged once, whatever the number of requests.
func (v *views) tensors(ctx context.Context, n *viewNode) (*tensors.File, error) {
	f, err := v.store.Tensors(ctx, n.file, n.name)
	if errors.Is(err, tensors.ErrFormat) {
		err = &onceError{error: err, key: fmt.Sprintf("tensors of inode %d", n.file)}
	}
	return f, err
}

// opened records that a tensor was opened.
func (v *views) opened(f *viewFile) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open[f.viewNode.file] = append(v.open[f.viewNode.file], f)
	v.opens.Add(1)
}

// closed records that it was closed.
func (v *views) closed(f *viewFile) {
	v.mu.Lock()
	defer v.mu.Unlock()
	file := f.viewNode.file
	rest := slices.DeleteFunc(v.open[file], func(o *viewFile) bool { return o == f })
	if v.open[file] = rest; len(rest) == 0 {
		delete(v.open, file)
	}
	v.opens.Add(-1)
}

// openOf returns the open tensors of a file.
func (v *views) openOf(file metadata.Ino) []metadata.Ino {
	if v.opens.Load() == 0 {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var ids []metadata.Ino
	for _, f := range v.open[file] {
		if !slices.Contains(ids, f.id) {
			ids = append(ids, f.id)
		}
	}
	return ids
}

type viewInode struct{ base }

func (v viewInode) attr() (objects.Attr, error) {
	n, err := v.fs.views.checked(v.ino)
	if err != nil {
		return objects.Attr{}, err
	}
	return v.fs.views.attr(n)
}

func (v viewInode) device() (metadata.Ino, error) {
	n, err := v.fs.views.get(v.ino)
	if err != nil {
		return 0, err
	}
	return n.file, nil
}

func (v viewInode) refusal() fuse.Status { return fuse.EROFS }

// find returns the entry that the view of a node has at a path now.
//
// Errors: ENOENT; EIO for a file whose content does not match its name.
func (v *views) find(ctx context.Context, n *viewNode, path string) (tensors.Entry, error) {
	f, err := v.tensors(ctx, n)
	if err != nil {
		return tensors.Entry{}, err
	}
	e, ok := f.Find(path)
	if !ok {
		return tensors.Entry{}, fmt.Errorf("tensor %s of inode %d: %w", path, n.file, metadata.ErrNotExist)
	}
	return e, nil
}

// checked is get and check.
func (v *views) checked(id metadata.Ino) (*viewNode, error) {
	n, err := v.get(id)
	if err != nil {
		return nil, err
	}
	return n, v.check(background(), n)
}

// check verifies that the file still has what the node shows, in the same place and form.
// Only the bytes of a tensor may have changed.
//
// Errors: ESTALE; EIO.
func (v *views) check(ctx context.Context, n *viewNode) error {
	if n.path == "" {
		return nil
	}
	e, err := v.find(ctx, n, n.path)
	if err != nil && !isMissing(err) {
		return err
	}
	if err != nil || !sameTensor(n.tensor, e.Tensor) {
		return n.stale()
	}
	return nil
}

func (n *viewNode) stale() error {
	return fmt.Errorf("tensor %s of inode %d was rewritten: %w", n.path, n.file, syscall.ESTALE)
}

// attr returns the attributes of a node that has been checked: those of the file. A tensor
// keeps the write permission, as a file does on a file system that is mounted read-only:
// without it the kernel would refuse to set the tensor's key. A directory's link count of 1
// means that its subdirectories are not counted.
func (v *views) attr(n *viewNode) (objects.Attr, error) {
	a, err := v.store.Attr(background(), n.file)
	if err != nil {
		return objects.Attr{}, err
	}
	read := a.Mode & 0o444
	a.Ino, a.Key, a.Rdev = n.id, "", 0
	if n.tensor == nil {
		a.Mode, a.Nlink = metadata.TypeDir|read|read>>2, 1
		a.Size, a.Allocated = 0, 0
		return a, nil
	}
	a.Mode, a.Nlink = metadata.TypeRegular|a.Mode&0o666, 1
	a.Size, a.Allocated = n.size(), n.size()
	return a, nil
}
