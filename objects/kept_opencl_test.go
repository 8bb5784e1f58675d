package objects_test

import (
	"bytes"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/opencl"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestKeptOpenCL kills a store over an OpenCL device that is the host's processor.
func TestKeptOpenCL(t *testing.T) {
	kit.Check(t)
	driver := opencl.NewDriver(opencl.Options{})
	if found, err := driver.Discover(t.Context()); err != nil || len(found) == 0 {
		t.Skip("no OpenCL device: ", err)
	}
	spec, err := devices.ParseSpec("opencl:0,size=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	k := &keptRig{keeper: newKeeper(t), open: func() []devices.Device {
		dev, err := driver.Open(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		return []devices.Device{dev}
	}}
	k.rig = &rig{t: t, keeper: k.keeper, devs: k.open()}
	k.start()
	t.Cleanup(k.stop)
	want := kit.Bytes(1, 0, 3<<20+77)
	f := k.create("ocl0", "f")
	k.write(f, 12_345, want)
	k.kill()
	if !k.devs[0].Info().HostMemory {
		t.Skip("the device has memory of its own")
	}
	if a := k.attr(f.Ino()); a.State != objects.StateLive || a.Size != uint64(12_345+len(want)) {
		t.Fatalf("%+v", a)
	}
	f = k.rig.open(f.Ino())
	if got := k.read(f, 12_345, len(want)); !bytes.Equal(got, want) {
		t.Errorf("differs at %d", kit.FirstDiff(got, want))
	}
	k.write(f, 5, want[:99])
	k.close(f)
	k.kill()
}
