package tests

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/tensors"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// names makes and removes names in every way.
func (w *heldUser) names() error {
	dir := filepath.Join(w.dir, strconv.Itoa(w.round))
	a, b, l, s := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "l"), filepath.Join(dir, "s")
	data := w.fresh(1 + w.rng.IntN(20000))
	var got []byte
	var names []string
	return kit.InOrder(
		func() error { return os.Mkdir(dir, 0o755) },
		func() error { return kit.WriteNew(a, data) },
		func() error { return os.Link(a, l) },
		func() error { return os.Symlink("a", s) },
		func() error { return unix.Setxattr(a, "user.note", []byte(dir), unix.XATTR_CREATE) },
		func() error { return os.Rename(a, b) },
		func() (err error) { got, err = os.ReadFile(b); return err },
		func() error { return kit.Same(b, got, data) },
		func() error { return unix.Removexattr(b, "user.note") },
		func() (err error) { names, err = sortedNames(dir); return err },
		func() error {
			if !slices.Equal(names, []string{"b", "l", "s"}) {
				return fmt.Errorf("%s has %v", dir, names)
			}
			return nil
		},
		func() error { return os.Remove(l) }, func() error { return os.Remove(s) }, func() error { return unix.Unlink(b) },
		func() error { return unix.Rmdir(dir) },
	)
}

