package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/content"
	"github.com/hmcfs/hmcfs/objects/tensors"
)

const (
	// maxHeaders bounds the number of parsed headers that are kept, maxHeaderBytes their
	// total memory. The last one is kept whatever its size.
	maxHeaders     = 256
	maxHeaderBytes = 128 << 20
	// parsers is the number of headers that are read concurrently.
	parsers = 2
	// fresh is the time after a change within which the next change may get the same
	// timestamp. It is generous: the clock for timestamps advances in ticks of a few
	// milliseconds.
	fresh = 50 * time.Millisecond
)

// headers caches the parsed headers of tensor files.
type headers struct {
	table   *table
	attrs   *attributes
	files   memo[*tensors.File]
	singles memo[*tensors.Tensor]
	// turn limits the goroutines that read a header.
	turn Lane
}

// forget drops the cached headers of an inode.
func (h *headers) forget(ino Ino) {
	h.files.forget(ino)
	h.singles.forget(ino)
}

// stamp identifies the content of an inode, and the name by which it is parsed.
type stamp struct {
	name         string
	size         uint64
	mtime, ctime metadata.Timespec
}

// stampOf returns the stamp of an inode. The name of a safetensors file determines only its
// format, so it is not part of the stamp.
func stampOf(a *Attr, name string) stamp {
	if !strings.HasSuffix(name, ".npy") {
		name = ""
	}
	return stamp{name: name, size: a.Size, mtime: a.Mtime, ctime: a.Ctime}
}

// Tensors returns the tensors that a file contains now. name, which may be any of the
// file's names, determines its format. The File is shared and does not change.
//
// Errors: tensors.ErrFormat, ErrLost, metadata.ErrNotExist.
func (s *Store) Tensors(ctx context.Context, ino Ino, name string) (*tensors.File, error) {
	a, err := s.attrs.get(ctx, ino)
	if err != nil {
		return nil, err
	}
	if !a.IsRegular() || !tensors.IsFile(name) {
		return nil, fmt.Errorf("no tensors in inode %d: %w", ino, metadata.ErrNotExist)
	}
	f, err := known(ctx, s.table, &s.headers.files, &a, name, func() (out memoized[*tensors.File]) {
		out.keep, out.err = s.headers.readHeader(ctx, ino, func(r io.ReaderAt, size uint64) (err error) {
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

// tensorIn returns the tensor of a file that, by its name and header, contains a single
// tensor and nothing else; false in all other cases, errors included.
func (h *headers) tensorIn(ctx context.Context, a *Attr) (*tensors.Tensor, bool) {
	if !a.IsRegular() || !tensors.IsFile(a.Name) || a.State == StateLost || a.Size == 0 {
		return nil, false
	}
	t, err := known(ctx, h.table, &h.singles, a, a.Name, func() (out memoized[*tensors.Tensor]) {
		out.keep, out.err = h.readHeader(ctx, a.Ino, func(r io.ReaderAt, size uint64) error {
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

// known returns what a memo has for an inode, or calls find. It always calls find for a
// stamp that is fresh, which may not distinguish one content from the next, and for
// memory that another process may change.
func known[T any](ctx context.Context, tb *table, m *memo[T], a *Attr, name string, find func() memoized[T]) (T, error) {
	if now := tb.meta.Now(); isFresh(now, a.Mtime) || isFresh(now, a.Ctime) || tb.isForeign(ctx, a.Ino) {
		found := find()
		return found.value, found.err
	}
	return m.get(ctx, a.Ino, stampOf(a, name), find)
}

// isForeign reports whether another process may change an object's bytes. Such an
// object is always loaded.
func (tb *table) isForeign(ctx context.Context, ino Ino) bool {
	o := tb.pinLoaded(ino)
	if o == nil {
		return false
	}
	defer tb.unpin(ctx, o, pinUse)
	return o.foreign.Load()
}

// isFresh reports whether t is so close to now that another change may get the same
// time.
func isFresh(now, t metadata.Timespec) bool {
	return now.Time().Sub(t.Time()).Abs() < fresh
}

// readHeader passes an object's content to parse. keep reports that the result may be
// cached, since the content was not changed meanwhile.
func (h *headers) readHeader(ctx context.Context, ino Ino, parse func(io.ReaderAt, uint64) error) (keep bool, err error) {
	if err = h.turn.Enter(ctx); err != nil {
		return false, err
	}
	defer h.turn.Leave()
	o, err := h.table.pin(ctx, ino, pinUse)
	if err != nil {
		return false, err
	}
	defer h.table.unpin(ctx, o, pinUse)
	f := &File{obj: o}
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
	keep = failure == nil && before == after && !before.changing()
	return keep && (err == nil || errors.Is(err, tensors.ErrFormat)), err
}

// headerReader reads content without setting its access time.
type headerReader struct {
	ctx  context.Context //nolint:containedctx // io.ReaderAt has no parameter for it; it is used for one call of readHeader
	file *File
}

func (r headerReader) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.file.Peek(r.ctx, p, uint64(off))
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// Mark identifies one state of an object's content: bytes read between two equal marks,
// neither of them taken during a change, belong to one state. Marks of different
// handles of an object are comparable as long as one of the handles is open.
type Mark struct {
	version uint64
	// The attributes of a host file, which the kernel writes by passthrough.
	size         int64
	mtime, ctime metadata.Timespec
}

// changing reports whether the mark was taken during a change.
func (m Mark) changing() bool { return m.version%2 == 1 }

// Mark returns the present mark.
func (f *File) Mark() (Mark, error) {
	m := Mark{version: f.obj.version.Load()}
	h, ok := f.obj.content().(*content.HostFile)
	if !ok {
		return m, nil
	}
	st, err := h.Stat()
	m.size = st.Size
	m.mtime = metadata.Timespec{Sec: st.Mtim.Sec, Nsec: uint32(st.Mtim.Nsec)}
	m.ctime = metadata.Timespec{Sec: st.Ctim.Sec, Nsec: uint32(st.Ctim.Nsec)}
	return m, err
}

// Same reports whether the content is still that of a mark, and is not being changed.
func (f *File) Same(m Mark) bool {
	now, err := f.Mark()
	return err == nil && now == m && !m.changing()
}

// Settled reports whether every later change results in another mark. The time of a
// host file, which the kernel writes by passthrough, advances in ticks; changes that
// another process makes to its own memory don't affect marks at all.
func (f *File) Settled(m Mark) bool {
	now := f.obj.table.meta.Now()
	return !f.Foreign() && (m.ctime == (metadata.Timespec{}) || !isFresh(now, m.ctime) && !isFresh(now, m.mtime))
}

// Still runs fn while the content does not change, except that the kernel may write
// host files by passthrough. It waits for changes under way until the context ends. fn
// must not change the object.
func (f *File) Still(ctx context.Context, fn func() error) error {
	return f.obj.exclusively(ctx, fn)
}
