package devicetest

import (
	"os"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/memfd"
)

// checkLasting allocates memory behind a descriptor, and continues with it on another device.
func checkLasting(e *env) {
	first, ok := devices.LastingOf(e.dev)
	if !ok {
		return
	}
	size := e.within(64*kib) / 4096 * 4096
	file, err := memfd.Create("lasting", int64(size))
	e.ok(err)
	e.Cleanup(func() { e.ok(file.Close()) })
	f, before := file, e.used()
	_, own := devices.LastingMakerOf(e.dev)
	if own {
		f = e.makeLasting(first, size, file)
	}
	mem, err := first.AllocIn(e.ctx, f, devices.Size(size))
	if err != nil {
		e.fails("AllocIn", err, devices.ErrUnsupported)
		e.fails("Resume", first.Resume(e.dev.Epoch()), devices.ErrUnsupported)
		return
	}
	want := Bytes(size, 1)
	e.ok(e.dev.CopyIn(e.ctx, e.span(mem, 0, size), want))
	e.ok(e.dev.Fill(e.ctx, e.span(mem, 100, 50), 7))
	for i := range 50 {
		want[100+i] = 7
	}
	used, epoch := e.used(), e.dev.Epoch()
	if used < before+devices.Size(size) {
		e.Errorf("memory behind a descriptor is not counted: %v in use, %v before", used, before)
	}
	other := e.another()
	second, _ := devices.LastingOf(other)
	e.ok(second.Resume(epoch))
	if own {
		e.release(mem) // the descriptor has it
		other, second = e.dev, first
	}
	again, err := second.AllocIn(e.ctx, f, devices.Size(size))
	e.ok(err)
	if other.Epoch() != epoch || again.Epoch() != epoch {
		e.Errorf("epochs %d and %d after the first device's %d", other.Epoch(), again.Epoch(), epoch)
	}
	if own {
		e.ok(f.Close())
	} else {
		e.release(mem)
	}
	got := make([]byte, size)
	e.ok(other.CopyOut(e.ctx, got, again.All()))
	e.ok(Compare(got, want))
	e.release(again)
	if !own {
		e.ok(Compare(contentOf(e, f, size), want))
	}
	if used = e.used(); used != before {
		e.Errorf("%v in use in the end, %v before", used, before)
	}
}

// makeLasting makes a descriptor of memory of the device's own. wrong is one of other memory.
func (e *env) makeLasting(first devices.Lasting, size int, wrong *os.File) *os.File {
	e.Helper()
	before := e.used()
	maker, _ := devices.LastingMakerOf(e.dev)
	f, err := maker.MakeLasting(e.ctx, devices.Size(size))
	e.ok(err)
	_, err = first.AllocIn(e.ctx, wrong, devices.Size(size))
	e.fails("AllocIn of another file", err, devices.ErrHandle)
	_, err = maker.MakeLasting(e.ctx, 1<<50)
	e.fails("MakeLasting", err, devices.ErrOutOfMemory)
	if used := e.used(); used != before {
		e.Errorf("%v in use after failures, %v before", used, before)
	}
	return f
}

func contentOf(e *env, f *os.File, n int) []byte {
	e.Helper()
	p := make([]byte, n)
	_, err := f.ReadAt(p, 0)
	e.ok(err)
	return p
}
