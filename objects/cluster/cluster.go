package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/cluster/proto"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/rpc"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Cluster is this node's membership in a cluster. Its methods may be called from any
// goroutine.
type Cluster struct {
	opts   Options
	log    *zap.Logger
	codes  *codes
	count  counters
	comm   *comm.Communicator
	ep     *rpc.Endpoint
	server *server
	keys   *keys
	// begun holds the extensions whose Begin was called.
	begun []Extension
	// life ends with Close, which also cancels connection attempts.
	life      context.Context //nolint:containedctx // it is the lifetime of the cluster, from Join to Close
	stop      context.CancelFunc
	running   sync.WaitGroup
	listening []string
	// hear is set by OnInvalidate; it may point to nil.
	hear atomic.Pointer[func(Invalidation)]
	// serve is set by OnServed; it may point to nil.
	serve atomic.Pointer[func(objects.Notice)]
	// changed receives the nodes whose view has changed.
	changed *changedNodes

	mu sync.RWMutex
	// +checklocks:mu
	closed bool
	// nodes is the present incarnation of each node, including nodes that have left.
	// +checklocks:mu
	nodes map[members.Name]*Node
	// ranks holds the same nodes by rank.
	// +checklocks:mu
	ranks map[wire.Rank]*Node
}

// Join starts to listen and serve. Other nodes are connected on demand. Close leaves the
// cluster.
func Join(ctx context.Context, o Options) (*Cluster, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	c := &Cluster{
		opts: o, log: o.Logger.Named("cluster"), codes: newCodes(),
		changed: newChangedNodes(), nodes: map[members.Name]*Node{}, ranks: map[wire.Rank]*Node{},
	}
	c.life, c.stop = context.WithCancel(context.Background())
	c.keys = newKeys(c)
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("join the cluster: %w", err), c.Close(ctx))
	}
	return c, nil
}

// start creates and starts the parts of the cluster.
func (c *Cluster) start(ctx context.Context) (err error) {
	o := &c.opts
	c.comm, err = comm.New(comm.Options{
		Rank: wire.Rank(o.View.Self().Name.Rank()), Secret: o.Secret, Plain: o.Plain, TLS: o.TLS,
		Engine: o.Engine, Devices: o.Devices, Transports: o.Transports, Channels: o.Channels,
		Timeout: o.Timeout, HandshakeTimeout: o.DialTimeout, Logger: o.Logger,
		PeerName: c.nameOf, PeerRank: rankOf,
	})
	if err != nil {
		return err
	}
	c.server = newServer(serverOptions{
		Store: o.Store, Comm: c.comm, Self: o.View.Self, Cluster: o.Name,
		Squash: o.Squash, Owner: o.Owner, ReadOnly: o.ReadOnly, AttrTTL: o.AttrTTL, Log: c.log,
		Count: &c.count, Met: c.met, Pull: c.pull, Served: c.served,
		Pause: o.Timeout, Pauses: c.pauses, Elsewhere: o.Elsewhere,
		Left: func(from ClientSession) {
			for _, x := range c.begun {
				x.Left(from)
			}
		},
		Notify: func(to wire.Rank, m rpc.Method, body []byte) (bool, error) { return c.ep.Notify(to, m, body) },
	})
	handlers := c.server.handlers()
	maps.Copy(handlers, c.keys.handlers())
	c.server.protect(handlers)
	for _, x := range o.Extensions {
		c.begun = append(c.begun, x)
		more, failure := x.Begin(c)
		if failure != nil {
			return failure
		}
		for method, h := range more {
			handlers[method] = h(c.server)
		}
	}
	c.ep, err = rpc.New(rpc.Options{
		Comm: c.comm, Handlers: handlers,
		Notices: map[rpc.Method]func(rpc.Caller, []byte){proto.NoticeInvalid: c.invalid},
		Lanes:   lanes(),
		OnEnd:   c.server.ended, Coder: c.codes.code, Timeout: o.Timeout, Logger: o.Logger,
	})
	if err != nil {
		return err
	}
	if err = c.comm.Handle(portWatch, watcher{c}); err != nil {
		return err
	}
	c.running.Go(c.follow)
	for _, at := range o.Listen {
		real, failure := c.comm.Listen(ctx, at)
		if failure != nil {
			return failure
		}
		c.listening = append(c.listening, real.String())
	}
	return c.keys.start(ctx)
}

