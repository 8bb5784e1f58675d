package life

import (
	"context"
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
)

// device has a name and an epoch, which is all that is needed.
type device struct{ devices.Device }

func (*device) Info() devices.Info   { return devices.Info{Name: "test0"} }
func (*device) Epoch() devices.Epoch { return 1 }

// memory is 64 bytes of a device.
func memory(dev devices.Device) *devices.Memory {
	return devices.NewMemory(devices.MemorySpec{
		Device: dev, Size: 64, Epoch: 1, Free: func() error { return nil },
	})
}

func part(t *testing.T, mem *devices.Memory, n devices.Size) devices.Span {
	t.Helper()
	s, err := mem.Span(devices.Range{Len: n})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestBegin(t *testing.T) {
	dev := &device{}
	mem, other := memory(dev), memory(&device{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var l Life
	begin := func(s devices.Span, n int) (func(), error) { return l.Begin(t.Context(), dev, s, n) }
	both := func(dst, src devices.Span) (func(), error) { return l.BeginCopy(t.Context(), dev, dst, src) }
	for name, c := range map[string]struct {
		call func() (func(), error)
		want error
	}{
		"a span":                {func() (func(), error) { return begin(mem.All(), 64) }, nil},
		"too few bytes":         {func() (func(), error) { return begin(mem.All(), 63) }, devices.ErrRange},
		"another device":        {func() (func(), error) { return begin(other.All(), 64) }, devices.ErrRange},
		"a copy":                {func() (func(), error) { return both(mem.All(), mem.All()) }, nil},
		"a copy to less":        {func() (func(), error) { return both(part(t, mem, 32), mem.All()) }, devices.ErrRange},
		"a copy from another":   {func() (func(), error) { return both(mem.All(), other.All()) }, devices.ErrRange},
		"a copy to another":     {func() (func(), error) { return both(other.All(), mem.All()) }, devices.ErrRange},
		"a context that is out": {func() (func(), error) { return l.Enter(ended, dev) }, context.Canceled},
	} {
		leave, err := c.call()
		if !errors.Is(err, c.want) || (leave == nil) != (c.want != nil) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
		if leave != nil {
			leave()
		}
		if !empty(&l) {
			t.Fatalf("%s: somebody is still inside", name)
		}
	}
}

// empty reports whether no operation is in progress.
//
// +checklocksignore: the checker does not know TryLock.
func empty(l *Life) bool {
	if !l.TryLock() {
		return false
	}
	l.Unlock()
	return true
}

// TestCloseWaits closes the device during an operation.
func TestCloseWaits(t *testing.T) {
	var l Life
	dev := &device{}
	leave, err := l.Enter(t.Context(), dev)
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	inside := true // not locked: the race detector sees a Close that does not wait
	closed := make(chan error)
	go func() {
		closed <- l.Close(func() error {
			if inside || empty(&l) {
				t.Error("something is given back while somebody is inside")
			}
			return broken
		})
	}()
	inside = false
	leave()
	if err := <-closed; !errors.Is(err, broken) || !l.Closed() {
		t.Errorf("closed %v with %v, want %v", l.Closed(), err, broken)
	}
	if _, err := l.Enter(t.Context(), dev); !errors.Is(err, devices.ErrClosed) {
		t.Errorf("an operation after Close: %v", err)
	}
	again := l.Close(func() error {
		t.Error("given back twice")
		return broken
	})
	if again != nil {
		t.Errorf("closed again: %v", again)
	}
}
