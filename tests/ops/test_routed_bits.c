/* routed_experts_backward: bits. They may not depend on repeats, on the kind of kernel, on what the workspace held;
 * what is added to keeps its own. The device is KILN_DEVICE's: the GPU where there is one, else the simulator. */

#include "routed_support.h"

#include "base/alloc.h"

START_TEST(repeats_and_kinds_of_kernel_agree_to_the_bit) {
    kiln_context *exact = open_context(KILN_SHAPES_EXACT, KILN_PATH_DEFAULT);
    kiln_context *generic = open_context(KILN_SHAPES_GENERIC, KILN_PATH_DEFAULT);
    for (int i = 0; i < 4; i++) {
        kn_gen_config c = routed_config(37, 64, 72, 5, 2);
        c.dtype = i & 1 ? KN_BF16 : KN_F32;
        c.skew = i >> 1;
        kn_gen *a, *b, *again;
        ck_assert_ok(kn_gen_make(&c, &a));
        ck_assert_ok(kn_gen_make(&c, &b));
        ck_assert_ok(kn_gen_make(&c, &again));
        ck_assert_ok(kn_gen_run(a, exact));
        ck_assert_ok(kn_gen_run(b, generic));
        ck_assert_ok(kn_gen_run(again, exact));
        same_bits(a, b);
        same_bits(a, again);
        kn_gen_free(a);
        kn_gen_free(b);
        kn_gen_free(again);
    }
    ck_assert_ok(kiln_context_destroy(exact));
    ck_assert_ok(kiln_context_destroy(generic));
}
END_TEST

/* Generic kernels against the reference, and exact ones against them: rows[e] tokens, one slot each, go to expert e. */
static void check_counts(const kn_gen_config *c, const int *rows, const char *what) {
    kiln_context *exact = open_context(KILN_SHAPES_EXACT, KILN_PATH_DEFAULT);
    kiln_context *generic = open_context(KILN_SHAPES_GENERIC, KILN_PATH_DEFAULT);
    kn_gen *a, *b;
    ck_assert_ok(kn_gen_make(c, &a));
    ck_assert_ok(kn_gen_make(c, &b));
    for (int64_t e = 0, s = 0; e < c->experts; e++) {
        for (int n = 0; n < rows[e]; n++, s++) {
            kn_gen_put(a, IDS, s, (double)e);
            kn_gen_put(b, IDS, s, (double)e);
        }
    }
    run_and_check(b, generic, what);
    ck_assert_ok(kn_gen_run(a, exact));
    same_bits(a, b);
    kn_gen_free(a);
    kn_gen_free(b);
    ck_assert_ok(kiln_context_destroy(exact));
    ck_assert_ok(kiln_context_destroy(generic));
}

/* A generic tile is taken whole or as a half, by its rows: 230 are a whole one and a half one, 90 and 20 are half ones.
 */
START_TEST(a_generic_tile_has_two_widths) {
    static const int rows[] = {90, 230, 20};
    static const int32_t maths[] = {KILN_MATH_BALANCED, KILN_MATH_FAST, KILN_MATH_ACCURATE, 0, 0};
    static const kn_dtype types[] = {KN_F32, KN_F32, KN_F32, KN_BF16, KN_F16};
    for (int i = 0; i < 5; i++) {
        kn_gen_config c = routed_config(340, 128, 40, 3, 1);
        c.dtype = types[i];
        c.options.routed.math = maths[i];
        c.absent |= bit(OUT_GATE) | bit(OUT_UP) | bit(OUT_DOWN);
        check_counts(&c, rows, "two widths");
    }
}
END_TEST

/* Two tiles of a weight gradient are made side by side where B of both rests in shared memory, up to 128 rows; one
 * after the other up to 256; beyond, B is loaded again and again. H is two tiles and a piece. The exact kernels are
 * those for many rows, and twice those for few. */