// Close ends all sessions; open files fail.
func (c *Cluster) Close(ctx context.Context) error {
	c.mu.Lock()
	again := c.closed
	c.closed = true
	c.mu.Unlock()
	if again {
		return nil
	}
	faults := []error{c.keys.stop(ctx)}
	c.stop()
	if c.ep != nil {
		faults = append(faults, c.ep.Close())
	}
	for _, x := range c.begun {
		faults = append(faults, x.End())
	}
	if c.comm != nil {
		faults = append(faults, c.comm.Close())
	}
	if c.server != nil {
		c.server.close() //nolint:contextcheck // open files are saved even if the context ends
	}
	c.keys.claims.close(ctx)
	// Only sessions are left, whose memory is released.
	c.mu.RLock()
	nodes := slices.Collect(maps.Values(c.nodes))
	c.mu.RUnlock()
	for _, n := range nodes {
		n.end(n.session.Load(), nil)
	}
	c.running.Wait()
	return errors.Join(faults...)
}

// Go runs fn in a goroutine that Close waits for, and returns false if Close has started.
func (c *Cluster) Go(fn func()) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed {
		return false
	}
	c.running.Go(fn)
	return true
}

// Nodes returns the state of the other nodes, ordered by name, without sending requests.
func (c *Cluster) Nodes() []members.Peer {
	records := c.opts.View.Nodes()
	live := map[wire.Rank]comm.Peer{}
	for _, p := range c.comm.Peers() {
		live[p.Rank] = p
	}
	out := make([]members.Peer, 0, len(records))
	for i := range records {
		state := members.Peer{Record: records[i]}
		if p, ok := live[wire.Rank(records[i].Name.Rank())]; ok {
			state.Connected, state.Transport, state.Protection = true, string(p.Transport), p.Cover.String()
			if p.Network == control.TCP {
				state.Remote = p.Remote
			}
		}
		if n, err := c.Node(records[i].Name); err == nil {
			state.Record, state.Problem = n.Record(), n.trouble(state.Connected)
			state.Lapsed = records[i].Lapsed
		}
		if state.Problem == "" && !state.Connected && !state.Lapsed.IsZero() {
			state.Problem = "its lease expired at " + state.Lapsed.UTC().Format(time.RFC3339)
		}
		out = append(out, state)
	}
	return out
}

// Node returns the present incarnation of a node, without sending a request. For the same
// incarnation it returns the same *Node.
//
// Errors: ErrNoNode.
func (c *Cluster) Node(name members.Name) (*Node, error) {
	if n := c.see(name); n != nil {
		return n, nil
	}
	return nil, fmt.Errorf("node %q: %w", name, ErrNoNode)
}

// OnInvalidate registers fn to be called when cached answers of nodes become invalid. fn must
// not block. nil removes it.
func (c *Cluster) OnInvalidate(fn func(Invalidation)) { c.hear.Store(&fn) }

// OnServed registers fn to be called after a change of this node's tree that another node has
// requested. fn must not block. nil removes it.
func (c *Cluster) OnServed(fn func(objects.Notice)) { c.serve.Store(&fn) }

// served is called by the server to report such a change.
func (c *Cluster) served(n objects.Notice) {
	if fn := c.serve.Load(); fn != nil && *fn != nil {
		(*fn)(n)
	}
}

// Listening returns the addresses that the node actually listens at.
func (c *Cluster) Listening() []string { return c.listening }

// counters holds the counts that Stats returns. Any goroutine may change them.
type counters struct {
	questions, answers, failures      atomic.Uint64
	bytesIn, bytesOut                 atomic.Uint64
	invalidationsOut, invalidationsIn atomic.Uint64
}

// Stats returns a snapshot of the counters.
func (c *Cluster) Stats() members.Traffic {
	n := &c.count
	return members.Traffic{
		Questions:        n.questions.Load(),
		Answers:          n.answers.Load(),
		Failures:         n.failures.Load(),
		BytesIn:          n.bytesIn.Load(),
		BytesOut:         n.bytesOut.Load(),
		InvalidationsOut: n.invalidationsOut.Load(),
		InvalidationsIn:  n.invalidationsIn.Load(),
	}
}
