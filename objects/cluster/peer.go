package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/rpc"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// portWatch is a port without packets: who has it is told of the end of
// sessions, also of those in which the peer has asked nothing.
const portWatch wire.Port = 64

// retryAfter is the time a node that could not be reached is left alone.
const retryAfter = time.Second

// meetAgain bounds the attempts to connect a node once more whose session breaks
// before it has said hello.
const meetAgain = 3

// session is a session with a node that has said hello.
type session struct {
	origin comm.Origin
	// over is closed when it has ended.
	over chan struct{}
	// slots are for small moves, stages for large ones of memory that the node
	// can't open.
	slots, stages slots
	// shared says that the node opens our memory by itself, where it can.
	shared bool
}

// ended says that the session is over.
func (s *session) ended() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// attempt is a node that is being connected. The fields are read when done is
// closed.
type attempt struct {
	done chan struct{}
	s    *session
	err  error
}

// live returns the session with the node, and connects it where there is none.
//
// Errors: ErrUnreachable, ErrStale, ErrVersion, ErrDenied; the context's.
func (n *Node) live(ctx context.Context) (*session, error) {
	if s := n.session.Load(); s != nil {
		return s, nil
	}
	if n.replaced.Load() {
		return nil, fmt.Errorf("node %s is another one now: %w", n.name, ErrStale)
	}
	a, err := n.attempt() //nolint:contextcheck // others wait for it too, so it lives as long as the cluster
	if err != nil {
		return nil, err
	}
	select {
	case <-a.done:
		return a.s, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("connect node %s: %w: %w", n.name, ErrUnreachable, ctx.Err())
	}
}

// attempt joins the attempt that is under way, or begins one. In an outage it
// begins one and does not have the caller wait for it.
func (n *Node) attempt() (*attempt, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.trying != nil && n.outage == nil:
		return n.trying, nil
	case n.trying != nil, n.problem != nil && time.Now().Before(n.retryAt):
		return nil, n.problem
	case n.left.Load():
		return nil, fmt.Errorf("node %s has left: %w", n.name, ErrUnreachable)
	}
	a, err := n.beginLocked()
	if err == nil && n.outage != nil {
		return nil, n.problem
	}
	return a, err
}

// beginLocked begins an attempt.
//
// +checklocks:n.mu
func (n *Node) beginLocked() (*attempt, error) {
	a := &attempt{done: make(chan struct{})}
	if !n.c.begin(func() { n.try(a) }) {
		return nil, fmt.Errorf("node %s: we have left: %w", n.name, ErrUnreachable)
	}
	n.trying = a
	return a, nil
}

