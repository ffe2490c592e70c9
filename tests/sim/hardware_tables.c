/* kn_sim_hardware: scalar instructions, and the pipelined kernels. */
#include "hardware.h"

#include "base/file.h"
#include "gemm_data.h"
#include "h200_rows.h"
#include "support/sim_rows.h"

kn_status hw_scalar(hw *h) {
    static kn_sim_rows rows;
    static uint64_t in[4 * KN_ROWS_LANES];
    char path[1024];
    kn_buf ptx, text;
    kn_status st;
    uint64_t *out = NULL;
    kn_buf_init(&ptx, 1 << 22);
    kn_buf_init(&text, 1 << 22);
    hw_path(path, h->in, "scalar_h200.txt");
    KN_TRY_OUT(st, kn_sim_rows_read(path, &rows));
    KN_TRY_OUT(st, kn_sim_rows_ptx(&rows, &ptx));
    kn_sim_rows_inputs(in);
    size_t bytes = (size_t)rows.n * KN_ROWS_LANES * 8;
    KN_TRY_OUT(st, kn_new((void **)&out, bytes, 1, "results"));
    hw_launch l = {.entry = "rows", .ptx = ptx.data, .ptx_len = ptx.len, .grid = 1, .threads = KN_ROWS_LANES};
    l.buffer[0].host = in, l.buffer[0].bytes = sizeof in;
    l.buffer[1].host = out, l.buffer[1].bytes = bytes;
    KN_TRY_OUT(st, hw_run(h, &l));
    kn_buf_addf(&text, "%s# Hash, kind and statements of scalar instructions: see tests/support/sim_rows.h.\n",
                h->title);
    for (uint32_t k = 0; k < rows.n; k++)
        kn_buf_addf(&text, "%016llx %c %s\n", (unsigned long long)kn_sim_rows_hash(out + (size_t)k * KN_ROWS_LANES),
                    rows.kind[k], rows.statements[k]);
    st = hw_write(h, "scalar_h200.txt", &text);
out:
    kn_free(out);
    kn_buf_free(&ptx);
    kn_buf_free(&text);
    kn_sim_rows_free(&rows);
    return st;
}

/* Twenty runs must agree. */
enum { REPEATS = 20 };

static kn_status product(hw *h, const h200_gemm *row, const char *ptx, size_t len, uint64_t *hash) {
    static gemm g;
    char entry[32];
    snprintf(entry, sizeof entry, "%.*s", (int)strcspn(row->file, "."), row->file);
    KN_REQUIRE(gemm_shape(&g, row->file, row->m, row->n, row->k, row->ctas), KN_E_NOMEM, "out of memory");
    kn_tensor_map map[3];
    hw_launch l = {.entry = entry,
                   .ptx = ptx,
                   .ptx_len = len,
                   .grid = g.ctas,
                   .threads = GEMM_THREADS,
                   .cluster = g.cluster,
                   .smem = GEMM_SMEM,
                   .map = map,
                   .words = g.counts};
    void *data[3] = {g.a, g.b, g.d};
    for (int i = 0; i < 3; i++) {
        const gemm_map *x = &g.map[i];
        uint64_t item = i == 2 ? 4 : 2;
        map[i] = (kn_tensor_map){.dtype = x->dtype,
                                 .rank = 2,
                                 .swizzle = 3,
                                 .dim = {x->cols, x->rows},
                                 .stride = {x->cols * item},
                                 .box = {x->box_cols, x->box_rows}};
        l.buffer[i].host = data[i];
        l.buffer[i].bytes = x->rows * x->cols * item;
    }
    kn_module *m = NULL;
    kn_status st = hw_load(h, &l, &m);
    for (int k = 0; st == KN_OK && k < (h->b->runs_ptx ? 1 : REPEATS); k++) {
        gemm_fill(&g, row->integers);
        st = hw_go(h, &l, m);
        uint64_t one = run_hash(RUN_HASH_START, g.d, (size_t)g.m * g.n * 4);
        if (st == KN_OK && k && one != *hash)
            st = kn_fail(KN_E_LAUNCH, "run %d gives %016llx, those before %016llx", k, (unsigned long long)one,
                         (unsigned long long)*hash);
        *hash = one;
    }
    if (m) hw_unload(h, m);
    gemm_close(&g);
    return st;
}

kn_status hw_gemm(hw *h) {
    static h200_gemm rows[H200_ROWS_MAX];
    uint32_t n;
    char path[1024];
    kn_buf text;
    kn_buf_init(&text, 1 << 20);
    hw_path(path, h->in, "h200_gemm.txt");
    KN_TRY(h200_read(path, h200_parse_gemm, rows, sizeof rows[0], &n));
    kn_buf_addf(&text,
                "%s# FNV-1a of D of the kernels gemm_*.ptx, the same in %d runs: file, m, n, k, CTAs, data of "
                "tests/sim/gemm_data.h.\n",
                h->title, REPEATS);
    for (uint32_t k = 0; k < n; k++) {
        char *ptx = NULL;
        size_t len;
        uint64_t hash = 0;
        hw_path(path, h->in, rows[k].file);
        KN_TRY(kn_file_read(path, 1 << 24, &ptx, &len));
        KN_TRY(product(h, &rows[k], ptx, len, &hash));
        kn_free(ptx);
        kn_buf_addf(&text, "%s %u %u %u %u %s %016llx\n", rows[k].file, rows[k].m, rows[k].n, rows[k].k, rows[k].ctas,
                    rows[k].integers ? "integers" : "normal", (unsigned long long)hash);
    }
    return hw_write(h, "h200_gemm.txt", &text);
}
