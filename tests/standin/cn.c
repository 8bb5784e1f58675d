//go:build ignore

/*
 * A stand-in for libcndrv. With -DHMCFS_HEADERS it is compiled against the
 * vendor's header, which then checks every signature.
 */
#define ERR_OOM 100100
#define ERR_DEVICE 100005
#define ERR_PEER_ENABLED 1
#define ERR_PINNED 1
#define ERR_SAME_PROCESS 100006
#define ERR_HANDLE 100006
#define NAME_ENDS_FIRST 0
#define PEERS_ENABLE 0
#include "runtime.h"

#ifdef HMCFS_HEADERS
#include <cn_api.h>
#else
typedef int CNresult;
typedef uint64_t cn_uint64_t;
typedef cn_uint64_t CNaddr;
typedef cn_uint64_t CNdev;
typedef struct CNcontext_st *CNcontext;
typedef struct CNqueue_st *CNqueue;
typedef struct CNipcMemHandle_st *CNIpcMemHandle;
#endif

static int initialised;
/* A device's handle is not its number. */
enum { DEVICE_HANDLE = 0x1000 };

static int number_of(CNdev dev)
{
	int i = (int)(dev - DEVICE_HANDLE);
	if (dev < DEVICE_HANDLE || i >= config.devices)
		misuse("%#llx is no device", (unsigned long long)dev);
	return i;
}

static int context_of(CNcontext context)
{
	int *at = (int *)(void *)context;
	if (at < contexts || at >= contexts + MAX_DEVICES || *at == 0)
		misuse("%p is no context", (void *)context);
	return (int)(at - contexts);
}

static int begin(const char *call)
{
	int code = enter(call);
	if (!initialised)
		misuse("cnInit was not called");
	return code;
}

API CNresult cnInit(unsigned int flags)
{
	int code = enter("cnInit");
	if (flags)
		misuse("flags %u", flags);
	initialised = 1;
	return leave(code);
}

API CNresult cnDeviceGetCount(int *count)
{
	int code = begin("cnDeviceGetCount");
	*count = code ? 0 : config.devices;
	return leave(code);
}

API CNresult cnDeviceGet(CNdev *dev, int ordinal)
{
	int code = begin("cnDeviceGet");
	if (!code && (ordinal < 0 || ordinal >= config.devices))
		code = ERR_DEVICE;
	*dev = DEVICE_HANDLE + ordinal;
	return leave(code);
}

API CNresult cnDeviceGetName(char *name, unsigned int len, CNdev dev)
{
	int code = begin("cnDeviceGetName");
	snprintf(name, len, "Stand-in MLU%d", number_of(dev));
	return leave(code);
}

API CNresult cnDeviceGetPCIBusId(char *id, int len, CNdev dev)
{
	int code = begin("cnDeviceGetPCIBusId");
	snprintf(id, len, "0000:B%d:00.0", number_of(dev));
	return leave(code);
}

API CNresult cnDeviceGetUuidStr(char *uuid, int len, CNdev dev)
{
	int code = begin("cnDeviceGetUuidStr");
	snprintf(uuid, len, "00000000-0000-0000-0000-0000000000c%d", number_of(dev));
	return leave(code);
}

API CNresult cnSharedContextAcquire(CNcontext *context, CNdev dev)
{
	int code = begin("cnSharedContextAcquire");
	int i = number_of(dev);
	if (!code)
		contexts[i]++;
	*context = (CNcontext)(void *)&contexts[i];
	return done(code);
}

API CNresult cnSharedContextRelease(CNdev dev)
{
	int code = begin("cnSharedContextRelease");
	int i = number_of(dev);
	if (contexts[i] == 0)
		misuse("the context is not acquired");
	if (!code)
		contexts[i]--;
	return done(code);
}

API CNresult cnCtxSetCurrent(CNcontext context)
{
	int code = begin("cnCtxSetCurrent");
	return leave(code ? code : set_device(context_of(context)));
}

API CNresult cnMemGetInfo(cn_uint64_t *free_bytes, cn_uint64_t *total)
{
	int code = begin("cnMemGetInfo");
	uint64_t a, b;
	memory_info(&a, &b);
	*free_bytes = a;
	*total = b;
	return done(code);
}

API CNresult cnMalloc(CNaddr *ptr, cn_uint64_t size)
{
	int code = begin("cnMalloc");
	devaddr p = 0;
	if (!code)
		code = allocate(&p, size);
	*ptr = p;
	return done(code);
}

API CNresult cnFree(CNaddr ptr)
{
	int code = begin("cnFree");
	return done(code ? code : release(ptr));
}

