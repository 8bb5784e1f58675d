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

// longestSocket is the maximum length of the path of a Unix socket, in bytes.
const longestSocket = 107

// The modes of directories: for the owner only, or also searchable, but not readable, by
// others.
const (
	private  = fs.FileMode(0o700)
	passable = fs.FileMode(0o711)
)

// Prepare creates the state and runtime directories, and the link by which other commands
// find a runtime directory that is not the default one. They are accessible to this user
// only; with open, others can reach the admin socket.
//
// An existing directory is used if it is empty, or if hmcfs has used it before; it keeps
// its mode. One that others may write to, or that belongs to another user, is refused, as
// its contents could have been put there by somebody else.
func (p Paths) Prepare(uid int, open bool) error {
	// The base holds the link, and the default directories of all mounts of this user. A runtime
	// directory elsewhere does without: the mount, or the served directory, names its socket.
	baseErr := ownBase(filepath.Dir(p.DefaultRuntime), uid)
	if baseErr != nil && p.Runtime == p.DefaultRuntime {
		return fmt.Errorf("runtime directory: %w, or give another one with --runtime-dir", baseErr)
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
	if p.Runtime == p.DefaultRuntime || baseErr != nil {
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

// Clean removes what a daemon leaves in the runtime directory, and the directory itself if
// it is then empty and hmcfs created it.
func (p Paths) Clean() {
	_ = os.Remove(p.Socket())
	_ = os.Remove(p.Holder())
	leave(p.Runtime)
	p.Unlink()
}

// Unlink removes the link by which other commands find a runtime directory that is not the default one.
func (p Paths) Unlink() {
	if p.Runtime == p.DefaultRuntime {
		return
	}
	if now, err := os.Readlink(p.DefaultRuntime); err == nil && now == p.Runtime {
		_ = os.Remove(p.DefaultRuntime)
	}
}

func belongsTo(st fs.FileInfo, uids ...int) bool { return slices.Contains(uids, ownerOf(st)) }

// ownerOf returns the user that owns a file, or -1.
func ownerOf(st fs.FileInfo) int {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return int(sys.Uid)
	}
	return -1
}

// StateIsOf returns an error unless a user owns the state directory. The owner could not
// open files that another user, root included, creates in it.
func (p Paths) StateIsOf(uid int) error {
	st, err := os.Stat(p.State)
	if err == nil && !belongsTo(st, uid) {
		err = fmt.Errorf("state directory %s belongs to user %d; run this as that user", p.State, ownerOf(st))
	}
	return err
}

// TrustsRuntime reports whether only a user, or root, can have made what is in the runtime directory.
func (p Paths) TrustsRuntime(uid int) bool { return believable(p.Runtime, uid) == nil }

// CleanSocket removes the admin socket.
func (p Paths) CleanSocket() { _ = os.Remove(p.Socket()) }

// RemoveMetadata removes the records: either all of them or, if it is killed, none that a
// next mount would read.
func (p Paths) RemoveMetadata() error {
	err := p.SweepMetadata()
	if err == nil {
		err = os.Rename(p.Metadata(), p.removed())
	}
	if err == nil && p.Runtime != "" {
		_ = os.Remove(p.Witness()) // of the removed records
		_ = os.Remove(p.Journal())
		_ = os.Remove(p.Journal() + ".new") // of a daemon that was killed while it made the journal anew
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

// ForgetAll removes all witnesses if nothing else is in the runtime directory. It is for
// the end of a mount that has freed its memory, which the witnesses refer to.
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

// SweepMetadata removes the remains of records whose removal was interrupted.
func (p Paths) SweepMetadata() error { return os.RemoveAll(p.removed()) }

// removed returns the path of records that are being removed.
func (p Paths) removed() string { return p.Metadata() + ".removed" }

// HasState reports whether the state directory exists.
func (p Paths) HasState() bool {
	_, err := os.Stat(p.State)
	return err == nil
}

// CleanState removes a state directory that contains only the log of a failed mount.
func (p Paths) CleanState() {
	if isHeld(p.StateLock()) {
		return
	}
	_ = os.Remove(p.NodeFile())
	_ = os.Remove(p.Log())
	_ = os.Remove(p.StateLock())
	leave(p.State)
}
