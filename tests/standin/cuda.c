//go:build ignore

// A stand-in for libcuda.so.1: the driver API of CUDA 12 on host memory, as far
// as hmcfs uses it. standin.h tells how it is configured.
//
// What it is strict about, beyond arguments: a call that needs a context ends
// the process unless the calling thread has one, of the device that pointers
// and streams belong to. Asynchronous work on pinned memory and inside devices
// is done when its stream is synchronised and not before, so that a missing
// synchronisation is seen. Releasing the last primary context of a device ends
// the process if something of it is left. Device addresses can't be touched by
// the host.
//
// Not CUDA's: the second opening of an IPC handle in one process fails, as with
// some drivers, although newer ones count it.
#include "accounts.h"

#include <sys/socket.h>

#ifdef HMCFS_STANDIN_VENDOR_HEADER // the test of the ABI has the real one
#include <cuda.h>
#else
typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUmod_st *CUmodule;
typedef struct CUevent_st *CUevent;
typedef struct CUfunc_st *CUfunction;
typedef unsigned CUdevice_attribute, CUdevice_P2PAttribute, CUmemAllocationHandleType, CUmemAllocationGranularity_flags;
typedef struct { char bytes[16]; } CUuuid;
typedef struct { char reserved[64]; } CUipcMemHandle;
typedef struct { unsigned type; int id; } CUmemLocation;
typedef struct { CUmemLocation location; unsigned flags; } CUmemAccessDesc;
typedef struct {
	unsigned type, requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	struct {
		unsigned char compressionType, gpuDirectRDMACapable;
		unsigned short usage;
		unsigned char reserved[4];
	} allocFlags;
} CUmemAllocationProp;
#endif

enum {
	OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
	INVALID_CONTEXT = 201, MAP_FAILED_ = 205, ALREADY_MAPPED = 208, PEER_UNSUPPORTED = 217,
	INVALID_PTX = 218, OPERATING_SYSTEM = 304, NOT_FOUND = 500, NOT_READY = 600, PEER_ALREADY_ENABLED = 704, ALREADY_REGISTERED = 712, NOT_SUPPORTED = 801,
};
enum { GRANULARITY = 2 << 20, PLAIN_ALIGN = 512 };

// Each device has a part of an address space that no host maps.
#define DEVICE_BASE(dev) (0xd000000000000000ull + ((uint64_t)(dev) << 44))

enum kind { PLAIN, RESERVED, OPENED };

struct range { // of device addresses
	enum kind kind;
	CUdeviceptr base;
	uint64_t size;
	int device;
	struct memory *memory; // NULL: reserved and not mapped
	unsigned access;       // bit for each device that may touch a reserved one
	uint64_t before;       // what the driver counts to the range before its base
	struct range *next;
};

struct physical { // of cuMemCreate
	struct memory *memory;
	unsigned types;
	int rdma;
	struct physical *next;
};

struct pinned { uint8_t *p; size_t n; int own; struct pinned *next; };

struct op { // of a stream, not done yet
	CUdeviceptr dst, src;
	uint8_t *in, *out; // host side
	void *copy;        // what was staged of pageable memory
	size_t n;
	int value, peer;   // value -1: a copy
	struct CUfunc_st *kernel; // of n elements, else NULL
	struct CUevent_st *record, *wait;
	int turn;                 // of the event
	struct op *next;
};