// write writes to and reads from a file that is open all the time.
func (w *heldUser) write() error {
	const size = 2 << 20
	if w.file == nil {
		f, err := os.OpenFile(filepath.Join(w.dir, "file"), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		w.file, w.data = f, make([]byte, size)
		if err = f.Truncate(size); err != nil {
			return err
		}
	}
	off, piece := w.rng.IntN(size-70000), w.fresh(1+w.rng.IntN(66000))
	if _, err := w.file.WriteAt(piece, int64(off)); err != nil {
		return err
	}
	copy(w.data[off:], piece)
	off = w.rng.IntN(size - 70000)
	got := make([]byte, 65536)
	if _, err := w.file.ReadAt(got, int64(off)); err != nil {
		return err
	}
	return kit.Same(w.file.Name(), got, w.data[off:off+len(got)])
}

// append appends to a file that is open all the time.
func (w *heldUser) append() error {
	name := filepath.Join(w.dir, "file")
	if w.file == nil {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		w.file = f
	}
	piece := w.fresh(1 + w.rng.IntN(3000))
	if _, err := w.file.Write(piece); err != nil {
		return err
	}
	w.data = append(w.data, piece...)
	if w.round%50 != 0 {
		return nil
	}
	got, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if len(w.data) > 8<<20 {
		err = w.file.Truncate(0)
		w.data = nil
		return errors.Join(err, kit.Same(name, got[:0], nil))
	}
	return kit.Same(name, got, w.data)
}

// list lists a large directory.
func (w *heldUser) list() error {
	const many = 300
	if w.round == 0 {
		for i := range many {
			if err := kit.WriteNew(filepath.Join(w.dir, strconv.Itoa(i)), nil); err != nil {
				return err
			}
		}
	}
	names, err := sortedNames(w.dir)
	if err != nil {
		return err
	}
	if n := len(slices.Compact(names)); n != many {
		return fmt.Errorf("%d different names of %d", n, many)
	}
	return nil
}

// nameless uses a file that has no name any more.
func (w *heldUser) nameless() error {
	name := filepath.Join(w.dir, "file")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // its content is gone then
	data := w.fresh(100000)
	if _, err = f.Write(data); err != nil {
		return err
	}
	if err = unix.Unlink(name); err != nil {
		return err
	}
	for range 20 {
		got := make([]byte, len(data)+1)
		n, _ := f.ReadAt(got, 0) // io.EOF
		if err = kit.Same(name, got[:n], data); err != nil {
			return err
		}
		st, err := f.Stat()
		if err != nil || st.Size() != int64(len(data)) {
			return fmt.Errorf("stat of a file without a name: %v, %w", st, err)
		}
		off := w.rng.IntN(len(data) - 100)
		if _, err = f.WriteAt(w.fresh(100), int64(off)); err != nil {
			return err
		}
		if _, err = f.ReadAt(data[off:off+100], int64(off)); err != nil {
			return err
		}
		<-time.After(10 * time.Millisecond) // the file shall be open when the daemon is killed
	}
	return nil
}

// namelessDir uses a directory that has no name any more.
func (w *heldUser) namelessDir() error {
	name := filepath.Join(w.dir, "dir")
	if err := os.Mkdir(name, 0o750); err != nil {
		return err
	}
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }() // it is gone then
	if err = unix.Rmdir(name); err != nil {
		return err
	}
	for i := range 20 {
		mode := uint32(0o700 + i)
		var st unix.Stat_t
		if err = errors.Join(unix.Fchmod(int(d.Fd()), mode), unix.Fstat(int(d.Fd()), &st)); err != nil {
			return err
		}
		if st.Mode != unix.S_IFDIR|mode || st.Nlink != 0 {
			return fmt.Errorf("a directory without a name has mode %#o and %d links", st.Mode, st.Nlink)
		}
		again, err := unix.Openat(int(d.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err == nil {
			err = unix.Close(again)
		}
		if err != nil {
			return err
		}
		if names, err := d.Readdirnames(-1); err != nil && !errors.Is(err, unix.ENOENT) || len(names) != 0 { // as the kernel says of all file systems
			return fmt.Errorf("a directory without a name has %v, %w", names, err)
		}
		<-time.After(10 * time.Millisecond) // the directory shall be open when the daemon is killed
	}
	return nil
}

// exchange exchanges two names, which must happen once.
func (w *heldUser) exchange() error {
	a, b := filepath.Join(w.dir, "a"), filepath.Join(w.dir, "b")
	if w.round == 0 {
		if err := errors.Join(kit.WriteNew(a, []byte("0")), kit.WriteNew(b, []byte("1"))); err != nil {
			return err
		}
	}
	if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
		return err
	}
	w.at ^= 1
	got, err := os.ReadFile(a)
	if err != nil {
		return err
	}
	return kit.Same(a, got, []byte(strconv.Itoa(w.at)))
}

// any returns the directory of any device.
func (w *heldUser) any() string { return filepath.Join(w.mount, w.devices[w.rng.IntN(len(w.devices))]) }

// unique returns a name that no other program and no other round has.
func (w *heldUser) unique() string {
	return fmt.Sprintf("%s-%s-%d", filepath.Base(w.dir), filepath.Base(filepath.Dir(w.dir)), w.round)
}

// move moves a file to any device, and copies it to any.
func (w *heldUser) move() error {
	data := w.fresh(1 + w.rng.IntN(3<<20))
	name := w.unique()
	here, there, back := filepath.Join(w.dir, name), filepath.Join(w.any(), name), filepath.Join(w.any(), name+"-copy")
	var got []byte
	return kit.InOrder(
		func() error { return kit.WriteNew(here, data) },
		func() error { return os.Rename(here, there) },
		func() (err error) { got, err = os.ReadFile(there); return err },
		func() error { return kit.Same(there, got, data) },
		func() error { return kit.CopyRange(there, back, len(data)) },
		func() (err error) { got, err = os.ReadFile(back); return err },
		func() error { return kit.Same(back, got, data) },
		func() error { return os.Remove(back) }, func() error { return os.Remove(there) },
	)
}

// mapped stores through a map and reads the file.
func (w *heldUser) mapped() error {
	const size = 1 << 20
	if w.file == nil {
		f, err := os.OpenFile(filepath.Join(w.dir, "file"), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		w.file = f
		if err = f.Truncate(size); err != nil {
			return err
		}
		if w.view, err = unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
			return err
		}
		w.data = make([]byte, size)
	}
	off, piece := w.rng.IntN(size-5000), w.fresh(4096)
	copy(w.view[off:], piece)
	copy(w.data[off:], piece)
	if err := unix.Msync(w.view, unix.MS_SYNC); err != nil {
		return err
	}
	got, err := os.ReadFile(w.file.Name())
	if err != nil {
		return err
	}
	return kit.Same(w.file.Name(), got, w.data)
}

// tensor reads a tensor of a file that is open, and mapped, all the time.
func (w *heldUser) tensor() error {
	const size = 1 << 20
	if w.file == nil {
		x := tensors.Tensor{Shape: []uint64{size}}
		x.Type, _ = tensors.TypeNamed("uint8")
		w.data = append(x.Header(), w.fresh(size)...)
		name := filepath.Join(w.dir, "x.npy")
		if err := kit.WriteNew(name, w.data); err != nil {
			return err
		}
		f, err := os.Open(filepath.Join(name+tensors.ViewSuffix, "x.npy"))
		if err != nil {
			return err
		}
		w.file = f
		if w.view, err = unix.Mmap(int(f.Fd()), 0, len(w.data), unix.PROT_READ, unix.MAP_SHARED); err != nil {
			return err
		}
	}
	if err := unix.Madvise(w.view, unix.MADV_DONTNEED); err != nil {
		return err
	}
	off := w.rng.IntN(size - 5000)
	if err := kit.Same("the map of "+w.file.Name(), w.view[off:off+5000], w.data[off:off+5000]); err != nil {
		return err
	}
	got := make([]byte, 5000)
	if _, err := w.file.ReadAt(got, int64(off)); err != nil {
		return err
	}
	return kit.Same(w.file.Name(), got, w.data[off:off+5000])
}

// close ends the use, and removes nothing but the file whose memory ends with it.
func (w *heldUser) close() error {
	var errs []error
	if w.view != nil {
		errs = append(errs, unix.Munmap(w.view))
	}
	if w.binds != "" {
		errs = append(errs, os.Remove(w.binds)) // a daemon that starts after the end of the memory finds it lost
	}
	if w.file != nil {
		errs = append(errs, w.file.Close())
	}
	return errors.Join(append(errs, w.leave())...)
}

// sortedNames returns the names in a directory, sorted.
func sortedNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// direct writes and reads whole pages of a file that is open with O_DIRECT all the time.
func (w *heldUser) direct() error {
	const page, pages = 4096, 256
	if w.file == nil {
		f, err := os.OpenFile(filepath.Join(w.dir, "file"), os.O_CREATE|os.O_RDWR|unix.O_DIRECT, 0o600)
		if err != nil {
			return err
		}
		w.file, w.data = f, make([]byte, pages*page)
		w.view, err = unix.Mmap(-1, 0, 32*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err = errors.Join(err, f.Truncate(pages*page)); err != nil {
			return err
		}
	}
	off, n := w.rng.IntN(pages-32)*page, (1+w.rng.IntN(32))*page
	piece := w.view[:n]
	copy(piece, w.fresh(n))
	if _, err := w.file.WriteAt(piece, int64(off)); err != nil {
		return err
	}
	copy(w.data[off:], piece)
	off = w.rng.IntN(pages-32) * page
	if _, err := w.file.ReadAt(piece, int64(off)); err != nil {
		return err
	}
	return kit.Same(w.file.Name(), piece, w.data[off:off+n])
}

// publish publishes a new file of at least so many bytes.
func (w *heldUser) publish(least int) (published string, data []byte, err error) {
	name := w.unique()
	own, published := filepath.Join(w.dir, name), filepath.Join(w.mount, "publish", name)
	data = w.fresh(least + w.rng.IntN(200_000))
	return published, data, errors.Join(kit.WriteNew(own, data), os.Rename(own, published))
}

// receive publishes a file, and receives it in two halves, by a copy to any device, or by moving it to any.
func (w *heldUser) receive() error {
	published, data, err := w.publish(2)
	if err != nil {
		return err
	}
	got, to := make([]byte, len(data)), filepath.Join(w.any(), w.unique()+"-received")
	switch w.round % 3 {
	case 0:
		err = readHalves(published, got)
	case 1:
		err = kit.CopyRange(published, to, len(data))
	case 2:
		err = os.Rename(published, to)
	}
	if w.round%3 > 0 && err == nil {
		if got, err = os.ReadFile(to); err == nil {
			err = os.Remove(to)
		}
	}
	return errors.Join(err, kit.Same(published, got, data), isReceived(published))
}

// readHalves reads a file in two halves.
func readHalves(name string, got []byte) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	_, err = io.ReadFull(f, got[:len(got)/2])
	if err == nil {
		_, err = io.ReadFull(f, got[len(got)/2:])
	}
	return errors.Join(err, f.Close())
}

// isReceived returns an error if a publication is still there.
func isReceived(published string) error {
	if _, err := os.Lstat(published); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the name after a file was received: %w", cmp.Or(err, os.ErrExist))
	}
	return nil
}

// receiveMapped publishes a file, and receives it by a map, page by page: no other reader may share the pages.
func (w *heldUser) receiveMapped() (err error) {
	published, data, err := w.publish(10_000)
	if err != nil {
		return err
	}
	f, err := os.Open(published)
	if err != nil {
		return err
	}
	view, err := unix.Mmap(int(f.Fd()), 0, len(data), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	err = func() (err error) {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() {
			if fault := recover(); fault != nil {
				err = fmt.Errorf("a page of %s: %v", published, fault)
			}
		}()
		err = errors.Join(unix.Madvise(view, unix.MADV_RANDOM), kit.Same(published, view[:1], data[:1]), unix.Madvise(view, unix.MADV_NORMAL))
		if err == nil && w.round%4 == 0 { // the other one waits for the end of the first, for two seconds
			if other, failure := os.Open(published); failure == nil {
				err = errors.Join(fmt.Errorf("%s is open twice, and mapped", published), other.Close())
			} else if !errors.Is(failure, unix.EBUSY) {
				err = failure
			}
		}
		return errors.Join(err, kit.Same(published, view, data))
	}()
	return errors.Join(err, unix.Munmap(view), f.Close(), isReceived(published))
}
