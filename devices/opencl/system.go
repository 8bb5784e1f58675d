package opencl

import (
	"fmt"
	"path/filepath"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/sysfs"
)

// system contains the directories of the kernel's information about the machine.
type system struct {
	sys  string // "/sys"
	proc string // "/proc"
}

// available returns the memory that the host can still allocate; ok is false if the kernel
// does not report it.
func (s system) available() (n devices.Size, ok bool) {
	m, err := sysfs.MemInfo(filepath.Join(s.proc, "meminfo"))
	if err != nil {
		return 0, false
	}
	n, ok = m["MemAvailable"]
	return n, ok
}

// pciAddress returns the bus address in the format of sysfs, empty if the driver does not
// provide it.
func (a *api) pciAddress(id deviceID, extensions string) string {
	if hasExtension(extensions, "cl_khr_pci_bus_info") {
		if p, err := deviceValue[pciBusInfo](a, id, clDevicePCIBusInfo); err == nil {
			return p.String()
		}
	}
	if !hasExtension(extensions, "cl_nv_device_attribute_query") {
		return ""
	}
	bus, err1 := deviceValue[uint32](a, id, clDevicePCIBusIDNV)
	slot, err2 := deviceValue[uint32](a, id, clDevicePCISlotIDNV)
	if err1 != nil || err2 != nil {
		return ""
	}
	// Old drivers don't report the domain, which is 0 on nearly all machines.
	domain, err := deviceValue[uint32](a, id, clDevicePCIDomainIDNV)
	if err != nil {
		domain = 0
	}
	// A slot is the device number shifted by three bits, plus the function number.
	return pciBusInfo{Domain: domain, Bus: bus, Device: slot >> 3, Function: slot & 7}.String()
}

// String formats the address as sysfs does.
func (p pciBusInfo) String() string {
	return fmt.Sprintf("%04x:%02x:%02x.%x", p.Domain, p.Bus, p.Device, p.Function)
}
