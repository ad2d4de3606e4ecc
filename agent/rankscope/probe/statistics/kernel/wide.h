/* float64, whole numbers and types of one byte: looked at as fp64; every element masked where not all are ordinary.
 *
 * What is a byte is looked up in a table of its 256 values, which whoever calls hands over: 8-bit floats, int8, uint8
 * and bool. Whole numbers beyond 2^53 are rounded. Squares of float64 may leave the range of fp64: whoever calls looks
 * at such a tensor again, scaled.
 */

enum {
    WIDE = 4096,           /* elements looked at together */
    WIDE_RUN = 2048,       /* a multiple of which all but the last have: whole runs of the fingerprint, of every type */
    WIDE_STEP = 8 * WIDTH  /* a multiple that they are padded to */
};

static void fill(double *to, const void *x, int64_t from, int n, const Kind *k)
{
    switch (k->kind) {
    case FLOAT64:
        memcpy(to, (const double *)x + from, 8 * (size_t)n);
        break;
    case INT64:
        for (int i = 0; i < n; i++) to[i] = (double)((const int64_t *)x)[from + i];
        break;
    case INT32:
        for (int i = 0; i < n; i++) to[i] = (double)((const int32_t *)x)[from + i];
        break;
    case INT16:
        for (int i = 0; i < n; i++) to[i] = (double)((const int16_t *)x)[from + i];
        break;
    default:
        for (int i = 0; i < n; i++) to[i] = k->values[((const uint8_t *)x)[from + i]];
    }
    for (int i = n; i % WIDE_STEP; i++) to[i] = NAN;
}

typedef uint8_t lane_bytes __attribute__((vector_size(WIDTH / 8), aligned(1), may_alias));

INLINE longs chosen(longs mask, longs yes, longs no) { return (yes & mask) | (no & ~mask); }

INLINE void store_wide_exponents(uint8_t *to, longs magnitude, longs counted)
{
    longs exponent = (magnitude >> 52) - (1023 - 127); /* as of float32, its ends open */
    exponent = chosen(exponent < 1, (longs){0} + 1, exponent);
    exponent = chosen(exponent > 254, (longs){0} + 254, exponent) & counted;
    *(lane_bytes *)to = __builtin_convertvector(exponent, lane_bytes);
}

typedef struct {
    longs nan, positive, negative, zero, low, saturated;
    doubles least, greatest, absmin, s1, s2, l1;
} WideSums;

INLINE WideSums look_wide(const double *x, int n, const Kind *k, double near, uint8_t *exponents)
{
    const longs infinite = (longs){0} + INT64_C(0x7ff0000000000000);
    const doubles shift = (doubles){0} + near, most = (doubles){0} + INFINITY;
    longs nan = {0}, positive = {0}, negative = {0}, zeros = {0}, lows = {0}, saturated = {0};
    doubles least = most, greatest = -most, absmin = most, s1 = {0}, s2 = {0}, l1 = {0};
    const doubles normal = (doubles){0} + k->least_normal, top = (doubles){0} + k->greatest;
    for (int i = 0; i < n; i += DOUBLES) {
        const doubles v = *(const doubles *)(x + i);
        const longs magnitude = (longs)v & INT64_MAX, finite = magnitude < infinite, zero = magnitude == 0;
        nan -= magnitude > infinite;
        positive -= v == most;
        negative -= v == -most;
        zeros -= zero;
        lows -= (doubles)magnitude < normal;
        saturated -= ((doubles)magnitude == top) & finite;
        const doubles low = (doubles)chosen(finite, (longs)v, (longs)most);
        const doubles high = (doubles)chosen(finite, (longs)v, (longs)-most);
        const doubles counted = (doubles)chosen(finite & ~zero, magnitude, (longs)most);
        least = (doubles)chosen(low < least, (longs)low, (longs)least);
        greatest = (doubles)chosen(high > greatest, (longs)high, (longs)greatest);
        absmin = (doubles)chosen(counted < absmin, (longs)counted, (longs)absmin);
        const doubles d = (doubles)chosen(finite, (longs)v, (longs)shift) - shift;
        s1 += d;
        s2 += d * d;
        l1 += (doubles)(magnitude & finite);
        store_wide_exponents(exponents + i, magnitude, finite & ~zero);
    }
    return (WideSums){nan, positive, negative, zeros, lows, saturated, least, greatest, absmin, s1, s2, l1};
}

static void wide_block(Part *a, const double *x, int n, const Kind *k)
{
    uint8_t exponents[WIDE] __attribute__((aligned(64)));
    const int padded = (n + WIDE_STEP - 1) / WIDE_STEP * WIDE_STEP;
    const double first = a->finite > 0 ? a->mean : x[0], near = isfinite(first) ? first : 0;
    const WideSums s = look_wide(x, padded, k, near, exponents);
    const int64_t nan = long_sum(s.nan), infinite = long_sum(s.positive) + long_sum(s.negative);
    const int64_t zeros = long_sum(s.zero), low = long_sum(s.low), finite = padded - nan - infinite;
    a->nan += (uint64_t)(nan - (padded - n));
    a->posinf += (uint64_t)long_sum(s.positive);
    a->neginf += (uint64_t)long_sum(s.negative);
    a->zero += (uint64_t)zeros;
    a->subnormal += (uint64_t)(low > zeros ? low - zeros : 0);
    a->saturated += (uint64_t)long_sum(s.saturated);
    if (finite > zeros) count(a->histogram, exponents, padded, finite - zeros, 0, 255);
    for (int i = 0; i < DOUBLES; i++) {
        note_extremes(a, s.least[i], s.greatest[i]);
        note_absmin(a, s.absmin[i]);
    }
    join_shifted(a, (double)finite, near, sum_of(s.s1), sum_of(s.s2), sum_of(s.l1));
}

