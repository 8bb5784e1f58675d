package place

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// longestSocket is how long the path of a Unix socket can be.
const longestSocket = 107

// The modes of directories: for their owner alone, or to be passed through by
// others too, who can't list them.
const (
	private  = fs.FileMode(0o700)
	passable = fs.FileMode(0o711)
)

// Prepare makes the state and runtime directories and the link by which
// others find a runtime directory of its own. They are for this user alone;
// with open, others get as far as the admin socket.
//
// A directory that belongs to another user is refused: in a place that all
// may write to, somebody could have made it first.
func (p Paths) Prepare(uid int, open bool) error {
	if err := ownDir(p.State, uid, private); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	// The base is where the link goes, and what the defaults of all mounts of
	// this user lie in.
	if err := ownDir(filepath.Dir(p.DefaultRuntime), uid, passable); err != nil {
		return fmt.Errorf("runtime directory: %w", err)
	}
	mode := private
	if open {
		mode = passable
	}
	if err := ownDir(p.Runtime, uid, mode); err != nil {
		return fmt.Errorf("runtime directory: %w", err)
	}
	if n := len(p.Socket()); n > longestSocket {
		return fmt.Errorf("runtime directory: %s is too long for a socket's path by %d bytes; give a shorter --runtime-dir", p.Runtime, n-longestSocket)
	}
	if p.Runtime == p.DefaultRuntime {
		return nil
	}
	return p.link()
}

func (p Paths) link() error {
	if now, err := os.Readlink(p.DefaultRuntime); err == nil && now == p.Runtime {
		return nil
	}
	if err := os.Remove(p.DefaultRuntime); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("runtime directory: %s is in the way of a link to %s: %w", p.DefaultRuntime, p.Runtime, bare(err))
	}
	if err := os.Symlink(p.Runtime, p.DefaultRuntime); err != nil {
		return fmt.Errorf("runtime directory: %w", err)
	}
	return nil
}

// Clean removes what a daemon leaves in the runtime directory, and the
// directory when nothing else is in it.
func (p Paths) Clean() {
	_ = os.Remove(p.Socket())
	_ = os.Remove(p.Runtime)
	if p.Runtime != p.DefaultRuntime {
		if now, err := os.Readlink(p.DefaultRuntime); err == nil && now == p.Runtime {
			_ = os.Remove(p.DefaultRuntime)
		}
	}
}

// ownDir makes a directory of a mode, and the missing ones above it, and
// checks that it is this user's own.
func ownDir(path string, uid int, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if link, err := os.Lstat(path); err != nil || !belongsTo(link, uid, 0) {
		return errors.Join(err, fmt.Errorf("%s belongs to another user; remove it or give another directory", path))
	}
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !st.IsDir():
		return fmt.Errorf("%s is not a directory", path)
	case !belongsTo(st, uid):
		return fmt.Errorf("%s belongs to another user; remove it or give another directory", path)
	}
	if st.Mode().Perm() != mode {
		return os.Chmod(path, mode)
	}
	return nil
}

func belongsTo(st fs.FileInfo, uids ...int) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && slices.Contains(uids, int(sys.Uid))
}

// CleanSocket removes the admin socket.
func (p Paths) CleanSocket() { _ = os.Remove(p.Socket()) }

// RemoveMetadata removes the records.
func (p Paths) RemoveMetadata() error {
	if err := os.RemoveAll(p.Metadata()); err != nil {
		return fmt.Errorf("remove the records: %w", err)
	}
	return nil
}

// HasState says whether the state directory is there.
func (p Paths) HasState() bool {
	_, err := os.Stat(p.State)
	return err == nil
}

// CleanState removes a state directory in which a failed mount has put
// nothing but its log.
func (p Paths) CleanState() {
	if _, living, err := ReadHolder(p.StateLock()); err == nil && living {
		return
	}
	_ = os.Remove(p.NodeFile())
	_ = os.Remove(p.Log())
	_ = os.Remove(p.StateLock())
	_ = os.Remove(p.State)
}
