package control

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// sendRaw sends bytes that are not a frame.
func (l *Link) sendRaw(p []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sendLocked(p)
}

func TestTagsAndMessages(t *testing.T) {
	for name, at := range map[string]Address{"TCP": loopback(), "Unix": socket(t)} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			a, b := links(t, at)
			for _, tag := range []wire.Tag{0, 1, 1<<64 - 1} {
				if err := a.SendTag(within(t), tag); err != nil {
					t.Fatal(err)
				}
				if got, err := b.RecvTag(within(t)); got != tag || err != nil {
					t.Errorf("%d: %d, %v", tag, got, err)
				}
			}
			for _, n := range []int{0, 1, 4095, wire.MaxMessage} {
				exchange(t, b, a, kit.Bytes(uint64(n), 0, n))
			}
			if err := a.SendMessage(within(t), make([]byte, wire.MaxMessage+1)); !errors.Is(err, ErrTooLong) {
				t.Errorf("too long: %v", err)
			}
		})
	}
}

// exchange sends a message and checks that the other end receives the same.
func exchange(t *testing.T, from, to *Link, want []byte) {
	t.Helper()
	if err := from.SendMessage(within(t), want); err != nil {
		t.Fatal(err)
	}
	if got, err := to.RecvMessage(within(t)); !bytes.Equal(got, want) || err != nil {
		t.Errorf("%d bytes: %d, %v", len(want), len(got), err)
	}
}

// Tags of all senders arrive once, and those of one sender in order, even if the
// receiver is slower than any buffer can absorb.
func TestTagsKeepTheirOrder(t *testing.T) {
	kit.Check(t)
	a, b := links(t, socket(t))
	const senders, each = 4, 30_000
	var all sync.WaitGroup
	for s := range wire.Tag(senders) {
		all.Go(func() {
			for i := range wire.Tag(each) {
				if err := a.SendTag(within(t), s<<32|i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	kit.Eventually(t, patience, func() bool { return len(b.tags) == maxTags })
	next := [senders]wire.Tag{}
	ctx := within(t)
	for range senders * each {
		tag, err := b.RecvTag(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if s := tag >> 32; tag&0xffffffff != next[s] {
			t.Fatalf("%d of sender %d, not %d", tag&0xffffffff, s, next[s])
		}
		next[tag>>32]++
	}
	all.Wait()
}

func TestDeadlines(t *testing.T) {
	kit.Check(t)
	a, b := links(t, loopback())
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := a.RecvTag(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a tag: %v", err)
	}
	if _, err := a.RecvMessage(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a message: %v", err)
	}
	// A receiver that does nothing: the sender reaches its deadline, and tags
	// sent before it still arrive whole.
	sent := 0
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		err := a.SendMessage(ctx, kit.Bytes(uint64(sent), 0, 60_000))
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		sent++
	}
	for i := range sent {
		p, err := b.RecvMessage(within(t))
		if err != nil || kit.DiffAt(p, uint64(i), 0) >= 0 || len(p) != 60_000 {
			t.Fatalf("message %d of %d: %d bytes, %v", i, sent, len(p), err)
		}
	}
}

func TestEnds(t *testing.T) {
	for name, end := range map[string]func(a *Link){
		"close":     func(a *Link) { a.Close() },
		"cut":       func(a *Link) { _ = a.conn.Close() },
		"malformed": func(a *Link) { _ = a.sendRaw([]byte("not a frame at all")) },
	} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			a, b := links(t, loopback())
			if err := a.SendTag(within(t), 9); err != nil {
				t.Fatal(err)
			}
			waiting := make(chan error, 1)
			go func() {
				_, err := b.RecvMessage(within(t))
				waiting <- err
			}()
			end(a)
			if err := <-waiting; !errors.Is(err, ErrDisconnected) {
				t.Errorf("a receiver: %v", err)
			}
			<-b.Done()
			if tag, err := b.RecvTag(within(t)); tag != 9 || err != nil {
				t.Errorf("what came before the end: %d, %v", tag, err)
			}
			if _, err := b.RecvTag(within(t)); !errors.Is(err, ErrDisconnected) || !errors.Is(b.Err(), ErrDisconnected) {
				t.Errorf("after the end: %v", err)
			}
			if err := b.SendTag(within(t), 1); !errors.Is(err, ErrDisconnected) {
				t.Errorf("sent after the end: %v", err)
			}
		})
	}
}

// Close delivers what was sent before it.
func TestCloseDelivers(t *testing.T) {
	kit.Check(t)
	a, b := links(t, loopback())
	const n = 20
	for i := range n {
		if err := a.SendMessage(within(t), kit.Bytes(uint64(i), 0, 60_000)); err != nil {
			t.Fatal(err)
		}
	}
	closed := make(chan struct{})
	go func() { a.Close(); close(closed) }()
	for i := range n {
		if p, err := b.RecvMessage(within(t)); err != nil || kit.DiffAt(p, uint64(i), 0) >= 0 {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	<-closed
}

func TestForgedLengthOnALink(t *testing.T) {
	kit.Check(t)
	a, b := links(t, loopback())
	forged := wire.Header{Kind: wire.KindMessage}.Append(nil)
	binary.LittleEndian.PutUint32(forged[4:], 1<<32-1)
	if err := a.sendRaw(forged); err != nil {
		t.Fatal(err)
	}
	<-b.Done()
	if err := b.Err(); !errors.Is(err, wire.ErrFrame) {
		t.Errorf("got %v", err)
	}
}

func TestSendTagAllocatesNothing(t *testing.T) {
	if kit.Race() {
		t.Skip("the race detector allocates")
	}
	a, b := links(t, socket(t))
	if n := testing.AllocsPerRun(1000, func() {
		if err := a.SendTag(t.Context(), 1); err != nil {
			t.Error(err)
		}
		if _, err := b.RecvTag(t.Context()); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
