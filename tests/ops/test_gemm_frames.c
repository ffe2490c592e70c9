/* The ways in which the TMA + wgmma kernel may make a product: frames, tiles, two CTAs that share the depth. Each of
 * them gives the bits of the portable kernel, whatever the limit on multiprocessors. The device is KILN_DEVICE's. */
#include "base/alloc.h"
#include "ops/gemm_choice.h"
#include "support/problem_gen.h"
#include "support/problem_run.h"
#include "support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char tuning[64];
static kiln_context *portable;

static void open_portable(void) {
    kiln_context_options o = {.struct_size = sizeof o, .cache_dir = "off", .path = KILN_PATH_PORTABLE};
    ck_assert_ok(kiln_context_create(NULL, &o, &portable));
}

/* A tuning file of one or two choices. */
static void write_tuning(const char *key, const char *candidate, const char *key2, const char *candidate2) {
    char json[4096];
    ck_assert_ok(kiln_context_device_json(portable, json, sizeof json, NULL));
    char *name = strstr(json, "\"name\":\"");
    ck_assert_ptr_nonnull(name);
    name += strlen("\"name\":\"");
    snprintf(tuning, sizeof tuning, "/tmp/kn_test_frames_%d", (int)getpid());
    FILE *f = fopen(tuning, "w");
    ck_assert_ptr_nonnull(f);
    fprintf(f, "kiln-tuning 1\ngpu %.*s\nproduct %s %s\n", (int)strcspn(name, "\""), name, key, candidate);
    if (key2) fprintf(f, "product %s %s\n", key2, candidate2);
    fclose(f);
}

/* The plan takes this many choices of the file: a product that TMA cannot load would not say so by other bits. */
static void check_tuned(kiln_context *ctx, const kn_gen *g, int choices) {
    static char plan[1 << 20];
    ck_assert_ok(kn_gen_plan(g, ctx, KILN_PLAN_LIST | KILN_PLAN_EXPLAIN, plan, sizeof plan));
    int found = 0;
    for (const char *at = plan; (at = strstr(at, "\"by\":\"tuning\"")); at++) found++;
    ck_assert_msg(found == choices, "%d of %d choices are taken: %s", found, choices, plan);
}

typedef struct way {
    const char *candidate;
    int32_t sm_limit;
} way;

typedef struct product {
    int64_t m, n, k;
    uint64_t swapped; /* bits: a, b */
    kn_dtype dtype, out;
    uint64_t accumulate;
    way ways[3];
} product;

static kn_gen *make(const product *p) {
    kn_gen_config c = kn_gen_defaults("gemm");
    c.m = p->m, c.n = p->n, c.k = p->k;
    c.dtype = p->dtype;
    c.out_dtype = p->out;
    c.swapped = p->swapped;
    c.options.common.accumulate = p->accumulate;
    kn_gen *g;
    ck_assert_ok(kn_gen_make(&c, &g));
    return g;
}

static void check_way(const product *p, const way *w, const kn_gen *want) {
    char key[128];
    snprintf(key, sizeof key, "wgmma:%s:%s.%s:store.%s%s:%lldx%lldx%lld", kn_dtype_name(p->dtype),
             p->swapped & 1 ? "m" : "k", p->swapped & 2 ? "k" : "n", kn_dtype_name(p->out), p->accumulate ? ".add" : "",
             (long long)p->m, (long long)p->n, (long long)p->k);
    write_tuning(key, w->candidate, NULL, NULL);
    kiln_context *ctx;
    kiln_context_options o = {.struct_size = sizeof o, .cache_dir = "off", .tuning = tuning, .sm_limit = w->sm_limit};
    ck_assert_ok(kiln_context_create(NULL, &o, &ctx));
    kn_gen *g = make(p);
    check_tuned(ctx, g, 1);
    ck_assert_msg(kn_gen_run(g, ctx) == KN_OK, "%s %s: %s", key, w->candidate, kn_error_message());
    ck_assert_msg(memcmp(g->tensor[2].data, want->tensor[2].data, (size_t)(p->m * p->n * kn_dtype_size(p->out))) == 0,
                  "%s %s: other bits than the portable kernel's", key, w->candidate);
    kn_gen_free(g);
    kiln_context_destroy(ctx);
    unlink(tuning);
}

static void check_all(const product *p, size_t n) {
    open_portable();
    for (size_t i = 0; i < n; i++) {
        kn_gen *want = make(&p[i]);
        ck_assert_ok(kn_gen_reference(want));
        ck_assert_ok(kn_gen_run(want, portable));
        ck_assert_ok(kn_gen_check(want));
        for (int w = 0; w < 3 && p[i].ways[w].candidate; w++) check_way(&p[i], &p[i].ways[w], want);
        kn_gen_free(want);
    }
    kiln_context_destroy(portable);
}
#define CHECK_ALL(table) check_all(table, sizeof(table) / sizeof(table)[0])

