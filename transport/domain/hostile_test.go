package domain

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices/elem"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// rogue is rank 2 of a job: a member that sends arbitrary packets.
type rogue struct {
	comm *comm.Communicator
	// index is the number of the domain at rank 0.
	index uint32
	mu    sync.Mutex
	heard []op
	ended bool
}

func (r *rogue) Packet(_ comm.Origin, p []byte) error {
	o, index, err := parseHead(p)
	r.mu.Lock()
	defer r.mu.Unlock()
	if o == opJoin {
		r.index = index
	}
	r.heard = append(r.heard, o)
	return err
}

func (r *rogue) Ended(comm.Origin, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}

// has reports whether a packet of a kind was received.
func (r *rogue) has(o op) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.heard, o)
}

func (r *rogue) gone() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

func (r *rogue) say(t testing.TB, p []byte) {
	t.Helper()
	if err := r.comm.SendPacket(t.Context(), 0, wire.PortDomain, p); err != nil && !errors.Is(err, control.ErrDisconnected) {
		t.Fatal(err)
	}
}

// trial is a rogue, its domain with rank 0, and a good pair.
type trial struct {
	nodes []*node
	good  []*Comm
	c     *Comm
	r     *rogue
}

// withRogue makes domain "rogue" of ranks 0 and 2, and "good" of 0 and 1.
func withRogue(t *testing.T) *trial {
	t.Helper()
	nodes := job(t, 2, func(o *Options) { o.Window = MinWindow })
	good := form(t, nodes, "good", 0, 1)
	e, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := &rogue{}
	if r.comm, err = comm.New(comm.Options{Rank: 2, Secret: kit.Bytes(1, 0, 32), Engine: e}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cerr := errors.Join(r.comm.Close(), e.Close()); cerr != nil {
			t.Error(cerr)
		}
	})
	if err = r.comm.Handle(wire.PortDomain, r); err != nil {
		t.Fatal(err)
	}
	at, err := nodes[0].comm.Listen(t.Context(), control.Address{Network: control.Unix, Addr: filepath.Join(t.TempDir(), "r")})
	if err != nil {
		t.Fatal(err)
	}
	if err = r.comm.Connect(t.Context(), 0, at); err != nil {
		t.Fatal(err)
	}
	var c *Comm
	made := make(chan error, 1)
	go func() {
		formed, ferr := nodes[0].domains.NewComm(within(t), "rogue", []wire.Rank{0, 2})
		c = formed
		made <- ferr
	}()
	r.say(t, (&join{name: "rogue", ranks: []wire.Rank{0, 2}, window: MinWindow}).encode(opJoin, 1))
	kit.Eventually(t, patience, func() bool { return r.has(opJoin) })
	r.say(t, appendNumber(nil, opAccept, r.index, 1))
	if err = <-made; err != nil {
		t.Fatal(err)
	}
	return &trial{nodes, good, c, r}
}

// left returns the state that a pair holds: keys, unanswered sends, and bytes of the peer.
func (p *pair) left() (keys, sends int, held uint64) {
	p.keyMu.Lock()
	keys = len(p.keys)
	p.keyMu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	return keys, len(p.sending), p.held
}