struct CUctx_st { int device, refs; CUresult broken; unsigned peers; int streams, modules, events; uint64_t used, top; };
enum { KERNELS = 4 };
struct CUfunc_st { struct CUctx_st *ctx; char name[64]; size_t size; void (*combine)(void *dst, const void *src, size_t n); };
struct CUevent_st { struct CUctx_st *ctx; struct CUstream_st *stream; int recorded, done, asked, holders, destroyed; };
struct CUmod_st { struct CUctx_st *ctx; char *text; struct CUfunc_st functions[KERNELS]; int used; };
struct CUstream_st { struct CUctx_st *ctx; struct op *first, **last; struct CUstream_st *next; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int initialised;
static struct CUctx_st contexts[MAX_DEVICES];
static struct range *ranges;
static struct physical *physicals;
static struct pinned *pins;
static struct CUstream_st *streams;
static __thread struct CUctx_st *current;

// Entering and leaving. Every call that needs a context goes through ENTER,
// every other through ENTER_FREE; both hold the lock until LEAVE.

static int is_sticky(int code)
{
	return code == 214 || code == 220 || code == 702 || code == 709 || code == 710 || code == 700 ||
	       (code >= 714 && code <= 719);
}

static CUresult enter(const char *call, int needs_context)
{
	pthread_mutex_lock(&lock);
	config_read();
	if (!initialised)
		return NOT_INITIALIZED;
	if (needs_context) {
		if (!current)
			die("%s: the thread has no context", call);
		if (current->refs == 0)
			die("%s: the context of device %d has been released", call, current->device);
		if (current->broken && config.silent)
			die("%s: device %d has failed before", call, current->device);
		if (current->broken)
			return current->broken;
	}
	int code = injected(call, current ? current->device : -1);
	if (needs_context && is_sticky(code))
		current->broken = code;
	return code;
}

static CUresult leave(CUresult r)
{
	if (current)
		account_set(current->device, current->used);
	pthread_mutex_unlock(&lock);
	return r;
}

#define ENTER(needs)                                  \
	do {                                          \
		CUresult r_ = enter(__func__, needs); \
		if (r_)                               \
			return leave(r_);             \
	} while (0)

static struct range *range_of(const char *call, CUdeviceptr p, uint64_t n)
{
	for (struct range *r = ranges; r; r = r->next)
		if (p >= r->base && p - r->base < r->size) {
			if (n > r->size - (p - r->base))
				die("%s: %llu bytes at %llx, the allocation ends after %llu", call, (unsigned long long)n, p,
				    (unsigned long long)(r->size - (p - r->base)));
			return r;
		}
	die("%s: %llx is no address of a device", call, p);
}

static struct range *range_at(const char *call, CUdeviceptr p, enum kind kind)
{
	struct range *r = range_of(call, p, 0);
	if (r->base != p || r->kind != kind)
		die("%s: %llx is not the begin of such a range", call, p);
	if (r->device != current->device)
		die("%s: %llx is of device %d, the thread's context of %d", call, p, r->device, current->device);
	return r;
}

// reach is where the bytes of a device address are; device is who touches them.
static uint8_t *reach(const char *call, CUdeviceptr p, uint64_t n, int device)
{
	struct range *r = range_of(call, p, n);
	if (!r->memory)
		die("%s: nothing is mapped at %llx", call, p);
	if (r->kind == RESERVED ? !(r->access >> device & 1)
				: r->device != device && !(contexts[device].peers >> r->device & 1))
		die("%s: device %d has no access to %llx of device %d", call, device, p, r->device);
	return r->memory->bytes + (p - r->base);
}

static struct range *range_new(enum kind kind, int device, uint64_t size, uint64_t align)
{
	struct CUctx_st *c = &contexts[device];
	struct range *r = calloc(1, sizeof *r);
	// A gap after each range catches what runs over its end.
	c->top = (c->top + align - 1) / align * align;
	*r = (struct range){kind, DEVICE_BASE(device) + GRANULARITY + c->top, size, device, NULL, 0, 0, ranges};
	c->top += size + GRANULARITY;
	ranges = r;
	return r;
}

static void range_drop(struct range *r)
{
	struct range **at = &ranges;
	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	if (r->memory)
		memory_drop(r->memory);
	free(r);
}

static uint64_t free_bytes(int device)
{
	uint64_t used = contexts[device].used + config.taken[device] + account_others(device) + marked(device);
	return used < config.memory ? config.memory - used : 0;
}

// Host memory.

static struct pinned *pinned_over(const void *p, size_t n)
{
	const uint8_t *b = p;
	for (struct pinned *h = pins; h; h = h->next)
		if (b < h->p + h->n && h->p < b + n)
			return h;
	return NULL;
}

enum { PAGEABLE, PINNED, MIXED };

// pinning tells how much of some host memory is pinned. A copy from or to memory
// of which a part is, is documented to be refused.
static int pinning(const char *call, const void *p, size_t n)
{
	const uint8_t *b = p;
	struct pinned *h = pinned_over(p, n);
	if ((uintptr_t)p >= DEVICE_BASE(0) || !p)
		die("%s: %p is no host memory", call, p);
	return !h ? PAGEABLE : b < h->p || b + n > h->p + h->n ? MIXED : PINNED;
}

static void pin(void *p, size_t n, int own)
{
	struct pinned *h = calloc(1, sizeof *h);
	*h = (struct pinned){p, n, own, pins};
	pins = h;
}

static void unpin(const char *call, void *p, int own)
{
	for (struct pinned **at = &pins; *at; at = &(*at)->next)
		if ((*at)->p == p && (*at)->own == own) {
			struct pinned *h = *at;
			*at = h->next;
			if (own)
				munmap(p, h->n);
			free(h);
			return;
		}
	die("%s: %p is not pinned in this way", call, p);
}

// Streams.

static void stream_check(const char *call, CUstream s)
{
	for (struct CUstream_st *x = streams; x; x = x->next)
		if (x == s) {
			if (s->ctx != current)
				die("%s: the stream is of device %d, the thread's context of %d", call, s->ctx->device,
				    current->device);
			return;
		}
	die("%s: no such stream", call);
}

static struct op *enqueue(const char *call, CUstream s, size_t n)
{
	stream_check(call, s);
	if (n == 0)
		die("%s: 0 bytes", call);
	struct op *o = calloc(1, sizeof *o);
	o->n = n;
	o->value = -1;
	o->peer = s->ctx->device;
	*s->last = o;
	s->last = &o->next;
	return o;
}

// event_release lets go of an event, which lasts as long as streams have it. One
// that was destroyed stays, so that its use is told.
static void event_release(struct CUevent_st *e)
{
	if (e && --e->holders == 0 && !e->destroyed)
		free(e);
}

static void event_check(const char *call, struct CUevent_st *e)
{
	if (e->destroyed)
		die("%s: the event was destroyed", call);
}

static void drain_to(const char *call, CUstream s, struct CUevent_st *e, int turn);

static void perform(const char *call, struct op *o, int device)
{
	if (o->record) {
		o->record->done = o->turn;
		return;
	}
	if (o->wait) {
		drain_to(call, o->wait->stream, o->wait, o->turn);
		return;
	}
	if (o->kernel) {
		size_t bytes = o->n * o->kernel->size;
		o->kernel->combine(reach(call, o->dst, bytes, device), reach(call, o->src, bytes, device), o->n);
		return;
	}
	// What is not staged must be pinned still.
	if (((o->in && !o->copy) || o->out) && pinning(call, o->in ? o->in : o->out, o->n) != PINNED)
		die("%s: host memory was unpinned while a copy was on its way", call);
	uint8_t *dst = o->out ? o->out : reach(call, o->dst, o->n, device);
	if (o->value >= 0)
		memset(dst, o->value, o->n);
	else
		memcpy(dst, o->copy ? o->copy : o->in ? o->in : reach(call, o->src, o->n, device), o->n);
}

// drain_to does a stream's work up to an event, or all of it.
static void drain_to(const char *call, CUstream s, struct CUevent_st *e, int turn)
{
	for (struct op *o; (!e || e->done < turn) && (o = s->first);) {
		s->first = o->next;
		if (!s->first)
			s->last = &s->first;
		perform(call, o, s->ctx->device);
		event_release(o->record);
		event_release(o->wait);
		free(o->copy);
		free(o);
	}
}

static void drain(const char *call, CUstream s) { drain_to(call, s, NULL, 0); }

static void drain_device(const char *call, int device)
{
	for (struct CUstream_st *s = streams; s; s = s->next)
		if (s->ctx->device == device)
			drain(call, s);
}

// Initialisation and facts.

API CUresult cuInit(unsigned flags)
{
	pthread_mutex_lock(&lock);
	config_read();
	int code = injected(__func__, -1);
	if (flags)
		die("cuInit: flags %u", flags);
	if (!code && config.devices == 0)
		code = NO_DEVICE;
	if (!code)
		initialised = 1;
	for (int i = 0; i < MAX_DEVICES; i++)
		contexts[i].device = i;
	return leave(code);
}

API CUresult cuDriverGetVersion(int *version)
{
	pthread_mutex_lock(&lock);
	config_read();
	*version = config.version;
	return leave(injected(__func__, -1));
}

API CUresult cuDeviceGetCount(int *count)
{
	ENTER(0);
	*count = config.devices;
	return leave(OK);
}

static int no_device(CUdevice dev) { return dev < 0 || dev >= config.devices; }

API CUresult cuDeviceGet(CUdevice *dev, int ordinal)
{
	ENTER(0);
	*dev = ordinal;
	return leave(no_device(ordinal) ? INVALID_DEVICE : OK);
}

#define ENTER_DEVICE(dev)                              \
	do {                                           \
		ENTER(0);                              \
		if (no_device(dev))                    \
			die("%s: device %d", __func__, dev); \
	} while (0)

API CUresult cuDeviceGetName(char *name, int n, CUdevice dev)
{
	ENTER_DEVICE(dev);
	snprintf(name, (size_t)n, "Stand-in GPU %d", dev);
	return leave(OK);
}

API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	ENTER_DEVICE(dev);
	*bytes = config.memory;
	return leave(OK);
}

