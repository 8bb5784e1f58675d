package owner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// What can be said of a file that was offered as memory.
var (
	// ErrNotMemory says that a file is no regular file of shared host memory.
	ErrNotMemory = errors.New("owner: not shared host memory")
	// ErrDenied says that the user may not have a file.
	ErrDenied = errors.New("owner: not allowed to this user")
)

// FileID tells files apart, on one boot.
type FileID struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
	UID uint32 `json:"uid"`
}

// Facts says which file a descriptor names, and how long it is. It asks nobody
// but the kernel.
//
// Errors: ErrNotMemory for what is no regular file of a tmpfs, such as pipes,
// sockets, devices, directories, huge pages, and what is only named (O_PATH).
func Facts(f *os.File) (id FileID, size uint64, err error) {
	err = control(f, func(fd int) error {
		id, size, err = factsOf(fd)
		return err
	})
	return id, size, err
}

// Identity tells which file a descriptor is, whatever it is, and asks nobody
// but the kernel.
func Identity(f *os.File) (id FileID, err error) {
	err = control(f, func(fd int) error {
		st, failed := look(fd)
		id = idOf(&st)
		return failed
	})
	return id, err
}

// look asks the kernel what it knows of a file by itself. fstat would ask the
// file system, which may never answer.
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

func factsOf(fd int) (id FileID, size uint64, err error) {
	st, err := regular(fd)
	if err != nil {
		return id, 0, err
	}
	if !inMemory(fd) {
		return id, 0, fmt.Errorf("a file on a disk, or one that is only named (O_PATH); pass a memfd or a file of /dev/shm: %w", ErrNotMemory)
	}
	return idOf(&st), st.Size, onTmpfs(fd)
}

// regular looks at a file that must be a regular one.
func regular(fd int) (unix.Statx_t, error) {
	st, err := look(fd)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = fmt.Errorf("a file of type %o; pass a memfd or a file of /dev/shm: %w", st.Mode&unix.S_IFMT, ErrNotMemory)
	}
	return st, err
}

// onTmpfs asks the file system what it is, so of a stranger's file only the
// guard's process asks it.
func onTmpfs(fd int) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return fmt.Errorf("statfs: %w", err)
	}
	switch fs.Type {
	case unix.TMPFS_MAGIC:
		return nil
	case unix.HUGETLBFS_MAGIC:
		return fmt.Errorf("huge pages can't be read and written by descriptor; make the memfd without MFD_HUGETLB: %w", ErrNotMemory)
	}
	return fmt.Errorf("a file on a disk; pass a memfd or a file of /dev/shm: %w", ErrNotMemory)
}

// inMemory says whether an open file is of shared memory, or of huge pages: the
// kernel has seals for those alone, and asks nobody for them.
func inMemory(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	return err == nil
}

// Anew opens once more what a descriptor of shared memory names. Whoever has the
// one may set its flags, of which O_APPEND sends writes elsewhere; the other has
// flags of its own. Anything else, of which a driver knows only that descriptor,
// is duplicated.
//
// Errors: ErrDenied where the file's mode is against it.
func Anew(f *os.File) (*os.File, error) {
	second := -1
	err := control(f, func(fd int) (err error) {
		if !inMemory(fd) {
			return nil
		}
		second, err = unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
		return err
	})
	switch {
	case errors.Is(err, unix.EACCES):
		return nil, fmt.Errorf("open %s anew: its mode is against it: %w", f.Name(), ErrDenied)
	case err != nil:
		return nil, fmt.Errorf("open %s anew: %w", f.Name(), err)
	case second < 0:
		return Duplicate(f)
	}
	return os.NewFile(uintptr(second), f.Name()), nil
}

// CheckWritable fails with ErrDenied for a descriptor that is not open for
// reading and writing.
func CheckWritable(f *os.File) error {
	return control(f, func(fd int) error {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err != nil {
			return fmt.Errorf("ask how it is open: %w", err)
		}
		if flags&unix.O_ACCMODE != unix.O_RDWR || flags&unix.O_PATH != 0 {
			return fmt.Errorf("the descriptor is not open for reading and writing: %w", ErrDenied)
		}
		return nil
	})
}

