/* The pipelined TMA + wgmma test kernels (tests/data/sim/gemm_*.ptx): their shapes, tensor maps and data, for the
 * simulator and for a GPU. */
#ifndef KN_TESTS_SIM_GEMM_DATA_H
#define KN_TESTS_SIM_GEMM_DATA_H

#include "base/alloc.h"
#include "numbers.h"
#include "sim/sim.h"

/* A row-major matrix of the kernels, moved in boxes with 128-byte swizzle. */
typedef struct gemm_map {
    uint8_t dtype; /* as CUtensorMapDataType: 9 bf16, 7 f32 */
    uint64_t rows, cols;
    uint32_t box_cols, box_rows;
} gemm_map;

enum { GEMM_THREADS = 384, GEMM_SMEM = 196672, GEMM_PARAMS = 396 }; /* three maps, three counts */

typedef struct gemm {
    const char *file; /* gemm_kk.ptx ... */
    bool mn_major;    /* operands stored k-row by k-row */
    uint32_t cluster, m, n, k, ctas;
    uint32_t counts[3]; /* tiles along m and n, k blocks: the kernels' last parameters */
    gemm_map map[3];    /* of A, B, D */
    uint16_t *a, *b;    /* [m][k] and [n][k], or [k][m] and [k][n] */
    float *d;
    /* on the simulator */
    uint8_t params[400];
    kn_sim_extent extents[3];
    kn_sim_launch launch;
} gemm;

static inline bool gemm_shape(gemm *g, const char *file, uint32_t m, uint32_t n, uint32_t k, uint32_t ctas) {
    uint32_t cluster = strstr(file, "cluster") ? 2 : 1;
    *g = (gemm){.file = file, .mn_major = strstr(file, "mn"), .cluster = cluster, .m = m, .n = n, .k = k, .ctas = ctas};
    g->map[0] = g->mn_major ? (gemm_map){9, k, m, 64, 64} : (gemm_map){9, m, k, 64, 128};
    g->map[1] = g->mn_major ? (gemm_map){9, k, n, 64, 64} : (gemm_map){9, n, k, 64, cluster == 2 ? 64 : 128};
    g->map[2] = (gemm_map){7, m, n, 32, 64};
    g->counts[0] = (m + 127) / 128;
    g->counts[1] = (n + 127) / 128;
    g->counts[2] = (k + 63) / 64;
    if (cluster == 2) g->counts[0] += g->counts[0] & 1;
    g->a = kn_calloc((size_t)m * k, 2);
    g->b = kn_calloc((size_t)n * k, 2);
    g->d = kn_calloc((size_t)m * n, 4);
    return g->a && g->b && g->d;
}

/* Element (row, kk) of an operand. */
static inline uint16_t *gemm_at(const gemm *g, uint16_t *x, uint32_t rows, uint32_t row, uint32_t kk) {
    return g->mn_major ? &x[(size_t)kk * rows + row] : &x[(size_t)row * g->k + kk];
}

/* integers: -4..4, exact in fp32; else normal. */
static inline void gemm_fill(gemm *g, bool integers) {
    uint64_t s = 7;
    for (uint32_t op = 0; op < 2; op++) {
        uint32_t rows = op ? g->n : g->m;
        for (uint32_t r = 0; r < rows; r++)
            for (uint32_t kk = 0; kk < g->k; kk++)
                *gemm_at(g, op ? g->b : g->a, rows, r, kk) =
                    run_bf16(integers ? (float)((int)(run_random(&s) >> 33) % 5) : run_normal(&s));
    }
    memset(g->d, 0xff, (size_t)g->m * g->n * 4);
}

static inline void gemm_close(gemm *g) {
    kn_free(g->a);
    kn_free(g->b);
    kn_free(g->d);
}

#endif
