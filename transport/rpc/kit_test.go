package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// hub connects endpoints without a network, so that time can be simulated, a peer
// can send anything, and a peer can be made not to read.
type hub struct {
	mu       sync.Mutex
	ranks    map[wire.Rank]*rank
	sessions map[[2]wire.Rank]*line
	last     wire.Session
	running  sync.WaitGroup
}

// room bounds the packets in transit.
const room = 4

// rank is one carrier.
type rank struct {
	hub     *hub
	rank    wire.Rank
	handler comm.Handler
}

// line is one session, between the lower and the higher rank.
type line struct {
	session wire.Session
	ways    [2]*way
	ended   chan struct{}
	once    sync.Once
	// cause is written before ended is closed.
	cause error
}

// way is one direction: packets to a rank.
type way struct {
	from, to wire.Rank
	packets  chan []byte
	// gate holds a token, without which nothing reads.
	gate chan struct{}
	done chan struct{}
}

func newHub() *hub {
	return &hub{ranks: map[wire.Rank]*rank{}, sessions: map[[2]wire.Rank]*line{}}
}

// endpoint makes a rank with an endpoint.
func (h *hub) endpoint(t testing.TB, r wire.Rank, o Options) *Endpoint {
	t.Helper()
	e, err := newEndpoint(o, h.join(r))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func (h *hub) join(r wire.Rank) *rank {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ranks[r] = &rank{hub: h, rank: r}
	return h.ranks[r]
}

func both(a, b wire.Rank) [2]wire.Rank { return [2]wire.Rank{min(a, b), max(a, b)} }

// connect makes a session, and ends the previous one.
func (h *hub) connect(t testing.TB, a, b wire.Rank) *line {
	t.Helper()
	h.cut(a, b)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	pair := both(a, b)
	l := &line{session: h.last, ended: make(chan struct{})}
	for i := range l.ways {
		w := &way{from: pair[1-i], to: pair[i], packets: make(chan []byte, room), gate: make(chan struct{}, 1), done: make(chan struct{})}
		w.gate <- struct{}{}
		l.ways[i] = w
		h.running.Go(func() { h.read(l, w) })
	}
	h.sessions[pair] = l
	t.Cleanup(func() { h.cut(a, b) })
	return l
}

// read delivers the packets of one direction, and reports the end.
func (h *hub) read(l *line, w *way) {
	origin := comm.Origin{Rank: w.from, Session: l.session}
	for {
		select {
		case p := <-w.packets:
			h.hand(l, w, p)
			continue
		case <-l.ended:
		}
		if hd := h.handlerOf(w.to); hd != nil {
			hd.Ended(origin, fmt.Errorf("%w: %w", control.ErrDisconnected, l.cause))
		}
		close(w.done)
		return
	}
}

// hand delivers a packet, when the gate is open.
func (h *hub) hand(l *line, w *way, p []byte) {
	select {
	case <-w.gate:
		w.gate <- struct{}{}
	case <-l.ended:
		return
	}
	hd := h.handlerOf(w.to)
	if hd == nil {
		return
	}
	if err := hd.Packet(comm.Origin{Rank: w.from, Session: l.session}, p); err != nil {
		h.running.Go(func() { h.end(l, err) })
	}
}

func (h *hub) handlerOf(r wire.Rank) comm.Handler {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ranks[r] == nil {
		return nil
	}
	return h.ranks[r].handler
}

// cut ends a session, and returns when both sides have noticed.
func (h *hub) cut(a, b wire.Rank) {
	h.mu.Lock()
	l := h.sessions[both(a, b)]
	h.mu.Unlock()
	if l != nil {
		h.end(l, errors.New("cut"))
	}
}

func (h *hub) end(l *line, cause error) {
	l.once.Do(func() { l.cause = cause; close(l.ended) })
	<-l.ways[0].done
	<-l.ways[1].done
}

// to returns the direction to a rank.
func (l *line) to(r wire.Rank) *way {
	return l.ways[slices.IndexFunc(l.ways[:], func(w *way) bool { return w.to == r })]
}

func (r *rank) Handle(_ wire.Port, h comm.Handler) error {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	if r.handler != nil {
		return comm.ErrPort
	}
	r.handler = h
	return nil
}

func (r *rank) Unhandle(wire.Port) {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	r.handler = nil
}

func (r *rank) Origin(_ context.Context, peer wire.Rank) (comm.Origin, error) {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	l := r.hub.sessions[both(r.rank, peer)]
	if l == nil {
		return comm.Origin{}, fmt.Errorf("%s: %w", peer, comm.ErrNotConnected)
	}
	return comm.Origin{Rank: peer, Session: l.session}, nil
}

// live finds a session that has not ended.
func (r *rank) live(in comm.Origin) (*line, error) {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	l := r.hub.sessions[both(r.rank, in.Rank)]
	if l == nil || l.session != in.Session {
		return nil, fmt.Errorf("%s: %w", in.Rank, control.ErrDisconnected)
	}
	select {
	case <-l.ended:
		return nil, fmt.Errorf("%s: %w", in.Rank, control.ErrDisconnected)
	default:
		return l, nil
	}
}

func (r *rank) SendPacketIn(ctx context.Context, in comm.Origin, _ wire.Port, parts ...[]byte) error {
	l, err := r.live(in)
	if err = errors.Join(err, ctx.Err()); err != nil {
		return err
	}
	select {
	case l.to(in.Rank).packets <- slices.Concat(parts...):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-l.ended:
		return fmt.Errorf("%s: %w: %w", in.Rank, control.ErrDisconnected, l.cause)
	}
}

func (r *rank) TryPacketIn(in comm.Origin, _ wire.Port, parts ...[]byte) (bool, error) {
	l, err := r.live(in)
	if err != nil {
		return false, err
	}
	select {
	case l.to(in.Rank).packets <- slices.Concat(parts...):
		return true, nil
	default:
		return false, nil
	}
}

func (r *rank) End(in comm.Origin, cause error) {
	if l, err := r.live(in); err == nil {
		r.hub.running.Go(func() { r.hub.end(l, cause) })
	}
}

func (r *rank) TryPacket(to wire.Rank, port wire.Port, parts ...[]byte) (bool, error) {
	origin, err := r.Origin(context.Background(), to)
	if err != nil {
		return false, err
	}
	return r.TryPacketIn(origin, port, parts...)
}

// rogue is a rank that may send anything.
type rogue struct {
	*rank

	to     wire.Rank
	mu     sync.Mutex
	heard  []packet
	ended  chan struct{}
	packed chan struct{}
}

func (h *hub) rogue(t testing.TB, r, to wire.Rank) *rogue {
	t.Helper()
	g := &rogue{rank: h.join(r), to: to, ended: make(chan struct{}), packed: make(chan struct{}, 1000)}
	if err := g.Handle(Port, g); err != nil {
		t.Fatal(err)
	}
	h.connect(t, r, to)
	return g
}

func (g *rogue) Packet(_ comm.Origin, b []byte) error {
	p, err := parse(b)
	p.body = bytes.Clone(p.body)
	g.mu.Lock()
	g.heard = append(g.heard, p)
	g.mu.Unlock()
	g.packed <- struct{}{}
	return err
}

func (g *rogue) Ended(comm.Origin, error) { close(g.ended) }

// say sends packets; the end of the session is not a fault.
func (g *rogue) say(t testing.TB, all ...packet) {
	t.Helper()
	origin, err := g.Origin(t.Context(), g.to)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if err := g.SendPacketIn(t.Context(), origin, Port, p.encode()); err != nil && !errors.Is(err, control.ErrDisconnected) {
			t.Fatal(err)
		}
	}
}

// hear waits for the next packet.
func (g *rogue) hear() packet {
	<-g.packed
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.heard[0]
	g.heard = g.heard[1:]
	return p
}