// Take duplicates what the process has as descriptor n, whatever that is, for
// its user; what a guard does not let through comes as O_PATH.
//
// Errors: ErrGone; ErrNotMemory when there is none; ErrDenied when the process
// is not the user's; EPERM where one process may not take from another (Yama);
// ErrSilent.
func (p *Process) Take(g *Guard, n int, uid uint32) (*os.File, error) {
	name := p.dir("fd/" + strconv.Itoa(n))
	f, err := g.take(p, n, uid)
	switch {
	case err == nil:
		// Whoever was the user's when it was found can have become a program
		// with rights of its own since, and the descriptor one of that.
		var mine bool
		if mine, err = p.BelongsTo(uid); err == nil && !mine {
			err = fmt.Errorf("%s: process %d is not user %d's: %w", name, p.id.PID, uid, ErrDenied)
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

// Descriptor opens the shared host memory that the process has as descriptor
// n, for its user.
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
	// Where one process may not take from another (Yama), the file's name in
	// /proc leads to it, and its owner may open it anyway.
	f, err = g.open(name, 0, uid)
	if err != nil {
		return nil, err
	}
	if err := p.alive(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Open opens shared memory by its path, for its user. Another user than the
// daemon's hears only that it is not the user's: the daemon may see what is in folders
// that the user can't enter.
//
// Errors: ErrDenied; ErrNotMemory and fs.ErrNotExist for root and the daemon's
// own user.
func (g *Guard) Open(path string, uid uint32) (*os.File, error) {
	f, err := g.open(path, unix.O_NOFOLLOW, uid)
	if errors.Is(err, ErrSilent) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err != nil && hidden(uid) {
		return nil, fmt.Errorf("%s is not there, or is no shared memory of user %d: %w", path, uid, ErrDenied)
	}
	return f, err
}

// hidden says whether a user may not hear what the daemon sees.
func hidden(uid uint32) bool { return uid != 0 && int(uid) != os.Geteuid() }

// openFile looks at the file before it opens it. Between the two the name may
// come to mean another file, so what was looked at is what is opened.
func openFile(path string, flags int, uid uint32) (int, error) {
	at, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(at) }() // nothing is written by it
	st, err := regular(at)
	if err == nil {
		err = onTmpfs(at)
	}
	if err != nil {
		return -1, fmt.Errorf("%s: %w", path, err)
	}
	if uid != 0 && st.Uid != uid {
		return -1, fmt.Errorf("%s belongs to user %d, the caller is %d: %w", path, st.Uid, uid, ErrDenied)
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", at), unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// Search looks for a file among the descriptors of a process.
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
	return nil, fmt.Errorf("process %d has the memory no longer open: %w", p.id.PID, ErrGone)
}

// TakeAgain takes a descriptor that is the wanted file, whatever that is: n, or
// else another one. Where several are of one device, and not of one regular
// file, they may be different memory all the same.
//
// Errors: those of Take; ErrGone when there is none, or more than one.
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
		return nil, fmt.Errorf("%d descriptors of process %d may be the memory: %w", len(numbers), p.id.PID, ErrGone)
	}
	return p.Take(g, n, uid)
}

func (p *Process) isRegular(n int) bool {
	st, err := p.lookAt(strconv.Itoa(n))
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG
}

// lookAt is look at a descriptor of the process.
func (p *Process) lookAt(n string) (st unix.Statx_t, err error) {
	err = unix.Statx(unix.AT_FDCWD, filepath.Join(p.dir("fd"), n), unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE|unix.STATX_INO, &st)
	return st, err
}

// holding lists the descriptors of a process that are a file.
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

// ParseDescriptor reads a path of the form /proc/PID/fd/N, which is a
// process's descriptor and no file of /proc.
func ParseDescriptor(path string) (pid, n int, ok bool) {
	parts := strings.Split(path, "/")
	if len(parts) != 5 || parts[0] != "" || parts[1] != "proc" || parts[3] != "fd" {
		return 0, 0, false
	}
	pid, err1 := strconv.Atoi(parts[2])
	n, err2 := strconv.Atoi(parts[4])
	return pid, n, err1 == nil && err2 == nil && pid > 0 && n >= 0
}

// DescriptorPath returns the path that ParseDescriptor reads.
func DescriptorPath(pid, n int) string { return fmt.Sprintf("/proc/%d/fd/%d", pid, n) }

// Leads reports whether a path leads to a file as far as the kernel knows by itself.
// No file system is asked: where one would have to be, the answer is false.
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

// resolveCached has openat2 look at the names that the kernel has, and ask for none:
// RESOLVE_CACHED of linux/openat2.h, since Linux 5.12.
const resolveCached = 0x20

// lookCached looks at what a path leads to by the names that the kernel has. It has
// those of a tmpfs, and of the directories above one, as long as they exist.
func lookCached(path string) (unix.Statx_t, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: resolveCached,
	})
	if err != nil {
		return unix.Statx_t{}, err
	}
	defer func() { _ = unix.Close(fd) }() // nothing is written by it
	return look(fd)
}

// Duplicate makes a second descriptor of an open file, which ends with this
// program as the first one does.
func Duplicate(f *os.File) (*os.File, error) {
	var second int
	err := control(f, func(fd int) (err error) {
		second, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("duplicate the descriptor of %s: %w", f.Name(), err)
	}
	return Adopt(second, f.Name())
}

// control runs fn on a descriptor that stays open meanwhile.
func control(f *os.File, fn func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := conn.Control(func(fd uintptr) { inner = fn(int(fd)) }); err != nil {
		return err
	}
	return inner
}
