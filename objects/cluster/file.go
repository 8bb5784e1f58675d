package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
)

// File is an open file of another node. Its methods may be called from any goroutine. After
// its session broke, the file is reopened automatically once the same incarnation is back.
// Requests in progress at that time fail, except for reads, which are retried in the next
// session, and for those that another daemon of the incarnation can carry out: see
// Node.repeat.
type File struct {
	n      *Node
	who    objects.Caller
	user   string
	ino    objects.Ino
	gen    metadata.Generation
	access objects.Permission
	// by obtains a handle, if the file is not opened by its inode: that of a claim.
	by func(ctx context.Context, s *session) (handle uint64, err error)
	// open is shared by all open files of the inode.
	open *opened

	mu sync.Mutex
	// handle is the owner's, in the session in.
	// +checklocks:mu
	handle uint64
	// +checklocks:mu
	in *session
	// opening is closed when a reopening has ended; nil when none is in progress.
	// +checklocks:mu
	opening chan struct{}
	// +checklocks:mu
	closed bool
}

// Open opens a regular file.
func (n *Node) Open(ctx context.Context, who objects.Caller, ino objects.Ino, access objects.Permission) (*File, error) {
	return n.start(ctx, &File{n: n, who: who, ino: ino, access: access})
}

// CreateOpen creates a regular file and opens it, with one request. UID and GID of the node
// are ignored: the caller's are used.
func (n *Node) CreateOpen(ctx context.Context, who objects.Caller, dir objects.Ino, name string, in metadata.Node, access objects.Permission) (objects.Attr, *File, error) {
	ctx, cancel := context.WithTimeout(ctx, n.c.opts.Timeout)
	defer cancel()
	ask := &proto.CreateOpenAsk{Access: accessToProto(access), Create: proto.CreateAsk{
		Cred: credToProto(who), Dir: uint64(dir), Name: name, Mode: uint32(in.Mode),
	}}
	m := n.cache.begin()
	var out proto.OpenAnswer
	e := newEntry{who: who, dir: dir, name: name, kind: metadata.TypeRegular}
	s, err := n.askOne(ctx, question{method: proto.MethodCreateOpen, in: ask, out: &out, settle: func(ctx context.Context, s *session, err error) error {
		out.Handle = 0 // it is opened below
		return n.added(ctx, s, &e, &out.Attr, err)
	}})
	n.dropNames(dir)
	if err != nil {
		return objects.Attr{}, nil, err
	}
	a, err := n.entered(&out.Attr, dir)
	if err == nil && !a.IsRegular() {
		err = fmt.Errorf("node %s created a file with invalid mode %o: %w", n.name, a.Mode, proto.ErrBody)
	}
	if err != nil {
		return objects.Attr{}, nil, err
	}
	m.order = out.Attr.Order
	n.cache.putAttr(m, userKey(who), &a, out.Attr.Keep)
	f := &File{n: n, who: who, ino: a.Ino, access: access, gen: a.Gen}
	if out.Handle == 0 {
		f, err = n.start(ctx, f)
		return a, f, err
	}
	f.user, f.open = userKey(who), n.inos.use(a.Ino)
	f.open.sized(a.Size, m.order)
	n.files.add(f)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handle, f.in = out.Handle, s
	return a, f, nil
}

// openGen opens a file for reading, if it has a generation.
func (n *Node) openGen(ctx context.Context, who objects.Caller, ino objects.Ino, gen uint64) (*File, error) {
	return n.start(ctx, &File{n: n, who: who, ino: ino, access: objects.PermRead, gen: metadata.Generation(gen)})
}

// start opens the file that f describes.
func (n *Node) start(ctx context.Context, f *File) (*File, error) {
	f.user, f.open = userKey(f.who), n.inos.use(f.ino)
	if _, _, err := f.opened(ctx); err != nil {
		n.inos.leave(f.ino)
		return nil, err
	}
	n.files.add(f)
	return f, nil
}

// generation returns the generation of the inode.
func (f *File) generation() metadata.Generation {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gen
}

// Node returns the owner of the file.
func (f *File) Node() *Node { return f.n }

// Ino returns its inode number at the owner.
func (f *File) Ino() objects.Ino { return f.ino }

// Size returns its size as last reported.
func (f *File) Size() uint64 { return f.open.size.Load() }

// Version changes with every known change of the content: data read under two equal versions
// may be used together. All open files of one inode on this node have the same version.
func (f *File) Version() uint64 { return f.open.version.Load() }

// opened returns the handle in the present session, and reopens the file if it was open in
// another session.
func (f *File) opened(ctx context.Context) (*session, uint64, error) {
	var r repetition
	for {
		s, err := f.n.live(ctx)
		if err != nil {
			return nil, 0, err
		}
		f.mu.Lock()
		switch {
		case f.closed:
			f.mu.Unlock()
			return nil, 0, fmt.Errorf("file %d of node %s: %w", f.ino, f.n.name, objects.ErrClosed)
		case f.in == s:
			handle := f.handle
			f.mu.Unlock()
			return s, handle, nil
		case f.opening != nil:
			wait := f.opening
			f.mu.Unlock()
			select {
			case <-wait:
				continue
			case <-ctx.Done():
				return nil, 0, fmt.Errorf("open file %d of node %s: %w", f.ino, f.n.name, ctx.Err())
			}
		}
		f.opening = make(chan struct{})
		f.mu.Unlock()
		if err = f.reopen(ctx, s, &r); err != nil {
			return nil, 0, err
		}
	}
}

