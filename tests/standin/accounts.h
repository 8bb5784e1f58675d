// Processes that load the same stand-in share its cards: a file "cards" beside
// the library has what each of them uses. Memory that can be exported lasts as
// long as any process has a descriptor of it or has it mapped, whoever has made
// it. So it is not in the account of a process: it has a file, its mark, in the
// folder "memory" beside the library, which is locked for as long.
#ifndef HMCFS_ACCOUNTS_H
#define HMCFS_ACCOUNTS_H

#include "standin.h"

#include <dirent.h>
#include <inttypes.h>
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

// mark_new marks memory that others may come to have, and returns the descriptor
// whose lock ends with the last duplicate of it. A mark has its name once it is
// locked.
static int mark_new(int device, uint64_t size, uint64_t nonce)
{
	char folder[PATH_MAX], made[PATH_MAX + 64], name[PATH_MAX + 64];
	beside(folder, "memory");
	if (mkdir(folder, 0700) && errno != EEXIST)
		die("mkdir %s: %s", folder, strerror(errno));
	snprintf(made, sizeof made, "%s/new:%" PRIx64, folder, nonce);
	snprintf(name, sizeof name, "%s/%d:%" PRIu64 ":%" PRIx64, folder, device, size, nonce);
	int fd = open(made, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || flock(fd, LOCK_SH) || rename(made, name))
		die("mark %s: %s", name, strerror(errno));
	return fd;
}

// marked is how much memory of a device has a mark that is locked.
static uint64_t marked(int device)
{
	char folder[PATH_MAX];
	uint64_t sum = 0, size;
	beside(folder, "memory");
	DIR *all = opendir(folder);
	for (struct dirent *e; all && (e = readdir(all));) {
		int of;
		if (sscanf(e->d_name, "%d:%" SCNu64, &of, &size) != 2 || of != device)
			continue;
		int fd = openat(dirfd(all), e->d_name, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (flock(fd, LOCK_EX | LOCK_NB))
			sum += size;
		else
			unlinkat(dirfd(all), e->d_name, 0);
		close(fd);
	}
	if (all)
		closedir(all);
	return sum;
}

#endif