API CUresult cuDeviceGetPCIBusId(char *text, int n, CUdevice dev)
{
	ENTER_DEVICE(dev);
	snprintf(text, (size_t)n, "0000:%02X:00.0", 0xAB + dev);
	return leave(OK);
}

API CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
	ENTER_DEVICE(dev);
	for (int i = 0; i < 16; i++)
		uuid->bytes[i] = (char)(0xC0 + i * 3);
	uuid->bytes[15] = (char)dev;
	return leave(OK);
}

// Of a part of a card (MIG) this one is the part's.
API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
	CUresult r = cuDeviceGetUuid(uuid, dev);
	uuid->bytes[0] ^= (char)config.mig;
	return r;
}

API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice dev)
{
	ENTER_DEVICE(dev);
	switch ((int)attribute) {
	case 20: // COMPUTE_MODE
		*value = config.mode;
		return leave(OK);
	case 110: // GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
		*value = config.rdma;
		return leave(OK);
	case 41: // UNIFIED_ADDRESSING
	case 125: // IPC_EVENT_SUPPORTED
		*value = 1;
		return leave(OK);
	case 102: // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
	case 103: // HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
		*value = config.vmm;
		return leave(OK);
	}
	die("cuDeviceGetAttribute: attribute %d is not expected", (int)attribute);
}

API CUresult cuDeviceCanAccessPeer(int *can, CUdevice dev, CUdevice peer)
{
	ENTER_DEVICE(dev);
	if (no_device(peer))
		die("cuDeviceCanAccessPeer: device %d", peer);
	*can = config.peer && dev != peer;
	return leave(OK);
}

API CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice dev, CUdevice peer)
{
	ENTER_DEVICE(dev);
	if (no_device(peer) || dev == peer)
		die("cuDeviceGetP2PAttribute: device %d", peer);
	if ((int)attribute != 1) // PERFORMANCE_RANK
		die("cuDeviceGetP2PAttribute: attribute %d is not expected", (int)attribute);
	// Neighbours are joined by NVLink, so to speak.
	*value = dev / 2 != peer / 2;
	return leave(OK);
}

