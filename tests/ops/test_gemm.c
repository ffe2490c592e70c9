/* gemm on both paths: aligned sizes on the fast one, and the same bits from both. Random sizes: test_gemm_random.c. The
 * device is KILN_DEVICE's: the GPU where there is one, else the simulator. */
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

static const kn_dtype floats[] = {KN_BF16, KN_F16, KN_F32};

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

START_TEST(aligned_products_on_the_fast_path) {
    open_contexts();
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
    tcase_add_test(t, aligned_products_on_the_fast_path);
    tcase_add_test(t, both_paths_give_the_same_bits);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
