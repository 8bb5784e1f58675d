package client

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"
	"syscall"

	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// File is an open file or directory of a session. It may be used from any goroutine. Transfers of
// more than frames.MaxFileData bytes take several calls; ReadMemory and WriteMemory take one, and
// no copy beside that of the daemon.
type File struct {
	files   *Files
	name    string
	handle  uint64
	appends bool

	// mu orders the calls that use the position.
	mu sync.Mutex
	// pos is the position of a file, or the cookie of a directory.
	// +checklocks:mu
	pos uint64
	// ended is set at the end of a directory.
	// +checklocks:mu
	ended bool
	// closed is set by Close.
	// +checklocks:mu
	closed bool
}

var (
	_ fs.ReadDirFile     = (*File)(nil)
	_ io.ReaderAt        = (*File)(nil)
	_ io.WriterAt        = (*File)(nil)
	_ io.ReadWriteSeeker = (*File)(nil)
)

// Name returns the name that the file was opened by.
func (f *File) Name() string { return f.name }

// ask makes a call about the file.
func (f *File) ask(ctx context.Context, op string, verb frames.FileVerb, q frames.FileCall, into []byte) (frames.FileAnswer, error) {
	q.Handle = f.handle
	return f.files.do(ctx, &fileAsk{op: op, name: f.name, verb: verb, call: q, into: into})
}

func (f *File) fault(op string, err error) error {
	return &fs.PathError{Op: op, Path: f.name, Err: err}
}

// Stat describes the file.
func (f *File) Stat() (fs.FileInfo, error) {
	return infoOf("stat", f.name)(f.ask(context.Background(), "stat", frames.FileStat, frames.FileCall{}, nil))
}

// Read reads from the current position.
func (f *File) Read(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.readAt(p[:min(len(p), frames.MaxFileData)], f.pos)
	f.pos += uint64(n)
	if n == 0 && err == nil && len(p) > 0 {
		err = io.EOF
	}
	return n, err
}

// ReadAt reads at an offset.
func (f *File) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, f.fault("read", syscall.EINVAL)
	}
	for n < len(p) {
		part := p[n:min(len(p), n+frames.MaxFileData)]
		got, err := f.readAt(part, uint64(off)+uint64(n))
		if n += got; err != nil {
			return n, err
		}
		if got < len(part) {
			return n, io.EOF
		}
	}
	return n, nil
}

// readAt makes one call.
func (f *File) readAt(p []byte, off uint64) (int, error) {
	if p == nil {
		p = []byte{}
	}
	a, err := f.ask(context.Background(), "read", frames.FileRead, frames.FileCall{Off: off, Size: uint64(len(p))}, p)
	if err != nil {
		return 0, err
	}
	f.hadRead(off, uint64(len(a.Data)))
	return len(a.Data), nil
}

// hadRead notes that n bytes were read, of a file of publish/.
func (f *File) hadRead(off, n uint64) {
	if strings.HasPrefix(path.Clean("/"+f.name), "/publish/") {
		f.files.session.hadRead(f.handle, frames.Range{From: off, End: off + n})
	}
}

// readAll reads the whole file.
func (f *File) readAll() ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	data := make([]byte, 0, max(info.Size(), 0)+512) // beyond the end, so that the end is seen
	for {
		n, err := f.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if errors.Is(err, io.EOF) {
			return data, nil
		}
		if err != nil {
			return nil, err
		}
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
	}
}

// Write writes at the current position, or at the end of a file opened with os.O_APPEND.
func (f *File) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.writeAt(p, f.pos)
	f.pos += uint64(n)
	return n, err
}

// WriteAt writes at an offset. It is an error for a file opened with os.O_APPEND.
func (f *File) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || f.appends {
		return 0, f.fault("write", syscall.EINVAL)
	}
	return f.writeAt(p, uint64(off))
}

