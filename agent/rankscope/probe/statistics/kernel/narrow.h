/* float32, bfloat16 and float16: looked at as float32, in blocks of whole runs.
 *
 * A block's sums are of differences from a shift near its mean, in fp32 over 32 terms a lane (64 with AVX2) and in
 * fp64 above that; squares that would leave the range of fp32 are scaled by a power of two. A block in which
 * something is not finite, or out of that range, is looked at again in fp64, element by element masked.
 */

typedef struct { doubles s1, s2, l1; floats least, greatest; counter zero; } Sums;

INLINE float element(const void *x, int64_t i, int kind)
{
    if (kind == FLOAT32) return ((const float *)x)[i];
    const uint16_t half = ((const uint16_t *)x)[i];
    if (kind == BFLOAT16) return float_of((uint32_t)half << 16);
    uint16_t some[LANES] = {half};
    return from_float16(some)[0];
}

INLINE floats load(const void *x, int64_t i, int kind)
{
    if (kind == FLOAT32) return *(const floats *)((const float *)x + i);
    const uint16_t *halves = (const uint16_t *)x + i;
    return kind == BFLOAT16 ? from_bfloat16(halves) : from_float16(halves);
}

/* How a block is looked at: `shift` and `scale` are 0 and 1 where `is_plain`, and zeros are counted on the way where
 * `counts_zeros`. All are constants where this is inlined, but the two numbers. */
typedef struct { int kind, is_plain, counts_zeros; float shift, scale; } Way;

/* The sums and extremes of a block, its exponents and its words' hash. */
INLINE Sums look(const void *x, int64_t from, int n, Way way, uint8_t *exponents, pairs *hash)
{
    const int kind = way.kind, in_run = kind == FLOAT32 ? RUN : 2 * RUN;
    const floats shift = (floats){0} + way.shift * way.scale, scale = (floats){0} + way.scale;
    Sums sums = {.least = (floats){0} + INFINITY, .greatest = (floats){0} - INFINITY};
    for (int run = 0; run < n; run += RUN) {
        floats s1 = {0}, s2 = {0}, l1 = {0};
        pairs h = {0};
        if (run % in_run == 0) *hash *= GOLDEN;
        for (int i = run; i < run + RUN; i += 4 * LANES) {
            words four[4];
            for (int j = 0; j < 4; j++) {
                floats v = load(x, from + i + j * LANES, kind);
                HELD(v);
                words magnitude = (words)v & MAGNITUDE;
                if (way.counts_zeros) sums.zero = count_zero(sums.zero, magnitude);
                floats d = v;
                if (!way.is_plain) d = v * scale - shift;
                s1 += d;
                s2 += d * d;
                l1 += (floats)magnitude;
                sums.least = lesser(v, sums.least);
                sums.greatest = greater(v, sums.greatest);
                four[j] = exponent_in(magnitude);
                if (kind == FLOAT32) h = hashed(h, (words)v, keys + (i - run) + j * LANES);
                else if (j % 2 == 0) {
                    const uint16_t *halves = (const uint16_t *)x + from + i + j * LANES;
                    h = hashed(h, *(const words *)halves, keys + (i % in_run + j * LANES) / 2);
                }
            }
            store_exponents(exponents + i, four);
        }
        *hash += h;
        sums.s1 += widened_sum(s1);
        sums.s2 += widened_sum(s2);
        sums.l1 += widened_sum(l1);
    }
    return sums;
}

/* The same of a block with something that is not ordinary, in fp64, elements that are not finite masked. */
static __attribute__((noinline)) void look_again(Part *a, const void *x, int64_t from, int n, const Kind *k,
                                                 const uint8_t *exponents)
{
    float near = (float)a->mean;
    for (int i = 0; (a->finite == 0 || !isfinite(near)) && i < n; i++) {
        near = element(x, from + i, k->kind);
        if (isfinite(near)) break;
    }
    if (!isfinite(near)) near = 0;
    const ints infinite = (ints){0} + INFINITE, minus_infinite = infinite | INT32_MIN;
    const ints normal = (ints){0} + (int32_t)k->normal, top = (ints){0} + (int32_t)k->top;
    const ints shift = (ints)((floats){0} + near);
    ints nan = {0}, positive = {0}, negative = {0}, zero = {0}, low = {0}, saturated = {0};
    floats least = (floats){0} + INFINITY, greatest = (floats){0} - INFINITY;
    words absmin = (words){0} + UINT32_MAX;
    doubles s1 = {0}, s2 = {0}, l1 = {0};
    for (int i = 0; i < n; i += LANES) {
        ints v = (ints)load(x, from + i, k->kind), magnitude = v & MAGNITUDE, finite = magnitude < infinite;
        nan -= magnitude > infinite;
        positive -= v == infinite;
        negative -= v == minus_infinite;
        zero -= magnitude == 0;
        low -= magnitude < normal;
        saturated -= magnitude == top;
        least = lesser((floats)((v & finite) | ((ints)least & ~finite)), least);
        greatest = greater((floats)((v & finite) | ((ints)greatest & ~finite)), greatest);
        absmin = lesser_words((words)(((magnitude - 1) & finite) | ~finite), absmin);
        floats kept = (floats)((v & finite) | (shift & ~finite)), known = (floats)(magnitude & finite);
        for (int half = 0; half < 2; half++) {
            doubles d = widened(kept, half) - (double)near;
            s1 += d;
            s2 += d * d;
            l1 += widened(known, half);
        }
    }
    uint64_t bad = count_in(nan) + count_in(positive) + count_in(negative), zeros = count_in(zero);
    a->nan += count_in(nan);
    a->posinf += count_in(positive);
    a->neginf += count_in(negative);
    a->zero += zeros;
    a->subnormal += count_in(low) - zeros;
    a->saturated += count_in(saturated);
    count(a->histogram, exponents, n, n - (int64_t)zeros, 0, 255);
    a->histogram[BUCKETS - 1] -= bad; /* their exponent is the greatest */
    note_extremes(a, least_lane(least), greatest_lane(greatest));
    uint32_t smallest = least_word(absmin);
    if (smallest != UINT32_MAX) note_absmin(a, float_of(smallest + 1));
    join_shifted(a, (double)((uint64_t)n - bad), near, sum_of(s1), sum_of(s2), sum_of(l1));
}

