//go:build ignore

/*
 * A program that uses a vendor's runtime by itself, as its users do: by the
 * vendor's ABI, and with nothing of hmcfs.
 *
 *   vendoruser FAMILY read HEX SIZE    opens a handle, writes the memory to stdout
 *   vendoruser FAMILY write HEX SIZE   opens a handle, puts stdin into the memory
 *   vendoruser FAMILY own SIZE         takes memory, puts stdin's first SIZE bytes
 *                                      into it, says "HEX\n" of its handle, waits
 *                                      for the end of stdin and writes the memory
 *                                      to stdout
 *
 * All on device 0. FAMILY is hip, musa, mlu or npu; the library is found as the
 * system's loader does.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HANDLE_MAX = 65 };

typedef struct {
	char reserved[64];
} handle64;

static void *library;

static void *call(const char *name)
{
	void *f = dlsym(library, name);
	if (!f) {
		fprintf(stderr, "no %s\n", name);
		exit(1);
	}
	return f;
}

static void ok(const char *what, int code)
{
	if (code) {
		fprintf(stderr, "%s: %d\n", what, code);
		exit(1);
	}
}

/* The four vendors, in the same words. */
struct vendor {
	const char *name, *library;
	size_t handle_size;
	void (*device)(void);
	uint64_t (*alloc)(size_t n);
	void (*in)(uint64_t dst, const void *src, size_t n);
	void (*out)(void *dst, uint64_t src, size_t n);
	void (*export)(uint64_t p, size_t n, unsigned char *handle);
	uint64_t (*import)(const unsigned char *handle);
};

/* HIP and MUSA differ in the letters of their names, and in how they copy. */
static const char *prefix;

static void *named(const char *name)
{
	char whole[64];
	snprintf(whole, sizeof whole, "%s%s", prefix, name);
	return call(whole);
}

static void like_hip_device(void) { ok("SetDevice", ((int (*)(int))named("SetDevice"))(0)); }

static uint64_t like_hip_alloc(size_t n)
{
	void *p;
	like_hip_device();
	ok("Malloc", ((int (*)(void **, size_t))named("Malloc"))(&p, n));
	return (uint64_t)p;
}

static void *like_hip_stream(void)
{
	void *s;
	like_hip_device();
	ok("StreamCreate", ((int (*)(void **, unsigned))named("StreamCreateWithFlags"))(&s, 1));
	like_hip_device();
	return s;
}

static void like_hip_wait(void *s) { ok("StreamSynchronize", ((int (*)(void *))named("StreamSynchronize"))(s)); }

static void hip_in(uint64_t dst, const void *src, size_t n)
{
	void *s = like_hip_stream();
	ok("HtoD", ((int (*)(uint64_t, const void *, size_t, void *))call("hipMemcpyHtoDAsync"))(dst, src, n, s));
	like_hip_wait(s);
}

static void hip_out(void *dst, uint64_t src, size_t n)
{
	void *s = like_hip_stream();
	ok("DtoH", ((int (*)(void *, uint64_t, size_t, void *))call("hipMemcpyDtoHAsync"))(dst, src, n, s));
	like_hip_wait(s);
}

static void musa_copy(void *dst, const void *src, size_t n, int kind)
{
	void *s = like_hip_stream();
	ok("Memcpy", ((int (*)(void *, const void *, size_t, int, void *))call("musaMemcpyAsync"))(dst, src, n, kind, s));
	like_hip_wait(s);
}

static void musa_in(uint64_t dst, const void *src, size_t n) { musa_copy((void *)dst, src, n, 1); }
static void musa_out(void *dst, uint64_t src, size_t n) { musa_copy(dst, (void *)src, n, 2); }

static void like_hip_export(uint64_t p, size_t n, unsigned char *handle)
{
	handle64 h;
	(void)n;
	like_hip_device();
	ok("IpcGet", ((int (*)(handle64 *, void *))named("IpcGetMemHandle"))(&h, (void *)p));
	memcpy(handle, &h, sizeof h);
}

static uint64_t like_hip_import(const unsigned char *handle)
{
	handle64 h;
	void *p;
	memcpy(&h, handle, sizeof h);
	like_hip_device();
	unsigned flags = prefix[0] == 'm'; /* HIP 5 has 0 for what CUDA and MUSA have 1 for */
	ok("IpcOpen", ((int (*)(void **, handle64, unsigned))named("IpcOpenMemHandle"))(&p, h, flags));
	return (uint64_t)p;
}

static void cn_device(void)
{
	static void *context;
	if (!context) {
		uint64_t device;
		ok("cnInit", ((int (*)(unsigned))call("cnInit"))(0));
		ok("cnDeviceGet", ((int (*)(uint64_t *, int))call("cnDeviceGet"))(&device, 0));
		ok("cnSharedContextAcquire", ((int (*)(void **, uint64_t))call("cnSharedContextAcquire"))(&context, device));
	}
	ok("cnCtxSetCurrent", ((int (*)(void *))call("cnCtxSetCurrent"))(context));
}

static uint64_t cn_alloc(size_t n)
{
	uint64_t p;
	cn_device();
	ok("cnMalloc", ((int (*)(uint64_t *, uint64_t))call("cnMalloc"))(&p, n));
	return p;
}

static void *cn_queue(void)
{
	void *q;
	cn_device();
	ok("cnCreateQueue", ((int (*)(void **, unsigned))call("cnCreateQueue"))(&q, 0));
	cn_device();
	return q;
}

static void cn_in(uint64_t dst, const void *src, size_t n)
{
	void *q = cn_queue();
	ok("cnMemcpyHtoD", ((int (*)(uint64_t, const void *, uint64_t, void *))call("cnMemcpyHtoDAsync"))(dst, src, n, q));
	ok("cnQueueSync", ((int (*)(void *))call("cnQueueSync"))(q));
}

