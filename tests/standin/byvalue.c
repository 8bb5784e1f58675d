//go:build ignore

// Functions that take structures by value, for the test of dl.
#include <stdint.h>

#define API __attribute__((visibility("default")))

struct handle { uint64_t words[8]; };
struct pair { int64_t quot, rem; };

// fold mixes all words of h, and returns the flags as a signed number.
API int32_t fold(uint64_t *out, struct handle h, uint32_t flags)
{
	uint64_t sum = 0;
	for (int i = 0; i < 8; i++)
		sum = sum * 31 + h.words[i];
	*out = sum;
	return (int32_t)flags;
}

API int64_t sum(struct pair p) { return p.quot + p.rem; }
