package cluster

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/transport"
)

func (s *server) open(ctx context.Context, g *servedSession, u User, q *proto.OpenAsk) (any, error) {
	access, ok := accessFromProto(q.Access)
	if !ok {
		return nil, fmt.Errorf("invalid access %#x to a file: %w", q.Access, objects.ErrInvalid)
	}
	if s.o.ReadOnly && access&objects.PermWrite != 0 {
		return nil, s.frozen()
	}
	a, err := s.inode(ctx, q.Ino)
	switch {
	case err != nil:
		return nil, err
	case q.Gen != 0 && metadata.Generation(q.Gen) != a.Gen:
		return nil, fmt.Errorf("inode %d has another generation: %w", q.Ino, ErrStale)
	case a.IsDir():
		return nil, fmt.Errorf("open inode %d: %w", q.Ino, metadata.ErrIsDir)
	}
	if err = u.mayOpen(&a, access); err != nil {
		return nil, err
	}
	f, err := s.o.Store.OpenFile(ctx, a.Ino)
	if isGone(err) {
		err = fmt.Errorf("%w: %w", ErrStale, err)
	}
	if err != nil {
		return nil, err
	}
	// It may have been published between the two checks.
	if a, err = s.inode(ctx, q.Ino); err == nil {
		var number uint64
		if number, err = g.add(ctx, &handle{file: f, access: access, who: u}); err == nil {
			return &proto.OpenAnswer{Handle: number, Attr: s.changed(ctx, g, &a)}, nil
		}
	}
	f.Abandon(ctx)
	return nil, err
}

// createOpen creates a regular file and opens it. The creator may open it with any access,
// whatever the mode, as with open(2).
func (s *server) createOpen(ctx context.Context, g *servedSession, q *proto.CreateOpenAsk) (any, error) {
	access, ok := accessFromProto(q.Access)
	if made := (metadata.Inode{Mode: metadata.Mode(q.Create.Mode)}); !made.IsRegular() || !ok {
		return nil, fmt.Errorf("invalid mode %#o or access %#x for a new file: %w", q.Create.Mode, q.Access, objects.ErrInvalid)
	}
	u, err := s.user(q.Create.Cred)
	if err != nil {
		return nil, err
	}
	made, err := s.createIn(ctx, g, u, &q.Create)
	if err != nil {
		return nil, err
	}
	out := &proto.OpenAnswer{}
	if f, err := s.o.Store.OpenFile(ctx, made.Ino); err == nil {
		if out.Handle, err = g.add(ctx, &handle{file: f, access: access, who: u}); err != nil {
			f.Abandon(ctx)
		}
	}
	out.Attr = s.changed(ctx, g, &made)
	return out, nil
}

// closeHandle closes a handle. The file is closed when the request is answered, unless another
// request of the session is still using it.
func (s *server) closeHandle(ctx context.Context, g *servedSession, q *proto.HandleAsk) (any, error) {
	h, err := g.take(q.Handle)
	if err != nil {
		return nil, err
	}
	ino := h.file.Ino()
	last, err := s.o.Store.Attr(ctx, ino)
	if err != nil {
		last = objects.Attr{Inode: metadata.Inode{Ino: ino, Mode: metadata.TypeRegular}, State: objects.StateLost}
	}
	g.done(ctx, h)
	after := s.changed(ctx, g, &last)
	if after.Keep == 0 && last.Nlink == 0 {
		after.Nlink = 0
	}
	return &after, nil
}

func (s *server) sync(ctx context.Context, g *servedSession, q *proto.HandleAsk) (any, error) {
	h, err := g.use(q.Handle, 0)
	if err != nil {
		return nil, err
	}
	defer g.done(ctx, h)
	return nil, h.file.Sync(ctx)
}

// theirs returns the requester's memory that a request names.
//
// Errors: proto.ErrBody, also for more than that memory has.
func (s *server) theirs(g *servedSession, q *proto.MoveAsk) (transport.Span, error) {
	d, err := q.Descriptor()
	if err != nil {
		return transport.Span{}, fmt.Errorf("invalid memory of the requester: %w: %w", proto.ErrBody, err)
	}
	// Checked before anything is done: a write would allocate memory for bytes that never
	// arrive. The descriptor's size is at most math.MaxInt64.
	if q.MemOff > d.Size || q.N > d.Size-q.MemOff {
		return transport.Span{}, fmt.Errorf("%d bytes at offset %d exceed the requester's memory of %d: %w", q.N, q.MemOff, d.Size, proto.ErrBody)
	}
	// The key is bound to its session: in another one it is refused.
	memory := s.o.Comm.Remote(g.from.Rank, d)
	return transport.RemoteSpan(memory, devices.Offset(q.MemOff), devices.Size(q.N)), nil
}

