//go:build ignore

/*
 * A stand-in for libascendcl. With -DHMCFS_HEADERS it is compiled against the
 * vendor's header, which then checks every signature.
 */
#define ERR_OOM 207001
#define ERR_DEVICE 107001
#define ERR_PEER_ENABLED 0
#define ERR_PINNED 107000
#define ERR_SAME_PROCESS 507899
#define ERR_HANDLE 107017
#define NAME_ENDS_FIRST 1
#define PEERS_ENABLE 1
#include "runtime.h"

#ifdef HMCFS_HEADERS
#include <acl/acl.h>
#else
typedef int aclError;
typedef void *aclrtContext;
typedef void *aclrtStream;
typedef int aclrtMemAttr;
typedef int aclrtMemMallocPolicy;
typedef int aclrtMemcpyKind;
typedef struct {
	char bytes[16];
} aclrtUuid;
#endif

static int initialised;

static int begin(const char *call)
{
	int code = enter(call);
	if (!initialised)
		misuse("aclInit was not called");
	return code;
}

API aclError aclInit(const char *config)
{
	int code = enter("aclInit");
	if (config)
		misuse("a configuration");
	if (!code && initialised++)
		code = 100002;
	return leave(code);
}

API aclError aclFinalize(void)
{
	enter("aclFinalize");
	misuse("it is not ours to call");
	return leave(0);
}

API aclError aclrtGetDeviceCount(uint32_t *count)
{
	int code = begin("aclrtGetDeviceCount");
	*count = code ? 0 : config.devices;
	return leave(code);
}

API const char *aclrtGetSocName(void) { return "Stand-in Ascend910"; }

API aclError aclrtDeviceGetUuid(int32_t device, aclrtUuid *uuid)
{
	int code = begin("aclrtDeviceGetUuid");
	memset(uuid->bytes, 0xa0 + device, 16);
	return leave(code);
}

API aclError aclrtDeviceGetPCIBusId(int32_t device, char *id, int32_t len)
{
	int code = begin("aclrtDeviceGetPCIBusId");
	snprintf(id, len, "0000:D%d:00.0", device);
	return leave(code);
}

API aclError aclrtSetDevice(int32_t device)
{
	int code = begin("aclrtSetDevice");
	if (!code)
		code = set_device(device);
	if (!code)
		contexts[device]++;
	return leave(code);
}

API aclError aclrtResetDevice(int32_t device)
{
	int code = begin("aclrtResetDevice");
	if (device < 0 || device >= config.devices || contexts[device] == 0)
		misuse("device %d is not set", device);
	if (!code)
		contexts[device]--;
	return done(code);
}

API aclError aclrtGetCurrentContext(aclrtContext *context)
{
	int code = begin("aclrtGetCurrentContext");
	need_device();
	*context = &contexts[current];
	return done(code);
}

API aclError aclrtSetCurrentContext(aclrtContext context)
{
	int code = begin("aclrtSetCurrentContext");
	int *at = context;
	if (at < contexts || at >= contexts + MAX_DEVICES || *at == 0)
		misuse("%p is no context", context);
	return leave(code ? code : set_device((int)(at - contexts)));
}

API aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t *free_bytes, size_t *total)
{
	int code = begin("aclrtGetMemInfo");
	uint64_t a, b;
	if (attr != 1)
		misuse("attribute %d", (int)attr);
	memory_info(&a, &b);
	*free_bytes = a;
	*total = b;
	return done(code);
}

API aclError aclrtMalloc(void **ptr, size_t size, aclrtMemMallocPolicy policy)
{
	int code = begin("aclrtMalloc");
	devaddr p = 0;
	if (policy != 0)
		misuse("policy %d", (int)policy);
	if (!code)
		code = allocate(&p, size);
	*ptr = (void *)p;
	return done(code);
}

API aclError aclrtFree(void *ptr)
{
	int code = begin("aclrtFree");
	return done(code ? code : release((devaddr)ptr));
}

API aclError aclrtCreateStream(aclrtStream *stream)
{
	int code = begin("aclrtCreateStream");
	*stream = code ? NULL : (void *)new_stream();
	return done(code);
}

API aclError aclrtDestroyStream(aclrtStream stream)
{
	int code = begin("aclrtDestroyStream");
	return done(code ? code : end_stream(stream));
}

API aclError aclrtSynchronizeStream(aclrtStream stream)
{
	int code = begin("aclrtSynchronizeStream");
	return done(code ? code : wait_stream(stream));
}

static void copy_on_device(devaddr dst, size_t room, devaddr src, size_t n, aclrtStream stream)
{
	struct piece *to = piece_of(dst, n, "destination"), *from = piece_of(src, n, "source");
	check_room(to, dst, room, n);
	if (to->device != from->device) {
		need_device();
		move_peer(dst, to->device, src, from->device, n, stream, to->device);
		return;
	}
	if (dst % 64 || src % 64)
		misuse("addresses %#llx and %#llx are not aligned to 64", (unsigned long long)dst, (unsigned long long)src);
	move_within(dst, src, n, stream);
}