/* Tiles beyond 128 accumulators; fewer and more k blocks than stages; several tiles a CTA. */
START_TEST(consumers_load) {
    static const product rows[] = {
        {200, 256, 64, 0, KN_BF16, KN_BF16, 0, {{"lean-pingpong-128x192", 0}, {"lean-pingpong-128x192", 1}}},
        {264, 200, 328, 3, KN_F16, KN_BF16, 0, {{"lean-pingpong-128x192-swap", 1}}},
        {90, 200, 328, 2, KN_BF16, KN_F32, 0, {{"coop-128x64", 0}, {"lean-coop-256x128", 0}}}, /* fewer rows than a tile
                                                                                                */
        {300, 392, 136, 0, KN_BF16, KN_BF16, 0, {{"lean-pingpong-128x128", 2}}},
        {150, 264, 520, 0, KN_BF16, KN_F16, 0, {{"lean-pingpong-128x152-swap", 1}}},
        {260, 264, 200, 2, KN_BF16, KN_F32, 1, {{"lean-coop-256x128", 1}}},
        {260, 136, 456, 0, KN_BF16, KN_F16, 0, {{"lean-coop-256x192", 1}}},
    };
    CHECK_ALL(rows);
}
END_TEST

/* Rows of D by TMA: more and fewer boxes a tile than are under way, edges inside of a box, several tiles a CTA. */
START_TEST(rows_leave_in_boxes) {
    static const product rows[] = {
        {296, 392, 136, 1, KN_BF16, KN_BF16, 0, {{"pingpong-128x128-boxes", 1}, {"lean-pingpong-128x192-boxes", 1}}},
        {150, 328, 64, 0, KN_BF16, KN_F16, 0, {{"coop-128x64-boxes", 2}, {"pingpong-64x64-boxes", 0}}},
        {72, 520, 200, 2, KN_F16, KN_BF16, 0, {{"pingpong-64x256-boxes", 1}, {"lean-coop-256x192-boxes", 0}}},
        {264, 264, 200, 3, KN_F16, KN_F16, 0, {{"lean-coop-256x128-boxes", 1}, {"coop-128x192-boxes", 1}}},
    };
    CHECK_ALL(rows);
}
END_TEST

/* The second block of 64 columns of a tile lies a stride further, in the second CTA, too. */
START_TEST(two_share_a_depth) {
    static const product rows[] = {
        {208,
         136,
         8184,
         0,
         KN_BF16,
         KN_F32,
         0,
         {{"coop-128x40-swap-halves", 0}, {"coop-128x64-halves", 7}, {"coop-128x128-halves", 0}}},
    };
    CHECK_ALL(rows);
}
END_TEST

/* Two clusters of two, whose sums meet in memory. Depths that are no multiple of four blocks; more tiles than clusters,
 * in any order; a limit below a tile's four. */
START_TEST(four_share_a_depth) {
    static const product rows[] = {
        {136, 136, 8192, 0, KN_BF16, KN_BF16, 0, {{"coop-128x16-swap-quarters", 4}, {"coop-128x64-quarters", 0}}},
        {200, 136, 8256, 2, KN_F16, KN_F32, 0, {{"coop-128x72-swap-quarters", 0}, {"coop-128x128-quarters", 3}}},
    };
    CHECK_ALL(rows);
}
END_TEST

