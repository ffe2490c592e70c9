/* The float64 references: every golden case, and cases with known values. Derivatives: test_reference_fd.c. */
#include "support/problem_gen.h"
#include "support/safetensors_read.h"
#include "support/suite.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/env.h"
#include "ops/ref_common.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- golden cases --------------------------------------------------------------------------------------------------
 */

/* A caller's true and false become KILN_TRUE and KILN_FALSE. */
static int32_t flag(const kn_st_file *f, const char *name, bool dflt) {
    return kn_st_option(f, name, dflt) != 0 ? KILN_TRUE : KILN_FALSE;
}

static kn_tensor tensor_of(const kn_st_tensor *from) {
    kn_tensor t = {0};
    if (!from) return t;
    t.dtype = from->dtype;
    t.ndim = from->ndim;
    t.data = from->data;
    int64_t stride = 1;
    for (int d = t.ndim - 1; d >= 0; d--) {
        t.shape[d] = from->shape[d];
        t.stride[d] = stride;
        stride *= from->shape[d];
    }
    return t;
}

static void check_output(const char *path, const kn_st_tensor *want, const double *exact, const double *magnitude) {
    int64_t n = 1;
    for (int d = 0; d < want->ndim; d++) n *= want->shape[d];
    const double *golden = want->data;
    for (int64_t i = 0; i < n; i++) {
        double err = fabs(exact[i] - golden[i]);
        ck_assert_msg(err <= 1e-13 * magnitude[i], "%s: %s[%lld] is %.17g, golden %.17g, magnitude %g", path,
                      want->name, (long long)i, exact[i], golden[i], magnitude[i]);
        ck_assert_msg(fabs(exact[i]) <= magnitude[i] * (1 + 1e-12), "%s: %s[%lld] exceeds its magnitude", path,
                      want->name, (long long)i);
    }
}

/* One file: all outputs that it holds. Returns how many. */
static int check_golden(const char *path) {
    kn_st_file f;
    kn_op op;
    kn_call call = {.op = &op};
    double *exact[8] = {0}, *magnitude[8] = {0};
    union {
        kiln_common_options common;
        kiln_load_balance_backward_options load_balance;
        kiln_moe_layer_backward_options moe_layer;
        unsigned char bytes[512];
    } options;
    char name[96];
    memset(&options, 0, sizeof options);
    ck_assert_ok(kn_st_read(path, &f));
    ck_assert_ok(kn_gen_op(f.op, &op));
    if (strcmp(f.op, "load_balance_backward") == 0) {
        options.load_balance.top_k = (int32_t)kn_st_option(&f, "top_k", 0);
    } else if (strcmp(f.op, "moe_layer_backward") == 0) {
        options.moe_layer.routed_scaling_factor = kn_st_option(&f, "routed_scaling_factor", 0);
        options.moe_layer.norm_topk_prob = flag(&f, "norm_topk_prob", true);
    } else {
        ck_assert_str_eq(f.options, "{}");
    }
    call.options = &options;
    int first_output = op.n_args - op.n_outputs, checked = 0;
    for (int i = 0; i < op.n_args; i++) {
        snprintf(name, sizeof name, "%s.%s", i < first_output ? "in" : "out", op.args[i].name);
        const kn_st_tensor *t = kn_st_find(&f, name);
        if (i < first_output) {
            call.tensor[i] = tensor_of(t);
        } else if (t) {
            int64_t n = 1;
            for (int d = 0; d < t->ndim; d++) n *= t->shape[d];
            ck_assert_ok(KN_NEW(&exact[i - first_output], n, "golden"));
            ck_assert_ok(KN_NEW(&magnitude[i - first_output], n, "golden"));
        }
    }
    ck_assert_ok(op.reference(&call, exact, magnitude));
    for (int i = first_output; i < op.n_args; i++) {
        snprintf(name, sizeof name, "out.%s", op.args[i].name);
        const kn_st_tensor *t = kn_st_find(&f, name);
        if (!t) continue;
        check_output(path, t, exact[i - first_output], magnitude[i - first_output]);
        checked++;
    }
    for (int i = 0; i < 8; i++) {
        kn_free(exact[i]);
        kn_free(magnitude[i]);
    }
    kn_st_free(&f);
    return checked;
}

