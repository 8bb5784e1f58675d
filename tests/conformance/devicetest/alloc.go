package devicetest

import (
	"errors"
	"math/bits"
	"sync"

	"github.com/hmcfs/hmcfs/devices"
)

func checkFacts(e *env) {
	info := e.dev.Info()
	switch {
	case info.Name == "" || info.Family == "":
		e.Errorf("a device without a name or a family: %+v", info)
	case info.Total < devices.MiB:
		e.Errorf("a device of %v", info.Total)
	case info.MaxAlloc > info.Total:
		e.Errorf("one allocation of %v on a device of %v", info.MaxAlloc, info.Total)
	case bits.OnesCount64(uint64(info.Align)) > 1:
		e.Errorf("alignment %d", uint64(info.Align))
	case info != e.dev.Info():
		e.Error("the facts change")
	}
	if used := e.used(); used != 0 {
		e.Errorf("%v in use on a fresh device", used)
	}
}

// checkReferences retains and releases memory, and uses it after its end.
func checkReferences(e *env) {
	before := e.used()
	want := Bytes(1000, 1)
	mem := e.filled(want)
	mem.Retain()
	e.ok(mem.Release())
	e.holds(mem, want)
	if e.used() < before+1000 {
		e.Error("memory that is held is not counted")
	}
	e.ok(mem.Release())
	if now := e.used(); now != before {
		e.Errorf("%v in use after the release, %v before", now, before)
	}
	e.each(mem.All(), 1000, func(what string, err error) {
		e.fails(what+" after the release", err, devices.ErrClosed)
	})
}

// checkFull allocates memory until none is left, and frees it, twice.
func checkFull(e *env) {
	before := e.used()
	for range 2 {
		mems, sum := e.takeAll()
		if used := e.used(); used < before+sum {
			e.Errorf("%d bytes taken, %d counted", uint64(sum), uint64(used-before))
		}
		if sum < e.dev.Info().Total/2 {
			e.Errorf("only %v of %v could be taken", sum, e.dev.Info().Total)
		}
		e.release(mems...)
		if used := e.used(); used != before {
			e.Fatalf("%v in use after the release, %v before", used, before)
		}
	}
}

// takeAll allocates ever smaller blocks until not even a page is left.
func (e *env) takeAll() (mems []*devices.Memory, sum devices.Size) {
	info := e.dev.Info()
	piece := info.Total/5 + 1
	if info.MaxAlloc > 0 {
		piece = min(piece, info.MaxAlloc)
	}
	for piece >= 4096 {
		mem, err := e.dev.Alloc(e.ctx, piece)
		if err == nil {
			mems = append(mems, mem)
			sum += piece
			continue
		}
		e.outOfMemory(err, piece)
		piece /= 3
	}
	return mems, sum
}

// outOfMemory checks the typed error and its figures.
func (e *env) outOfMemory(err error, asked devices.Size) {
	e.Helper()
	var oom *devices.OutOfMemoryError
	if !errors.Is(err, devices.ErrOutOfMemory) || !errors.As(err, &oom) {
		e.Fatalf("%d bytes too many: %v", uint64(asked), err)
	}
	info := e.dev.Info()
	if oom.Device != info.Name || oom.Asked != asked || oom.Free > info.Total {
		e.Errorf("%d bytes asked of %s: %+v", uint64(asked), info.Name, oom)
	}
}

// checkImpossible requests allocations that no device can satisfy.
func checkImpossible(e *env) {
	info, before := e.dev.Info(), e.used()
	if mem, err := e.dev.Alloc(e.ctx, 0); err == nil {
		e.Error("an allocation of 0 bytes")
		e.release(mem)
	}
	sizes := []devices.Size{info.Total + 1, 1 << 62, 1<<63 - 1, 1 << 63, ^devices.Size(0)}
	if info.MaxAlloc > 0 {
		sizes = append(sizes, info.MaxAlloc+1)
	}
	for _, n := range sizes {
		mem, err := e.dev.Alloc(e.ctx, n)
		if err == nil {
			e.Errorf("an allocation of %d bytes", uint64(n))
			e.release(mem)
			continue
		}
		e.outOfMemory(err, n)
	}
	if now := e.used(); now != before {
		e.Errorf("%v in use after refusals, %v before", now, before)
	}
}

// checkConcurrentAlloc allocates and frees from many goroutines on a device that has too little
// memory for all of them.
func checkConcurrentAlloc(e *env) {
	before := e.used()
	n := e.within(64 << 20)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 20 {
				mem, err := e.dev.Alloc(e.ctx, devices.Size(n-g*4096-i))
				if errors.Is(err, devices.ErrOutOfMemory) {
					continue
				}
				if err != nil {
					e.Error(err)
					return
				}
				if err := mem.Release(); err != nil {
					e.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if now := e.used(); now != before {
		e.Errorf("%v in use at the end, %v before", now, before)
	}
}
