/* What is known of a stretch of a tensor, how two such are joined, and the element types.
 *
 * Means and squared deviations are joined by Chan's rule, never as E[x^2] - E[x]^2, which cancels: std of a tensor
 * with mean 1e6 and deviation 1 is right to 1e-7 (tests hold it to that).
 */

enum {
    BLOCK = 8192,   /* elements looked at together; they and their exponents stay in the first-level cache */
    RUN = 512,      /* words a run of the fingerprint has, and elements whose sums are fp32 (32 terms a lane) */
    BUCKETS = 40,   /* of log2_hist */
    LOWEST = 127 - 30, /* biased exponent of float32 of the first bucket */
    HIGHEST = LOWEST + BUCKETS - 1
};

enum { FLOAT32, BFLOAT16, FLOAT16, FLOAT64, INT64, INT32, INT16, BYTE };

typedef struct {
    int kind, width;       /* width: bytes of an element */
    uint32_t normal, top;  /* the least normal and the greatest magnitude, as bits of float32 */
    double least_normal, greatest;  /* the same, of what is looked at as fp64; whole numbers: 0, infinite */
    const double *values;  /* what each byte stands for */
} Kind;

typedef struct {
    double finite, mean, m2, l1;    /* of the finite elements; m2: sum of squared deviations from the mean */
    double min, max, absmin;
    uint64_t nan, posinf, neginf, zero, subnormal, saturated;
    uint64_t histogram[BUCKETS];
    uint64_t hash, runs;            /* of the runs taken so far */
    uint64_t size;                  /* bytes taken so far */
} Part;

static void begin(Part *a)
{
    memset(a, 0, sizeof *a);
    a->min = a->absmin = INFINITY;
    a->max = -INFINITY;
}

INLINE void join(Part *a, double finite, double mean, double m2, double l1)
{
    if (finite <= 0) return;
    double total = a->finite + finite, apart = mean - a->mean;
    a->m2 += m2 + apart * apart * (a->finite * finite / total);
    a->mean += apart * (finite / total);
    a->finite = total;
    a->l1 += l1;
}

/* Sums of differences from a shift, as a mean and squared deviations. */
INLINE void join_shifted(Part *a, double finite, double shift, double s1, double s2, double l1)
{
    if (finite > 0) join(a, finite, shift + s1 / finite, fmax(0, s2 - s1 * (s1 / finite)), l1);
}

INLINE void note_extremes(Part *a, double least, double greatest)
{
    if (least < a->min) a->min = least;
    if (greatest > a->max) a->max = greatest;
}

INLINE void note_absmin(Part *a, double least)
{
    if (least < a->absmin) a->absmin = least;
}