static int check_folder(const char *op) {
    char folder[512], path[1024];
    int outputs = 0;
    snprintf(folder, sizeof folder, "%s/tests/data/golden/%s", kn_env_system("KN_SOURCE_DIR"), op);
    DIR *dir = opendir(folder);
    ck_assert_msg(dir != NULL, "cannot open %s", folder);
    for (struct dirent *e; (e = readdir(dir));) {
        if (!strstr(e->d_name, ".safetensors")) continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        outputs += check_golden(path);
    }
    closedir(dir);
    return outputs;
}

START_TEST(golden_cases) {
    ck_assert_int_eq(check_folder("load_balance_backward"), 4);
    ck_assert_int_eq(check_folder("router_backward"), 4 * 2);
    ck_assert_int_eq(check_folder("expert_mlp_backward"), 3 * 5);
    ck_assert_int_eq(check_folder("moe_layer_backward"), 3 * 5);
    ck_assert_int_eq(check_folder("routed_experts_backward"), 3 * 5);
}
END_TEST

/* ---- routers with known values -------------------------------------------------------------------------------------
 */

enum { ROUTER_LOGITS_OUT = 3 };

/* One token (or `tokens` equal ones) of a softmax or sigmoid router with the given logits, ids and weight gradients. */
static kn_gen *router_case(kn_gen_config *c, int64_t experts, const double *z, int64_t k, const int64_t *ids,
                           const double *g) {
    kn_gen *p;
    const char *op = "router_backward";
    c->experts = experts;
    c->top_k = k;
    c->hidden = 1;
    c->side_dtype = KN_F32;
    ck_assert_ok(kn_gen_make(c, &p));
    int probs = kn_gen_arg(op, "routing_probs"), selected = kn_gen_arg(op, "selected_experts");
    int grad = kn_gen_arg(op, "grad_routing_weights");
    double largest = -(double)INFINITY, sum = 0;
    for (int64_t e = 0; e < experts; e++) largest = fmax(largest, z[e]);
    for (int64_t e = 0; e < experts; e++) sum += exp(z[e] - largest);
    for (int64_t t = 0; t < c->tokens; t++) {
        for (int64_t e = 0; e < experts; e++) {
            double s = c->options.router.score == KILN_SCORE_SIGMOID ? kn_ref_sigmoid(z[e])
                       : isinf(largest)                              ? 0
                                                                     : exp(z[e] - largest) / sum;
            kn_gen_put(p, probs, t * experts + e, s);
        }
        for (int64_t j = 0; j < k; j++) {
            kn_gen_put(p, selected, t * k + j, (double)ids[j]);
            kn_gen_put(p, grad, t * k + j, g[j]);
        }
    }
    return p;
}

static void expect_dz(kn_gen *p, const double *want, int64_t n, double tolerance) {
    ck_assert_ok(kn_gen_reference(p));
    for (int64_t e = 0; e < n; e++) {
        double got = p->exact[ROUTER_LOGITS_OUT][e];
        ck_assert_msg(fabs(got - want[e]) <= tolerance, "dz[%lld] is %.9g, wanted %.9g", (long long)e, got, want[e]);
    }
}

static kn_gen_config router_defaults(void) {
    kn_gen_config c = kn_gen_defaults("router_backward");
    c.tokens = 1;
    return c;
}

START_TEST(one_normalised_expert_has_no_gradient) {
    const double z[] = {0, 1, 2, 3}, g[] = {1}, zero[4] = {0};
    const double plain[] = {-0.0206430, -0.0561135, -0.1525322, 0.2292887};
    const int64_t ids[] = {3};
    kn_gen_config c = router_defaults();
    kn_gen *p = router_case(&c, 4, z, 1, ids, g);
    expect_dz(p, zero, 4, 0);
    kn_gen_free(p);
    c.options.router.normalise = KILN_NORMALISE_NONE;
    p = router_case(&c, 4, z, 1, ids, g);
    expect_dz(p, plain, 4, 1e-7);
    kn_gen_free(p);
}
END_TEST

START_TEST(underflowed_sigmoid_scores_give_zeros) {
    const double z[] = {-200, -200, -200, -200}, g[] = {1, 0}, zero[4] = {0};
    const int64_t ids[] = {1, 3};
    kn_gen_config c = router_defaults();
    c.options.router.score = KILN_SCORE_SIGMOID;
    c.options.router.normalise = KILN_NORMALISE_SUM_EPS;
    kn_gen *p = router_case(&c, 4, z, 2, ids, g);
    expect_dz(p, zero, 4, 0);
    kn_gen_free(p);
}
END_TEST

