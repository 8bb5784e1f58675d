// What the stand-ins for the vendors' libraries share: how they refuse a wrong
// call, how a test configures them and makes them fail, and memory that other
// processes can open.
//
// A stand-in is configured by environment variables and by a file of lines
// KEY=VALUE, which is read again whenever it has changed. The file is named by
// HMCFS_STANDIN_CONTROL, or is "control" beside the library itself, so that a
// test can load two differently configured copies into one process.
//
//   devices=N            how many devices there are (HMCFS_STANDIN_DEVICES, 2)
//   memory=BYTES         of each (HMCFS_STANDIN_MEMORY, 256 MiB)
//   peer=0               no device reaches another (HMCFS_STANDIN_PEER, 1)
//   vmm=0                no virtual memory calls (HMCFS_STANDIN_VMM, 1)
//   version=N            of the driver (HMCFS_STANDIN_VERSION, 12060)
//   fail=CALL:NTH:CODE[:DEVICE]  the NTH call from now on, from 1, or every one
//                        if NTH is 0, returns CODE (HMCFS_STANDIN_FAIL)
//   taken=DEVICE:BYTES   memory that other programs have taken
//   mig=1                devices are parts of cards
//   rdma=0               no memory can be made for network cards (1)
//   recommended=BYTES    what mapped memory is best taken in (2 MiB)
//   shared=BYTES         what mapped memory that is exported is taken in (2 MiB)
//   mode=N               the compute mode: 0 shared, 2 prohibited, 3 one process
//   silent=1             a card that has failed never answers: a further call on
//                        its context ends the process
//
// The first five are read when the library is initialised. A wrong call ends
// the process with a message, so that no test passes by luck.
#ifndef HMCFS_STANDIN_H
#define HMCFS_STANDIN_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

enum { MAX_DEVICES = 16, MAX_FAULTS = 16 };

static void __attribute__((noreturn, format(printf, 1, 2))) die(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fputs("stand-in: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	abort();
}

struct fault {
	char call[64];
	long nth, seen;
	int code, device; // device -1: any
};

static struct {
	int devices, peer, vmm, version, silent, mig, rdma, mode;
	uint64_t memory, recommended, shared;
	uint64_t taken[MAX_DEVICES];
	struct fault faults[MAX_FAULTS];
	int nfaults;
	struct stat file;
} config = {.devices = 2, .peer = 1, .vmm = 1, .version = 12060, .memory = 256 << 20,
	    .rdma = 1, .recommended = 2 << 20, .shared = 2 << 20};

static void config_set(const char *key, const char *value)
{
	if (!strcmp(key, "devices"))
		config.devices = atoi(value);
	else if (!strcmp(key, "memory"))
		config.memory = strtoull(value, NULL, 0);
	else if (!strcmp(key, "peer"))
		config.peer = atoi(value);
	else if (!strcmp(key, "vmm"))
		config.vmm = atoi(value);
	else if (!strcmp(key, "version"))
		config.version = atoi(value);
	else if (!strcmp(key, "mig"))
		config.mig = atoi(value);
	else if (!strcmp(key, "rdma"))
		config.rdma = atoi(value);
	else if (!strcmp(key, "mode"))
		config.mode = atoi(value);
	else if (!strcmp(key, "recommended"))
		config.recommended = strtoull(value, NULL, 0);
	else if (!strcmp(key, "shared"))
		config.shared = strtoull(value, NULL, 0);
	else if (!strcmp(key, "silent"))
		config.silent = atoi(value);
	else if (!strcmp(key, "taken")) {
		int device;
		unsigned long long bytes;
		if (sscanf(value, "%d:%llu", &device, &bytes) != 2 || device < 0 || device >= MAX_DEVICES)
			die("taken=%s is not DEVICE:BYTES", value);
		config.taken[device] = bytes;
	} else if (!strcmp(key, "fail")) {
		struct fault f = {.device = -1};
		if (config.nfaults == MAX_FAULTS ||
		    sscanf(value, "%63[^:]:%ld:%d:%d", f.call, &f.nth, &f.code, &f.device) < 3)
			die("fail=%s is not CALL:NTH:CODE[:DEVICE]", value);
		config.faults[config.nfaults++] = f;
	} else
		die("unknown setting %s=%s", key, value);
	if (config.devices < 0 || config.devices > MAX_DEVICES)
		die("%d devices", config.devices);
}

static void config_env(void)
{
	static const char *const names[][2] = {
		{"devices", "HMCFS_STANDIN_DEVICES"}, {"memory", "HMCFS_STANDIN_MEMORY"},
		{"peer", "HMCFS_STANDIN_PEER"}, {"vmm", "HMCFS_STANDIN_VMM"},
		{"version", "HMCFS_STANDIN_VERSION"}, {"fail", "HMCFS_STANDIN_FAIL"},
	};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		const char *value = getenv(names[i][1]);
		if (value && *value)
			config_set(names[i][0], value);
	}
}

