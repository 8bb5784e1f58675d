package randomops

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
)

const (
	pageSize = 4096
	// besideShare is the number of bytes of each page that one worker owns.
	besideShare = 1024
	// besideWorkers is the number of workers that own a share of each page. The rest of the
	// last page and everything after it belong to the tail.
	besideWorkers = 3
	// besideTail bounds the length of the tail, in bytes.
	besideTail = 3 * pageSize
)

// Beside changes one file through a shared map and by system calls at the same time. Every
// byte of the file has one owner, a goroutine that knows the last value it has written;
// owners share pages, but never bytes. So each owner must find its own values, whatever the
// order of their operations. tmpfs satisfies that.
type Beside struct {
	// Dir is the directory in which the file is created.
	Dir string
	// Pages is the length of the map, in pages.
	Pages int
	// Seed determines the operations of the owners.
	Seed uint64
}

// besideFile is the file under test.
type besideFile struct {
	file, appender, source *os.File
	mapped                 []byte
}

// Run runs one round on a new file, and describes the first bytes that differ from what
// their owner has written.
func (b Beside) Run() (err error) {
	f, err := b.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	owners := []owner{newTail(f, b)}
	for i := range besideWorkers {
		owners = append(owners, newWorker(f, b, i))
	}
	errs := make([]error, len(owners))
	var group sync.WaitGroup
	for i, o := range owners {
		group.Go(func() {
			defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
			defer func() {
				if p := recover(); p != nil {
					errs[i] = fmt.Errorf("owner %d: fault: %v", i, p)
				}
			}()
			errs[i] = o.run(rand.New(rand.NewPCG(b.Seed, uint64(i))))
		})
	}
	group.Wait()
	if err = errors.Join(errs...); err != nil {
		return err
	}
	if err = errors.Join(unix.Msync(f.mapped, unix.MS_SYNC), f.file.Sync()); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	again, err := os.Open(f.file.Name())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, again.Close()) }()
	for _, o := range owners {
		if err := o.check(again, "after all"); err != nil {
			return err
		}
	}
	return nil
}