START_TEST(masked_experts_have_no_gradient) {
    const double z[] = {0, -(double)INFINITY, 2, 3}, g[] = {1, 0}, want[] = {0, 0, -0.1966119, 0.1966119};
    const double none[] = {-(double)INFINITY, -(double)INFINITY}, zero[2] = {0};
    const int64_t ids[] = {3, 2}, both[] = {0, 1};
    kn_gen_config c = router_defaults();
    kn_gen *p = router_case(&c, 4, z, 2, ids, g);
    expect_dz(p, want, 4, 1e-7);
    ck_assert(p->exact[ROUTER_LOGITS_OUT][1] == 0);
    kn_gen_free(p);
    c.options.router.normalise = KILN_NORMALISE_SUM_EPS; /* a row whose experts are all masked away */
    p = router_case(&c, 2, none, 2, both, g);
    expect_dz(p, zero, 2, 0);
    kn_gen_free(p);
}
END_TEST

START_TEST(all_experts_selected_is_a_plain_softmax) {
    const double z[] = {0, 1, 2, 3}, g[] = {1, 2, 3, 4};
    const double want[] = {-0.0799110, -0.1300762, -0.1167010, 0.3266881};
    const int64_t ids[] = {0, 1, 2, 3};
    kn_gen_config c = router_defaults();
    kn_gen *p = router_case(&c, 4, z, 4, ids, g);
    expect_dz(p, want, 4, 1e-7);
    kn_gen_free(p);
}
END_TEST

START_TEST(balance_loss_reaches_every_expert) {
    const double z[4] = {0}, g[] = {0}, want[] = {0.001875, -0.000625, -0.000625, -0.000625}, zero[4] = {0};
    const int64_t ids[] = {0};
    const char *op = "router_backward";
    int aux = kn_gen_arg(op, "aux_expert_coefficients");
    kn_gen_config c = router_defaults();
    c.tokens = 4;
    c.absent &= ~((uint64_t)1 << aux);
    kn_gen *p = router_case(&c, 4, z, 1, ids, g);
    /* a_e = coefficient * E * n_e / (K T^2), all four tokens at expert 0 */
    for (int64_t e = 0; e < 4; e++) kn_gen_put(p, aux, e, e ? 0 : 0.01 * 4 * 4 / 16);
    expect_dz(p, want, 4, 1e-9);
    for (int64_t e = 0; e < 4; e++) kn_gen_put(p, aux, e, 0.01); /* equal counts */
    expect_dz(p, zero, 4, 1e-12);
    kn_gen_free(p);
}
END_TEST

START_TEST(masked_tokens_enter_nothing) {
    const char *op = "router_backward";
    kn_gen_config c = kn_gen_defaults(op);
    int mask = kn_gen_arg(op, "token_mask"), hidden = kn_gen_arg(op, "hidden_states");
    c.absent &= ~((uint64_t)1 << mask);
    kn_gen *p;
    ck_assert_ok(kn_gen_make(&c, &p));
    for (int64_t t = 0; t < c.tokens; t++) kn_gen_put(p, mask, t, t != 5);
    for (int64_t j = 0; j < c.hidden; j++) kn_gen_put(p, hidden, 5 * c.hidden + j, (double)NAN);
    ck_assert_ok(kn_gen_reference(p));
    for (int64_t i = 0; i < c.experts * c.hidden; i++) ck_assert(isfinite(p->exact[1][i]));
    for (int64_t j = 0; j < c.hidden; j++) ck_assert(p->exact[0][5 * c.hidden + j] == 0);
    for (int64_t e = 0; e < c.experts; e++) ck_assert(p->exact[3][5 * c.experts + e] == 0);
    kn_gen_free(p);
}
END_TEST

