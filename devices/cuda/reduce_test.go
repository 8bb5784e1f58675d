package cuda

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// reduceOnce combines elements of a seed each and reports whether the results are right.
func reduceOnce(t *testing.T, dev *device, typ elem.Type, reduce func(dst, src devices.Span) error) error {
	t.Helper()
	const n = 1 << 16
	dst, src := alloc(t, dev, n), alloc(t, dev, n)
	put(t, dst.All(), 1)
	put(t, src.All(), 2)
	if err := reduce(dst.All(), src.All()); err != nil {
		return err
	}
	want, got := kit.Bytes(1, 0, n), make([]byte, n)
	if err := elem.Combine(elem.Sum, typ, want, want, kit.Bytes(2, 0, n)); err != nil {
		t.Fatal(err)
	}
	if err := dev.CopyOut(t.Context(), got, dst.All()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%v: byte %d differs", typ, kit.FirstDiff(got, want))
	}
	return nil
}

// TestKernels calls the stand-in's kernels. It has none for 16 bits, like a driver that
// rejects a module.
func TestKernels(t *testing.T) {
	dev := open(t, newStandIn(t).driver(), "cuda:0")
	for _, typ := range combining {
		direct := func(dst, src devices.Span) error { return dev.Reduce(t.Context(), dst, src, typ, elem.Avg) }
		err := reduceOnce(t, dev, typ, direct)
		if known := typ != elem.Float16 && typ != elem.BFloat16; known && err != nil || !known && !errors.Is(err, devices.ErrUnsupported) {
			t.Errorf("%v: %v", typ, err)
		}
		if err := reduceOnce(t, dev, typ, func(dst, src devices.Span) error {
			return devices.Reduce(t.Context(), dst, src, typ, elem.Sum)
		}); err != nil {
			t.Errorf("%v by the helper: %v", typ, err)
		}
	}
}

func TestKernelFaults(t *testing.T) {
	for fault, c := range map[string]struct {
		want error
		says string
	}{
		"fail=cuModuleLoadData:1:218:0":    {devices.ErrUnsupported, "cuModuleLoadData"},
		"fail=cuModuleGetFunction:1:500:0": {devices.ErrUnsupported, "cuModuleGetFunction"},
		"fail=cuLaunchKernel:1:701:0":      {devices.ErrDevice, "cuLaunchKernel"},
		"fail=cuLaunchKernel:1:719:0":      {devices.ErrDevice, "cuLaunchKernel"},
	} {
		t.Run(fault, func(t *testing.T) {
			lib := newStandIn(t)
			dev := open(t, lib.driver(), "cuda:0")
			dst, src := alloc(t, dev, 64), alloc(t, dev, 64)
			lib.set(fault)
			err := dev.Reduce(t.Context(), dst.All(), src.All(), elem.Int32, elem.Sum)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v", err)
			}
		})
	}
}