// beside is the path of a file in the folder of the library, "" if that is not
// known.
static void beside(char path[PATH_MAX], const char *name)
{
	Dl_info self;
	path[0] = 0;
	if (dladdr((void *)config_set, &self) && strrchr(self.dli_fname, '/')) {
		int folder = (int)(strrchr(self.dli_fname, '/') - self.dli_fname);
		snprintf(path, PATH_MAX, "%.*s/%s", folder, self.dli_fname, name);
	}
}

// config_path is where the control file is.
static void config_path(char path[PATH_MAX])
{
	const char *named = getenv("HMCFS_STANDIN_CONTROL");
	if (named && *named)
		snprintf(path, PATH_MAX, "%s", named);
	else
		beside(path, "control");
}

// config_read reads the environment at first, and the control file whenever it
// is another one than before.
static void config_read(void)
{
	static int begun;
	if (!begun) {
		begun = 1;
		config_env();
	}
	char path[PATH_MAX], line[256], key[32], value[200];
	struct stat now;
	config_path(path);
	if (!path[0] || stat(path, &now))
		return;
	if (now.st_ino == config.file.st_ino && now.st_mtim.tv_sec == config.file.st_mtim.tv_sec &&
	    now.st_mtim.tv_nsec == config.file.st_mtim.tv_nsec && now.st_size == config.file.st_size)
		return;
	FILE *f = fopen(path, "re");
	if (!f)
		return;
	config.file = now;
	config.nfaults = 0;
	memset(config.taken, 0, sizeof config.taken);
	while (fgets(line, sizeof line, f))
		if (sscanf(line, " %31[^= \n]=%199[^\n]", key, value) == 2)
			config_set(key, value);
	fclose(f);
}

// injected is the code that a call shall fail with, 0 for none.
static int injected(const char *call, int device)
{
	int code = 0;
	for (int i = 0; i < config.nfaults; i++) {
		struct fault *f = &config.faults[i];
		if (strcmp(f->call, call) || (f->device >= 0 && f->device != device))
			continue;
		if (++f->seen == f->nth || f->nth == 0)
			code = f->code;
	}
	return code;
}

// Memory of a device is a memfd, whose name says what it is, so that another
// process that opens it can tell a wrong one.

struct memory {
	int fd, device, refs;
	int mark; // of accounts.h, -1 for none
	uint8_t *bytes;
	uint64_t size, nonce;
};

static struct memory *memory_map(int fd, int device, uint64_t size, uint64_t nonce)
{
	struct memory *m = calloc(1, sizeof *m);
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (!m || p == MAP_FAILED)
		die("no memory for %llu bytes of a device", (unsigned long long)size);
	*m = (struct memory){fd, device, 1, -1, p, size, nonce};
	return m;
}

// memory_new takes fresh memory. What its first and last MiB hold is what somebody
// has left there; the middle of a large one is zero, which costs nothing.
static struct memory *memory_new(int device, uint64_t size)
{
	static uint64_t count;
	uint64_t nonce = ((uint64_t)getpid() << 32) + ++count;
	char name[128];
	snprintf(name, sizeof name, "standin:%d:%llu:%llu", device, (unsigned long long)size, (unsigned long long)nonce);
	int fd = memfd_create(name, MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)size))
		die("memfd of %llu bytes: %s", (unsigned long long)size, strerror(errno));
	struct memory *m = memory_map(fd, device, size, nonce);
	uint64_t edge = size < 1 << 20 ? size : 1 << 20;
	memset(m->bytes, 0xdb, edge);
	memset(m->bytes + size - edge, 0xdb, edge);
	return m;
}

// memory_open opens what a descriptor names and takes the descriptor; NULL if
// that is no memory of a stand-in's device.
static struct memory *memory_open(int fd)
{
	char link[64], name[256];
	int device;
	unsigned long long size, nonce;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, name, sizeof name - 1);
	if (n > 0)
		name[n] = 0;
	if (n <= 0 || sscanf(name, "/memfd:standin:%d:%llu:%llu", &device, &size, &nonce) != 3) {
		close(fd);
		return NULL;
	}
	return memory_map(fd, device, size, nonce);
}

static void memory_drop(struct memory *m)
{
	if (--m->refs)
		return;
	munmap(m->bytes, m->size);
	close(m->fd);
	if (m->mark >= 0)
		close(m->mark);
	free(m);
}

#endif