static void cn_out(void *dst, uint64_t src, size_t n)
{
	void *q = cn_queue();
	ok("cnMemcpyDtoH", ((int (*)(void *, uint64_t, uint64_t, void *))call("cnMemcpyDtoHAsync"))(dst, src, n, q));
	ok("cnQueueSync", ((int (*)(void *))call("cnQueueSync"))(q));
}

static void cn_export(uint64_t p, size_t n, unsigned char *handle)
{
	void *h;
	(void)n;
	cn_device();
	ok("cnIpcGet", ((int (*)(void **, uint64_t))call("cnIpcGetMemHandle"))(&h, p));
	memcpy(handle, &h, sizeof h);
}

static uint64_t cn_import(const unsigned char *handle)
{
	void *h;
	uint64_t p;
	memcpy(&h, handle, sizeof h);
	cn_device();
	ok("cnIpcOpen", ((int (*)(uint64_t *, void *, unsigned))call("cnIpcOpenMemHandle"))(&p, h, 0));
	return p;
}

static void acl_device(void)
{
	static int begun;
	if (!begun++)
		ok("aclInit", ((int (*)(const char *))call("aclInit"))(NULL));
	ok("aclrtSetDevice", ((int (*)(int32_t))call("aclrtSetDevice"))(0));
}

static uint64_t acl_alloc(size_t n)
{
	void *p;
	acl_device();
	ok("aclrtMalloc", ((int (*)(void **, size_t, int))call("aclrtMalloc"))(&p, n, 0));
	return (uint64_t)p;
}

static void acl_copy(void *dst, const void *src, size_t n, int kind)
{
	void *s;
	acl_device();
	ok("aclrtCreateStream", ((int (*)(void **))call("aclrtCreateStream"))(&s));
	acl_device();
	ok("aclrtMemcpyAsync", ((int (*)(void *, size_t, const void *, size_t, int, void *))call("aclrtMemcpyAsync"))(dst, n, src, n, kind, s));
	ok("aclrtSynchronizeStream", ((int (*)(void *))call("aclrtSynchronizeStream"))(s));
}

static void acl_in(uint64_t dst, const void *src, size_t n) { acl_copy((void *)dst, src, n, 1); }
static void acl_out(void *dst, uint64_t src, size_t n) { acl_copy(dst, (void *)src, n, 2); }

static void acl_export(uint64_t p, size_t n, unsigned char *handle)
{
	acl_device();
	ok("aclrtIpcMemGetExportKey",
	   ((int (*)(void *, size_t, char *, size_t, uint64_t))call("aclrtIpcMemGetExportKey"))((void *)p, n, (char *)handle, 65, 1));
}

static uint64_t acl_import(const unsigned char *handle)
{
	void *p;
	acl_device();
	ok("aclrtIpcMemImportByKey",
	   ((int (*)(void **, const char *, uint64_t))call("aclrtIpcMemImportByKey"))(&p, (const char *)handle, 0));
	return (uint64_t)p;
}

static const struct vendor vendors[] = {
	{"hip", "libamdhip64.so.7", 64, like_hip_device, like_hip_alloc, hip_in, hip_out, like_hip_export, like_hip_import},
	{"musa", "libmusart.so.5", 64, like_hip_device, like_hip_alloc, musa_in, musa_out, like_hip_export, like_hip_import},
	{"mlu", "libcndrv.so", 8, cn_device, cn_alloc, cn_in, cn_out, cn_export, cn_import},
	{"npu", "libascendcl.so", 65, acl_device, acl_alloc, acl_in, acl_out, acl_export, acl_import},
};

static void read_all(char *p, size_t n)
{
	for (size_t got = 0; got < n;) {
		ssize_t more = read(0, p + got, n - got);
		if (more <= 0)
			exit(2);
		got += more;
	}
}

static void write_all(const char *p, size_t n)
{
	for (size_t put = 0; put < n;) {
		ssize_t more = write(1, p + put, n - put);
		if (more <= 0)
			exit(2);
		put += more;
	}
}

static void own(const struct vendor *v, size_t n, char *bytes)
{
	unsigned char handle[HANDLE_MAX];
	char text[2 * HANDLE_MAX + 2];
	uint64_t p = v->alloc(n);
	read_all(bytes, n);
	v->in(p, bytes, n);
	v->export(p, n, handle);
	for (size_t i = 0; i < v->handle_size; i++)
		sprintf(text + 2 * i, "%02x", handle[i]);
	strcat(text, "\n");
	write_all(text, strlen(text));
	char rest;
	while (read(0, &rest, 1) > 0)
		;
	v->out(bytes, p, n);
	write_all(bytes, n);
}

int main(int argc, char **argv)
{
	const struct vendor *v = vendors;
	const char *end = argv[argc - 1];
	if (argc < 4)
		return 3;
	while (strcmp(v->name, argv[1]))
		if (++v == vendors + sizeof vendors / sizeof *vendors)
			return 3;
	prefix = v->name;
	library = dlopen(v->library, RTLD_NOW);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	size_t n = strtoull(end, NULL, 0);
	char *bytes = malloc(n);
	if (!strcmp(argv[2], "own")) {
		own(v, n, bytes);
		return 0;
	}
	unsigned char handle[HANDLE_MAX] = {0};
	for (size_t i = 0; i < v->handle_size; i++)
		if (sscanf(argv[3] + 2 * i, "%2hhx", &handle[i]) != 1)
			return 3;
	uint64_t p = v->import(handle);
	if (!strcmp(argv[2], "read")) {
		v->out(bytes, p, n);
		write_all(bytes, n);
		return 0;
	}
	read_all(bytes, n);
	v->in(p, bytes, n);
	return 0;
}
