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

// portWatch is a port without packets: its handler is notified of the end of sessions,
// including those in which the peer has sent no request.
const portWatch wire.Port = 64

// retryAfter is the time for which a node that could not be reached is not tried again.
const retryAfter = time.Second

// compareAgain bounds the additional attempts to connect to a node if the session breaks before
// the hello.
const compareAgain = 3

// session is a session with a node that has answered hello.
type session struct {
	origin comm.Origin
	// over is closed when the session has ended.
	over chan struct{}
	// slots are for small moves, stages for large ones of memory that the node can't open.
	slots, stages slots
	// shared is true if the node opens our memory itself, where it can.
	shared bool
	// life and started are those of the daemon at the other end, see members.Record.
	life    uint64
	started time.Time
}

// ended reports whether the session is over.
func (s *session) ended() bool { return isClosed(s.over) }

// isClosed reports whether a channel is closed.
func isClosed(over <-chan struct{}) bool {
	select {
	case <-over:
		return true
	default:
		return false
	}
}

// attempt is a connection attempt. The other fields may be read once done is closed.
type attempt struct {
	done chan struct{}
	s    *session
	err  error
}

// live returns the session with the node, connecting to it if there is none. While the node pauses
// it waits.
//
// Errors: ErrUnreachable, ErrStale, ErrVersion, ErrDenied; the context's.
func (n *Node) live(ctx context.Context) (*session, error) {
	for {
		s, err := n.liveNow(ctx)
		if err == nil {
			return s, nil
		}
		again, failure := n.awaits(ctx, err)
		if !again {
			return nil, failure
		}
	}
}

// liveNow is live with one attempt.
func (n *Node) liveNow(ctx context.Context) (*session, error) {
	if s := n.session.Load(); s != nil {
		return s, nil
	}
	if n.replaced.Load() {
		return nil, fmt.Errorf("node %s has been replaced by a new incarnation: %w", n.name, ErrStale)
	}
	a, err := n.attempt() //nolint:contextcheck // other calls share the attempt, so it ends with the cluster, not with this call
	if err != nil {
		return nil, err
	}
	select {
	case <-a.done:
		return a.s, a.err
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) { // by the caller: it says nothing of the node
			return nil, fmt.Errorf("connect node %s: %w", n.name, ctx.Err())
		}
		return nil, fmt.Errorf("connect node %s: %w: %w", n.name, ErrUnreachable, ctx.Err())
	}
}

// attempt joins the attempt in progress, or starts one. During an outage it starts one without
// making the caller wait for it.
func (n *Node) attempt() (*attempt, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.trying != nil && n.outage == nil:
		return n.trying, nil
	case n.trying != nil, n.problem != nil && time.Now().Before(n.retryAt):
		return nil, n.problem
	case n.left.Load():
		return nil, fmt.Errorf("node %s has left the cluster: %w", n.name, ErrUnreachable)
	}
	a, err := n.beginLocked()
	if err == nil && n.outage != nil {
		return nil, n.problem
	}
	return a, err
}

// beginLocked starts an attempt.
//
// +checklocks:n.mu
func (n *Node) beginLocked() (*attempt, error) {
	a := &attempt{done: make(chan struct{})}
	if !n.c.Go(func() { n.try(a) }) {
		return nil, fmt.Errorf("node %s: this node has left the cluster: %w", n.name, ErrUnreachable)
	}
	n.trying = a
	return a, nil
}

