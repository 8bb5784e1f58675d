package host

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

// tmpfsMagic is the file system type of a tmpfs in statfs.
const tmpfsMagic = 0x01021994

// place is the location of a tier, existing or not.
type place struct {
	// mountDir is Dir/host, without symlinks.
	mountDir string
	// mounted is set if a tmpfs of hmcfs is mounted there; mount describes it.
	mounted bool
	mount   mountPoint
	// quotaDir is the directory of mode quota; empty if there is no tmpfs for it, and
	// noQuota is then the reason.
	quotaDir string
	noQuota  error
}

func (p place) quotaExists() bool {
	_, err := os.Lstat(p.quotaDir)
	return p.quotaDir != "" && err == nil
}

// place determines the location of the tier.
func (d *Driver) place() (place, error) {
	dir, err := filepath.EvalSymlinks(d.opts.Dir)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return place{}, fmt.Errorf("host tier: %w", err)
	}
	p := place{mountDir: filepath.Join(dir, "host")}
	at, found, err := findMount(p.mountDir)
	switch {
	case err != nil:
		return place{}, err
	case found && !at.ours():
		return place{}, fmt.Errorf("host tier: %s is mounted at %s; unmount it or choose another runtime directory", at.describe(), p.mountDir)
	case found:
		p.mounted, p.mount = true, at
	}
	p.quotaDir, p.noQuota = d.quotaDir(p.mountDir)
	return p, nil
}

// quotaDir returns the directory of mode quota: in shared memory, or in the runtime
// directory if that is a tmpfs.
func (d *Driver) quotaDir(mountDir string) (string, error) {
	shm := d.opts.SharedMemory
	if isTmpfs(shm) && unix.Access(shm, unix.W_OK|unix.X_OK) == nil {
		id := sha256.Sum256([]byte(d.opts.ID))
		return ownName(filepath.Join(shm, fmt.Sprintf("hmcfs-%d-%x", os.Getuid(), id[:8])))
	}
	if isTmpfs(filepath.Dir(mountDir)) {
		return filepath.Join(filepath.Dir(mountDir), "host-files"), nil
	}
	return "", fmt.Errorf("host tier: neither %s nor %s is a writable tmpfs: choose a runtime directory on a tmpfs",
		shm, filepath.Dir(mountDir))
}

// ownNames bounds the number of names tried for the directory of mode quota: other users
// may have created some of them first.
const ownNames = 16

// ownName returns the name under which this user has a directory, or else the first unused
// one.
func ownName(base string) (string, error) {
	free := ""
	for i := range ownNames {
		path := base
		if i > 0 {
			path = fmt.Sprintf("%s-%d", base, i)
		}
		var st unix.Stat_t
		switch err := unix.Lstat(path, &st); {
		case err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && int(st.Uid) == os.Geteuid():
			return path, nil
		case errors.Is(err, unix.ENOENT) && free == "":
			free = path
		}
	}
	if free == "" {
		return "", fmt.Errorf("host tier: other users have already created %s and the %d names after it; give another --runtime-dir, which yields other names",
			base, ownNames-1)
	}
	return free, nil
}

func isTmpfs(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && int64(st.Type) == tmpfsMagic
}

// errInUse reports a tier that another process has open.
var errInUse = errors.New("in use by another process")

// store is the open directory of a tier.
type store struct {
	path  string
	root  *os.File // holds the lock
	files *os.File
	epoch devices.Epoch
}

// openStore opens a tier's directory and locks it. Missing parts are created.
func openStore(path string) (s *store, err error) {
	s = &store{path: path}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("host tier %s: %w", path, err), s.close())
		}
	}()
	if s.root, err = openDir(unix.AT_FDCWD, path); err != nil {
		return s, err
	}
	fd := int(s.root.Fd())
	if err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return s, errInUse
	} else if err != nil {
		return s, err
	}
	if err = unix.Mkdirat(fd, "files", 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return s, err
	}
	if s.files, err = openDir(fd, "files"); err != nil {
		return s, err
	}
	s.epoch, err = storedEpoch(fd)
	return s, err
}

func openDir(at int, path string) (*os.File, error) {
	fd, err := unix.Openat(at, path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// storedEpoch reads the epoch of a tier, or creates one.
func storedEpoch(root int) (devices.Epoch, error) {
	var buf [32]byte
	if n, err := unix.Readlinkat(root, "epoch", buf[:]); err == nil {
		var epoch devices.Epoch
		if _, err := fmt.Sscanf(string(buf[:n]), "%d", &epoch); err == nil && epoch != 0 {
			return epoch, nil
		}
		// Unreadable: the existing files count as lost.
		if err := unix.Unlinkat(root, "epoch", 0); err != nil {
			return 0, err
		}
	}
	epoch := devices.NextEpoch(0)
	return epoch, unix.Symlinkat(fmt.Sprint(uint64(epoch)), root, "epoch")
}

func (s *store) close() error {
	var errs []error
	for _, f := range []*os.File{s.files, s.root} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
