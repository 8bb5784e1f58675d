package place

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// longestSocket is the longest path of a Unix socket, in bytes.
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
// A directory that is there already is taken if it is empty, or if hmcfs has
// used it before; it keeps its mode then. One that others may write to, or that
// belongs to another user, is refused: somebody could have put anything in it.
func (p Paths) Prepare(uid int, open bool) error {
	// The base is where the link goes, and what the defaults of all mounts of
	// this user lie in.
	base := filepath.Dir(p.DefaultRuntime)
	if err := ownBase(base, uid); err != nil {
		return fmt.Errorf("runtime directory: %w", err)
	}
	mode := private
	if open {
		mode = passable
	}
	for _, d := range []struct {
		name, path, flag string
		mode             fs.FileMode
	}{{"state directory", p.State, "--state-dir", private}, {"runtime directory", p.Runtime, "--runtime-dir", mode}} {
		if err := take(d.path, uid, d.mode); err != nil {
			return fmt.Errorf("%s: %w, or give another one with %s", d.name, err, d.flag)
		}
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
		return fmt.Errorf("runtime directory: %s prevents the creation of a link to %s: %w", p.DefaultRuntime, p.Runtime, bare(err))
	}
	if err := os.Symlink(p.Runtime, p.DefaultRuntime); err != nil {
		return fmt.Errorf("runtime directory: %w", err)
	}
	return nil
}

// Clean removes what a daemon leaves in the runtime directory, and the
// directory when nothing else is in it and hmcfs has made it.
func (p Paths) Clean() {
	_ = os.Remove(p.Socket())
	leave(p.Runtime)
	if p.Runtime != p.DefaultRuntime {
		if now, err := os.Readlink(p.DefaultRuntime); err == nil && now == p.Runtime {
			_ = os.Remove(p.DefaultRuntime)
		}
	}
}

func belongsTo(st fs.FileInfo, uids ...int) bool { return slices.Contains(uids, ownerOf(st)) }

// ownerOf is the user that a file belongs to, or -1.
func ownerOf(st fs.FileInfo) int {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return int(sys.Uid)
	}
	return -1
}

// StateIsOf answers an error unless a user is the owner of the state directory. Files
// that another one makes in it, root included, are ones that the owner can't open.
func (p Paths) StateIsOf(uid int) error {
	st, err := os.Stat(p.State)
	if err == nil && !belongsTo(st, uid) {
		err = fmt.Errorf("state directory %s belongs to user %d; run this as that user", p.State, ownerOf(st))
	}
	return err
}

// CleanSocket removes the admin socket.
func (p Paths) CleanSocket() { _ = os.Remove(p.Socket()) }

// RemoveMetadata removes the records: all of them or, where it is killed, none
// that a next mount would read.
func (p Paths) RemoveMetadata() error {
	err := p.SweepMetadata()
	if err == nil {
		err = os.Rename(p.Metadata(), p.removed())
	}
	if err == nil {
		p.forget()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = p.SweepMetadata()
	}
	if err != nil {
		return fmt.Errorf("remove the records: %w", err)
	}
	return nil
}

// ForgetAll removes all witnesses when nothing else is in the runtime directory. It is
// for the end of a mount that has given back its memory, which they mark.
func (p Paths) ForgetAll() {
	names, err := os.ReadDir(p.Runtime)
	if err != nil {
		return
	}
	isWitness := func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), witnessName) }
	if slices.ContainsFunc(names, func(e fs.DirEntry) bool { return e.Name() != markName && !isWitness(e) }) {
		return
	}
	for _, e := range names {
		if isWitness(e) {
			_ = os.Remove(filepath.Join(p.Runtime, e.Name()))
		}
	}
}

// forget removes the witness of records that are gone.
func (p Paths) forget() {
	if p.Runtime != "" {
		_ = os.Remove(p.Witness())
	}
}

// SweepMetadata removes what is left of records that were being removed.
func (p Paths) SweepMetadata() error { return os.RemoveAll(p.removed()) }

// removed returns the path of records that are being removed.
func (p Paths) removed() string { return p.Metadata() + ".removed" }

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
	leave(p.State)
}
