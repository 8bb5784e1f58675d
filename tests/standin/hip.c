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

#define VENDOR(name) hip##name
#define PCI_BUS "C"
#include "likecuda.h"

API hipError_t hipDeviceGetName(char *name, int len, hipDevice_t device)
{
	int code = enter(__func__);
	snprintf(name, len, "Stand-in MI%d", device);
	return leave(code);
}

API hipError_t hipDeviceGetUuid(hipUUID *uuid, hipDevice_t device)
{
	char text[17];
	int code = enter(__func__);
	snprintf(text, sizeof text, "00000000000d0c0%d", device);
	memcpy(uuid->bytes, text, 16);
	return leave(code);
}

API hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t dst, void *src, size_t n, hipStream_t stream)
{
	int code = enter(__func__);
	if (!code)
		move_in((devaddr)dst, src, n, stream);
	return leave(code);
}

API hipError_t hipMemcpyDtoHAsync(void *dst, hipDeviceptr_t src, size_t n, hipStream_t stream)
{
	int code = enter(__func__);
	if (!code)
		move_out(dst, (devaddr)src, n, stream);
	return leave(code);
}

API hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t dst, hipDeviceptr_t src, size_t n, hipStream_t stream)
{
	int code = enter(__func__);
	if (!code)
		move_within((devaddr)dst, (devaddr)src, n, stream);
	return leave(code);
}

API hipError_t hipMemsetD8Async(hipDeviceptr_t dst, unsigned char value, size_t n, hipStream_t stream)
{
	int code = enter(__func__);
	if (!code)
		fill_memory((devaddr)dst, value, n, stream);
	return leave(code);
}

API hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t *handle, void *ptr)
{
	int code = enter(__func__);
	write_handle(handle, ptr);
	/* As some versions have it, beyond the unit of what they take. */
	size_t size = here((devaddr)ptr, 0, "memory")->size;
	if (size > 2 << 20 && size % 4096)
		code = code ? code : 17;
	return done(code);
}

API hipError_t hipIpcOpenMemHandle(void **ptr, hipIpcMemHandle_t handle, unsigned int flags)
{
	int code = enter(__func__);
	if (flags != 0) /* as HIP 5, which takes no other */
		return leave(1);
	return done(open_handle(code, ptr, &handle));
}

API hipError_t hipMemGetAddressRange(hipDeviceptr_t *base, size_t *size, hipDeviceptr_t ptr)
{
	int code = enter(__func__);
	struct piece *m = here((devaddr)ptr, 0, "memory");
	*base = (void *)m->base;
	*size = m->size;
	return done(code);
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
