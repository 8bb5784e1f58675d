package cuda

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/internal/sysfs"
)

// align is the least alignment of allocations, in bytes.
const align = 256

// entry describes one card of the machine, not opened. Its Info is for all of the card's
// memory.
type entry struct {
	devices.Info
	device cuDevice
	// virtual is set if the card supports virtual memory, export if such memory can be
	// exported as a descriptor, rdma if it can be accessed by network cards, and ipc if
	// plain memory can be exported by handle.
	virtual, export, rdma, ipc bool
}

// list describes every card, in the driver's order. Unusable cards are omitted, and the
// ordinals of the others stay the driver's; if none is usable the error explains why.
func (a *api) list(ctx context.Context, sys string) ([]entry, error) {
	n, err := ask[int32](a, "cuDeviceGetCount", a.DeviceGetCount)
	if err != nil {
		return nil, err
	}
	var found []entry
	reasons := []error{}
	for i := range n {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		e, err := a.describe(i, sys)
		if err != nil {
			reasons = append(reasons, fmt.Errorf("card %d: %w", i, err))
			continue
		}
		found = append(found, e)
	}
	switch {
	case len(found) > 0:
		return found, nil
	case len(reasons) > 0:
		return nil, errors.Join(reasons...)
	}
	return nil, errors.New("the NVIDIA driver sees no card; " + codeNoDevice.hint())
}

// describe reads the properties of a card.
func (a *api) describe(ordinal int32, sys string) (e entry, err error) {
	e.Family, e.Ordinal, e.Align = Family, devices.Ordinal(ordinal), align
	e.Name = devices.Name(fmt.Sprintf("%s%d", Family, ordinal))
	if e.device, err = ask[cuDevice](a, "cuDeviceGet", a.DeviceGet, uintptr(ordinal)); err != nil {
		return e, err
	}
	if e.Model, err = a.deviceText("cuDeviceGetName", a.DeviceGetName, e.device); err != nil {
		return e, err
	}
	if e.Total, err = ask[devices.Size](a, "cuDeviceTotalMem", a.DeviceTotalMem, uintptr(e.device)); err != nil {
		return e, err
	}
	if e.Total == 0 {
		return e, fmt.Errorf("%s reports no memory", e.Model)
	}
	if e.UUID, e.Card, err = a.uuids(e.device); err != nil {
		return e, err
	}
	// An unknown address is left empty: it is only used for display and to find the NUMA
	// node.
	if pci, err := a.deviceText("cuDeviceGetPCIBusId", a.DeviceGetPCIBusID, e.device); err == nil {
		e.PCI = strings.ToLower(pci)
	}
	e.NUMA = sysfs.NUMANode(sys, e.PCI)
	e.virtual = a.hasVirtual() && a.can(cuAttributeVirtualMemory, e.device, false)
	e.export = e.virtual && a.can(cuAttributePosixFD, e.device, false)
	e.rdma = e.virtual && a.can(cuAttributeVirtualRDMA, e.device, false)
	e.ipc = a.hasIPC() && a.can(cuAttributeUnifiedAddressing, e.device, false) && a.can(cuAttributeIPC, e.device, true)
	return e, nil
}

// can reports whether an attribute is set; unknown is the result if the driver does not
// know the attribute.
func (a *api) can(attribute uintptr, d cuDevice, unknown bool) bool {
	v, err := ask[int32](a, "cuDeviceGetAttribute", a.DeviceGetAttribute, attribute, uintptr(d))
	if err != nil {
		return unknown
	}
	return v != 0
}

// uuids returns a device's UUID as nvidia-smi prints it and, for a partition of a card
// (MIG), the card's. The newer function returns the partition's, the older one the card's.
func (a *api) uuids(d cuDevice) (own, card string, err error) {
	whole, err := a.deviceUUID(a.DeviceGetUUID, d)
	if err != nil {
		return "", "", err
	}
	if a.DeviceGetUUIDv2.Present() {
		part, err := a.deviceUUID(a.DeviceGetUUIDv2, d)
		if err != nil {
			return "", "", err
		}
		if part != whole {
			return "MIG-" + part.String(), "GPU-" + whole.String(), nil
		}
	}
	return "GPU-" + whole.String(), "", nil
}

// String formats the UUID in groups.
func (u uuid) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}
