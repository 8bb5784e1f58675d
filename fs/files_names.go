package fs

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// permNames are the permissions in a directory that are needed to create and remove names.
const permNames = objects.PermWrite | objects.PermExec

// vacant returns an error unless a name can be created.
//
// Errors: EEXIST; EROFS; EACCES.
func (w *walk) vacant() error {
	if w.last == "" || w.found.ino != 0 {
		return syscall.EEXIST
	}
	if w.guest.frozen {
		return syscall.EROFS
	}
	return w.guest.denied(w.guest.Need(w.dir().as(), permNames))
}

// create makes a name with make, and drops the reference to its inode.
func (g *Guest) create(ctx context.Context, name string, make func(w *walk, out *fuse.EntryOut) fuse.Status) error {
	return g.at(ctx, name, false, func(w *walk) error {
		if err := w.vacant(); err != nil {
			return err
		}
		var out fuse.EntryOut
		if status := make(w, &out); status != fuse.OK {
			return errOf(status)
		}
		g.raw.Forget(out.NodeId, 1)
		g.touched(0, w.dir().ino)
		return nil
	})
}

// Mkdir creates a directory.
func (g *Guest) Mkdir(ctx context.Context, name string, perm uint32) error {
	return g.create(ctx, name, func(w *walk, out *fuse.EntryOut) fuse.Status {
		in := fuse.MkdirIn{InHeader: g.header(w.dir().ino), Mode: perm & 0o777}
		return g.raw.Mkdir(w.cancel, &in, w.last, out)
	})
}

// Symlink creates a symbolic link.
func (g *Guest) Symlink(ctx context.Context, target, name string) error {
	if target == "" {
		return syscall.ENOENT
	}
	return g.create(ctx, name, func(w *walk, out *fuse.EntryOut) fuse.Status {
		header := g.header(w.dir().ino)
		return g.raw.Symlink(w.cancel, &header, target, w.last, out)
	})
}

// mayLink checks whether the user may give a file another name: without the restriction, which
// most kernels have (fs.protected_hardlinks), a user could keep the files of others.
//
// Errors: EPERM.
func (g *Guest) mayLink(what *spot) error {
	const both = syscall.S_ISGID | syscall.S_IXGRP
	in := &what.as().Inode
	switch mode := what.attr.Mode; {
	case g.Owns(in):
		return nil
	case !what.is(syscall.S_IFREG), mode&syscall.S_ISUID != 0, mode&both == both, !g.May(in, objects.PermRead|objects.PermWrite):
		return syscall.EPERM
	}
	return nil
}

// Link gives a file another name.
func (g *Guest) Link(ctx context.Context, from, to string) error {
	return g.at(ctx, from, false, func(old *walk) error {
		what, err := old.target()
		if err == nil {
			err = g.mayLink(what)
		}
		if err != nil {
			return err
		}
		err = g.create(ctx, to, func(w *walk, out *fuse.EntryOut) fuse.Status {
			if what.isDir() {
				return fuse.EPERM
			}
			return g.raw.Link(w.cancel, &fuse.LinkIn{InHeader: g.header(w.dir().ino), Oldnodeid: what.ino}, w.last, out)
		})
		if err == nil {
			g.touched(what.ino, 0)
		}
		return err
	})
}

// Readlink returns the target of a symbolic link.
func (g *Guest) Readlink(ctx context.Context, name string) (target string, err error) {
	err = g.at(ctx, name, false, func(w *walk) error {
		at, fault := w.target()
		if fault != nil {
			return fault
		}
		header := g.header(at.ino)
		out, status := g.raw.Readlink(w.cancel, &header)
		target = string(out)
		return errOf(status)
	})
	return target, err
}

// RemoveKind restricts what Remove removes.
type RemoveKind uint8

// The kinds.
const (
	RemoveAny RemoveKind = iota
	RemoveDir
	RemoveFile
)

