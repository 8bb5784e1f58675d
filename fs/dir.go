package fs

import (
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
)

// OpenDir opens a directory.
func (f *filesystem) OpenDir(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) (status fuse.Status) {
	defer f.ops.done(opOpenDir, time.Now(), &status)
	h, err := f.newDirHandle(cancel, &in.InHeader, metadata.Ino(in.NodeId))
	if err != nil {
		return f.errs.inodeStatus(err)
	}
	out.Fh = f.dirs.put(h)
	return fuse.OK
}

// ReleaseDir ends a handle.
func (f *filesystem) ReleaseDir(in *fuse.ReleaseIn) {
	status := fuse.OK
	defer f.ops.done(opReleaseDir, time.Now(), &status)
	h, ok := f.dirs.take(in.Fh)
	if !ok {
		status = fuse.EBADF
		return
	}
	h.close(f.store)
}

// FsyncDir has nothing to do: a change of the namespace is already durable when it returns.
func (f *filesystem) FsyncDir(<-chan struct{}, *fuse.FsyncIn) (status fuse.Status) {
	defer f.ops.done(opFsyncDir, time.Now(), &status)
	return fuse.OK
}

// ReadDir lists the names after an offset.
func (f *filesystem) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) (status fuse.Status) {
	defer f.ops.done(opReadDir, time.Now(), &status)
	return f.list(cancel, in, func(e *dirEntry) bool { return out.AddDirEntry(e.fuse()) })
}

// ReadDirPlus lists names with attributes, and counts one kernel reference for each of
// them.
func (f *filesystem) ReadDirPlus(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) (status fuse.Status) {
	defer f.ops.done(opReadDirPlus, time.Now(), &status)
	dir := metadata.Ino(in.NodeId)
	return f.list(cancel, in, func(e *dirEntry) bool { return f.addPlus(dir, e, out) })
}

// list passes entries to add until it returns false.
func (f *filesystem) list(cancel <-chan struct{}, in *fuse.ReadIn, add func(*dirEntry) bool) fuse.Status {
	h, ok := f.dirs.get(in.Fh)
	if !ok {
		return fuse.EBADF
	}
	ctx := background()
	if h.waits {
		var release func()
		ctx, release = untilKilled(cancel, in.Pid)
		defer release()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for at := in.Offset; ; {
		entries, err := h.after(ctx, at, f.names.Load())
		if err != nil {
			return f.errs.status(err)
		}
		if len(entries) == 0 {
			return fuse.OK
		}
		for i := range entries {
			if !add(&entries[i]) {
				return fuse.OK
			}
			at = entries[i].offset
		}
	}
}

// addPlus adds an entry. The kernel may cache it as if it had looked the name up, so the
// inode must be the one that the name has now: pages of a directory are read again when any
// name has changed, and the kernel holds the directory's lock. An entry without attributes
// is looked up when it is accessed. Attributes are left out where names disappear without
// the kernel's doing, where pages may be older than the names, and for entries of other
// nodes, for which the kernel would have to ask again anyway.
func (f *filesystem) addPlus(dir metadata.Ino, e *dirEntry, out *fuse.DirEntryList) bool {
	if e.name == "." || e.name == ".." || !isOwn(e.ino) || f.store.Volatile(dir) {
		return out.AddDirLookupEntry(e.fuse()) != nil
	}
	// Count the reference first, so that the inode stays until it is answered.
	f.tree.Reference(e.ino, 1)
	a, err := f.store.Attr(background(), e.ino)
	entry := out.AddDirLookupEntry(e.fuse())
	if entry == nil || err != nil {
		f.tree.Forget(e.ino, 1)
		return entry != nil
	}
	f.fillEntry(dir, entry, &a)
	return true
}
