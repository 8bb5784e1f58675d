/*
 * What the stand-ins of the CUDA-shaped runtimes share beyond standin.h: device
 * memory, streams that do their work only when they are waited for, and checks
 * of every argument.
 *
 * Each vendor's source defines the ERR_ codes below and includes this file.
 *
 * Device addresses are no addresses of the host: whoever follows one crashes,
 * and whoever confuses the two kinds is told.
 *
 * A thread's device is forgotten by every call that ends a piece of work (a
 * wait, an allocation, a question): real runtimes remember it, and so a caller
 * that sets it in one place only works there by luck.
 */
#include "standin.h"

#define SHARED static __attribute__((unused))

enum { GRAIN = 256 };

typedef uint64_t devaddr;

/* The high bits of every device address, which no address of a host has. */
static const devaddr DEVICE_BITS = 0x0d00000000000000u;

/* A piece of device memory at its address. */
struct piece {
	struct piece *next;
	struct memory *memory;
	devaddr base;
	uint64_t size;
	int device, imported, exported, queued;
};

struct op {
	struct op *next;
	char *dst;
	const char *src;
	int value;
	uint64_t n;
	struct piece *pieces[2];
};

struct stream {
	struct stream *next;
	int device;
	struct op *first, **last;
};

struct pinned {
	struct pinned *next;
	const void *at;
	uint64_t n;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct piece *pieces;
static struct stream *streams;
static struct pinned *pins;
static uint64_t used[MAX_DEVICES], bump;
static int peer_on[MAX_DEVICES][MAX_DEVICES];
/* How often a context of a device was taken, where a vendor has contexts; the
 * entry's address is the context. */
static int contexts[MAX_DEVICES];
static const char *calling = "?";

static __thread int current = -1;

static void __attribute__((noreturn, format(printf, 1, 2))) misuse(const char *format, ...)
{
	char text[512];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	die("%s: %s", calling, text);
}

/* enter begins a call; the result is the failure that is wanted of it. Every
 * call ends with leave. */
SHARED int enter(const char *call)
{
	pthread_mutex_lock(&lock);
	calling = call;
	config_read();
	return injected(call, current);
}

SHARED int leave(int code)
{
	pthread_mutex_unlock(&lock);
	return code;
}

/* done ends a piece of work: the thread's device is forgotten. */
SHARED int done(int code)
{
	current = -1;
	return leave(code);
}

SHARED void need_device(void)
{
	if (current < 0)
		misuse("no device is set on this thread");
}

SHARED int set_device(int ordinal)
{
	if (ordinal < 0 || ordinal >= config.devices)
		return ERR_DEVICE;
	current = ordinal;
	return 0;
}

SHARED int is_device(devaddr p) { return (p >> 56) == (DEVICE_BITS >> 56); }

/* piece_of finds the allocation that holds n bytes at p. */
SHARED struct piece *piece_of(devaddr p, uint64_t n, const char *what)
{
	if (!is_device(p))
		misuse("the %s %#llx is host memory", what, (unsigned long long)p);
	for (struct piece *m = pieces; m; m = m->next)
		if (p >= m->base && p - m->base <= m->size && n <= m->size - (p - m->base))
			return m;
	misuse("the %s %#llx, %llu bytes, lies in no allocation", what, (unsigned long long)p, (unsigned long long)n);
	return NULL;
}

/* here is piece_of on the thread's device. */
SHARED struct piece *here(devaddr p, uint64_t n, const char *what)
{
	need_device();
	struct piece *m = piece_of(p, n, what);
	if (m->device != current)
		misuse("the %s is memory of device %d, the thread is on %d", what, m->device, current);
	return m;
}

SHARED struct piece *add_piece(struct memory *memory, int imported)
{
	struct piece *m = calloc(1, sizeof *m);
	if (!m)
		misuse("no host memory");
	m->memory = memory;
	m->size = memory->size;
	m->device = current;
	m->imported = imported;
	bump += GRAIN; /* neighbours don't touch */
	m->base = DEVICE_BITS | (devaddr)current << 48 | bump;
	bump += (m->size + GRAIN - 1) / GRAIN * GRAIN;
	m->next = pieces;
	pieces = m;
	return m;
}

static void drop_piece(struct piece *gone)
{
	for (struct piece **at = &pieces; *at; at = &(*at)->next)
		if (*at == gone) {
			*at = gone->next;
			break;
		}
	memory_drop(gone->memory);
	free(gone);
}

SHARED uint64_t room_left(void)
{
	uint64_t busy = used[current] + config.taken[current];
	return busy < config.memory ? config.memory - busy : 0;
}

SHARED int allocate(devaddr *out, uint64_t n)
{
	need_device();
	if (n == 0)
		misuse("0 bytes");
	if (n > room_left())
		return ERR_OOM;
	*out = add_piece(memory_new(current, n), 0)->base;
	used[current] += n;
	return 0;
}

SHARED int release(devaddr p)
{
	struct piece *m = here(p, 0, "memory");
	if (m->base != p)
		misuse("%#llx is inside of an allocation", (unsigned long long)p);
	if (m->imported)
		misuse("the memory is another process's");
	if (m->queued)
		misuse("freed while a stream has work with it");
	if (NAME_ENDS_FIRST && m->exported)
		misuse("freed before its name was ended");
	used[m->device] -= m->size;
	drop_piece(m);
	return 0;
}

SHARED void memory_info(uint64_t *free_bytes, uint64_t *total)
{
	need_device();
	*free_bytes = room_left();
	*total = config.memory;
}

SHARED struct stream *new_stream(void)
{
	need_device();
	struct stream *s = calloc(1, sizeof *s);
	if (!s)
		misuse("no host memory");
	s->device = current;
	s->last = &s->first;
	s->next = streams;
	streams = s;
	return s;
}

SHARED struct stream *check_stream(void *p)
{
	need_device();
	for (struct stream *s = streams; s; s = s->next)
		if (s == p) {
			if (s->device != current)
				misuse("the stream is of device %d, the thread is on %d", s->device, current);
			return s;
		}
	misuse("%p is no stream", p);
	return NULL;
}

static void run_stream(struct stream *s)
{
	while (s->first) {
		struct op *op = s->first;
		if (op->src)
			memcpy(op->dst, op->src, op->n);
		else
			memset(op->dst, op->value, op->n);
		for (int i = 0; i < 2; i++)
			if (op->pieces[i])
				op->pieces[i]->queued--;
		s->first = op->next;
		free(op);
	}
	s->last = &s->first;
}

SHARED int wait_stream(void *p)
{
	run_stream(check_stream(p));
	return 0;
}

SHARED int end_stream(void *p)
{
	struct stream *s = check_stream(p);
	if (s->first)
		misuse("the stream was not waited for");
	for (struct stream **at = &streams; *at; at = &(*at)->next)
		if (*at == s) {
			*at = s->next;
			break;
		}
	free(s);
	return 0;
}

static void queue(void *stream, char *dst, const char *src, int value, uint64_t n, struct piece *a, struct piece *b)
{
	struct stream *s = check_stream(stream);
	struct op *op = calloc(1, sizeof *op);
	if (!op)
		misuse("no host memory");
	*op = (struct op){.dst = dst, .src = src, .value = value, .n = n, .pieces = {a, b}};
	for (int i = 0; i < 2; i++)
		if (op->pieces[i])
			op->pieces[i]->queued++;
	*s->last = op;
	s->last = &op->next;
}

static void host_memory(const void *p, uint64_t n, const char *what)
{
	if (is_device((devaddr)p))
		misuse("the %s %p is device memory", what, p);
	if (!p || n == 0)
		misuse("the %s is %p, %llu bytes", what, p, (unsigned long long)n);
}

/* room checks what a runtime is told of the space behind a destination. */
SHARED void check_room(struct piece *m, devaddr dst, uint64_t room, uint64_t n)
{
	if (room < n)
		misuse("%llu bytes into room for %llu", (unsigned long long)n, (unsigned long long)room);
	if (room > m->size - (dst - m->base))
		misuse("room for %llu bytes is said, there is less", (unsigned long long)room);
}

/* copied_whole refuses a copy of host memory of which a part is pinned, as the
 * runtimes that are documented to do. */
static void copied_whole(const void *p, uint64_t n)
{
	const char *at = p;
	for (struct pinned *q = pins; q; q = q->next) {
		const char *first = q->at, *end = first + q->n;
		if (at < end && first < at + n && (at < first || at + n > end))
			misuse("%llu bytes at %p are pinned in part", (unsigned long long)n, p);
	}
}

SHARED struct piece *move_in(devaddr dst, const void *src, uint64_t n, void *stream)
{
	host_memory(src, n, "source");
	copied_whole(src, n);
	struct piece *m = here(dst, n, "destination");
	queue(stream, (char *)m->memory->bytes + (dst - m->base), src, 0, n, m, NULL);
	return m;
}

SHARED void move_out(void *dst, devaddr src, uint64_t n, void *stream)
{
	host_memory(dst, n, "destination");
	copied_whole(dst, n);
	struct piece *m = here(src, n, "source");
	queue(stream, dst, (char *)m->memory->bytes + (src - m->base), 0, n, m, NULL);
}

SHARED struct piece *move_within(devaddr dst, devaddr src, uint64_t n, void *stream)
{
	struct piece *to = here(dst, n, "destination"), *from = here(src, n, "source");
	if (n == 0)
		misuse("0 bytes");
	if (to == from && dst < src + n && src < dst + n)
		misuse("source and destination overlap");
	queue(stream, (char *)to->memory->bytes + (dst - to->base), (char *)from->memory->bytes + (src - from->base), 0, n, to, from);
	return to;
}

SHARED struct piece *fill_memory(devaddr dst, int value, uint64_t n, void *stream)
{
	struct piece *m = here(dst, n, "destination");
	if (n == 0)
		misuse("0 bytes");
	queue(stream, (char *)m->memory->bytes + (dst - m->base), NULL, value, n, m, NULL);
	return m;
}

SHARED int can_reach(int device, int peer)
{
	if (device == peer || device < 0 || peer < 0 || device >= config.devices || peer >= config.devices)
		misuse("from device %d to %d of %d", device, peer, config.devices);
	return config.peer;
}

SHARED int enable_peer(int peer)
{
	need_device();
	if (!can_reach(current, peer))
		misuse("device %d does not reach %d", current, peer);
	if (peer_on[current][peer])
		return ERR_PEER_ENABLED;
	peer_on[current][peer] = 1;
	return 0;
}

/* move_peer copies between two devices on a stream of the thread's, which is
 * the one of the two that is named. */
SHARED struct piece *move_peer(devaddr dst, int to, devaddr src, int from, uint64_t n, void *stream, int worker)
{
	need_device();
	struct piece *a = piece_of(dst, n, "destination"), *b = piece_of(src, n, "source");
	if (a->device != to || b->device != from)
		misuse("copy from device %d to %d of memory of %d and %d", from, to, b->device, a->device);
	if (to == from || current != worker)
		misuse("copy from device %d to %d on a thread of device %d", from, to, current);
	if (PEERS_ENABLE && !peer_on[current][current == to ? from : to])
		misuse("access to the other device is not enabled");
	queue(stream, (char *)a->memory->bytes + (dst - a->base), (char *)b->memory->bytes + (src - b->base), 0, n, a, b);
	return a;
}

/* A name of an allocation: who has it, and which one it is; a nonce of 0 is
 * not looked at. */
struct name {
	uint32_t pid, fd;
	uint64_t nonce;
};

SHARED struct name export_memory(devaddr p)
{
	struct piece *m = here(p, 0, "memory");
	if (m->base != p || m->imported)
		misuse("%#llx is no allocation of this process", (unsigned long long)p);
	m->exported = 1;
	return (struct name){.pid = getpid(), .fd = m->memory->fd, .nonce = m->memory->nonce};
}

SHARED int import_memory(devaddr *out, struct name name)
{
	need_device();
	char path[64];
	if (name.pid == (uint32_t)getpid())
		return ERR_SAME_PROCESS;
	snprintf(path, sizeof path, "/proc/%u/fd/%u", name.pid, name.fd);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct memory *memory = fd < 0 ? NULL : memory_open(fd);
	if (!memory)
		return ERR_HANDLE;
	if (name.nonce && memory->nonce != name.nonce) {
		memory_drop(memory);
		return ERR_HANDLE;
	}
	for (struct piece *m = pieces; m; m = m->next)
		if (m->imported && m->memory->nonce == memory->nonce)
			misuse("the handle is open already");
	*out = add_piece(memory, 1)->base;
	return 0;
}

SHARED int close_import(devaddr p)
{
	struct piece *m = here(p, 0, "memory");
	if (!m->imported || m->base != p)
		misuse("%#llx was not imported", (unsigned long long)p);
	if (m->queued)
		misuse("closed while a stream has work with it");
	drop_piece(m);
	return 0;
}

SHARED int pin_memory(const void *p, uint64_t n)
{
	need_device();
	host_memory(p, n, "memory");
	for (struct pinned *q = pins; q; q = q->next)
		if ((const char *)p < (const char *)q->at + q->n && (const char *)q->at < (const char *)p + n)
			return ERR_PINNED;
	struct pinned *q = calloc(1, sizeof *q);
	if (!q)
		misuse("no host memory");
	*q = (struct pinned){.next = pins, .at = p, .n = n};
	pins = q;
	return 0;
}

SHARED int unpin_memory(const void *p)
{
	need_device();
	for (struct pinned **at = &pins; *at; at = &(*at)->next)
		if ((*at)->at == p) {
			struct pinned *gone = *at;
			*at = gone->next;
			free(gone);
			return 0;
		}
	misuse("%p is not pinned", p);
	return 0;
}

/* What follows is for tests in the same process. */

/* hmcfs_standin_left counts what was not given back: allocations and mappings,
 * then streams, then pinned ranges, in 16 bits each; contexts in the rest. */
API uint64_t hmcfs_standin_left(void)
{
	uint64_t n = 0, s = 0, q = 0, c = 0;
	pthread_mutex_lock(&lock);
	for (struct piece *m = pieces; m; m = m->next)
		n++;
	for (struct stream *t = streams; t; t = t->next)
		s++;
	for (struct pinned *p = pins; p; p = p->next)
		q++;
	for (int i = 0; i < MAX_DEVICES; i++)
		c += contexts[i];
	pthread_mutex_unlock(&lock);
	return n | s << 16 | q << 32 | c << 48;
}

/* hmcfs_standin_reset gives everything back, as the end of a process does. */
API void hmcfs_standin_reset(void)
{
	pthread_mutex_lock(&lock);
	while (streams) {
		struct stream *s = streams;
		run_stream(s);
		streams = s->next;
		free(s);
	}
	while (pieces)
		drop_piece(pieces);
	while (pins) {
		struct pinned *p = pins;
		pins = p->next;
		free(p);
	}
	memset(used, 0, sizeof used);
	memset(contexts, 0, sizeof contexts);
	memset(peer_on, 0, sizeof peer_on);
	pthread_mutex_unlock(&lock);
}
