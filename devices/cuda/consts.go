package cuda

// Constants of cuda.h.
const (
	cuStreamNonBlocking    = 0x1 // CU_STREAM_NON_BLOCKING
	cuEventDisableTiming   = 0x2 // CU_EVENT_DISABLE_TIMING
	cuHostAllocPortable    = 0x1 // CU_MEMHOSTALLOC_PORTABLE
	cuHostRegisterPortable = 0x1 // CU_MEMHOSTREGISTER_PORTABLE
	cuIPCLazyPeer          = 0x1 // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

	cuAllocationPinned       = 0x1 // CU_MEM_ALLOCATION_TYPE_PINNED
	cuLocationDevice         = 0x1 // CU_MEM_LOCATION_TYPE_DEVICE
	cuAccessReadWrite        = 0x3 // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
	cuHandlePosixFD          = 0x1 // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
	cuGranularityMinimum     = 0x0 // CU_MEM_ALLOC_GRANULARITY_MINIMUM
	cuGranularityRecommended = 0x1 // CU_MEM_ALLOC_GRANULARITY_RECOMMENDED

	cuAttributeUnifiedAddressing = 41  // CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING
	cuAttributeVirtualMemory     = 102 // CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
	cuAttributePosixFD           = 103 // CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
	cuAttributeVirtualRDMA       = 110 // CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
	cuAttributeIPC               = 125 // CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED

	cuPeerPerformanceRank = 0x1 // CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK
)

// ipcHandleSize is CU_IPC_HANDLE_SIZE.
const ipcHandleSize = 64

// ipcHandle is CUipcMemHandle.
type ipcHandle struct{ reserved [ipcHandleSize]byte }

// uuid is CUuuid.
type uuid [16]byte

// location is CUmemLocation.
type location struct {
	Type uint32
	ID   int32
}

// accessDesc is CUmemAccessDesc.
type accessDesc struct {
	Location location
	Flags    uint32
}

// allocationProp is CUmemAllocationProp.
type allocationProp struct {
	Type                 uint32
	RequestedHandleTypes uint32
	Location             location
	Win32                uintptr
	CompressionType      uint8
	GPUDirectRDMA        uint8
	Usage                uint16
	Reserved             [4]uint8
}
