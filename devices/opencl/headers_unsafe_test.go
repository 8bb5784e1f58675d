package opencl

import "unsafe"

// constants returns those of consts.go by the headers' names. Constants of extensions that
// a set of headers does not know yet are omitted.
func constants() map[string]uint64 {
	return map[string]uint64{
		"CL_DEVICE_TYPE_CPU": clDeviceTypeCPU, "CL_DEVICE_TYPE_GPU": clDeviceTypeGPU,
		"CL_DEVICE_TYPE_ACCELERATOR": clDeviceTypeAccelerator, "CL_DEVICE_TYPE_ALL": clDeviceTypeAll,
		"CL_PLATFORM_NAME": clPlatformName, "CL_DEVICE_TYPE": clDeviceType,
		"CL_DEVICE_MAX_MEM_ALLOC_SIZE":  clDeviceMaxMemAllocSize,
		"CL_DEVICE_MEM_BASE_ADDR_ALIGN": clDeviceMemBaseAddrAlign,
		"CL_DEVICE_GLOBAL_MEM_SIZE":     clDeviceGlobalMemSize,
		"CL_DEVICE_AVAILABLE":           clDeviceAvailable, "CL_DEVICE_NAME": clDeviceName,
		"CL_DEVICE_VERSION": clDeviceVersion, "CL_DEVICE_EXTENSIONS": clDeviceExtensions,
		"CL_DEVICE_HOST_UNIFIED_MEMORY": clDeviceHostUnifiedMemory,
		"CL_DEVICE_PCI_BUS_INFO_KHR":    clDevicePCIBusInfo,
		"CL_DEVICE_PCI_BUS_ID_NV":       clDevicePCIBusIDNV, "CL_DEVICE_PCI_SLOT_ID_NV": clDevicePCISlotIDNV,
		"CL_DEVICE_PCI_DOMAIN_ID_NV":       clDevicePCIDomainIDNV,
		"CL_DEVICE_GLOBAL_FREE_MEMORY_AMD": clDeviceFreeMemoryAMD,
		"CL_MEM_READ_WRITE":                clMemReadWrite, "CL_MEM_ALLOC_HOST_PTR": clMemAllocHostPtr,
		"CL_MEM_USE_HOST_PTR": clMemUseHostPtr,
		"CL_MAP_READ":         clMapRead, "CL_MAP_WRITE": clMapWrite,
		"CL_DEVICE_SINGLE_FP_CONFIG": clDeviceSingleFPConfig, "CL_DEVICE_DOUBLE_FP_CONFIG": clDeviceDoubleFPConfig,
		"CL_FP_DENORM": clFPDenorm, "CL_FP_INF_NAN": clFPInfNaN, "CL_FP_ROUND_TO_NEAREST": clFPRoundToNearest,
		"CL_PROGRAM_BUILD_LOG":              clProgramBuildLog,
		"CL_EVENT_COMMAND_EXECUTION_STATUS": clEventCommandExecutionStatus, "CL_TRUE": clTrue,
		"sizeof(cl_device_pci_bus_info_khr)":                 uint64(unsafe.Sizeof(pciBusInfo{})),
		"offsetof(cl_device_pci_bus_info_khr, pci_bus)":      uint64(unsafe.Offsetof(pciBusInfo{}.Bus)),
		"offsetof(cl_device_pci_bus_info_khr, pci_device)":   uint64(unsafe.Offsetof(pciBusInfo{}.Device)),
		"offsetof(cl_device_pci_bus_info_khr, pci_function)": uint64(unsafe.Offsetof(pciBusInfo{}.Function)),
	}
}
