package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/copier"
	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/client"
)

// hmcPrefix begins the path of a file that is reached through a session.
const hmcPrefix = "hmc:"

// hmcText is the part of the help of commands on files that explains their syntax.
const hmcText = "hmc:DEVICE/PATH names a file of a daemon, with a mount or without one: that of --mount, of\n" +
	"$HMCFS_MOUNT, of the current directory, or the only one. A path in a mount, or below the directory\n" +
	"of hmcfs serve, does too. Between two files of one daemon the devices move the bytes themselves."

// trees reaches files through the sessions of daemons, one for each.
type trees struct {
	*app

	mount    string
	sessions map[string]*sessionTree
}

// addMount adds --mount to a command on files. The caller of a command closes the trees.
func (a *app) addMount(cmd *cobra.Command) *trees {
	t := &trees{app: a, sessions: map[string]*sessionTree{}}
	addMountFlag(cmd, &t.mount)
	return t
}

// close ends the sessions; nil trees have none.
func (t *trees) close() {
	if t == nil {
		return
	}
	for _, s := range t.sessions {
		_ = s.session.Close() // nothing is left to write
	}
}

// isHMC reports whether a path is that of a file that is reached through a session.
func isHMC(text string) bool { return strings.HasPrefix(text, hmcPrefix) }

// inServed reports whether a path is in a served directory.
func inServed(text string) bool {
	m, found := mountOfPath(text)
	return found && m.IsServed()
}

// find returns the tree and the name of a file: hmc:NAME, or a path in a mount or below a served
// directory.
func (t *trees) find(ctx context.Context, text string) (*sessionTree, string, error) {
	m, name, err := t.locate(text)
	if err != nil {
		return nil, "", err
	}
	if s := t.sessions[m.MountPoint]; s != nil {
		return s, name, nil
	}
	c, err := t.connect(ctx, m)
	if client.IsForbidden(err) {
		// Sessions may be open to users that the daemon tells nothing else.
		if socket, failure := answers(ctx, m, socketOf); failure == nil && socket != "" {
			c, err = client.NewOf(socket, m.Owner()), nil
		}
	}
	if err != nil {
		return nil, "", err
	}
	opened, err := client.OpenSession(ctx, c.Socket())
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", m.MountPoint, err)
	}
	s := &sessionTree{sessionFiles: opened.Files(), session: opened, client: c, mount: m}
	t.sessions[m.MountPoint] = s
	return s, name, nil
}

// locate returns the daemon's mount, and the name that a file has in it.
func (t *trees) locate(text string) (place.Mount, string, error) {
	if !isHMC(text) {
		abs, err := place.Absolute(text)
		if err != nil {
			return place.Mount{}, "", err
		}
		m, found, err := place.MountOf(abs)
		if err == nil && !found {
			err = notMounted("%s is not on an hmcfs mount; write hmc:DEVICE/PATH for a file of a daemon", text)
		}
		if err != nil {
			return m, "", err
		}
		rel, err := filepath.Rel(m.MountPoint, abs)
		return m, rel, err
	}
	m, err := t.mountFor(t.mount)
	name := path.Clean("/" + strings.TrimPrefix(text, hmcPrefix))[1:]
	if name == "" {
		name = "."
	}
	return m, name, err
}

// sessionFiles are the calls of client.Files that commands make.
type sessionFiles interface {
	fs.ReadDirFS
	fs.StatFS
	fs.ReadLinkFS
	changedFiles
	keptFiles
	OpenFile(name string, flag int, perm fs.FileMode) (*client.File, error)
	Attribute(name, attribute string) ([]byte, error)
	Attributes(name string) ([]string, error)
	StatFS(name string) (devices.Usage, error)
}

// keptFiles are those that set what a copy keeps.
type keptFiles interface {
	Chmod(name string, mode fs.FileMode) error
	Chown(name string, uid, gid int) error
	Chtimes(name string, atime, mtime time.Time) error
}

// changedFiles are those that change files.
type changedFiles interface {
	Mkdir(name string, perm fs.FileMode) error
	MkdirAll(name string, perm fs.FileMode) error
	Symlink(target, name string) error
	Link(from, to string) error
	Truncate(name string, size int64) error
	Rename(from, to string) error
	RenameNew(from, to string) error
	Remove(name string) error
	Copy(ctx context.Context, from, to string) (int64, error)
	SetAttribute(name, attribute string, value []byte) error
}

// sessionTree is the files of a daemon.
type sessionTree struct {
	sessionFiles

	session *client.Session
	client  *client.Client
	mount   place.Mount
}

