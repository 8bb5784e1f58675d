package cuda

import (
	"unsafe"

	"github.com/hmcfs/hmcfs/devices"
)

// granularity returns the allocation unit of memory with these properties: the minimum or
// the recommended one, according to option.
func (a *api) granularity(p *allocationProp, option uintptr) (devices.Size, error) {
	var n uint64
	err := a.check("cuMemGetAllocationGranularity",
		code(a.MemGranularity.Call(uintptr(unsafe.Pointer(&n)), uintptr(unsafe.Pointer(p)), option)))
	return devices.Size(n), err
}

func (a *api) reserve(n devices.Size) (address, error) {
	return ask[address](a, "cuMemAddressReserve", a.MemAddressReserve, uintptr(n), 0, 0, 0)
}

func (a *api) unreserve(p address, n devices.Size) error {
	return a.check("cuMemAddressFree", code(a.MemAddressFree.Call(uintptr(p), uintptr(n))))
}

func (a *api) create(n devices.Size, prop *allocationProp) (cuPhysical, error) {
	var h cuPhysical
	err := a.check("cuMemCreate",
		code(a.MemCreate.Call(uintptr(unsafe.Pointer(&h)), uintptr(n), uintptr(unsafe.Pointer(prop)), 0)))
	return h, err
}

func (a *api) releasePhysical(h cuPhysical) error {
	return a.check("cuMemRelease", code(a.MemRelease.Call(uintptr(h))))
}

func (a *api) mapPhysical(p address, n devices.Size, h cuPhysical) error {
	return a.check("cuMemMap", code(a.MemMap.Call(uintptr(p), uintptr(n), 0, uintptr(h), 0)))
}

func (a *api) unmap(p address, n devices.Size) error {
	return a.check("cuMemUnmap", code(a.MemUnmap.Call(uintptr(p), uintptr(n))))
}

// setAccess gives a device read and write access to a mapped range.
func (a *api) setAccess(p address, n devices.Size, d cuDevice) error {
	desc := accessDesc{Location: location{Type: cuLocationDevice, ID: int32(d)}, Flags: cuAccessReadWrite}
	return a.check("cuMemSetAccess",
		code(a.MemSetAccess.Call(uintptr(p), uintptr(n), uintptr(unsafe.Pointer(&desc)), 1)))
}

// exportPhysical returns a new descriptor.
func (a *api) exportPhysical(h cuPhysical) (fd int32, err error) {
	return ask[int32](a, "cuMemExportToShareableHandle", a.MemExport, uintptr(h), cuHandlePosixFD, 0)
}

func (a *api) properties(h cuPhysical) (allocationProp, error) {
	return ask[allocationProp](a, "cuMemGetAllocationPropertiesFromHandle", a.MemProperties, uintptr(h))
}

// addressRange returns the allocation that contains an address.
func (a *api) addressRange(p address) (base address, n devices.Size, err error) {
	var size uint64
	err = a.check("cuMemGetAddressRange",
		code(a.MemAddressRange.Call(uintptr(unsafe.Pointer(&base)), uintptr(unsafe.Pointer(&size)), uintptr(p))))
	return base, devices.Size(size), err
}

func (a *api) ipcOpen(h ipcHandle) (address, error) {
	var p address
	err := a.check("cuIpcOpenMemHandle", a.IPCOpen(&p, h, cuIPCLazyPeer))
	return p, err
}

func (a *api) ipcClose(p address) error {
	return a.check("cuIpcCloseMemHandle", code(a.IPCClose.Call(uintptr(p))))
}
