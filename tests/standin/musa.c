//go:build ignore

/* A stand-in for libmusart. */
#define ERR_OOM 2
#define ERR_DEVICE 101
#define ERR_PEER_ENABLED 704
#define ERR_PINNED 712
#define ERR_SAME_PROCESS 201
#define ERR_HANDLE 400
#define NAME_ENDS_FIRST 0
#define PEERS_ENABLE 1
#include "runtime.h"

typedef int musaError_t;
typedef void *musaStream_t;
typedef struct {
	char reserved[64];
} musaIpcMemHandle_t;
/* The name is all that is known of it; the rest must have room too. */
struct musaDeviceProp {
	char name[256];
	char rest[2048];
};

API musaError_t musaGetDeviceCount(int *count)
{
	int code = enter("musaGetDeviceCount");
	*count = code ? 0 : config.devices;
	return leave(code || config.devices ? code : 100);
}

API musaError_t musaGetDeviceProperties(struct musaDeviceProp *prop, int device)
{
	int code = enter("musaGetDeviceProperties");
	memset(prop, 0x5a, sizeof *prop);
	snprintf(prop->name, sizeof prop->name, "Stand-in MTT S%d", device);
	return leave(code);
}

API musaError_t musaDeviceGetPCIBusId(char *id, int len, int device)
{
	int code = enter("musaDeviceGetPCIBusId");
	snprintf(id, len, "0000:A%d:00.0", device);
	return leave(code);
}

API musaError_t musaSetDevice(int device)
{
	int code = enter("musaSetDevice");
	return leave(code ? code : set_device(device));
}

API musaError_t musaMemGetInfo(size_t *free_bytes, size_t *total)
{
	int code = enter("musaMemGetInfo");
	uint64_t a, b;
	memory_info(&a, &b);
	*free_bytes = a;
	*total = b;
	return done(code);
}

API musaError_t musaMalloc(void **ptr, size_t size)
{
	int code = enter("musaMalloc");
	devaddr p = 0;
	if (!code)
		code = allocate(&p, size);
	*ptr = (void *)p;
	return done(code);
}

API musaError_t musaFree(void *ptr)
{
	int code = enter("musaFree");
	return done(code ? code : release((devaddr)ptr));
}

API musaError_t musaStreamCreateWithFlags(musaStream_t *stream, unsigned int flags)
{
	int code = enter("musaStreamCreateWithFlags");
	if (flags != 1)
		misuse("flags %u", flags);
	*stream = code ? NULL : (void *)new_stream();
	return done(code);
}

API musaError_t musaStreamDestroy(musaStream_t stream)
{
	int code = enter("musaStreamDestroy");
	return done(code ? code : end_stream(stream));
}

API musaError_t musaStreamSynchronize(musaStream_t stream)
{
	int code = enter("musaStreamSynchronize");
	return done(code ? code : wait_stream(stream));
}

API musaError_t musaMemcpyAsync(void *dst, const void *src, size_t n, int kind, musaStream_t stream)
{
	int code = enter("musaMemcpyAsync");
	if (code)
		return leave(code);
	switch (kind) {
	case 1:
		move_in((devaddr)dst, src, n, stream);
		break;
	case 2:
		move_out(dst, (devaddr)src, n, stream);
		break;
	case 3:
		move_within((devaddr)dst, (devaddr)src, n, stream);
		break;
	default:
		misuse("kind %d", kind);
	}
	return leave(0);
}

API musaError_t musaMemsetAsync(void *dst, int value, size_t n, musaStream_t stream)
{
	int code = enter("musaMemsetAsync");
	if (!code)
		fill_memory((devaddr)dst, value, n, stream);
	return leave(code);
}

API musaError_t musaDeviceCanAccessPeer(int *can, int device, int peer)
{
	int code = enter("musaDeviceCanAccessPeer");
	*can = can_reach(device, peer);
	return leave(code);
}

API musaError_t musaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
	int code = enter("musaDeviceEnablePeerAccess");
	if (flags)
		misuse("flags %u", flags);
	return done(code ? code : enable_peer(peer));
}

API musaError_t musaMemcpyPeerAsync(void *dst, int to, const void *src, int from, size_t n, musaStream_t stream)
{
	int code = enter("musaMemcpyPeerAsync");
	if (!code)
		move_peer((devaddr)dst, to, (devaddr)src, from, n, stream, to);
	return leave(code);
}

API musaError_t musaIpcGetMemHandle(musaIpcMemHandle_t *handle, void *ptr)
{
	int code = enter("musaIpcGetMemHandle");
	struct name name = export_memory((devaddr)ptr);
	memset(handle, 0, sizeof *handle);
	memcpy(handle->reserved, &name, sizeof name);
	memcpy(handle->reserved + 64 - sizeof name, &name, sizeof name);
	return done(code);
}

API musaError_t musaIpcOpenMemHandle(void **ptr, musaIpcMemHandle_t handle, unsigned int flags)
{
	int code = enter("musaIpcOpenMemHandle");
	struct name name;
	devaddr p = 0;
	if (flags != 1)
		misuse("flags %u", flags);
	memcpy(&name, handle.reserved, sizeof name);
	if (!code && memcmp(&name, handle.reserved + 64 - sizeof name, sizeof name) != 0)
		code = ERR_HANDLE;
	if (!code)
		code = import_memory(&p, name);
	*ptr = (void *)p;
	return done(code);
}

API musaError_t musaIpcCloseMemHandle(void *ptr)
{
	int code = enter("musaIpcCloseMemHandle");
	return done(code ? code : close_import((devaddr)ptr));
}

API musaError_t musaHostRegister(void *ptr, size_t size, unsigned int flags)
{
	int code = enter("musaHostRegister");
	if (flags != 1)
		misuse("flags %u", flags);
	return done(code ? code : pin_memory(ptr, size));
}

API musaError_t musaHostUnregister(void *ptr)
{
	int code = enter("musaHostUnregister");
	return done(code ? code : unpin_memory(ptr));
}

API const char *musaGetErrorName(musaError_t code)
{
	switch (code) {
	case 2: return "musaErrorMemoryAllocation";
	case 100: return "musaErrorNoDevice";
	case 201: return "musaErrorDeviceUninitialized";
	case 400: return "musaErrorInvalidResourceHandle";
	case 700: return "musaErrorIllegalAddress";
	case 712: return "musaErrorHostMemoryAlreadyRegistered";
	}
	return "musaErrorUnknown";
}

API const char *musaGetErrorString(musaError_t code)
{
	return code == 2 ? "out of memory" : musaGetErrorName(code);
}