START_TEST(weight_gradients_are_made_in_tiles) {
    static const int rows[3][5] = {{300, 0, 140, 100, 20}, {300, 0, 10, 8, 2}, {190, 0, 90, 30, 10}};
    for (int i = 0; i < 3; i++) {
        kn_gen_config c = routed_config(i ? 320 : 560, 520, 24, 5, 1);
        c.dtype = c.out_dtype = i == 1 ? KN_BF16 : KN_F32;
        c.options.common.accumulate = i == 1 ? 0 : 31;
        c.absent |= bit(OUT_HIDDEN) | bit(OUT_WEIGHTS);
        check_counts(&c, rows[i], "tiles");
    }
}
END_TEST

/* Whatever the workspace holds before a call has no part in its results. */
START_TEST(the_workspace_may_hold_anything) {
    kiln_context *ctx = open_context(KILN_SHAPES_DEFAULT, KILN_PATH_DEFAULT);
    int32_t type, id;
    ck_assert_ok(kiln_context_device(ctx, &type, &id));
    for (int i = 0; i < 6 && type == 1; i++) { /* on a GPU: test_routed_gpu.c */
        kn_gen_config c = routed_config(37, 64, 72, 5, 2);
        c.dtype = i & 1 ? KN_BF16 : KN_F32;
        c.options.routed.weight_on = i & 2 ? KILN_WEIGHT_ON_INPUT : KILN_WEIGHT_ON_OUTPUT;
        if (i > 3) c.options.routed.math = KILN_MATH_ACCURATE;
        kn_gen *g;
        uint64_t bytes;
        char *memory, *workspace;
        ck_assert_ok(kn_gen_make(&c, &g));
        kiln_common_options *common = &g->config.options.common;
        common->struct_size = sizeof g->config.options.routed;
        ck_assert_ok(kiln_workspace_size(ctx, c.op, g->args, N_ARGS, common, &bytes));
        ck_assert_ok(KN_NEW(&memory, bytes + 256, "a workspace"));
        workspace = memory + (256 - (uintptr_t)memory % 256);
        memset(workspace, 0xff, bytes);
        common->workspace = workspace;
        common->workspace_bytes = bytes;
        run_and_check(g, ctx, "poisoned workspace");
        kn_gen_free(g);
        kn_free(memory);
    }
    ck_assert_ok(kiln_context_destroy(ctx));
}
END_TEST

/* Weight gradients that are added to: 256 and then 1 is 257, and an expert without tokens keeps its bits. */
START_TEST(gradients_accumulate_in_fp32) {
    kiln_context *fast = open_context(KILN_SHAPES_DEFAULT, KILN_PATH_DEFAULT);
    kn_gen_config c = routed_config(8, 16, 16, 4, 1);
    c.options.common.accumulate = 31;
    kn_gen *g, *before;
    ck_assert_ok(kn_gen_make(&c, &g));
    ck_assert_ok(kn_gen_make(&c, &before));
    for (int64_t s = 0; s < 8; s++) {
        kn_gen_put(g, IDS, s, 1);
        kn_gen_put(before, IDS, s, 1);
    }
    run_and_check(g, fast, "accumulate");
    for (int out = OUT_GATE; out <= OUT_DOWN; out++) {
        const float *now = g->call.tensor[out].data, *then = before->call.tensor[out].data;
        ck_assert_mem_eq(now, then, 256 * 4);
        ck_assert_mem_eq(now + 512, then + 512, 512 * 4);
        ck_assert_mem_ne(now + 256, then + 256, 256 * 4);
    }
    kn_gen_free(g);
    kn_gen_free(before);
    ck_assert_ok(kiln_context_destroy(fast));
}
END_TEST

int main(void) {
    Suite *s = suite_create("ops/routed_bits");
    TCase *t = tcase_create("bits");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, repeats_and_kinds_of_kernel_agree_to_the_bit);
    tcase_add_test(t, a_generic_tile_has_two_widths);
    tcase_add_test(t, weight_gradients_are_made_in_tiles);
    tcase_add_test(t, the_workspace_may_hold_anything);
    tcase_add_test(t, gradients_accumulate_in_fp32);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
