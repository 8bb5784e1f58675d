package card_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/card"
)

var (
	errFull   = errors.New("runtime: full")
	errSticky = fmt.Errorf("runtime: off the bus: %w", devices.ErrDevice)
	errAsked  = errors.New("runtime: busy")
)

// fake is a runtime that records its calls.
type fake struct {
	bound, retained, cleared int
	free                     devices.Size
	failFree                 error
	live                     []card.Address
}

func (f *fake) Bind() error                       { f.bound++; return nil }
func (f *fake) Retain() error                     { f.retained++; return nil }
func (f *fake) Release() error                    { f.retained--; return nil }
func (f *fake) Sticky(err error) bool             { return errors.Is(err, errSticky) }
func (f *fake) OutOfMemory(err error) bool        { return errors.Is(err, errFull) }
func (f *fake) clear() error                      { f.cleared++; return nil }
func (f *fake) FreeMemory() (devices.Size, error) { return f.free, f.failFree }

// device is a device that has a card and nothing else.
type device struct {
	devices.Device
	*card.Card
}

func (d device) Info() devices.Info            { return d.Card.Info() }
func (d device) Epoch() devices.Epoch          { return d.Card.Epoch() }
func (d device) Usage() (devices.Usage, error) { return d.Card.Usage() }
func (d device) Close() error                  { return d.Card.Close() }

const (
	total = 100 * devices.MiB
	unit  = 2 * devices.MiB
)

func open(t *testing.T) (*fake, device) {
	t.Helper()
	f := &fake{free: total, retained: 1}
	d := device{Card: card.New(card.Spec{
		Info: devices.Info{Name: "cuda0", Total: total},
		Runtime: card.Runtime{
			Bind: f.Bind, Retain: f.Retain, Release: f.Release, FreeMemory: f.FreeMemory, Sticky: f.Sticky, OutOfMemory: f.OutOfMemory,
		},
		Log: zap.NewNop(), Set: &card.Set{}, Clear: f.clear,
	})}
	d.SetSelf(d)
	return f, d
}

// take allocates n bytes in whole units.
func (f *fake) take(d device, n devices.Size) (*devices.Memory, error) {
	addr := card.Address(0x1000 * (len(f.live) + 1))
	return d.Take(context.Background(), n, card.RoundUp(n, unit), func(whole devices.Size) (*card.Block, error) {
		f.live = append(f.live, addr)
		return &card.Block{Addr: addr, Size: whole, Give: func() error {
			i := slices.Index(f.live, addr)
			if i < 0 {
				return errors.New("freed twice")
			}
			f.live = slices.Delete(f.live, i, i+1)
			return nil
		}}, nil
	}, nil)
}

func (d device) wantUsed(t *testing.T, want devices.Size) {
	t.Helper()
	if u, err := d.Usage(); err != nil || u.Used != want || u.Free != total-want {
		t.Errorf("usage %+v, %v; want %v used", u, err, want)
	}
}

func TestAccounting(t *testing.T) {
	f, d := open(t)
	a, err := f.take(d, 3*devices.MiB)
	if err != nil {
		t.Fatal(err)
	}
	d.wantUsed(t, 4*devices.MiB)
	if _, err = f.take(d, total-3*devices.MiB); !errors.Is(err, devices.ErrOutOfMemory) {
		t.Errorf("more than is left: %v", err)
	}
	if _, err = f.take(d, 0); !errors.Is(err, devices.ErrRange) {
		t.Errorf("0 bytes: %v", err)
	}
	if _, err = f.take(d, ^devices.Size(0)); !errors.Is(err, devices.ErrOutOfMemory) {
		t.Errorf("a size that overflows when it is rounded up: %v", err)
	}
	d.wantUsed(t, 4*devices.MiB)
	if err = a.Release(); err != nil {
		t.Fatal(err)
	}
	d.wantUsed(t, 0)
	b, err := f.take(d, unit)
	if err != nil {
		t.Fatal(err)
	}
	if err = d.Close(); err != nil || len(f.live) != 0 || f.retained != 0 || f.cleared != 1 {
		t.Errorf("close: %v, %d blocks, retained %d times, cleared %d times", err, len(f.live), f.retained, f.cleared)
	}
	if err = b.Release(); err != nil {
		t.Errorf("memory released after its card was closed: %v", err)
	}
}