enum { ZEROS = 0x80 }; /* what a zero's exponent, less 896, is as a byte */

/* Eight vectors of magnitudes: their exponents as those of float32, a byte each, of zeros `ZEROS`. */
#ifndef HAS_LOW_EXPONENTS
INLINE void store_low_exponents(uint8_t *to, const longs *v)
{
    for (int j = 0; j < 8; j++)
        *(lane_bytes *)(to + j * DOUBLES) = __builtin_convertvector((v[j] >> 52) - (1023 - 127), lane_bytes);
}
#endif

INLINE uint64_t bits_of_double(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, 8);
    return bits;
}

INLINE double double_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

/* A block of which nothing has to be masked: everything finite, and 0 or of a magnitude that is normal in float32, so
 * that nothing is subnormal or saturated and exponents need no limits. Returns 0, and has noted nothing, if it is not
 * so: 0.41 ns an element where masking everything takes 1.47. */
static int ordinary_block(Part *a, const double *x, int n)
{
    uint8_t exponents[WIDE] __attribute__((aligned(64)));
    const double first = a->finite > 0 ? a->mean : x[0], most = 0x1p127, normal = 0x1p-126;
    if (!(fabs(first) < most)) return 0;
    const doubles near = (doubles){0} + first;
    doubles least = (doubles){0} + INFINITY, greatest = -least, s1 = {0}, s2 = {0}, l1 = {0};
    pairs smallest = (pairs){0} + UINT64_MAX;
    longs zeros = {0};
    for (int i = 0; i < n; i += 8 * DOUBLES) {
        longs eight[8];
        for (int j = 0; j < 8; j++) {
            const doubles v = *(const doubles *)(x + i + j * DOUBLES), d = v - near;
            const longs magnitude = (longs)v & INT64_MAX;
            s1 += d;
            s2 += d * d;
            l1 += (doubles)magnitude;
            least = lesser_doubles(v, least);
            greatest = greater_doubles(v, greatest);
            smallest = lesser_pairs((pairs)magnitude - 1, smallest); /* but 0 */
            zeros -= magnitude == 0;
            eight[j] = magnitude;
        }
        store_low_exponents(exponents + i, eight);
    }
    double low = INFINITY, high = -INFINITY;
    uint64_t nearest = UINT64_MAX;
    for (int i = 0; i < DOUBLES; i++) {
        low = fmin(low, least[i]);
        high = fmax(high, greatest[i]);
        nearest = smallest[i] < nearest ? smallest[i] : nearest;
    }
    const double magnitudes = sum_of(l1), top = fmax(-low, high);
    const double absmin = nearest == UINT64_MAX ? INFINITY : double_of(nearest + 1);
    if (!isfinite(magnitudes) || top >= most || absmin < normal) return 0;
    const int64_t none = long_sum(zeros);
    a->zero += (uint64_t)none;
    if (none < n) {
        int from = (int)(bits_of_double(absmin) >> 52) - 896, to = (int)(bits_of_double(top) >> 52) - 896;
        if (none) from = from < ZEROS ? from : ZEROS, to = to > ZEROS ? to : ZEROS;
        count(a->histogram, exponents, n, n, from, to);
        a->histogram[ZEROS - LOWEST] -= (uint64_t)none;
    }
    note_extremes(a, low, high);
    note_absmin(a, absmin);
    join_shifted(a, n, first, sum_of(s1), sum_of(s2), magnitudes);
    return 1;
}

static __attribute__((noinline)) void wide(Part *a, const void *x, int64_t from, int64_t to, const Kind *k)
{
    double buffer[WIDE] __attribute__((aligned(64)));
    for (int64_t i = from; i < to;) {
        const int rest = to - i < WIDE ? (int)(to - i) : WIDE, n = rest < WIDE_RUN ? rest : rest / WIDE_RUN * WIDE_RUN;
        const int is_direct = k->kind == FLOAT64 && n % WIDE_STEP == 0;
        const double *values = is_direct ? (const double *)x + i : buffer;
        if (!is_direct) fill(buffer, x, i, n, k);
        if (k->kind == BYTE || n % WIDE_STEP || !ordinary_block(a, values, n)) {
            if (is_direct) fill(buffer, x, i, n, k);
            wide_block(a, buffer, n, k);
        }
        hash_runs(a, (const uint8_t *)x + i * k->width, (int64_t)n * k->width);
        i += n;
    }
}
