package cuda

import "unsafe"

// constants returns those of consts.go and the codes of errors.go, by the header's names.
// Codes unknown to a header of CUDA 12.6 are omitted.
func constants() map[string]uint64 {
	return map[string]uint64{
		"CU_EVENT_DISABLE_TIMING": cuEventDisableTiming,
		"CU_STREAM_NON_BLOCKING":  cuStreamNonBlocking, "CU_MEMHOSTALLOC_PORTABLE": cuHostAllocPortable,
		"CU_MEMHOSTREGISTER_PORTABLE":              cuHostRegisterPortable,
		"CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS":       cuIPCLazyPeer,
		"CU_MEM_ALLOCATION_TYPE_PINNED":            cuAllocationPinned,
		"CU_MEM_LOCATION_TYPE_DEVICE":              cuLocationDevice,
		"CU_MEM_ACCESS_FLAGS_PROT_READWRITE":       cuAccessReadWrite,
		"CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR": cuHandlePosixFD,
		"CU_MEM_ALLOC_GRANULARITY_MINIMUM":         cuGranularityMinimum,
		"CU_MEM_ALLOC_GRANULARITY_RECOMMENDED":     cuGranularityRecommended,

		"CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING":                          cuAttributeUnifiedAddressing,
		"CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK":                        cuPeerPerformanceRank,
		"CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED":         cuAttributeVirtualMemory,
		"CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED": cuAttributePosixFD,
		"CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED":     cuAttributeVirtualRDMA,
		"CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED":                         cuAttributeIPC,

		"CU_IPC_HANDLE_SIZE": ipcHandleSize, "sizeof(CUipcMemHandle)": uint64(unsafe.Sizeof(ipcHandle{})),
		"sizeof(CUuuid)": uint64(unsafe.Sizeof(uuid{})), "sizeof(CUdeviceptr)": uint64(unsafe.Sizeof(address(0))),
		"sizeof(CUdevice)": uint64(unsafe.Sizeof(cuDevice(0))), "sizeof(CUresult)": uint64(unsafe.Sizeof(Code(0))),
		"sizeof(CUmemGenericAllocationHandle)":      uint64(unsafe.Sizeof(cuPhysical(0))),
		"sizeof(CUcontext)":                         uint64(unsafe.Sizeof(cuContext(0))),
		"sizeof(CUstream)":                          uint64(unsafe.Sizeof(cuStream(0))),
		"sizeof(CUmemLocation)":                     uint64(unsafe.Sizeof(location{})),
		"offsetof(CUmemLocation, id)":               uint64(unsafe.Offsetof(location{}.ID)),
		"sizeof(CUmemAccessDesc)":                   uint64(unsafe.Sizeof(accessDesc{})),
		"offsetof(CUmemAccessDesc, flags)":          uint64(unsafe.Offsetof(accessDesc{}.Flags)),
		"sizeof(CUmemAllocationProp)":               uint64(unsafe.Sizeof(allocationProp{})),
		"offsetof(CUmemAllocationProp, location)":   uint64(unsafe.Offsetof(allocationProp{}.Location)),
		"offsetof(CUmemAllocationProp, allocFlags)": uint64(unsafe.Offsetof(allocationProp{}.CompressionType)),
		"offsetof(CUmemAllocationProp, requestedHandleTypes)": uint64(
			unsafe.Offsetof(allocationProp{}.RequestedHandleTypes)),
		"offsetof(CUmemAllocationProp, win32HandleMetaData)": uint64(unsafe.Offsetof(allocationProp{}.Win32)),
		"offsetof(CUmemAllocationProp, allocFlags.usage)":    uint64(unsafe.Offsetof(allocationProp{}.Usage)),
		"offsetof(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable)": uint64(
			unsafe.Offsetof(allocationProp{}.GPUDirectRDMA)),

		"CUDA_ERROR_OUT_OF_MEMORY": uint64(codeOutOfMemory), "CUDA_ERROR_DEINITIALIZED": uint64(codeDeinitialized),
		"CUDA_ERROR_STUB_LIBRARY":                uint64(codeStubLibrary),
		"CUDA_ERROR_DEVICE_UNAVAILABLE":          uint64(codeDeviceUnavailable),
		"CUDA_ERROR_NO_DEVICE":                   uint64(codeNoDevice),
		"CUDA_ERROR_ECC_UNCORRECTABLE":           uint64(codeECCUncorrectable),
		"CUDA_ERROR_NVLINK_UNCORRECTABLE":        uint64(codeNVLink),
		"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED":     uint64(codePeerUnsupported),
		"CUDA_ERROR_OPERATING_SYSTEM":            uint64(codeOperatingSystem),
		"CUDA_ERROR_ILLEGAL_ADDRESS":             uint64(codeIllegalAddress),
		"CUDA_ERROR_LAUNCH_TIMEOUT":              uint64(codeLaunchTimeout),
		"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED": uint64(codePeerEnabled),
		"CUDA_ERROR_CONTEXT_IS_DESTROYED":        uint64(codeContextDestroyed),
		"CUDA_ERROR_ASSERT":                      uint64(codeAssert), "CUDA_ERROR_TOO_MANY_PEERS": uint64(codeTooManyPeers),
		"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED": uint64(codeAlreadyRegistered),
		"CUDA_ERROR_HARDWARE_STACK_ERROR":           uint64(codeHardwareStack),
		"CUDA_ERROR_ILLEGAL_INSTRUCTION":            uint64(codeIllegalInstr),
		"CUDA_ERROR_MISALIGNED_ADDRESS":             uint64(codeMisaligned),
		"CUDA_ERROR_INVALID_ADDRESS_SPACE":          uint64(codeAddressSpace),
		"CUDA_ERROR_INVALID_PC":                     uint64(codeInvalidPC), "CUDA_ERROR_LAUNCH_FAILED": uint64(codeLaunchFailed),
		"CUDA_ERROR_NOT_PERMITTED": uint64(codeNotPermitted), "CUDA_ERROR_SYSTEM_NOT_READY": uint64(codeSystemNotReady),
		"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH":         uint64(codeDriverMismatch),
		"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": uint64(codeCompat),
		"CUDA_ERROR_MPS_CLIENT_TERMINATED":          uint64(codeMPSTerminated),
		"CUDA_ERROR_EXTERNAL_DEVICE":                uint64(codeExternalDevice), "CUDA_ERROR_UNKNOWN": uint64(codeUnknown),
	}
}

// managementConstants returns those of nvml.go.
func managementConstants() map[string]uint64 {
	return map[string]uint64{
		"sizeof(nvmlMemory_t)":         uint64(unsafe.Sizeof(managedMemory{})),
		"offsetof(nvmlMemory_t, free)": uint64(unsafe.Offsetof(managedMemory{}.Free)),
		"sizeof(nvmlReturn_t)":         uint64(unsafe.Sizeof(Code(0))), "sizeof(nvmlDevice_t)": uint64(unsafe.Sizeof(uintptr(0))),
	}
}
