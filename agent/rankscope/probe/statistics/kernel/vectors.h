/* Vectors as wide as the machine has them, and the few operations on them that C does not spell.
 *
 * Arithmetic, comparisons and shifts are the compiler's own vector extensions; what those turn into slow code is
 * written per width: avx512.h, avx2.h, and plain.h for every other machine. Measured on fp32, 1 MiB, one thread, in
 * passes over memory: AVX-512 3.5, AVX2 4.4, plain on x86 without flags 23.
 */
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the fingerprint is defined over little-endian words"
#endif

#define INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__) && defined(__AVX512BW__)
#define WIDTH 64
#elif defined(__AVX2__) && defined(__F16C__)
#define WIDTH 32
#else
#define WIDTH 16
#endif
#define LANES (WIDTH / 4)   /* of 32 bits */
#define DOUBLES (WIDTH / 8)

typedef float floats __attribute__((vector_size(WIDTH), aligned(4), may_alias));
typedef int32_t ints __attribute__((vector_size(WIDTH), aligned(4), may_alias));
typedef uint32_t words __attribute__((vector_size(WIDTH), aligned(1), may_alias)); /* of halves and bytes, too */
typedef uint64_t pairs __attribute__((vector_size(WIDTH), aligned(4), may_alias));
typedef double doubles __attribute__((vector_size(WIDTH), aligned(8), may_alias));
typedef int64_t longs __attribute__((vector_size(WIDTH), aligned(8), may_alias));
typedef uint8_t bytes __attribute__((vector_size(WIDTH), aligned(1), may_alias));

#if WIDTH == 64
#include "avx512.h"
#elif WIDTH == 32
#include "avx2.h"
#else
#include "plain.h"
#endif

#define MAGNITUDE 0x7fffffff
#define INFINITE 0x7f800000

INLINE doubles widened_sum(floats v) { return widened(v, 0) + widened(v, 1); }

INLINE double sum_of(doubles v)
{
    double sum = 0;
    for (int i = 0; i < DOUBLES; i++) sum += v[i];
    return sum;
}

INLINE uint64_t count_in(ints v)
{
    uint64_t sum = 0;
    for (int i = 0; i < LANES; i++) sum += (uint32_t)v[i];
    return sum;
}

INLINE int64_t long_sum(longs v)
{
    int64_t sum = 0;
    for (int i = 0; i < DOUBLES; i++) sum += v[i];
    return sum;
}

INLINE uint32_t least_word(words v)
{
    uint32_t least = UINT32_MAX;
    for (int i = 0; i < LANES; i++) least = v[i] < least ? v[i] : least;
    return least;
}

INLINE uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

INLINE float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
