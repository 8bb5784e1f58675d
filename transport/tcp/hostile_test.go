package tcp

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/tests/conformance/transporttest"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// against is a channel whose peer is the test itself.
func against(t testing.TB, o Options) (*side, net.Conn) {
	t.Helper()
	ca, cb := sockets(t, "unix")
	t.Cleanup(func() { _ = cb.Close() })
	return newSide(t, ca, o), cb
}

// raw is the bytes of a header.
func raw(h wire.DataHeader) []byte {
	p := make([]byte, wire.DataHeaderSize)
	h.Encode(p)
	return p
}

// ends waits for the end of a channel and returns the cause.
func ends(t testing.TB, c *Channel) error {
	t.Helper()
	select {
	case <-c.Done():
		return c.Err()
	case <-time.After(patience):
		t.Fatal("the channel lives on")
		return nil
	}
}

// Input that no correct peer sends ends the channel, changes no byte and
// allocates no memory.
func TestHostilePeers(t *testing.T) {
	tooLong := raw(wire.DataHeader{Kind: wire.KindPut, Length: 1})
	binary.LittleEndian.PutUint32(tooLong[4:], 1<<32-1)
	for name, tc := range map[string]struct {
		p    []byte
		want error
	}{
		"4 GiB":               {tooLong, wire.ErrFrame},
		"chunk + 1":           {raw(wire.DataHeader{Kind: wire.KindGet, Length: testChunk + 1}), wire.ErrFrame},
		"random":              {kit.Bytes(3, 0, 1000), wire.ErrFrame},
		"a tag":               {append(wire.AppendTag(nil, 1), make([]byte, 100)...), wire.ErrFrame},
		"ACK of nothing":      {raw(wire.DataHeader{Kind: wire.KindAck, ID: 1 << placeBits}), ErrProtocol},
		"DATA of nothing":     {raw(wire.DataHeader{Kind: wire.KindData, Length: 1, ID: 5}), ErrProtocol},
		"ACK of a far place":  {raw(wire.DataHeader{Kind: wire.KindAck, ID: 1<<64 - 1}), ErrProtocol},
		"the end in a header": {raw(wire.DataHeader{Kind: wire.KindGet, Length: 1})[:20], control.ErrDisconnected},
	} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			s, peer := against(t, Options{})
			b := s.host(t, testChunk)
			s.grant(t, b, both)
			transporttest.Fill(t, b, 4)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if _, err := peer.Write(tc.p); err != nil {
				t.Fatal(err)
			}
			if len(tc.p) < wire.DataHeaderSize {
				_ = peer.Close()
			}
			if err := ends(t, s.channel); !errors.Is(err, tc.want) || !errors.Is(err, control.ErrDisconnected) {
				t.Errorf("got %v", err)
			}
			runtime.ReadMemStats(&after)
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
				t.Errorf("%d bytes were allocated", grown)
			}
			transporttest.Check(t, b, 0, testChunk, 4, 0)
		})
	}
}

// A peer that answers a put before it can have read it: the memory is kept until
// it is written.
func TestEarlyAnswer(t *testing.T) {
	kit.Check(t)
	s, peer := against(t, Options{})
	// Not a single frame fits the socket while the peer does not read.
	socket, ok := s.channel.conn.Conn.(*net.UnixConn)
	if !ok {
		t.Fatal("not a Unix socket")
	}
	if err := socket.SetWriteBuffer(4096); err != nil {
		t.Fatal(err)
	}
	local := s.host(t, 100*testChunk)
	var tr Transfer
	w := newWaiter()
	if err := tr.Start(Plan{Kind: wire.KindPut, Local: local, Key: 1, Size: testChunk}, w); err != nil {
		t.Fatal(err)
	}
	var before Transfer
	first := newWaiter()
	if err := before.Start(Plan{Kind: wire.KindPut, Local: local, Key: 1, Size: 10 * testChunk}, first); err != nil {
		t.Fatal(err)
	}
	s.channel.Post(&before)
	s.channel.Post(&tr)
	ids := func() (n int) {
		s.channel.mu.Lock()
		defer s.channel.mu.Unlock()
		for i, p := range s.channel.places {
			if p.live && !p.written && !p.answered {
				_, _ = peer.Write(raw(wire.DataHeader{Kind: wire.KindAck, ID: wire.RequestID(p.round<<placeBits | uint64(i))}))
				n++
			}
		}
		return n
	}
	kit.Eventually(t, patience, func() bool { return ids() > 0 })
	kit.Eventually(t, patience, func() bool {
		s.channel.mu.Lock()
		defer s.channel.mu.Unlock()
		for _, p := range s.channel.places {
			if p.live && p.answered && !p.written {
				return true
			}
		}
		return false
	})
	if len(w) > 0 || len(first) > 0 {
		t.Error("complete, and not written")
	}
	_ = peer.Close()
	for _, end := range []waiter{w, first} {
		if err := end.wait(t); err == nil {
			t.Error("it was never read")
		}
	}
}