// Remove removes a name: of a file, or of an empty directory.
//
// Errors: ENOTDIR and EISDIR for what is not of the kind; EBUSY for the root.
func (g *Guest) Remove(ctx context.Context, name string, kind RemoveKind) error {
	return g.at(ctx, name, false, func(w *walk) error {
		if w.last == "" {
			return syscall.EBUSY
		}
		victim, err := w.target()
		if err != nil {
			return err
		}
		if err = w.mayRemove(victim); err != nil {
			return err
		}
		switch isDir := victim.isDir(); {
		case kind == RemoveDir && !isDir:
			return syscall.ENOTDIR
		case kind == RemoveFile && isDir:
			return syscall.EISDIR
		}
		remove := g.raw.Unlink
		if victim.isDir() {
			remove = g.raw.Rmdir
		}
		header := g.header(w.dir().ino)
		status := remove(w.cancel, &header, w.last)
		if status == fuse.OK {
			g.touched(victim.ino, w.dir().ino)
		}
		return errOf(status)
	})
}

// mayRemove checks whether the user may remove the name, which is that of victim.
func (w *walk) mayRemove(victim *spot) error {
	g := w.guest
	if g.frozen {
		return syscall.EROFS
	}
	if err := g.denied(g.Need(w.dir().as(), permNames)); err != nil {
		return err
	}
	return g.denied(g.MayRemove(w.dir().as(), victim.as()))
}

// Rename gives a file or directory another name, possibly on another device.
//
// Errors: those of rename(2), and of a rename in the mount.
func (g *Guest) Rename(ctx context.Context, from, to string, flags metadata.RenameFlags) error {
	return g.at(ctx, from, false, func(old *walk) error {
		return g.at(ctx, to, false, func(now *walk) error {
			if old.last == "" || now.last == "" {
				return syscall.EBUSY
			}
			what, err := old.target()
			if err != nil {
				return err
			}
			switch {
			case flags&metadata.NoReplace != 0 && now.found.ino != 0:
				return syscall.EEXIST
			case flags&metadata.Exchange != 0 && now.found.ino == 0:
				return syscall.ENOENT
			case now.found.ino == what.ino:
				return nil
			}
			if err = old.mayMove(now, what, flags); err != nil {
				return err
			}
			in := fuse.RenameIn{InHeader: g.header(old.dir().ino), Newdir: now.dir().ino, Flags: uint32(flags)}
			status := g.raw.Rename(old.cancel, &in, old.last, now.last)
			if status == fuse.OK {
				g.touched(what.ino, old.dir().ino)
				g.touched(now.found.ino, now.dir().ino)
			}
			return errOf(status)
		})
	})
}

// mayMove checks whether the user may move what to the name of another walk.
func (w *walk) mayMove(to *walk, what *spot, flags metadata.RenameFlags) error {
	g := w.guest
	if w.holds(to, what) {
		return syscall.EINVAL
	}
	if to.found.ino != 0 && to.holds(w, &to.found) {
		return syscall.ENOTEMPTY
	}
	if err := w.mayRemove(what); err != nil {
		return err
	}
	if err := to.mayReplace(what, flags); err != nil {
		return err
	}
	if err := g.denied(g.MayMove(w.dir().as(), to.dir().as(), what.as())); err != nil {
		return err
	}
	if flags&metadata.Exchange == 0 {
		return nil
	}
	return g.denied(g.MayMove(to.dir().as(), w.dir().as(), to.found.as()))
}

// mayReplace checks whether the user may make the name that of what.
func (w *walk) mayReplace(what *spot, flags metadata.RenameFlags) error {
	if w.found.ino == 0 {
		return w.vacant()
	}
	if err := w.mayRemove(&w.found); err != nil {
		return err
	}
	switch isDir := what.isDir(); {
	case flags&metadata.Exchange != 0, isDir == w.found.isDir():
		return nil
	case isDir:
		return syscall.ENOTDIR
	default:
		return syscall.EISDIR
	}
}

// holds reports whether the other walk leads through what.
func (w *walk) holds(other *walk, what *spot) bool {
	for i := range other.dirs {
		if other.dirs[i].ino == what.ino {
			return true
		}
	}
	return false
}
