/* expert_mlp_backward with activation functions of the caller's: spliced in through NVRTC, on the simulator as on a
 * GPU. Where there is no NVRTC only the refusals are tested. */
#include "expert_mlp_support.h"

#include "support/cuda_c.h"

#include <math.h>
#include <stdlib.h>

static const char geglu[] = "// the exact GELU\n"
                            "__device__ float cdf(float x) { return 0.5f * (1.0f + erff(x * 0.70710678f)); }\n"
                            "__device__ void f(float g, float u, float dh, float *h, float *dg, float *du) {\n"
                            "    float p = cdf(g), d = 0.3989422804f * expf(-0.5f * g * g);\n"
                            "    *h = g * p * u;\n"
                            "    *du = dh * g * p;\n"
                            "    *dg = dh * u * (p + g * d);\n"
                            "}\n";

/* Control flow: a clamp that returns early, and a loop. */
static const char branches[] = "__device__ void f(float g, float u, float dh, float *h, float *dg, float *du) {\n"
                               "    if (g < -1.0f) { *h = 0; *dg = 0; *du = 0; return; }\n"
                               "    float t = 1;\n"
                               "    for (int i = 0; i < (int)fabsf(u); i++) t = t * 0.5f + g;\n"
                               "    *h = t; *dg = dh * t; *du = -dh;\n"
                               "}\n";

static void expect_geglu(double g, double u, double dh, double *h, double *dg, double *du) {
    double p = 0.5 * (1 + erf(g / sqrt(2))), d = exp(-0.5 * g * g) / sqrt(2 * acos(-1));
    *h = g * p * u;
    *du = dh * g * p;
    *dg = dh * u * (p + g * d);
}

static void expect_branches(double g, double u, double dh, double *h, double *dg, double *du) {
    double t = 1;
    *h = *dg = *du = 0;
    if (g < -1) return;
    for (int i = 0; i < (int)fabs(u); i++) t = t * 0.5 + g;
    *h = t;
    *dg = dh * t;
    *du = -dh;
}

/* The same function as the built in one: checked by the reference of that. */
START_TEST(the_callers_swiglu) {
    if (!kn_have_nvrtc()) return;
    kiln_context *fast = open_context(KILN_SHAPES_DEFAULT, KILN_PATH_DEFAULT);
    kiln_context *portable = open_context(KILN_SHAPES_DEFAULT, KILN_PATH_PORTABLE);
    for (int i = 0; i < 4; i++) {
        kn_gen_config c = config_of(40, 24, 64, 72);
        if (i & 2) c.absent = SAVED;
        c.skip_percent = 20;
        kn_gen *g = make(&c);
        ck_assert_ok(kn_gen_reference(g));
        g->config.options.expert_mlp.activation.source = kn_swiglu_text;
        ck_assert_ok(kn_gen_run(g, i & 1 ? portable : fast));
        ck_assert_ok(kn_gen_check(g));
        kn_gen_free(g);
    }
    ck_assert_ok(kiln_context_destroy(fast));
    ck_assert_ok(kiln_context_destroy(portable));
}
END_TEST

/* grad_w3 = du^T x with a single token and x = (1, 0, ...): its first column is du itself; grad_w1's dg; grad_w2 = d^T
 * h with d = (1, 0, ...). */
