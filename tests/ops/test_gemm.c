/* gemm and grouped_gemm on both paths: random sizes around every tile edge, all majorness, types, strides, offsets;
 * ragged groups; beta 1; bit-identical repeats. The device is KILN_DEVICE's: the GPU where there is one, else the
 * simulator. KN_LONG=1 runs the full number of cases. */
#include "base/alloc.h"
#include "support/problem_gen.h"
#include "support/problem_run.h"
#include "support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static kiln_context *ctx, *portable;

static void open_contexts(void) {
    kiln_context_options o = {.struct_size = sizeof o, .cache_dir = "off", .path = KILN_PATH_PORTABLE};
    kiln_context_options fast = {.struct_size = sizeof fast, .cache_dir = "off"};
    ck_assert_ok(kiln_context_create(NULL, &fast, &ctx));
    ck_assert_ok(kiln_context_create(NULL, &o, &portable));
}

static void close_contexts(void) {
    kiln_context_destroy(ctx);
    kiln_context_destroy(portable);
}

static uint64_t state;
static uint64_t draw(uint64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % n;
}

static const int64_t edges[] = {0, 1, 7, 8, 63, 64, 65, 127, 128, 129, 200, 255, 257, 1000};

static int64_t draw_edge(int64_t most) {
    int64_t v;
    do v = edges[draw(sizeof edges / sizeof *edges)];
    while (v > most);
    return v;
}

static const kn_dtype floats[] = {KN_BF16, KN_F16, KN_F32};

static kn_gen_config draw_gemm(int64_t budget) {
    kn_gen_config c = kn_gen_defaults("gemm");
    do {
        c.m = draw_edge(1000);
        c.n = draw_edge(1000);
        c.k = draw_edge(1000);
    } while (c.m * c.n * c.k > budget);
    c.seed = draw(1u << 30);
    c.dtype = floats[draw(3)];
    c.out_dtype = floats[draw(3)];
    c.swapped = draw(4);                        /* a, b */
    c.gap = (int)(draw(3) == 0 ? draw(12) : 0); /* unaligned rows now and then */
    c.options.common.accumulate = draw(2);
    c.options.gemm.math = (int32_t)draw(3);
    return c;
}

static void run_one(const kn_gen_config *c, kiln_context *on, const char *what) {
    kn_gen *g;
    ck_assert_ok(kn_gen_make(c, &g));
    ck_assert_ok(kn_gen_reference(g));
    kn_status st = kn_gen_run(g, on);
    if (st == KN_OK) st = kn_gen_check(g);
    ck_assert_msg(st == KN_OK,
                  "%s m=%lld n=%lld k=%lld groups=%lld %s -> %s swapped=%llu gap=%d acc=%llu math=%d seed=%llu: %s",
                  what, (long long)c->m, (long long)c->n, (long long)c->k, (long long)c->groups,
                  kn_dtype_name(c->dtype), kn_dtype_name(c->out_dtype), (unsigned long long)c->swapped, c->gap,
                  (unsigned long long)c->options.common.accumulate, c->options.gemm.math, (unsigned long long)c->seed,
                  kn_error_message());
    kn_gen_free(g);
}

START_TEST(random_products) {
    open_contexts();
    bool all = getenv("KN_LONG") != NULL;
    state = 1;
    for (int i = 0; i < (all ? 500 : 40); i++) {
        kn_gen_config c = draw_gemm(all ? 40000000 : 1500000);
        run_one(&c, i % 2 ? portable : ctx, i % 2 ? "portable" : "fast");
    }
    close_contexts();
}
END_TEST

START_TEST(aligned_products_on_the_fast_path) {
    open_contexts();
    state = 7;
    static const int64_t sizes[][3] = {{64, 64, 64},   {128, 128, 128}, {129, 136, 72}, {40, 256, 200},
                                       {257, 64, 136}, {1, 8, 8},       {300, 320, 64}, {24, 512, 328}};
    for (int i = 0; i < 8; i++) {
        kn_gen_config c = kn_gen_defaults("gemm");
        c.m = sizes[i][0], c.n = sizes[i][1], c.k = sizes[i][2];
        c.dtype = i % 2 ? KN_F16 : KN_BF16;
        c.out_dtype = floats[i % 3];
        /* rows of 16 bytes, whichever axis is contiguous: then TMA can read it */
        c.swapped = (c.m % 8 == 0 ? 1 : 0) & (uint64_t)i;
        c.swapped |= i % 4 < 2 ? 2 : 0;
        c.options.common.accumulate = (uint64_t)i % 2;
        run_one(&c, ctx, "fast");
    }
    close_contexts();
}
END_TEST

START_TEST(ragged_groups) {
    open_contexts();
    state = 3;
    for (int i = 0; i < (getenv("KN_LONG") ? 100 : 12); i++) {
        kn_gen_config c = kn_gen_defaults("grouped_gemm");
        c.seed = draw(1u << 30);
        c.groups = 1 + (int64_t)draw(9);
        c.dtype = floats[draw(3)];
        c.out_dtype = floats[draw(3)];
        c.options.common.accumulate = draw(2);
        c.options.grouped.math = (int32_t)draw(3);
        c.options.grouped.ragged = i % 2;
        c.m = draw_edge(257), c.n = draw_edge(129), c.k = draw_edge(129);
        c.skew = i % 3 == 0;
        run_one(&c, ctx, i % 2 ? "ragged k" : "ragged m");
    }
    close_contexts();
}
END_TEST

/* Both paths sum in steps of 16 of k, in order, with the tensor core's own adder: not a bit may differ. */
START_TEST(both_paths_give_the_same_bits) {
    open_contexts();
    kn_gen_config c = kn_gen_defaults("gemm");
    c.m = 200, c.n = 136, c.k = 264;
    c.dtype = KN_BF16;
    c.out_dtype = KN_F32;
    kn_gen *a, *b;
    ck_assert_ok(kn_gen_make(&c, &a));
    ck_assert_ok(kn_gen_make(&c, &b));
    ck_assert_ok(kn_gen_run(a, ctx));
    ck_assert_ok(kn_gen_run(b, portable));
    ck_assert_mem_eq(a->tensor[2].data, b->tensor[2].data, 200 * 136 * 4);
    kn_gen_free(a);
    kn_gen_free(b);
    close_contexts();
}
END_TEST

int main(void) {
    Suite *s = suite_create("ops/gemm");
    TCase *t = tcase_create("products");
    tcase_set_timeout(t, 900);
    tcase_add_test(t, random_products);
    tcase_add_test(t, aligned_products_on_the_fast_path);
    tcase_add_test(t, ragged_groups);
    tcase_add_test(t, both_paths_give_the_same_bits);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
