/*
 * Cudaraw is what the suite compares with: the driver's own copies.
 *
 *	cudaraw facts DEVICE   print one JSON object about the device
 *	cudaraw mode DEVICE    print its compute mode, a number, without a context
 *	cudaraw serve DEVICE   measure what standard input asks for, until its end
 *
 * DEVICE is an ordinal. A line "KIND SIZE CALL", KIND being dtoh, htod or
 * dtod, moves SIZE bytes of device memory in calls of CALL bytes and is
 * answered by "BYTES NANOSECONDS". Each call is waited for. Host memory is pinned, one buffer of CALL
 * bytes as a program that reads a file has it; all memory was touched by an
 * untimed pass before. An error is one line that begins with "error:".
 * The exit status is 3 where there is no CUDA device.
 */
#define _GNU_SOURCE
#include <time.h>

#include "driver.h"

static long long now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void facts(int ordinal) {
	char name[256] = "", uuid[41];
	size_t available = 0, total = 0;
	int version = 0;
	CUdevice device = driver_use(ordinal);
	CALL(DeviceGetName, name, sizeof name, device);
	driver_uuid(device, uuid);
	CALL(MemGetInfo, &available, &total);
	CALL(DriverGetVersion, &version);
	printf("{\"name\":\"%s\",\"uuid\":\"%s\",\"free\":%zu,\"total\":%zu,\"cuda\":\"%d.%d\"}\n",
		name, uuid, available, total, version / 1000, version % 1000 / 10);
}

static void mode(int ordinal) {
	CUdevice device;
	int value = 0;
	CALL(DeviceGet, &device, ordinal);
	CALL(DeviceGetAttribute, &value, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device);
	printf("%d\n", value);
}

struct raw {
	const char *kind;
	size_t size, call;
	CUdeviceptr memory, second;
	void *host;
};

/* pass moves everything once. */
static void pass(const struct raw *r) {
	for (size_t done = 0; done < r->size;) {
		size_t n = r->size - done < r->call ? r->size - done : r->call;
		switch (r->kind[3]) {
		case 'h':
			MOVE(MemcpyDtoHAsync, r->host, r->memory + done, n);
			break;
		case 'd':
			if (r->kind[0] == 'h')
				MOVE(MemcpyHtoDAsync, r->memory + done, r->host, n);
			else
				MOVE(MemcpyDtoDAsync, r->second + done, r->memory + done, n);
		}
		done += n;
	}
}

static void measure(struct raw *r) {
	int inside = strcmp(r->kind, "dtod") == 0;
	CALL(MemAlloc, &r->memory, r->size);
	if (inside)
		CALL(MemAlloc, &r->second, r->size);
	else {
		CALL(MemHostAlloc, &r->host, r->call, CU_MEMHOSTALLOC_PORTABLE);
		memset(r->host, 0x5a, r->call);
	}
	pass(r);
	long long begin = now();
	pass(r);
	printf("%zu %lld\n", r->size, now() - begin);
	fflush(stdout);
	CALL(MemFree, r->memory);
	if (inside)
		CALL(MemFree, r->second);
	else
		CALL(MemFreeHost, r->host);
}

static void serve(int ordinal) {
	char line[128], kind[8];
	driver_use(ordinal);
	while (fgets(line, sizeof line, stdin) != NULL) {
		struct raw r = {.kind = kind};
		if (sscanf(line, "%4s %zu %zu", kind, &r.size, &r.call) != 3 || r.size == 0 || r.call == 0 ||
		    (strcmp(kind, "dtoh") != 0 && strcmp(kind, "htod") != 0 && strcmp(kind, "dtod") != 0))
			die(USAGE, "not KIND SIZE CALL: %s", line);
		measure(&r);
	}
}

int main(int argc, char **argv) {
	if (argc != 3 || (strcmp(argv[1], "facts") != 0 && strcmp(argv[1], "mode") != 0 && strcmp(argv[1], "serve") != 0))
		die(USAGE, "usage: cudaraw facts|mode|serve DEVICE");
	driver_open();
	if (strcmp(argv[1], "facts") == 0)
		facts(atoi(argv[2]));
	else if (strcmp(argv[1], "mode") == 0)
		mode(atoi(argv[2]));
	else
		serve(atoi(argv[2]));
	return 0;
}