// Open opens a file.
func (s *sessionTree) Open(name string, flag int, perm fs.FileMode) (copier.Handle, error) {
	f, err := s.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// hasRootName reports whether a name is directly in the root, where no files can be.
func hasRootName(name string) bool { return !strings.Contains(name, "/") }

// noDevice returns the error for a file that would be in the root, if there is none of the name.
func (s *sessionTree) noDevice(text, name string) error {
	if !hasRootName(name) {
		return nil
	}
	if _, err := s.Lstat(name); err == nil && name != "." {
		return nil
	}
	entries, err := s.ReadDir(".")
	if err != nil {
		return err
	}
	var dirs []string
	for _, e := range entries {
		if e.IsDir() && !isOwnDir(e.Name()) {
			dirs = append(dirs, hmcPrefix+e.Name())
		}
	}
	return usage(fmt.Errorf("%s: files can only be in the directories of devices; use one of them: %s", text, strings.Join(dirs, ", ")))
}

// streams is the tree that has only standard input and output, under any name.
type streams struct {
	in   io.Reader
	out  io.Writer
	mode fs.FileMode
}

// newStreams returns the standard streams. What is read has the mode of a new file.
func (a *app) newStreams() *streams {
	mask := syscall.Umask(0)
	syscall.Umask(mask)
	return &streams{in: a.Stdin, out: a.Stdout, mode: 0o666 &^ fs.FileMode(mask)}
}

// errStream is the error of what streams can't do.
var errStream = errors.New("standard input and output are no directories")

func (s *streams) Stat(string) (fs.FileInfo, error)      { return streamInfo{s.mode}, nil }
func (s *streams) ReadDir(string) ([]fs.DirEntry, error) { return nil, errStream }
func (s *streams) ReadLink(string) (string, error)       { return "", errStream }
func (s *streams) Mkdir(string, fs.FileMode) error       { return errStream }
func (s *streams) Symlink(_, _ string) error             { return errStream }
func (s *streams) Chmod(string, fs.FileMode) error       { return nil }
func (s *streams) Truncate(string, int64) error          { return nil }
func (s *streams) Remove(string) error                   { return nil }
func (s *streams) Link(_, _ string) error                { return errStream }
func (s *streams) Chown(string, int, int) error          { return nil }
func (s *streams) Lstat(string) (fs.FileInfo, error)     { return streamInfo{s.mode}, nil }

func (s *streams) Chtimes(string, time.Time, time.Time) error { return nil }

func (s *streams) Open(string, int, fs.FileMode) (copier.Handle, error) {
	return &streamHandle{streams: s}, nil
}

// streamHandle writes to standard output in order, with zeros for holes.
type streamHandle struct {
	*streams

	at int64
}

func (h *streamHandle) Read(p []byte) (int, error)  { return h.in.Read(p) }
func (h *streamHandle) Write(p []byte) (int, error) { return h.WriteAt(p, h.at) }
func (h *streamHandle) Close() error                { return nil }

// WriteAt writes at or after the end of what was written.
func (h *streamHandle) WriteAt(p []byte, off int64) (int, error) {
	if err := h.Truncate(off); err != nil {
		return 0, err
	}
	n, err := h.out.Write(p)
	h.at += int64(n)
	return n, err
}

// Truncate fills up with zeros.
func (h *streamHandle) Truncate(size int64) error {
	zeros := make([]byte, min(size-h.at, 1<<20))
	for h.at < size {
		n, err := h.out.Write(zeros[:min(int64(len(zeros)), size-h.at)])
		h.at += int64(n)
		if err != nil {
			return err
		}
	}
	return nil
}

// streamInfo describes a stream as a regular file.
type streamInfo struct{ mode fs.FileMode }

func (i streamInfo) Name() string       { return standardStream }
func (i streamInfo) Size() int64        { return 0 }
func (i streamInfo) Mode() fs.FileMode  { return i.mode }
func (i streamInfo) ModTime() time.Time { return time.Time{} }
func (i streamInfo) IsDir() bool        { return false }
func (i streamInfo) Sys() any           { return nil }

// isThroughSession reports whether a copy can't be made with the files of the kernel alone.
func isThroughSession(paths []string) bool {
	return slices.ContainsFunc(paths, func(p string) bool {
		return inServed(p) || isHMC(p) || p == standardStream
	})
}

// ofCopy returns a function that finds the files of a copy (copier.Options.Find), of which err
// gets the first failure.
func (t *trees) ofCopy(ctx context.Context, paths []string) (find func(string) (copier.Tree, string, bool), err error) {
	type found struct {
		tree copier.Tree
		name string
	}
	all := map[string]found{}
	standard := t.newStreams()
	for _, p := range paths {
		if p == standardStream {
			all[p] = found{standard, p}
			continue
		}
		if _, on := mountOfPath(p); !on && !isHMC(p) {
			continue
		}
		tree, name, err := t.find(ctx, p)
		if err != nil {
			return nil, err
		}
		all[p] = found{tree, name}
	}
	return func(p string) (copier.Tree, string, bool) {
		f, is := all[p]
		return f.tree, f.name, is
	}, nil
}

// each calls do for every file. The failure of one among several is printed, and does not stop
// the others.
func (t *trees) each(ctx context.Context, texts []string, do func(s *sessionTree, text, name string) error) error {
	var first error
	failed := 0
	for _, text := range texts {
		s, name, err := t.find(ctx, text)
		if err == nil {
			err = do(s, text, name)
		}
		if err == nil {
			continue
		}
		if len(texts) == 1 || ctx.Err() != nil {
			return err
		}
		printError(t.Stderr, err)
		first, failed = err, failed+1
	}
	switch {
	case failed == 0:
		return nil
	case failed == len(texts):
		return &codeError{code: exitCode(first), err: errSilent}
	}
	return &codeError{code: exitPartial, err: errSilent}
}

// named replaces the name of a file in an error by what the user wrote.
func named(text string, err error) error {
	if failed, is := errors.AsType[*fs.PathError](err); is {
		return &fs.PathError{Op: failed.Op, Path: text, Err: failed.Err}
	}
	return err
}

var _ copier.Inner = (*sessionTree)(nil)

var _ copier.Tree = (*streams)(nil)
