package fs

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster"
)

// keepOtherKey is the time the kernel caches the symlink of another node's key, of whose
// changes it cannot be notified: long enough for a program's consecutive calls about it.
const keepOtherKey = 20 * time.Millisecond

// isOtherKey reports whether an inode is the symlink of another node's key, or of a tensor's.
func isOtherKey(ino metadata.Ino) bool { return isKey(ino) && ino&otherKeyBit != 0 }

// otherKeys holds the symlinks of keys that are not the only key of an inode of this node,
// as far as the kernel knows them: those of tensors, and those of other nodes. The inode
// number of a symlink is a hash of the key, so that a listing can report it.
type otherKeys struct {
	// all has the keys of all nodes. store is this node's, and cluster may be nil.
	all     objects.Keys
	store   *objects.Store
	cluster *cluster.Cluster
	errs    *errnoTable
	// born is the time shown for the symlinks.
	born metadata.Timespec
	seed maphash.Seed

	// held has what the kernel knows for the process that follows; nil for a mount that is not kept. It is set
	// before the first request.
	held *heldState

	mu sync.Mutex
	// +checklocks:mu
	keys map[metadata.Ino]*otherKey
}

// otherKey is one symlink. otherKeys.mu guards it.
type otherKey struct {
	key  string
	refs uint64
}

// number returns the number for a key, unless another key already has it.
func (r *otherKeys) number(key string) metadata.Ino {
	return keyBit | otherKeyBit | metadata.Ino(maphash.String(r.seed, key))&(otherKeyBit-1)
}

// enter returns the number of a key, and counts a kernel reference.
func (r *otherKeys) enter(key string) metadata.Ino {
	ino := r.number(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	for ; ; ino = keyBit | otherKeyBit | (ino+1)&(otherKeyBit-1) {
		known := r.keys[ino]
		if known == nil {
			known = &otherKey{key: key}
			r.keys[ino] = known
		}
		if known.key == key {
			known.refs++
			r.keep(ino, known)
			return ino
		}
	}
}

// keep records what the kernel knows of a symlink.
func (r *otherKeys) keep(ino metadata.Ino, k *otherKey) {
	if r.held != nil {
		r.held.link(ino, k.key, k.refs)
	}
}

// adopt continues with a symlink that the kernel knows from an earlier process.
func (r *otherKeys) adopt(ino metadata.Ino, known otherKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys[ino] = &known
}

func (r *otherKeys) forget(ino metadata.Ino, refs uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.keys[ino]; known != nil {
		if known.refs -= min(refs, known.refs); known.refs == 0 {
			delete(r.keys, ino)
		}
		r.keep(ino, known)
	}
}

func (r *otherKeys) key(ino metadata.Ino) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.keys[ino]
	if known == nil {
		return "", false
	}
	return known.key, true
}

// lookup answers a key of keys/ that no object of this node has as a whole.
//
// Errors: ENOENT; EHOSTUNREACH when it could not be determined which node has it.
func (r *otherKeys) lookup(key string, out *fuse.EntryOut) fuse.Status {
	a, err := r.find(background(), key)
	if errors.Is(err, metadata.ErrInvalidKey) {
		return fuse.ENOENT // no object can have such a key
	}
	if err != nil {
		return r.errs.status(err)
	}
	a.Ino = r.enter(key)
	fillAttr(&out.Attr, &a)
	out.NodeId, out.Generation = uint64(a.Ino), uint64(a.Gen)
	if strings.HasPrefix(a.Target, otherTree) {
		out.SetAttrTimeout(keepOtherKey)
		out.SetEntryTimeout(keepOtherKey)
	}
	return fuse.OK
}

// otherKeyLink is the symlink of the key of an object of another node, or of a tensor.
type otherKeyLink struct{ base }

func (l otherKeyLink) attr() (objects.Attr, error) {
	key, ok := l.fs.otherKeys.key(l.ino)
	if !ok {
		return objects.Attr{}, fmt.Errorf("key %#x: %w", uint64(l.ino), metadata.ErrNotExist)
	}
	a, err := l.fs.otherKeys.find(background(), key)
	a.Ino = l.ino
	return a, err
}

func (l otherKeyLink) parent() metadata.Ino { return keysIno }

func (l otherKeyLink) enter(out *fuse.EntryOut) fuse.Status {
	key, ok := l.fs.otherKeys.key(l.ino)
	if !ok {
		return fuse.ENOENT
	}
	return l.fs.otherKeys.lookup(key, out)
}

func (l otherKeyLink) forget(refs uint64) { l.fs.otherKeys.forget(l.ino, refs) }

// otherTree is the beginning of the targets of the symlinks to objects of other nodes.
const otherTree = "../" + nodesName + "/"

// find returns a symlink to the tensor of a key, or to the object of the key on another
// node.
func (r *otherKeys) find(ctx context.Context, key string) (objects.Attr, error) {
	target, err := r.target(ctx, key)
	if err != nil {
		return objects.Attr{}, err
	}
	root, err := r.store.Attr(ctx, metadata.RootIno)
	if err != nil {
		return objects.Attr{}, err
	}
	return objects.Attr{State: objects.StateLive, Inode: metadata.Inode{
		Gen: root.Gen, Mode: metadata.TypeSymlink | 0o777, Nlink: 1,
		UID: root.UID, GID: root.GID, Parent: keysIno,
		Target: target,
		Atime:  r.born, Mtime: r.born, Ctime: r.born, Btime: r.born,
	}}, nil
}

func (r *otherKeys) target(ctx context.Context, key string) (string, error) {
	path, err := r.store.KeyPath(ctx, key)
	if err == nil || r.cluster == nil || !isMissing(err) {
		return "../" + path, err
	}
	node, path, err := r.cluster.Key(ctx, key)
	if err != nil {
		return "", err
	}
	return otherTree + string(node.Record().Name) + "/" + path, nil
}

// listBehind lists up to limit keys after behind, of this and other nodes, in order. If
// nodes can't be asked for theirs, all other keys are listed before the listing fails: a
// page without keys is the end.
func (r *otherKeys) listBehind(ctx context.Context, behind string, limit int) ([]dirEntry, error) {
	found, err := r.all.List(ctx, objects.KeyRange{From: behind, Limit: limit})
	if err != nil && len(found) == 0 {
		return nil, err
	}
	entries := make([]dirEntry, len(found))
	for i, k := range found {
		entries[i] = dirEntry{name: k.Key, ino: k.Ino | keyBit, mode: metadata.TypeSymlink}
		if k.Node != "" || k.Tensor {
			entries[i].ino = r.number(k.Key)
		}
	}
	return entries, nil
}