static const struct { int code; const char *name, *text; } errors[] = {
	{OK, "CUDA_SUCCESS", "no error"},
	{INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	{214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
	{700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
	{719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
	{803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
};

static const char *error_text(CUresult code, int text)
{
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].code == (int)code)
			return text ? errors[i].text : errors[i].name;
	return NULL;
}

API CUresult cuGetErrorName(CUresult code, const char **text)
{
	*text = error_text(code, 0);
	return *text ? OK : INVALID_VALUE;
}

API CUresult cuGetErrorString(CUresult code, const char **text)
{
	*text = error_text(code, 1);
	return *text ? OK : INVALID_VALUE;
}

// Contexts and streams.

API CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev)
{
	ENTER_DEVICE(dev);
	contexts[dev].refs++;
	*ctx = &contexts[dev];
	return leave(contexts[dev].broken);
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	ENTER_DEVICE(dev);
	struct CUctx_st *c = &contexts[dev];
	if (c->refs == 0)
		die("cuDevicePrimaryCtxRelease: device %d is not retained", dev);
	if (--c->refs)
		return leave(OK);
	for (struct range *r = ranges; r; r = r->next)
		if (r->device == dev)
			die("cuDevicePrimaryCtxRelease: %llu bytes of device %d are left", (unsigned long long)r->size, dev);
	for (struct physical *p = physicals; p; p = p->next)
		if (p->memory->device == dev)
			die("cuDevicePrimaryCtxRelease: a handle of %llu bytes of device %d is left",
			    (unsigned long long)p->memory->size, dev);
	if (c->streams || c->modules || c->events || c->used)
		die("cuDevicePrimaryCtxRelease: %d streams, %d modules, %d events and %llu bytes of device %d are left", c->streams,
		    c->modules, c->events, (unsigned long long)c->used, dev);
	c->peers = 0;
	for (int i = 0; i < MAX_DEVICES; i++)
		contexts[i].peers &= ~(1u << dev);
	return leave(OK);
}

API CUresult cuCtxSetCurrent(CUcontext ctx)
{
	ENTER(0);
	if (ctx < contexts || ctx >= contexts + config.devices || ctx->refs == 0)
		die("cuCtxSetCurrent: no such context");
	current = ctx;
	return leave(OK);
}

API CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
	ENTER(1);
	if (flags || peer == current || peer->refs == 0)
		die("cuCtxEnablePeerAccess: flags %u, device %d from %d", flags, peer->device, current->device);
	if (!config.peer)
		return leave(PEER_UNSUPPORTED);
	if (current->peers >> peer->device & 1)
		return leave(PEER_ALREADY_ENABLED);
	current->peers |= 1u << peer->device;
	return leave(OK);
}

API CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
	ENTER(1);
	if (flags != 1)
		die("cuStreamCreate: flags %u wait for the default stream", flags);
	struct CUstream_st *s = calloc(1, sizeof *s);
	*s = (struct CUstream_st){current, NULL, NULL, streams};
	s->last = &s->first;
	current->streams++;
	*out = streams = s;
	return leave(OK);
}

API CUresult cuStreamDestroy_v2(CUstream s)
{
	ENTER(1);
	stream_check(__func__, s);
	drain(__func__, s);
	struct CUstream_st **at = &streams;
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	s->ctx->streams--;
	free(s);
	return leave(OK);
}

API CUresult cuStreamSynchronize(CUstream s)
{
	ENTER(1);
	stream_check(__func__, s);
	drain(__func__, s);
	return leave(OK);
}

// Events. Work that another stream has recorded is done when somebody waits for
// it, and not before.

API CUresult cuEventCreate(CUevent *out, unsigned flags)
{
	ENTER(1);
	if (flags != 2)
		die("cuEventCreate: flags %u take the time", flags);
	struct CUevent_st *e = calloc(1, sizeof *e);
	*e = (struct CUevent_st){.ctx = current, .holders = 1};
	current->events++;
	*out = e;
	return leave(OK);
}

API CUresult cuEventDestroy_v2(CUevent e)
{
	ENTER(1);
	event_check(__func__, e);
	e->destroyed = 1;
	e->ctx->events--;
	event_release(e);
	return leave(OK);
}

API CUresult cuEventRecord(CUevent e, CUstream s)
{
	ENTER(1);
	event_check(__func__, e);
	if (e->ctx != current)
		die("cuEventRecord: the event is of device %d", e->ctx->device);
	struct op *o = enqueue(__func__, s, 1);
	o->record = e;
	o->turn = ++e->recorded;
	e->stream = s;
	e->holders++;
	return leave(OK);
}

API CUresult cuEventQuery(CUevent e)
{
	ENTER(1);
	event_check(__func__, e);
	if (e->done == e->recorded)
		return leave(OK);
	if (e->asked++ == 0)
		return leave(NOT_READY);
	drain_to(__func__, e->stream, e, e->recorded);
	return leave(OK);
}

API CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags)
{
	ENTER(1);
	if (flags)
		die("cuStreamWaitEvent: flags %u", flags);
	event_check(__func__, e);
	if (e->done == e->recorded)
		return leave(OK);
	struct op *o = enqueue(__func__, s, 1);
	o->wait = e;
	o->turn = e->recorded;
	e->holders++;
	return leave(OK);
}

// Kernels. Those that combine elements are known by their names; what is compiled
// is not looked into. Types of 16 bits are not known: to have one refused is of
// use too.

#define COMBINE(TYPE, NAME, EXPRESSION)                                       \
	static void NAME(void *dst, const void *src, size_t n)                \
	{                                                                     \
		TYPE *x = dst;                                                \
		const TYPE *y = src;                                          \
		for (size_t i = 0; i < n; i++) {                              \
			TYPE a = x[i], b = y[i];                              \
			x[i] = EXPRESSION;                                    \
		}                                                             \
	}
