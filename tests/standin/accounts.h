// Processes that load the same stand-in share its cards: a file "cards" beside
// the library has what each of them uses.
#ifndef HMCFS_ACCOUNTS_H
#define HMCFS_ACCOUNTS_H

#include "standin.h"

#include <signal.h>
#include <sys/file.h>

// account is what one process uses of each device.
struct account { int32_t pid, zero; uint64_t used[MAX_DEVICES]; };
enum { ACCOUNTS = 32 };

// accounts are those of all processes, NULL where the file can't be made.
static struct account *accounts(void)
{
	static struct account *all;
	char path[PATH_MAX];
	beside(path, "cards");
	if (all || !path[0])
		return all;
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return NULL;
	if (!flock(fd, LOCK_EX) && !ftruncate(fd, sizeof(struct account) * ACCOUNTS)) {
		void *p = mmap(NULL, sizeof(struct account) * ACCOUNTS, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		all = p == MAP_FAILED ? NULL : p;
		for (int i = 0; all && i < ACCOUNTS; i++)
			if (all[i].pid == 0 || (all[i].pid != getpid() && kill(all[i].pid, 0))) {
				all[i] = (struct account){.pid = getpid()};
				break;
			}
	}
	flock(fd, LOCK_UN); // the map would keep it
	close(fd);
	return all;
}

// account_set notes what this process uses of a device.
static void account_set(int device, uint64_t used)
{
	struct account *all = accounts();
	pid_t self = getpid();
	for (int i = 0; all && i < ACCOUNTS; i++)
		if (all[i].pid == self)
			all[i].used[device] = used;
}

// account_others is what all other processes use of a device.
static uint64_t account_others(int device)
{
	uint64_t sum = 0;
	struct account *all = accounts();
	pid_t self = getpid();
	for (int i = 0; all && i < ACCOUNTS; i++)
		if (all[i].pid && all[i].pid != self && !kill(all[i].pid, 0))
			sum += all[i].used[device];
	return sum;
}

#endif
