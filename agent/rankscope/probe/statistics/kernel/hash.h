/* The fingerprint: a position-sensitive 64-bit hash of a tensor's bytes, the same on every machine and path.
 *
 * Its definition is in fingerprint.py, which computes it in torch's operations. Here the words of a run are hashed
 * while they are looked at: 0.026 ns an element.
 */

#define GOLDEN UINT64_C(0x9E3779B97F4A7C15)

static uint32_t keys[RUN] __attribute__((aligned(64)));

static uint64_t mixed(uint64_t z) /* the finish of splitmix64 */
{
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

__attribute__((constructor)) static void make_keys(void)
{
    for (int i = 0; i < RUN; i++) keys[i] = (uint32_t)(mixed((uint64_t)(i + 1) * GOLDEN) >> 32);
}

INLINE pairs hashed(pairs sum, words v, const uint32_t *key)
{
    return sum + product_of_halves((pairs)(v ^ *(const words *)key)) + (pairs)v;
}

INLINE uint64_t pair_sum(pairs v)
{
    uint64_t sum = 0;
    for (int i = 0; i < DOUBLES; i++) sum += v[i];
    return sum;
}

INLINE uint64_t whole_run(const uint8_t *x)
{
    pairs sum = {0};
    for (int i = 0; i < RUN; i += LANES) sum = hashed(sum, *(const words *)(x + 4 * i), keys + i);
    return pair_sum(sum);
}

/* Less than a run; zero-padded to whole pairs. */
static uint64_t last_run(const uint8_t *x, int64_t size)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < size; i += 8) {
        uint32_t word[2] = {0, 0};
        memcpy(word, x + i, size - i < 8 ? (size_t)(size - i) : 8);
        sum += (uint64_t)(word[0] ^ keys[i / 4]) * (word[1] ^ keys[i / 4 + 1]);
        sum += (uint64_t)word[1] << 32 | word[0];
    }
    return sum;
}

static void hash_runs(Part *a, const uint8_t *x, int64_t size)
{
    for (int64_t i = 0; i < size; i += 4 * RUN) {
        a->hash = a->hash * GOLDEN + (size - i < 4 * RUN ? last_run(x + i, size - i) : whole_run(x + i));
        a->runs++;
    }
}

static uint64_t power_of_golden(uint64_t exponent)
{
    uint64_t result = 1, factor = GOLDEN;
    for (; exponent; exponent >>= 1, factor *= factor)
        if (exponent & 1) result *= factor;
    return result;
}
