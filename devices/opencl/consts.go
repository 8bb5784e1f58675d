package opencl

// The constants of CL/cl.h and CL/cl_ext.h that this package uses. A test
// compares each with the headers.
const (
	clDeviceTypeCPU         = 1 << 1
	clDeviceTypeGPU         = 1 << 2
	clDeviceTypeAccelerator = 1 << 3
	clDeviceTypeAll         = 0xFFFFFFFF

	clPlatformName = 0x0902

	clDeviceType              = 0x1000
	clDeviceMaxMemAllocSize   = 0x1010
	clDeviceMemBaseAddrAlign  = 0x1019
	clDeviceGlobalMemSize     = 0x101F
	clDeviceAvailable         = 0x1027
	clDeviceName              = 0x102B
	clDeviceVersion           = 0x102F
	clDeviceExtensions        = 0x1030
	clDeviceSingleFPConfig    = 0x101B
	clDeviceDoubleFPConfig    = 0x1032
	clDeviceHostUnifiedMemory = 0x1035

	clDevicePCIBusInfo    = 0x410F // cl_khr_pci_bus_info
	clDevicePCIBusIDNV    = 0x4008 // cl_nv_device_attribute_query, as the next two
	clDevicePCISlotIDNV   = 0x4009
	clDevicePCIDomainIDNV = 0x400A
	clDeviceFreeMemoryAMD = 0x4039 // cl_amd_device_attribute_query, in KiB

	clMemReadWrite    = 1 << 0
	clMemUseHostPtr   = 1 << 3
	clMemAllocHostPtr = 1 << 4

	clMapRead  = 1 << 0
	clMapWrite = 1 << 1

	clEventCommandExecutionStatus = 0x11D3

	clFPDenorm         = 1 << 0
	clFPInfNaN         = 1 << 1
	clFPRoundToNearest = 1 << 2

	clProgramBuildLog = 0x1183

	clTrue = 1
)

// pciBusInfo is cl_device_pci_bus_info_khr.
type pciBusInfo struct {
	Domain, Bus, Device, Function uint32
}