// unharmed checks that the good pair works.
func unharmed(t *testing.T, nodes []*node, good []*Comm) {
	t.Helper()
	const n = 100_000
	src, dst := nodes[0].host(t, n), nodes[1].host(t, n)
	transporttest.Fill(t, src, 4)
	r, err := good[0].Isend(within(t), view(t, src, 0, n), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(good[1].Recv(within(t), view(t, dst, 0, n), 0, 1), r.Wait(within(t))); err != nil {
		t.Error(err)
	}
	transporttest.Check(t, dst, 0, n, 4, 0)
}

// eager returns the beginning of an eager message of n bytes, with its first bytes.
func eager(index uint32, id uint64, n, first int) []byte {
	e := envelope{tag: 5, id: id, eager: true, extents: []extent{{elem.Uint8, uint64(n)}}}
	return append(e.append(nil, index), kit.Bytes(id, 0, first)...)
}

func TestPeersThatBreakTheRules(t *testing.T) {
	place0 := place{wire.Descriptor{Key: 1, Size: 1 << 40, Rights: wire.Readable}, 0}
	for name, say := range map[string]func(r *rogue) [][]byte{
		"more than its window": func(r *rogue) (out [][]byte) {
			for id := range uint64(40) {
				out = append(out, eager(r.index, id+1, 60_000, 60_000))
			}
			return out
		},
		"a message as large as the window": func(r *rogue) [][]byte { return [][]byte{eager(r.index, 1, MinWindow+1, 0)} },
		"a message of 2^55 bytes":          func(r *rogue) [][]byte { return [][]byte{eager(r.index, 1, 1<<55, 0)} },
		"many envelopes": func(r *rogue) (out [][]byte) {
			e := envelope{tag: 5, extents: []extent{{elem.Uint8, 1 << 30}}, remote: []place{place0}}
			for id := range uint64(10_000) {
				e.id = id + 1
				out = append(out, e.append(nil, r.index))
			}
			return out
		},
		"bytes of no message": func(r *rogue) [][]byte { return [][]byte{append(appendNumber(nil, opData, r.index, 8), 1)} },
		"more bytes than said": func(r *rogue) [][]byte {
			return [][]byte{eager(r.index, 1, 10, 5), append(appendNumber(nil, opData, r.index, 1), make([]byte, 6)...)}
		},
		"one message twice":                  func(r *rogue) [][]byte { return [][]byte{eager(r.index, 1, 10, 5), eager(r.index, 1, 10, 5)} },
		"credit that is not out":             func(r *rogue) [][]byte { return [][]byte{appendNumber(nil, opCredit, r.index, 1)} },
		"credit that wraps":                  func(r *rogue) [][]byte { return [][]byte{appendNumber(nil, opCredit, r.index, 1<<64-1)} },
		"into a domain of others":            func(r *rogue) [][]byte { return [][]byte{eager(1, 1, 10, 10)} },
		"an accept of a number that is none": func(r *rogue) [][]byte { return [][]byte{appendNumber(nil, opAccept, r.index, 1<<32)} },
		"into a domain that never was":       func(r *rogue) [][]byte { return [][]byte{eager(99, 1, 10, 10)} },
		"a probe with itself": func(*rogue) [][]byte {
			return [][]byte{(&chase{nonce: 1, path: []wire.Rank{0, 2}}).encode(opProbe)}
		},
		"a probe of another": func(*rogue) [][]byte {
			return [][]byte{(&chase{nonce: 1, path: []wire.Rank{2, 1}}).encode(opProbe)}
		},
		"many joins": func(*rogue) (out [][]byte) {
			for i := range maxEarly + 1 {
				out = append(out, (&join{name: "x", ranks: []wire.Rank{0, 2}, window: MinWindow}).encode(opJoin, uint32(i+10)))
			}
			return out
		},
		"a join without a window": func(*rogue) [][]byte {
			return [][]byte{(&join{name: "x", ranks: []wire.Rank{0, 2}}).encode(opJoin, 9)}
		},
		"many flushes": func(r *rogue) (out [][]byte) {
			out = append(out, eager(r.index, 1, 10, 10))
			for id := range uint64(MaxViews + 1) {
				out = append(out, appendNumber(nil, opFlush, r.index, id+2))
			}
			return out
		},
		"nonsense": func(*rogue) [][]byte { return [][]byte{[]byte("GET / HTTP/1.1\r\n\r\n")} },
	} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			w := withRogue(t)
			nodes, good, c, r := w.nodes, w.good, w.c, w.r
			requests := []*Request{}
			recv, err := c.Irecv(within(t), view(t, nodes[0].host(t, 10), 0, 10), 1, 6)
			if err != nil {
				t.Fatal(err)
			}
			requests = append(requests, recv)
			for _, p := range say(r) {
				r.say(t, p)
			}
			kit.Eventually(t, patience, r.gone)
			for _, req := range requests {
				if err := req.Wait(within(t)); !errors.Is(err, control.ErrDisconnected) {
					t.Errorf("a receive: %v", err)
				}
			}
			if _, _, held := c.pairs[1].left(); held > MinWindow {
				t.Errorf("%d bytes are held of a window of %d", held, MinWindow)
			}
			unharmed(t, nodes, good)
		})
	}
}