/* The least exponent but 0, which zeros and subnormals of float32 have; 256: none. */
static int least_exponent(const uint8_t *exponents, int n, int *has_low)
{
    bytes least = (bytes){0} + 255;
    for (int i = 0; i < n; i += WIDTH) least = lesser_bytes(*(const bytes *)(exponents + i), least);
    int exponent = least_byte(least);
    *has_low = exponent == 0;
    if (!*has_low) return exponent;
    least = (bytes){0} + 255;
    for (int i = 0; i < n; i += WIDTH) least = lesser_bytes(*(const bytes *)(exponents + i) - 1, least);
    return least_byte(least) + 1;
}

/* Counts zeros and subnormals of a block that has some, whose least exponent but 0 is `least`; returns the zeros. */
INLINE uint64_t note_low(Part *a, const void *x, int64_t from, int n, const Kind *k, const uint8_t *exponents, Sums sums,
                         Way way, int least)
{
    const words normal = (words){0} + k->normal;
    const int by_exponent = k->normal == 0x00800000u; /* then what is below normal has exponent 0 */
    const int looks = !by_exponent && least < (int)(k->normal >> 23);
    ints low = {0};
    if (!way.counts_zeros || looks)
        for (int i = 0; i < n; i += LANES) {
            words magnitude = (words)load(x, from + i, way.kind) & MAGNITUDE;
            if (!way.counts_zeros) sums.zero = count_zero(sums.zero, magnitude);
            if (looks) low = count_below(low, magnitude, normal);
        }
    uint64_t zeros = counted(sums.zero);
    a->zero += zeros;
    if (by_exponent) a->subnormal += zero_bytes(exponents, n) - zeros;
    else if (looks) a->subnormal += count_in(low) - zeros;
    return zeros;
}

INLINE void note_least(Part *a, const void *x, int64_t from, int n, int kind)
{
    words least = (words){0} + UINT32_MAX;
    for (int i = 0; i < n; i += LANES)
        least = lesser_words(((words)load(x, from + i, kind) & MAGNITUDE) - 1, least);
    uint32_t smallest = least_word(least);
    if (smallest != UINT32_MAX) note_absmin(a, float_of(smallest + 1));
}

/* One block of whole runs. What only some blocks need is read again only where exponents say so. */
INLINE void block(Part *a, const void *x, int64_t from, int n, const Kind *k, Way way, pairs *hash)
{
    uint8_t exponents[BLOCK] __attribute__((aligned(64)));
    const Sums sums = look(x, from, n, way, exponents, hash);
    const double scale = way.scale; /* a power of two */
    const double s1 = sum_of(sums.s1) / scale, s2 = sum_of(sums.s2) / scale / scale, l1 = sum_of(sums.l1);
    const float least = least_lane(sums.least), greatest = greatest_lane(sums.greatest);
    const float top = fmaxf(-least, greatest);
    if (!isfinite(l1) || !isfinite(s2) || top * way.scale > 0x1p60f || (top * way.scale < 0x1p-40f && top > 0)) {
        look_again(a, x, from, n, k, exponents);
        return;
    }
    int has_low, low = least_exponent(exponents, n, &has_low);
    uint64_t zeros = 0, subnormals = a->subnormal;
    if (has_low || low < (int)(k->normal >> 23)) zeros = note_low(a, x, from, n, k, exponents, sums, way, low);
    const int has_subnormals = a->subnormal > subnormals;
    if (has_subnormals || low <= (int)(bits_of((float)a->absmin) >> 23)) note_least(a, x, from, n, way.kind);
    if (bits_of(top) == k->top)
        for (int i = 0; i < n; i++) a->saturated += bits_of(fabsf(element(x, from + i, way.kind))) == k->top;
    if (low < 256 || has_subnormals)
        count(a->histogram, exponents, n, n - (int64_t)zeros, has_subnormals ? 0 : low, (int)(bits_of(top) >> 23));
    note_extremes(a, least, greatest);
    join_shifted(a, n, way.shift, s1, s2, l1);
}