#define INTEGERS(TYPE, WORD, NAME)                                  \
	COMBINE(TYPE, sum_##NAME, (TYPE)((WORD)a + (WORD)b))        \
	COMBINE(TYPE, prod_##NAME, (TYPE)((WORD)a * (WORD)b))       \
	COMBINE(TYPE, min_##NAME, a < b ? a : b)                    \
	COMBINE(TYPE, max_##NAME, a > b ? a : b)
#define ORDERED(X) __builtin_isnan(X) ? __builtin_nan("") : (X)
#define FLOATS(TYPE, NAME)                                                                                       \
	COMBINE(TYPE, sum_##NAME, ORDERED(a + b))                                                                \
	COMBINE(TYPE, prod_##NAME, ORDERED(a * b))                                                               \
	COMBINE(TYPE, min_##NAME,                                                                                \
		a != a || b != b ? __builtin_nan("") : a == b ? (__builtin_signbit(a) ? a : b) : a < b ? a : b)  \
	COMBINE(TYPE, max_##NAME,                                                                                \
		a != a || b != b ? __builtin_nan("") : a == b ? (__builtin_signbit(a) ? b : a) : a > b ? a : b)

INTEGERS(int8_t, uint8_t, int8)
INTEGERS(uint8_t, uint8_t, uint8)
INTEGERS(int32_t, uint32_t, int32)
INTEGERS(int64_t, uint64_t, int64)
FLOATS(float, float32)
FLOATS(double, float64)

#define NAMES(TYPE, NAME)                                                    \
	{"reduce_sum_" #NAME, sizeof(TYPE), sum_##NAME},                     \
	{"reduce_prod_" #NAME, sizeof(TYPE), prod_##NAME},                   \
	{"reduce_min_" #NAME, sizeof(TYPE), min_##NAME},                     \
	{"reduce_max_" #NAME, sizeof(TYPE), max_##NAME}

static const struct {
	const char *name;
	size_t size;
	void (*combine)(void *dst, const void *src, size_t n);
} kernels[] = {
	NAMES(int8_t, int8), NAMES(uint8_t, uint8), NAMES(int32_t, int32), NAMES(int64_t, int64),
	NAMES(float, float32), NAMES(double, float64),
};

API CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
	ENTER(1);
	if (strncmp(image, ".version ", 9) != 0)
		return leave(INVALID_PTX);
	struct CUmod_st *m = calloc(1, sizeof *m);
	m->ctx = current;
	m->text = strdup(image);
	current->modules++;
	*out = m;
	return leave(OK);
}

API CUresult cuModuleUnload(CUmodule m)
{
	ENTER(1);
	if (m->ctx != current)
		die("cuModuleUnload: the module is of device %d", m->ctx->device);
	drain_device(__func__, current->device);
	current->modules--;
	free(m->text);
	free(m);
	return leave(OK);
}

API CUresult cuModuleGetFunction(CUfunction *out, CUmodule m, const char *name)
{
	ENTER(1);
	char entry[100];
	snprintf(entry, sizeof entry, ".entry %s(", name);
	if (m->ctx != current)
		die("cuModuleGetFunction: the module is of device %d", m->ctx->device);
	for (size_t i = 0; i < sizeof kernels / sizeof *kernels && strstr(m->text, entry); i++)
		if (strcmp(kernels[i].name, name) == 0 && m->used < KERNELS) {
			struct CUfunc_st *f = &m->functions[m->used++];
			snprintf(f->name, sizeof f->name, "%s", name);
			f->ctx = current;
			f->size = kernels[i].size;
			f->combine = kernels[i].combine;
			*out = f;
			return leave(OK);
		}
	return leave(NOT_FOUND);
}

API CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
			    unsigned shared, CUstream s, void **params, void **extra)
{
	ENTER(1);
	CUdeviceptr dst = *(uint64_t *)params[0], src = *(uint64_t *)params[1];
	uint64_t n = *(uint64_t *)params[2];
	if (f->ctx != current)
		die("cuLaunchKernel: %s is of device %d", f->name, f->ctx->device);
	if (gy != 1 || gz != 1 || by != 1 || bz != 1 || shared || extra || bx > 1024)
		die("cuLaunchKernel: %s in %u x %u x %u blocks of %u x %u x %u", f->name, gx, gy, gz, bx, by, bz);
	if ((uint64_t)gx * bx < n || (uint64_t)gx * bx >= n + bx)
		die("cuLaunchKernel: %s with %u blocks of %u threads for %llu elements", f->name, gx, bx, (unsigned long long)n);
	if (dst % f->size || src % f->size)
		die("cuLaunchKernel: %s is not aligned", f->name);
	reach(__func__, dst, n * f->size, current->device);
	reach(__func__, src, n * f->size, current->device);
	struct op *o = enqueue(__func__, s, n);
	o->dst = dst;
	o->src = src;
	o->kernel = f;
	return leave(OK);
}

// Plain memory.

API CUresult cuMemGetInfo_v2(size_t *left, size_t *total)
{
	ENTER(1);
	*left = free_bytes(current->device);
	*total = config.memory;
	return leave(OK);
}

API CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n)
{
	ENTER(1);
	if (n == 0)
		die("cuMemAlloc: 0 bytes");
	if (n > free_bytes(current->device))
		return leave(OUT_OF_MEMORY);
	struct range *r = range_new(PLAIN, current->device, n, PLAIN_ALIGN);
	r->memory = memory_new(current->device, n);
	current->used += n;
	*p = r->base;
	return leave(OK);
}

API CUresult cuMemFree_v2(CUdeviceptr p)
{
	ENTER(1);
	struct range *r = range_at(__func__, p, PLAIN);
	drain_device(__func__, current->device);
	current->used -= r->size;
	range_drop(r);
	return leave(OK);
}

API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *n, CUdeviceptr p)
{
	ENTER(1);
	struct range *r = range_of(__func__, p, 0);
	*base = r->base - r->before;
	*n = r->before + r->size;
	return leave(OK);
}

API CUresult cuMemHostAlloc(void **p, size_t n, unsigned flags)
{
	ENTER(1);
	if (flags != 1 || n == 0)
		die("cuMemHostAlloc: %zu bytes, flags %u", n, flags);
	*p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (*p == MAP_FAILED)
		return leave(OUT_OF_MEMORY);
	pin(*p, n, 1);
	return leave(OK);
}

API CUresult cuMemFreeHost(void *p)
{
	ENTER(1);
	unpin(__func__, p, 1);
	return leave(OK);
}

API CUresult cuMemHostRegister_v2(void *p, size_t n, unsigned flags)
{
	ENTER(1);
	if (flags != 1 || n == 0 || !p || (uintptr_t)p >= DEVICE_BASE(0))
		die("cuMemHostRegister: %zu bytes at %p, flags %u", n, p, flags);
	if (pinned_over(p, n))
		return leave(ALREADY_REGISTERED);
	pin(p, n, 0);
	return leave(OK);
}

API CUresult cuMemHostUnregister(void *p)
{
	ENTER(1);
	unpin(__func__, p, 0);
	return leave(OK);
}

// Moves.

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t n, CUstream s)
{
	ENTER(1);
	reach(__func__, dst, n, current->device);
	int how = pinning(__func__, src, n);
	if (how == MIXED)
		return leave(INVALID_VALUE);
	struct op *o = enqueue(__func__, s, n);
	o->dst = dst;
	o->in = (uint8_t *)src;
	if (how == PAGEABLE) { // pageable: staged before the call returns
		o->copy = malloc(n);
		memcpy(o->copy, src, n);
	}
	return leave(OK);
}

API CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t n, CUstream s)
{
	ENTER(1);
	reach(__func__, src, n, current->device);
	int how = pinning(__func__, dst, n);
	if (how == MIXED)
		return leave(INVALID_VALUE);
	if (how == PAGEABLE) { // done before the call returns
		stream_check(__func__, s);
		drain(__func__, s);
		memcpy(dst, reach(__func__, src, n, current->device), n);
		return leave(OK);
	}
	struct op *o = enqueue(__func__, s, n);
	o->src = src;
	o->out = dst;
	return leave(OK);
}

API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s)
{
	ENTER(1);
	uint8_t *to = reach(__func__, dst, n, current->device), *from = reach(__func__, src, n, current->device);
	if (to < from + n && from < to + n)
		die("cuMemcpyDtoDAsync: %zu bytes from %llx to %llx overlap", n, src, dst);
	struct op *o = enqueue(__func__, s, n);
	o->dst = dst;
	o->src = src;
	return leave(OK);
}

API CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n, CUstream s)
{
	ENTER(1);
	if (to == from || to->refs == 0 || from->refs == 0)
		die("cuMemcpyPeerAsync: from device %d to %d", from->device, to->device);
	if (range_of(__func__, dst, n)->device != to->device || range_of(__func__, src, n)->device != from->device)
		die("cuMemcpyPeerAsync: the addresses are not of the contexts");
	// The driver would go through the host, in silence.
	if (!(to->peers >> from->device & 1))
		die("cuMemcpyPeerAsync: device %d has no access to %d", to->device, from->device);
	reach(__func__, dst, n, current->device);
	reach(__func__, src, n, current->device);
	struct op *o = enqueue(__func__, s, n);
	o->dst = dst;
	o->src = src;
	return leave(OK);
}

API CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t n, CUstream s)
{
	ENTER(1);
	reach(__func__, dst, n, current->device);
	struct op *o = enqueue(__func__, s, n);
	o->dst = dst;
	o->value = value;
	return leave(OK);
}

// Virtual memory. A reservation is mapped as a whole or not at all.

static void prop_check(const char *call, const CUmemAllocationProp *p)
{
	if ((int)p->type != 1 || (int)p->location.type != 1 || no_device(p->location.id))
		die("%s: type %d, location %d of type %d", call, (int)p->type, p->location.id, (int)p->location.type);
	if (p->win32HandleMetaData || (p->requestedHandleTypes & ~1u))
		die("%s: handle types %x", call, (unsigned)p->requestedHandleTypes);
}

// granularity is what memory of these properties is taken in.
static uint64_t granularity(const CUmemAllocationProp *prop, int recommended)
{
	uint64_t n = prop->requestedHandleTypes ? config.shared : GRANULARITY;
	return recommended && config.recommended > n ? config.recommended : n;
}

API CUresult cuMemGetAllocationGranularity(size_t *n, const CUmemAllocationProp *prop,
					   CUmemAllocationGranularity_flags option)
{
	ENTER(1);
	prop_check(__func__, prop);
	if ((int)option > 1)
		die("cuMemGetAllocationGranularity: option %d", (int)option);
	*n = granularity(prop, (int)option);
	return leave(config.vmm ? OK : NOT_SUPPORTED);
}

API CUresult cuMemAddressReserve(CUdeviceptr *p, size_t n, size_t align, CUdeviceptr hint, unsigned long long flags)
{
	ENTER(1);
	if (n == 0 || n % GRANULARITY || (align & (align - 1)) || hint || flags)
		die("cuMemAddressReserve: %zu bytes aligned to %zu at %llx, flags %llx", n, align, hint, flags);
	*p = range_new(RESERVED, current->device, n, GRANULARITY)->base;
	return leave(OK);
}

API CUresult cuMemAddressFree(CUdeviceptr p, size_t n)
{
	ENTER(1);
	struct range *r = range_at(__func__, p, RESERVED);
	if (r->size != n || r->memory)
		die("cuMemAddressFree: %zu bytes of %llu, %s", n, (unsigned long long)r->size, r->memory ? "mapped" : "free");
	range_drop(r);
	return leave(OK);
}

static struct physical *physical_of(const char *call, CUmemGenericAllocationHandle h)
{
	for (struct physical *p = physicals; p; p = p->next)
		if ((uintptr_t)p == h)
			return p;
	die("%s: %llx is no handle", call, h);
}

static CUmemGenericAllocationHandle physical_new(struct memory *m, unsigned types, int rdma)
{
	struct physical *p = calloc(1, sizeof *p);
	*p = (struct physical){m, types, rdma, physicals};
	physicals = p;
	return (uintptr_t)p;
}

API CUresult cuMemCreate(CUmemGenericAllocationHandle *h, size_t n, const CUmemAllocationProp *prop,
			 unsigned long long flags)
{
	ENTER(1);
	prop_check(__func__, prop);
	if (prop->allocFlags.gpuDirectRDMACapable && !config.rdma)
		return leave(NOT_SUPPORTED);
	if (n == 0 || n % granularity(prop, 0) || flags || prop->location.id != current->device)
		die("cuMemCreate: %zu bytes on device %d by %d, flags %llx", n, prop->location.id, current->device, flags);
	if (n > free_bytes(current->device))
		return leave(OUT_OF_MEMORY);
	struct memory *m = memory_new(current->device, n);
	if (prop->requestedHandleTypes)
		m->mark = mark_new(m->device, n, m->nonce);
	else
		current->used += n;
	*h = physical_new(m, (unsigned)prop->requestedHandleTypes, prop->allocFlags.gpuDirectRDMACapable);
	return leave(OK);
}

API CUresult cuMemRelease(CUmemGenericAllocationHandle h)
{
	ENTER(1);
	struct physical *p = physical_of(__func__, h), **at = &physicals;
	if (p->memory->refs > 1)
		die("cuMemRelease: the memory is mapped, and would be lost to the accounts");
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	if (p->memory->mark < 0)
		contexts[p->memory->device].used -= p->memory->size;
	memory_drop(p->memory);
	free(p);
	return leave(OK);
}

API CUresult cuMemMap(CUdeviceptr at, size_t n, size_t offset, CUmemGenericAllocationHandle h, unsigned long long flags)
{
	ENTER(1);
	struct range *r = range_at(__func__, at, RESERVED);
	struct physical *p = physical_of(__func__, h);
	if (r->memory || n != r->size || offset || flags || n % GRANULARITY)
		die("cuMemMap: %zu bytes from %zu at %llx, flags %llx", n, offset, at, flags);
	if (n > p->memory->size)
		return leave(INVALID_VALUE);
	r->memory = p->memory;
	r->memory->refs++;
	r->access = 0;
	return leave(OK);
}

API CUresult cuMemUnmap(CUdeviceptr at, size_t n)
{
	ENTER(1);
	struct range *r = range_at(__func__, at, RESERVED);
	if (!r->memory || n != r->size)
		die("cuMemUnmap: %zu bytes at %llx", n, at);
	drain_device(__func__, current->device);
	memory_drop(r->memory);
	r->memory = NULL;
	return leave(OK);
}

API CUresult cuMemSetAccess(CUdeviceptr at, size_t n, const CUmemAccessDesc *desc, size_t count)
{
	ENTER(1);
	struct range *r = range_at(__func__, at, RESERVED);
	if (!r->memory || n != r->size)
		die("cuMemSetAccess: %zu bytes at %llx", n, at);
	for (size_t i = 0; i < count; i++) {
		if ((int)desc[i].location.type != 1 || no_device(desc[i].location.id) || (int)desc[i].flags != 3)
			die("cuMemSetAccess: flags %d for device %d", (int)desc[i].flags, desc[i].location.id);
		if (desc[i].location.id != r->device && !config.peer)
			return leave(INVALID_DEVICE);
		r->access |= 1u << desc[i].location.id;
	}
	return leave(OK);
}

// A descriptor of memory is of a device file, to which the driver has attached
// the memory: whoever opens it anew, by /proc, has a device file and nothing
// else. Here it is a socket that holds the descriptors of the memory and of its
// mark as a message. As with the driver, the memory ends with the last of its
// descriptors, handles and mappings, whatever has become of the process that has
// made it.

enum { MEMORY, MARK, WRAPPED };

union fd_message { struct cmsghdr head; char room[CMSG_SPACE(WRAPPED * sizeof(int))]; };

static struct msghdr fd_message_of(union fd_message *m, struct iovec *io)
{
	return (struct msghdr){.msg_iov = io, .msg_iovlen = 1, .msg_control = m, .msg_controllen = sizeof *m};
}

static int wrap(const struct memory *memory)
{
	int fds[WRAPPED] = {memory->fd, memory->mark}, ends[2];
	union fd_message m = {.head = {CMSG_LEN(sizeof fds), SOL_SOCKET, SCM_RIGHTS}};
	struct iovec io = {"m", 1};
	struct msghdr message = fd_message_of(&m, &io);
	memcpy(CMSG_DATA(&m.head), fds, sizeof fds);
	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends))
		return -1;
	if (sendmsg(ends[0], &message, 0) != 1) {
		close(ends[1]);
		ends[1] = -1;
	}
	close(ends[0]);
	return ends[1];
}

