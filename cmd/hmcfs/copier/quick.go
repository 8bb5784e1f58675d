package copier

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
)

// quickSize is the size up to which a file is copied by quick. Above, what a call costs does not matter.
const quickSize = 1 << 20

// quick copies a small file without holes to a new one on another file system, with few system calls and
// one buffer. If that is not what the job is, it changes nothing and done is false.
func (w *worker) quick(ctx context.Context, j job, out *File) (done bool, err error) {
	o := &w.opts
	if o.Off != 0 || o.Len != 0 || o.Preserve || j.into == 0 || j.info.Size() > quickSize {
		return false, nil
	}
	src, err := openRaw(j.source.name, unix.O_RDONLY, 0)
	if err != nil {
		return false, nil //nolint:nilerror // the long way finds and reports it
	}
	defer closeRaw(src)
	var st unix.Stat_t
	if err = unix.Fstat(src, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > quickSize ||
		st.Blocks*512 < st.Size || st.Dev == j.into || w.onMount(st.Dev) {
		return false, nil //nolint:nilerror // as above
	}
	dst, made := w.quickTarget(j, st.Mode&0o777)
	if dst < 0 {
		return false, nil
	}
	out.Bytes, err = w.pour(src, dst, j)
	if mode := st.Mode & 0o777; err == nil && (!made || mode&w.mask != 0) {
		err = ignorable(retried(func() error { return unix.Fchmod(dst, mode) }))
	}
	if err == nil && (j.route || o.Routes) && w.onMount(j.into) {
		out.Path = rawXattr(dst, "user.hmc.path")
	}
	if err == nil {
		return true, named("close", j.target.name, retriedClose(dst))
	}
	f := os.NewFile(uintptr(dst), j.target.name)
	left := giveUp(f, made, out.Bytes)
	err = errors.Join(err, f.Close())
	if ctx.Err() != nil {
		err = &interruptedError{j.source.text, left}
	}
	return true, err
}

// quickTarget creates the target, or empties an existing file, on the file system that the job says; made
// tells which. It returns -1 for any other target, which is not changed.
func (w *worker) quickTarget(j job, mode uint32) (dst int, made bool) {
	dst, err := openRaw(j.target.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, mode)
	if err == nil {
		return dst, true
	}
	if !errors.Is(err, unix.EEXIST) || w.opts.New {
		return -1, false
	}
	if dst, err = openRaw(j.target.name, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0); err != nil {
		return -1, false
	}
	var st unix.Stat_t
	err = unix.Fstat(dst, &st)
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Dev == j.into {
		err = retried(func() error { return unix.Ftruncate(dst, 0) })
		if err == nil {
			return dst, false
		}
	}
	closeRaw(dst)
	return -1, false
}

// pour copies what src has.
func (w *worker) pour(src, dst int, j job) (sum int64, err error) {
	if w.buffer == nil {
		w.buffer = make([]byte, quickSize)
	}
	for {
		var n int
		err = retried(func() (err error) {
			n, err = unix.Read(src, w.buffer)
			return err
		})
		if err != nil || n == 0 {
			return sum, named("read", j.source.name, err)
		}
		for rest := w.buffer[:n]; len(rest) > 0; {
			var m int
			err = retried(func() (err error) {
				m, err = unix.Pwrite(dst, rest, sum)
				return err
			})
			if err != nil {
				return sum, named("write", j.target.name, err)
			}
			rest, sum = rest[m:], sum+int64(m)
			w.moved(int64(m))
		}
	}
}

// onMount reports whether a device number is that of a mount of hmcfs.
func (c *copier) onMount(dev uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	on, known := c.ofMount[dev]
	if !known {
		all, _ := place.Mounts() // without a table, no mount is known
		for _, m := range all {
			on = on || m.IsHMCFS() && m.HasDevice(dev)
		}
		c.ofMount[dev] = on
	}
	return on
}

func named(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// retried repeats a system call that a signal has interrupted.
func retried(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// openRaw opens a file without what os.File does so that a goroutine may wait for it.
func openRaw(name string, flags int, mode uint32) (fd int, err error) {
	err = retried(func() (err error) {
		fd, err = unix.Open(name, flags|unix.O_CLOEXEC, mode)
		return err
	})
	return fd, err
}

func closeRaw(fd int) { _ = unix.Close(fd) } // nothing was written to it

// retriedClose closes a file that was written. Its descriptor is gone also after a signal.
func retriedClose(fd int) error {
	if err := unix.Close(fd); !errors.Is(err, syscall.EINTR) {
		return err
	}
	return nil
}

func rawXattr(fd int, name string) string {
	buf := make([]byte, 256)
	n, err := unix.Fgetxattr(fd, name, buf)
	if err != nil {
		return ""
	}
	return strings.TrimRight(string(buf[:n]), "\x00")
}
