package devicetest

import (
	"context"
	"errors"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
)

// Opener opens a fresh, unused device with at least a MiB of memory. The suite closes it.
type Opener func(t *testing.T) devices.Device

// Run runs the whole suite.
func Run(t *testing.T, open Opener) {
	t.Helper()
	for _, c := range []struct {
		name  string
		check func(*env)
	}{
		{"Facts", checkFacts},
		{"Sizes", checkSizes},
		{"Unaligned", checkUnaligned},
		{"Copy", checkCopy},
		{"CopyOverlap", checkCopyOverlap},
		{"Fill", checkFill},
		{"ZeroLength", checkZeroLength},
		{"Range", checkRange},
		{"WrongDevice", checkWrongDevice},
		{"References", checkReferences},
		{"Full", checkFull},
		{"Impossible", checkImpossible},
		{"Concurrent", checkConcurrent},
		{"ConcurrentAlloc", checkConcurrentAlloc},
		{"Cancelled", checkCancelled},
		{"Epoch", checkEpoch},
		{"MapHost", checkMapHost},
		{"PinHost", checkPinHost},
		{"CopyPeer", checkCopyPeer},
		{"Files", checkFiles},
		{"Reduce", checkReduce},
		{"ReduceRefused", checkReduceRefused},
		{"Stream", checkStream},
		{"StreamOrder", checkStreamOrder},
		{"StreamEventClosed", checkStreamEventClosed},
		{"StreamFails", checkStreamFails},
		{"Export", checkExport},
		{"Import", checkImport},
		{"Lasting", checkLasting},
		{"Close", checkClose},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := &env{T: t, open: open, ctx: t.Context()}
			e.dev = e.another()
			c.check(e)
		})
	}
}

// env holds one check's device, with helper methods.
type env struct {
	*testing.T
	open Opener
	ctx  context.Context //nolint:containedctx // as long as the test that it belongs to
	dev  devices.Device
}

// another opens one more device, which is closed with the test.
func (e *env) another() devices.Device {
	e.Helper()
	dev := e.open(e.T)
	e.Cleanup(func() {
		if err := dev.Close(); err != nil {
			e.Errorf("close: %v", err)
		}
	})
	return dev
}

func (e *env) ok(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// fails checks that the error is the expected one.
func (e *env) fails(what string, err, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Errorf("%s: error %v, want %v", what, err, want)
	}
}

// alloc allocates memory that is released with the test, unless it was released before.
func (e *env) alloc(n int) *devices.Memory {
	e.Helper()
	mem, err := e.dev.Alloc(e.ctx, devices.Size(n))
	e.ok(err)
	e.checkMemory(mem, n)
	return mem
}

func (e *env) checkMemory(mem *devices.Memory, n int) {
	e.Helper()
	if mem.Size() != devices.Size(n) || mem.Device() != e.dev || mem.Epoch() != e.dev.Epoch() {
		e.Errorf("allocation of %d bytes has size %d, device %v, epoch %d (device: %d)",
			n, uint64(mem.Size()), mem.Device().Info().Name, mem.Epoch(), e.dev.Epoch())
	}
}

func (e *env) release(mems ...*devices.Memory) {
	e.Helper()
	for _, mem := range mems {
		e.ok(mem.Release())
	}
}

func (e *env) span(mem *devices.Memory, off, n int) devices.Span {
	e.Helper()
	s, err := mem.Span(devices.Range{Off: devices.Offset(off), Len: devices.Size(n)})
	e.ok(err)
	return s
}

// filled allocates memory with the given content.
func (e *env) filled(content []byte) *devices.Memory {
	e.Helper()
	mem := e.alloc(len(content))
	e.ok(e.dev.CopyIn(e.ctx, mem.All(), content))
	return mem
}

// holds checks the whole content of a memory.
func (e *env) holds(mem *devices.Memory, want []byte) {
	e.Helper()
	got := make([]byte, mem.Size())
	e.ok(e.dev.CopyOut(e.ctx, got, mem.All()))
	if err := Compare(got, want); err != nil {
		e.Fatal(err)
	}
}

func (e *env) used() devices.Size {
	e.Helper()
	u, err := e.dev.Usage()
	e.ok(err)
	total := e.dev.Info().Total
	if u.Total != total || u.Used > total || u.Free > total-u.Used {
		e.Errorf("usage %+v of a device with %d bytes", u, uint64(total))
	}
	return u.Used
}

// within returns n, or a quarter of the device if that is less.
func (e *env) within(n int) int {
	info := e.dev.Info()
	limit := info.Total / 4
	if info.MaxAlloc > 0 {
		limit = min(limit, info.MaxAlloc)
	}
	return int(min(devices.Size(n), limit))
}