// read puts bytes of a file into the requester's memory.
func (s *server) read(ctx context.Context, g *servedSession, q *proto.MoveAsk) (any, error) {
	h, err := g.use(q.Handle, objects.PermRead)
	if err != nil {
		return nil, err
	}
	defer g.done(ctx, h)
	dst, err := s.theirs(g, q)
	if err != nil {
		return nil, err
	}
	before := h.file.Version()
	moved, err := h.file.CopyOut(ctx, q.Off, dst)
	version := h.file.Version()
	if version != before {
		version |= 1 // some bytes may predate a change that has completed
	}
	s.o.Count.bytesOut.Add(moved.N)
	if err == nil && moved.N < q.N {
		err = ctx.Err() // a short answer without an error would mean the end of the file
	}
	if err != nil {
		return nil, err
	}
	out := s.moved(h.file, moved, q.Off)
	out.Version = version
	return out, nil
}

// moved returns the answer to a move of a file's bytes.
func (s *server) moved(f *objects.File, m objects.Moved, off uint64) *proto.MoveAnswer {
	order := s.push.mark() // before reading the size
	return &proto.MoveAnswer{N: m.N, Off: off, Size: f.Size(), Path: string(m.Path), Order: order}
}

// write gets bytes of the requester's memory into a file.
func (s *server) write(ctx context.Context, g *servedSession, q *proto.MoveAsk) (any, error) {
	h, err := g.use(q.Handle, objects.PermWrite)
	if err != nil {
		return nil, err
	}
	defer g.done(ctx, h)
	src, err := s.theirs(g, q)
	if err != nil {
		return nil, err
	}
	defer s.push.changing(g, h.file.Ino())()
	moved, err := h.file.CopyIn(ctx, src, objects.Write{
		Off: q.Off, Append: q.Append, KillPriv: q.KillPriv || !h.who.IsRoot(),
	})
	s.o.Count.bytesIn.Add(moved.N)
	s.served(h.file.Ino(), 0)
	if err != nil {
		return nil, err
	}
	return s.moved(h.file, moved, moved.Off), nil
}

func (s *server) allocate(ctx context.Context, g *servedSession, q *proto.AllocateAsk) (any, error) {
	h, err := g.use(q.Handle, objects.PermWrite)
	if err != nil {
		return nil, err
	}
	defer g.done(ctx, h)
	err = s.change(ctx, g, h, func() error {
		return h.file.Allocate(ctx, objects.AllocateMode(q.Mode), q.Off, q.N)
	})
	if err != nil {
		return nil, err
	}
	a, err := s.o.Store.Attr(ctx, h.file.Ino())
	if err != nil {
		return nil, err
	}
	return new(s.changed(ctx, g, &a)), nil
}

func (s *server) seek(ctx context.Context, g *servedSession, q *proto.SeekAsk) (any, error) {
	h, err := g.use(q.Handle, 0)
	if err != nil {
		return nil, err
	}
	defer g.done(ctx, h)
	whence := objects.SeekData
	if q.Hole {
		whence = objects.SeekHole
	}
	off, err := h.file.Seek(ctx, q.Off, whence)
	if err != nil {
		return nil, err
	}
	return &proto.SeekAnswer{Off: off}, nil
}

// change runs fn, which changes the content of a file other than by a write. For a user other than
// root it clears the file's set-id bits before.
func (s *server) change(ctx context.Context, g *servedSession, h *handle, fn func() error) error {
	ino := h.file.Ino()
	defer s.push.changing(g, ino)()
	if !h.who.IsRoot() {
		a, err := s.o.Store.Attr(ctx, ino)
		if err == nil && a.Mode&modeSetID != 0 {
			_, err = s.o.Store.SetAttr(ctx, ino, objects.Change{KillPriv: true})
		}
		if err != nil {
			return err
		}
	}
	defer s.served(ino, 0)
	return fn()
}

// copy copies between two files of this node.
func (s *server) copy(ctx context.Context, g *servedSession, q *proto.CopyAsk) (any, error) {
	dst, err := g.use(q.Dst, objects.PermWrite)
	if err != nil {
		return nil, err
	}
	defer g.done(ctx, dst)
	src, err := g.use(q.Src, objects.PermRead)
	if err != nil {
		return nil, err
	}
	defer g.done(ctx, src)
	var n uint64
	err = s.change(ctx, g, dst, func() (err error) {
		n, err = s.o.Store.CopyRange(ctx, objects.CopyRange{
			Dst: dst.file, DstOff: q.DstOff, Src: src.file, SrcOff: q.SrcOff, N: q.N,
		})
		return err
	})
	if err == nil && n < q.N {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	out := s.moved(dst.file, objects.Moved{N: n}, q.DstOff)
	if a, err := s.o.Store.Attr(ctx, dst.file.Ino()); err == nil {
		out.Path = a.Path
	}
	return out, nil
}

// pull copies from a file of a third node.
func (s *server) pull(ctx context.Context, g *servedSession, _ User, q *proto.PullAsk) (any, error) {
	h, err := g.use(q.Handle, objects.PermWrite)
	if err != nil {
		return nil, err
	}
	defer g.done(ctx, h)
	var moved objects.Moved
	err = s.change(ctx, g, h, func() (err error) {
		moved, err = s.o.Pull(ctx, h.file, q) // which counts the bytes
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.moved(h.file, moved, q.Off), nil
}

// served reports that a request has changed, or may have changed, an inode or the names of a
// directory.
func (s *server) served(ino, dir metadata.Ino) {
	if s.o.Served != nil {
		s.o.Served(objects.Notice{Ino: ino, Dir: dir})
	}
}
