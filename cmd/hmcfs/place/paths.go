package place

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// Host holds the values on which the names of directories depend.
type Host struct {
	// UID is the user of the daemon.
	UID int
	// Getenv reads the environment.
	Getenv func(string) string
}

// Paths are the files and directories of one mount.
type Paths struct {
	MountPoint string
	State      string
	Runtime    string
	// DefaultRuntime is the directory in which other commands look first. It is Runtime, or
	// a link to it.
	DefaultRuntime string
}

// Socket returns the path of the admin socket.
func (p Paths) Socket() string { return filepath.Join(p.Runtime, "admin.sock") }

// Holder returns the path of the socket of the process that keeps the mount while no daemon lives.
func (p Paths) Holder() string { return filepath.Join(p.Runtime, adminapi.HolderSocket) }

// Lock returns the path of the file that a living daemon holds locked.
func (p Paths) Lock() string { return filepath.Join(p.Runtime, "lock") }

// StateLock returns the path of the file that a user of the records holds locked.
func (p Paths) StateLock() string { return filepath.Join(p.State, "lock") }

// Metadata returns the directory of the records.
func (p Paths) Metadata() string { return filepath.Join(p.State, "metadata") }

// witnessName is the prefix of the names of witnesses.
const witnessName = "records-"

// Witness returns the path of the file that identifies the records of the state directory.
// It is stored beside the memory that the records describe, and does not depend on how the
// directory is named.
func (p Paths) Witness() string {
	state := p.State
	if abs, err := filepath.Abs(state); err == nil {
		state = abs
	}
	if real, err := filepath.EvalSymlinks(state); err == nil {
		state = real
	}
	return filepath.Join(p.Runtime, fmt.Sprintf("%s%016x", witnessName, fnv64(state)))
}

// Journal returns the path of the file with changes that the records do not have yet. It is beside the
// witness, since it is of use as long.
func (p Paths) Journal() string { return p.Witness() + ".journal" }

// OpenJournal opens the file, which is created if create is set.
func (p Paths) OpenJournal(create bool) (*os.File, error) {
	flags := os.O_RDWR | unix.O_NOFOLLOW | unix.O_NONBLOCK
	if create {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(p.Journal(), flags, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the journal of the records: %w", err)
	}
	st, err := f.Stat()
	if err == nil && (!st.Mode().IsRegular() || !belongsTo(st, os.Geteuid(), 0) || st.Mode()&writable != 0) {
		err = fmt.Errorf("the journal of the records, %s, is not trusted: it must be a file of user %d that others can't write to", f.Name(), os.Geteuid())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Log returns the path of the daemon's log.
func (p Paths) Log() string { return filepath.Join(p.State, "hmcfs.log") }

// Of returns the paths of a mount. state and runtime override the defaults.
func (h Host) Of(mountPoint, state, runtime string) (Paths, error) {
	p := Paths{MountPoint: mountPoint, State: state, Runtime: runtime}
	p.DefaultRuntime = filepath.Join(h.runtimeBase(), Escape(mountPoint))
	if p.Runtime == "" {
		p.Runtime = p.DefaultRuntime
	}
	if p.State == "" {
		base, err := h.stateBase()
		if err != nil {
			return Paths{}, err
		}
		p.State = filepath.Join(base, Escape(mountPoint))
	}
	return p, nil
}

func (h Host) runtimeBase() string {
	switch dir := h.Getenv("XDG_RUNTIME_DIR"); {
	case h.UID == 0:
		return "/run/hmcfs"
	case filepath.IsAbs(dir):
		return filepath.Join(dir, "hmcfs")
	default:
		return filepath.Join(os.TempDir(), "hmcfs-"+strconv.Itoa(h.UID))
	}
}

func (h Host) stateBase() (string, error) {
	dir := h.Getenv("XDG_STATE_HOME")
	switch {
	case filepath.IsAbs(dir):
		return filepath.Join(dir, "hmcfs"), nil
	case h.UID == 0:
		return "/var/lib/hmcfs", nil
	case h.Getenv("HOME") != "":
		return filepath.Join(h.Getenv("HOME"), ".local", "state", "hmcfs"), nil
	}
	return "", fmt.Errorf("no state directory: neither XDG_STATE_HOME nor HOME is set; give --state-dir DIR")
}

// Find returns the paths of a mount whose daemon belongs to owner: where a daemon of that
// user puts its link, whatever its environment was. Paths that another user could have
// created are omitted; doubt names them.
func (h Host) Find(mountPoint string, owner int) (places []Paths, doubt error) {
	name := Escape(mountPoint)
	for _, base := range h.basesOf(owner) {
		dir := filepath.Join(base, name)
		runtime := followLink(dir)
		if err := cmp.Or(believable(base, owner), believable(runtime, owner)); err != nil {
			doubt = errors.Join(doubt, err)
			continue
		}
		places = append(places, Paths{MountPoint: mountPoint, Runtime: runtime, DefaultRuntime: dir})
	}
	return places, doubt
}

// basesOf returns the directories in which a daemon of a user puts its link, whatever its
// environment was.
func (h Host) basesOf(owner int) []string {
	return []string{
		Host{UID: owner, Getenv: h.Getenv}.runtimeBase(),
		filepath.Join("/run/user", strconv.Itoa(owner), "hmcfs"),
		filepath.Join(os.TempDir(), "hmcfs-"+strconv.Itoa(owner)),
	}
}

func followLink(path string) string {
	if target, err := os.Readlink(path); err == nil && filepath.IsAbs(target) {
		return target
	}
	return path
}

// Escape turns a path into one file name: slashes become dashes; a dash and every character
// that is not plain become %XX. Different paths get different names.
func Escape(path string) string {
	var b strings.Builder
	trimmed := strings.Trim(path, "/")
	for i := range len(trimmed) {
		switch c := trimmed[i]; {
		case c == '/':
			b.WriteByte('-')
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	if b.Len() == 0 {
		return "%2F"
	}
	return shorten(b.String(), path)
}

// shorten limits a long name to the length permitted for a file name and a socket's path:
// it keeps the end and adds a hash of the whole.
func shorten(name, path string) string {
	const longest = 48
	if len(name) <= longest {
		return name
	}
	return fmt.Sprintf("%016x-%s", fnv64(path), name[len(name)-longest+17:])
}

func fnv64(s string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, s) // it never fails
	return h.Sum64()
}

// Absolute returns the path without links or dots. A mount point is returned without being
// accessed: it is not a link, a dead mount can't be accessed, and one whose daemon is
// stopped never answers.
func Absolute(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", path, err)
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if err != nil {
		return abs, nil //nolint:nilerror // the mount table is searched for the path as given
	}
	named := filepath.Join(parent, filepath.Base(abs))
	if _, found, err := MountAt(named); err == nil && found {
		return named, nil
	}
	if whole, err := filepath.EvalSymlinks(named); err == nil {
		return whole, nil
	}
	return named, nil
}
