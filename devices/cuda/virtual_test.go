package cuda

import (
	"os"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/card"
)

// TestMemoryForNetworkCards asks the driver whether large memory, exported or not, was
// allocated so that network cards can access it.
func TestMemoryForNetworkCards(t *testing.T) {
	for setting, want := range map[string]uint8{"rdma=1": 1, "rdma=0": 0} {
		d := open(t, newStandIn(t, setting).driver(), "cuda:0")
		plain := alloc(t, d, virtualFrom)
		shared, err := d.AllocShared(t.Context(), virtualFrom, devices.HandleVMM)
		if err != nil {
			t.Fatal(err)
		}
		for _, mem := range []*devices.Memory{plain, shared} {
			err := d.On(func() error {
				p, err := d.api.properties(mappingOf(card.BlockOf(mem.All())).physical)
				if p.GPUDirectRDMA != want {
					t.Errorf("%s: memory is made with %d", setting, p.GPUDirectRDMA)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
		if err := shared.Release(); err != nil {
			t.Error(err)
		}
	}
}

// TestExportedMemoryHasItsOwnUnit uses a driver that requires larger units for memory to be
// exported than for other memory.
func TestExportedMemoryHasItsOwnUnit(t *testing.T) {
	d := open(t, newStandIn(t, "shared=8388608").driver(), "cuda:0")
	mem, err := d.AllocShared(t.Context(), 5<<20, devices.HandleVMM)
	if err != nil {
		t.Fatal(err)
	}
	h, err := d.Export(t.Context(), mem)
	if err != nil {
		t.Fatal(err)
	}
	if h.Allocation != 8<<20 {
		t.Errorf("an allocation of %v", h.Allocation)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if err := mem.Release(); err != nil {
		t.Error(err)
	}
}

// TestImportOfSmallUnits opens memory that its owner allocated in minimum units, although
// larger ones are recommended, with and without its size.
func TestImportOfSmallUnits(t *testing.T) {
	d := open(t, newStandIn(t, "recommended=16777216").driver(), "cuda:0")
	prop := d.prop()
	prop.RequestedHandleTypes = cuHandlePosixFD
	const n = 2 << 20
	var physical cuPhysical
	h := devices.Handle{Kind: devices.HandleVMM, Size: n - 100, Offset: 100}
	err := d.On(func() (err error) {
		if physical, err = d.api.create(n, prop); err != nil {
			return err
		}
		fd, err := d.api.exportPhysical(physical)
		h.File = os.NewFile(uintptr(fd), "memory")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, h.Allocation = range []devices.Size{n, 0} {
		mem, err := d.Import(t.Context(), h)
		if err != nil {
			t.Errorf("an allocation of %v: %v", h.Allocation, err)
			continue
		}
		put(t, mem.All(), 1)
		holds(t, mem.All(), 1, 0)
		if err := mem.Release(); err != nil {
			t.Error(err)
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if err := d.On(func() error { return d.api.releasePhysical(physical) }); err != nil {
		t.Error(err)
	}
}