/* The stand-in gradient |grad_output|^2 / K, where no normalisation cancels it. */
START_TEST(the_stand_in_gradient_of_topk_weights) {
    const char *op = "moe_layer_backward";
    kn_gen_config c = kn_gen_defaults(op);
    c.tokens = 1;
    c.options.moe_layer.norm_topk_prob = KILN_FALSE;
    c.options.moe_layer.routed_scaling_factor = 2.5;
    kn_gen *p;
    ck_assert_ok(kn_gen_make(&c, &p));
    ck_assert_ok(kn_gen_reference(p));
    double norm = 0;
    for (int64_t j = 0; j < c.hidden; j++) norm += pow(kn_gen_get(p, kn_gen_arg(op, "grad_output"), j), 2);
    int64_t e = (int64_t)kn_gen_get(p, kn_gen_arg(op, "topk_indices"), 1);
    double s = kn_gen_get(p, kn_gen_arg(op, "scores"), e);
    double dz = norm / (double)c.top_k / 2.5 * s * (1 - s);
    for (int64_t j = 0; j < c.hidden; j++) {
        double want = dz * kn_gen_get(p, kn_gen_arg(op, "hidden_states"), j);
        ck_assert(fabs(p->exact[1][e * c.hidden + j] - want) <= 1e-13 * fabs(want));
    }
    kn_gen_free(p);
}
END_TEST

/* ---- activation ----------------------------------------------------------------------------------------------------
 */

START_TEST(silu_is_finite_everywhere) {
    const struct {
        double g, dg, du, tolerance;
    } rows[] = {{-1e4, 0, 0, 1e-40},
                {-200, 0, 0, 1e-40},
                {-100, 0, 0, 1e-40},
                {-87.5, -8.6347e-37, -8.7346e-37, 1e-41},
                {-1, 0.0723295, -0.2689414, 1e-7},
                {0, 0.5, 0, 0},
                {1, 0.9276705, 0.7310586, 1e-7},
                {100, 1, 100, 1e-12},
                {65504, 1, 65504, 1e-12}};
    kn_ref_act act = {.alpha = 1, .limit = (double)INFINITY};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        kn_ref_act_parts p = kn_ref_act_eval(&act, (kn_ref_num){rows[i].g, fabs(rows[i].g)}, (kn_ref_num){1, 1});
        ck_assert_msg(fabs(p.dsilu.x - rows[i].dg) <= rows[i].tolerance, "g %g: dg %.9g", rows[i].g, p.dsilu.x);
        ck_assert_msg(fabs(p.silu.x - rows[i].du) <= rows[i].tolerance, "g %g: du %.9g", rows[i].g, p.silu.x);
    }
}
END_TEST

/* A product of the caller's, which counts its calls; user: {calls, status}. */
static int32_t plain_product(void *user, int64_t m, int64_t n, int64_t k, const double *a, int64_t a_row, int64_t a_col,
                             const double *b, double *out) {
    int32_t *state = user;
    state[0]++;
    for (int64_t i = 0; i < m; i++)
        for (int64_t l = 0; l < k; l++)
            for (int64_t j = 0; j < n; j++) out[i * n + j] += a[i * a_row + l * a_col] * b[l * n + j];
    return state[1];
}

START_TEST(callers_may_multiply) {
    kn_gen_config c = kn_gen_defaults("moe_layer_backward");
    c.tokens = c.hidden = 128;
    c.inner = 96;
    kn_gen *own, *given;
    ck_assert_ok(kn_gen_make(&c, &own));
    ck_assert_ok(kn_gen_make(&c, &given));
    ck_assert_ok(kn_gen_reference(own));
    int32_t state[2] = {0, KILN_OK};
    ck_assert_ok(kiln_reference_products(plain_product, state));
    ck_assert_ok(kn_gen_reference(given));
    ck_assert_int_eq(state[0], 12); /* six products, each with its magnitudes; the router's two are small */
    for (int i = 0; i < own->op.n_outputs; i++) {
        size_t bytes = (size_t)kn_gen_elements(own, own->op.n_args - own->op.n_outputs + i) * sizeof(double);
        ck_assert_mem_eq(own->exact[i], given->exact[i], bytes);
        ck_assert_mem_eq(own->magnitude[i], given->magnitude[i], bytes);
    }
    state[1] = KILN_E_LAUNCH;
    ck_assert_int_eq(kn_gen_reference(given), KILN_E_LAUNCH);
    ck_assert_ok(kiln_reference_products(NULL, NULL));
    ck_assert_ok(kn_gen_reference(given));
    ck_assert_int_eq(state[0], 13);
    kn_gen_free(own);
    kn_gen_free(given);
}
END_TEST

/* Kernels take a logistic function below fp32's smallest normal number for zero, and multiply the result by anything.
 */
