package opencl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/sysfs"
)

// entry is one device of the machine, not opened.
type entry struct {
	id       deviceID
	platform string
	model    string
	kind     uint64 // CL_DEVICE_TYPE_* bits
	global   devices.Size
	maxAlloc devices.Size
	align    devices.Size
	unified  bool
	pci      string
	numa     int
	freeAMD  bool // CL_DEVICE_GLOBAL_FREE_MEMORY_AMD can be queried
}

// rank orders the kinds: a GPU comes before a CPU, so that opencl:0 is the device that a
// person expects.
func (e entry) rank() int {
	switch {
	case e.kind&clDeviceTypeGPU != 0:
		return 0
	case e.kind&clDeviceTypeAccelerator != 0:
		return 1
	case e.kind&clDeviceTypeCPU != 0:
		return 3
	}
	return 2
}

// isHost reports whether the device is the host's processor, using the host's memory.
func (e entry) isHost() bool { return e.unified && e.kind&clDeviceTypeCPU != 0 }

// byDefault returns how much of a device's memory is used if the spec does not say: if it
// is the host's memory, half is left to the host.
func (e entry) byDefault() devices.Size {
	if e.unified {
		return e.global / 2
	}
	return e.global / 10 * 9
}

// info returns the description of an entry as a device of n bytes.
func (e entry) info(ordinal devices.Ordinal, n devices.Size) devices.Info {
	return devices.Info{
		Name:       devices.Name(fmt.Sprintf("ocl%d", ordinal)),
		Family:     Family,
		Ordinal:    ordinal,
		Model:      fmt.Sprintf("%s (%s)", e.model, e.platform),
		Total:      n,
		MaxAlloc:   min(e.maxAlloc, n),
		Align:      e.align,
		PCI:        e.pci,
		NUMA:       e.numa,
		HostMemory: e.unified,
	}
}

// list returns every usable device of every platform. The order depends only on what is
// installed: GPUs first, then by platform, then in the platform's order. If there is no
// device, the error explains why.
func (a *api) list(ctx context.Context, files system) ([]entry, error) {
	platforms, err := a.platforms()
	if err != nil {
		return nil, err
	}
	if len(platforms) == 0 {
		return nil, errors.New("no OpenCL driver is installed; apt install pocl-opencl-icd, or the vendor's driver")
	}
	var found []entry
	var reasons []string
	for _, p := range platforms {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		entries, why := a.listPlatform(p, files)
		found = append(found, entries...)
		reasons = append(reasons, why...)
	}
	if len(found) == 0 {
		return nil, errors.New(strings.Join(reasons, "; "))
	}
	slices.SortStableFunc(found, func(x, y entry) int {
		return cmp.Or(cmp.Compare(x.rank(), y.rank()), cmp.Compare(x.platform, y.platform))
	})
	return found, nil
}

// listPlatform lists one platform. Unusable devices are reported in reasons.
func (a *api) listPlatform(p platformID, files system) (found []entry, reasons []string) {
	name, err := text("clGetPlatformInfo", a.GetPlatformInfo, uintptr(p), clPlatformName)
	if err != nil {
		return nil, []string{err.Error()}
	}
	ids, err := a.devicesOf(p)
	if err != nil {
		return nil, []string{fmt.Sprintf("platform %s: %v", name, err)}
	}
	if len(ids) == 0 {
		return nil, []string{fmt.Sprintf("platform %s has no device", name)}
	}
	for _, id := range ids {
		e, err := a.describe(id, name, files)
		if err != nil {
			reasons = append(reasons, fmt.Sprintf("platform %s: %v", name, err))
			continue
		}
		found = append(found, e)
	}
	return found, reasons
}

// describe reads the properties of a device and rejects one that can't be used.
func (a *api) describe(id deviceID, platform string, files system) (entry, error) {
	var faults []error
	line := func(param uintptr) string {
		v, err := text("clGetDeviceInfo", a.GetDeviceInfo, uintptr(id), param)
		faults = append(faults, err)
		return v
	}
	number := func(param uintptr) uint64 {
		v, err := deviceValue[uint64](a, id, param)
		faults = append(faults, err)
		return v
	}
	word := func(param uintptr) uint32 {
		v, err := deviceValue[uint32](a, id, param)
		faults = append(faults, err)
		return v
	}
	e := entry{
		id:       id,
		platform: platform,
		model:    line(clDeviceName),
		kind:     number(clDeviceType),
		global:   devices.Size(number(clDeviceGlobalMemSize)),
		maxAlloc: devices.Size(number(clDeviceMaxMemAllocSize)),
		align:    devices.Size(word(clDeviceMemBaseAddrAlign)) / 8,
	}
	version, extensions := line(clDeviceVersion), line(clDeviceExtensions)
	available := word(clDeviceAvailable)
	if err := errors.Join(faults...); err != nil {
		return entry{}, err
	}
	switch {
	case available == 0:
		return entry{}, fmt.Errorf("%s is not available", e.model)
	case !atLeast12(version):
		return entry{}, fmt.Errorf("%s has %q, OpenCL 1.2 is needed", e.model, version)
	}
	// The query is deprecated; a driver that no longer has it is assumed not to share
	// memory.
	unified, err := deviceValue[uint32](a, id, clDeviceHostUnifiedMemory)
	e.unified = err == nil && unified != 0
	e.freeAMD = hasExtension(extensions, "cl_amd_device_attribute_query")
	e.pci = a.pciAddress(id, extensions)
	e.numa = sysfs.NUMANode(files.sys, e.pci)
	return e, nil
}

// atLeast12 parses "OpenCL MAJOR.MINOR vendor's text" and reports whether it is at least
// 1.2.
func atLeast12(version string) bool {
	var major, minor int
	if _, err := fmt.Sscanf(version, "OpenCL %d.%d", &major, &minor); err != nil {
		return false
	}
	return major > 1 || major == 1 && minor >= 2
}

func hasExtension(list, name string) bool {
	return slices.Contains(strings.Fields(list), name)
}