func TestBlockThatCannotBeMade(t *testing.T) {
	for _, c := range []struct {
		name     string
		make     error // of the allocation
		free     error // of asking for the free memory
		is, isNo error
		text     string
	}{
		{"full", errFull, nil, devices.ErrOutOfMemory, devices.ErrDevice, "cuda0: out of memory"},
		{"full, and how much is free is not known", errFull, errAsked, devices.ErrOutOfMemory, devices.ErrDevice, errAsked.Error()},
		{"full, and the card fails", errFull, errSticky, devices.ErrDevice, devices.ErrOutOfMemory, ""},
		{"another error", errAsked, nil, errAsked, devices.ErrOutOfMemory, "allocate 1.0 MiB on cuda0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, d := open(t)
			f.failFree = c.free
			_, err := d.Take(t.Context(), devices.MiB, unit, func(devices.Size) (*card.Block, error) { return nil, c.make }, nil)
			if !errors.Is(err, c.is) || errors.Is(err, c.isNo) || !strings.Contains(fmt.Sprint(err), c.text) {
				t.Errorf("%v; want %v, not %v, with %q", err, c.is, c.isNo, c.text)
			}
			if left := d.Left(); left != total {
				t.Errorf("%v left of %v", left, total)
			}
		})
	}
}

// A block whose preparation fails is returned, and is not counted.
func TestBlockThatCannotBeFinished(t *testing.T) {
	_, d := open(t)
	given := 0
	_, err := d.Take(t.Context(), devices.MiB, unit, func(whole devices.Size) (*card.Block, error) {
		return &card.Block{Size: whole, Give: func() error { given++; return nil }}, nil
	}, func(*card.Block) error { return errAsked })
	if !errors.Is(err, errAsked) || given != 1 || d.Left() != total {
		t.Errorf("%v; given back %d times, %v left", err, given, d.Left())
	}
}

func TestFailure(t *testing.T) {
	f, d := open(t)
	m, err := f.take(d, unit)
	if err != nil {
		t.Fatal(err)
	}
	before := d.Epoch()
	if err = d.On(func() error { return errSticky }); !errors.Is(err, errSticky) {
		t.Errorf("the call that failed: %v", err)
	}
	bound := f.bound
	if d.Epoch() == before || !errors.Is(d.Failed(), devices.ErrDevice) {
		t.Errorf("epoch %v after %v, failure %v", d.Epoch(), before, d.Failed())
	}
	if err = d.On(func() error { t.Error("called after the failure"); return nil }); !errors.Is(err, devices.ErrDevice) {
		t.Errorf("after the failure: %v", err)
	}
	if _, err = f.take(d, unit); !errors.Is(err, devices.ErrDevice) {
		t.Errorf("an allocation after the failure: %v", err)
	}
	if u, uerr := d.Usage(); uerr != nil || u.Free != 0 {
		t.Errorf("usage %+v, %v", u, uerr)
	}
	if err = errors.Join(m.Release(), d.Close()); err != nil {
		t.Error(err)
	}
	if f.bound != bound || len(f.live) != 1 {
		t.Errorf("%d calls after the failure, %d blocks left; want 0 and 1", f.bound-bound, len(f.live))
	}
}

func TestReach(t *testing.T) {
	_, a := open(t)
	_, b := open(t)
	asked := 0
	join := func(can bool, err error) func() (bool, error) {
		return func() (bool, error) { asked++; return can, err }
	}
	if err := a.Reach(b.Card, false, join(false, errAsked)); !errors.Is(err, errAsked) {
		t.Errorf("a question that failed: %v", err)
	}
	for range 3 {
		if err := a.Reach(b.Card, false, join(false, nil)); !errors.Is(err, devices.ErrUnsupported) {
			t.Errorf("a pair without access: %v", err)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times, want 2: again only after an error", asked)
	}
}