API CNresult cnCreateQueue(CNqueue *queue, unsigned int flags)
{
	int code = begin("cnCreateQueue");
	if (flags)
		misuse("flags %u", flags);
	*queue = code ? NULL : (CNqueue)(void *)new_stream();
	return done(code);
}

API CNresult cnDestroyQueue(CNqueue queue)
{
	int code = begin("cnDestroyQueue");
	return done(code ? code : end_stream(queue));
}

API CNresult cnQueueSync(CNqueue queue)
{
	int code = begin("cnQueueSync");
	return done(code ? code : wait_stream(queue));
}

API CNresult cnMemcpyHtoDAsync(CNaddr dst, const void *src, cn_uint64_t n, CNqueue queue)
{
	int code = begin("cnMemcpyHtoDAsync");
	if (!code)
		move_in(dst, src, n, queue);
	return leave(code);
}

API CNresult cnMemcpyDtoHAsync(void *dst, CNaddr src, cn_uint64_t n, CNqueue queue)
{
	int code = begin("cnMemcpyDtoHAsync");
	if (!code)
		move_out(dst, src, n, queue);
	return leave(code);
}

API CNresult cnMemcpyDtoDAsync(CNaddr dst, CNaddr src, cn_uint64_t n, CNqueue queue)
{
	int code = begin("cnMemcpyDtoDAsync");
	if (!code)
		move_within(dst, src, n, queue);
	return leave(code);
}

API CNresult cnMemsetD8Async(CNaddr dst, unsigned char value, cn_uint64_t n, CNqueue queue)
{
	int code = begin("cnMemsetD8Async");
	if (!code)
		fill_memory(dst, value, n, queue);
	return leave(code);
}

API CNresult cnDeviceCanPeerAble(int *can, CNdev src, CNdev dst)
{
	int code = begin("cnDeviceCanPeerAble");
	*can = can_reach(number_of(src), number_of(dst));
	return leave(code);
}

API CNresult cnMemcpyPeerAsync(CNaddr dst, CNcontext to, CNaddr src, CNcontext from, cn_uint64_t n, CNqueue queue)
{
	int code = begin("cnMemcpyPeerAsync");
	if (!code)
		move_peer(dst, context_of(to), src, context_of(from), n, queue, context_of(from));
	return leave(code);
}

/* The handle is one word, so it has no room to say which file is meant: that
 * the descriptor is still that memory is up to the process that owns it. */
API CNresult cnIpcGetMemHandle(CNIpcMemHandle *handle, CNaddr ptr)
{
	int code = begin("cnIpcGetMemHandle");
	struct name name = export_memory(ptr);
	*handle = (CNIpcMemHandle)(void *)((uint64_t)name.pid << 32 | 0x5a000000u | name.fd);
	return done(code);
}

API CNresult cnIpcOpenMemHandle(CNaddr *ptr, CNIpcMemHandle handle, unsigned int flags)
{
	int code = begin("cnIpcOpenMemHandle");
	uint64_t word = (uint64_t)(void *)handle;
	devaddr p = 0;
	if (flags)
		misuse("flags %u", flags);
	if (!code && (word >> 24 & 0xff) != 0x5a)
		code = ERR_HANDLE;
	if (!code)
		code = import_memory(&p, (struct name){.pid = word >> 32, .fd = word & 0xffffff});
	*ptr = p;
	return done(code);
}

API CNresult cnIpcCloseMemHandle(CNaddr ptr)
{
	int code = begin("cnIpcCloseMemHandle");
	return done(code ? code : close_import(ptr));
}

API CNresult cnMemGetAddressRange(CNaddr *base, cn_uint64_t *size, const CNaddr ptr)
{
	int code = begin("cnMemGetAddressRange");
	struct piece *m = here(ptr, 0, "memory");
	*base = m->base;
	*size = m->size;
	return done(code);
}

static const char *name_of(int code)
{
	switch (code) {
	case 100004: return "CN_ERROR_NO_DEVICE";
	case 100006: return "CN_ERROR_INVALID_VALUE";
	case 100016: return "CN_ERROR_ECC_UNCORRECTABLE";
	case 100100: return "CN_MEMORY_ERROR_OUT_OF_MEMORY";
	}
	return "CN_ERROR_UNKNOWN";
}

API CNresult cnGetErrorName(CNresult error, const char **text)
{
	*text = name_of(error);
	return 0;
}

API CNresult cnGetErrorString(CNresult error, const char **text)
{
	*text = (int)error == 100100 ? "there is not enough MLU memory" : name_of(error);
	return 0;
}