// unwrap leaves the message where it is: a descriptor is imported again. NULL if
// it is none of memory.
static struct memory *unwrap(int socket)
{
	union fd_message m;
	char text;
	struct iovec io = {&text, 1};
	struct msghdr message = fd_message_of(&m, &io);
	int fds[WRAPPED];
	if (recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1 ||
	    message.msg_controllen < sizeof m.head || m.head.cmsg_len != CMSG_LEN(sizeof fds))
		return NULL;
	memcpy(fds, CMSG_DATA(&m.head), sizeof fds);
	struct memory *memory = memory_open(fds[MEMORY]);
	if (memory)
		memory->mark = fds[MARK];
	else
		close(fds[MARK]);
	return memory;
}

API CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle h, CUmemAllocationHandleType type,
					  unsigned long long flags)
{
	ENTER(1);
	struct physical *p = physical_of(__func__, h);
	if ((int)type != 1 || flags)
		die("cuMemExportToShareableHandle: type %d, flags %llx", (int)type, flags);
	if (!(p->types & 1)) // was not asked for when the memory was made
		return leave(INVALID_VALUE);
	int fd = wrap(p->memory);
	if (fd < 0)
		return leave(OPERATING_SYSTEM);
	*(int *)out = fd;
	return leave(OK);
}

