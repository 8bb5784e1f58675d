package opencl

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
)

var combining = []elem.Type{
	elem.Int8, elem.Uint8, elem.Int32, elem.Int64, elem.Float16, elem.BFloat16, elem.Float32, elem.Float64,
}

// reduceNoise combines random elements on the device and returns the actual and the
// expected result.
func reduceNoise(t *testing.T, dev devices.Device, typ elem.Type, op elem.Op) (got, want []byte, err error) {
	t.Helper()
	const n = 1 << 17
	a, b := noise(n, 1), noise(n, 2)
	dst, src := alloc(t, dev, n), alloc(t, dev, n)
	put(t, dst, a)
	put(t, src, b)
	reducer, ok := dev.(devices.Reducer)
	if !ok {
		t.Fatal("the device combines nothing")
	}
	if err := reducer.Reduce(t.Context(), dst.All(), src.All(), typ, op); err != nil {
		return nil, nil, err
	}
	if cerr := elem.Combine(op, typ, a, a, b); cerr != nil {
		t.Fatal(cerr)
	}
	return get(t, dst), a, nil
}

// TestKernels checks that kernels, not the host, produce the same bits.
func TestKernels(t *testing.T) {
	for name, opener := range map[string]func(testing.TB) devices.Device{
		"discrete": func(t testing.TB) devices.Device { t.Helper(); return openDiscrete(t, "size=64MiB") },
		"shared":   func(t testing.TB) devices.Device { t.Helper(); return openShared(t, "size=64MiB") },
	} {
		t.Run(name, func(t *testing.T) {
			dev := opener(t)
			for _, typ := range combining {
				for op := elem.Sum; op <= elem.Avg; op++ {
					got, want, err := reduceNoise(t, dev, typ, op)
					if err != nil {
						t.Fatalf("%v of %v: %v", op, typ, err)
					}
					if !bytes.Equal(got, want) {
						t.Errorf("%v of %v differs", op, typ)
					}
				}
			}
			d := core(dev)
			d.kernels.mu.Lock()
			built := len(d.kernels.programs)
			d.kernels.mu.Unlock()
			if built != len(combining) {
				t.Errorf("%d programs were built for %d types", built, len(combining))
			}
		})
	}
}

// TestHostNeedsNoCompiler combines on a device that is the host's processor.
func TestHostNeedsNoCompiler(t *testing.T) {
	dev := openMapped(t, "size=64MiB")
	if !dev.entry.isHost() {
		t.Skip("the first device is not the host's processor")
	}
	broken(t, dev, func(a *api) { a.CreateProgram = 0 }) // a call would panic
	got, want, err := reduceNoise(t, dev, elem.Float16, elem.Sum)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the host's processor: %v", err)
	}
	off := open(t, "size=64MiB,map=off")
	broken(t, off, func(a *api) { a.CreateProgram = 0 })
	if _, _, err := reduceNoise(t, off, elem.Float16, elem.Sum); !errors.Is(err, devices.ErrUnsupported) {
		t.Errorf("without a map: %v", err)
	}
}

// TestNoCompiler falls back to the host, and does not try to compile again.
func TestNoCompiler(t *testing.T) {
	discrete, shared := openDiscrete(t, "size=64MiB"), openShared(t, "size=64MiB")
	for _, dev := range []devices.Device{discrete, shared} {
		broken(t, dev, func(a *api) { a.BuildProgram = returns(-3) })
		const n = 1 << 12
		a, b := noise(n, 1), noise(n, 2)
		dst, src := alloc(t, dev, n), alloc(t, dev, n)
		put(t, dst, a)
		put(t, src, b)
		if err := devices.Reduce(t.Context(), dst.All(), src.All(), elem.Float32, elem.Max); err != nil {
			t.Fatal(err)
		}
		if err := elem.Combine(elem.Max, elem.Float32, a, a, b); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(get(t, dst), a) {
			t.Error("the host's result differs")
		}
	}
	broken(t, discrete, func(a *api) { a.CreateProgram = 0 })
	_, _, err := reduceNoise(t, discrete, elem.Float32, elem.Max)
	if !errors.Is(err, devices.ErrUnsupported) || !strings.Contains(err.Error(), "CL_COMPILER_NOT_AVAILABLE") {
		t.Errorf("error %v", err)
	}
}

// TestArithmeticIsAsked refuses a device that would round differently.
func TestArithmeticIsAsked(t *testing.T) {
	dev := openDiscrete(t, "size=64MiB")
	broken(t, dev, func(a *api) { a.GetDeviceInfo = returns(codeSuccess) }) // all 0
	for _, typ := range combining {
		_, _, err := reduceNoise(t, dev, typ, elem.Sum)
		switch typ {
		case elem.Float16, elem.BFloat16, elem.Float32, elem.Float64:
			if !errors.Is(err, devices.ErrUnsupported) {
				t.Errorf("%v: %v", typ, err)
			}
		default:
			if err != nil {
				t.Errorf("%v: %v", typ, err)
			}
		}
	}
}

func TestKernelFails(t *testing.T) {
	dev := openDiscrete(t, "size=64MiB")
	for want, change := range map[string]func(*api){
		"clSetKernelArg: CL_INVALID_ARG_INDEX":        func(a *api) { a.SetKernelArg = returns(-49) },
		"clEnqueueNDRangeKernel: CL_OUT_OF_RESOURCES": func(a *api) { a.EnqueueNDRange = returns(-5) },
	} {
		t.Run(want, func(t *testing.T) {
			broken(t, dev, change)
			_, _, err := reduceNoise(t, dev, elem.Int32, elem.Sum)
			if !errors.Is(err, devices.ErrDevice) || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestReduceBesideView has the host combine elements while it holds a view.
func TestReduceBesideView(t *testing.T) {
	dev := openShared(t, "size=64MiB")
	a, b := noise(4096, 1), noise(4096, 2)
	dst, src := alloc(t, dev, 4096), alloc(t, dev, 4096)
	put(t, dst, a)
	put(t, src, b)
	view, err := dev.MapHost(t.Context(), src.All(), devices.ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer view.Release()
	if err := dev.Reduce(t.Context(), dst.All(), src.All(), elem.Int8, elem.Sum); err != nil {
		t.Fatal(err)
	}
	if err := elem.Combine(elem.Sum, elem.Int8, a, a, b); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(get(t, dst), a) || !bytes.Equal(view.Bytes, b) {
		t.Error("differs")
	}
}
