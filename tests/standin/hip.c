//go:build ignore

/*
 * A stand-in for libamdhip64. With -DHMCFS_HEADERS it is compiled against the
 * vendor's header, which then checks every signature.
 */
#define ERR_OOM 2
#define ERR_DEVICE 101
#define ERR_PEER_ENABLED 704
#define ERR_PINNED 712
#define ERR_SAME_PROCESS 201
#define ERR_HANDLE 1
#define NAME_ENDS_FIRST 0
#define PEERS_ENABLE 1
#include "runtime.h"

#ifdef HMCFS_HEADERS
#define __HIP_PLATFORM_AMD__
#include <hip/hip_runtime_api.h>
#else
typedef int hipError_t;
typedef int hipDevice_t;
typedef void *hipDeviceptr_t;
typedef struct ihipStream_t *hipStream_t;
typedef struct {
	char bytes[16];
} hipUUID;
typedef struct hipIpcMemHandle_st {
	char reserved[64];
} hipIpcMemHandle_t;
#endif

API hipError_t hipGetDeviceCount(int *count)
{
	int code = enter("hipGetDeviceCount");
	*count = code ? 0 : config.devices;
	return leave(code || config.devices ? code : 100);
}

API hipError_t hipDeviceGetName(char *name, int len, hipDevice_t device)
{
	int code = enter("hipDeviceGetName");
	snprintf(name, len, "Stand-in MI%d", device);
	return leave(code);
}

API hipError_t hipDeviceGetPCIBusId(char *id, int len, int device)
{
	int code = enter("hipDeviceGetPCIBusId");
	snprintf(id, len, "0000:C%d:00.0", device);
	return leave(code);
}

API hipError_t hipDeviceGetUuid(hipUUID *uuid, hipDevice_t device)
{
	char text[17];
	int code = enter("hipDeviceGetUuid");
	snprintf(text, sizeof text, "00000000000d0c0%d", device);
	memcpy(uuid->bytes, text, 16);
	return leave(code);
}

API hipError_t hipSetDevice(int device)
{
	int code = enter("hipSetDevice");
	return leave(code ? code : set_device(device));
}

API hipError_t hipMemGetInfo(size_t *free_bytes, size_t *total)
{
	int code = enter("hipMemGetInfo");
	uint64_t a, b;
	memory_info(&a, &b);
	*free_bytes = a;
	*total = b;
	return done(code);
}

API hipError_t hipMalloc(void **ptr, size_t size)
{
	int code = enter("hipMalloc");
	devaddr p = 0;
	if (!code)
		code = allocate(&p, size);
	*ptr = (void *)p;
	return done(code);
}

API hipError_t hipFree(void *ptr)
{
	int code = enter("hipFree");
	return done(code ? code : release((devaddr)ptr));
}

API hipError_t hipStreamCreateWithFlags(hipStream_t *stream, unsigned int flags)
{
	int code = enter("hipStreamCreateWithFlags");
	if (flags != 1)
		misuse("flags %u", flags);
	*stream = code ? NULL : (hipStream_t)(void *)new_stream();
	return done(code);
}

API hipError_t hipStreamDestroy(hipStream_t stream)
{
	int code = enter("hipStreamDestroy");
	return done(code ? code : end_stream(stream));
}

API hipError_t hipStreamSynchronize(hipStream_t stream)
{
	int code = enter("hipStreamSynchronize");
	return done(code ? code : wait_stream(stream));
}

API hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t dst, void *src, size_t n, hipStream_t stream)
{
	int code = enter("hipMemcpyHtoDAsync");
	if (!code)
		move_in((devaddr)dst, src, n, stream);
	return leave(code);
}

API hipError_t hipMemcpyDtoHAsync(void *dst, hipDeviceptr_t src, size_t n, hipStream_t stream)
{
	int code = enter("hipMemcpyDtoHAsync");
	if (!code)
		move_out(dst, (devaddr)src, n, stream);
	return leave(code);
}

API hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t dst, hipDeviceptr_t src, size_t n, hipStream_t stream)
{
	int code = enter("hipMemcpyDtoDAsync");
	if (!code)
		move_within((devaddr)dst, (devaddr)src, n, stream);
	return leave(code);
}

