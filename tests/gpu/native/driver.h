/*
 * The CUDA driver API, opened at run time. Declared by NVIDIA's published
 * interface and shared with nothing in hmcfs: a mistake in one of the two
 * must not hide in the other.
 */
#ifndef HMCFS_TEST_DRIVER_H
#define HMCFS_TEST_DRIVER_H

#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NO_GPU is the exit status where there is no CUDA device. */
enum { FAILED = 1, USAGE = 2, NO_GPU = 3 };

__attribute__((noreturn, format(printf, 2, 3)))
static void die(int status, const char *format, ...) {
	va_list args;
	va_start(args, format);
	fputs("error: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(status);
}

typedef int CUresult;
typedef int CUdevice;
typedef void *CUcontext;
typedef void *CUstream;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct { char reserved[64]; } CUipcMemHandle;
typedef struct { unsigned char bytes[16]; } CUuuid;
typedef struct { int type, id; } CUmemLocation;
typedef struct { CUmemLocation location; int flags; } CUmemAccessDesc;
typedef struct {
	int type, requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	struct {
		unsigned char compressionType, gpuDirectRDMACapable;
		unsigned short usage;
		unsigned char reserved[4];
	} allocFlags;
} CUmemAllocationProp;

_Static_assert(sizeof(CUmemAllocationProp) == 32, "CUmemAllocationProp");
_Static_assert(sizeof(CUmemAccessDesc) == 12, "CUmemAccessDesc");

enum {
	CU_MEM_ALLOCATION_TYPE_PINNED = 1,
	CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1,
	CU_MEM_LOCATION_TYPE_DEVICE = 1,
	CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3,
	CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0,
	CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1,
	CU_MEMHOSTALLOC_PORTABLE = 1,
	CU_STREAM_NON_BLOCKING = 1,
	CU_DEVICE_ATTRIBUTE_COMPUTE_MODE = 20,
};

/* DRIVER lists what is called: the name here, the exported name, arguments. */
#define DRIVER(F) \
	F(Init, "cuInit", (unsigned)) \
	F(DriverGetVersion, "cuDriverGetVersion", (int *)) \
	F(DeviceGetCount, "cuDeviceGetCount", (int *)) \
	F(DeviceGet, "cuDeviceGet", (CUdevice *, int)) \
	F(DeviceGetName, "cuDeviceGetName", (char *, int, CUdevice)) \
	F(DeviceGetUuid, "cuDeviceGetUuid", (CUuuid *, CUdevice)) \
	F(DeviceGetPartUuid, "cuDeviceGetUuid_v2", (CUuuid *, CUdevice)) \
	F(DeviceGetAttribute, "cuDeviceGetAttribute", (int *, int, CUdevice)) \
	F(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice)) \
	F(CtxSetCurrent, "cuCtxSetCurrent", (CUcontext)) \
	F(StreamCreate, "cuStreamCreate", (CUstream *, unsigned)) \
	F(StreamSynchronize, "cuStreamSynchronize", (CUstream)) \
	F(MemGetInfo, "cuMemGetInfo_v2", (size_t *, size_t *)) \
	F(MemAlloc, "cuMemAlloc_v2", (CUdeviceptr *, size_t)) \
	F(MemFree, "cuMemFree_v2", (CUdeviceptr)) \
	F(MemHostAlloc, "cuMemHostAlloc", (void **, size_t, unsigned)) \
	F(MemFreeHost, "cuMemFreeHost", (void *)) \
	F(MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", (CUdeviceptr, const void *, size_t, CUstream)) \
	F(MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", (void *, CUdeviceptr, size_t, CUstream)) \
	F(MemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", (CUdeviceptr, CUdeviceptr, size_t, CUstream)) \
	F(GetErrorName, "cuGetErrorName", (CUresult, const char **)) \
	F(IpcGetMemHandle, "cuIpcGetMemHandle", (CUipcMemHandle *, CUdeviceptr)) \
	F(IpcOpenMemHandle, "cuIpcOpenMemHandle_v2", (CUdeviceptr *, CUipcMemHandle, unsigned)) \
	F(IpcCloseMemHandle, "cuIpcCloseMemHandle", (CUdeviceptr)) \
	F(MemGetAllocationGranularity, "cuMemGetAllocationGranularity", (size_t *, const CUmemAllocationProp *, int)) \
	F(MemCreate, "cuMemCreate", (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long)) \
	F(MemRelease, "cuMemRelease", (CUmemGenericAllocationHandle)) \
	F(MemAddressReserve, "cuMemAddressReserve", (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)) \
	F(MemAddressFree, "cuMemAddressFree", (CUdeviceptr, size_t)) \
	F(MemMap, "cuMemMap", (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long)) \
	F(MemUnmap, "cuMemUnmap", (CUdeviceptr, size_t)) \
	F(MemSetAccess, "cuMemSetAccess", (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t)) \
	F(MemExportToShareableHandle, "cuMemExportToShareableHandle", (void *, CUmemGenericAllocationHandle, int, unsigned long long)) \
	F(MemImportFromShareableHandle, "cuMemImportFromShareableHandle", (CUmemGenericAllocationHandle *, void *, int))

#define DECLARE(name, symbol, arguments) CUresult(*name) arguments;
static struct { DRIVER(DECLARE) } cu;
#undef DECLARE

/* Everything is moved on one stream, and waited for. */
static CUstream stream;

static const char *cu_error(CUresult code) {
	static char text[96];
	const char *name = NULL;
	if (cu.GetErrorName == NULL || cu.GetErrorName(code, &name) != 0 || name == NULL)
		name = "unknown error";
	snprintf(text, sizeof text, "%s (%d)", name, code);
	return text;
}

/* CALL makes a call, and ends the process with its name when it fails. */
#define CALL(name, ...) do { \
	if (cu.name == NULL) \
		die(FAILED, "the driver has no %s", #name); \
	CUresult code_ = cu.name(__VA_ARGS__); \
	if (code_ != 0) \
		die(FAILED, "cu%s: %s", #name, cu_error(code_)); \
} while (0)

/* driver_open opens the library. It ends the process, with NO_GPU, where
 * there is no library or no device. */
static void driver_open(void) {
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	if (library == NULL)
		die(NO_GPU, "no CUDA driver: %s", dlerror());
#define LOAD(name, symbol, arguments) *(void **)&cu.name = dlsym(library, symbol);
	DRIVER(LOAD)
#undef LOAD
	if (cu.Init == NULL || cu.DeviceGetCount == NULL)
		die(FAILED, "libcuda.so.1 is not a CUDA driver: it has no cuInit");
	CUresult code = cu.Init(0);
	if (code != 0)
		die(NO_GPU, "cuInit: %s", cu_error(code));
	int count = 0;
	CALL(DeviceGetCount, &count);
	if (count == 0)
		die(NO_GPU, "the CUDA driver has no device");
}

/* driver_uuid writes a device's UUID as nvidia-smi does, in 41 bytes. Of a part
 * of a card (MIG) the newer call, since 11.4, gives the part's. */
static void driver_uuid(CUdevice device, char text[41]) {
	CUuuid card, uuid;
	CALL(DeviceGetUuid, &card, device);
	uuid = card;
	if (cu.DeviceGetPartUuid != NULL)
		CALL(DeviceGetPartUuid, &uuid, device);
	int at = sprintf(text, memcmp(&card, &uuid, sizeof uuid) == 0 ? "GPU-" : "MIG-");
	for (int i = 0; i < 16; i++)
		at += sprintf(text + at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid.bytes[i]);
}

/* driver_use makes the primary context of a device that of this thread, and
 * the stream on which is copied. */
static CUdevice driver_use(int ordinal) {
	CUdevice device;
	CUcontext context;
	CALL(DeviceGet, &device, ordinal);
	CALL(DevicePrimaryCtxRetain, &context, device);
	CALL(CtxSetCurrent, context);
	CALL(StreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	return device;
}

/* The copies are done when these return. */
#define MOVE(name, to, from, n) do { \
	CALL(name, to, from, n, stream); \
	CALL(StreamSynchronize, stream); \
} while (0)

#endif