// reopen opens the file in a session. Without an error it may have to be tried again, in another
// one: r counts the attempts; nil allows none.
func (f *File) reopen(ctx context.Context, s *session, r *repetition) error {
	ctx, cancel := context.WithTimeout(ctx, f.n.c.opts.Timeout)
	defer cancel()
	m := f.n.cache.begin()
	out, err := f.handleIn(ctx, s)
	again := false
	if err != nil && r != nil {
		again, err = f.n.repeat(ctx, r, s, err, true, false)
	}
	err = f.n.failed(err)
	var a objects.Attr
	if err == nil && f.by == nil {
		a, err = f.n.received(&out.Attr, f.ino)
	}
	if err == nil && (out.Handle == 0 || f.by == nil && !a.IsRegular()) {
		err = fmt.Errorf("node %s sent handle %#x of a file with invalid mode %o: %w", f.n.name, out.Handle, a.Mode, proto.ErrBody)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.opening)
	f.opening = nil
	switch {
	case again:
		return nil
	case errors.Is(err, metadata.ErrNotExist):
		return fmt.Errorf("%w: %w", ErrStale, err)
	case err != nil:
		return err
	}
	if f.in, f.handle = s, out.Handle; f.closed { // meanwhile
		f.n.c.Go(func() { f.release(s, out.Handle) }) //nolint:contextcheck // the call that has opened it does not wait
		return nil
	}
	if f.by != nil {
		return nil
	}
	f.gen = a.Gen
	m.order = out.Attr.Order
	f.open.sized(a.Size, m.order)
	f.n.cache.putAttr(m, f.user, &a, out.Attr.Keep)
	return nil
}

// release closes a handle of a file that was closed while it was opened again.
func (f *File) release(s *session, handle uint64) {
	ctx, cancel := context.WithTimeout(f.n.c.life, f.n.c.opts.Timeout)
	defer cancel()
	err := f.n.askIn(ctx, s, question{method: proto.MethodClose, in: &proto.HandleAsk{Handle: handle}})
	if err != nil {
		f.n.broke(s, err) // the handle ends with the session
	}
}

// handleIn obtains a handle in a session. Its error is the endpoint's.
func (f *File) handleIn(ctx context.Context, s *session) (out proto.OpenAnswer, err error) {
	if f.by != nil {
		out.Handle, err = f.by(ctx, s)
		return out, err
	}
	err = f.n.askIn(ctx, s, question{method: proto.MethodOpen, out: &out, in: &proto.OpenAsk{
		Cred: credToProto(f.who), Ino: uint64(f.ino), Gen: uint64(f.gen), Access: accessToProto(f.access),
	}})
	return out, err
}

// ask sends a request about the handle. make is called for each attempt.
func (f *File) ask(ctx context.Context, again bool, make func(handle uint64) question) error {
	ctx, cancel := context.WithTimeout(ctx, f.n.c.opts.Timeout)
	defer cancel()
	return f.with(ctx, again, func(s *session, handle uint64) error {
		return f.n.askIn(ctx, s, make(handle))
	})
}

// with calls fn with a session and the handle in it, and again if the session broke and fn may be
// repeated (see Node.repeat), or has done nothing. Errors of fn are the endpoint's, or errors
// that callers distinguish.
func (f *File) with(ctx context.Context, again bool, fn func(s *session, handle uint64) error) error {
	return f.withDoubt(ctx, again, func(s *session, handle uint64, _ bool) error { return fn(s, handle) })
}

// withDoubt is with for a function that must know whether a daemon that is dead may have carried it
// out already.
func (f *File) withDoubt(ctx context.Context, again bool, fn func(s *session, handle uint64, doubtful bool) error) error {
	var r repetition
	for {
		s, handle, err := f.opened(ctx)
		if err != nil {
			return err
		}
		if err = fn(s, handle, r.doubtful); err == nil {
			return nil
		}
		repeated, err := f.n.repeat(ctx, &r, s, err, again, false)
		switch {
		case repeated:
		case f.unopened(s, err) && r.broken < tries:
			r.broken++
		default:
			return f.n.failed(err)
		}
	}
}

// unopened reports whether the owner does not know the handle because the request arrived in a
// later session than intended.
func (f *File) unopened(s *session, err error) bool {
	return errors.Is(f.n.failed(err), ErrStale) && f.n.session.Load() != s
}

// Close closes the handle. If the session has ended, the owner's answer does not matter: the
// handle ended with the session.
func (f *File) Close(ctx context.Context) error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	s, handle := f.in, f.handle
	f.mu.Unlock()
	f.n.files.remove(f)
	defer f.n.inos.leave(f.ino)
	if s == nil || s.ended() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.n.c.opts.Timeout)
	defer cancel()
	m := f.n.cache.begin()
	var out proto.Attr
	err := f.n.askIn(ctx, s, question{method: proto.MethodClose, in: &proto.HandleAsk{Handle: handle}, out: &out})
	if err != nil {
		if f.n.broke(s, err); s.ended() {
			return nil
		}
		return f.n.failed(err)
	}
	if f.by != nil {
		return nil
	}
	a, err := f.n.received(&out, f.ino)
	if m.order = out.Order; err != nil {
		f.n.c.log.Debug("close", zap.String("node", string(f.n.name)), zap.Error(err))
		return nil
	}
	f.n.cache.putAttr(m, f.user, &a, out.Keep)
	return nil
}
