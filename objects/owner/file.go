package owner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Errors of a file that was offered as memory.
var (
	// ErrNotMemory reports that a file is no regular file of shared host memory.
	ErrNotMemory = errors.New("owner: not shared host memory")
	// ErrDenied reports that the user is not allowed to use a file.
	ErrDenied = errors.New("owner: not permitted for this user")
)

// FileID identifies a file within one boot.
type FileID struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
	UID uint32 `json:"uid"`
}

// Facts returns the identity and the size of the file behind a descriptor. Only the kernel is
// queried.
//
// Errors: ErrNotMemory for anything but a regular file of a tmpfs: pipes, sockets, devices,
// directories, huge pages, and descriptors opened with O_PATH.
func Facts(f *os.File) (id FileID, size uint64, err error) {
	err = Control(f, func(fd int) error {
		st, failure := regular(fd)
		if failure != nil {
			return failure
		}
		if !inMemory(fd) {
			return fmt.Errorf("it is a file on a disk, or its descriptor is opened with O_PATH; pass a memfd or a file of /dev/shm: %w", ErrNotMemory)
		}
		id, size = idOf(&st), st.Size
		return onTmpfs(fd)
	})
	return id, size, err
}

// Identity returns the identity of the file behind a descriptor of any type. Only the kernel is
// queried.
func Identity(f *os.File) (id FileID, err error) {
	err = Control(f, func(fd int) error {
		st, failed := look(fd)
		id = idOf(&st)
		return failed
	})
	return id, err
}

// look returns the kernel's own information about a file. fstat would query the file system,
// which may never answer.
func look(fd int) (st unix.Statx_t, err error) {
	const mask = unix.STATX_TYPE | unix.STATX_MODE | unix.STATX_INO | unix.STATX_UID | unix.STATX_SIZE
	if err = unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, mask, &st); err != nil {
		return st, fmt.Errorf("stat: %w", err)
	}
	return st, nil
}

func idOf(st *unix.Statx_t) FileID {
	return FileID{Dev: unix.Mkdev(st.Dev_major, st.Dev_minor), Ino: st.Ino, UID: st.Uid}
}

// regular is look for a file that must be a regular one.
func regular(fd int) (unix.Statx_t, error) {
	st, err := look(fd)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = fmt.Errorf("it is a file of type %o; pass a memfd or a file of /dev/shm: %w", st.Mode&unix.S_IFMT, ErrNotMemory)
	}
	return st, err
}

// onTmpfs queries the file system, so for files of untrusted processes only the guard's process
// may call it.
func onTmpfs(fd int) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return fmt.Errorf("statfs: %w", err)
	}
	switch fs.Type {
	case unix.TMPFS_MAGIC:
		return nil
	case unix.HUGETLBFS_MAGIC:
		return fmt.Errorf("huge pages can't be read and written through a descriptor; create the memfd without MFD_HUGETLB: %w", ErrNotMemory)
	}
	return fmt.Errorf("it is a file on a disk; pass a memfd or a file of /dev/shm: %w", ErrNotMemory)
}

// inMemory reports whether an open file is shared memory, or huge pages: only these have seals
// in the kernel, which answers without a file system.
func inMemory(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	return err == nil
}

// Anew opens the file behind a descriptor of shared memory a second time. A process that has the
// first descriptor can set its flags, of which O_APPEND redirects writes; the new descriptor has
// flags of its own. A descriptor of anything else is duplicated, since its driver knows only
// that descriptor.
//
// Errors: ErrDenied if the file's mode does not permit it.
func Anew(f *os.File) (*os.File, error) {
	second := -1
	err := Control(f, func(fd int) (err error) {
		if !inMemory(fd) {
			return nil
		}
		second, err = unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
		return err
	})
	switch {
	case errors.Is(err, unix.EACCES):
		return nil, fmt.Errorf("reopen %s: its mode does not permit it: %w", f.Name(), ErrDenied)
	case err != nil:
		return nil, fmt.Errorf("reopen %s: %w", f.Name(), err)
	case second < 0:
		return Duplicate(f)
	}
	return os.NewFile(uintptr(second), f.Name()), nil
}

// CheckWritable returns ErrDenied for a descriptor that is not open for reading and writing.
func CheckWritable(f *os.File) error {
	return Control(f, func(fd int) error {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err != nil {
			return fmt.Errorf("query the flags of the descriptor: %w", err)
		}
		if flags&unix.O_ACCMODE != unix.O_RDWR || flags&unix.O_PATH != 0 {
			return fmt.Errorf("the descriptor is not open for reading and writing: %w", ErrDenied)
		}
		return nil
	})
}

