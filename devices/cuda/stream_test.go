package cuda

import (
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
)

// newStream returns a stream ordered by the card, closed at the end of the test.
func newStream(t *testing.T, dev *device) devices.Stream {
	t.Helper()
	s, err := devices.NewStream(t.Context(), dev)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && dev.Failed() == nil {
			t.Error(err)
		}
	})
	if s.HostDriven() {
		t.Fatal("the host drives the stream")
	}
	return s
}

// TestStreamsOfTwoCards makes the streams of one card wait for another card's, and for one
// that the host drives.
func TestStreamsOfTwoCards(t *testing.T) {
	driver := newStandIn(t, "devices=2").driver()
	a, b := open(t, driver, "cuda:0"), open(t, driver, "cuda:1")
	first, second, third := newStream(t, a), newStream(t, b), devices.NewHostStream(t.Context(), a)
	x, y := alloc(t, a, 4096), alloc(t, b, 4096)
	put(t, x.All(), 1)
	put(t, y.All(), 2)
	var ready, copied, driven devices.Event
	for _, step := range []func() error{
		func() error { return first.Fill(x.All(), 5) },
		func() (err error) { ready, err = first.Record(); return err },
		func() error { return second.After(ready) },
		func() error { return second.Fill(y.All(), 6) },
		func() (err error) { copied, err = second.Record(); return err },
		func() error { return third.After(copied) },
		func() error { return third.Copy(part(t, x, 0, 100), part(t, x, 100, 100)) },
		func() (err error) { driven, err = third.Record(); return err },
		func() error { return first.After(driven) },
		func() error { return first.Copy(part(t, x, 1, 50), part(t, x, 0, 50)) }, // overlaps
		func() error {
			return first.Reduce(part(t, x, 1, 40), part(t, x, 81, 40), elem.Float32, elem.Max) // not aligned
		},
		func() error {
			return first.Reduce(part(t, x, 0, 40), part(t, x, 80, 40), elem.Float16, elem.Max) // no kernel
		},
		func() error { return first.Sync(t.Context()) },
		third.Close,
		func() error { return errors.Join(ready.Close(), copied.Close(), driven.Close()) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	for _, mem := range []*devices.Memory{x, y} {
		got := make([]byte, 4096)
		if err := mem.Device().CopyOut(t.Context(), got, mem.All()); err != nil {
			t.Fatal(err)
		}
		for i, v := range got {
			if v != map[*devices.Memory]byte{x: 5, y: 6}[mem] {
				t.Fatalf("byte %d is %d", i, v)
			}
		}
	}
}

// TestStreamOfACardThatFails checks that all waiters get the error.
func TestStreamOfACardThatFails(t *testing.T) {
	lib := newStandIn(t)
	dev := open(t, lib.driver(), "cuda:0")
	s := newStream(t, dev)
	mem := alloc(t, dev, 4096)
	lib.set("fail=cuEventQuery:1:719:0")
	if err := errors.Join(s.Fill(mem.All(), 1), s.Sync(t.Context())); !errors.Is(err, devices.ErrDevice) {
		t.Errorf("error %v", err)
	}
	if err := s.Fill(mem.All(), 1); err == nil {
		t.Error("the stream goes on")
	}
}

// TestStreamCallsFail makes each call fail once, and checks that nothing leaks.
func TestStreamCallsFail(t *testing.T) {
	for _, call := range []string{"cuStreamCreate", "cuEventCreate", "cuEventRecord", "cuStreamWaitEvent", "cuMemsetD8Async"} {
		t.Run(call, func(t *testing.T) {
			lib := newStandIn(t)
			dev := open(t, lib.driver(), "cuda:0")
			mem := alloc(t, dev, 4096)
			lib.set("fail=" + call + ":1:1:0")
			err := func() error {
				s, err := dev.NewStream(t.Context())
				if err != nil {
					return err
				}
				defer func() { _ = s.Close() }()
				other := newStream(t, dev)
				if err = other.Fill(mem.All(), 1); err != nil {
					return err
				}
				e, err := other.Record()
				if err != nil {
					return err
				}
				defer func() { _ = e.Close() }()
				if err = s.After(e); err != nil {
					return err
				}
				return errors.Join(s.Fill(mem.All(), 1), s.Sync(t.Context()), other.Sync(t.Context()))
			}()
			if !errors.Is(err, devices.ErrDevice) {
				t.Errorf("error %v", err)
			}
		})
	}
}
