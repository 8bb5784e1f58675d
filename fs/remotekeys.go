package fs

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// isRemoteKey says that an inode is the symlink of another node's key.
func isRemoteKey(ino metadata.Ino) bool { return isKey(ino) && ino&remoteBit != 0 }

// remoteKeys are the symlinks of other nodes' keys that the kernel knows. The
// number of one is a hash of the key, so that a listing can tell it.
type remoteKeys struct {
	seed maphash.Seed

	mu sync.Mutex
	// +checklocks:mu
	keys map[metadata.Ino]*remoteKey
}

// remoteKey is one of them. remoteKeys.mu guards it.
type remoteKey struct {
	key  string
	refs uint64
}

func newRemoteKeys() remoteKeys {
	return remoteKeys{seed: maphash.MakeSeed(), keys: map[metadata.Ino]*remoteKey{}}
}

// number is what a key gets, unless another has it already.
func (r *remoteKeys) number(key string) metadata.Ino {
	return keyBit | remoteBit | metadata.Ino(maphash.String(r.seed, key))&(remoteBit-1)
}

// enter returns the number of a key, and counts a reference of the kernel's.
func (r *remoteKeys) enter(key string) metadata.Ino {
	ino := r.number(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	for ; ; ino = keyBit | remoteBit | (ino+1)&(remoteBit-1) {
		known := r.keys[ino]
		if known == nil {
			known = &remoteKey{key: key}
			r.keys[ino] = known
		}
		if known.key == key {
			known.refs++
			return ino
		}
	}
}

// forget drops references of the kernel's.
func (r *remoteKeys) forget(ino metadata.Ino, refs uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.keys[ino]; known != nil {
		if known.refs -= min(refs, known.refs); known.refs == 0 {
			delete(r.keys, ino)
		}
	}
}

// key is what a number means.
func (r *remoteKeys) key(ino metadata.Ino) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.keys[ino]
	if known == nil {
		return "", false
	}
	return known.key, true
}

// lookupRemoteKey answers a key of keys/ that no object of ours carries.
//
// Errors: ENOENT; EHOSTUNREACH when it could not be found out who has it.
func (f *filesystem) lookupRemoteKey(key string, out *fuse.EntryOut) fuse.Status {
	a, err := f.findRemoteKey(background(), key)
	if errors.Is(err, metadata.ErrInvalidKey) {
		return fuse.ENOENT // no object can carry such a key
	}
	if err != nil {
		return f.errs.status(err)
	}
	a.Ino = f.remoteKeys.enter(key)
	fillRemote(out, &a)
	return fuse.OK
}

// remoteKeyAttr makes the attributes of the symlink of another node's key.
func (f *filesystem) remoteKeyAttr(ino metadata.Ino) (objects.Attr, error) {
	key, ok := f.remoteKeys.key(ino)
	if !ok {
		return objects.Attr{}, fmt.Errorf("key %#x: %w", uint64(ino), metadata.ErrNotExist)
	}
	a, err := f.findRemoteKey(background(), key)
	a.Ino = ino
	return a, err
}

// findRemoteKey makes a symlink to where another node has a key.
func (f *filesystem) findRemoteKey(ctx context.Context, key string) (objects.Attr, error) {
	node, path, err := f.opts.Cluster.Key(ctx, key)
	if err != nil {
		return objects.Attr{}, err
	}
	root, err := f.store.Attr(ctx, metadata.RootIno)
	if err != nil {
		return objects.Attr{}, err
	}
	return objects.Attr{State: objects.StateLive, Inode: metadata.Inode{
		Gen: root.Gen, Mode: metadata.TypeSymlink | 0o777, Nlink: 1,
		UID: root.UID, GID: root.GID, Parent: keysIno,
		Target: "../" + nodesName + "/" + string(node.Record().Name) + "/" + path,
		Atime:  f.born, Mtime: f.born, Ctime: f.born, Btime: f.born,
	}}, nil
}

// keysBehind lists up to limit keys behind one, ours and other nodes', in
// order. Where nodes can't be asked for theirs, all others are listed before the
// listing fails: a page without keys is the end.
func (f *filesystem) keysBehind(ctx context.Context, behind string, limit int) ([]dirEntry, error) {
	own, err := f.ownKeys(behind, limit) //nolint:contextcheck // the store is not interrupted
	if err != nil {
		return nil, err
	}
	others, err := f.opts.Cluster.Keys(ctx, behind, limit)
	if err != nil && len(own)+len(others) == 0 {
		return nil, err
	}
	return f.mergeKeys(own, others, limit), nil
}

// mergeKeys merges other nodes' keys into a page of ours: as many as both
// lists, which may go on, tell.
func (f *filesystem) mergeKeys(own []dirEntry, others []string, limit int) []dirEntry {
	merged := make([]dirEntry, 0, len(own)+len(others))
	for len(merged) < limit && len(own)+len(others) > 0 {
		switch {
		case len(others) == 0, len(own) > 0 && own[0].name <= others[0]:
			if len(others) > 0 && own[0].name == others[0] {
				others = others[1:]
			}
			merged, own = append(merged, own[0]), own[1:]
		default:
			merged = append(merged, dirEntry{name: others[0], ino: f.remoteKeys.number(others[0]), mode: metadata.TypeSymlink})
			others = others[1:]
		}
	}
	return merged
}
