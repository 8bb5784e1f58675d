package opencl

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/ebitengine/purego"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/dl"
)

// returns returns a C function that does nothing and returns the code. All of the functions
// that it replaces take at most ten words.
func returns(code Code) dl.Func {
	return dl.Func(purego.NewCallback(func(_, _, _, _, _, _, _, _, _, _ uintptr) uintptr {
		return uintptr(uint32(code))
	}))
}

// broken replaces functions in a copy of the device's table, until the test
// ends.
func broken(t *testing.T, dev devices.Device, change func(*api)) {
	t.Helper()
	d := core(dev)
	whole := d.api
	table := *whole
	change(&table)
	d.api = &table
	t.Cleanup(func() { d.api = whole })
}

func TestErrorsNameCallAndCode(t *testing.T) {
	dev := open(t, "size=64MiB,map=off")
	mem := alloc(t, dev, 100)
	broken(t, dev, func(a *api) {
		a.EnqueueReadBuffer, a.EnqueueWriteBuffer = returns(-5), returns(-36)
		a.EnqueueCopyBuffer, a.EnqueueFillBuffer = returns(-8), returns(-9999)
	})
	p := make([]byte, 100)
	for want, err := range map[string]error{
		"clEnqueueReadBuffer: CL_OUT_OF_RESOURCES (-5)":        dev.CopyOut(t.Context(), p, mem.All()),
		"clEnqueueWriteBuffer: CL_INVALID_COMMAND_QUEUE (-36)": dev.CopyIn(t.Context(), mem.All(), p),
		"clEnqueueCopyBuffer: CL_MEM_COPY_OVERLAP (-8)":        dev.Copy(t.Context(), part(t, mem, 0, 9), part(t, mem, 9, 9)),
		"clEnqueueFillBuffer: unknown OpenCL error (-9999)":    dev.Fill(t.Context(), mem.All(), 0),
	} {
		if !errors.Is(err, devices.ErrDevice) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestCommandThatFailsLater(t *testing.T) {
	dev := open(t, "size=64MiB,map=off")
	mem := alloc(t, dev, 100)
	broken(t, dev, func(a *api) { a.WaitForEvents = returns(codeExecStatus) })
	err := dev.Fill(t.Context(), mem.All(), 0)
	if !errors.Is(err, devices.ErrDevice) || !strings.Contains(err.Error(), "clEnqueueFillBuffer") {
		t.Errorf("got %v", err)
	}
}

// TestAllocFails makes the driver refuse immediately, and late, when the memory is first
// used. Neither may leak anything.
func TestAllocFails(t *testing.T) {
	for name, change := range map[string]func(*api){
		"at once": func(a *api) {
			a.CreateBuffer = dl.Func(purego.NewCallback(func(_, _, _, _ uintptr, code *Code) uintptr {
				*code = codeAllocFailure
				return 0
			}))
		},
		"late": func(a *api) { a.EnqueueFillBuffer = returns(codeAllocFailure) },
	} {
		t.Run(name, func(t *testing.T) {
			dev := open(t, "size=64MiB,map=off")
			broken(t, dev, change)
			_, err := dev.Alloc(t.Context(), devices.MiB)
			var oom *devices.OutOfMemoryError
			if !errors.As(err, &oom) || !errors.Is(err, devices.ErrDevice) ||
				!strings.Contains(err.Error(), "CL_MEM_OBJECT_ALLOCATION_FAILURE") {
				t.Errorf("got %v", err)
			}
			if still := leftOf(dev); still != (left{}) {
				t.Errorf("left %+v", still)
			}
		})
	}
}

func TestMapFails(t *testing.T) {
	dev := openMapped(t, "size=1GiB")
	mem := alloc(t, dev, 1<<20)
	want := noise(1<<20, 1)
	put(t, mem, want)
	if err := dev.unmap(dev.buffer(mem.All())); err != nil {
		t.Fatal(err)
	}
	whole := dev.api
	broken(t, dev, func(a *api) {
		a.EnqueueMapBuffer = dl.Func(purego.NewCallback(func(_, _, _, _, _, _, _, _, _ uintptr, code *Code) uintptr {
			*code = -12
			return 0
		}))
	})
	_, err := dev.MapHost(t.Context(), mem.All(), devices.ReadOnly)
	if !errors.Is(err, devices.ErrDevice) || !strings.Contains(err.Error(), "CL_MAP_FAILURE (-12)") {
		t.Errorf("got %v", err)
	}
	// The failure has left no host user behind, and the next try works.
	if use := dev.buffer(mem.All()).use; use.hosts != 0 {
		t.Errorf("left %+v", use)
	}
	dev.api = whole
	if !bytes.Equal(get(t, mem), want) {
		t.Error("bytes differ")
	}
}