API aclError aclrtMemcpyAsync(void *dst, size_t room, const void *src, size_t n, aclrtMemcpyKind kind, aclrtStream stream)
{
	int code = begin("aclrtMemcpyAsync");
	if (code)
		return leave(code);
	switch ((int)kind) {
	case 1:
		check_room(move_in((devaddr)dst, src, n, stream), (devaddr)dst, room, n);
		break;
	case 2:
		if (room != n)
			misuse("%zu bytes into room for %zu", n, room);
		move_out(dst, (devaddr)src, n, stream);
		break;
	case 3:
		copy_on_device((devaddr)dst, room, (devaddr)src, n, stream);
		break;
	default:
		misuse("kind %d", (int)kind);
	}
	return leave(0);
}

API aclError aclrtMemsetAsync(void *dst, size_t room, int32_t value, size_t n, aclrtStream stream)
{
	int code = begin("aclrtMemsetAsync");
	if (!code)
		check_room(fill_memory((devaddr)dst, value, n, stream), (devaddr)dst, room, n);
	return leave(code);
}

API aclError aclrtDeviceCanAccessPeer(int32_t *can, int32_t device, int32_t peer)
{
	int code = begin("aclrtDeviceCanAccessPeer");
	if (current != device)
		misuse("device %d is asked for, the thread is on %d", device, current);
	*can = can_reach(device, peer);
	return done(code);
}

API aclError aclrtDeviceEnablePeerAccess(int32_t peer, uint32_t flags)
{
	int code = begin("aclrtDeviceEnablePeerAccess");
	if (flags)
		misuse("flags %u", flags);
	return done(code ? code : enable_peer(peer));
}

API aclError aclrtIpcMemGetExportKey(void *ptr, size_t size, char *key, size_t len, uint64_t flags)
{
	int code = begin("aclrtIpcMemGetExportKey");
	struct piece *m = here((devaddr)ptr, size, "memory");
	if (m->size != size || len != 65 || flags != 1)
		misuse("%zu of %llu bytes, a key of %zu, flags %llu", size, (unsigned long long)m->size, len, (unsigned long long)flags);
	if (m->exported)
		misuse("the memory has a key already");
	struct name name = export_memory((devaddr)ptr);
	memset(key, 0, len);
	snprintf(key, len, "%032llx%08x%08x%016llx", 0x5aull, name.pid, name.fd, (unsigned long long)name.nonce);
	return done(code);
}

API aclError aclrtIpcMemImportByKey(void **ptr, const char *key, uint64_t flags)
{
	int code = begin("aclrtIpcMemImportByKey");
	unsigned long long mark = 0, nonce = 0;
	struct name name = {0};
	devaddr p = 0;
	if (flags)
		misuse("flags %llu", (unsigned long long)flags);
	if (!code && (strlen(key) != 64 || sscanf(key, "%32llx%8x%8x%16llx", &mark, &name.pid, &name.fd, &nonce) != 4 || mark != 0x5a))
		code = ERR_HANDLE;
	name.nonce = nonce;
	if (!code)
		code = import_memory(&p, name);
	*ptr = (void *)p;
	return done(code);
}

API aclError aclrtIpcMemClose(const char *key)
{
	int code = begin("aclrtIpcMemClose");
	unsigned long long nonce = 0;
	need_device();
	if (strlen(key) != 64 || sscanf(key + 48, "%16llx", &nonce) != 1)
		misuse("\"%s\" is no key", key);
	for (struct piece *m = pieces; m; m = m->next) {
		if (m->memory->nonce != nonce)
			continue;
		if (m->imported) {
			close_import(m->base);
			return done(code);
		}
		if (m->exported) {
			m->exported = 0;
			return done(code);
		}
	}
	misuse("\"%s\" names nothing here", key);
	return done(code);
}

API aclError aclrtHostRegisterV2(void *ptr, uint64_t size, uint32_t flags)
{
	int code = begin("aclrtHostRegisterV2");
	if (flags != 0x10000000u)
		misuse("flags %#x", flags);
	if ((uintptr_t)ptr % 4096 || size % 4096)
		misuse("%p, %llu bytes: not in pages", ptr, (unsigned long long)size);
	return done(code ? code : pin_memory(ptr, size));
}

API aclError aclrtHostUnregister(void *ptr)
{
	int code = begin("aclrtHostUnregister");
	return done(code ? code : unpin_memory(ptr));
}

API const char *aclGetRecentErrMsg(void)
{
	return "\nEE1001: the stand-in was told to fail\n        TraceBack (most recent call last):\n";
}
