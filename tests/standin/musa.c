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

#define VENDOR(name) musa##name
#define PCI_BUS "A"
#include "likecuda.h"

API musaError_t musaGetDeviceProperties(struct musaDeviceProp *prop, int device)
{
	int code = enter(__func__);
	memset(prop, 0x5a, sizeof *prop);
	snprintf(prop->name, sizeof prop->name, "Stand-in MTT S%d", device);
	return leave(code);
}

API musaError_t musaMemcpyAsync(void *dst, const void *src, size_t n, int kind, musaStream_t stream)
{
	int code = enter(__func__);
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
	int code = enter(__func__);
	if (!code)
		fill_memory((devaddr)dst, value, n, stream);
	return leave(code);
}

API musaError_t musaIpcGetMemHandle(musaIpcMemHandle_t *handle, void *ptr)
{
	int code = enter(__func__);
	write_handle(handle, ptr);
	return done(code);
}

API musaError_t musaIpcOpenMemHandle(void **ptr, musaIpcMemHandle_t handle, unsigned int flags)
{
	int code = enter(__func__);
	if (flags != 1)
		misuse("flags %u", flags);
	return done(open_handle(code, ptr, &handle));
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
