package admin

import (
	"context"
	"errors"
	"sync"
	"syscall"

	"github.com/hmcfs/hmcfs/fs"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

const (
	// maxOpenFiles bounds the open files of a session of root or the owner, and
	// maxForeignOpenFiles those of another user, who may have maxSessions sessions.
	maxOpenFiles        = 1 << 16
	maxForeignOpenFiles = 1024
)

// memories is implemented by a hetero.Client whose memory this process can access.
type memories interface {
	// WithMemory calls do with a range of registered memory.
	WithMemory(ctx context.Context, b hetero.Blob, do func(ctx context.Context, b objects.Blob) error) error
}

// openFiles are the open files of a session.
type openFiles struct {
	server *Server
	guest  *fs.Guest
	// memory is nil if the session's client has none.
	memory memories
	most   int
	// life is the context of the calls, and stop ends it.
	life context.Context //nolint:containedctx // it is the lifetime of the session
	stop context.CancelFunc

	mu sync.Mutex
	// files have numbers that no other session has been given.
	// +checklocks:mu
	files map[uint64]*openFile
	// over is set once no more files are opened.
	// +checklocks:mu
	over bool
}

// openFile is one open file. openFiles.mu guards users and closed.
type openFile struct {
	file *fs.Opened
	// users counts the calls that use it.
	users  int
	closed bool
}

// openFiles returns the files of a session without any.
func (s *Server) openFiles(ctx context.Context, c *conn, one *session) *openFiles {
	most := maxForeignOpenFiles
	if c.trusted {
		most = maxOpenFiles
	}
	ctx, stop := context.WithCancel(ctx)
	return &openFiles{
		server: s, guest: s.opts.Files.Begin(callerOf(c.peer)), memory: one.memory, most: most,
		life: ctx, stop: stop,
		files: map[uint64]*openFile{},
	}
}

// add assigns a number to a file, which then belongs to the session.
//
// Errors: EMFILE.
func (o *openFiles) add(f *fs.Opened) (uint64, error) {
	for {
		id := o.server.lastFile.Add(1)
		if err := o.addAs(id, f); !errors.Is(err, syscall.EEXIST) { // a number of the daemon before
			return id, err
		}
	}
}

// addAs is add for a file of a session that is continued, which keeps its number.
//
// Errors: EMFILE; EEXIST if the number is in use.
func (o *openFiles) addAs(id uint64, f *fs.Opened) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over || len(o.files) >= o.most {
		o.server.opts.Refusals.add(boundOpenFiles)
		return syscall.EMFILE
	}
	if o.files[id] != nil {
		return syscall.EEXIST
	}
	o.files[id] = &openFile{file: f}
	return nil
}

// use calls do with an open file, which stays open meanwhile.
//
// Errors: EBADF.
func (o *openFiles) use(id uint64, do func(*fs.Opened) error) error {
	f, err := o.begin(id)
	if err != nil {
		return err
	}
	defer o.done(f)
	return do(f.file)
}

// begin begins a use of an open file, which done must end.
//
// Errors: EBADF.
func (o *openFiles) begin(id uint64) (*openFile, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.files[id]
	if f == nil {
		return nil, syscall.EBADF
	}
	f.users++
	return f, nil
}

// done ends a use. The last use of a closed file closes it.
func (o *openFiles) done(f *openFile) {
	o.mu.Lock()
	f.users--
	last := f.closed && f.users == 0
	o.mu.Unlock()
	if last {
		f.file.Close()
	}
}

// close closes a file: its number is unknown from now on.
//
// Errors: EBADF.
func (o *openFiles) close(id uint64) error {
	o.mu.Lock()
	f := o.files[id]
	if f == nil {
		o.mu.Unlock()
		return syscall.EBADF
	}
	delete(o.files, id)
	f.closed = true
	f.users++
	o.mu.Unlock()
	o.done(f)
	return nil
}

// interrupt ends the calls in progress.
func (o *openFiles) interrupt() {
	if o != nil {
		o.stop()
	}
}

// end closes all files. No calls are in progress.
func (o *openFiles) end() {
	if o == nil {
		return
	}
	o.mu.Lock()
	left := o.files
	o.files, o.over = nil, true
	o.mu.Unlock()
	for _, f := range left {
		f.file.Close()
	}
	o.guest.End()
}
