/* Kernels that break one ordering rule, and their corrected twins, from one text: a line that starts with "+" is there
 * in the corrected kernel alone, one that starts with "-" in the broken one alone. */
#ifndef KN_TESTS_ORDER_RUN_H
#define KN_TESTS_ORDER_RUN_H

#include "base/buf.h"
#include "module_run.h"

typedef struct order_case {
    const char *name, *body;
    const char *fault;  /* a part of the sentence for the broken kernel */
    uint32_t threads;   /* a CTA */
    uint32_t cluster;   /* CTAs of the cluster, 0: 1 */
    uint32_t ctas;      /* 0: one cluster */
    const char *fault2; /* another sentence that some schedules may meet first */
} order_case;

static const char order_head[] = ".version 8.1\n.target sm_90a\n.address_size 64\n"
                                 ".extern .shared .align 1024 .b8 smem[];\n"
                                 ".visible .entry k(.param .u64 out, .param .u64 in)\n";
/* %r0 thread, %r1 shared memory, %r2 warp, %r3 lane; %d0 out, %d1 in (16 KB each); the mbarriers of the cases lie at
 * 32768 */
static const char order_start[] =
    "{\n.reg .pred %p<8>;\n.reg .b16 %h<4>;\n.reg .b32 %r<40>;\n.reg .b64 %d<16>;\n.reg .f32 %f<16>;\n"
    "mov.u32 %r0, %tid.x;\nmov.u32 %r1, smem;\nshr.u32 %r2, %r0, 5;\nand.b32 %r3, %r0, 31;\n"
    "ld.param.u64 %d0, [out];\nld.param.u64 %d1, [in];\nadd.u32 %r9, %r1, 32768;\n";

static inline char *order_text(const order_case *c, bool corrected) {
    kn_buf b;
    kn_buf_init(&b, 1 << 20);
    kn_buf_add(&b, order_head);
    kn_buf_addf(&b, ".reqntid %u, 1, 1\n", c->threads);
    kn_buf_add(&b, order_start);
    for (const char *line = c->body; *line;) {
        size_t n = strcspn(line, "\n");
        bool only_right = line[0] == '+', only_wrong = line[0] == '-';
        if (!(only_right && !corrected) && !(only_wrong && corrected)) {
            size_t skip = only_right || only_wrong;
            kn_buf_add_n(&b, line + skip, n - skip);
            kn_buf_add_char(&b, '\n');
        }
        line += n + (line[n] == '\n');
    }
    kn_buf_add(&b, "ret;\n}\n");
    ck_assert_ok(kn_buf_status(&b));
    return kn_buf_take(&b, NULL);
}

static inline kn_status order_launch(const order_case *c, const char *ptx, uint64_t seed) {
    static uint8_t in[16384] __attribute__((aligned(128))), out[16384] __attribute__((aligned(128)));
    void *params[2] = {out, in};
    for (uint32_t k = 0; k < sizeof in; k++) in[k] = (uint8_t)(k % 61);
    kn_sim_extent x[2] = {run_matrix("out", out, 4, 1, sizeof out / 4, true),
                          run_matrix("in", in, 4, 1, sizeof in / 4, false)};
    x[0].poison = false;
    memset(out, 0, sizeof out);
    uint32_t cluster = c->cluster ? c->cluster : 1;
    kn_sim_launch l = {.grid = {c->ctas ? c->ctas : cluster, 1, 1},
                       .block = {c->threads, 1, 1},
                       .cluster = {cluster, 1, 1},
                       .smem_dynamic = 65536,
                       .params = params,
                       .params_len = sizeof params,
                       .extents = x,
                       .n_extents = 2,
                       .seed = seed,
                       .budget = 1000000,
                       .threads = 1,
                       .multiprocessors = 132};
    kn_sim_module *m = run_parse(ptx, strlen(ptx));
    kn_status st = kn_sim_run(m, NULL, &l, NULL);
    kn_sim_free(m);
    return st;
}

/** Eight schedules: the broken kernel must be reported in each, the twin in none. */
static inline void order_check(const order_case *c) {
    char *wrong = order_text(c, false), *right = order_text(c, true);
    const char *dump = getenv("KN_DUMP_PTX"); /* a folder: for a look with ptxas */
    if (dump) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s.ptx", dump, c->name);
        ck_assert_ok(kn_file_write(path, right, strlen(right)));
        snprintf(path, sizeof path, "%s/%s-broken.ptx", dump, c->name);
        ck_assert_ok(kn_file_write(path, wrong, strlen(wrong)));
    }
    for (uint64_t seed = 0; seed < 8; seed++) {
        kn_status st = order_launch(c, right, seed);
        ck_assert_msg(st == KN_OK, "%s, corrected, seed %llu: %s", c->name, (unsigned long long)seed,
                      kn_error_message());
        st = order_launch(c, wrong, seed);
        ck_assert_msg(st == KN_E_SIM && (strstr(kn_error_message(), c->fault) ||
                                         (c->fault2 && strstr(kn_error_message(), c->fault2))),
                      "%s, broken, seed %llu: %s \"%s\", wanted \"%s\"", c->name, (unsigned long long)seed,
                      kn_status_name(st), st == KN_OK ? "" : kn_error_message(), c->fault);
    }
    kn_free(wrong);
    kn_free(right);
}

#endif