// open creates the file and maps it.
func (b Beside) open() (*besideFile, error) {
	name := filepath.Join(b.Dir, "beside")
	content := kit.Bytes(b.Seed, 0, b.Pages*pageSize)
	if err := errors.Join(os.WriteFile(name, content, 0o600), os.WriteFile(name+".source", content, 0o600)); err != nil {
		return nil, err
	}
	f := &besideFile{}
	var errs [4]error
	f.file, errs[0] = os.OpenFile(name, os.O_RDWR, 0)
	f.appender, errs[1] = os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	f.source, errs[2] = os.Open(name + ".source")
	if errs[0] == nil {
		f.mapped, errs[3] = unix.Mmap(int(f.file.Fd()), 0, len(content), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func (f *besideFile) close() (err error) {
	if f.mapped != nil {
		err = unix.Munmap(f.mapped)
	}
	for _, file := range []*os.File{f.file, f.appender, f.source} {
		if file != nil {
			err = errors.Join(err, file.Close(), os.RemoveAll(file.Name()))
		}
	}
	return err
}

// owner is one goroutine and the bytes that it owns.
type owner interface {
	run(r *rand.Rand) error
	// check compares all bytes of the owner with the file.
	check(file *os.File, when string) error
}

// worker owns a share of each page.
type worker struct {
	*besideFile
	seed  uint64
	share int64
	want  []byte // the whole map, of which only its bytes count
}

func newWorker(f *besideFile, b Beside, i int) *worker {
	return &worker{besideFile: f, seed: b.Seed, share: int64(i) * besideShare, want: kit.Bytes(b.Seed, 0, b.Pages*pageSize)}
}

func (w *worker) run(r *rand.Rand) error {
	for off := w.share; off < int64(len(w.want)); off += pageSize {
		from := off + r.Int64N(besideShare-8)
		n := 1 + r.Int64N(off+besideShare-from)
		for range 1 + r.IntN(3) {
			if err := w.change(r, from, n); err != nil {
				return err
			}
		}
		if r.IntN(4) == 0 {
			if err := w.compare(w.file, off, "by a read"); err != nil {
				return err
			}
		}
		if r.IntN(4) == 0 && !bytes.Equal(w.mapped[off:off+besideShare], w.want[off:off+besideShare]) {
			return w.differs(w.mapped[off:off+besideShare], off, "through the map")
		}
	}
	return nil
}

// change changes n bytes in a random way.
func (w *worker) change(r *rand.Rand, off, n int64) (err error) {
	want := w.want[off : off+n]
	ways := []string{"write", "write", "write", "store", "store", "store", "punch", "copy", "sync"}
	way := ways[r.IntN(len(ways))]
	switch way {
	case "write":
		kit.FillAt(want, r.Uint64(), off)
		_, err = w.file.WriteAt(want, off)
	case "store":
		kit.FillAt(want, r.Uint64(), off)
		copy(w.mapped[off:], want)
	case "punch":
		clear(want)
		_, err = again(func() (int, error) {
			return 0, unix.Fallocate(int(w.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
		})
	case "copy":
		kit.FillAt(want, w.seed, off)
		err = w.copy(off, n)
	case "sync":
		page := off &^ (pageSize - 1)
		err = unix.Msync(w.mapped[page:page+pageSize], unix.MS_SYNC)
	}
	if err != nil {
		return fmt.Errorf("%s of %d bytes at %d: %w", way, n, off, err)
	}
	return nil
}

// copy copies the bytes at the same offset of the source by copy_file_range.
func (w *worker) copy(off, n int64) error {
	for from, end := off, off+n; off < end; {
		_, err := again(func() (int, error) {
			return unix.CopyFileRange(int(w.source.Fd()), &from, int(w.file.Fd()), &off, int(end-off), 0)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) check(file *os.File, when string) error {
	for off := w.share; off < int64(len(w.want)); off += pageSize {
		if err := w.compare(file, off, when); err != nil {
			return err
		}
	}
	return nil
}

// compare compares the share of one page with the file.
func (w *worker) compare(file *os.File, off int64, how string) error {
	got := make([]byte, besideShare)
	if _, err := file.ReadAt(got, off); err != nil {
		return fmt.Errorf("read at %d: %w", off, err)
	}
	if !bytes.Equal(got, w.want[off:off+besideShare]) {
		return w.differs(got, off, how)
	}
	return nil
}

func (w *worker) differs(got []byte, off int64, how string) error {
	want := w.want[off : off+besideShare]
	at := kit.FirstDiff(want, got)
	return fmt.Errorf("byte %d (page %d), %s: want %x, got %x",
		off+int64(at), off/pageSize, how, around(want, at), around(got, at))
}

// tail owns the bytes after the shares of the last page, and the length of the file.
type tail struct {
	*besideFile
	from int64
	want []byte
}

func newTail(f *besideFile, b Beside) *tail {
	all := kit.Bytes(b.Seed, 0, b.Pages*pageSize)
	from := int64(len(all) - pageSize + besideWorkers*besideShare)
	return &tail{besideFile: f, from: from, want: all[from:]}
}

func (t *tail) run(r *rand.Rand) error {
	for range len(t.mapped) / pageSize {
		if n := r.IntN(900) + 1; r.IntN(3) > 0 && len(t.want)+n < besideTail {
			more := kit.Bytes(r.Uint64(), int64(len(t.want)), n)
			t.want = append(t.want, more...)
			if _, err := t.appender.Write(more); err != nil {
				return fmt.Errorf("append %d bytes: %w", n, err)
			}
		} else {
			// Either shortens the file within the last page of the map, or extends it with
			// zeros.
			n := r.IntN(2 * besideShare)
			if n < len(t.want) {
				t.want = t.want[:n]
			} else {
				t.want = append(t.want, make([]byte, n-len(t.want))...)
			}
			if err := t.file.Truncate(t.from + int64(n)); err != nil {
				return fmt.Errorf("truncate to %d: %w", t.from+int64(n), err)
			}
		}
		if err := t.check(t.file, "by a read of the tail"); err != nil {
			return err
		}
	}
	return nil
}

func (t *tail) check(file *os.File, when string) error {
	got := make([]byte, len(t.want)+1)
	n, _ := file.ReadAt(got, t.from) // the length is compared
	if !bytes.Equal(got[:n], t.want) {
		at := kit.FirstDiff(t.want, got[:n])
		return fmt.Errorf("byte %d, %s: %d bytes, want %d: want %x, got %x",
			t.from+int64(at), when, n, len(t.want), around(t.want, at), around(got[:n], at))
	}
	return nil
}
