/* gemm on both paths: aligned sizes on the fast one, and the same bits from both. Random sizes: test_gemm_random.c. The
 * device is KILN_DEVICE's: the GPU where there is one, else the simulator. */
#include "base/alloc.h"
#include "support/both_paths.h"

static const kn_dtype floats[] = {KN_BF16, KN_F16, KN_F32};

START_TEST(aligned_products_on_the_fast_path) {
    open_both();
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
        run_one(&c, fast, "fast");
    }
    close_both();
}
END_TEST

/* Both paths sum in steps of 16 of k, in order, with the tensor core's own adder: not a bit may differ. */
START_TEST(both_paths_give_the_same_bits) {
    open_both();
    kn_gen_config c = kn_gen_defaults("gemm");
    c.m = 200, c.n = 136, c.k = 264;
    c.dtype = KN_BF16;
    c.out_dtype = KN_F32;
    kn_gen *a, *b;
    ck_assert_ok(kn_gen_make(&c, &a));
    ck_assert_ok(kn_gen_make(&c, &b));
    ck_assert_ok(kn_gen_run(a, fast));
    ck_assert_ok(kn_gen_run(b, portable));
    ck_assert_mem_eq(a->tensor[2].data, b->tensor[2].data, 200 * 136 * 4);
    kn_gen_free(a);
    kn_gen_free(b);
    close_both();
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
