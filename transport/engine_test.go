package transport_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
)

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		name   string
		o      transport.Options
		faults []string
	}{
		{"zero", transport.Options{}, nil},
		{"odd chunk", transport.Options{ChunkSize: 5000}, []string{"chunk size 5000"}},
		{"huge chunk", transport.Options{ChunkSize: 1 << 62}, []string{"chunk size", "of pinned memory is less"}},
		{"all", transport.Options{ChunkSize: 1, Slots: 2, MaxPinned: 1}, []string{"chunk size 1 ", "2 slots", "of pinned memory is less"}},
		{"negative", transport.Options{Slots: -1}, []string{"-1 slots"}},
		{"rounded", transport.Options{ChunkSize: 12 * devices.KiB, Slots: 4, MaxPinned: 48 * devices.KiB}, []string{"use 64.0 KiB or more"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, err := transport.New(c.o)
			if err == nil {
				err = e.Close()
			}
			if (err == nil) != (c.faults == nil) {
				t.Fatalf("error %v, want %q", err, c.faults)
			}
			for _, fault := range c.faults {
				if !strings.Contains(err.Error(), fault) {
					t.Errorf("error %q does not tell %q", err, fault)
				}
			}
		})
	}
	var o transport.Options
	o.EnsureDefaults()
	if got, want := o.String(), "chunk-size=256.0 KiB slots=6 max-pinned=64.0 MiB max-registered=16.0 GiB register-from=4.0 MiB"; got != want {
		t.Errorf("options %q, want %q", got, want)
	}
	o.NoRegister = true
	if got, want := o.String(), "chunk-size=256.0 KiB slots=6 max-pinned=64.0 MiB max-registered=0"; got != want {
		t.Errorf("options %q, want %q", got, want)
	}
}

func TestView(t *testing.T) {
	e := newEngine(t, transport.Options{})
	d := newMappedRAM("mapped")
	s := memoryOn(t, d, 1000)
	part, err := s.Sub(10, 100)
	if err != nil {
		t.Fatal(err)
	}
	view, err := e.View(t.Context(), part)
	if err != nil || len(view.Bytes) != 100 || view.Bytes[99] != 1 {
		t.Fatalf("view of %d bytes, error %v", len(view.Bytes), err)
	}
	view.Release()
	if _, err = e.View(t.Context(), memoryOn(t, newRAM("plain"), 10)); !errors.Is(err, devices.ErrUnsupported) {
		t.Errorf("view of memory that can't be mapped: %v, want %v", err, devices.ErrUnsupported)
	}
	if rows := e.Stats().Paths; len(rows) != 1 || rows[0].Path != transport.PathD2H || rows[0].Bytes != 100 || rows[0].Operations != 1 {
		t.Errorf("counters %+v, want one D2H of 100 bytes", rows)
	}
	d.before = func(string) error { return errInjected }
	if _, err = e.View(t.Context(), part); !errors.Is(err, errInjected) {
		t.Errorf("failed view: %v", err)
	}
	d.before = nil
	empty, err := e.View(t.Context(), devices.Span{Mem: s.Mem})
	if err != nil || len(empty.Bytes) != 0 {
		t.Fatalf("empty view: %v", err)
	}
	empty.Release()
	if rows := e.Stats().Paths; rows[0].Errors != 1 || rows[0].Operations != 1 || d.views.Load() != 0 {
		t.Errorf("counters %+v, %d views held", rows, d.views.Load())
	}
}

func TestFillIsNoTransfer(t *testing.T) {
	e := newEngine(t, transport.Options{})
	if err := e.Fill(t.Context(), transport.DeviceSpan(memoryOn(t, newRAM("plain"), 1000)), 7); err != nil {
		t.Fatal(err)
	}
	if rows := e.Stats().Paths; len(rows) != 1 || rows[0].Path != transport.PathFill || rows[0].Bytes != 1000 {
		t.Errorf("counters %+v, want one fill of 1000 bytes", rows)
	}
}

