package transport_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
)

func smallPool(t *testing.T) (*transport.Engine, *transport.SlotPool) {
	t.Helper()
	e := newEngine(t, transport.Options{ChunkSize: testChunk, Slots: 4, MaxPinned: 4 * testChunk})
	return e, e.Slots()
}

func get(t *testing.T, p *transport.SlotPool, n devices.Size) *transport.Slot {
	t.Helper()
	s, err := p.Get(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSlotSizes(t *testing.T) {
	e, p := smallPool(t)
	for _, n := range []devices.Size{1, 4095, 4096, 4097, 10_000, testChunk, 4 * testChunk} {
		s := get(t, p, n)
		if len(s.Bytes()) != int(n) || cap(s.Bytes()) != int(n) {
			t.Errorf("slot of %d bytes for %d", len(s.Bytes()), n)
		}
		clear(s.Bytes())
		s.Release()
		if st := e.Stats(); st.PinnedInUse != 0 || st.PinnedTotal > 4*testChunk {
			t.Errorf("after %d bytes: %v in use, %v in all", n, st.PinnedInUse, st.PinnedTotal)
		}
	}
	for _, n := range []devices.Size{0, 4*testChunk + 1, 1 << 63} {
		if _, err := p.Get(t.Context(), n); !errors.Is(err, devices.ErrRange) {
			t.Errorf("slot of %d bytes: %v, want %v", n, err, devices.ErrRange)
		}
		if _, ok := p.TryGet(n); ok {
			t.Errorf("TryGet of %d bytes gave a slot", n)
		}
	}
}

func TestSlotIsRecycled(t *testing.T) {
	_, p := smallPool(t)
	first := get(t, p, testChunk)
	where := &first.Bytes()[0]
	first.Release()
	again := get(t, p, testChunk-1)
	defer again.Release()
	if &again.Bytes()[0] != where {
		t.Error("a fresh slot was made while one was idle")
	}
}

func TestSlotWait(t *testing.T) {
	_, p := smallPool(t)
	all := get(t, p, 4*testChunk)
	if _, ok := p.TryGet(1); ok {
		t.Fatal("an exhausted pool gave a slot")
	}
	// A waiter that gives up does not block those after it.
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error)
	go func() { _, err := p.Get(ctx, 4*testChunk); gaveUp <- err }()
	got := make(chan *transport.Slot)
	go func() {
		s, err := p.Get(t.Context(), testChunk)
		if err != nil {
			t.Error(err)
		}
		got <- s
	}()
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled wait: %v", err)
	}
	all.Release()
	(<-got).Release()
	if _, err := p.Get(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("get after cancel: %v", err)
	}
}

func TestSlotReleasedTwice(t *testing.T) {
	_, p := smallPool(t)
	s := get(t, p, 1)
	s.Release()
	defer func() {
		if recover() == nil {
			t.Error("the second release did not panic")
		}
	}()
	s.Release()
}

// TestSlotsShared makes many holders compete for few bytes: never more than the
// limit, never one buffer with two holders.
func TestSlotsShared(t *testing.T) {
	e, p := smallPool(t)
	var all sync.WaitGroup
	var held atomic.Int64
	for worker := range 8 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 0))
			for range 300 {
				s := getMaybe(t, p, devices.Size(random.IntN(int(4*testChunk))+1), random.IntN(4) == 0)
				if s == nil {
					continue
				}
				n := int64(len(s.Bytes()))
				if held.Add(n) > int64(4*testChunk) {
					t.Error("more held than the limit")
				}
				mark := byte(worker + 1)
				s.Bytes()[0], s.Bytes()[n-1] = mark, mark
				if s.Bytes()[0] != mark || s.Bytes()[n-1] != mark {
					t.Error("somebody else wrote into the slot")
				}
				held.Add(-n)
				s.Release()
			}
		})
	}
	all.Wait()
	if st := e.Stats(); st.PinnedInUse != 0 || st.PinnedTotal > 4*testChunk {
		t.Errorf("%v in use, %v in all", st.PinnedInUse, st.PinnedTotal)
	}
}

// getMaybe gets a slot, or nil if its cancellation is faster.
func getMaybe(t *testing.T, p *transport.SlotPool, n devices.Size, cancelled bool) *transport.Slot {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var canceller sync.WaitGroup
	defer canceller.Wait()
	if cancelled {
		canceller.Go(cancel)
	}
	s, err := p.Get(ctx, n)
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	return s
}

// pinning is ram that can pin.
type pinning struct {
	*ram
	pins, unpins atomic.Int64
}

func (d *pinning) Alloc(_ context.Context, n devices.Size) (*devices.Memory, error) {
	return devices.NewMemory(devices.MemorySpec{Device: d, Size: n, Epoch: d.Epoch(), Handle: make([]byte, n)}), nil
}

func (d *pinning) PinHost([]byte) (func(), error) {
	d.pins.Add(1)
	return func() { d.unpins.Add(1) }, nil
}

func TestSlotsArePinnedOnce(t *testing.T) {
	d, other := &pinning{ram: newRAM("pin0")}, newRAM("ram1")
	e, err := transport.New(transport.Options{ChunkSize: testChunk, Slots: 3})
	if err != nil {
		t.Fatal(err)
	}
	from, to := memoryOn(t, d, 9*testChunk), memoryOn(t, other, 9*testChunk)
	for range 5 {
		if _, err := e.Copy(t.Context(), transport.DeviceSpan(to), transport.DeviceSpan(from)); err != nil {
			t.Fatal(err)
		}
	}
	if pins := d.pins.Load(); pins != 3 {
		t.Errorf("%d pins for 3 slots", pins)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if pins, unpins := d.pins.Load(), d.unpins.Load(); pins != unpins {
		t.Errorf("%d pins, %d undone", pins, unpins)
	}
}
