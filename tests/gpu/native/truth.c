/*
 * Truth is the other process of the truth tests. It has device memory of its
 * own for hmcfs to bind, or opens what hmcfs exports, by the CUDA driver API
 * and nothing else, and says what bytes are there.
 *
 *	truth own KIND SIZE SEED [PIECES [LEAD [DEVICE]]]
 *	truth open [DEVICE]
 *	truth first FILE [DEVICE]
 *
 * KIND is ipc (cuMemAlloc), vmm-fd (cuMemCreate) or memfd (host memory).
 *
 * own makes an object of SIZE bytes in PIECES allocations (1), each with LEAD
 * bytes (0) before and behind its part of the object, fills it with the
 * content of SEED (pattern.h), and prints its handle, one line of JSON. open
 * reads such a line from standard input, opens it and prints "open SIZE".
 * Both then answer commands from standard input, until it ends:
 *
 *	verify SEED   "ok", or "differs at OFFSET: is XX, should be XX"
 *	fill SEED     puts other content there: "ok"
 *	guards        own only: whether the bytes around the object are untouched
 *
 * first measures the way to the first byte of a file on a mount. "handle":
 * read user.hmc.handle, open it, copy one byte out; the answer is the three
 * times in nanoseconds. "copy": read the file into pinned memory and that
 * into device memory of its own, copy one byte out; the answer is one time.
 *
 * The exit status is 1 for an error, which is told on standard error, and 3
 * where there is no CUDA device.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "handle.h"
#include "pattern.h"

enum { CHUNK = 16 << 20 };

/* The content around an object; no test uses it as a seed. */
static const uint64_t GUARD = 0x6775617264ull;

/* memory is one allocation, or another process's that was opened. */
struct memory {
	CUdeviceptr base;
	CUmemGenericAllocationHandle physical;
	uint8_t *host;
	uint64_t size;
	int opened;
};

struct object {
	struct handle handle;
	struct memory memory[MAX_PIECES];
};

static uint8_t *chunk, *wanted;

static void put(const struct memory *m, uint64_t at, const uint8_t *p, size_t n) {
	if (m->host != NULL)
		memcpy(m->host + at, p, n);
	else
		MOVE(MemcpyHtoDAsync, m->base + at, p, n);
}

static void get(const struct memory *m, uint64_t at, uint8_t *p, size_t n) {
	if (m->host != NULL)
		memcpy(p, m->host + at, n);
	else
		MOVE(MemcpyDtoHAsync, p, m->base + at, n);
}

/* fill puts content into a part of a memory; position is that of its first
 * byte in the content. */
static void fill(const struct memory *m, uint64_t at, uint64_t size, uint64_t seed, uint64_t position) {
	for (uint64_t done = 0; done < size;) {
		size_t n = size - done < CHUNK ? (size_t)(size - done) : CHUNK;
		pattern_fill(chunk, n, seed, position + done);
		put(m, at + done, chunk, n);
		done += n;
	}
}

/* differs looks for the first byte that is not the content's, says so and
 * returns 1 if there is one. */
static int differs(const struct memory *m, uint64_t at, uint64_t size, uint64_t seed, uint64_t position) {
	for (uint64_t done = 0; done < size;) {
		size_t n = size - done < CHUNK ? (size_t)(size - done) : CHUNK;
		get(m, at + done, chunk, n);
		pattern_fill(wanted, n, seed, position + done);
		if (memcmp(chunk, wanted, n) != 0) {
			size_t i = 0;
			while (chunk[i] == wanted[i])
				i++;
			printf("differs at %llu: is %02x, should be %02x\n",
				(unsigned long long)(position + done + i), chunk[i], wanted[i]);
			return 1;
		}
		done += n;
	}
	return 0;
}

static void fill_object(const struct object *o, uint64_t seed) {
	uint64_t position = 0;
	for (int i = 0; i < o->handle.count; i++) {
		const struct piece *p = &o->handle.piece[i];
		fill(&o->memory[i], p->offset, p->size, seed, position);
		position += p->size;
	}
}

