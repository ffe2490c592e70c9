/* Sums of one sign, in `accurate`: nothing averages out, and the tensor core cuts its sums off, so that partial sums
 * must leave it before that shows. Chains of products add it up. The device is KILN_DEVICE's: the GPU where there is
 * one, else the simulator. */
#include "support/both_paths.h"

#include <math.h>

/* Make every input of free values positive. */
static void take_signs(kn_gen *g, const char *const *names) {
    for (; *names; names++) {
        int arg = kn_gen_arg(g->op.name, *names);
        for (int64_t i = 0; i < kn_gen_elements(g, arg); i++) kn_gen_put(g, arg, i, fabs(kn_gen_get(g, arg, i)));
    }
}

static void run_positive(const kn_gen_config *c, const char *const *names) {
    for (int path = 0; path < 2; path++) {
        kn_gen *g = make(c);
        take_signs(g, names);
        run_and_check(g, path ? portable : fast, path ? "portable" : "fast");
        kn_gen_free(g);
    }
}

/* Three products in a row, each with a depth of its own. */
START_TEST(routed_experts) {
    static const char *const names[] = {
        "grad_output", "hidden_states", "topk_weights", "gate_weights", "up_weights", "down_weights", NULL};
    static const int64_t sizes[][3] = {{3, 151, 104}, {3, 1000, 16}, {16, 512, 64}, {100, 40, 512}};
    open_both();
    for (int i = 0; i < 4; i++) {
        kn_gen_config c = kn_gen_defaults("routed_experts_backward");
        c.tokens = sizes[i][0];
        c.hidden = sizes[i][1];
        c.inner = sizes[i][2];
        c.experts = c.local_experts = c.top_k = 1;
        c.dtype = c.out_dtype = KN_F32;
        c.options.routed.math = KILN_MATH_ACCURATE;
        run_positive(&c, names);
    }
    close_both();
}
END_TEST

START_TEST(gemm) {
    static const char *const names[] = {"a", "b", NULL};
    open_both();
    for (int64_t k = 64; k <= 4096; k *= 8) {
        kn_gen_config c = kn_gen_defaults("gemm");
        c.m = c.n = 16;
        c.k = k;
        c.dtype = c.out_dtype = KN_F32;
        c.options.gemm.math = KILN_MATH_ACCURATE;
        run_positive(&c, names);
    }
    close_both();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ops/one_sign");
    TCase *t = tcase_create("accurate");
    tcase_add_test(t, routed_experts);
    tcase_add_test(t, gemm);
    suite_add_tcase(suite, t);
    return kn_run_suite(suite);
}
