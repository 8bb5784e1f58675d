package opencl

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/tests/kit"
)

func newStream(t *testing.T, dev devices.Device) devices.Stream {
	t.Helper()
	made, err := devices.NewStream(t.Context(), dev)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := made.Close(); err != nil {
			t.Error(err)
		}
	})
	if made.HostDriven() {
		t.Fatalf("the stream is a %T", made)
	}
	return made
}

// TestStreamsOfKinds checks which devices' streams are driven by the host.
func TestStreamsOfKinds(t *testing.T) {
	kinds(t, func(t *testing.T, dev devices.Device) {
		s, err := devices.NewStream(t.Context(), dev)
		if err != nil {
			t.Fatal(err)
		}
		if _, mapped := dev.(*mappedDevice); s.HostDriven() != mapped {
			t.Errorf("driven by the host: %v", s.HostDriven())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestStreamWorkOfTheHost submits an overlapping copy, and unaligned elements, between
// commands.
func TestStreamWorkOfTheHost(t *testing.T) {
	dev := openDiscrete(t, "size=64MiB")
	s := newStream(t, dev)
	a, b := noise(4096, 1), noise(4096, 2)
	dst, src := alloc(t, dev, 4096), alloc(t, dev, 4096)
	put(t, dst, a)
	put(t, src, b)
	for _, err := range []error{
		s.Copy(part(t, dst, 100, 1000), part(t, dst, 0, 1000)),
		s.Copy(part(t, dst, 0, 50), part(t, src, 0, 50)),
		s.Reduce(part(t, dst, 1, 400), part(t, src, 3, 400), elem.Int32, elem.Sum),
		s.Fill(part(t, dst, 401, 9), 7),
		s.Sync(t.Context()),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	copy(a[100:1100], bytes.Clone(a[:1000]))
	copy(a[:50], b)
	sum := bytes.Clone(a[1:401])
	if err := elem.Combine(elem.Sum, elem.Int32, sum, sum, bytes.Clone(b[3:403])); err != nil {
		t.Fatal(err)
	}
	copy(a[1:], sum)
	copy(a[401:410], bytes.Repeat([]byte{7}, 9))
	if got := get(t, dst); !bytes.Equal(got, a) {
		t.Error("differs")
	}
}

func TestStreamCallsFail(t *testing.T) {
	dev := openDiscrete(t, "size=64MiB")
	mem := alloc(t, dev, 100)
	for want, change := range map[string]func(*api){
		"clEnqueueFillBuffer":          func(a *api) { a.EnqueueFillBuffer = returns(-5) },
		"clEnqueueMarkerWithWaitList":  func(a *api) { a.EnqueueMarker = returns(-5) },
		"clEnqueueBarrierWithWaitList": func(a *api) { a.EnqueueBarrier = returns(-5) },
		"clFlush":                      func(a *api) { a.Flush = returns(-5) },
	} {
		t.Run(want, func(t *testing.T) {
			s := newStream(t, dev)
			other, err := newStream(t, dev).Record()
			if err != nil {
				t.Fatal(err)
			}
			if err = other.Wait(t.Context()); err != nil { // its stream uses the table until then
				t.Fatal(err)
			}
			whole := dev.api
			table := *whole
			change(&table)
			dev.api = &table
			err = errors.Join(s.Fill(mem.All(), 1), s.After(other), s.Sync(t.Context()))
			dev.api = whole
			if failure := other.Close(); failure != nil {
				t.Error(failure)
			}
			if !errors.Is(err, devices.ErrDevice) || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestHeldCommandFails makes a command fail that was held when it was submitted, and with
// it everything after it: the event and the stream.
func TestHeldCommandFails(t *testing.T) {
	dev := openDiscrete(t, "size=64MiB")
	mem := alloc(t, dev, 100)
	want := noise(100, 1)
	put(t, mem, want)
	s := newStream(t, dev)
	opens := devices.NewSignal()
	if err := errors.Join(s.After(opens), s.Fill(mem.All(), 1), s.Fill(mem.All(), 2)); err != nil {
		t.Fatal(err)
	}
	e, err := s.Record()
	if err != nil {
		t.Fatal(err)
	}
	broken(t, dev, func(a *api) { a.EnqueueFillBuffer = returns(-5) })
	opens.Set(nil)
	for what, err := range map[string]error{
		"event": e.Wait(t.Context()), "stream": s.Fill(mem.All(), 3), "close": e.Close(),
	} {
		if (what == "close") != (err == nil) || err != nil && !strings.Contains(err.Error(), "clEnqueueFillBuffer") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if !bytes.Equal(get(t, mem), want) {
		t.Error("the bytes have changed")
	}
}

// TestGatesGivenUp closes streams with an open gate, and makes an awaited event fail while
// commands before it run: PoCL 3.1 ends the process when one of its own events fails at
// that moment.
func TestGatesGivenUp(t *testing.T) {
	kit.Check(t)
	dev := openDiscrete(t, "size=64MiB")
	mem := alloc(t, dev, 4096)
	boom := errors.New("boom")
	for round := range kit.Rounds(200, 1000, 5000) {
		s, err := devices.NewStream(t.Context(), dev)
		if err != nil {
			t.Fatal(err)
		}
		waits := devices.NewSignal()
		if err = errors.Join(s.Fill(mem.All(), 1), s.After(waits), s.Fill(mem.All(), 2)); err != nil {
			t.Fatal(err)
		}
		e, err := s.Record()
		if err != nil {
			t.Fatal(err)
		}
		want := devices.ErrClosed
		if round%2 == 0 {
			want = boom
			waits.Set(boom)
			err = e.Wait(t.Context())
		}
		if failure := s.Close(); failure != nil {
			t.Fatal(failure)
		}
		if round%2 == 1 {
			err = e.Wait(t.Context())
		}
		if !errors.Is(err, want) {
			t.Fatalf("round %d: %v, want %v", round, err, want)
		}
		if err = e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := get(t, mem); !bytes.Equal(got, bytes.Repeat([]byte{1}, 4096)) {
		t.Error("what was behind the gates was done")
	}
}

// TestStreamOutlivesItsDevice closes the device before the stream.
func TestStreamOutlivesItsDevice(t *testing.T) {
	dev := openDiscrete(t, "size=64MiB")
	s := newStream(t, dev)
	mem, err := dev.Alloc(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	never := devices.NewSignal()
	if err := errors.Join(s.After(never), s.Fill(mem.All(), 1), mem.Release(), dev.Close()); err != nil {
		t.Fatal(err)
	}
	if err := s.Fill(mem.All(), 1); !errors.Is(err, devices.ErrClosed) {
		t.Errorf("fill: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	never.Set(nil)
}