API hipError_t hipMemsetD8Async(hipDeviceptr_t dst, unsigned char value, size_t n, hipStream_t stream)
{
	int code = enter("hipMemsetD8Async");
	if (!code)
		fill_memory((devaddr)dst, value, n, stream);
	return leave(code);
}

API hipError_t hipDeviceCanAccessPeer(int *can, int device, int peer)
{
	int code = enter("hipDeviceCanAccessPeer");
	*can = can_reach(device, peer);
	return leave(code);
}

API hipError_t hipDeviceEnablePeerAccess(int peer, unsigned int flags)
{
	int code = enter("hipDeviceEnablePeerAccess");
	if (flags)
		misuse("flags %u", flags);
	return done(code ? code : enable_peer(peer));
}

API hipError_t hipMemcpyPeerAsync(void *dst, int to, const void *src, int from, size_t n, hipStream_t stream)
{
	int code = enter("hipMemcpyPeerAsync");
	if (!code)
		move_peer((devaddr)dst, to, (devaddr)src, from, n, stream, to);
	return leave(code);
}

API hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t *handle, void *ptr)
{
	int code = enter("hipIpcGetMemHandle");
	struct name name = export_memory((devaddr)ptr);
	/* As some versions have it, beyond the unit of what they take. */
	size_t size = here((devaddr)ptr, 0, "memory")->size;
	if (size > 2 << 20 && size % 4096)
		code = code ? code : 17;
	memset(handle, 0, sizeof *handle);
	memcpy(handle->reserved, &name, sizeof name);
	/* A handle is opaque: no byte of it may be dropped. */
	memcpy(handle->reserved + 64 - sizeof name, &name, sizeof name);
	return done(code);
}

API hipError_t hipIpcOpenMemHandle(void **ptr, hipIpcMemHandle_t handle, unsigned int flags)
{
	int code = enter("hipIpcOpenMemHandle");
	struct name name;
	devaddr p = 0;
	if (flags != 0) /* as HIP 5, which takes no other */
		return leave(1);
	memcpy(&name, handle.reserved, sizeof name);
	if (!code && memcmp(&name, handle.reserved + 64 - sizeof name, sizeof name) != 0)
		code = ERR_HANDLE;
	if (!code)
		code = import_memory(&p, name);
	*ptr = (void *)p;
	return done(code);
}

API hipError_t hipIpcCloseMemHandle(void *ptr)
{
	int code = enter("hipIpcCloseMemHandle");
	return done(code ? code : close_import((devaddr)ptr));
}

API hipError_t hipMemGetAddressRange(hipDeviceptr_t *base, size_t *size, hipDeviceptr_t ptr)
{
	int code = enter("hipMemGetAddressRange");
	struct piece *m = here((devaddr)ptr, 0, "memory");
	*base = (void *)m->base;
	*size = m->size;
	return done(code);
}

API hipError_t hipHostRegister(void *ptr, size_t size, unsigned int flags)
{
	int code = enter("hipHostRegister");
	if (flags != 1)
		misuse("flags %u", flags);
	return done(code ? code : pin_memory(ptr, size));
}

API hipError_t hipHostUnregister(void *ptr)
{
	int code = enter("hipHostUnregister");
	return done(code ? code : unpin_memory(ptr));
}

API const char *hipGetErrorName(hipError_t code)
{
	switch ((int)code) {
	case 1: return "hipErrorInvalidValue";
	case 2: return "hipErrorOutOfMemory";
	case 100: return "hipErrorNoDevice";
	case 101: return "hipErrorInvalidDevice";
	case 201: return "hipErrorInvalidContext";
	case 700: return "hipErrorIllegalAddress";
	case 704: return "hipErrorPeerAccessAlreadyEnabled";
	case 712: return "hipErrorHostMemoryAlreadyRegistered";
	}
	return "hipErrorUnknown";
}

API const char *hipGetErrorString(hipError_t code)
{
	return code == 2 ? "out of memory" : hipGetErrorName(code);
}