// try connects, and notes how that went. An attempt that takes long is not what
// each caller should wait for: it begins an outage.
func (n *Node) try(a *attempt) {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(n.c.life, n.c.opts.DialTimeout)
	defer cancel()
	s, err := n.meet(ctx)
	for again := 0; again < meetAgain && ctx.Err() == nil && (errors.Is(err, control.ErrDisconnected) || errors.Is(err, comm.ErrNotConnected)); again++ {
		s, err = n.meet(ctx) // the session that was found, or made, broke
	}
	if err != nil {
		err = fmt.Errorf("connect: %w", n.c.codes.received(string(n.name), err))
		if !isOurs(err) {
			err = fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
	}
	n.mu.Lock()
	if n.problem == nil && err != nil {
		n.c.log.Info("a node can't be reached", zap.String("node", string(n.name)), zap.Error(err))
	}
	n.trying, n.problem = nil, err
	if err == nil {
		n.ending = nil
	}
	if err != nil && time.Since(begun) >= n.c.opts.DialTimeout/2 {
		n.lapseLocked(begun, err)
	} else {
		n.resumeLocked()
	}
	err = n.problem
	n.retryAt = time.Now().Add(retryAfter)
	n.mu.Unlock()
	a.s, a.err = s, err
	close(a.done)
}

// isOurs says that an error is one of this package's own.
func isOurs(err error) bool {
	for _, own := range []error{ErrUnreachable, ErrStale, ErrVersion, ErrDenied, ErrNoNode} {
		if errors.Is(err, own) {
			return true
		}
	}
	return false
}

// meet makes a session, or finds the one that the node has made, and says
// hello.
func (n *Node) meet(ctx context.Context) (*session, error) {
	if err := n.connect(ctx); err != nil {
		return nil, err
	}
	origin, err := n.c.comm.Origin(ctx, n.rank)
	if err != nil {
		return nil, err
	}
	if err = n.hello(ctx); err != nil {
		return nil, err
	}
	s := &session{origin: origin, over: make(chan struct{}), shared: n.shares()}
	s.slots.open(n, s, slotSize, maxSlots)
	s.stages.open(n, s, stageSize, maxStages)
	n.session.Store(s)
	// It may have ended before there was anything to tell of that.
	if now, failure := n.c.comm.Origin(ctx, n.rank); failure != nil || now != origin {
		n.end(s)
		return nil, errors.Join(failure, fmt.Errorf("the session broke: %w", control.ErrDisconnected))
	}
	if n.replaced.Load() {
		n.end(s)
		return nil, fmt.Errorf("node %s is another one now: %w", n.name, ErrStale)
	}
	return s, nil
}

// shares says whether the session with the node shares memory.
func (n *Node) shares() bool {
	for _, p := range n.c.comm.Peers() {
		if p.Rank == n.rank {
			return p.Transport == comm.SHM
		}
	}
	return false
}

// connect tries the node's addresses: first sockets of this machine, by which
// the two can share memory.
func (n *Node) connect(ctx context.Context) error {
	if _, err := n.c.comm.Origin(ctx, n.rank); err == nil {
		return nil
	}
	near, far, faults := n.addresses()
	all := append(near, far...)
	for i, at := range all {
		end, ok := ctx.Deadline()
		if !ok {
			end = time.Now().Add(n.c.opts.DialTimeout)
		}
		// Each has a part of the time, so that the last one has some too.
		part, cancel := context.WithTimeout(ctx, time.Until(end)/time.Duration(len(all)-i))
		err := n.c.comm.ConnectAnew(part, n.rank, at)
		cancel()
		if err == nil {
			return nil
		}
		faults = append(faults, fmt.Errorf("%s: %w", at, n.c.named(err)))
		if ctx.Err() != nil {
			break
		}
	}
	if len(all) == 0 {
		faults = append(faults, fmt.Errorf("it has no address: %w", ErrUnreachable))
	}
	return errors.Join(faults...)
}

// addresses returns those at which the node listens: at sockets that are here, and
// elsewhere.
func (n *Node) addresses() (near, far []control.Address, faults []error) {
	r := n.Record()
	for _, text := range r.Addresses {
		at, err := control.ParseAddress(text)
		switch {
		case err != nil:
			faults = append(faults, err)
		case at.Network != control.Unix:
			far = append(far, at)
		default:
			// That of another machine is not here, or is somebody else's, who
			// can't prove to be this node.
			if isOurSocket(at.Addr) {
				near = append(near, at)
			}
		}
	}
	return near, far, faults
}

// isOurSocket says whether a path is a socket of our user's, or of root's: what
// others may have put there is not connected to.
func isOurSocket(path string) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK &&
		(st.Uid == 0 || int64(st.Uid) == int64(os.Geteuid()))
}

// hello tells the node who we are, and hears who it is.
func (n *Node) hello(ctx context.Context) error {
	self, err := json.Marshal(n.c.opts.View.Self())
	if err != nil {
		return fmt.Errorf("encode our record: %w", err)
	}
	p, err := proto.Encode(&proto.Hello{Version: proto.Version, Cluster: n.c.opts.Name, Record: self})
	if err != nil {
		return err
	}
	n.c.count.questions.Add(1)
	body, err := n.c.ep.Call(ctx, n.rank, proto.MethodHello, p)
	if err != nil {
		return err
	}
	var answer proto.Welcome
	if err = proto.Decode(body, &answer); err != nil {
		return err
	}
	if answer.Version != proto.Version {
		return fmt.Errorf("it speaks version %d, this is %d: %w", answer.Version, proto.Version, ErrVersion)
	}
	var r members.Record
	if err = json.Unmarshal(answer.Record, &r); err != nil {
		return fmt.Errorf("decode its record: %w: %w", ErrVersion, err)
	}
	if r.Name != n.name {
		return wrongNode(n.name, r.Name)
	}
	if err = r.Validate(); err != nil {
		return fmt.Errorf("its record: %w: %w", ErrVersion, err)
	}
	n.c.met(r)
	if n.replaced.Load() {
		return fmt.Errorf("node %s is another one now: %w", n.name, ErrStale)
	}
	return nil
}

// end ends a session on our side: what is known from it is not to be
// remembered, and its memory goes. It does not wait.
func (n *Node) end(s *session) {
	if s == nil || !n.session.CompareAndSwap(s, nil) {
		return
	}
	close(s.over)
	n.forget(Invalidation{Node: n, All: true})
	s.slots.close()
	s.stages.close()
}

// watcher hears of the end of sessions.
type watcher struct{ c *Cluster }

// Packet refuses: the port has none.
func (watcher) Packet(from comm.Origin, _ []byte) error {
	return fmt.Errorf("%s: a packet to a port that has none: %w", from.Rank, wire.ErrFrame)
}

// Ended ends what the session was to us.
func (w watcher) Ended(from comm.Origin, cause error) {
	n := w.c.byRank(from.Rank)
	if n == nil {
		return
	}
	n.broken(cause)
	if silent, ok := errors.AsType[*rpc.SilentError](cause); ok {
		n.suspend(from, silent)
	}
	if s := n.session.Load(); s != nil && s.origin == from {
		w.c.log.Info("a session broke", zap.String("node", string(n.name)), zap.Error(cause))
		n.end(s)
	}
}