func (f *File) writeAt(p []byte, off uint64) (n int, err error) {
	for n < len(p) {
		part := p[n:min(len(p), n+frames.MaxFileData)]
		a, err := f.ask(context.Background(), "write", frames.FileWrite, frames.FileCall{Off: off + uint64(n), Data: part}, nil)
		put := int(min(a.N, uint64(len(part))))
		if n += put; err != nil {
			return n, err
		}
		if put == 0 {
			return n, f.fault("write", io.ErrShortWrite)
		}
	}
	return n, nil
}

// ReadMemory reads b.Size bytes at an offset into registered memory of the session, in one call, and
// returns how many there were: fewer only at the end.
func (f *File) ReadMemory(ctx context.Context, b hetero.Blob, off int64) (int64, error) {
	return f.move(ctx, "read", frames.FileRead, b, off)
}

// WriteMemory writes registered memory of the session at an offset, in one call.
func (f *File) WriteMemory(ctx context.Context, b hetero.Blob, off int64) (int64, error) {
	return f.move(ctx, "write", frames.FileWrite, b, off)
}

func (f *File) move(ctx context.Context, op string, verb frames.FileVerb, b hetero.Blob, off int64) (int64, error) {
	if off < 0 || b.Memory == 0 {
		return 0, f.fault(op, syscall.EINVAL)
	}
	a, err := f.ask(ctx, op, verb, frames.FileCall{
		Off: uint64(off), Size: uint64(b.Size), Memory: uint64(b.Memory), MemoryOff: uint64(b.Off),
	}, nil)
	if verb == frames.FileRead && err == nil {
		f.hadRead(uint64(off), a.N)
	}
	return int64(a.N), err
}

// Seek sets the position of Read and Write; of a directory only to its start.
func (f *File) Seek(offset int64, whence int) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += int64(f.pos)
	case io.SeekEnd:
		info, err := f.Stat()
		if err != nil {
			return 0, err
		}
		offset += info.Size()
	default:
		return 0, f.fault("seek", syscall.EINVAL)
	}
	if offset < 0 {
		return 0, f.fault("seek", syscall.EINVAL)
	}
	f.pos, f.ended = uint64(offset), false
	return offset, nil
}

// Truncate changes the size.
func (f *File) Truncate(size int64) error {
	if size < 0 {
		return f.fault("truncate", syscall.EINVAL)
	}
	data := frames.AppendChange(nil, &frames.Change{Set: frames.ChangeSize, Size: uint64(size)})
	_, err := f.ask(context.Background(), "truncate", frames.FileChange, frames.FileCall{Data: data}, nil)
	return err
}

// Sync returns when the content is as durable as the device makes it.
func (f *File) Sync() error {
	_, err := f.ask(context.Background(), "sync", frames.FileSync, frames.FileCall{}, nil)
	return err
}

// ReadDir returns the next n entries of a directory; all the rest if n is not positive.
func (f *File) ReadDir(n int) ([]fs.DirEntry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	entries := []fs.DirEntry{}
	for !f.ended && (n <= 0 || len(entries) < n) {
		limit := 0
		if n > 0 {
			limit = n - len(entries)
		}
		a, err := f.ask(context.Background(), "readdir", frames.FileList, frames.FileCall{Off: f.pos, Size: uint64(limit)}, nil)
		var page []frames.FileEntry
		if err == nil {
			page, err = frames.ParseFileEntries(a.Data)
		}
		if err != nil {
			return entries, err
		}
		f.ended = len(page) == 0
		for _, e := range page {
			f.pos = e.Next
			entries = append(entries, &dirEntry{f.files, f.name, e})
		}
	}
	if n > 0 && len(entries) == 0 {
		return entries, io.EOF
	}
	return entries, nil
}

// Close closes the file.
func (f *File) Close() error {
	f.mu.Lock()
	closed := f.closed
	f.closed = true
	f.mu.Unlock()
	if closed {
		return f.fault("close", fs.ErrClosed)
	}
	f.files.session.forgetFile(f.handle)
	_, err := f.ask(context.Background(), "close", frames.FileClose, frames.FileCall{}, nil)
	return err
}
