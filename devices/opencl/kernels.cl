// One of the types is defined by the build options. What the kernels come to is
// what package elem does on the host, bit for bit: so nothing may be fused, and
// every NaN is made the same one.

#pragma OPENCL FP_CONTRACT OFF

#if defined(INT8)
typedef char elem;
typedef uchar word;
#elif defined(UINT8)
typedef uchar elem;
typedef uchar word;
#elif defined(INT32)
typedef int elem;
typedef uint word;
#elif defined(INT64)
typedef long elem;
typedef ulong word;
#elif defined(FLOAT16) || defined(BFLOAT16)
typedef ushort elem;
#elif defined(FLOAT32)
typedef float elem;
#elif defined(FLOAT64)
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double elem;
#endif

#if defined(FLOAT64)
typedef double wide;
typedef ulong bits;
#define AS_BITS as_ulong
#define AS_WIDE as_double
#define NOT_A_NUMBER 0x7ff8000000000000UL
#define INFINITE 0x7ff0000000000000UL
#define FLOATS
#elif defined(FLOAT32) || defined(FLOAT16) || defined(BFLOAT16)
typedef float wide;
typedef uint bits;
#define AS_BITS as_uint
#define AS_WIDE as_float
#define NOT_A_NUMBER 0x7fc00000U
#define INFINITE 0x7f800000U
#define FLOATS
#endif

#if defined(FLOAT16)

inline wide widen(elem h)
{
	uint b = (uint)(h & 0x7fff) << 13;
	uint exponent = b & 0x0f800000U;
	if (exponent == 0x0f800000U)
		b += 0x70000000U; // infinite or NaN
	else if (exponent == 0)
		b = as_uint(as_float(b + 0x38800000U) - as_float(0x38800000U));
	else
		b += 0x38000000U;
	return as_float(b | (uint)(h & 0x8000) << 16);
}

inline elem narrow(wide x)
{
	uint b = as_uint(x);
	uint sign = b >> 16 & 0x8000;
	b &= 0x7fffffffU;
	if (b > 0x7f800000U)
		return (elem)(sign | 0x7e00);
	if (b >= 0x47800000U)
		return (elem)(sign | 0x7c00);
	if (b < 0x38800000U)
		return (elem)(sign | (as_uint(as_float(b) + 0.5f) - 0x3f000000U));
	return (elem)(sign | (b - 0x38000000U + 0xfff + (b >> 13 & 1)) >> 13);
}

#elif defined(BFLOAT16)

inline wide widen(elem h) { return as_float((uint)h << 16); }

inline elem narrow(wide x)
{
	uint b = as_uint(x);
	return (elem)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}

#elif defined(FLOATS)

inline wide widen(elem x) { return x; }
inline elem narrow(wide x) { return x; }

#endif

#if defined(FLOATS)

// A comparison of bits: a compiler may know that x is x.
inline int unordered(wide x) { return (AS_BITS(x) & ~((bits)1 << (sizeof(bits) * 8 - 1))) > INFINITE; }

inline wide ordered(wide x) { return unordered(x) ? AS_WIDE(NOT_A_NUMBER) : x; }

inline wide combine_sum(wide a, wide b) { return ordered(a + b); }
inline wide combine_prod(wide a, wide b) { return ordered(a * b); }

inline wide combine_min(wide a, wide b)
{
	if (unordered(a) || unordered(b))
		return AS_WIDE(NOT_A_NUMBER);
	if (a == b)
		return AS_WIDE(AS_BITS(a) | AS_BITS(b)); // one may be -0
	return a < b ? a : b;
}

inline wide combine_max(wide a, wide b)
{
	if (unordered(a) || unordered(b))
		return AS_WIDE(NOT_A_NUMBER);
	if (a == b)
		return AS_WIDE(AS_BITS(a) & AS_BITS(b));
	return a > b ? a : b;
}

#define COMBINE(op, a, b) narrow(op(widen(a), widen(b)))

#else

inline elem combine_sum(elem a, elem b) { return (elem)(word)((word)a + (word)b); }
inline elem combine_prod(elem a, elem b) { return (elem)(word)((word)a * (word)b); }
inline elem combine_min(elem a, elem b) { return min(a, b); }
inline elem combine_max(elem a, elem b) { return max(a, b); }

#define COMBINE(op, a, b) op(a, b)

#endif

// A driver may have macros by the names of the operations alone.
//
// dst and src may be the same elements: each is read before it is written.
#define KERNEL(name, op) \
	__kernel void name(__global elem *dst, ulong dst_at, __global elem *src, ulong src_at, ulong n) \
	{ \
		ulong i = get_global_id(0); \
		if (i < n) \
			dst[dst_at + i] = COMBINE(op, dst[dst_at + i], src[src_at + i]); \
	}

KERNEL(reduce_sum, combine_sum)
KERNEL(reduce_prod, combine_prod)
KERNEL(reduce_min, combine_min)
KERNEL(reduce_max, combine_max)
