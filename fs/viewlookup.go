package fs

import (
	"context"
	"errors"
	"path"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/tensors"
)

func isMissing(err error) bool { return errors.Is(err, metadata.ErrNotExist) }

// lookupMissing answers a name that the store does not have: with the view of a file, or as
// missing. The kernel may not cache a missing name that can, without the kernel's own
// doing, become or cease to be a view, or be made by hmcfs, by another node
// or by a session; nor any for long, since the first session may come later.
func (f *filesystem) lookupMissing(parent metadata.Ino, name string, out *fuse.EntryOut) fuse.Status {
	if !hasViews(parent) {
		return fuse.OK
	}
	file, ok := tensors.FileOf(name)
	if !ok {
		if name != keyedName && !f.store.Volatile(parent) && !isShared(f) {
			out.SetEntryTimeout(min(f.timeout, keepShared))
		}
		return fuse.OK
	}
	a, err := f.store.Lookup(background(), parent, file)
	switch {
	case isMissing(err) || err == nil && !a.IsRegular():
		return fuse.OK
	case err != nil:
		return f.errs.status(err)
	}
	return f.enterView(f.views.enter(a.Ino, file, "", nil), out)
}

func (v viewInode) lookup(name string, out *fuse.EntryOut) (done bool, status fuse.Status) {
	f := v.fs
	dir, err := f.views.get(v.ino)
	switch {
	case err != nil:
		return true, f.errs.status(err)
	case dir.tensor != nil:
		return true, fuse.ENOTDIR
	case len(name) > metadata.MaxName:
		return true, errNameTooLong
	}
	at := path.Join(dir.path, name)
	e, err := f.views.find(background(), dir, at)
	if isMissing(err) {
		return true, fuse.OK
	}
	if err != nil {
		return true, f.errs.status(err)
	}
	return true, f.enterView(f.views.enter(dir.file, dir.name, at, e.Tensor), out)
}

// enterView fills in the answer for a node that has got its reference.
func (f *filesystem) enterView(n *viewNode, out *fuse.EntryOut) fuse.Status {
	a, err := f.views.attr(n)
	if err != nil {
		f.views.forget(n.id, 1)
		return f.errs.status(err)
	}
	f.fillEntry(n.file, out, &a)
	return fuse.OK
}

func (v viewInode) enter(out *fuse.EntryOut) fuse.Status {
	n, err := v.fs.views.get(v.ino)
	if err != nil {
		return v.fs.errs.status(err)
	}
	return v.fs.enterView(v.fs.views.enter(n.file, n.name, n.path, n.tensor), out)
}

// enterParent fills in the answer for the parent directory and counts a reference, or returns
// its number if it belongs to the tree.
func (v viewInode) enterParent(out *fuse.EntryOut) (tree metadata.Ino, status fuse.Status) {
	f := v.fs
	n, err := f.views.get(v.ino)
	if err != nil {
		return 0, f.errs.status(err)
	}
	if n.path != "" {
		return 0, f.enterView(f.views.enter(n.file, n.name, above(n.path), nil), out)
	}
	a, err := f.store.Attr(background(), n.file)
	if err != nil {
		return 0, f.errs.status(err)
	}
	return a.Parent, fuse.OK
}

func (v viewInode) forget(refs uint64) { v.fs.views.forget(v.ino, refs) }

// isViewName reports whether a name, which the store does not have, is that of a view.
func (v *views) isViewName(parent metadata.Ino, name string) bool {
	file, ok := tensors.FileOf(name)
	if !ok || !hasViews(parent) {
		return false
	}
	a, err := v.store.Lookup(background(), parent, file)
	return err == nil && a.IsRegular()
}

// ofKey returns the number of the symlink KEY.tensors, which leads to the tensors of the
// file that the key names; 0 if there are none. A key of that name takes precedence.
func (v *views) ofKey(ctx context.Context, name string) metadata.Ino {
	key, ok := strings.CutSuffix(name, tensors.ViewSuffix)
	if !ok {
		return 0
	}
	e, err := v.store.Key(ctx, key)
	if err != nil || e.Part != "" || !v.hasView(ctx, e.Ino) {
		return 0
	}
	return e.Ino | keyBit | keyViewBit
}

// hasView reports whether an inode is a file of tensors.
func (v *views) hasView(ctx context.Context, ino metadata.Ino) bool {
	a, err := v.store.Attr(ctx, ino)
	return err == nil && a.IsRegular() && tensors.IsFile(a.Name)
}
