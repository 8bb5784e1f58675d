package etcd_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata/coord"
	"github.com/hmcfs/hmcfs/metadata/coord/etcd"
	"github.com/hmcfs/hmcfs/tests/etcdkit"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestLateCreate delays a failed Create, on a stuck connection, until it arrives at etcd
// after all: what was reported about its name since must stay true.
func TestLateCreate(t *testing.T) {
	e := etcdkit.Start(t, etcdkit.Options{})
	g := newGate(t, strings.TrimPrefix(e.Endpoints()[0], "http://"))
	s := open(t, e, func(o *etcd.Options) {
		short(o)
		o.Endpoints = append(o.Endpoints, g.listener.Addr().String())
	})
	other := open(t, e, short)
	l := grant(t, s, time.Minute)
	reached(t, s)
	for round := range 3 {
		g.hold()
		var late string
		for i := 0; late == ""; i++ { // the two connections alternate
			name := fmt.Sprintf("%d/%d", round, i)
			if _, err := s.Create(t.Context(), []coord.Entry{{Name: name}}, l); errors.Is(err, coord.ErrUnavailable) {
				late = name
			} else if err != nil {
				t.Fatal(err)
			}
		}
		var said error
		kit.Eventually(t, limit, func() bool {
			_, said = s.Get(t.Context(), late)
			return !errors.Is(said, coord.ErrUnavailable)
		})
		if !errors.Is(said, coord.ErrNotFound) {
			t.Fatalf("an entry that is not made yet: %v", said)
		}
		g.release(t)
		if !gone(t, other, late) {
			t.Fatalf("round %d: an entry is there that was said not to be", round)
		}
		// The entry can be created from now on.
		kit.Eventually(t, limit, func() bool {
			results, err := s.Create(t.Context(), []coord.Entry{{Name: late}}, l)
			return err == nil && results[0].Err == nil
		})
	}
}

// gate forwards connections to a server, and can hold back the frames of a client. A
// request that the client has cancelled meanwhile is executed nevertheless.
type gate struct {
	target   string
	listener net.Listener
	work     sync.WaitGroup

	mu sync.Mutex
	// +checklocks:mu
	conns []net.Conn
	// held collects the frames held back; nil lets all frames pass.
	// +checklocks:mu
	held *heldFrames
}

// heldFrames are frames held back, with the function that writes each to its server.
type heldFrames struct {
	write []func() error
	// answered contains, by stream, a channel for each request that the client has
	// cancelled; it is closed when the request is answered.
	answered map[uint32]chan struct{}
}

func newGate(t *testing.T, target string) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{target: target, listener: l}
	g.work.Go(g.accept)
	t.Cleanup(func() {
		_ = l.Close()
		g.mu.Lock()
		for _, c := range g.conns {
			_ = c.Close()
		}
		g.mu.Unlock()
		g.work.Wait()
	})
	return g
}

func (g *gate) accept() {
	for {
		client, err := g.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", g.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		g.mu.Lock()
		g.conns = append(g.conns, client, server)
		g.mu.Unlock()
		g.work.Go(func() { g.up(client, server) })
		g.work.Go(func() { g.down(client, server) })
	}
}

// The parts of HTTP/2 that the gate understands: RFC 9113, sections 3.4, 4.1 and 6.
const (
	preface    = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	frameHead  = 9
	typeHeader = 0x1
	typeReset  = 0x3
	endStream  = 0x1
)

// frame is one frame, including its header.
type frame []byte

func readFrame(from io.Reader) (frame, error) {
	head := make(frame, frameHead)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	size := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
	p := append(head, make([]byte, size)...)
	_, err := io.ReadFull(from, p[frameHead:])
	return p, err
}

func (f frame) kind() byte     { return f[3] }
func (f frame) ends() bool     { return f[4]&endStream != 0 }
func (f frame) stream() uint32 { return binary.BigEndian.Uint32(f[5:]) }

// up forwards frames from a client.
func (g *gate) up(client, server net.Conn) {
	if _, err := io.CopyN(server, client, int64(len(preface))); err != nil {
		return
	}
	for {
		p, err := readFrame(client)
		if err != nil {
			return
		}
		g.mu.Lock()
		switch {
		case g.held == nil:
			_, err = server.Write(p)
		case p.kind() == typeReset:
			g.held.answered[p.stream()] = make(chan struct{})
		default:
			g.held.write = append(g.held.write, func() error { _, werr := server.Write(p); return werr })
		}
		g.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// down forwards frames from a server.
func (g *gate) down(client, server net.Conn) {
	for {
		p, err := readFrame(server)
		if err != nil {
			return
		}
		g.mu.Lock()
		if g.held != nil && p.kind() == typeHeader && p.ends() && g.held.answered[p.stream()] != nil {
			close(g.held.answered[p.stream()])
		}
		g.mu.Unlock()
		if _, err = client.Write(p); err != nil {
			return
		}
	}
}

func (g *gate) hold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = &heldFrames{answered: map[uint32]chan struct{}{}}
}

// release forwards the frames held back, and waits for the answers to cancelled requests.
func (g *gate) release(t *testing.T) {
	t.Helper()
	g.mu.Lock()
	held := g.held
	for _, write := range held.write {
		if err := write(); err != nil {
			t.Errorf("pass what was held up: %v", err)
		}
	}
	given := slices.Collect(maps.Values(held.answered))
	g.mu.Unlock()
	if len(given) == 0 {
		t.Error("the client has given no request up")
	}
	for _, answered := range given {
		<-answered
	}
	g.mu.Lock()
	g.held = nil
	g.mu.Unlock()
}