// Two answers to one get: the second one is refused.
func TestAnswerTwice(t *testing.T) {
	t.Run("host", func(t *testing.T) {
		answerTwice(t, func(s *side) *region.Buffer { return s.host(t, 100) })
	})
	// The second answer arrives while the device still works on the first one.
	t.Run("slow device", func(t *testing.T) {
		answerTwice(t, func(s *side) *region.Buffer { return s.sim(t, 100, sim.Params{Latency: 100 * time.Millisecond}) })
	})
}

func answerTwice(t *testing.T, memory func(s *side) *region.Buffer) {
	t.Helper()
	kit.Check(t)
	s, peer := against(t, Options{})
	local := memory(s)
	var tr Transfer
	w := newWaiter()
	if err := tr.Start(Plan{Kind: wire.KindGet, Local: local, Key: 1, Size: 8}, w); err != nil {
		t.Fatal(err)
	}
	s.channel.Post(&tr)
	head := make([]byte, wire.DataHeaderSize)
	if _, err := peer.Read(head); err != nil {
		t.Fatal(err)
	}
	var h wire.DataHeader
	if err := h.Decode(head, testChunk); err != nil {
		t.Fatal(err)
	}
	answer := append(raw(wire.DataHeader{Kind: wire.KindData, Length: 8, ID: h.ID}), kit.Bytes(1, 0, 8)...)
	if _, err := peer.Write(append(answer, answer...)); err != nil {
		t.Fatal(err)
	}
	if err := w.wait(t); err != nil && !errors.Is(err, ErrProtocol) && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := ends(t, s.channel); !errors.Is(err, ErrProtocol) {
		t.Errorf("got %v", err)
	}
}

// A peer that sends requests forever and reads no answer is dropped.
func TestPeerThatDoesNotRead(t *testing.T) {
	kit.Check(t)
	s, peer := against(t, Options{})
	b := s.host(t, testChunk)
	d := s.grant(t, b, both)
	get := raw(wire.DataHeader{Kind: wire.KindGet, Length: testChunk, Key: d.Key})
	for s.channel.Err() == nil {
		if _, err := peer.Write(get); err != nil {
			break
		}
	}
	if err := ends(t, s.channel); !errors.Is(err, ErrProtocol) {
		t.Errorf("got %v", err)
	}
}

// A peer that stops making progress is given up after the timeout: as a target,
// and in the middle of its own put.
func TestStalledPeers(t *testing.T) {
	t.Run("does not answer", func(t *testing.T) {
		kit.Check(t)
		s, _ := against(t, Options{Timeout: 100 * time.Millisecond})
		local := s.host(t, 100)
		if err := s.do(t, Plan{Kind: wire.KindGet, Local: local, Key: 1, Size: 8}); !errors.Is(err, ErrStalled) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("does not read", func(t *testing.T) {
		kit.Check(t)
		s, _ := against(t, Options{Timeout: 100 * time.Millisecond})
		local := s.host(t, 100*testChunk)
		if err := s.do(t, Plan{Kind: wire.KindPut, Local: local, Key: 1, Size: 100 * testChunk}); !errors.Is(err, ErrStalled) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("half a put", func(t *testing.T) {
		kit.Check(t)
		s, peer := against(t, Options{Timeout: 100 * time.Millisecond})
		b := s.host(t, 100)
		d := s.grant(t, b, both)
		if _, err := peer.Write(append(raw(wire.DataHeader{Kind: wire.KindPut, Length: 100, Key: d.Key}), 1, 2, 3)); err != nil {
			t.Fatal(err)
		}
		if err := ends(t, s.channel); !errors.Is(err, ErrStalled) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("idle is not stalled", func(t *testing.T) {
		kit.Check(t)
		a, b := sides(t, "unix", Options{Timeout: 100 * time.Millisecond})
		local, remote := a.host(t, 100), b.host(t, 100)
		d := b.grant(t, remote, both)
		after := time.After(200 * time.Millisecond)
		<-after
		if err := a.do(t, Plan{Kind: wire.KindPut, Local: local, Key: d.Key, Size: 100}); err != nil {
			t.Error(err)
		}
	})
}

// FuzzChannel sends random bytes after a valid put.
func FuzzChannel(f *testing.F) {
	f.Add(raw(wire.DataHeader{Kind: wire.KindPut, Length: 3, Key: 1}))
	f.Add(raw(wire.DataHeader{Kind: wire.KindGet, Length: 3, Key: 1}))
	f.Add(raw(wire.DataHeader{Kind: wire.KindAck}))
	f.Add(raw(wire.DataHeader{Kind: wire.KindData, Length: 1}))
	f.Fuzz(func(t *testing.T, p []byte) {
		s, peer := against(t, Options{})
		b := s.host(t, 64)
		transporttest.Fill(t, b, 1)
		s.grant(t, b, both)
		_, _ = peer.Write(p)
		_ = peer.Close()
		_ = ends(t, s.channel)
		transporttest.Check(t, b, 0, 64, 1, 0)
	})
}
