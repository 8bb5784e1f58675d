/*
 * Fileio moves files as a plain program does, with one buffer and nothing
 * else on the way, and prints "BYTES NANOSECONDS":
 *
 *	fileio read CALL FILE...      read(2) each file whole, a thread for each
 *	fileio write CALL SIZE FILE   write(2) a new file of SIZE random bytes
 *	fileio copy SRC DST           copy_file_range(2) into a file that is there
 *
 * CALL is the bytes of one call. A read is timed from the first call to the
 * last of the slowest thread, all of which start together; a write from the
 * open to the close; a copy only the calls.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "pattern.h"

static void fail(const char *what, const char *name) {
	fprintf(stderr, "error: %s %s: %s\n", what, name, strerror(errno));
	exit(1);
}

static int64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* buffer returns n bytes that have their pages. */
static uint8_t *buffer(size_t n) {
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (p == MAP_FAILED)
		fail("allocate", "a buffer");
	return p;
}

struct reader {
	pthread_t thread;
	pthread_barrier_t *start;
	const char *name;
	size_t call;
	uint64_t bytes;
	int64_t begin, end;
};

static void *read_one(void *argument) {
	struct reader *r = argument;
	uint8_t *p = buffer(r->call);
	int fd = open(r->name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		fail("open", r->name);
	pthread_barrier_wait(r->start);
	r->begin = now();
	for (;;) {
		ssize_t n = read(fd, p, r->call);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			fail("read", r->name);
		if (n == 0)
			break;
		r->bytes += (uint64_t)n;
	}
	r->end = now();
	close(fd);
	munmap(p, r->call);
	return NULL;
}

static void read_all(size_t call, int count, char **names) {
	struct reader *readers = calloc((size_t)count, sizeof *readers);
	pthread_barrier_t start;
	if (readers == NULL || pthread_barrier_init(&start, NULL, (unsigned)count) != 0)
		fail("start", "the readers");
	for (int i = 0; i < count; i++) {
		readers[i].start = &start, readers[i].name = names[i], readers[i].call = call;
		if (pthread_create(&readers[i].thread, NULL, read_one, &readers[i]) != 0)
			fail("start", "a thread");
	}
	uint64_t bytes = 0;
	int64_t begin = INT64_MAX, end = 0;
	for (int i = 0; i < count; i++) {
		pthread_join(readers[i].thread, NULL);
		bytes += readers[i].bytes;
		begin = readers[i].begin < begin ? readers[i].begin : begin;
		end = readers[i].end > end ? readers[i].end : end;
	}
	printf("%llu %lld\n", (unsigned long long)bytes, (long long)(end - begin));
	free(readers);
}

static void write_one(size_t call, uint64_t size, const char *name) {
	uint8_t *p = buffer(call);
	pattern_fill(p, call, 1, 0);
	int64_t begin = now();
	int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		fail("create", name);
	for (uint64_t done = 0; done < size;) {
		size_t want = size - done < call ? (size_t)(size - done) : call;
		ssize_t n = write(fd, p, want);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			fail("write", name);
		done += (uint64_t)n;
	}
	if (close(fd) != 0)
		fail("close", name);
	printf("%llu %lld\n", (unsigned long long)size, (long long)(now() - begin));
}

static void copy_one(const char *from, const char *to) {
	struct stat st;
	int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CLOEXEC);
	if (in < 0 || fstat(in, &st) != 0)
		fail("open", from);
	if (out < 0)
		fail("open", to);
	int64_t begin = now();
	for (off_t left = st.st_size; left > 0;) {
		ssize_t n = copy_file_range(in, NULL, out, NULL, (size_t)left, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			fail("copy to", to);
		left -= n;
	}
	int64_t end = now();
	if (close(out) != 0)
		fail("close", to);
	printf("%llu %lld\n", (unsigned long long)st.st_size, (long long)(end - begin));
}

int main(int argc, char **argv) {
	const char *verb = argc > 1 ? argv[1] : "";
	size_t call = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
	if (strcmp(verb, "read") == 0 && argc > 3 && call > 0)
		read_all(call, argc - 3, argv + 3);
	else if (strcmp(verb, "write") == 0 && argc == 5 && call > 0)
		write_one(call, strtoull(argv[3], NULL, 10), argv[4]);
	else if (strcmp(verb, "copy") == 0 && argc == 4)
		copy_one(argv[2], argv[3]);
	else {
		fputs("usage: fileio read CALL FILE... | write CALL SIZE FILE | copy SRC DST\n", stderr);
		return 2;
	}
	return 0;
}