// Take duplicates descriptor n of the process, whatever its file, for the process's user; if the
// guard does not pass it on, the result is opened with O_PATH.
//
// Errors: ErrGone; ErrNotMemory if there is none; ErrDenied if the process is not the user's;
// EPERM if one process may not take descriptors from another (Yama); ErrSilent.
func (p *Process) Take(g *Guard, n int, uid uint32) (*os.File, error) {
	name := p.dir("fd/" + strconv.Itoa(n))
	f, err := g.take(p, n, uid)
	switch {
	case err == nil:
		// A process that was the user's when it was found may since have executed a program with
		// privileges of its own, to which the descriptor belongs.
		var mine bool
		if mine, err = p.BelongsTo(uid); err == nil && !mine {
			err = fmt.Errorf("%s: process %d does not belong to user %d: %w", name, p.id.PID, uid, ErrDenied)
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	case errors.Is(err, unix.EBADF):
		return nil, fmt.Errorf("%s: no such descriptor: %w", name, ErrNotMemory)
	case errors.Is(err, unix.ESRCH):
		return nil, fmt.Errorf("%s: %w", name, ErrGone)
	case errors.Is(err, ErrSilent):
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return nil, &os.PathError{Op: "take", Path: name, Err: err}
}

// Descriptor opens the shared host memory behind descriptor n of the process, for the process's
// user.
//
// Errors: ErrGone; ErrNotMemory; ErrDenied.
func (p *Process) Descriptor(g *Guard, n int, uid uint32) (*os.File, error) {
	name := p.dir("fd/" + strconv.Itoa(n))
	f, err := p.Take(g, n, uid)
	if err == nil {
		if _, _, err = Facts(f); err == nil {
			err = CheckWritable(f)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
		}
		return f, nil
	}
	if !errors.Is(err, unix.EPERM) {
		return nil, err
	}
	// If one process may not take descriptors from another (Yama), the file can still be reached
	// by its name in /proc, and its owner may open it that way.
	f, err = g.open(name, 0, uid)
	if err != nil {
		return nil, err
	}
	if err := p.alive(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Open opens shared memory by its path, for its user. For a user other than root and the
// daemon's own, the error only says that the memory is not the user's: the daemon may see into
// directories that the user can't enter.
//
// Errors: ErrDenied; ErrNotMemory and fs.ErrNotExist for root and the daemon's own user.
func (g *Guard) Open(path string, uid uint32) (*os.File, error) {
	f, err := g.open(path, unix.O_NOFOLLOW, uid)
	if errors.Is(err, ErrSilent) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err != nil && hidden(uid) {
		return nil, fmt.Errorf("%s does not exist, or is not shared memory of user %d: %w", path, uid, ErrDenied)
	}
	return f, err
}

// hidden reports whether a user must not learn what the daemon sees.
func hidden(uid uint32) bool { return uid != 0 && int(uid) != os.Geteuid() }

// openFile checks the file before opening it. The name may be changed between the two, so the
// file that was checked is the one that is opened.
func openFile(path string, flags int, uid uint32) (int, error) {
	at, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(at) }() // nothing is written through it
	st, err := regular(at)
	if err == nil {
		err = onTmpfs(at)
	}
	if err != nil {
		return -1, fmt.Errorf("%s: %w", path, err)
	}
	if uid != 0 && st.Uid != uid {
		return -1, fmt.Errorf("%s belongs to user %d, but the caller is user %d: %w", path, st.Uid, uid, ErrDenied)
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", at), unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// Search opens a file that is among the descriptors of a process.
func (p *Process) Search(g *Guard, want FileID, uid uint32) (*os.File, error) {
	numbers, err := p.holding(want)
	if err != nil {
		return nil, err
	}
	for _, n := range numbers {
		if f, err := p.Descriptor(g, n, uid); err == nil {
			return f, nil
		}
	}
	return nil, fmt.Errorf("process %d no longer has the memory open: %w", p.id.PID, ErrGone)
}

// TakeAgain takes a descriptor of the wanted file, of any type: n, or else another one. If
// several descriptors are of one device, and not of one regular file, they may still be
// different memory.
//
// Errors: those of Take; ErrGone if there is none, or more than one.
func (p *Process) TakeAgain(g *Guard, want FileID, n int, uid uint32) (*os.File, error) {
	numbers, err := p.holding(want)
	if err != nil {
		return nil, err
	}
	switch {
	case slices.Contains(numbers, n):
	case len(numbers) == 1 || len(numbers) > 1 && p.isRegular(numbers[0]):
		n = numbers[0]
	default:
		return nil, fmt.Errorf("can't identify the memory among %d descriptors of process %d: %w", len(numbers), p.id.PID, ErrGone)
	}
	return p.Take(g, n, uid)
}

func (p *Process) isRegular(n int) bool {
	st, err := p.lookAt(strconv.Itoa(n))
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG
}

// lookAt is look for a descriptor of the process.
func (p *Process) lookAt(n string) (st unix.Statx_t, err error) {
	err = unix.Statx(unix.AT_FDCWD, filepath.Join(p.dir("fd"), n), unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE|unix.STATX_INO, &st)
	return st, err
}

// holding returns the descriptors of a process that refer to a file.
func (p *Process) holding(want FileID) ([]int, error) {
	entries, err := os.ReadDir(p.dir("fd"))
	if err != nil {
		return nil, fmt.Errorf("descriptors of process %d: %w: %w", p.id.PID, ErrGone, err)
	}
	var numbers []int
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if st, err := p.lookAt(e.Name()); err == nil && idOf(&st).Dev == want.Dev && st.Ino == want.Ino {
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}

// ParseDescriptor parses a path of the form /proc/PID/fd/N, which denotes a process's descriptor
// and not a file of /proc.
func ParseDescriptor(path string) (pid, n int, ok bool) {
	parts := strings.Split(path, "/")
	if len(parts) != 5 || parts[0] != "" || parts[1] != "proc" || parts[3] != "fd" {
		return 0, 0, false
	}
	pid, err1 := strconv.Atoi(parts[2])
	n, err2 := strconv.Atoi(parts[4])
	return pid, n, err1 == nil && err2 == nil && pid > 0 && n >= 0
}

// DescriptorPath returns the path that ParseDescriptor parses.
func DescriptorPath(pid, n int) string { return fmt.Sprintf("/proc/%d/fd/%d", pid, n) }

// Leads reports whether a path leads to a file, using only the kernel's own information. If a
// file system would have to be queried, the result is false.
func Leads(path string, want FileID) bool {
	var st unix.Statx_t
	var err error
	if _, _, ok := ParseDescriptor(path); ok {
		err = unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE|unix.STATX_INO, &st)
	} else {
		st, err = lookCached(path)
	}
	return err == nil && idOf(&st).Dev == want.Dev && st.Ino == want.Ino
}

// resolveCached makes openat2 use only names that the kernel has cached: RESOLVE_CACHED of
// linux/openat2.h, since Linux 5.12.
const resolveCached = 0x20

// lookCached is look for a path that is resolved from the kernel's cached names only. The kernel
// has cached the names of a tmpfs, and of the directories above one, as long as they exist.
func lookCached(path string) (unix.Statx_t, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: resolveCached,
	})
	if err != nil {
		return unix.Statx_t{}, err
	}
	defer func() { _ = unix.Close(fd) }() // nothing is written through it
	return look(fd)
}

// Duplicate returns a second descriptor of an open file, which like the first one is closed on
// exec.
func Duplicate(f *os.File) (*os.File, error) {
	var second int
	err := Control(f, func(fd int) (err error) {
		second, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("duplicate the descriptor of %s: %w", f.Name(), err)
	}
	return Adopt(second, f.Name())
}

// Adopt makes an *os.File of a descriptor that another process has opened, in any mode, and owns
// it from then on, even if it fails.
//
// It performs no operation on the file. os.NewFile would: a descriptor with O_NONBLOCK goes into
// the runtime's poller, whose epoll asks the file whether it is ready, and a file of a FUSE
// filesystem may have a server that never answers. Every goroutine of this process would wait
// for that. The sender can set the flag at any time. So the *os.File is made of a descriptor
// opened here, which the adopted one then replaces.
func Adopt(fd int, name string) (*os.File, error) {
	own, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("adopt %s: %w", name, err), unix.Close(fd))
	}
	f := os.NewFile(uintptr(own), name)
	err = Control(f, func(place int) error { return unix.Dup3(fd, place, unix.O_CLOEXEC) })
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		return nil, errors.Join(fmt.Errorf("adopt %s: %w", name, err), f.Close())
	}
	return f, nil
}

// Control calls fn with the descriptor of a file or a connection, which stays open during the call.
func Control(c syscall.Conn, fn func(fd int) error) error {
	conn, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := conn.Control(func(fd uintptr) { inner = fn(int(fd)) }); err != nil {
		return err
	}
	return inner
}
