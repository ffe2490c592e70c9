/* What the tests of whole kernels share: PTX files and strings, launches, tensor maps. */
#ifndef KN_TESTS_SIM_MODULE_RUN_H
#define KN_TESTS_SIM_MODULE_RUN_H

#include "base/alloc.h"
#include "base/file.h"
#include "sim/sim.h"
#include "support/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** tests/data/sim/<name> as text (kn_free). */
static inline char *run_read(const char *name, size_t *len) {
    char path[1024], *text = NULL;
    const char *root = getenv("KN_SOURCE_DIR");
    snprintf(path, sizeof path, "%s/tests/data/sim/%s", root ? root : ".", name);
    ck_assert_ok(kn_file_read(path, 1 << 24, &text, len));
    return text;
}

static inline kn_sim_module *run_parse(const char *ptx, size_t len) {
    kn_sim_module *m = NULL;
    ck_assert_ok(kn_sim_parse(ptx, len, NULL, NULL, &m));
    return m;
}

/** A row-major matrix as an extent. */
static inline kn_sim_extent run_matrix(const char *name, void *data, uint32_t item, int64_t rows, int64_t cols,
                                       bool writable) {
    return (kn_sim_extent){.name = name,
                           .data = data,
                           .item = item,
                           .ndim = 2,
                           .shape = {rows, cols},
                           .stride = {cols, 1},
                           .writable = writable,
                           .poison = writable};
}

/** A map over a row-major matrix of 2- or 4-byte elements with 128-byte swizzle. */
static inline void run_map(uint8_t out[128], void *data, uint8_t dtype, uint64_t rows, uint64_t cols, uint32_t box_cols,
                           uint32_t box_rows) {
    uint64_t item = dtype == 7 ? 4 : 2;
    kn_sim_tensor_map t = {.dtype = dtype,
                           .rank = 2,
                           .swizzle = 3,
                           .base = data,
                           .dim = {cols, rows},
                           .stride = {cols * item},
                           .box = {box_cols, box_rows}};
    ck_assert_ok(kn_sim_encode_tensor_map(&t, out));
}

static inline uint64_t run_random(uint64_t *state) {
    *state += 0x9e3779b97f4a7c15ull;
    uint64_t z = *state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

/** Near-normal random value (sum of twelve uniforms), the same on every machine. */
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