// Packets that an honest peer may send late are accepted.
func TestLatePackets(t *testing.T) {
	kit.Check(t)
	w := withRogue(t)
	nodes, good, c, r := w.nodes, w.good, w.c, w.r
	for _, p := range [][]byte{
		(&done{id: 7}).encode(r.index),
		(&done{id: 7, outcome: outcomeMismatch, tag: 3, param: ParamCount, local: 1, remote: 2}).encode(r.index),
		appendNumber(nil, opWithdraw, r.index, 7),
		appendNumber(nil, opAsk, r.index, 7),
		(&chase{nonce: 1, path: []wire.Rank{0, 2}}).encode(opCycle),
		(&join{name: "rogue", ranks: []wire.Rank{0, 2}}).encode(opReject, r.index),
		appendNumber(nil, opFlush, r.index, 1),
	} {
		r.say(t, p)
	}
	// The flush is answered, after all the others.
	kit.Eventually(t, patience, func() bool { return r.has(opDone) })
	flushed := make(chan error, 1)
	go func() { flushed <- c.Flush(within(t), 1) }()
	kit.Eventually(t, patience, func() bool { return r.has(opFlush) })
	r.say(t, (&done{id: 1}).encode(r.index))
	var late *MismatchError
	if err := <-flushed; !errors.As(err, &late) || late.Tag != 3 || late.Local != 2 || !late.Sending {
		t.Errorf("the mismatch that came late: %v", err)
	}
	if err := c.Destroy(); err != nil {
		t.Fatal(err)
	}
	r.say(t, eager(r.index, 1, 10, 10))
	kit.Eventually(t, patience, func() bool { return r.has(opLeave) })
	if err := r.comm.SendTag(within(t), 0, 1); err != nil {
		t.Error(err)
	}
	if _, err := nodes[0].comm.RecvTag(within(t), 2); err != nil {
		t.Error(err)
	}
	unharmed(t, nodes, good)
}

// A receiver that asks for device memory, or never answers a sender that has given up, is
// not waited for.
func TestReceiversThatMisbehave(t *testing.T) {
	kit.Check(t)
	w := withRogue(t)
	nodes, good, c, r := w.nodes, w.good, w.c, w.r
	nodes[0].domains.opts.Grace = time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	b := nodes[0].host(t, 1<<20)
	var late *TimeoutError
	if err := c.Send(ctx, view(t, b, 0, 1<<20), 1, 1); !errors.As(err, &late) {
		t.Errorf("nobody answers: %v", err)
	}
	if keys, sends, _ := c.pairs[1].left(); keys != 0 || sends != 0 {
		t.Errorf("%d keys and %d sends are left", keys, sends)
	}
	m := transporttest.Simulated(t, 1<<20, sim.Params{})
	dev, err := nodes[0].comm.Table().RegisterDevice(m.All())
	if err != nil {
		t.Fatal(err)
	}
	v, err := All(dev, elem.Uint8)
	if err != nil {
		t.Fatal(err)
	}
	send, err := c.Isend(within(t), v, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	r.say(t, appendNumber(nil, opAsk, r.index, 2))
	if err = send.Wait(within(t)); !errors.Is(err, control.ErrDisconnected) {
		t.Error(err)
	}
	unharmed(t, nodes, good)
	if err = dev.Close(within(t)); err != nil || v.Size() != devices.Size(1<<20) {
		t.Error(err)
	}
}
