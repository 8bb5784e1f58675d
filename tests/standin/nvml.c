//go:build ignore

// A stand-in for libnvidia-ml.so.1, as far as hmcfs uses it: the free memory of
// the cards of cuda.c, which takes no context. It shares the settings of the
// stand-in beside it.
#pragma GCC diagnostic ignored "-Wunused-function" // it has no memory of its own
#include "accounts.h"

#ifdef HMCFS_STANDIN_VENDOR_HEADER // the test of the ABI has the real one
#include <nvml.h>
#else
typedef int nvmlReturn_t;
typedef struct nvmlDevice_st *nvmlDevice_t;
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
#endif

enum { OK = 0, UNINITIALIZED = 1, NOT_FOUND = 6 };

static int users;
struct nvmlDevice_st { int number; };
static struct nvmlDevice_st cards[MAX_DEVICES];

API nvmlReturn_t nvmlInit_v2(void)
{
	config_read();
	int code = injected(__func__, -1);
	users += code == OK;
	return (nvmlReturn_t)code;
}

API nvmlReturn_t nvmlShutdown(void)
{
	if (users-- == 0)
		die("nvmlShutdown: it was not initialised");
	return (nvmlReturn_t)OK;
}

API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	unsigned number;
	if (!users)
		return (nvmlReturn_t)UNINITIALIZED;
	if (strlen(uuid) != 40 || sscanf(uuid + 38, "%2x", &number) != 1 || number >= (unsigned)config.devices ||
	    strncmp(uuid, config.mig ? "MIG-" : "GPU-", 4))
		return (nvmlReturn_t)NOT_FOUND;
	cards[number].number = (int)number;
	*device = &cards[number];
	return (nvmlReturn_t)OK;
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	if (!users)
		return (nvmlReturn_t)UNINITIALIZED;
	uint64_t used = config.taken[device->number] + account_others(device->number) + marked(device->number);
	memory->total = config.memory;
	memory->used = used < config.memory ? used : config.memory;
	memory->free = config.memory - memory->used;
	return (nvmlReturn_t)OK;
}
