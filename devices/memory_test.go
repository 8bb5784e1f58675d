package devices

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
)

func newStub() *stub { return &stub{info: Info{Name: "stub0"}, epoch: 5} }

// memoryOf returns memory that counts how often it was freed.
func memoryOf(d Device, n Size, freed *int, err error) *Memory {
	return NewMemory(MemorySpec{Device: d, Size: n, Epoch: d.Epoch(), Handle: "handle", Free: func() error {
		*freed++
		return err
	}})
}

func TestMemoryFreesOnce(t *testing.T) {
	d, freed := newStub(), 0
	mem := memoryOf(d, 100, &freed, nil)
	if mem.Device() != d || mem.Size() != 100 || mem.Epoch() != 5 || mem.Handle() != "handle" {
		t.Errorf("%+v", mem)
	}
	var wg sync.WaitGroup
	for range 50 {
		mem.Retain()
		wg.Go(func() {
			mem.Retain()
			if err := errors.Join(mem.Release(), mem.Release()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if freed != 0 {
		t.Error("freed while it was held")
	}
	if err := mem.Release(); err != nil || freed != 1 {
		t.Errorf("freed %d times, %v", freed, err)
	}
	for what, f := range map[string]func(){
		"release": func() { _ = mem.Release() },
		"retain":  func() { mem.Retain() },
	} {
		func() {
			defer func() {
				if r := recover(); r == nil {
					t.Errorf("%s after the last release did not panic", what)
				}
			}()
			f()
		}()
	}
	if freed != 1 {
		t.Errorf("freed %d times", freed)
	}
}

func TestMemoryFreeError(t *testing.T) {
	freed := 0
	mem := memoryOf(newStub(), 1<<20, &freed, ErrDevice)
	if err := mem.Release(); !errors.Is(err, ErrDevice) || !strings.Contains(err.Error(), "free 1.0 MiB on stub0") {
		t.Errorf("%v", err)
	}
	if err := NewMemory(MemorySpec{Device: newStub(), Size: 1}).Release(); err != nil {
		t.Errorf("memory without a free: %v", err)
	}
}

func TestSpan(t *testing.T) {
	d, freed := newStub(), 0
	mem := memoryOf(d, 100, &freed, nil)
	s, err := mem.Span(Range{10, 50})
	if err != nil || s.Check(d) != nil {
		t.Fatalf("%v, %v", s, err)
	}
	if sub, err := s.Sub(50, 0); err != nil || sub.Range != (Range{60, 0}) {
		t.Errorf("%v, %v", sub, err)
	}
	if sub, err := s.Sub(5, 45); err != nil || sub.Range != (Range{15, 45}) {
		t.Errorf("%v, %v", sub, err)
	}
	for _, r := range []Range{{0, 51}, {51, 0}, {50, 1}, {math.MaxUint64, 1}, {1, math.MaxUint64}} {
		if sub, err := s.Sub(r.Off, r.Len); !errors.Is(err, ErrRange) {
			t.Errorf("sub %v: %v, %v", r, sub, err)
		}
	}
	for _, r := range []Range{{0, 101}, {101, 0}, {math.MaxUint64, 2}} {
		if s, err := mem.Span(r); !errors.Is(err, ErrRange) {
			t.Errorf("span %v: %v, %v", r, s, err)
		}
		if err := (Span{Mem: mem, Range: r}).Check(d); !errors.Is(err, ErrRange) {
			t.Errorf("check %v: %v", r, err)
		}
	}
	for what, err := range map[string]error{
		"no memory":    Span{}.Check(d),
		"other device": mem.All().Check(newStub()),
	} {
		if !errors.Is(err, ErrRange) {
			t.Errorf("%s: %v", what, err)
		}
	}
	d.epoch++
	if err := mem.All().Check(d); !errors.Is(err, ErrLost) {
		t.Errorf("another epoch: %v", err)
	}
	if err := mem.Release(); err != nil {
		t.Fatal(err)
	}
	if err := mem.All().Check(d); !errors.Is(err, ErrClosed) {
		t.Errorf("released: %v", err)
	}
}

func TestAbilitiesAbsent(t *testing.T) {
	d, freed := newStub(), 0
	mem := memoryOf(d, 100, &freed, nil)
	if _, err := MapHost(context.Background(), mem.All(), ReadOnly); !errors.Is(err, ErrUnsupported) {
		t.Errorf("map: %v", err)
	}
	if err := CopyPeer(context.Background(), mem.All(), mem.All()); !errors.Is(err, ErrUnsupported) {
		t.Errorf("peer copy: %v", err)
	}
	if _, ok := FilesOf(d); ok {
		t.Error("files of a device without them")
	}
	unpin, pinned := PinHost(d, make([]byte, 10))
	unpin()
	if pinned {
		t.Error("pinned by a device that can't")
	}
}

func TestOutOfMemoryError(t *testing.T) {
	var err error = &OutOfMemoryError{Device: "sim0", Asked: 2 * GiB, Free: MiB}
	if !errors.Is(err, ErrOutOfMemory) || errors.Is(err, ErrRange) {
		t.Error("the typed error is not ErrOutOfMemory")
	}
	const want = "sim0: out of memory: 2.0 GiB asked, 1.0 MiB free; remove files or mount with a larger size="
	if err.Error() != want {
		t.Errorf("%q", err)
	}
}
