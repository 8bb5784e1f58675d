/*
 * The text form of shared memory, as docs/devices.md tells it:
 *
 *	{"family":"cuda","device":"GPU-8f...","pid":4711,"size":4096,
 *	 "pieces":[{"kind":"ipc","handle":"00ff...","offset":0,"size":4096}]}
 *
 * The pieces are flat objects and no string in them has a quote, so a search
 * for a name inside the braces finds its value.
 */
#ifndef HMCFS_TEST_HANDLE_H
#define HMCFS_TEST_HANDLE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

enum { MAX_PIECES = 16, MAX_TEXT = 1 << 16 };

struct piece {
	char kind[16], path[256];
	char bytes[64];
	int has_bytes, fd;
	uint64_t offset, size, allocation;
};

struct handle {
	char family[16], device[64];
	int pid, count;
	uint64_t size;
	struct piece piece[MAX_PIECES];
};

/* value finds the value of a name between two places of a text. */
static const char *value(const char *from, const char *to, const char *name) {
	char quoted[32];
	int n = snprintf(quoted, sizeof quoted, "\"%s\"", name);
	const char *at = memmem(from, (size_t)(to - from), quoted, (size_t)n);
	if (at == NULL)
		return NULL;
	at += n;
	return at + strspn(at, " \t\n:");
}

static uint64_t number(const char *from, const char *to, const char *name, uint64_t missing) {
	const char *at = value(from, to, name);
	return at == NULL ? missing : strtoull(at, NULL, 10);
}

static void string(const char *from, const char *to, const char *name, char *out, size_t room) {
	const char *at = value(from, to, name);
	out[0] = 0;
	if (at == NULL || *at != '"')
		return;
	size_t n = strcspn(at + 1, "\"");
	if (n >= room)
		die(FAILED, "%s is longer than %zu bytes", name, room - 1);
	memcpy(out, at + 1, n);
	out[n] = 0;
}

static void parse_piece(struct piece *p, const char *from, const char *to) {
	char hex[129];
	string(from, to, "kind", p->kind, sizeof p->kind);
	string(from, to, "path", p->path, sizeof p->path);
	string(from, to, "handle", hex, sizeof hex);
	p->fd = (int)number(from, to, "fd", (uint64_t)-1);
	p->offset = number(from, to, "offset", 0);
	p->size = number(from, to, "size", 0);
	p->allocation = number(from, to, "allocation", 0);
	p->has_bytes = strlen(hex) == 2 * sizeof p->bytes;
	for (size_t i = 0; p->has_bytes && i < sizeof p->bytes; i++) {
		unsigned byte;
		if (sscanf(hex + 2 * i, "%2x", &byte) != 1)
			die(FAILED, "a handle is not hexadecimal");
		p->bytes[i] = (char)byte;
	}
}

static void parse_handle(struct handle *h, const char *text) {
	memset(h, 0, sizeof *h);
	const char *end = text + strlen(text), *list = value(text, end, "pieces");
	if (list == NULL || *list != '[')
		die(FAILED, "no pieces in %s", text);
	const char *list_end = strchr(list, ']');
	if (list_end == NULL)
		die(FAILED, "the pieces do not end");
	string(text, end, "family", h->family, sizeof h->family);
	/* The pieces have sizes too: look before them, then behind them. */
	const char *sides[2][2] = {{text, list}, {list_end, end}};
	for (int i = 0; i < 2; i++) {
		if (h->device[0] == 0)
			string(sides[i][0], sides[i][1], "device", h->device, sizeof h->device);
		h->pid = (int)number(sides[i][0], sides[i][1], "pid", (uint64_t)h->pid);
		h->size = number(sides[i][0], sides[i][1], "size", h->size);
	}
	while ((list = strchr(list, '{')) != NULL && list < list_end) {
		const char *close = strchr(list, '}');
		if (close == NULL || h->count == MAX_PIECES)
			die(FAILED, "a piece does not end, or there are more than %d", MAX_PIECES);
		parse_piece(&h->piece[h->count++], list, close);
		list = close;
	}
}

static void print_handle(const struct handle *h) {
	printf("{\"family\":\"%s\",", h->family);
	if (h->device[0] != 0)
		printf("\"device\":\"%s\",", h->device);
	printf("\"pid\":%d,\"size\":%llu,\"pieces\":[", h->pid, (unsigned long long)h->size);
	for (int i = 0; i < h->count; i++) {
		const struct piece *p = &h->piece[i];
		printf("%s{\"kind\":\"%s\"", i > 0 ? "," : "", p->kind);
		if (p->has_bytes) {
			printf(",\"handle\":\"");
			for (size_t j = 0; j < sizeof p->bytes; j++)
				printf("%02x", (unsigned char)p->bytes[j]);
			printf("\"");
		} else
			printf(",\"fd\":%d", p->fd);
		printf(",\"offset\":%llu,\"size\":%llu,\"allocation\":%llu}", (unsigned long long)p->offset,
			(unsigned long long)p->size, (unsigned long long)p->allocation);
	}
	printf("]}\n");
	fflush(stdout);
}

#endif
