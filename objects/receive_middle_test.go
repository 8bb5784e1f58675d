package objects_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	devfaulty "github.com/hmcfs/hmcfs/tests/fault/devices/faulty"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
)

// held is a rig whose device pauses in copies from it on request.
type held struct {
	*rig
	on      atomic.Bool
	reached chan struct{}
	goOn    chan error
}

// holding holds up a device's copies out of its memory.
func holding(t *testing.T) *held {
	t.Helper()
	h := &held{reached: make(chan struct{}, 64), goOn: make(chan error)}
	hook := func(op devfaulty.Op) error {
		if op.Kind == devfaulty.CopyIn || op.Kind == devfaulty.Alloc || op.Kind == devfaulty.Free || op.Kind == devfaulty.Usage || !h.on.Load() {
			return nil
		}
		h.reached <- struct{}{}
		return <-h.goOn
	}
	h.rig = moving(t, transport.Options{}, devfaulty.Wrap(sim.New(0, small(false)), hook), sim.New(1, small(false)))
	return h
}

// TestPublisherEndsInTheMiddle: a receiver whose publisher ends during the copy gets an
// error, at once, and the publication is withdrawn.
func TestPublisherEndsInTheMiddle(t *testing.T) {
	kit.Check(t)
	for name, blobs := range map[string][]uint64{
		"with more to copy": {0, 1000, 5000, 1000}, "with nothing more to copy": {0, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			h := holding(t)
			a, b := h.user(0, 1, 1<<20), h.user(1, 2, 1<<20)
			p := a.mustPublish(a.keyed("k", blobs...))
			h.on.Store(true)
			got := make(chan error, 1)
			go func() { got <- b.Receive(h.ctx(), b.keyed("k", blobs...)) }()
			<-h.reached
			ended := make(chan error, 1)
			go func() { ended <- a.Close(h.ctx()) }()
			if err := h.ended(p); !errors.Is(err, objects.ErrWithdrawn) || h.isPublished("k") {
				t.Errorf("the publisher has ended: %v", err)
			}
			h.on.Store(false)
			close(h.goOn)
			if err := <-got; !errors.Is(err, objects.ErrLost) {
				t.Errorf("received from one who has ended: %v", err)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWithdrawnInTheMiddle: if the name is removed while it is received, the receiver
// gets an error; if the receiver is cancelled or fails, the publication is offered
// again.
func TestWithdrawnInTheMiddle(t *testing.T) {
	kit.Check(t)
	for name, c := range map[string]struct {
		meanwhile func(h *held, cancel func()) error
		want      error
		there     bool
	}{
		"the name is removed": {func(h *held, _ func()) error {
			return h.store.Unlink(h.ctx(), metadata.PublishIno, "k")
		}, metadata.ErrNotExist, false},
		"the receiver is cancelled": {func(_ *held, cancel func()) error {
			cancel()
			return nil
		}, context.Canceled, true},
		"the copy fails": {nil, errInjected, true},
		"nothing":        {func(*held, func()) error { return nil }, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := holding(t)
			a, b, d := h.user(0, 1, 1<<20), h.user(1, 2, 1<<20), h.user(1, 3, 1<<20)
			p := a.mustPublish(a.keyed("k", 0, 1000))
			h.on.Store(true)
			ctx, cancel := context.WithCancel(h.ctx())
			defer cancel()
			got, second := make(chan error, 1), make(chan error, 1)
			go func() { got <- b.Receive(ctx, b.keyed("k", 0, 1000)) }()
			<-h.reached
			h.on.Store(false)
			go func() { second <- d.Receive(h.ctx(), d.keyed("k", 0, 1000)) }()
			if c.meanwhile == nil {
				h.goOn <- errInjected
			} else {
				if err := c.meanwhile(h, cancel); err != nil {
					t.Fatal(err)
				}
				h.goOn <- nil
			}
			if err := <-got; !errors.Is(err, c.want) {
				t.Errorf("the first: %v, want %v", err, c.want)
			}
			if err := <-second; c.there == (err != nil) || err != nil && !errors.Is(err, metadata.ErrNotExist) {
				t.Errorf("the second: %v", err)
			}
			if err := h.ended(p); (err == nil) != (c.there || c.want == nil) || h.isPublished("k") {
				t.Errorf("the publisher: %v", err)
			}
			if at := kit.DiffAt(d.bytes()[:1000], 1, 0); (at < 0) != c.there {
				t.Errorf("the second has other bytes from %d on", at)
			}
		})
	}
}

// TestReceiverEndsInTheMiddle: a receiver that ends before it has taken the publication
// leaves it offered.
func TestReceiverEndsInTheMiddle(t *testing.T) {
	kit.Check(t)
	h := holding(t)
	a, b := h.user(0, 1, 1<<20), h.user(1, 2, 1<<20)
	p := a.mustPublish(a.keyed("k", 0, 1000))
	h.on.Store(true)
	got := make(chan error, 1)
	go func() { got <- b.Receive(h.ctx(), b.keyed("k", 0, 1000)) }()
	<-h.reached
	ended := make(chan error, 1)
	go func() { ended <- b.Close(h.ctx()) }()
	kit.Eventually(t, long, func() bool {
		_, err := b.PublicationInfo(h.ctx(), "k")
		return errors.Is(err, objects.ErrClosed)
	})
	h.on.Store(false)
	close(h.goOn)
	if err := <-got; err == nil {
		t.Error("received by one who has ended")
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	h.pending(p)
	if err := h.fetch("k", "sim1", "t"); err != nil {
		t.Fatal(err)
	}
	if err := h.ended(p); err != nil {
		t.Fatal(err)
	}
}

// TestReaderGivesUpInTheMiddle: bytes that a reader did not get, since it did not wait
// for the outcome of another claim, do not count.
func TestReaderGivesUpInTheMiddle(t *testing.T) {
	kit.Check(t)
	h := holding(t)
	a, b := h.user(0, 1, 1<<20), h.user(1, 2, 1<<20)
	a.mustPublish(a.keyed("k", 0, 1000))
	f := h.open(h.published("k"))
	if _, err := deliver(h.ctx(), f, 0, 500); err != nil {
		t.Fatal(err)
	}
	h.on.Store(true)
	got := make(chan error, 1)
	go func() { got <- b.Receive(h.ctx(), b.keyed("k", 0, 1000)) }()
	<-h.reached
	ctx, cancel := context.WithCancel(h.ctx())
	cancel()
	if err := f.Deliver(ctx, 500, 500); !errors.Is(err, context.Canceled) {
		t.Errorf("the last bytes: %v", err)
	}
	h.on.Store(false)
	h.goOn <- errInjected
	if err := <-got; !errors.Is(err, errInjected) {
		t.Errorf("received: %v", err)
	}
	if _, err := deliver(h.ctx(), f, 0, 500); err != nil {
		t.Fatal(err)
	}
	h.close(f)
	if !h.isPublished("k") {
		t.Error("received without the last bytes")
	}
}
