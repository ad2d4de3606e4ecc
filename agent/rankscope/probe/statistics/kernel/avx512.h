/* The operations of vectors.h with AVX-512 (F and BW). */
#include <immintrin.h>

/* Keeps a value in a register: gcc would read it from memory again at each use, and the reads are the bottleneck
 * (7 % of a table in the cache). */
#define HELD(v) __asm__("" : "+v"(v))

INLINE floats lesser(floats a, floats b) { return (floats)_mm512_min_ps((__m512)a, (__m512)b); }
INLINE floats greater(floats a, floats b) { return (floats)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE bytes lesser_bytes(bytes a, bytes b) { return (bytes)_mm512_min_epu8((__m512i)a, (__m512i)b); }
INLINE words lesser_words(words a, words b) { return (words)_mm512_min_epu32((__m512i)a, (__m512i)b); }
INLINE doubles lesser_doubles(doubles a, doubles b) { return (doubles)_mm512_min_pd((__m512d)a, (__m512d)b); }
INLINE doubles greater_doubles(doubles a, doubles b) { return (doubles)_mm512_max_pd((__m512d)a, (__m512d)b); }
INLINE pairs lesser_pairs(pairs a, pairs b) { return (pairs)_mm512_min_epu64((__m512i)a, (__m512i)b); }
INLINE float least_lane(floats v) { return _mm512_reduce_min_ps((__m512)v); }
INLINE float greatest_lane(floats v) { return _mm512_reduce_max_ps((__m512)v); }

INLINE int least_byte(bytes v)
{
    __m256i half = _mm256_min_epu8(_mm512_castsi512_si256((__m512i)v), _mm512_extracti64x4_epi64((__m512i)v, 1));
    __m128i few = _mm_min_epu8(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    few = _mm_minpos_epu16(_mm_min_epu8(few, _mm_srli_epi16(few, 8)));
    return _mm_cvtsi128_si32(few) & 0xff;
}

INLINE floats from_bfloat16(const uint16_t *x)
{
    return (floats)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)x)), 16);
}

INLINE floats from_float16(const uint16_t *x)
{
    return (floats)_mm512_cvtph_ps(_mm256_loadu_si256((const void *)x));
}

/* The lower or upper half as doubles. */
INLINE doubles widened(floats v, int upper)
{
    __m256 low = _mm512_castps512_ps256((__m512)v);
    __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd((__m512d)v, 1));
    return (doubles)_mm512_cvtps_pd(upper ? high : low);
}

INLINE pairs product_of_halves(pairs v) { return (pairs)_mm512_mul_epu32((__m512i)v, (__m512i)(v >> 32)); }

/* The exponents of four vectors as bytes, in an order of their own; `exponent_in` first. `to` is aligned. */
#ifdef __AVX512VBMI__
INLINE words exponent_in(words magnitude) { return magnitude; }

INLINE void store_exponents(uint8_t *to, const words *v)
{
    /* Bits 23 to 30 and 55 to 62 of each pair, four times, of which each vector keeps its own two: 4 operations, not 7. */
    const __m512i at = _mm512_set1_epi64(INT64_C(0x3717371737173717));
    __m512i exponents = _mm512_multishift_epi64_epi8(at, (__m512i)v[0]);
    for (int j = 1; j < 4; j++) {
        const __mmask64 own = UINT64_C(0x0303030303030303) << 2 * j;
        exponents = _mm512_mask_multishift_epi64_epi8(exponents, own, at, (__m512i)v[j]);
    }
    _mm512_store_si512(to, exponents);
}

/* Bits 52 to 59 of eight vectors of float64, less 896 modulo 256: see wide.h. */
#define HAS_LOW_EXPONENTS
INLINE void store_low_exponents(uint8_t *to, const longs *v)
{
    const __m512i at = _mm512_set1_epi8(52);
    __m512i exponents = _mm512_multishift_epi64_epi8(at, (__m512i)v[0]);
    for (int j = 1; j < 8; j++) {
        const __mmask64 own = UINT64_C(0x0101010101010101) << j;
        exponents = _mm512_mask_multishift_epi64_epi8(exponents, own, at, (__m512i)v[j]);
    }
    _mm512_store_si512(to, _mm512_xor_si512(exponents, _mm512_set1_epi8((char)0x80)));
}
#else
INLINE words exponent_in(words magnitude) { return magnitude >> 23; }

INLINE void store_exponents(uint8_t *to, const words *v)
{
    __m512i low = _mm512_packus_epi32((__m512i)v[0], (__m512i)v[1]);
    __m512i high = _mm512_packus_epi32((__m512i)v[2], (__m512i)v[3]);
    _mm512_store_si512(to, _mm512_packus_epi16(low, high));
}
#endif

/* Counted in a register of the integer side, which has nothing else to do. */
typedef uint64_t counter;
INLINE uint64_t counted(counter count) { return count; }

INLINE counter count_zero(counter count, words magnitude)
{
    return count + (uint64_t)__builtin_popcount(_mm512_testn_epi32_mask((__m512i)magnitude, (__m512i)magnitude));
}

INLINE ints count_below(ints count, words magnitude, words limit)
{
    __mmask16 low = _mm512_cmplt_epi32_mask((__m512i)magnitude, (__m512i)limit);
    return (ints)_mm512_mask_sub_epi32((__m512i)count, low, (__m512i)count, _mm512_set1_epi32(-1));
}

INLINE uint64_t zero_bytes(const uint8_t *x, int n)
{
    uint64_t count = 0;
    for (int i = 0; i < n; i += 64)
        count += (uint64_t)__builtin_popcountll(_mm512_testn_epi8_mask(_mm512_load_si512(x + i), _mm512_set1_epi8(-1)));
    return count;
}

/* What histogram.h counts with: see there. */
#define HAS_BIT_PLANES 1
typedef __m512i bits;
INLINE bits no_bits(void) { return _mm512_setzero_si512(); }
INLINE bits same_bytes(int value) { return _mm512_set1_epi8((char)value); }
INLINE bits load_bits(const uint8_t *x) { return _mm512_load_si512(x); }
INLINE bits lookup_table(const uint8_t *x) { return _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)x)); }
INLINE bits looked_up(bits table, bits index) { return _mm512_shuffle_epi8(table, index); }
INLINE bits window(bits v, bits low, bits top)
{
    return _mm512_adds_epu8(_mm512_sub_epi8(_mm512_min_epu8(v, top), low), same_bytes(0x70));
}

INLINE bits adder(bits *sum, bits a, bits b)
{
    bits old = *sum;
    *sum = _mm512_ternarylogic_epi64(old, a, b, 0x96); /* odd */
    return _mm512_ternarylogic_epi64(old, a, b, 0xe8); /* majority */
}

INLINE uint64_t ones_at(bits v, int position)
{
    return (uint64_t)__builtin_popcountll(_mm512_test_epi8_mask(v, same_bytes(1 << position)));
}