static int object_differs(const struct object *o, uint64_t seed) {
	uint64_t position = 0;
	for (int i = 0; i < o->handle.count; i++) {
		const struct piece *p = &o->handle.piece[i];
		if (differs(&o->memory[i], p->offset, p->size, seed, position))
			return 1;
		position += p->size;
	}
	return 0;
}

static int guards_differ(const struct object *o) {
	for (int i = 0; i < o->handle.count; i++) {
		const struct piece *p = &o->handle.piece[i];
		uint64_t behind = p->offset + p->size;
		if (differs(&o->memory[i], 0, p->offset, GUARD, 0) ||
		    differs(&o->memory[i], behind, o->memory[i].size - behind, GUARD, behind))
			return 1;
	}
	return 0;
}

static CUmemAllocationProp properties(CUdevice device) {
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
	};
}

/* map_physical gives physical memory an address. */
static void map_physical(struct memory *m, CUdevice device) {
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CALL(MemAddressReserve, &m->base, m->size, 0, 0, 0);
	CALL(MemMap, m->base, m->size, 0, m->physical, 0);
	CALL(MemSetAccess, m->base, m->size, &access, 1);
}

static uint64_t granularity(CUdevice device) {
	CUmemAllocationProp prop = properties(device);
	size_t unit = 0;
	CALL(MemGetAllocationGranularity, &unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	return unit;
}

/* map_host maps shared host memory. */
static void map_host(struct memory *m, int fd) {
	void *p = mmap(NULL, m->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		die(FAILED, "map %llu bytes of a memfd: %s", (unsigned long long)m->size, strerror(errno));
	m->host = p;
}

/* allocate makes a memory of at least size bytes and tells its name. */
static void allocate(struct memory *m, struct piece *p, uint64_t size, CUdevice device) {
	p->fd = -1;
	m->size = size;
	if (strcmp(p->kind, "ipc") == 0) {
		CUipcMemHandle name;
		CALL(MemAlloc, &m->base, size);
		CALL(IpcGetMemHandle, &name, m->base);
		memcpy(p->bytes, name.reserved, sizeof p->bytes);
		p->has_bytes = 1;
	} else if (strcmp(p->kind, "vmm-fd") == 0) {
		uint64_t unit = granularity(device);
		CUmemAllocationProp prop = properties(device);
		m->size = (size + unit - 1) / unit * unit;
		CALL(MemCreate, &m->physical, m->size, &prop, 0);
		map_physical(m, device);
		CALL(MemExportToShareableHandle, &p->fd, m->physical, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	} else {
		p->fd = memfd_create("truth", MFD_CLOEXEC);
		if (p->fd < 0 || ftruncate(p->fd, (off_t)size) != 0)
			die(FAILED, "make a memfd of %llu bytes: %s", (unsigned long long)size, strerror(errno));
		map_host(m, p->fd);
	}
	p->allocation = m->size;
}

/* fetch brings a descriptor of another process here. */
static int fetch(int pid, const struct piece *p) {
	int fd;
	if (p->path[0] != 0)
		fd = open(p->path, O_RDWR | O_CLOEXEC);
	else {
		int process = (int)syscall(SYS_pidfd_open, pid, 0);
		fd = process < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process, p->fd, 0);
	}
	if (fd < 0)
		die(FAILED, "take descriptor %d of process %d, or open \"%s\": %s", p->fd, pid, p->path, strerror(errno));
	return fd;
}

/* open_memory opens a piece of another process. */
static void open_memory(struct memory *m, const struct piece *p, int pid, CUdevice device) {
	m->opened = 1;
	m->size = p->allocation > 0 ? p->allocation : p->offset + p->size;
	if (strcmp(p->kind, "ipc") == 0) {
		CUipcMemHandle name;
		if (!p->has_bytes)
			die(FAILED, "an ipc piece without the bytes of a handle");
		memcpy(name.reserved, p->bytes, sizeof name.reserved);
		CALL(IpcOpenMemHandle, &m->base, name, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
		return;
	}
	int fd = fetch(pid, p);
	if (strcmp(p->kind, "vmm-fd") == 0) {
		uint64_t unit = granularity(device);
		m->size = (m->size + unit - 1) / unit * unit;
		CALL(MemImportFromShareableHandle, &m->physical, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
		map_physical(m, device);
	} else if (strcmp(p->kind, "memfd") == 0)
		map_host(m, fd);
	else
		die(FAILED, "a piece of unknown kind \"%s\"", p->kind);
	close(fd);
}

static void release(struct memory *m) {
	if (m->host != NULL)
		munmap(m->host, m->size);
	else if (m->physical != 0) {
		CALL(MemUnmap, m->base, m->size);
		CALL(MemAddressFree, m->base, m->size);
		CALL(MemRelease, m->physical);
	} else if (m->opened)
		CALL(IpcCloseMemHandle, m->base);
	else
		CALL(MemFree, m->base);
}

static void release_object(struct object *o) {
	for (int i = 0; i < o->handle.count; i++)
		release(&o->memory[i]);
}

/* find_device returns the ordinal of the device with a UUID. */
static int find_device(const char *uuid) {
	int count = 0;
	char text[41];
	CALL(DeviceGetCount, &count);
	for (int i = 0; i < count; i++) {
		CUdevice device;
		CALL(DeviceGet, &device, i);
		driver_uuid(device, text);
		if (strcmp(text, uuid) == 0)
			return i;
	}
	die(FAILED, "no device here is %s", uuid);
}

/* use_device opens the driver unless the memory is the host's. */
static CUdevice use_device(const char *kind, const char *uuid, int ordinal) {
	if (strcmp(kind, "memfd") == 0)
		return 0;
	driver_open();
	return driver_use(uuid[0] != 0 ? find_device(uuid) : ordinal);
}

static void open_object(struct object *o, const char *text, int ordinal) {
	parse_handle(&o->handle, text);
	CUdevice device = use_device(o->handle.piece[0].kind, o->handle.device, ordinal);
	for (int i = 0; i < o->handle.count; i++)
		open_memory(&o->memory[i], &o->handle.piece[i], o->handle.pid, device);
}

static void make_object(struct object *o, const char *kind, uint64_t size, int pieces, uint64_t lead, int ordinal) {
	struct handle *h = &o->handle;
	CUdevice device = use_device(kind, "", ordinal);
	int host = strcmp(kind, "memfd") == 0;
	strcpy(h->family, host ? "host" : "cuda");
	if (!host)
		driver_uuid(device, h->device);
	h->pid = getpid(), h->size = size, h->count = pieces;
	for (int i = 0; i < pieces; i++) {
		struct piece *p = &h->piece[i];
		snprintf(p->kind, sizeof p->kind, "%s", kind);
		p->offset = lead;
		/* Parts of odd sizes: an offset that is lost shows. */
		uint64_t part = size / (uint64_t)pieces / 2 * (uint64_t)(i + 1);
		p->size = i == pieces - 1 ? size : part < size ? part : size;
		size -= p->size;
		allocate(&o->memory[i], p, lead + p->size + lead, device);
		fill(&o->memory[i], 0, o->memory[i].size, GUARD, 0);
	}
}

static void answer(const struct object *o, int own) {
	char line[128];
	unsigned long long seed;
	while (fgets(line, sizeof line, stdin) != NULL) {
		if (sscanf(line, "verify %llu", &seed) == 1) {
			if (!object_differs(o, seed))
				puts("ok");
		} else if (sscanf(line, "fill %llu", &seed) == 1) {
			fill_object(o, seed);
			puts("ok");
		} else if (strcmp(line, "guards\n") == 0 && own) {
			if (!guards_differ(o))
				puts("ok");
		} else
			die(USAGE, "no such command: %s", line);
		fflush(stdout);
	}
}

static long long now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void first_by_handle(const char *file, CUdevice device) {
	static char text[MAX_TEXT];
	struct object o = {0};
	uint8_t byte;
	long long begin = now();
	ssize_t n = getxattr(file, "user.hmc.handle", text, sizeof text - 1);
	if (n < 0)
		die(FAILED, "read user.hmc.handle of %s: %s", file, strerror(errno));
	text[n] = 0;
	parse_handle(&o.handle, text);
	long long known = now();
	for (int i = 0; i < o.handle.count; i++)
		open_memory(&o.memory[i], &o.handle.piece[i], o.handle.pid, device);
	long long opened = now();
	get(&o.memory[0], o.handle.piece[0].offset, &byte, 1);
	printf("%lld %lld %lld\n", known - begin, opened - known, now() - opened);
	release_object(&o);
}

static void first_by_copy(const char *file, uint8_t *pinned) {
	CUdeviceptr memory;
	uint8_t byte;
	long long begin = now();
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	off_t size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
	if (size <= 0 || lseek(fd, 0, SEEK_SET) != 0)
		die(FAILED, "open %s: %s", file, strerror(errno));
	CALL(MemAlloc, &memory, (size_t)size);
	for (off_t done = 0; done < size;) {
		ssize_t n = read(fd, pinned, CHUNK);
		if (n <= 0)
			die(FAILED, "read %s at %lld: %s", file, (long long)done, strerror(errno));
		MOVE(MemcpyHtoDAsync, memory + (CUdeviceptr)done, pinned, (size_t)n);
		done += n;
	}
	MOVE(MemcpyDtoHAsync, &byte, memory, 1);
	printf("%lld\n", now() - begin);
	CALL(MemFree, memory);
	close(fd);
}

static void first(const char *file, int ordinal) {
	char line[32];
	void *pinned;
	CUdevice device = use_device("", "", ordinal);
	CALL(MemHostAlloc, &pinned, CHUNK, CU_MEMHOSTALLOC_PORTABLE);
	while (fgets(line, sizeof line, stdin) != NULL) {
		if (strcmp(line, "handle\n") == 0)
			first_by_handle(file, device);
		else if (strcmp(line, "copy\n") == 0)
			first_by_copy(file, pinned);
		else
			die(USAGE, "no such command: %s", line);
		fflush(stdout);
	}
	CALL(MemFreeHost, pinned);
}

static uint64_t argument(int argc, char **argv, int i, uint64_t missing) {
	return argc > i ? strtoull(argv[i], NULL, 10) : missing;
}

static int is_kind(const char *kind) {
	return strcmp(kind, "ipc") == 0 || strcmp(kind, "vmm-fd") == 0 || strcmp(kind, "memfd") == 0;
}

int main(int argc, char **argv) {
	static struct object o;
	static char text[MAX_TEXT];
	const char *verb = argc > 1 ? argv[1] : "";
	chunk = malloc(CHUNK), wanted = malloc(CHUNK);
	if (chunk == NULL || wanted == NULL)
		die(FAILED, "no memory for two buffers");
	if (strcmp(verb, "own") == 0 && argc >= 5 && is_kind(argv[2])) {
		uint64_t pieces = argument(argc, argv, 5, 1);
		if (pieces < 1 || pieces > MAX_PIECES)
			die(USAGE, "an object has 1 to %d pieces", MAX_PIECES);
		make_object(&o, argv[2], argument(argc, argv, 3, 0), (int)pieces,
			argument(argc, argv, 6, 0), (int)argument(argc, argv, 7, 0));
		fill_object(&o, argument(argc, argv, 4, 0));
		print_handle(&o.handle);
		answer(&o, 1);
		release_object(&o);
	} else if (strcmp(verb, "open") == 0) {
		if (fgets(text, sizeof text, stdin) == NULL)
			die(USAGE, "no handle on standard input");
		open_object(&o, text, (int)argument(argc, argv, 2, 0));
		printf("open %llu\n", (unsigned long long)o.handle.size);
		fflush(stdout);
		answer(&o, 0);
		release_object(&o);
	} else if (strcmp(verb, "first") == 0 && argc >= 3)
		first(argv[2], (int)argument(argc, argv, 3, 0));
	else
		die(USAGE, "usage: truth own KIND SIZE SEED [PIECES [LEAD [DEVICE]]] | open [DEVICE] | first FILE [DEVICE]");
	return 0;
}
