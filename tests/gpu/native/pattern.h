/*
 * The content of the truth tests: SplitMix64 in counter mode. With
 *
 *	mix(z)  = z' ^ z' >> 31, z' = (z" ^ z" >> 27) * 0x94d049bb133111eb,
 *	          z" = (z ^ z >> 30) * 0xbf58476d1ce4e5b9
 *	key     = mix(SEED + G), G = 0x9e3779b97f4a7c15
 *	word(i) = mix(key + i * G), little endian, i = offset / 8
 *
 * modulo 2^64, the byte at an offset is byte offset % 8 of its word. Every
 * byte depends on where it lies in the whole object, so one that lands in a
 * wrong place, or is of another time, is seen. tests/kit/bytes.go is the same
 * formula, written independently.
 */
#ifndef HMCFS_TEST_PATTERN_H
#define HMCFS_TEST_PATTERN_H

#include <stddef.h>
#include <stdint.h>

static uint64_t pattern_mix(uint64_t z) {
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static uint64_t pattern_word(uint64_t seed, uint64_t index) {
	const uint64_t step = 0x9e3779b97f4a7c15ull;
	return pattern_mix(pattern_mix(seed + step) + index * step);
}

/* pattern_fill puts the n bytes at an offset of the content into p. */
static void pattern_fill(uint8_t *p, size_t n, uint64_t seed, uint64_t offset) {
	while (n > 0) {
		uint64_t word = pattern_word(seed, offset / 8) >> (offset % 8 * 8);
		size_t part = 8 - (size_t)(offset % 8);
		if (part > n)
			part = n;
		for (size_t i = 0; i < part; i++)
			p[i] = (uint8_t)(word >> (8 * i));
		p += part, n -= part, offset += part;
	}
}

#endif