START_TEST(magnitudes_know_underflow) {
    kn_ref_act act = {.alpha = 1, .limit = (double)INFINITY};
    kn_ref_act_parts p = kn_ref_act_eval(&act, (kn_ref_num){-88, 88}, (kn_ref_num){1, 1});
    ck_assert(fabs(p.silu.x) < 0x1p-118 && fabs(p.dsilu.x) < 0x1p-118);
    ck_assert(p.silu.m * 4 * 0x1p-20 > fabs(p.silu.x));
    ck_assert(p.dsilu.m * 4 * 0x1p-20 > fabs(p.dsilu.x));
    p = kn_ref_act_eval(&act, (kn_ref_num){-20, 20}, (kn_ref_num){1, 1});
    ck_assert(p.silu.m < 1.001 * fabs(p.silu.x) && p.dsilu.m < 1.2 * fabs(p.dsilu.x));
}
END_TEST

/* gate_output may be read or made again from w1_output: Abs has room for a rounding between them, no more. */
START_TEST(magnitudes_know_what_is_made_again) {
    const char *op = "expert_mlp_backward";
    enum { OUT_W3 = 4 };
    double magnitude[3];
    for (int i = 0; i < 3; i++) {
        kn_gen_config c = kn_gen_defaults(op);
        c.absent = 0;
        kn_gen *g;
        ck_assert_ok(kn_gen_make(&c, &g));
        int64_t n = kn_gen_elements(g, kn_gen_arg(op, "w1_output"));
        for (int64_t j = 0; j < n; j++) {
            kn_gen_put(g, kn_gen_arg(op, "w1_output"), j, 32); /* silu(32) is 32 in every type */
            kn_gen_put(g, kn_gen_arg(op, "gate_output"), j, i == 0 ? 32 : i == 1 ? 32.25 : 64);
        }
        ck_assert_ok(kn_gen_reference(g));
        magnitude[i] = g->magnitude[OUT_W3][0];
        kn_gen_free(g);
    }
    ck_assert_double_eq_tol(magnitude[1] / magnitude[0], 1.5 * 32.25 / 32, 1e-9);
    ck_assert_double_eq_tol(magnitude[2] / magnitude[0], 1.5 * 2, 1e-9);
}
END_TEST

START_TEST(a_users_activation_has_no_reference) {
    kn_gen_config c = kn_gen_defaults("routed_experts_backward");
    c.options.routed.activation.source = "f";
    kn_gen *p;
    ck_assert_ok(kn_gen_make(&c, &p));
    ck_assert_fails(kn_gen_reference(p), KN_E_UNSUPPORTED, "activation.source");
    kn_gen_free(p);
}
END_TEST

/* ---- ids, accumulation ---------------------------------------------------------------------------------------------
 */

/* One token with two slots at expert 3, weights 1/4 and 3/4, does what one slot of weight 1 does. */
START_TEST(duplicate_ids_add_up) {
    const char *op = "routed_experts_backward";
    int ids = kn_gen_arg(op, "topk_indices"), weights = kn_gen_arg(op, "topk_weights");
    kn_gen_config c = kn_gen_defaults(op);
    c.tokens = 1;
    c.top_k = 2;
    kn_gen *p, *one;
    ck_assert_ok(kn_gen_make(&c, &p));
    ck_assert_ok(kn_gen_make(&c, &one));
    for (int j = 0; j < 2; j++) {
        kn_gen_put(p, ids, j, 3);
        kn_gen_put(p, weights, j, j ? 0.75 : 0.25);
        kn_gen_put(one, ids, j, j ? -1 : 3);
        kn_gen_put(one, weights, j, j ? (double)NAN : 1);
    }
    ck_assert_ok(kn_gen_reference(p));
    ck_assert_ok(kn_gen_reference(one));
    for (int output = 0; output < 5; output++) {
        if (output == 1) continue;
        int64_t n = kn_gen_elements(p, p->op.n_args - 5 + output);
        for (int64_t i = 0; i < n; i++) {
            ck_assert(fabs(p->exact[output][i] - one->exact[output][i]) <= 1e-12 * one->magnitude[output][i]);
        }
    }
    ck_assert(p->exact[1][0] == p->exact[1][1] && p->exact[1][0] == one->exact[1][0] && one->exact[1][1] == 0);
    kn_gen_free(p);
    kn_gen_free(one);
}
END_TEST

