/* The pipelined TMA + wgmma test kernels on the simulator: their launch, their check. */
#ifndef KN_TESTS_GEMM_RUN_H
#define KN_TESTS_GEMM_RUN_H

#include "gemm_data.h"
#include "module_run.h"

static inline void gemm_open(gemm *g, const char *file, uint32_t m, uint32_t n, uint32_t k, uint32_t ctas) {
    ck_assert(gemm_shape(g, file, m, n, k, ctas));
    void *data[3] = {g->a, g->b, g->d};
    for (int i = 0; i < 3; i++) {
        const gemm_map *x = &g->map[i];
        run_map(g->params + 128 * i, data[i], x->dtype, x->rows, x->cols, x->box_cols, x->box_rows);
        g->extents[i] = run_matrix((const char *[]){"A", "B", "D"}[i], data[i], i == 2 ? 4 : 2, (int64_t)x->rows,
                                   (int64_t)x->cols, i == 2);
    }
    memcpy(g->params + 384, g->counts, sizeof g->counts);
    g->launch = (kn_sim_launch){.grid = {ctas, 1, 1},
                                .block = {GEMM_THREADS, 1, 1},
                                .cluster = {g->cluster, 1, 1},
                                .smem_dynamic = GEMM_SMEM,
                                .params = g->params,
                                .params_len = GEMM_PARAMS,
                                .extents = g->extents,
                                .n_extents = 3,
                                .threads = 2,
                                .multiprocessors = 132,
                                .budget = 200000000};
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
