/* The operations of vectors.h with AVX2 and F16C. */
#include <immintrin.h>

/* Keeps a value in a register: gcc would read it from memory again at each use. */
#define HELD(v) __asm__("" : "+v"(v))

INLINE floats lesser(floats a, floats b) { return (floats)_mm256_min_ps((__m256)a, (__m256)b); }
INLINE floats greater(floats a, floats b) { return (floats)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE bytes lesser_bytes(bytes a, bytes b) { return (bytes)_mm256_min_epu8((__m256i)a, (__m256i)b); }
INLINE words lesser_words(words a, words b) { return (words)_mm256_min_epu32((__m256i)a, (__m256i)b); }

INLINE doubles lesser_doubles(doubles a, doubles b) { return (doubles)_mm256_min_pd((__m256d)a, (__m256d)b); }
INLINE doubles greater_doubles(doubles a, doubles b) { return (doubles)_mm256_max_pd((__m256d)a, (__m256d)b); }

INLINE pairs lesser_pairs(pairs a, pairs b)
{
    pairs first = (pairs)(a < b);
    return (a & first) | (b & ~first);
}

INLINE float least_lane(floats v)
{
    __m128 half = _mm_min_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
    half = _mm_min_ps(half, _mm_movehl_ps(half, half));
    return fminf(half[0], half[1]);
}

INLINE float greatest_lane(floats v) { return -least_lane(-v); }

INLINE int least_byte(bytes v)
{
    __m128i few = _mm_min_epu8(_mm256_castsi256_si128((__m256i)v), _mm256_extracti128_si256((__m256i)v, 1));
    few = _mm_minpos_epu16(_mm_min_epu8(few, _mm_srli_epi16(few, 8)));
    return _mm_cvtsi128_si32(few) & 0xff;
}

INLINE floats from_bfloat16(const uint16_t *x)
{
    return (floats)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)x)), 16);
}

INLINE floats from_float16(const uint16_t *x) { return (floats)_mm256_cvtph_ps(_mm_loadu_si128((const void *)x)); }

/* The lower or upper half as doubles. */
INLINE doubles widened(floats v, int upper)
{
    return (doubles)_mm256_cvtps_pd(upper ? _mm256_extractf128_ps((__m256)v, 1) : _mm256_castps256_ps128((__m256)v));
}

INLINE pairs product_of_halves(pairs v) { return (pairs)_mm256_mul_epu32((__m256i)v, (__m256i)(v >> 32)); }

/* The exponents of four vectors as bytes, in an order of their own; `exponent_in` first. `to` is aligned. */
INLINE words exponent_in(words magnitude) { return magnitude >> 23; }

INLINE void store_exponents(uint8_t *to, const words *v)
{
    __m256i low = _mm256_packus_epi32((__m256i)v[0], (__m256i)v[1]);
    __m256i high = _mm256_packus_epi32((__m256i)v[2], (__m256i)v[3]);
    _mm256_store_si256((void *)to, _mm256_packus_epi16(low, high));
}

typedef ints counter;
#define counted count_in
INLINE counter count_zero(counter count, words magnitude) { return count - (ints)(magnitude == 0); }
INLINE ints count_below(ints count, words magnitude, words limit) { return count - ((ints)magnitude < (ints)limit); }

INLINE uint64_t zero_bytes(const uint8_t *x, int n)
{
    uint64_t count = 0;
    for (int i = 0; i < n; i += 32) {
        __m256i zero = _mm256_cmpeq_epi8(_mm256_load_si256((const void *)(x + i)), _mm256_setzero_si256());
        count += (uint64_t)__builtin_popcount((unsigned)_mm256_movemask_epi8(zero));
    }
    return count;
}

/* What histogram.h counts with: see there. */
#define HAS_BIT_PLANES 1
typedef __m256i bits;
INLINE bits no_bits(void) { return _mm256_setzero_si256(); }
INLINE bits same_bytes(int value) { return _mm256_set1_epi8((char)value); }
INLINE bits load_bits(const uint8_t *x) { return _mm256_load_si256((const void *)x); }
INLINE bits lookup_table(const uint8_t *x) { return _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)x)); }
INLINE bits looked_up(bits table, bits index) { return _mm256_shuffle_epi8(table, index); }
INLINE bits window(bits v, bits low, bits top)
{
    return _mm256_adds_epu8(_mm256_sub_epi8(_mm256_min_epu8(v, top), low), same_bytes(0x70));
}

INLINE bits adder(bits *sum, bits a, bits b)
{
    bits old = *sum, either = _mm256_xor_si256(a, b);
    *sum = _mm256_xor_si256(old, either);
    return _mm256_or_si256(_mm256_and_si256(a, b), _mm256_and_si256(old, either));
}

INLINE uint64_t ones_at(bits v, int position)
{
    return (uint64_t)__builtin_popcount((unsigned)_mm256_movemask_epi8(_mm256_slli_epi32(v, 7 - position)));
}
