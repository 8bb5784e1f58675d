package region

import (
	"bytes"
	"context"
	"errors"
	"math"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/wire"
)

func newTable(t *testing.T) *Table {
	t.Helper()
	e, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return NewTable(e)
}

func closeBuffer(t *testing.T, b *Buffer) {
	t.Helper()
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// readable is 100 bytes and a key to read them.
func readable(t *testing.T, table *Table) (*Buffer, *Keys, wire.Descriptor) {
	t.Helper()
	b, err := table.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	keys := NewKeys()
	d, err := keys.Grant(b, wire.Readable)
	if err != nil {
		t.Fatal(err)
	}
	return b, keys, d
}

// deviceMemory is n bytes of a simulated device, which must all be free at
// the end.
func deviceMemory(t *testing.T, n devices.Size, p sim.Params) *devices.Memory {
	t.Helper()
	p.Size = 4 * n
	dev := sim.New(0, p)
	m, err := dev.Alloc(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Release(); err != nil {
			t.Error(err)
		}
		if u, err := dev.Usage(); err != nil || u.Used != 0 {
			t.Errorf("device memory is left: %+v, %v", u, err)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// buffers calls fn for every kind of memory.
func buffers(t *testing.T, n devices.Size, fn func(t *testing.T, b *Buffer)) {
	t.Helper()
	for name, make := range map[string]func(t *testing.T, table *Table) (*Buffer, error){
		"alloc":    func(_ *testing.T, table *Table) (*Buffer, error) { return table.Alloc(n) },
		"register": func(_ *testing.T, table *Table) (*Buffer, error) { return table.Register(kit.Bytes(9, 0, int(n))) },
		"sim": func(t *testing.T, table *Table) (*Buffer, error) {
			return table.RegisterDevice(deviceMemory(t, n, sim.Params{}).All())
		},
		"sim mapped": func(t *testing.T, table *Table) (*Buffer, error) {
			return table.RegisterDevice(deviceMemory(t, n, sim.Params{Mapped: true}).All())
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := make(t, newTable(t))
			if err != nil {
				t.Fatal(err)
			}
			defer closeBuffer(t, b)
			fn(t, b)
		})
	}
}

func TestStoreLoadMove(t *testing.T) {
	const size = 100_000
	buffers(t, size, func(t *testing.T, b *Buffer) {
		want := kit.Bytes(1, 0, size)
		if err := b.Store(t.Context(), 0, transport.HostSpan(want)); err != nil {
			t.Fatal(err)
		}
		for _, m := range []struct{ to, from, n int }{{100, 0, 50_000}, {0, 777, 60_000}, {size, 0, 0}, {5, 5, 9}} {
			copy(want[m.to:m.to+m.n], want[m.from:m.from+m.n])
			if err := Copy(t.Context(), b, devices.Offset(m.to), b, devices.Offset(m.from), devices.Size(m.n)); err != nil {
				t.Fatal(err)
			}
		}
		got := make([]byte, size-7)
		if err := b.Load(t.Context(), transport.HostSpan(got), 7); err != nil {
			t.Fatal(err)
		}
		if i := kit.FirstDiff(got, want[7:]); i >= 0 {
			t.Errorf("differs at %d", i)
		}
	})
}

func TestBounds(t *testing.T) {
	const size = 4096
	buffers(t, size, func(t *testing.T, b *Buffer) {
		if err := b.Store(t.Context(), 0, transport.HostSpan(kit.Bytes(2, 0, size))); err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			off  devices.Offset
			n    int
			good bool
		}{
			{0, 0, true},
			{size, 0, true},
			{size - 2, 2, true},
			{size + 1, 0, false},
			{size - 1, 2, false},
			{0, size + 1, false},
			{math.MaxUint64 - 1, 2, false},
			{math.MaxUint64, 2, false},
			{math.MaxInt64, 2, false},
		} {
			p := make([]byte, tc.n)
			if tc.good {
				copy(p, kit.Bytes(2, int64(tc.off), tc.n))
			}
			for name, err := range map[string]error{
				"store": b.Store(t.Context(), tc.off, transport.HostSpan(p)),
				"load":  b.Load(t.Context(), transport.HostSpan(p), tc.off),
				"to":    Copy(t.Context(), b, tc.off, b, 0, devices.Size(tc.n)),
				"from":  Copy(t.Context(), b, 0, b, tc.off, devices.Size(tc.n)),
			} {
				if tc.good != (err == nil) || !tc.good && !errors.Is(err, devices.ErrRange) {
					t.Errorf("%s, off %d, %d bytes: %v", name, uint64(tc.off), tc.n, err)
				}
			}
			if err := b.Store(t.Context(), 0, transport.HostSpan(kit.Bytes(2, 0, size))); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestAliasesShareARegistration(t *testing.T) {
	kit.Check(t)
	table := newTable(t)
	mem := kit.Bytes(3, 0, 1000)
	register := func(from, to int) *Buffer {
		b, err := table.Register(mem[from:to])
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	parent := register(100, 900)
	same, child := register(100, 900), register(200, 300)
	if s := table.Stats(); s != (Stats{Registrations: 1, Aliases: 2, Live: 1}) {
		t.Fatalf("after three of one range: %+v", s)
	}
	outside := register(800, 1000)
	if s := table.Stats(); s.Registrations != 2 || s.Live != 2 {
		t.Fatalf("a range that sticks out: %+v", s)
	}
	closeBuffer(t, parent)
	closeBuffer(t, parent)
	closeBuffer(t, same)
	if s := table.Stats(); s.Live != 2 {
		t.Fatalf("the parent went before its child: %+v", s)
	}
	got := make([]byte, 100)
	if err := child.Load(t.Context(), transport.HostSpan(got), 0); err != nil || !bytes.Equal(got, mem[200:300]) {
		t.Errorf("a child after its parent: %v", err)
	}
	if err := parent.Load(t.Context(), transport.HostSpan(got), 0); !errors.Is(err, devices.ErrClosed) {
		t.Errorf("a closed parent: %v", err)
	}
	closeBuffer(t, child)
	closeBuffer(t, outside)
	if s := table.Stats(); s.Live != 0 {
		t.Errorf("all closed: %+v", s)
	}
}

func TestDeviceAliasesKeepTheMemory(t *testing.T) {
	table := newTable(t)
	m := deviceMemory(t, 8192, sim.Params{})
	parent, err := table.RegisterDevice(m.All())
	if err != nil {
		t.Fatal(err)
	}
	part, err := m.Span(devices.Range{Off: 4096, Len: 100})
	if err != nil {
		t.Fatal(err)
	}
	child, err := table.RegisterDevice(part)
	if err != nil {
		t.Fatal(err)
	}
	closeBuffer(t, parent)
	want := kit.Bytes(4, 0, 100)
	if err := child.Store(t.Context(), 0, transport.HostSpan(want)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 100)
	if err := m.Device().CopyOut(t.Context(), got, part); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v", err)
	}
	closeBuffer(t, child)
}

func TestNothingCanNotBeRegistered(t *testing.T) {
	table := newTable(t)
	for name, err := range map[string]error{
		"alloc 0":      second(table.Alloc(0)),
		"alloc 2^63":   second(table.Alloc(1 << 63)),
		"no bytes":     second(table.Register(nil)),
		"no memory":    second(table.RegisterDevice(devices.Span{})),
		"empty part":   second(table.RegisterDevice(devices.Span{Mem: deviceMemory(t, 100, sim.Params{})})),
		"wrapped part": second(table.RegisterDevice(devices.Span{Mem: deviceMemory(t, 100, sim.Params{}), Range: devices.Range{Off: math.MaxUint64, Len: 2}})),
	} {
		if !errors.Is(err, devices.ErrRange) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s := table.Stats(); s != (Stats{}) {
		t.Errorf("counted: %+v", s)
	}
}

func second[T any](_ T, err error) error { return err }

func TestKeys(t *testing.T) {
	table := newTable(t)
	b, err := table.Alloc(1000)
	if err != nil {
		t.Fatal(err)
	}
	mine, other := NewKeys(), NewKeys()
	full, err := mine.Grant(b, wire.Readable|wire.Writable)
	if err != nil {
		t.Fatal(err)
	}
	reading, err := mine.Grant(b, wire.Readable)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := other.Grant(b, wire.Readable|wire.Writable)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		key  wire.Key
		need wire.Rights
		off  uint64
		n    devices.Size
		want wire.Status
	}{
		{"all", full.Key, wire.Writable, 0, 1000, wire.StatusOK},
		{"read only, read", reading.Key, wire.Readable, 999, 1, wire.StatusOK},
		{"read only, write", reading.Key, wire.Writable, 0, 1, wire.StatusRights},
		{"of another peer", foreign.Key, wire.Readable, 0, 1, wire.StatusKey},
		{"zero", 0, wire.Readable, 0, 1, wire.StatusKey},
		{"next number", full.Key + 1, wire.Readable, 0, 1, wire.StatusKey},
		{"behind the end", full.Key, wire.Readable, 999, 2, wire.StatusRange},
		{"wrapped", full.Key, wire.Writable, math.MaxUint64, 2, wire.StatusRange},
		{"large", full.Key, wire.Writable, 0, math.MaxUint64, wire.StatusRange},
	} {
		u, status := mine.Use(tc.key, tc.need, tc.off, tc.n)
		if status != tc.want {
			t.Errorf("%s: %s", tc.name, status)
		}
		if status == wire.StatusOK {
			u.Release()
		}
	}
	if err := mine.Revoke(t.Context(), full.Key); err != nil {
		t.Fatal(err)
	}
	if _, status := mine.Use(full.Key, wire.Readable, 0, 1); status != wire.StatusKey {
		t.Errorf("a revoked key: %s", status)
	}
	if err := mine.Revoke(t.Context(), full.Key); !errors.Is(err, ErrKey) {
		t.Errorf("revoked twice: %v", err)
	}
	mine.Close()
	if _, status := mine.Use(reading.Key, wire.Readable, 0, 1); status != wire.StatusKey {
		t.Errorf("after the session: %s", status)
	}
	if _, err := mine.Grant(b, wire.Readable); !errors.Is(err, devices.ErrClosed) {
		t.Errorf("granted after the session: %v", err)
	}
	if _, err := other.Grant(b, 0); !errors.Is(err, ErrRights) {
		t.Errorf("granted no rights: %v", err)
	}
	closeBuffer(t, b)
	if _, status := other.Use(foreign.Key, wire.Readable, 0, 1); status != wire.StatusKey {
		t.Errorf("of a closed buffer: %s", status)
	}
	if _, err := other.Grant(b, wire.Readable); !errors.Is(err, devices.ErrClosed) {
		t.Errorf("granted for a closed buffer: %v", err)
	}
}

// Revoke and Close return only when no operation accesses the memory.
func TestEndsWaitForOperations(t *testing.T) {
	kit.Check(t)
	table := newTable(t)
	b, keys, d := readable(t, table)
	u, status := keys.Use(d.Key, wire.Readable, 0, 1)
	if status != wire.StatusOK {
		t.Fatal(status)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := keys.Revoke(gone, d.Key); !errors.Is(err, context.Canceled) {
		t.Errorf("revoked under a use: %v", err)
	}
	if err := b.Close(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("closed under a use: %v", err)
	}
	if s := table.Stats(); s.Live != 1 {
		t.Errorf("the memory went: %+v", s)
	}
	var ended sync.WaitGroup
	ended.Go(func() { closeBuffer(t, b) })
	u.Release()
	ended.Wait()
	if s := table.Stats(); s.Live != 0 {
		t.Errorf("the memory stays: %+v", s)
	}
}

func TestConcurrentUse(t *testing.T) {
	kit.Check(t)
	b, keys, first := readable(t, newTable(t))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				u, status := keys.Use(first.Key, wire.Readable, 0, 1)
				if status != wire.StatusOK {
					return
				}
				u.Release()
			}
		})
		all.Go(func() {
			for range 100 {
				d, err := keys.Grant(b, wire.Writable)
				if err == nil {
					err = keys.Revoke(t.Context(), d.Key)
				}
				if err != nil {
					t.Error(err)
				}
			}
			_ = keys.Revoke(t.Context(), first.Key)
		})
	}
	all.Wait()
	closeBuffer(t, b)
}

func TestUseAllocatesNothing(t *testing.T) {
	if kit.Race() {
		t.Skip("the race detector allocates")
	}
	b, keys, d := readable(t, newTable(t))
	defer closeBuffer(t, b)
	if n := testing.AllocsPerRun(100, func() {
		if u, status := keys.Use(d.Key, wire.Readable, 0, 100); status == wire.StatusOK {
			u.Release()
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestStatusErrors(t *testing.T) {
	for status, want := range map[wire.Status]error{
		wire.StatusOK: nil, wire.StatusKey: ErrKey, wire.StatusRights: ErrRights,
		wire.StatusRange: devices.ErrRange, wire.StatusDevice: devices.ErrDevice, 99: devices.ErrDevice,
	} {
		if err := StatusError(status); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("%s: %v", status, err)
		}
	}
}

// Keys that are not revoked do not outnumber the buffers for long: sharing and
// closing memory repeatedly needs no more and more memory for it.
func TestKeysOfClosedBuffers(t *testing.T) {
	kit.Check(t)
	table, keys := NewTable(nil), NewKeys()
	page := kit.Bytes(1, 0, 100)
	var live []*Buffer
	for i := range 10 * minSweep {
		b, err := table.Register(page)
		if err != nil {
			t.Fatal(err)
		}
		d, err := keys.Grant(b, wire.Readable)
		if err != nil {
			t.Fatal(err)
		}
		if i%100 == 0 {
			live = append(live, b)
			defer func() {
				if use, status := keys.Use(d.Key, wire.Readable, 0, 1); status != wire.StatusOK {
					t.Errorf("key %d: %s", i, status)
				} else {
					use.Release()
				}
			}()
			continue
		}
		if err = b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if n := len(*keys.grants.Load()); n > 2*minSweep {
		t.Errorf("%d keys for %d buffers", n, len(live))
	}
}