START_TEST(skipped_rows_may_hold_anything) {
    const char *op = "expert_mlp_backward";
    kn_gen_config c = kn_gen_defaults(op);
    kn_gen *p;
    ck_assert_ok(kn_gen_make(&c, &p));
    const char *rows[] = {"selected_tokens", "w1_output", "up_output"};
    kn_gen_put(p, kn_gen_arg(op, "token_indices"), 2, -1);
    kn_gen_put(p, kn_gen_arg(op, "token_indices"), 3, 1e9); /* no id at all */
    for (int r = 0; r < 3; r++) {
        int a = kn_gen_arg(op, rows[r]);
        int64_t width = kn_gen_elements(p, a) / c.tokens;
        for (int64_t j = 0; j < 2 * width; j++) kn_gen_put(p, a, 2 * width + j, (double)NAN);
    }
    ck_assert_ok(kn_gen_reference(p));
    for (int output = 0; output < 5; output++) {
        int64_t n = kn_gen_elements(p, p->op.n_args - 5 + output);
        for (int64_t i = 0; i < n; i++) ck_assert(isfinite(p->exact[output][i]));
    }
    kn_gen_free(p);
}
END_TEST

/* 256 and then 1 into the same fp32 gradient is 257; without accumulation the NaN in it is not seen. */
START_TEST(accumulation_reads_the_output) {
    kn_gen_config c = kn_gen_defaults("gemm");
    c.m = c.n = c.k = 1;
    c.options.common.accumulate = 1;
    kn_gen *p;
    ck_assert_ok(kn_gen_make(&c, &p));
    kn_gen_put(p, 0, 0, 1);
    kn_gen_put(p, 1, 0, -1);
    kn_gen_put(p, 2, 0, 256);
    ck_assert_ok(kn_gen_reference(p));
    ck_assert(p->exact[0][0] == 255 && p->magnitude[0][0] == 257);
    p->config.options.common.accumulate = 0;
    kn_gen_put(p, 2, 0, (double)NAN);
    ck_assert_ok(kn_gen_reference(p));
    ck_assert(p->exact[0][0] == -1 && p->magnitude[0][0] == 1);
    kn_gen_free(p);
}
END_TEST

/* Sorted rows with offsets are the same problem as ids, and saved gate and up are what would be recomputed. */
START_TEST(forms_of_routed_experts_agree) {
    const char *op = "routed_experts_backward";
    kn_gen_config c = kn_gen_defaults(op);
    c.top_k = 1;
    c.sorted = 1;
    kn_gen *sorted, *ids, *saved;
    ck_assert_ok(kn_gen_make(&c, &sorted));
    c.absent &= ~((uint64_t)3 << kn_gen_arg(op, "saved_gate"));
    ck_assert_ok(kn_gen_make(&c, &saved));
    c.sorted = 0;
    ck_assert_ok(kn_gen_make(&c, &ids));
    int offsets = kn_gen_arg(op, "expert_offsets");
    const char *shared[] = {"grad_output",  "hidden_states", "topk_weights",
                            "gate_weights", "up_weights",    "down_weights"};
    for (int s = 0; s < 6; s++) {
        int a = kn_gen_arg(op, shared[s]);
        for (int64_t i = 0, n = kn_gen_elements(ids, a); i < n; i++) kn_gen_put(ids, a, i, kn_gen_get(sorted, a, i));
    }
    for (int64_t e = 0; e < c.local_experts; e++) {
        for (int64_t t = (int64_t)kn_gen_get(sorted, offsets, e); t < (int64_t)kn_gen_get(sorted, offsets, e + 1);
             t++) {
            kn_gen_put(ids, kn_gen_arg(op, "topk_indices"), t, (double)e);
        }
    }
    ids->call.tensor[kn_gen_arg(op, "saved_gate")].dtype = KN_DTYPE_NONE;
    ids->call.tensor[kn_gen_arg(op, "saved_up")].dtype = KN_DTYPE_NONE;
    ck_assert_ok(kn_gen_reference(sorted));
    ck_assert_ok(kn_gen_reference(ids));
    ck_assert_ok(kn_gen_reference(saved));
    for (int output = 0; output < 5; output++) {
        int64_t n = kn_gen_elements(ids, ids->op.n_args - 5 + output);
        for (int64_t i = 0; i < n; i++) {
            ck_assert(ids->exact[output][i] == sorted->exact[output][i]);
            ck_assert(fabs(ids->exact[output][i] - saved->exact[output][i]) <= 1e-6 * ids->magnitude[output][i]);
        }
    }
    kn_gen_free(sorted);
    kn_gen_free(ids);
    kn_gen_free(saved);
}
END_TEST

