package pins

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// driver registers parts of one memory as a vendor's does: by the byte, for the whole
// process, and none twice.
type driver struct {
	t      *testing.T
	memory []byte
	full   bool
	mu     sync.Mutex
	// +checklocks:mu
	taken []bool
}

func newDriver(t *testing.T, n int) *driver {
	t.Helper()
	return &driver{t: t, memory: make([]byte, n), taken: make([]bool, n)}
}

var errFull = errors.New("no more can be registered")

func (d *driver) register(from, to int) func() (func() error, error) {
	set := func(value bool) {
		d.mu.Lock()
		defer d.mu.Unlock()
		for i := from; i < to; i++ {
			if d.taken[i] == value {
				d.t.Errorf("byte %d from %d to %d is so already: %v", i, from, to, value)
			}
			d.taken[i] = value
		}
	}
	return func() (func() error, error) {
		if d.full {
			return nil, errFull
		}
		set(true)
		return func() error { set(false); return nil }, nil
	}
}

// registered returns the number of registered bytes of p.
func (d *driver) registered(p []byte) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	from := len(d.taken) - cap(p)
	for _, is := range d.taken[from : from+len(p)] {
		if is {
			n++
		}
	}
	return n
}

// use is one Pin of a device.
type use struct {
	device, from, to int
	unpin            func() error
}

// TestTable pins and unpins at random for three devices and compares the table with the
// uses of each.
func TestTable(t *testing.T) {
	kit.Check(t)
	const n = 64
	d, rng := newDriver(t, n), rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the test must be repeatable
	var table Table[int]
	var uses []use
	refused := 0
	for range 20000 {
		dev, from := rng.IntN(3), rng.IntN(n)
		to := from + 1 + rng.IntN(min(16, n-from))
		switch k := rng.IntN(20); {
		case k < 8:
			unpin, err := table.Pin(dev, d.memory[from:to], d.register(from, to))
			if err == nil {
				uses = append(uses, use{dev, from, to, unpin})
			} else if refused++; !errors.Is(err, devices.ErrUnsupported) {
				t.Fatal(err)
			}
		case k < 19 && len(uses) > 0:
			i := rng.IntN(len(uses))
			if err := uses[i].unpin(); err != nil {
				t.Fatal(err)
			}
			uses = slices.Delete(uses, i, i+1)
		case k == 19:
			uses = leave(t, &table, dev, uses)
		}
		agree(t, &table, d, uses)
	}
	if refused == 0 {
		t.Error("nothing overlapped")
	}
}

// leave ends the uses of a device and returns those of the others. Ranges that are unpinned
// afterwards must have been unpinned before.
func leave(t *testing.T, table *Table[int], dev int, uses []use) []use {
	t.Helper()
	if err := table.Leave(dev); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(uses, func(u use) bool {
		if u.device != dev {
			return false
		}
		if err := u.unpin(); err != nil {
			t.Fatal(err)
		}
		return true
	})
}

// agree compares a table with the uses and with the driver's state.
func agree(t *testing.T, table *Table[int], d *driver, uses []use) {
	t.Helper()
	for _, u := range uses {
		if !table.Covers(u.device, d.memory[u.from:u.to]) {
			t.Fatalf("device %d has no use of %d to %d", u.device, u.from, u.to)
		}
	}
	if len(uses) == 0 && (d.registered(d.memory) != 0 || table.Covers(0, d.memory[:1])) {
		t.Fatal("nobody uses what is registered")
	}
	for rest := d.memory; len(rest) > 0; {
		n := table.Uniform(rest)
		if is := d.registered(rest[:n]); is != 0 && is != n {
			t.Fatalf("%d of %d bytes are registered", is, n)
		}
		rest = rest[n:]
	}
}

// TestTableTogether pins the same few ranges from many goroutines: the driver reports every
// range that is registered twice.
func TestTableTogether(t *testing.T) {
	kit.Check(t)
	d := newDriver(t, 64)
	var table Table[int]
	var all sync.WaitGroup
	for dev := range 4 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(dev), 3)) //nolint:gosec // the test must be repeatable
			for range 500 {
				from := 8 * rng.IntN(7)
				unpin, err := table.Pin(dev, d.memory[from:from+16], d.register(from, from+16))
				if errors.Is(err, devices.ErrUnsupported) {
					continue
				}
				if err != nil || !table.Covers(dev, d.memory[from+1:from+16]) {
					t.Errorf("device %d: %v", dev, err)
					return
				}
				if err := unpin(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := d.registered(d.memory); n != 0 {
		t.Errorf("%d bytes are registered still", n)
	}
}

// TestPinFails checks that memory that can't be registered is not in the table.
func TestPinFails(t *testing.T) {
	kit.Check(t)
	d := newDriver(t, 8)
	d.full = true
	var table Table[int]
	if _, err := table.Pin(0, d.memory, d.register(0, 8)); !errors.Is(err, errFull) {
		t.Errorf("pinned: %v", err)
	}
	if table.Covers(0, d.memory) || table.Uniform(d.memory) != 8 {
		t.Error("it counts as pinned")
	}
}
