package cli

import (
	"context"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
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
