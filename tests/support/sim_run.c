/* See sim_run.h. */
#include "support/sim_run.h"
#include "base/alloc.h"
#include "base/buf.h"

#include <string.h>

static kn_status parse_and_run(const char *ptx, const kn_sim_launch *launch, kn_sim_stats *stats) {
    kn_sim_module *m = NULL;
    KN_TRY(kn_sim_parse(ptx, strlen(ptx), NULL, NULL, &m));
    kn_status st = kn_sim_run(m, NULL, launch, stats);
    kn_sim_free(m);
    return st;
}

kn_status kn_simtest_eval(const char *statements, char result, uint64_t a, uint64_t b, uint64_t c, uint64_t e,
                          uint64_t *out) {
    uint64_t in[4] = {a, b, c, e};
    kn_buf text;
    kn_buf_init(&text, 1 << 20);
    kn_buf_add(&text, ".version 8.3\n.target sm_90a\n.address_size 64\n.entry t(.param .u64 in, .param .u64 out) {\n"
                      ".reg .b16 %ha, %hb, %hc, %he, %hz, %hy;\n.reg .b32 %ra, %rb, %rc, %re, %rz, %ry;\n"
                      ".reg .b64 %da, %db, %dc, %de, %dz, %dy, %in, %out;\n.reg .pred %pa, %pb, %pc, %pe, %pz, %py;\n"
                      "ld.param.u64 %in, [in];\nld.param.u64 %out, [out];\n");
    for (const char *k = "abce"; *k; k++) {
        kn_buf_addf(&text, "ld.global.b64 %%d%c, [%%in+%d];\ncvt.u32.u64 %%r%c, %%d%c;\n", *k,
                    *k == 'e' ? 24 : (*k - 'a') * 8, *k, *k);
        kn_buf_addf(&text, "cvt.u16.u64 %%h%c, %%d%c;\nand.b32 %%ry, %%r%c, 1;\nsetp.ne.u32 %%p%c, %%ry, 0;\n", *k, *k,
                    *k, *k);
    }
    kn_buf_addf(&text, "%s\n", statements);
    switch (result) {
    case 'r': kn_buf_add(&text, "cvt.u64.u32 %dz, %rz;\n"); break;
    case 'h': kn_buf_add(&text, "cvt.u64.u16 %dz, %hz;\n"); break;
    case 'p': kn_buf_add(&text, "selp.b64 %dz, 1, 0, %pz;\n"); break;
    default: break;
    }
    kn_buf_add(&text, "st.global.b64 [%out], %dz;\nret;\n}\n");
    void *params[2] = {in, out};
    kn_sim_extent extents[2] = {{"in", in, 8, 1, {4}, {1}, false, false}, {"out", out, 8, 1, {1}, {1}, true, true}};
    kn_sim_launch launch = {.grid = {1, 1, 1},
                            .block = {1, 1, 1},
                            .cluster = {1, 1, 1},
                            .params = params,
                            .params_len = sizeof params,
                            .extents = extents,
                            .n_extents = 2,
                            .budget = 100000,
                            .threads = 1};
    kn_status st = kn_buf_status(&text);
    if (st == KN_OK) st = parse_and_run(text.data, &launch, NULL);
    kn_buf_free(&text);
    return st;
}

kn_status kn_simtest_run(kn_simtest *t) {
    void *params[6] = {0};
    kn_sim_extent extents[6];
    uint32_t n = 0;
    kn_buf text;
    kn_buf_init(&text, 1 << 24);
    bool body = !strstr(t->ptx, ".entry");
    if (body) kn_buf_add(&text, ".version 8.3\n.target sm_90a\n.address_size 64\n.entry t(");
    for (; n < 6 && t->buffer[n].name; n++) {
        const kn_simtest_buffer *b = &t->buffer[n];
        params[n] = b->data;
        extents[n] = (kn_sim_extent){b->name, b->data, 1, 1, {b->bytes}, {1}, b->writable, b->poison};
        if (body) kn_buf_addf(&text, "%s.param .u64 %s", n ? ", " : "", b->name);
    }
    if (body)
        kn_buf_addf(&text, ") {\n%s\n}\n", t->ptx);
    else
        kn_buf_add(&text, t->ptx);
    kn_sim_launch launch = {.grid = {t->grid ? t->grid : 1, 1, 1},
                            .block = {t->block ? t->block : 32, 1, 1},
                            .cluster = {t->cluster ? t->cluster : 1, 1, 1},
                            .smem_dynamic = t->smem,
                            .params = params,
                            .params_len = sizeof params,
                            .extents = extents,
                            .n_extents = n,
                            .seed = t->seed,
                            .budget = t->budget ? t->budget : 1000000,
                            .threads = t->threads ? t->threads : 1,
                            .memory = t->memory,
                            .multiprocessors = 132};
    kn_status st = kn_buf_status(&text);
    if (st == KN_OK) st = parse_and_run(text.data, &launch, &t->stats);
    kn_buf_free(&text);
    return st;
}
