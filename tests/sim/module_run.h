/* What the tests of whole kernels share: PTX files and strings, launches, tensor maps. */
#ifndef KN_TESTS_SIM_MODULE_RUN_H
#define KN_TESTS_SIM_MODULE_RUN_H

#include "base/alloc.h"
#include "base/file.h"
#include "numbers.h"
#include "sim/sim.h"
#include "support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void run_path(char out[1024], const char *name) {
    const char *root = getenv("KN_SOURCE_DIR");
    int n = snprintf(out, 1024, "%s/tests/data/sim/%s", root ? root : ".", name);
    ck_assert_int_lt(n, 1024);
}

/** tests/data/sim/<name> as text (kn_free). */
static inline char *run_read(const char *name, size_t *len) {
    char path[1024], *text = NULL;
    run_path(path, name);
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

#endif