func TestClosed(t *testing.T) {
	e, err := transport.New(transport.Options{ChunkSize: testChunk, Slots: 4, MaxPinned: 4 * testChunk})
	if err != nil {
		t.Fatal(err)
	}
	slot := get(t, e.Slots(), 4*testChunk)
	waits := make(chan error)
	go func() {
		s, err := e.Slots().Get(t.Context(), 1)
		if err == nil {
			s.Release()
		}
		waits <- err
	}()
	if err := errors.Join(e.Close(), e.Close()); err != nil {
		t.Fatal(err)
	}
	if err := <-waits; !errors.Is(err, devices.ErrClosed) {
		t.Errorf("wait for a slot: %v, want %v", err, devices.ErrClosed)
	}
	clear(slot.Bytes())
	slot.Release()
	if s := e.Stats(); s.PinnedTotal != 0 {
		t.Errorf("%v still pinned", s.PinnedTotal)
	}
	host := transport.HostSpan(make([]byte, 1))
	if _, err := e.Copy(t.Context(), host, host); !errors.Is(err, devices.ErrClosed) {
		t.Errorf("copy: %v, want %v", err, devices.ErrClosed)
	}
	if err := e.Fill(t.Context(), host, 1); !errors.Is(err, devices.ErrClosed) {
		t.Errorf("fill: %v, want %v", err, devices.ErrClosed)
	}
	if _, err := e.View(t.Context(), devices.Span{}); !errors.Is(err, devices.ErrClosed) {
		t.Errorf("view: %v, want %v", err, devices.ErrClosed)
	}
	if _, ok := e.Slots().TryGet(1); ok {
		t.Error("a closed pool gave a slot")
	}
}

// TestCloseWaits closes while a copy is inside its device.
func TestCloseWaits(t *testing.T) {
	e, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := newRAM("ram0")
	s := memoryOn(t, d, 100)
	inside, goOn := make(chan struct{}), make(chan struct{})
	d.before = func(string) error {
		close(inside)
		<-goOn
		return nil
	}
	var copied atomic.Bool
	go func() {
		_, err := e.Copy(context.Background(), transport.HostSpan(make([]byte, 100)), transport.DeviceSpan(s))
		if err != nil {
			t.Error(err)
		}
	}()
	<-inside
	closed := make(chan error)
	go func() {
		err := e.Close()
		if !copied.Load() {
			t.Error("closed before the copy had ended")
		}
		closed <- err
	}()
	copied.Store(true)
	close(goOn)
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestStatsJSON(t *testing.T) {
	e := newEngine(t, transport.Options{})
	if text, err := json.Marshal(e.Stats()); err != nil || string(text) != `{"paths":[],"pinned_in_use":0,"pinned_total":0,"pin_failures":0,"registered":`+
		`{"bytes":0,"hits":0,"registered":0,"failures":0,"evicted":0,"stale":0,"direct_bytes":0}}` {
		t.Errorf("fresh counters are %s, error %v", text, err)
	}
	host := transport.HostSpan(make([]byte, 10))
	other := transport.HostSpan(make([]byte, 10))
	for range 3 {
		if _, err := e.Copy(t.Context(), other, host); err != nil {
			t.Fatal(err)
		}
	}
	row := e.Stats().Paths[0]
	if row.Operations != 3 || row.Bytes != 30 || row.Seconds <= 0 {
		t.Errorf("row %+v", row)
	}
	for i, b := range row.Latency {
		if i > 0 && (b.LE <= row.Latency[i-1].LE || b.Count < row.Latency[i-1].Count) {
			t.Errorf("bucket %d: %+v after %+v", i, b, row.Latency[i-1])
		}
	}
	if last := row.Latency[len(row.Latency)-1]; last.Count != 3 {
		t.Errorf("last bucket %+v, want 3 operations", last)
	}
}

// TestCopyAllocations keeps the small copies cheap.
func TestCopyAllocations(t *testing.T) {
	if kit.Race() {
		t.Skip("the race detector allocates")
	}
	e := newEngine(t, transport.Options{})
	d := newRAM("ram0")
	dst, src := transport.HostSpan(make([]byte, 4096)), transport.DeviceSpan(memoryOn(t, d, 4096))
	got := testing.AllocsPerRun(100, func() {
		if _, err := e.Copy(t.Context(), dst, src); err != nil {
			t.Fatal(err)
		}
	})
	if got != 0 {
		t.Errorf("%v allocations a copy", got)
	}
}
