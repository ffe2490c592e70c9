/* The pipelined TMA + wgmma test kernels (tests/data/sim/gemm_*.ptx): their data, their launch, their check. */
#ifndef KN_TESTS_GEMM_RUN_H
#define KN_TESTS_GEMM_RUN_H

#include "module_run.h"

typedef struct gemm {
    const char *file; /* gemm_kk.ptx ... */
    bool mn_major;    /* operands stored k-row by k-row */
    uint32_t cluster, m, n, k;
    uint16_t *a, *b; /* [m][k] and [n][k], or [k][m] and [k][n] */
    float *d;
    uint8_t params[400];
    kn_sim_extent extents[3];
    kn_sim_launch launch;
} gemm;

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

static inline void gemm_open(gemm *g, const char *file, uint32_t m, uint32_t n, uint32_t k, uint32_t ctas) {
    *g = (gemm){.file = file,
                .mn_major = strstr(file, "mn") != NULL,
                .cluster = strstr(file, "cluster") ? 2 : 1,
                .m = m,
                .n = n,
                .k = k};
    g->a = kn_calloc((size_t)m * k, 2);
    g->b = kn_calloc((size_t)n * k, 2);
    g->d = kn_calloc((size_t)m * n, 4);
    if (g->mn_major) {
        run_map(g->params, g->a, 9, k, m, 64, 64);
        run_map(g->params + 128, g->b, 9, k, n, 64, 64);
        g->extents[0] = run_matrix("A", g->a, 2, k, m, false);
        g->extents[1] = run_matrix("B", g->b, 2, k, n, false);
    } else {
        run_map(g->params, g->a, 9, m, k, 64, 128);
        run_map(g->params + 128, g->b, 9, n, k, 64, g->cluster == 2 ? 64 : 128);
        g->extents[0] = run_matrix("A", g->a, 2, m, k, false);
        g->extents[1] = run_matrix("B", g->b, 2, n, k, false);
    }
    run_map(g->params + 256, g->d, 7, m, n, 32, 64);
    g->extents[2] = run_matrix("D", g->d, 4, m, n, true);
    uint32_t counts[3] = {(m + 127) / 128, (n + 127) / 128, (k + 63) / 64};
    if (g->cluster == 2) counts[0] += counts[0] & 1;
    memcpy(g->params + 384, counts, sizeof counts);
    g->launch = (kn_sim_launch){.grid = {ctas, 1, 1},
                                .block = {384, 1, 1},
                                .cluster = {g->cluster, 1, 1},
                                .smem_dynamic = 196672,
                                .params = g->params,
                                .params_len = 396,
                                .extents = g->extents,
                                .n_extents = 3,
                                .threads = 2,
                                .multiprocessors = 132,
                                .budget = 200000000};
}

static inline void gemm_close(gemm *g) {
    kn_free(g->a);
    kn_free(g->b);
    kn_free(g->d);
}

/** Largest error against float64, relative to the sum of the products' magnitudes. */
static inline double gemm_error(const gemm *g) {
    double worst = 0;
    for (uint32_t i = 0; i < g->m; i++) {
        for (uint32_t j = 0; j < g->n; j++) {
            double sum = 0, scale = 1e-30;
            for (uint32_t kk = 0; kk < g->k; kk++) {
                double p = (double)run_from_bf16(*gemm_at(g, g->a, g->m, i, kk)) *
                           (double)run_from_bf16(*gemm_at(g, g->b, g->n, j, kk));
                sum += p;
                scale += fabs(p);
            }
            double e = fabs((double)g->d[(size_t)i * g->n + j] - sum) / scale;
            if (!(e <= worst)) worst = e;
        }
    }
    return worst;
}

#endif
