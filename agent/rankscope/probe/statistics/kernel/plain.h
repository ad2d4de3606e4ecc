/* The operations of vectors.h in the compiler's own vector extensions, for machines without AVX2. */
#define HELD(v) (void)(v)
#define HAS_BIT_PLANES 0

typedef float half_floats __attribute__((vector_size(WIDTH / 2), aligned(4), may_alias));
typedef uint8_t few_bytes __attribute__((vector_size(WIDTH / 4), aligned(1), may_alias));

/* C has no `?:` on vectors. */
#define CHOOSING(type, name, op)                                                                                        \
    INLINE type name(type a, type b)                                                                                    \
    {                                                                                                                   \
        words first = (words)(a op b);                                                                                  \
        return (type)(((words)a & first) | ((words)b & ~first));                                                        \
    }
CHOOSING(floats, lesser, <)
CHOOSING(floats, greater, >)
CHOOSING(bytes, lesser_bytes, <)
CHOOSING(words, lesser_words, <)
CHOOSING(doubles, lesser_doubles, <)
CHOOSING(doubles, greater_doubles, >)
CHOOSING(pairs, lesser_pairs, <)

INLINE float least_lane(floats v)
{
    float least = v[0];
    for (int i = 1; i < LANES; i++) least = v[i] < least ? v[i] : least;
    return least;
}

INLINE float greatest_lane(floats v) { return -least_lane(-v); }

INLINE int least_byte(bytes v)
{
    int least = 255;
    for (int i = 0; i < WIDTH; i++) least = v[i] < least ? v[i] : least;
    return least;
}

INLINE float one_float16(uint16_t half)
{
    uint32_t magnitude = half & 0x7fffu, sign = (uint32_t)(half & 0x8000u) << 16, made;
    float small = (float)magnitude * 0x1p-24f;
    if (magnitude >= 0x7c00u) made = 0x7f800000u | ((magnitude & 0x3ffu) << 13);
    else if (magnitude >= 0x0400u) made = (magnitude << 13) + (112u << 23);
    else memcpy(&made, &small, 4);
    made |= sign;
    memcpy(&small, &made, 4);
    return small;
}

INLINE floats from_float16(const uint16_t *x)
{
    floats made;
    for (int i = 0; i < LANES; i++) made[i] = one_float16(x[i]);
    return made;
}

INLINE floats from_bfloat16(const uint16_t *x)
{
    words made;
    for (int i = 0; i < LANES; i++) made[i] = (uint32_t)x[i] << 16;
    return (floats)made;
}

/* The lower or upper half as doubles. */
INLINE doubles widened(floats v, int upper)
{
    half_floats half;
    memcpy(&half, (const char *)&v + upper * (WIDTH / 2), WIDTH / 2);
    return __builtin_convertvector(half, doubles);
}

INLINE pairs product_of_halves(pairs v) { return (v & UINT64_C(0xffffffff)) * (v >> 32); }

/* The exponents of four vectors as bytes; `exponent_in` first. */
INLINE words exponent_in(words magnitude) { return magnitude >> 23; }

INLINE void store_exponents(uint8_t *to, const words *v)
{
    for (int i = 0; i < 4; i++) *(few_bytes *)(to + i * LANES) = __builtin_convertvector(v[i], few_bytes);
}

typedef ints counter;
#define counted count_in
INLINE counter count_zero(counter count, words magnitude) { return count - (ints)(magnitude == 0); }
INLINE ints count_below(ints count, words magnitude, words limit) { return count - ((ints)magnitude < (ints)limit); }

INLINE uint64_t zero_bytes(const uint8_t *x, int n)
{
    uint64_t count = 0;
    for (int i = 0; i < n; i++) count += x[i] == 0;
    return count;
}
