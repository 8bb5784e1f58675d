package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

// openTmpfs mounts the tier's tmpfs, or adopts it. If mounting is not allowed, it returns
// neither a device nor an error, and why is the reason.
func (d *Driver) openTmpfs(p place, size devices.Size) (dev *Device, why string, err error) {
	why = "a private tmpfs, served by the kernel"
	switch {
	case !p.mounted:
		if size == 0 {
			if size, err = defaultSize(); err != nil {
				return nil, "", err
			}
		}
		if err = d.mountFresh(p.mountDir, size); err != nil {
			return nil, refusal(err), nil
		}
	default:
		why = "the private tmpfs of an earlier mount, adopted with its files"
	}
	s, err := openStore(p.mountDir)
	if err != nil {
		return nil, "", errors.Join(err, d.undoMount(p))
	}
	if p.mounted && size != 0 {
		if err = d.resize(p, size); err != nil {
			return nil, "", errors.Join(err, s.close())
		}
	}
	if err = d.noteReads(p.mountDir); err != nil {
		return nil, "", errors.Join(err, s.close(), d.undoMount(p))
	}
	limit := &tmpfsLimit{store: s}
	u, err := limit.usage()
	if err != nil {
		return nil, "", errors.Join(err, s.close(), d.undoMount(p))
	}
	return newDevice(s, ModeTmpfs, why, limit, u.Total), "", nil
}

// refusal returns the reason why there is no tmpfs.
func refusal(err error) string {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Sprintf("no CAP_SYS_ADMIN: %v", err)
	}
	return err.Error()
}

// mountFresh mounts a tmpfs that no other user can access, excluded from swap if the kernel
// supports it (since 6.4).
func (d *Driver) mountFresh(dir string, size devices.Size) error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	data := fmt.Sprintf("size=%d,mode=0700,nr_inodes=%d", uint64(size), filesFor(size))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	err := d.mount(mountSource, dir, "tmpfs", flags, data+",noswap")
	if errors.Is(err, unix.EINVAL) {
		err = d.mount(mountSource, dir, "tmpfs", flags, data)
	}
	if err != nil {
		// Either it is empty, or it does not belong to hmcfs and can't be removed.
		_ = os.Remove(dir)
		return fmt.Errorf("mount a tmpfs at %s: %w", dir, err)
	}
	// If this fails, the mount is also visible in other namespaces, but not readable.
	_ = d.mount("", dir, "", unix.MS_PRIVATE, "")
	return nil
}

// noteReads sets the policy of Options.Atime on the tier's mount, new or adopted: it
// governs the reads that the kernel serves itself.
func (d *Driver) noteReads(dir string) error {
	flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	switch d.opts.Atime {
	case devices.AtimeNever:
		flags |= unix.MS_NOATIME
	case devices.AtimeAlways:
		flags |= unix.MS_STRICTATIME
	default:
		flags |= unix.MS_RELATIME
	}
	if err := d.mount("", dir, "", flags, ""); err != nil {
		return fmt.Errorf("host tier %s: set its atime mode: %w", dir, err)
	}
	return nil
}

// undoMount undoes mountFresh after a failure.
func (d *Driver) undoMount(p place) error {
	if p.mounted {
		return nil
	}
	return unix.Unmount(p.mountDir, unix.MNT_DETACH)
}

// resize changes an adopted tmpfs to the requested size.
func (d *Driver) resize(p place, size devices.Size) error {
	var st unix.Statfs_t
	if err := unix.Statfs(p.mountDir, &st); err != nil {
		return fmt.Errorf("host tier %s: %w", p.mountDir, err)
	}
	total := devices.Size(st.Blocks) * devices.Size(st.Bsize)
	used := devices.Size(st.Blocks-st.Bfree) * devices.Size(st.Bsize)
	switch {
	case total == size:
		return nil
	case size < used:
		return tooSmall(p.mountDir, size, used)
	}
	data := fmt.Sprintf("size=%d", uint64(size))
	if st.Files > 0 { // one of an earlier hmcfs has no limit, and can't get one
		data += fmt.Sprintf(",nr_inodes=%d", max(filesFor(size), st.Files-st.Ffree))
	}
	if p.mount.has("noswap") {
		data += ",noswap"
	}
	const flags = unix.MS_REMOUNT | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := d.mount(mountSource, p.mountDir, "tmpfs", flags, data); err != nil {
		return fmt.Errorf("host tier %s: change the size from %v to %v: %w", p.mountDir, total, size, err)
	}
	return nil
}

func tooSmall(path string, size, used devices.Size) error {
	return fmt.Errorf("host tier %s: size=%d is less than the %d bytes (%v) that its files use; set at least that, or remove files first",
		path, uint64(size), uint64(used), used)
}

// defaultSize returns half of the memory that is available at present.
func defaultSize() (devices.Size, error) {
	mem, err := readMemInfo("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	return max(roundUp(mem.available/2), devices.MiB), nil
}

// tmpfsLimit relies on the kernel for counting.
type tmpfsLimit struct{ store *store }

func (l *tmpfsLimit) usage() (devices.Usage, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(l.store.root.Fd()), &st); err != nil {
		return devices.Usage{}, fmt.Errorf("host tier %s: %w", l.store.path, err)
	}
	block := devices.Size(st.Bsize)
	total, free := devices.Size(st.Blocks)*block, devices.Size(st.Bfree)*block
	return devices.Usage{Total: total, Used: total - free, Free: free}, nil
}

// take only checks: the kernel counts blocks when they are allocated. Without the check a
// large request would fill the tier temporarily before it fails.
func (l *tmpfsLimit) take(n devices.Size) error {
	u, err := l.usage()
	if err != nil {
		return err
	}
	if n > u.Free {
		return &devices.OutOfMemoryError{Device: devices.Name(Family), Asked: n, Free: u.Free}
	}
	return nil
}

func (l *tmpfsLimit) give(devices.Size) {}

func (l *tmpfsLimit) reserve(devices.Size) error { return nil }

func (l *tmpfsLimit) removed(devices.Size) {}

// admit always succeeds: the kernel counts the files.
func (l *tmpfsLimit) admit() error { return nil }

func (l *tmpfsLimit) dismiss() {}

func (l *tmpfsLimit) destroy() error {
	return destroyTmpfs(l.store.path)
}

// destroyTmpfs unmounts the tier's tmpfs, which frees its memory. If a file of it is still
// open, that file is freed with its last user, and the rest immediately.
func destroyTmpfs(dir string) error {
	err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EBUSY) {
		err = errors.Join(os.RemoveAll(filepath.Join(dir, "files")), os.RemoveAll(filepath.Join(dir, asideName)), unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
	}
	if err != nil {
		return fmt.Errorf("unmount the host tier %s: %w", dir, err)
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the host tier: %w", err)
	}
	return nil
}
