package daemon

import (
	"slices"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
)

func TestEachCardOnce(t *testing.T) {
	card := func(name devices.Name, family devices.Family, pci string) devices.Found {
		return devices.Found{Info: devices.Info{Name: name, Family: family, PCI: pci}}
	}
	found := []devices.Found{
		card("cuda0", "cuda", "0000:65:00.0"),
		card("ocl0", "opencl", "0000:65:00.0"), // the same card
		card("ocl1", "opencl", "0000:B3:00.0"), // the same, as HIP spells it
		card("ocl2", "opencl", "0000:17:00.0"), // a card of no other family
		card("ocl3", "opencl", ""),             // a processor
		card("hip0", "hip", "0000:b3:00.0"),
		card("npu0", "npu", ""),
	}
	var left []devices.Name
	var kept []devices.Name
	for _, f := range eachCardOnce(found, func(f devices.Found) { left = append(left, f.Info.Name) }) {
		kept = append(kept, f.Info.Name)
	}
	if want := []devices.Name{"cuda0", "ocl2", "ocl3", "hip0", "npu0"}; !slices.Equal(kept, want) {
		t.Errorf("kept %v, want %v", kept, want)
	}
	if want := []devices.Name{"ocl0", "ocl1"}; !slices.Equal(left, want) {
		t.Errorf("left out %v, want %v", left, want)
	}
}
