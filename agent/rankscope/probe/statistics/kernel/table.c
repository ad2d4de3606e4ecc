/* All statistics of dense tensors, each read once: what Python calls.
 *
 * Compiled on the machine that it runs on, by build.py; native.py calls it. The same numbers come from blocked.py,
 * which is what tests hold it to. Never compile it with -ffast-math: the library would then set flush-to-zero in the
 * training process when it is loaded.
 */
#include "vectors.h"
#include "part.h"
#include "hash.h"
#include "histogram.h"
#include "narrow.h"
#include "wide.h"

#include <stdlib.h>

#ifdef _OPENMP
#include <omp.h>
#endif

enum { KINDS = 32, PIECE = 1 << 16, MOST_THREADS = 64 }; /* PIECE: fewest elements for a thread */

static Kind kinds[KINDS] = {
    {FLOAT32, 4, 0x00800000u, 0x7f7fffffu, 0, 0, 0},
    {BFLOAT16, 2, 0x00800000u, 0x7f7f0000u, 0, 0, 0},
    {FLOAT16, 2, 0x38800000u, 0x477fe000u, 0, 0, 0},
    {FLOAT64, 8, 0, 0, DBL_MIN, DBL_MAX, 0},
    {INT64, 8, 0, 0, 0, INFINITY, 0},
    {INT32, 4, 0, 0, 0, INFINITY, 0},
    {INT16, 2, 0, 0, 0, INFINITY, 0},
};

/* The numbers of one tensor, in the order in which native.py reads them: that of a row. */
typedef struct {
    uint64_t nonfinite, nan, infinite;
    double absmax, l2;
    uint64_t posinf, neginf, zero;
    double zero_share, min, max, absmin, mean, std, l1, rms;
    uint64_t subnormal, saturated, fingerprint;
    uint64_t histogram[BUCKETS];
    double finite;
} Numbers;

/* A type of one byte: `values` lists what its 256 bytes stand for. They are copied: a process has the library once,
 * however many load it, and whoever hands them over may be gone before the others. */
void rankscope_define(int kind, const double *values, double least_normal, double greatest)
{
    static double kept[KINDS][256];
    memcpy(kept[kind], values, sizeof kept[kind]);
    kinds[kind] = (Kind){BYTE, 1, 0, 0, least_normal, greatest, kept[kind]};
}

static void measure(Part *a, const void *x, int64_t from, int64_t to, const Kind *k)
{
    begin(a);
    if (k->kind == FLOAT32) narrow_float32(a, x, from, to, k);
    else if (k->kind == BFLOAT16) narrow_bfloat16(a, x, from, to, k);
    else if (k->kind == FLOAT16) narrow_float16(a, x, from, to, k);
    else wide(a, x, from, to, k);
    a->size = (uint64_t)((to - from) * k->width);
}

/* What follows `a` in memory order; `a` is of whole runs. */
static void follow(Part *a, const Part *b)
{
    join(a, b->finite, b->mean, b->m2, b->l1);
    note_extremes(a, b->min, b->max);
    note_absmin(a, b->absmin);
    a->nan += b->nan;
    a->posinf += b->posinf;
    a->neginf += b->neginf;
    a->zero += b->zero;
    a->subnormal += b->subnormal;
    a->saturated += b->saturated;
    for (int i = 0; i < BUCKETS; i++) a->histogram[i] += b->histogram[i];
    a->hash = a->hash * power_of_golden(b->runs) + b->hash;
    a->runs += b->runs;
    a->size += b->size;
}

static void measure_all(Part *total, const void *x, int64_t n, const Kind *k, int threads)
{
#ifdef _OPENMP
    Part parts[MOST_THREADS];
    const int64_t room = n / PIECE;
    int many = room < threads ? (int)room : threads;
    if (many > MOST_THREADS) many = MOST_THREADS;
    if (many > 1) {
        const int64_t each = (n / many + BLOCK - 1) / BLOCK * BLOCK;
#pragma omp parallel for num_threads(many) schedule(static, 1)
        for (int i = 0; i < many; i++) {
            const int64_t from = i * each < n ? i * each : n, to = i == many - 1 || from + each > n ? n : from + each;
            measure(&parts[i], x, from, to, k);
        }
        for (int i = 0; i < many; i++) follow(total, &parts[i]);
        return;
    }
#endif
    Part only;
    (void)threads;
    measure(&only, x, 0, n, k);
    follow(total, &only);
}