API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *h, void *os, CUmemAllocationHandleType type)
{
	ENTER(1);
	if ((int)type != 1)
		die("cuMemImportFromShareableHandle: type %d", (int)type);
	struct memory *m = unwrap((int)(intptr_t)os);
	if (!m)
		return leave(INVALID_VALUE);
	*h = physical_new(m, 1, 0);
	return leave(OK);
}

API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle h)
{
	ENTER(1);
	struct physical *p = physical_of(__func__, h);
	memset(prop, 0, sizeof *prop);
	prop->type = 1;
	prop->requestedHandleTypes = p->types;
	prop->allocFlags.gpuDirectRDMACapable = (unsigned char)p->rdma;
	prop->location.type = 1;
	prop->location.id = p->memory->device;
	return leave(OK);
}

// IPC.

struct ipc { uint64_t magic, nonce, size; int32_t pid, fd, device, zero; char rest[24]; };
_Static_assert(sizeof(struct ipc) == sizeof(CUipcMemHandle), "an IPC handle has 64 bytes");
#define IPC_MAGIC 0x69636d6568646e61ull

API CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr p)
{
	ENTER(1);
	struct range *r = range_of(__func__, p, 0);
	if (r->kind != PLAIN)
		return leave(INVALID_VALUE);
	struct ipc h = {IPC_MAGIC, r->memory->nonce, r->size, getpid(), r->memory->fd, r->device, 0, {0}};
	memcpy(out, &h, sizeof h);
	return leave(OK);
}

