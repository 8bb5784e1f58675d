package cli

import (
	"context"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/copier"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
)

// keyFiles are the files of keys/ or publish/, by key.
type keyFiles interface {
	// stat describes a file, behind its link.
	stat(key string) (fs.FileInfo, error)
	// attribute returns an extended attribute; "" if there is none.
	attribute(key, name string) string
	link(key string) (string, error)
	open(key string) (keyHandle, error)
	list() ([]fs.DirEntry, error)
	// path names a file for a copy, and in messages.
	path(key string) string
	// target names the file that a link leads to.
	target(link string) string
}

// keyHandle is an open file.
type keyHandle interface {
	io.ReaderAt
	io.Closer
	Stat() (fs.FileInfo, error)
}

// mountedKeys are those of a mount.
type mountedKeys struct {
	m   place.Mount
	dir string
}

func (k mountedKeys) stat(key string) (fs.FileInfo, error) { return statIn(k.m, k.dir, key, os.Stat) }
func (k mountedKeys) attribute(key, name string) string    { return xattr(k.path(key), name) }
func (k mountedKeys) link(key string) (string, error)      { return os.Readlink(k.path(key)) }
func (k mountedKeys) open(key string) (keyHandle, error)   { return os.Open(k.path(key)) }
func (k mountedKeys) list() ([]fs.DirEntry, error)         { return os.ReadDir(k.path("")) }
func (k mountedKeys) path(key string) string               { return filepath.Join(k.m.MountPoint, k.dir, key) }
func (k mountedKeys) target(link string) string            { return k.path(link) }

// sessionKeys are those of a daemon without a mount.
type sessionKeys struct {
	tree *sessionTree
	dir  string
}

func (k sessionKeys) name(key string) string               { return path.Join(k.dir, key) }
func (k sessionKeys) stat(key string) (fs.FileInfo, error) { return k.tree.Stat(k.name(key)) }
func (k sessionKeys) link(key string) (string, error)      { return k.tree.ReadLink(k.name(key)) }
func (k sessionKeys) list() ([]fs.DirEntry, error)         { return k.tree.ReadDir(k.dir) }
func (k sessionKeys) path(key string) string               { return hmcPrefix + k.name(key) }
func (k sessionKeys) target(link string) string            { return k.path(link) }

func (k sessionKeys) attribute(key, name string) string {
	value, err := k.tree.Attribute(k.name(key), name)
	if err != nil {
		return ""
	}
	return strings.TrimRight(string(value), "\x00\n")
}

func (k sessionKeys) open(key string) (keyHandle, error) {
	return k.tree.OpenFile(k.name(key), os.O_RDONLY, 0)
}

// keysOf returns the files of a directory of keys, and the sessions that they are reached by if there is no mount; the
// caller closes these.
func (a keyVerbs) keysOf(ctx context.Context, m place.Mount, dir string) (keyFiles, *trees, error) {
	if !m.IsServed() {
		return mountedKeys{m, dir}, nil, nil
	}
	t := &trees{app: a.app, mount: m.MountPoint, sessions: map[string]*sessionTree{}}
	tree, _, err := t.find(ctx, hmcPrefix+dir)
	return sessionKeys{tree, dir}, t, err
}

// inoOf returns the inode number of a file.
func inoOf(st fs.FileInfo) metadata.Ino {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return metadata.Ino(sys.Ino)
	}
	return 0
}

// publishOne publishes a file through a session, and returns its inode number. One from outside the daemon is copied to a
// device first.
func (t *trees) publishOne(ctx context.Context, m place.Mount, device string, p keyPath, r *keyReport) (ino metadata.Ino, err error) {
	text, staged := p.path, !isHMC(p.path) && !isOn(m, p.path)
	if staged {
		if err = t.hasDevice(ctx, m, device); err != nil {
			return 0, err
		}
		text = hmcPrefix + string(devices.NameOf(device)) + "/" + stagedName()
		o := copier.Options{New: true, Started: r.bar.grow, Moved: r.bar.add}
		if err = t.throughSession(ctx, []string{p.path, text}, &o); err != nil {
			return 0, err
		}
		if _, err = copier.Copy(ctx, []string{p.path}, text, o); err != nil {
			return 0, err
		}
	}
	s, name, err := t.find(ctx, text)
	if err != nil {
		return 0, err
	}
	st, err := s.Stat(name)
	if err == nil {
		ino = inoOf(st)
		published := publishDir + "/" + p.key
		err = notPublished(s.RenameNew(name, published), p.path, "hmcfs rm "+hmcPrefix+published)
	}
	if err != nil && staged {
		_ = s.Remove(name) // it is only a copy
	}
	return ino, named(text, err)
}

// hasDevice returns an error unless there is a device.
func (t *trees) hasDevice(ctx context.Context, m place.Mount, text string) error {
	s, root, err := t.find(ctx, hmcPrefix)
	if err != nil {
		return err
	}
	entries, err := s.ReadDir(root)
	if names := devicesIn(entries); err == nil && !slices.Contains(names, string(devices.NameOf(text))) {
		return noDevice(m, text, names)
	}
	return err
}

// rename gives a file another name, or one in a directory, and returns the route of its bytes.
func (t *trees) rename(ctx context.Context, from, to string, replace bool) (way string, err error) {
	_, source, err := t.find(ctx, from)
	if err != nil {
		return "", err
	}
	s, target, err := t.find(ctx, to)
	if err != nil {
		return "", err
	}
	if st, serr := s.Stat(target); serr == nil && st.IsDir() {
		target = path.Join(target, path.Base(source))
	}
	if replace {
		err = s.Rename(source, target)
	} else {
		err = s.RenameNew(source, target)
	}
	if err != nil {
		return "", err
	}
	value, _ := s.Attribute(target, pathXattr) // a file that has not moved has none
	return string(value), nil
}
