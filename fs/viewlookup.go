package fs

import (
	"errors"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/tensors"
)

func isMissing(err error) bool { return errors.Is(err, metadata.ErrNotExist) }

// lookupMissing answers a name that the store does not have: as the view of a
// file, or with nothing. The kernel may not keep a name that may become a
// view, or cease to be one, or be made by hmcfs or by another node, without its
// own doing.
func (f *filesystem) lookupMissing(parent metadata.Ino, name string, out *fuse.EntryOut) fuse.Status {
	if !hasViews(parent) {
		return fuse.OK
	}
	file, ok := tensors.FileOf(name)
	if !ok {
		if name != keyedName && !f.store.Volatile(parent) && f.opts.Cluster == nil {
			out.SetEntryTimeout(f.timeout)
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

// lookupView finds a name in a view.
func (f *filesystem) lookupView(parent metadata.Ino, name string, out *fuse.EntryOut) fuse.Status {
	dir, err := f.views.get(parent)
	switch {
	case err != nil:
		return f.errs.status(err)
	case dir.tensor != nil:
		return fuse.ENOTDIR
	case len(name) > metadata.MaxName:
		return errNameTooLong
	}
	path := below(dir.path, name)
	e, err := f.views.find(background(), dir, path)
	if isMissing(err) {
		return fuse.OK
	}
	if err != nil {
		return f.errs.status(err)
	}
	return f.enterView(f.views.enter(dir.file, dir.name, path, e.Tensor), out)
}

// enterView answers a node that has got its reference.
func (f *filesystem) enterView(n *viewNode, out *fuse.EntryOut) fuse.Status {
	a, err := f.views.attr(n)
	if err != nil {
		f.views.forget(n.id, 1)
		return f.errs.status(err)
	}
	f.fillEntry(n.file, out, &a)
	return fuse.OK
}

// lookupViewDot finds a node by its number, or its parent.
func (f *filesystem) lookupViewDot(cancel <-chan struct{}, header *fuse.InHeader, id metadata.Ino, name string, out *fuse.EntryOut) fuse.Status {
	n, err := f.views.get(id)
	switch {
	case err != nil:
		return f.errs.status(err)
	case name == ".":
		return f.enterView(f.views.enter(n.file, n.name, n.path, n.tensor), out)
	case n.path != "":
		return f.enterView(f.views.enter(n.file, n.name, above(n.path), nil), out)
	}
	a, err := f.store.Attr(background(), n.file)
	if err != nil {
		return f.errs.status(err)
	}
	return f.lookupDot(cancel, header, a.Parent, ".", out)
}

// isViewName says whether a name, which the store does not have, is that of a
// view.
func (f *filesystem) isViewName(parent metadata.Ino, name string) bool {
	file, ok := tensors.FileOf(name)
	if !ok || !hasViews(parent) {
		return false
	}
	a, err := f.store.Lookup(background(), parent, file)
	return err == nil && a.IsRegular()
}
