/* Random numbers, bf16 and hashes for the tests of whole kernels: the same on every machine, so that the simulator and
 * a GPU can be given the same data. */
#ifndef KN_TESTS_SIM_NUMBERS_H
#define KN_TESTS_SIM_NUMBERS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t run_random(uint64_t *state) {
    *state += 0x9e3779b97f4a7c15ull;
    uint64_t z = *state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

/** Near-normal random value (sum of twelve uniforms). */
static inline float run_normal(uint64_t *state) {
    uint64_t sum = 0;
    for (int k = 0; k < 12; k++) sum += run_random(state) >> 40; /* 24 bits */
    return (float)((double)sum / 16777216.0 - 6.0);
}

static inline uint16_t run_bf16(float f) { /* nearest even, finite */
    uint32_t u;
    memcpy(&u, &f, 4);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline float run_from_bf16(uint16_t h) {
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

#define RUN_HASH_START 0xcbf29ce484222325ull
/** FNV-1a. */
static inline uint64_t run_hash(uint64_t hash, const void *data, size_t n) {
    const uint8_t *b = data;
    for (size_t i = 0; i < n; i++) hash = (hash ^ b[i]) * 0x100000001b3ull;
    return hash;
}

#endif