/* Gaps between rows, either axis of products contiguous, and 32-bit ids change nothing. */
START_TEST(layouts_do_not_matter) {
    static const char *const ops[] = {"load_balance_backward", "router_backward",         "expert_mlp_backward",
                                      "moe_layer_backward",    "routed_experts_backward", "gemm",
                                      "grouped_gemm"};
    kn_gen_config c = kn_gen_defaults(ops[_i]);
    kn_gen *compact, *spread;
    c.absent = 0;
    c.skip_percent = 10;
    c.options.common.accumulate = 1;
    ck_assert_ok(kn_gen_make(&c, &compact));
    c.gap = 5;
    c.id_dtype = KN_I32;
    if (_i >= 5) c.swapped = 3;
    ck_assert_ok(kn_gen_make(&c, &spread));
    ck_assert_ok(kn_gen_reference(compact));
    ck_assert_ok(kn_gen_reference(spread));
    for (int o = 0; o < compact->op.n_outputs; o++) {
        int64_t n = kn_gen_elements(compact, compact->op.n_args - compact->op.n_outputs + o);
        ck_assert_mem_eq(compact->exact[o], spread->exact[o], (size_t)n * sizeof(double));
        ck_assert_mem_eq(compact->magnitude[o], spread->magnitude[o], (size_t)n * sizeof(double));
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += fabs(compact->exact[o][i]);
        ck_assert(sum > 0);
    }
    kn_gen_store_exact(spread);
    ck_assert_ok(kn_gen_check(spread));
    kn_gen_free(compact);
    kn_gen_free(spread);
}
END_TEST

START_TEST(grouped_products_are_products) {
    for (int ragged = 0; ragged < 2; ragged++) {
        kn_gen_config c = kn_gen_defaults("grouped_gemm");
        c.options.grouped.ragged = ragged;
        c.swapped = 1;
        kn_gen *p;
        ck_assert_ok(kn_gen_make(&c, &p));
        ck_assert_ok(kn_gen_reference(p));
        int64_t outputs = kn_gen_elements(p, 3);
        for (int64_t i = 0; i < outputs; i++) {
            int64_t col = i % c.n, row = i / c.n % c.m, group = i / c.n / c.m, from = 0, to = c.k;
            if (ragged == KILN_RAGGED_K) {
                from = (int64_t)kn_gen_get(p, 2, group);
                to = (int64_t)kn_gen_get(p, 2, group + 1);
            } else {
                while ((int64_t)kn_gen_get(p, 2, group + 1) <= row) group++;
            }
            double sum = 0;
            for (int64_t k = from; k < to; k++) {
                int64_t b = ragged == KILN_RAGGED_K ? k * c.n + col : (group * c.k + k) * c.n + col;
                sum += kn_gen_get(p, 0, row * c.k + k) * kn_gen_get(p, 1, b);
            }
            ck_assert_double_eq_tol(p->exact[0][i], sum, 1e-12);
        }
        kn_gen_free(p);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ops/reference");
    TCase *t = tcase_create("reference");
    tcase_add_test(t, golden_cases);
    tcase_add_test(t, one_normalised_expert_has_no_gradient);
    tcase_add_test(t, underflowed_sigmoid_scores_give_zeros);
    tcase_add_test(t, masked_experts_have_no_gradient);
    tcase_add_test(t, all_experts_selected_is_a_plain_softmax);
    tcase_add_test(t, balance_loss_reaches_every_expert);
    tcase_add_test(t, masked_tokens_enter_nothing);
    tcase_add_test(t, the_stand_in_gradient_of_topk_weights);
    tcase_add_test(t, silu_is_finite_everywhere);
    tcase_add_test(t, callers_may_multiply);
    tcase_add_test(t, magnitudes_know_underflow);
    tcase_add_test(t, magnitudes_know_what_is_made_again);
    tcase_add_test(t, a_users_activation_has_no_reference);
    tcase_add_test(t, duplicate_ids_add_up);
    tcase_add_test(t, skipped_rows_may_hold_anything);
    tcase_add_test(t, accumulation_reads_the_output);
    tcase_add_test(t, forms_of_routed_experts_agree);
    tcase_add_loop_test(t, layouts_do_not_matter, 0, 7);
    tcase_add_test(t, grouped_products_are_products);
    suite_add_tcase(suite, t);
    return kn_run_suite(suite);
}
