package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/tensors"
)

const (
	// maxHeaders is how many parsed headers are kept, maxHeaderBytes how much
	// memory they may take together. The last one stays however large it is.
	maxHeaders     = 256
	maxHeaderBytes = 128 << 20
	// parsers is how many headers are read at the same time.
	parsers = 2
	// coarseClock is how far the clock of a file's times can be behind.
	coarseClock = 50e6 // nanoseconds
)

// headers are what was read from the beginnings of files of tensors.
type headers struct {
	files   memo[*tensors.File]
	singles memo[*tensors.Tensor]
	// turn is taken by who reads one.
	turn chan struct{}
}

func newHeaders() headers { return headers{turn: make(chan struct{}, parsers)} }

// forget drops what is known of an inode.
func (h *headers) forget(ino Ino) {
	h.files.forget(ino)
	h.singles.forget(ino)
}

// stamp changes with the content of an inode and with its name.
type stamp struct {
	name         string
	size         uint64
	mtime, ctime metadata.Timespec
}

// stampOf makes a stamp. The kind of a safetensors file is all that its name
// tells.
func stampOf(a *Attr, name string) stamp {
	if !strings.HasSuffix(name, ".npy") {
		name = ""
	}
	return stamp{name: name, size: a.Size, mtime: a.Mtime, ctime: a.Ctime}
}

// Tensors returns what a file of tensors holds now; its name, which may be any
// of the file's names, tells of what kind it is. The File is shared and does
// not change.
//
// Errors: tensors.ErrFormat, ErrLost, metadata.ErrNotExist.
func (s *Store) Tensors(ctx context.Context, ino Ino, name string) (*tensors.File, error) {
	a, err := s.Attr(ctx, ino)
	if err != nil {
		return nil, err
	}
	if !a.IsRegular() || !tensors.IsFile(name) {
		return nil, fmt.Errorf("tensors of inode %d: %w", ino, metadata.ErrNotExist)
	}
	f, err := s.headers.files.get(ctx, ino, stampOf(&a, name), func() (out memoized[*tensors.File]) {
		out.keep, out.err = s.readHeader(ctx, ino, func(r io.ReaderAt, size uint64) (err error) {
			if out.value, err = tensors.Parse(name, r, size); err == nil {
				out.memory = out.value.Memory()
			}
			return err
		})
		return out
	})
	if err != nil {
		return nil, fmt.Errorf("tensors of %s/…/%s, inode %d: %w", a.Device, name, ino, err)
	}
	return f, nil
}

// tensorIn returns the tensor that a file by its name and its header is, if
// it is one and nothing else. Whatever is in the way, it is none then.
func (s *Store) tensorIn(ctx context.Context, a *Attr) (*tensors.Tensor, bool) {
	if !a.IsRegular() || !tensors.IsFile(a.Name) || a.State != StateLive || a.Size == 0 {
		return nil, false
	}
	t, err := s.headers.singles.get(ctx, a.Ino, stampOf(a, a.Name), func() (out memoized[*tensors.Tensor]) {
		out.keep, out.err = s.readHeader(ctx, a.Ino, func(r io.ReaderAt, size uint64) error {
			t, ok, err := tensors.ParseSingle(a.Name, r, size)
			if ok {
				out.value = &t
			}
			return err
		})
		return out
	})
	return t, err == nil && t != nil
}

// readHeader hands an object's content to parse. What parse has found may be
// kept unless the content was changed meanwhile, or may be without a change of
// its stamp.
func (s *Store) readHeader(ctx context.Context, ino Ino, parse func(io.ReaderAt, uint64) error) (keep bool, err error) {
	select {
	case s.headers.turn <- struct{}{}:
		defer func() { <-s.headers.turn }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	o, err := s.pin(ctx, ino, pinUse)
	if err != nil {
		return false, err
	}
	defer s.unpin(ctx, o, pinUse)
	f := &File{store: s, obj: o}
	before, err := f.Mark()
	if err != nil {
		return false, err
	}
	size, err := o.end()
	if err != nil {
		return false, err
	}
	err = parse(headerReader{ctx: ctx, file: f}, size)
	after, failure := f.Mark()
	keep = failure == nil && before == after && !before.changing() && !s.isFresh(before)
	return keep && (err == nil || errors.Is(err, tensors.ErrFormat)), err
}

// isFresh says whether a host file was written so lately that the next write
// may get the same time.
func (s *Store) isFresh(m Mark) bool {
	if m.ctime == (metadata.Timespec{}) {
		return false
	}
	return s.now().Time().Sub(m.ctime.Time()) < coarseClock
}

// headerReader reads a content without its access time being set.
type headerReader struct {
	ctx  context.Context //nolint:containedctx // io.ReaderAt has no place for it; it lives for one call of readHeader
	file *File
}

func (r headerReader) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.file.peek(r.ctx, p, uint64(off))
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// Mark tells one content of an object from the next: bytes read between two
// equal marks, neither of them taken in a change, are of one content. Marks of
// different handles of an object compare as long as one of them is open.
type Mark struct {
	version uint64
	// What a host file knows, which the kernel writes by itself.
	size         int64
	mtime, ctime metadata.Timespec
}

// changing says whether the mark was taken in the middle of a change.
func (m Mark) changing() bool { return m.version%2 == 1 }

// Mark returns the present mark.
func (f *File) Mark() (Mark, error) {
	m := Mark{version: f.obj.version.Load()}
	h, ok := f.obj.content().(*hostFile)
	if !ok {
		return m, nil
	}
	st, err := h.stat()
	m.size = st.Size
	m.mtime = metadata.Timespec{Sec: st.Mtim.Sec, Nsec: uint32(st.Mtim.Nsec)}
	m.ctime = metadata.Timespec{Sec: st.Ctim.Sec, Nsec: uint32(st.Ctim.Nsec)}
	return m, err
}

// Same says whether the content is still that of a mark, and not being
// changed.
func (f *File) Same(m Mark) bool {
	now, err := f.Mark()
	return err == nil && now == m && !m.changing()
}

// Still runs fn while nobody changes the content, apart from the kernel, which
// may write host files by itself. It waits for changes under way until the
// context ends. fn must not change the object.
func (f *File) Still(ctx context.Context, fn func() error) error {
	if err := f.obj.lane.enter(ctx); err != nil {
		return err
	}
	defer f.obj.lane.leave()
	return fn()
}