/* A product of three segments, and three products in one launch, in frames whose consumers load. */
START_TEST(segments_and_several_products) {
    enum { GRAD_TOPK_WEIGHTS = 15, OUT_HIDDEN, OUT_ROUTER, OUT_DOWN = 20 };
    static const struct {
        const char *dx, *dw;
    } rows[] = {{"lean-pingpong-128x192", "lean-pingpong-128x192"},
                {"lean-pingpong-128x168-swap", "lean-coop-256x128"},
                {"lean-coop-256x128", "pingpong-128x128"}};
    open_portable();
    kn_gen_config c = kn_gen_defaults("moe_layer_backward");
    c.tokens = 328, c.hidden = 264, c.inner = 136, c.experts = 72, c.top_k = 4;
    c.dtype = c.out_dtype = KN_BF16;
    c.absent &= ~((uint64_t)1 << GRAD_TOPK_WEIGHTS | (uint64_t)1 << 14);
    kn_gen *want;
    ck_assert_ok(kn_gen_make(&c, &want));
    ck_assert_ok(kn_gen_run(want, portable));
    for (int i = 0; i < 6; i++) {
        write_tuning("wgmma:bf16:k.n:store.bf16:328x264x136+136+72", rows[i / 2].dx,
                     "wgmma:bf16:m.n:store.bf16:136x264x328,136x264x328,264x136x328", rows[i / 2].dw);
        kiln_context *ctx;
        kiln_context_options o = {
            .struct_size = sizeof o, .cache_dir = "off", .tuning = tuning, .sm_limit = i % 2 ? 1 : 0};
        ck_assert_ok(kiln_context_create(NULL, &o, &ctx));
        kn_gen *g;
        ck_assert_ok(kn_gen_make(&c, &g));
        check_tuned(ctx, g, 2);
        ck_assert_ok(kn_gen_run(g, ctx));
        for (int out = OUT_HIDDEN; out <= OUT_DOWN; out++) {
            if (out == OUT_ROUTER) continue; /* in parts, which the portable kernel promotes */
            ck_assert_msg(memcmp(g->call.tensor[out].data, want->call.tensor[out].data, g->call.tensor[out].bytes) == 0,
                          "%s, %s: output %d has other bits", rows[i / 2].dx, rows[i / 2].dw, out);
        }
        kn_gen_free(g);
        ck_assert_ok(kiln_context_destroy(ctx));
        unlink(tuning);
    }
    kn_gen_free(want);
    kiln_context_destroy(portable);
}
END_TEST

/* Weight gradients in a lean frame of kernels that learn the depth, the number of tokens, when they run: fewer and more
 * k blocks than stages, and several tiles a CTA. The width is one for which the planner takes that frame. */
START_TEST(consumers_load_to_any_depth) {
    static const int64_t tokens[] = {40, 392};
    static char plan[1 << 16];
    open_portable();
    for (int i = 0; i < 2; i++) {
        kn_gen_config c = kn_gen_defaults("expert_mlp_backward");
        c.batch = tokens[i] + 20, c.tokens = tokens[i], c.hidden = 3072, c.inner = 192;
        c.dtype = c.out_dtype = KN_BF16;
        c.absent |= (uint64_t)1 << kn_gen_arg(c.op, "grad_hidden_states");
        kn_gen *want, *g;
        ck_assert_ok(kn_gen_make(&c, &want));
        ck_assert_ok(kn_gen_run(want, portable));
        kiln_context *ctx;
        kiln_context_options o = {
            .struct_size = sizeof o, .cache_dir = "off", .shapes = KILN_SHAPES_GENERIC, .sm_limit = i ? 3 : 0};
        ck_assert_ok(kiln_context_create(NULL, &o, &ctx));
        ck_assert_ok(kn_gen_make(&c, &g));
        ck_assert_ok(kn_gen_plan(g, ctx, KILN_PLAN_LIST, plan, sizeof plan));
        ck_assert_msg(strstr(plan, "lean") && strstr(plan, "\"K0\":-1"), "%s", plan);
        ck_assert_ok(kn_gen_run(g, ctx));
        for (int out = g->op.n_args - g->op.n_outputs; out < g->op.n_args; out++)
            if (g->args[out])
                ck_assert_msg(
                    memcmp(g->call.tensor[out].data, want->call.tensor[out].data, g->call.tensor[out].bytes) == 0,
                    "%lld tokens: output %d has other bits", (long long)tokens[i], out);
        kn_gen_free(g);
        kn_gen_free(want);
        ck_assert_ok(kiln_context_destroy(ctx));
    }
    kiln_context_destroy(portable);
}
END_TEST

/* B rests: strips that begin and end within a CTA's tiles, strips of two tiles, short last blocks. */
START_TEST(a_short_depth_rests) {
    static const product rows[] = {
        {328,
         392,
         136,
         1,
         KN_BF16,
         KN_BF16,
         0,
         {{"resident-pingpong-64x256-boxes", 1}, {"resident-pingpong-128x128-boxes", 2}}},
        {280,
         712,
         64,
         1,
         KN_F16,
         KN_BF16,
         0,
         {{"resident-pingpong-64x256-boxes", 4}, {"resident-pingpong-64x128-boxes", 7}}},
        {72,
         1024,
         200,
         2,
         KN_BF16,
         KN_F16,
         0,
         {{"resident-pingpong-64x64-boxes", 0}, {"resident-pingpong-64x128-boxes", 3}}},
    };
    CHECK_ALL(rows);
}
END_TEST

