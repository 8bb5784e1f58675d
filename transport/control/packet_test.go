package control

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// packetLinks is two links, the second with a handler.
func packetLinks(t *testing.T, at Address, h PacketHandler) (a, b *Link) {
	t.Helper()
	ca, cb := pairOver(t, at, options(1), options(0))
	return link(t, ca), linkWith(t, cb, h)
}

// Packets of all sizes and parts arrive once, in order, whole, and between
// them tags and messages.
func TestPackets(t *testing.T) {
	for name, at := range map[string]Address{"TCP": loopback(), "Unix": socket(t)} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			exchangePackets(t, at)
		})
	}
}

func exchangePackets(t *testing.T, at Address) {
	t.Helper()
	type packet struct {
		port wire.Port
		p    []byte
	}
	came := make(chan packet, 1000)
	a, b := packetLinks(t, at, func(port wire.Port, p []byte) error {
		came <- packet{port, bytes.Clone(p)}
		return nil
	})
	sizes := []int{0, 1, 100, maxGathered, maxGathered + 1, 65_535, wire.MaxPacket}
	for i, n := range sizes {
		data := kit.Bytes(uint64(i), 0, n)
		if err := a.SendPacket(within(t), wire.Port(i+1), data[:n/3], nil, data[n/3:n/2], data[n/2:]); err != nil {
			t.Fatal(err)
		}
		if err := a.SendTag(within(t), wire.Tag(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i, n := range sizes {
		if tag, err := b.RecvTag(within(t)); tag != wire.Tag(i) || err != nil {
			t.Fatal(tag, err)
		}
		got := <-came
		if got.port != wire.Port(i+1) || len(got.p) != n || kit.DiffAt(got.p, uint64(i), 0) >= 0 {
			t.Errorf("packet %d: port %d, %d bytes", i, got.port, len(got.p))
		}
	}
	if err := a.SendPacket(within(t), 1, make([]byte, wire.MaxPacket), []byte{1}); !errors.Is(err, ErrTooLong) {
		t.Errorf("too long: %v", err)
	}
	if _, err := a.TryPacket(1, make([][]byte, maxParts+1)...); !errors.Is(err, ErrTooLong) {
		t.Errorf("too many parts: %v", err)
	}
}

// A blocked receiver makes the sender wait until its deadline, and TryPacket not
// at all; afterwards everything has arrived.
func TestPacketsWithoutRoom(t *testing.T) {
	kit.Check(t)
	held := make(chan struct{})
	var mu sync.Mutex
	got := 0
	a, _ := packetLinks(t, socket(t), func(_ wire.Port, p []byte) error {
		<-held
		mu.Lock()
		defer mu.Unlock()
		if kit.DiffAt(p, uint64(got), 0) >= 0 {
			return errors.New("not the next one")
		}
		got++
		return nil
	})
	sent := 0
	for full := false; !full; {
		// The writer removes unsent bytes when it gets to run: only waiting in
		// vain for a while shows that there is no room.
		data := kit.Bytes(uint64(sent), 0, 60_000)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		err := a.SendPacket(ctx, 1, data[:10], data[10:])
		cancel()
		if err == nil {
			sent++
			continue
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		ok, err := a.TryPacket(1, data[:10], data[10:])
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			sent++
			continue
		}
		short, enough := context.WithTimeout(t.Context(), 10*time.Millisecond)
		err = a.AwaitRoom(short)
		enough()
		if full = errors.Is(err, context.DeadlineExceeded); !full && err != nil {
			t.Fatal(err)
		}
	}
	close(held)
	if err := a.AwaitRoom(within(t)); err != nil {
		t.Errorf("wait for room: %v", err)
	}
	kit.Eventually(t, patience, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return got == sent
	})
	if err := a.Err(); err != nil {
		t.Error(err)
	}
}

func TestHandlerEndsTheLink(t *testing.T) {
	kit.Check(t)
	broken := errors.New("broken")
	a, b := packetLinks(t, loopback(), func(wire.Port, []byte) error { return broken })
	if err := a.SendPacket(within(t), 1, []byte("x")); err != nil {
		t.Fatal(err)
	}
	<-b.Received()
	<-b.Done()
	if err := b.Err(); !errors.Is(err, broken) || !errors.Is(err, ErrDisconnected) {
		t.Error(err)
	}
	<-a.Done()
}

func TestSmallPacketsAllocateNothing(t *testing.T) {
	if kit.Race() {
		t.Skip("the race detector allocates")
	}
	came := make(chan struct{}, 1)
	a, _ := packetLinks(t, socket(t), func(wire.Port, []byte) error { came <- struct{}{}; return nil })
	p := make([]byte, 4096)
	ctx := within(t)
	if n := testing.AllocsPerRun(1000, func() {
		if err := a.SendPacket(ctx, 1, p[:10], p); err != nil {
			t.Error(err)
		}
		<-came
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