/* Less than a run at the end of a tensor: one element after the other, in fp64. */
static void last_elements(Part *a, const void *x, int64_t from, int64_t to, const Kind *k)
{
    double s1 = 0, s2 = 0, l1 = 0, shift = 0, finite = 0;
    for (int64_t i = from; i < to; i++) {
        const float v = element(x, i, k->kind);
        const uint32_t magnitude = bits_of(v) & MAGNITUDE;
        if (magnitude >= INFINITE) {
            if (magnitude > INFINITE) a->nan++;
            else if (v < 0) a->neginf++;
            else a->posinf++;
            continue;
        }
        if (finite == 0) shift = v;
        const double d = (double)v - shift;
        s1 += d;
        s2 += d * d;
        l1 += fabs((double)v);
        finite++;
        note_extremes(a, v, v);
        if (magnitude == 0) {
            a->zero++;
            continue;
        }
        note_absmin(a, fabsf(v));
        a->subnormal += magnitude < k->normal;
        a->saturated += magnitude == k->top;
        a->histogram[clamped((int)(magnitude >> 23)) - LOWEST]++;
    }
    join_shifted(a, finite, shift, s1, s2, l1);
}

/* Sixteen elements of a block of whole runs, before anything is known of the tensor. */
typedef struct { double mean, square, top; } Glance;

INLINE Glance glance(const void *x, int64_t from, int kind)
{
    Glance seen = {0, 0, 0};
    for (int i = 0; i < 16; i++) {
        const double v = element(x, from + i * 31, kind);
        seen.mean += v / 16;
        seen.square += v * v / 16;
        seen.top = fmax(seen.top, fabs(v));
    }
    return seen;
}

/* A power of two that brings squares into the range of fp32; 1 where they are in it. */
INLINE float scale_for(const Part *a, const Glance *seen)
{
    const float top = a->finite < 1 ? (float)seen->top : (float)fmax(-a->min, a->max);
    if (!(top > 0) || !isfinite(top) || (top > 0x1p-30f && top < 0x1p30f)) return 1;
    int exponent;
    frexpf(top, &exponent);
    return ldexpf(1, exponent < -120 ? 120 : exponent > 120 ? -120 : -exponent);
}

/* Near the mean, or 0 where that costs at most a bit: where the mean is within a deviation of 0 (8 % of a table). */
INLINE float shift_for(const Part *a, const Glance *seen)
{
    const double mean = a->finite < 1 ? seen->mean : a->mean;
    const double deviation = a->finite < 1 ? seen->square - mean * mean : a->m2 / a->finite;
    return !isfinite(mean) || mean * mean <= deviation ? 0 : (float)mean;
}

INLINE void narrow(Part *a, const void *x, int64_t from, int64_t to, const Kind *k, int kind)
{
    const int in_run = kind == FLOAT32 ? RUN : 2 * RUN, width = kind == FLOAT32 ? 4 : 2;
    const int64_t whole = from + (to - from) / in_run * in_run;
    pairs hash = {0};
    int has_zeros = 0; /* counted on the way where the block before had some: half of a ReLU's output is zero */
    for (int64_t i = from; i < whole; i += BLOCK) {
        const int n = whole - i < BLOCK ? (int)(whole - i) : BLOCK;
        const uint64_t zeros = a->zero;
        Glance seen = {0, 0, 0};
        if (a->finite < 1) seen = glance(x, i, kind);
        const float scale = scale_for(a, &seen), shift = shift_for(a, &seen);
        if (shift != 0 || scale != 1) block(a, x, i, n, k, (Way){kind, 0, 0, shift, scale}, &hash);
        else if (has_zeros) block(a, x, i, n, k, (Way){kind, 1, 1, 0, 1}, &hash);
        else block(a, x, i, n, k, (Way){kind, 1, 0, 0, 1}, &hash);
        has_zeros = a->zero > zeros;
    }
    a->hash = pair_sum(hash);
    a->runs = (uint64_t)((whole - from) / in_run);
    if (whole == to) return;
    last_elements(a, x, whole, to, k);
    hash_runs(a, (const uint8_t *)x + whole * width, (to - whole) * width);
}

static __attribute__((noinline)) void narrow_float32(Part *a, const void *x, int64_t from, int64_t to, const Kind *k)
{
    narrow(a, x, from, to, k, FLOAT32);
}

static __attribute__((noinline)) void narrow_bfloat16(Part *a, const void *x, int64_t from, int64_t to, const Kind *k)
{
    narrow(a, x, from, to, k, BFLOAT16);
}

static __attribute__((noinline)) void narrow_float16(Part *a, const void *x, int64_t from, int64_t to, const Kind *k)
{
    narrow(a, x, from, to, k, FLOAT16);
}
