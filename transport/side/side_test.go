package side

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

const both = wire.Readable | wire.Writable

func TestShareUseWithdraw(t *testing.T) {
	kit.Check(t)
	a, b := two(t)
	memory, local := a.buffer(t, 1000, 1), b.buffer(t, 1000, 2)
	d := wire.Descriptor{Key: 5, Size: 1000, Rights: wire.Writable}
	if _, _, found := b.Use(5, wire.Writable, 0, 1); found {
		t.Error("found what was not shared")
	}
	if err := a.Share(within(t), d, memory); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		need wire.Rights
		off  uint64
		n    devices.Size
		want wire.Status
	}{
		{wire.Readable, 0, 1, wire.StatusRights},
		{wire.Writable, 1000, 1, wire.StatusRange},
		{wire.Writable, 1<<64 - 1, 2, wire.StatusRange},
	} {
		if _, status, found := b.Use(5, tc.need, tc.off, tc.n); !found || status != tc.want {
			t.Errorf("%+v: %s, found %v", tc, status, found)
		}
	}
	use, status, found := b.Use(5, wire.Writable, 10, 20)
	if !found || status != wire.StatusOK {
		t.Fatalf("%s, found %v", status, found)
	}
	done := make(completed, 1)
	use.Start(&window.Op{Kind: wire.KindPut, Local: local, LocalOff: 3, RemoteOff: 10, Size: 20}, done)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if at := kit.DiffAt(memory.Host(10, 20), 2, 3); at >= 0 {
		t.Errorf("byte %d was not put", at)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := a.Withdraw(short, 5); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("withdrawn while in use: %v", err)
	}
	if _, _, again := b.Use(5, wire.Writable, 0, 1); again {
		t.Error("found what is being withdrawn")
	}
	use.Leave()
	if err := a.Withdraw(within(t), 5); err != nil {
		t.Fatal(err)
	}
	if exported, _ := a.provider.open(); exported != 0 {
		t.Error("the export is open still")
	}
	if err := a.Withdraw(within(t), 99); err != nil {
		t.Errorf("withdraw what was not shared: %v", err)
	}
}

// TestWithdrawWhileClosing withdraws once more while the export is being closed,
// when the window is closed already or was never opened: that waits for the end
// of the export too.
func TestWithdrawWhileClosing(t *testing.T) {
	kit.Check(t)
	for _, refused := range []bool{false, true} {
		a, b := two(t)
		begun, end := make(chan struct{}), make(chan struct{})
		a.provider.closing = func() {
			close(begun)
			<-end
		}
		b.provider.refuse.Store(refused)
		memory := a.buffer(t, 1000, 1)
		first := make(chan error, 1)
		go func() {
			err := a.Share(within(t), wire.Descriptor{Key: 5, Size: 1000, Rights: wire.Writable}, memory)
			if refused == (err == nil) {
				t.Errorf("shared with a peer that refuses (%v): %v", refused, err)
			}
			first <- a.Withdraw(within(t), 5)
		}()
		<-begun
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if err := a.Withdraw(over, 5); !errors.Is(err, context.Canceled) {
			t.Errorf("refused %v: withdrawn while the export is open: %v", refused, err)
		}
		close(end)
		if err := errors.Join(<-first, a.Withdraw(within(t), 5)); err != nil {
			t.Error(err)
		}
		if exported, _ := a.provider.open(); exported != 0 {
			t.Errorf("refused %v: the export is open still", refused)
		}
	}
}

// TestBufferClose closes a buffer that a peer has open.
func TestBufferClose(t *testing.T) {
	kit.Check(t)
	a, b := two(t)
	memory := a.buffer(t, 1000, 1)
	for key := range wire.Key(3) {
		if err := a.Share(within(t), wire.Descriptor{Key: key + 1, Size: 1000, Rights: both}, memory); err != nil {
			t.Fatal(err)
		}
	}
	if b.Windows() != 3 {
		t.Errorf("%d windows", b.Windows())
	}
	if err := memory.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	if b.Windows() != 0 {
		t.Errorf("%d windows are left", b.Windows())
	}
}

func TestDeclined(t *testing.T) {
	kit.Check(t)
	a, b := two(t)
	b.provider.refuse.Store(true)
	memory := a.buffer(t, 1000, 1)
	err := a.Share(within(t), wire.Descriptor{Key: 1, Size: 1000, Rights: both}, memory)
	if !errors.Is(err, devices.ErrUnsupported) {
		t.Errorf("declined: %v", err)
	}
	if exported, _ := a.provider.open(); exported != 0 {
		t.Error("the export is open still")
	}
	plain, err := a.table.Register(make([]byte, 10))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Share(within(t), wire.Descriptor{Key: 2, Size: 10, Rights: both}, plain); !errors.Is(err, devices.ErrUnsupported) {
		t.Errorf("memory that can't be exported: %v", err)
	}
	if err := plain.Close(within(t)); err != nil {
		t.Error(err)
	}
}

// TestEnd ends side connections in the middle of everything.
func TestEnd(t *testing.T) {
	for name, end := range map[string]func(a, b *one){
		"by the owner":    func(a, _ *one) { a.Close() },
		"by the peer":     func(_, b *one) { b.Close() },
		"by the provider": func(_, b *one) { b.provider.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			a, b := two(t)
			memory := a.buffer(t, 1000, 1)
			d := wire.Descriptor{Key: 5, Size: 1000, Rights: both}
			if err := a.Share(within(t), d, memory); err != nil {
				t.Fatal(err)
			}
			end(a, b)
			<-a.Done()
			<-b.Done()
			d.Key = 6
			if err := a.Share(within(t), d, memory); !errors.Is(err, control.ErrDisconnected) {
				t.Errorf("shared with nobody: %v", err)
			}
			if err := a.Withdraw(within(t), 5); err != nil {
				t.Errorf("withdraw at the end: %v", err)
			}
			if _, _, found := b.Use(5, both, 0, 1); found {
				t.Error("a window is open after the end")
			}
			if !errors.Is(a.Err(), control.ErrDisconnected) || !errors.Is(b.Err(), control.ErrDisconnected) {
				t.Errorf("ended because %v, %v", a.Err(), b.Err())
			}
		})
	}
}

func TestUseAllocatesNothing(t *testing.T) {
	a, b := two(t)
	memory := a.buffer(t, 1000, 1)
	if err := a.Share(within(t), wire.Descriptor{Key: 5, Size: 1000, Rights: both}, memory); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(1000, func() {
		if use, _, found := b.Use(5, both, 1, 2); found {
			use.Leave()
		}
	}); n != 0 && !kit.Race() {
		t.Errorf("%v allocations", n)
	}
}