static void finish(const Part *a, Numbers *to)
{
    const double square = a->finite > 0 ? a->m2 / a->finite + a->mean * a->mean : 0;
    const uint64_t infinite = a->posinf + a->neginf, nonfinite = a->nan + infinite;
    *to = (Numbers){
        .nonfinite = nonfinite, .nan = a->nan, .infinite = infinite, .posinf = a->posinf, .neginf = a->neginf,
        .absmax = fmax(-a->min, a->max) + 0.0, .min = a->min, .max = a->max, .absmin = a->absmin,
        .zero = a->zero, .zero_share = a->finite > 0 ? (double)a->zero / (a->finite + (double)nonfinite) : 0,
        .mean = a->mean, .std = a->finite > 0 ? sqrt(a->m2 / a->finite) : 0, .l1 = a->l1,
        .l2 = sqrt(a->m2 + a->finite * a->mean * a->mean), .rms = sqrt(square),
        .subnormal = a->subnormal, .saturated = a->saturated,
        .fingerprint = mixed(a->hash ^ mixed(a->size + 1)), .finite = a->finite,
    };
    memcpy(to->histogram, a->histogram, sizeof a->histogram);
}

/* A tensor that is handed over in stretches: `a` is rankscope_size() bytes. All but the last are of whole runs. */
uint64_t rankscope_size(void) { return sizeof(Part); }
void rankscope_begin(Part *a) { begin(a); }

void rankscope_add(Part *a, const void *x, int64_t n, int kind, int threads)
{
    measure_all(a, x, n, &kinds[kind], threads);
}

/* Zeros that are not in memory, of a sparse tensor: they have no bytes. */
void rankscope_add_zeros(Part *a, int64_t n)
{
    if (n <= 0) return;
    join(a, (double)n, 0, 0, 0);
    note_extremes(a, 0, 0);
    a->zero += (uint64_t)n;
}

void rankscope_finish(const Part *a, Numbers *to) { finish(a, to); }

/* A tensor that lies in memory as it is. */
void rankscope_table(const void *x, int64_t n, int kind, int threads, Numbers *to)
{
    Part a;
    begin(&a);
    measure_all(&a, x, n, &kinds[kind], threads);
    finish(&a, to);
}

/* A tensor of a list, as native.py lists them, and a piece of one. */
typedef struct { const void *x; int64_t n, kind; } Asked;
typedef struct { const Asked *of; int64_t from, to; Part part; } Piece;

static int64_t pieces_of(const Asked *a) { return a->n < 2 * PIECE ? 1 : a->n / PIECE; }

static void list_pieces(Piece *to, const Asked *asked, int many)
{
    for (int i = 0; i < many; i++) {
        const int64_t pieces = pieces_of(&asked[i]);
        for (int64_t j = 0; j < pieces; j++)
            *to++ = (Piece){.of = &asked[i], .from = j * PIECE, .to = j == pieces - 1 ? asked[i].n : (j + 1) * PIECE};
    }
}

/* A list of tensors. Their pieces are handed out as threads come free, in one parallel region: with one for each tensor,
 * all wait 99 times a step for the thread that a loaded machine has put aside. */
void rankscope_tables(int many, const Asked *asked, int threads, Numbers *to)
{
    int64_t pieces = 0, elements = 0;
    for (int i = 0; i < many; i++) {
        pieces += pieces_of(&asked[i]);
        elements += asked[i].n;
    }
    Piece *all = threads > 1 && elements >= 2 * PIECE ? malloc((size_t)pieces * sizeof *all) : 0;
    if (!all) {
        for (int i = 0; i < many; i++) rankscope_table(asked[i].x, asked[i].n, (int)asked[i].kind, 1, &to[i]);
        return;
    }
    list_pieces(all, asked, many);
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
#endif
    for (int64_t i = 0; i < pieces; i++)
        measure(&all[i].part, all[i].of->x, all[i].from, all[i].to, &kinds[all[i].of->kind]);
    const Piece *next = all;
    for (int i = 0; i < many; i++) {
        Part a;
        begin(&a);
        for (int64_t j = pieces_of(&asked[i]); j > 0; j--) follow(&a, &next++->part);
        finish(&a, &to[i]);
    }
    free(all);
}
