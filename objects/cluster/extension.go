package cluster

import (
	"context"
	"fmt"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/rpc"
)

// Extension adds methods to those that nodes call on each other. Its methods may be called
// from any goroutine.
type Extension interface {
	// Begin is called by Join, before any request of another node arrives. It returns the
	// handlers of the extension's methods.
	Begin(c *Cluster) (map[rpc.Method]Handler, error)
	// Left is called once for each session of another node that has ended, if Begin was
	// called. The session's files are closed when Left returns, and Close waits for that.
	Left(from ClientSession)
	// End is called by Close when no more requests are answered and sessions still exist. The
	// extension must release everything that it has created on the communicator.
	End() error
}

// Handler answers the requests of one method; Answer makes it.
type Handler func(*server) rpc.Handler

// Answer makes a Handler from a function for one type of request, a body of package proto. A
// nil answer has no body.
func Answer[Q any](fn func(context.Context, ClientSession, *Q) (any, error)) Handler {
	return func(s *server) rpc.Handler {
		return answer(s, func(ctx context.Context, g *servedSession, q *Q) (any, error) {
			return fn(ctx, ClientSession{g}, q)
		})
	}
}

// ClientSession is a session in which another node sends requests to this one. Sessions are
// comparable.
type ClientSession struct{ g *servedSession }

// Ended reports whether the session has ended.
func (s ClientSession) Ended() bool { return isClosed(s.g.gone) }

// Use returns a file that the session has open, and keeps it open until Done.
//
// Errors: ErrStale; ErrDenied for a file that was not opened with the permission want.
func (s ClientSession) Use(handle uint64, want objects.Permission) (UsedFile, error) {
	h, err := s.g.use(handle, want)
	return UsedFile{s.g, h}, err
}

// UsedFile is a file that a session has open.
type UsedFile struct {
	g *servedSession
	h *handle
}

// File returns the file.
func (u UsedFile) File() *objects.File { return u.h.file }

// ByRoot reports whether root opened the file; root's writes clear no mode bits.
func (u UsedFile) ByRoot() bool { return u.h.who.IsRoot() }

// Changing starts a change of the file about which the session is not notified, since an
// answer informs it. The returned function ends the change.
func (u UsedFile) Changing() (done func()) { return u.g.server.push.changing(u.g, u.h.file.Ino()) }

// Done ends the use of the file.
func (u UsedFile) Done(ctx context.Context) { u.g.done(ctx, u.h) }

// Changed notifies this node's mount that a request of another node has changed a file.
func (c *Cluster) Changed(ino metadata.Ino) { c.server.served(ino, 0) }

// Session is a session in which this node sends requests to another one. Sessions are
// comparable; the zero Session is invalid.
type Session struct {
	n *Node
	s *session
}

// Session returns the present session with the owner of the file, and the file's handle in it.
//
// Errors: those of a request.
func (f *File) Session(ctx context.Context) (Session, uint64, error) {
	s, handle, err := f.opened(ctx)
	if err != nil {
		return Session{}, 0, err
	}
	return Session{f.n, s}, handle, nil
}

// Ended reports whether the session has ended.
func (s Session) Ended() bool { return s.s.ended() }

// Ask sends a request in this session, within Options.Timeout: in and out are bodies of
// package proto, or nil.
//
// Errors: the owner's; ErrUnreachable, also when the session has ended; ErrDenied; the
// context's.
func (s Session) Ask(ctx context.Context, m rpc.Method, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, s.n.c.opts.Timeout)
	defer cancel()
	err := s.n.askIn(ctx, s.s, question{method: m, in: in, out: out})
	if err != nil {
		s.n.broke(s.s, err)
	}
	return s.n.failed(err)
}

// Connect establishes a session with the node if there is none.
//
// Errors: those of a request.
func (n *Node) Connect(ctx context.Context) error {
	_, err := n.live(ctx)
	return err
}

// NodeAs is Node for one incarnation of a node; epoch 0 accepts any.
//
// Errors: ErrNoNode; ErrStale.
func (c *Cluster) NodeAs(name members.Name, epoch members.Epoch) (*Node, error) {
	n, err := c.Node(name)
	if err != nil {
		return nil, err
	}
	if now := n.Record().Epoch; now != 0 && epoch != 0 && now != epoch {
		return nil, fmt.Errorf("node %s has been restarted since: %w", n.name, ErrStale)
	}
	return n, nil
}

// Self returns this node's record.
func (c *Cluster) Self() members.Record { return c.opts.View.Self() }

// Communicator returns the communicator, whose rank i is the node of that rank. The
// cluster closes it.
func (c *Cluster) Communicator() *comm.Communicator { return c.comm }

// Life returns a context that ends with Close.
func (c *Cluster) Life() context.Context { return c.life }