API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *p, CUipcMemHandle handle, unsigned flags)
{
	ENTER(1);
	struct ipc h;
	char path[64];
	memcpy(&h, &handle, sizeof h);
	if (flags != 1)
		die("cuIpcOpenMemHandle: flags %u", flags);
	if (h.magic != IPC_MAGIC)
		return leave(INVALID_VALUE);
	if (h.pid == getpid())
		return leave(INVALID_CONTEXT);
	if (h.device != current->device)
		return leave(INVALID_DEVICE);
	for (struct range *r = ranges; r; r = r->next)
		if (r->kind == OPENED && r->memory->nonce == h.nonce)
			return leave(ALREADY_MAPPED);
	snprintf(path, sizeof path, "/proc/%d/fd/%d", h.pid, h.fd);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct memory *m = fd < 0 ? NULL : memory_open(fd);
	if (!m)
		return leave(MAP_FAILED_); // the owner has gone
	if (m->nonce != h.nonce || m->size != h.size) {
		memory_drop(m);
		return leave(MAP_FAILED_);
	}
	struct range *r = range_new(OPENED, current->device, h.size, PLAIN_ALIGN);
	r->memory = m;
	// What is opened may lie inside of a larger block, as small allocations do
	// where they were made: what is opened begins at the address that is given.
	r->before = r->size % GRANULARITY ? GRANULARITY : 0;
	*p = r->base;
	return leave(OK);
}

API CUresult cuIpcCloseMemHandle(CUdeviceptr p)
{
	ENTER(1);
	struct range *r = range_at(__func__, p, OPENED);
	drain_device(__func__, current->device);
	range_drop(r);
	return leave(OK);
}