// try connects, and records the result. An attempt that takes long to fail starts an outage,
// so that later callers need not wait for one.
func (n *Node) try(a *attempt) {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(n.c.life, n.c.opts.DialTimeout)
	defer cancel()
	s, err := n.establish(ctx)
	for again := 0; again < compareAgain && ctx.Err() == nil && (errors.Is(err, control.ErrDisconnected) || errors.Is(err, comm.ErrNotConnected)); again++ {
		s, err = n.establish(ctx) // the session that was found, or made, broke
	}
	if err != nil {
		err = fmt.Errorf("connect: %w", n.c.codes.received(string(n.name), err))
		if !isAny(err, ErrUnreachable, ErrStale, ErrVersion, ErrDenied, ErrNoNode) {
			err = fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
	}
	n.mu.Lock()
	if n.problem == nil && err != nil {
		n.c.log.Info("could not reach a node", zap.String("node", string(n.name)), zap.Error(err))
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
	n.retryAt = time.Now().Add(n.retryLocked())
	n.mu.Unlock()
	a.s, a.err = s, err
	close(a.done)
}

// establish establishes a session, or uses the one that the node has established, and says hello.
func (n *Node) establish(ctx context.Context) (*session, error) {
	if err := n.connect(ctx); err != nil {
		return nil, err
	}
	origin, err := n.c.comm.Origin(ctx, n.rank)
	if err != nil {
		return nil, err
	}
	r, err := n.hello(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{origin: origin, over: make(chan struct{}), shared: n.shares(), life: r.Life, started: r.Started}
	s.slots.open(n, s, slotSize, maxSlots)
	s.stages.open(n, s, stageSize, maxStages)
	if n.Record().Held {
		n.files.reopen(ctx, s)
	}
	n.session.Store(s)
	n.endPause(false)
	// It may have ended before Ended could be notified of that.
	if now, failure := n.c.comm.Origin(ctx, n.rank); failure != nil || now != origin {
		n.end(s, nil)
		return nil, errors.Join(failure, fmt.Errorf("the session has ended: %w", control.ErrDisconnected))
	}
	if n.replaced.Load() {
		n.end(s, nil)
		return nil, fmt.Errorf("node %s has been replaced by a new incarnation: %w", n.name, ErrStale)
	}
	return s, nil
}

// shares reports whether the session with the node uses shared memory.
func (n *Node) shares() bool {
	for _, p := range n.c.comm.Peers() {
		if p.Rank == n.rank {
			return p.Transport == comm.SHM
		}
	}
	return false
}

// connect tries the node's addresses: first sockets of this machine, through which the two
// nodes can share memory.
func (n *Node) connect(ctx context.Context) error {
	if _, err := n.c.comm.Origin(ctx, n.rank); err == nil {
		return nil
	}
	near, far, faults := n.addresses()
	all := append(near, far...)
	for i, at := range all {
		end, _ := ctx.Deadline() // that of the attempt
		// Each address gets a part of the time, so that some is left for the last one.
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
		faults = append(faults, fmt.Errorf("the node has no address: %w", ErrUnreachable))
	}
	return errors.Join(faults...)
}

// addresses returns the addresses at which the node listens: near are sockets that exist on
// this machine, and far the others.
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
			// A socket of another machine does not exist here, or belongs to another process,
			// which can't prove to be this node.
			if isOurSocket(at.Addr) {
				near = append(near, at)
			}
		}
	}
	return near, far, faults
}

// isOurSocket reports whether a path is a socket of our user's, or of root's: sockets that
// others may have put there are not used.
func isOurSocket(path string) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK &&
		(st.Uid == 0 || int64(st.Uid) == int64(os.Geteuid()))
}

// hello identifies this node to the other one, and receives its identity.
func (n *Node) hello(ctx context.Context) (r members.Record, err error) {
	self, err := json.Marshal(n.c.opts.View.Self())
	if err != nil {
		return r, fmt.Errorf("encode the record of this node: %w", err)
	}
	p, err := proto.Encode(&proto.Hello{Version: proto.Version, Cluster: n.c.opts.Name, Record: self})
	if err != nil {
		return r, err
	}
	n.c.count.questions.Add(1)
	body, err := n.c.ep.Call(ctx, n.rank, proto.MethodHello, p)
	if err != nil {
		return r, err
	}
	var answer proto.Welcome
	if err = proto.Decode(body, &answer); err != nil {
		return r, err
	}
	if answer.Version != proto.Version {
		return r, fmt.Errorf("the node has protocol version %d, this node has %d: %w", answer.Version, proto.Version, ErrVersion)
	}
	if err = json.Unmarshal(answer.Record, &r); err != nil {
		return r, fmt.Errorf("decode the node's record: %w: %w", ErrVersion, err)
	}
	if r.Name != n.name {
		return r, fmt.Errorf("node %s identifies itself as %q: %w", n.name, r.Name, ErrVersion)
	}
	if err = r.Validate(); err != nil {
		return r, fmt.Errorf("invalid record of the node: %w: %w", ErrVersion, err)
	}
	n.c.met(r)
	if n.replaced.Load() {
		return r, fmt.Errorf("node %s has been replaced by a new incarnation: %w", n.name, ErrStale)
	}
	return r, nil
}

// end ends a session on our side: cached answers from it are dropped, and its memory is
// released. It does not wait. cause is the reason, nil if it is ours.
func (n *Node) end(s *session, cause error) {
	if s == nil || !n.session.CompareAndSwap(s, nil) {
		return
	}
	n.beginPause(cause)
	close(s.over)
	n.forget(Invalidation{Node: n, All: true})
	s.slots.close()
	s.stages.close()
}

// watcher is notified of the end of sessions.
type watcher struct{ c *Cluster }

// Packet refuses all packets: the port has none.
func (watcher) Packet(from comm.Origin, _ []byte) error {
	return fmt.Errorf("%s: packet for a port that accepts none: %w", from.Rank, wire.ErrFrame)
}

// Ended ends the session on our side.
func (w watcher) Ended(from comm.Origin, cause error) {
	n := w.c.byRank(from.Rank)
	if n == nil {
		return
	}
	n.broken(cause)
	if errors.Is(cause, control.ErrClosedByPeer) {
		n.endPause(true)
	}
	if silent, ok := errors.AsType[*rpc.SilentError](cause); ok {
		n.suspend(from, silent)
	}
	if s := n.session.Load(); s != nil && s.origin == from {
		w.c.log.Info("a session with a node has ended", zap.String("node", string(n.name)), zap.Error(cause))
		n.end(s, cause)
	}
}