static void check_function(kiln_context *ctx, const char *source,
                           void (*expect)(double g, double u, double dh, double *h, double *dg, double *du)) {
    enum { F = 200 };
    kn_gen_config c = config_of(1, 1, 8, F);
    c.absent = SAVED;
    kn_gen *g = make(&c);
    for (int64_t j = 0; j < 8; j++) {
        kn_gen_put(g, SELECTED_TOKENS, j, j == 0);
        kn_gen_put(g, GRAD_OUTPUT, j, j == 0);
    }
    kn_gen_put(g, TOKEN_INDICES, 0, 0);
    kn_gen_put(g, SELECTED_WEIGHTS, 0, 1);
    g->config.options.expert_mlp.activation.source = source;
    ck_assert_ok(kn_gen_run(g, ctx));
    for (int64_t j = 0; j < F; j++) {
        double h, dg, du, dh = kn_gen_get(g, W2, j);
        expect(kn_gen_get(g, W1_OUTPUT, j), kn_gen_get(g, UP_OUTPUT, j), dh, &h, &dg, &du);
        const double want[3] = {dg, h, du};
        const double got[3] = {kn_gen_get(g, OUT_W1, j * 8), kn_gen_get(g, OUT_W2, j), kn_gen_get(g, OUT_W3, j * 8)};
        for (int k = 0; k < 3; k++)
            ck_assert_msg(fabs(got[k] - want[k]) <= 0x1p-8 * fabs(want[k]) + 1e-6, "%d of column %lld: %g, wanted %g",
                          k, (long long)j, got[k], want[k]);
    }
    kn_gen_free(g);
}

START_TEST(geglu_and_branches) {
    if (!kn_have_nvrtc()) return;
    for (int path = KILN_PATH_AUTO; path <= KILN_PATH_PORTABLE; path++) {
        kiln_context *ctx = open_context(KILN_SHAPES_DEFAULT, path);
        check_function(ctx, geglu, expect_geglu);
        check_function(ctx, branches, expect_branches);
        check_function(ctx, geglu, expect_geglu); /* each its own kernel */
        ck_assert_ok(kiln_context_destroy(ctx));
    }
}
END_TEST

static void refused(kiln_context *ctx, const char *source, kn_status code, const char *part) {
    kn_gen_config c = config_of(4, 4, 8, 8);
    kn_gen *g = make(&c);
    g->config.options.expert_mlp.activation.source = source;
    ck_assert_fails(kn_gen_run(g, ctx), code, part);
    kn_gen_free(g);
}

START_TEST(what_is_no_activation_is_refused) {
    kiln_context *ctx = open_context(KILN_SHAPES_DEFAULT, KILN_PATH_DEFAULT);
    refused(ctx, "", KN_E_ARG, "activation.source is empty");
    kn_gen_config c = config_of(4, 4, 8, 8);
    c.options.expert_mlp.activation.alpha = 1.702;
    kn_gen *g = make(&c);
    g->config.options.expert_mlp.activation.source = geglu;
    ck_assert_fails(kn_gen_run(g, ctx), KN_E_ARG,
                    "activation.alpha, limit and offset are 1.702, 0 and 0 beside a source");
    kn_gen_free(g);
    if (kn_have_nvrtc()) {
        refused(ctx, "__device__ void f(float g) {}", KN_E_ASSEMBLE, "NVRTC");
        refused(ctx, "__device__ void f(float g, float u, float dh, float *h, float *dg, float *du) { *h = nothing; }",
                KN_E_ASSEMBLE, "activation.source(1)");
        refused(
            ctx,
            "__device__ float last;\n"
            "__device__ void f(float g, float u, float dh, float *h, float *dg, float *du) { *h = *dg = *du = last; }",
            KN_E_UNSUPPORTED, "it may use neither threads nor memory");
        refused(ctx,
                "__device__ void f(float g, float u, float dh, float *h, float *dg, float *du) {"
                " *h = *dg = *du = threadIdx.x; }",
                KN_E_UNSUPPORTED, "it may use neither threads nor memory");
        refused(
            ctx,
            "__device__ __noinline__ float k(float x) { return x; }\n"
            "__device__ void f(float g, float u, float dh, float *h, float *dg, float *du) { *h = *dg = *du = k(g); }",
            KN_E_UNSUPPORTED, "mark it __forceinline__");
    }
    ck_assert_ok(kiln_context_destroy(ctx));
}
END_TEST

int main(void) {
    Suite *s = suite_create("ops/expert_mlp_user");
    TCase *t = tcase_create("activations");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, the_callers_swiglu);
    tcase_add_test(t, geglu_and_branches);
    tcase_add_test(t, what_is_no_activation_is_refused);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
