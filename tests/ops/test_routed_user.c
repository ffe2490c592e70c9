/* routed_experts_backward with activation functions of the caller's, spliced in through NVRTC, on the simulator as on a
 * GPU. Where there is no NVRTC only the refusals are tested. */
#include "routed_support.h"

#include "support/cuda_c.h"

#include <math.h>
#include <stdlib.h>

/* The same, and no number where g or u is 0: padding must not enter a sum. */
static const char touchy[] = "__device__ void f(float g, float u, float dh, float *h, float *dg, float *du) {\n"
                             "    float s = 1.0f / (1.0f + expf(-g)), zero = g / g - 1.0f + (u / u - 1.0f);\n"
                             "    *h = g * s * u + zero;\n"
                             "    *du = dh * g * s + zero;\n"
                             "    *dg = dh * u * s * (1.0f + g * (1.0f - s)) + zero;\n"
                             "}\n";

/* The same function as the one built in: checked by the reference of that. */
START_TEST(the_callers_swiglu) {
    if (!kn_have_nvrtc()) return;
    kiln_context *fast = open_context(KILN_SHAPES_DEFAULT, KILN_PATH_DEFAULT);
    kiln_context *portable = open_context(KILN_SHAPES_DEFAULT, KILN_PATH_PORTABLE);
    static const kn_dtype types[] = {KN_F32, KN_BF16, KN_F16};
    for (int i = 0; i < 8; i++) {
        kn_gen_config c = routed_config(40, 64, i & 1 ? 72 : 37, 5, 2); /* 37: columns beyond the last one */
        c.dtype = types[i % 3];
        c.options.routed.weight_on = i & 4 ? KILN_WEIGHT_ON_INPUT : KILN_WEIGHT_ON_OUTPUT;
        if (i & 2) c.absent &= ~(bit(SAVED_GATE) | bit(SAVED_UP));
        kn_gen *g;
        ck_assert_ok(kn_gen_make(&c, &g));
        ck_assert_ok(kn_gen_reference(g));
        g->config.options.routed.activation.source = i & 1 ? touchy : kn_swiglu_text;
        ck_assert_ok(kn_gen_run(g, i % 4 == 3 ? portable : fast));
        kn_status st = kn_gen_check(g);
        ck_assert_msg(st == KN_OK, "%d: %s", i, kn_error_message());
        kn_gen_free(g);
    }
    ck_assert_ok(kiln_context_destroy(fast));
    ck_assert_ok(kiln_context_destroy(portable));
}
END_TEST

static void refused(kiln_context *ctx, const char *source, double limit, kn_status code, const char *part) {
    kn_gen_config c = routed_config(4, 8, 8, 2, 1);
    c.options.routed.activation.limit = limit;
    kn_gen *g;
    ck_assert_ok(kn_gen_make(&c, &g));
    g->config.options.routed.activation.source = source;
    ck_assert_fails(kn_gen_run(g, ctx), code, part);
    kn_gen_free(g);
}

START_TEST(what_is_no_activation_is_refused) {
    kiln_context *ctx = open_context(KILN_SHAPES_DEFAULT, KILN_PATH_DEFAULT);
    refused(ctx, "", 0, KN_E_ARG, "activation.source is empty");
    refused(ctx, kn_swiglu_text, 7, KN_E_ARG, "activation.alpha, limit and offset are 0, 7 and 0 beside a source");
    if (kn_have_nvrtc()) refused(ctx, "__device__ void f(float g) {}", 0, KN_E_ASSEMBLE, "NVRTC");
    ck_assert_ok(kiln_context_destroy(ctx));
}
END_TEST

int main(void) {
    Suite *s = suite_create("ops/routed_user");
    TCase *t = tcase_create("activations");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, the_callers_swiglu);
    tcase_add_test(t, what_is_no_activation_is_refused);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