/* Two CTAs load B for both: fewer and more k blocks than stages, edges, several tiles a CTA, odd limits. */
START_TEST(pairs_share_columns) {
    static const product rows[] = {
        {200, 392, 136, 1, KN_BF16, KN_BF16, 0, {{"paired-pingpong-128x128-boxes", 0}, {"paired-coop-128x128", 1}}},
        {456, 264, 456, 1, KN_F16, KN_BF16, 0, {{"paired-pingpong-64x256-boxes", 3}, {"paired-coop-128x256-boxes", 1}}},
        {440, 136, 584, 1, KN_BF16, KN_F32, 1, {{"paired-coop-128x128", 1}, {"paired-coop-128x128", 5}}},
    };
    CHECK_ALL(rows);
}
END_TEST

/* Tensors of an activation by TMA: whole and short chunks of a tile, rows that stand for no token, edges, several tiles
 * a CTA. All outputs follow from dg and du. */
START_TEST(activations_in_boxes) {
    enum { EXPERT_OUTPUT = 7 };
    static const struct {
        int64_t tokens, hidden, inner;
        kn_dtype dtype;
        const char *ways[3];
    } rows[] = {
        {150, 136, 328, KN_BF16, {"coop-128x152-swap-boxes", "pingpong-128x80-swap-boxes", "pingpong-128x128-boxes"}},
        {92, 200, 264, KN_F16, {"pingpong-64x32-swap-boxes", "coop-128x48-swap-boxes", "coop-128x64-boxes"}},
        {270,
         72,
         136,
         KN_BF16,
         {"coop-128x256-swap-boxes", "lean-pingpong-128x136-swap-boxes", "lean-coop-256x128-boxes"}},
    };
    open_portable();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kn_gen_config c = kn_gen_defaults("expert_mlp_backward");
        c.batch = rows[i].tokens + 20, c.tokens = rows[i].tokens, c.hidden = rows[i].hidden, c.inner = rows[i].inner;
        c.dtype = c.out_dtype = rows[i].dtype;
        c.skip_percent = 20;
        c.absent &= ~((uint64_t)1 << EXPERT_OUTPUT | (uint64_t)1 << kn_gen_arg(c.op, "gated_output"));
        kn_gen *want;
        ck_assert_ok(kn_gen_make(&c, &want));
        ck_assert_ok(kn_gen_run(want, portable));
        for (int w = 0; w < 3; w++) {
            char key[128];
            snprintf(key, sizeof key, "wgmma:%s:k.n:row_swiglu_backward:%lldx%lldx%lld", kn_dtype_name(c.dtype),
                     (long long)c.tokens, (long long)c.inner, (long long)c.hidden);
            write_tuning(key, rows[i].ways[w], NULL, NULL);
            kiln_context *ctx;
            kiln_context_options o = {
                .struct_size = sizeof o, .cache_dir = "off", .tuning = tuning, .sm_limit = w == 1 ? 1 : 0};
            ck_assert_ok(kiln_context_create(NULL, &o, &ctx));
            kn_gen *g;
            ck_assert_ok(kn_gen_make(&c, &g));
            check_tuned(ctx, g, 1);
            ck_assert_msg(kn_gen_run(g, ctx) == KN_OK, "%s %s: %s", key, rows[i].ways[w], kn_error_message());
            for (int out = g->op.n_args - g->op.n_outputs; out < g->op.n_args; out++)
                if (g->args[out])
                    ck_assert_msg(
                        memcmp(g->call.tensor[out].data, want->call.tensor[out].data, g->call.tensor[out].bytes) == 0,
                        "%s %s: output %d has other bits", key, rows[i].ways[w], out);
            kn_gen_free(g);
            ck_assert_ok(kiln_context_destroy(ctx));
            unlink(tuning);
        }
        kn_gen_free(want);
    }
    kiln_context_destroy(portable);
}
END_TEST

int main(void) {
    Suite *s = suite_create("ops/gemm_frames");
    TCase *t = tcase_create("frames"), *halves = tcase_create("halves");
    tcase_set_timeout(t, 300);
    tcase_set_timeout(halves, 300);
    tcase_add_test(t, consumers_load);
    tcase_add_test(t, rows_leave_in_boxes);
    tcase_add_test(t, activations_in_boxes);
    tcase_add_test(t, a_short_depth_rests);
    tcase_add_test(t, pairs_share_columns);
    tcase_add_test(t, segments_and_several_products);
    tcase_add_test(t, consumers_load_to_any_depth);
    tcase_add_test(halves, two_share_a_depth);
    tcase_add_test(halves, four_share_a_depth);
    suite_add_tcase(s, t);
    suite_add_tcase(s, halves);
    return kn_run_suite(s);
}
