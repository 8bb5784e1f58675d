package shm

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// TestTagsInOrder sends by several goroutines and receives by one, more than a
// ring holds.
func TestTagsInOrder(t *testing.T) {
	kit.Check(t)
	a, b := sides(t)
	const senders, each = 3, 10 * slots / 3
	var all sync.WaitGroup
	for i := range senders {
		all.Go(func() {
			for n := range each {
				if err := a.SendTag(within(t), wire.Tag(i<<32|n)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var next [senders]uint64
	for range senders * each {
		tag, err := b.RecvTag(within(t))
		if err != nil {
			t.Fatal(err)
		}
		i := tag >> 32
		if uint64(tag)&0xffffffff != next[i] {
			t.Fatalf("tag %d of %d, want %d", uint64(tag)&0xffffffff, i, next[i])
		}
		next[i]++
	}
	all.Wait()
}

// TestTagsBackAndForth makes both sides sleep repeatedly.
func TestTagsBackAndForth(t *testing.T) {
	kit.Check(t)
	a, b := sides(t)
	var echo sync.WaitGroup
	echo.Go(func() {
		for range 5000 {
			tag, err := b.RecvTag(within(t))
			if err == nil {
				err = b.SendTag(within(t), tag+1)
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range wire.Tag(5000) {
		if i%1000 == 0 {
			// Longer than any waiter polls.
			short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if _, err := a.RecvTag(short); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("received what nobody sent: %v", err)
			}
			cancel()
		}
		if err := a.SendTag(within(t), i); err != nil {
			t.Fatal(err)
		}
		if tag, err := a.RecvTag(within(t)); tag != i+1 || err != nil {
			t.Fatal(i, tag, err)
		}
	}
	echo.Wait()
}

// TestFullRing sends until there is no room.
func TestFullRing(t *testing.T) {
	kit.Check(t)
	a, b := sides(t)
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	n := 0
	for ; ; n++ {
		if err := a.SendTag(short, wire.Tag(n)); err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			break
		}
	}
	if n > slots {
		t.Errorf("%d tags in a ring of %d", n, slots)
	}
	waiting := make(chan error)
	go func() { waiting <- a.SendTag(within(t), wire.Tag(n)) }()
	for i := range n + 1 {
		if tag, err := b.RecvTag(within(t)); tag != wire.Tag(i) || err != nil {
			t.Fatal(i, tag, err)
		}
	}
	if err := <-waiting; err != nil {
		t.Error(err)
	}
}

// TestEndOfTags ends both sides while some wait, and receives what is left.
func TestEndOfTags(t *testing.T) {
	kit.Check(t)
	a, b := sides(t)
	for i := range wire.Tag(10) {
		if err := a.SendTag(within(t), i); err != nil {
			t.Fatal(err)
		}
	}
	waiting := make(chan error)
	go func() {
		_, err := a.RecvTag(within(t))
		waiting <- err
	}()
	a.Close()
	if err := <-waiting; err == nil {
		t.Error("received at the end what nobody sent")
	}
	if err := a.SendTag(within(t), 1); err == nil {
		t.Error("sent after the end")
	}
	b.Close()
	b.Close()
	for i := range wire.Tag(10) {
		if tag, err := b.RecvTag(within(t)); tag != i || err != nil {
			t.Errorf("tag %d, %v", tag, err)
		}
	}
	if _, err := b.RecvTag(within(t)); err == nil || b.Err() == nil {
		t.Error("received behind the last")
	}
}

// TestHostileRing writes impossible numbers into the rings.
func TestHostileRing(t *testing.T) {
	kit.Check(t)
	a, b := sides(t)
	a.out.ring.at.head.Store(slots + 1)
	if _, err := b.RecvTag(within(t)); !errors.Is(err, errRing) {
		t.Errorf("head: %v", err)
	}
	<-b.Done()
	if !errors.Is(b.Err(), errRing) {
		t.Errorf("ended because %v", b.Err())
	}
	a, b = sides(t)
	b.in.ring.at.tail.Store(1 << 63)
	var err error
	for range slots + 1 {
		if err = a.SendTag(within(t), 1); err != nil {
			break
		}
	}
	if !errors.Is(err, errRing) || !errors.Is(a.Err(), errRing) {
		t.Errorf("tail: %v, %v", err, a.Err())
	}
}

// TestEndlessRing ends while the peer claims repeatedly that there is more.
func TestEndlessRing(t *testing.T) {
	kit.Check(t)
	a, b := sides(t)
	var over atomic.Bool
	var peer sync.WaitGroup
	peer.Go(func() {
		for at := a.out.ring.at; !over.Load(); {
			if at.head.Load()-at.tail.Load() < slots/2 {
				at.head.Add(slots / 2)
			}
		}
	})
	kit.Eventually(t, patience, func() bool { return a.out.ring.at.head.Load() > 0 })
	ended := make(chan struct{})
	go func() {
		b.Close()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the end waits for a peer that goes on to send")
	}
	over.Store(true)
	peer.Wait()
	<-ended
	b.in.mu.Lock()
	defer b.in.mu.Unlock()
	if n := len(b.in.left); n > slots {
		t.Errorf("%d tags were left in a ring of %d", n, slots)
	}
}

// TestHostileStart meets a peer with other rings.
func TestHostileStart(t *testing.T) {
	kit.Check(t)
	near, _ := connected(t, "unix")
	for name, change := range map[string]func(o *window.Offer){
		"no blob":      func(o *window.Offer) { o.Blob = nil },
		"other slots":  func(o *window.Offer) { o.Blob[4]++ },
		"a file less":  func(o *window.Offer) { _ = o.Files[2].Close(); o.Files = o.Files[:2] },
		"another file": func(o *window.Offer) { o.Files[0], o.Files[1] = o.Files[1], o.Files[0] },
		"short memory": func(o *window.Offer) { _ = o.Files[0].Close(); o.Files[0] = memfd(t, 4096, 2) },
		"not sealed":   func(o *window.Offer) { _ = o.Files[0].Close(); o.Files[0] = memfd(t, int64(layoutSize), 0) },
		"a file for a bell": func(o *window.Offer) {
			_ = o.Files[1].Close()
			o.Files[1] = memfd(t, 4096, 0)
		},
	} {
		s, err := New(Options{}).Open(window.Setting{Conn: near})
		if err != nil {
			t.Fatal(err)
		}
		peer, err := New(Options{}).Open(window.Setting{Conn: near})
		if err != nil {
			t.Fatal(err)
		}
		o := passed(t, peer.Start())
		change(&o)
		if p, err := s.Handshake(o); err == nil {
			t.Errorf("%s: met", name)
			p.Close()
		}
		peer.Close()
	}
}

func TestSendAllocatesNothing(t *testing.T) {
	a, b := sides(t)
	ctx := within(t)
	if n := testing.AllocsPerRun(1000, func() {
		if err := a.SendTag(ctx, 1); err != nil {
			t.Error(err)
		}
		if _, err := b.RecvTag(ctx); err != nil {
			t.Error(err)
		}
	}); n != 0 && !kit.Race() {
		t.Errorf("%v allocations", n)
	}
}
