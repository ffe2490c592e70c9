/* The comparator: what is right passes, also with the noise that a tolerance leaves room for; every kind of wrong
 * output is caught, in every operation, at input scales 1e-3, 1 and 1e3. */
#include "support/problem_gen.h"
#include "support/suite.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const all_ops[] = {"load_balance_backward", "router_backward",         "expert_mlp_backward",
                                      "moe_layer_backward",    "routed_experts_backward", "gemm",
                                      "grouped_gemm"};
enum { N_OPS = sizeof all_ops / sizeof all_ops[0], RUNS = N_OPS * 3 * 2 };

/* A problem that is large enough for every rule. */
static kn_gen_config large(const char *op, double scale, kn_dtype out) {
    kn_gen_config c = kn_gen_defaults(op);
    c.batch = 96;
    c.tokens = 72;
    c.hidden = c.inner = c.m = c.n = c.k = 64;
    c.experts = c.local_experts = 8;
    c.top_k = 2;
    c.groups = 3;
    c.scale = scale;
    c.out_dtype = out;
    int g = kn_gen_arg(op, "grad_topk_weights");
    if (strcmp(op, "moe_layer_backward") == 0) c.absent &= ~((uint64_t)1 << g);
    return c;
}

static kn_gen *made(const kn_gen_config *c) {
    kn_gen *g;
    ck_assert_ok(kn_gen_make(c, &g));
    ck_assert_ok(kn_gen_reference(g));
    kn_gen_store_exact(g);
    return g;
}

static kn_gen *run_of(int run) {
    static const double scales[] = {1e-3, 1, 1e3};
    kn_gen_config c = large(all_ops[run % N_OPS], scales[run / N_OPS % 3], run / N_OPS / 3 ? KN_BF16 : KN_F32);
    return made(&c);
}

static int first_output(const kn_gen *g) {
    return g->op.n_args - g->op.n_outputs;
}

static kiln_check_result result_of(kn_gen *g, int output) {
    kiln_check_result results[8];
    ck_assert_ok(kn_gen_compare(g, results));
    return results[output];
}

static void expect(kn_gen *g, int output, bool pass, const char *what) {
    kiln_check_result r = result_of(g, output);
    ck_assert_msg((r.pass != 0) == pass, "%s, %s, %s, scale %g: %s (ratio %g, frobenius %g, worst slice %g)",
                  g->op.name, g->op.args[first_output(g) + output].name, what, g->config.scale,
                  pass ? r.message : "passes", r.max_ratio, r.frobenius, r.worst_slice);
    ck_assert_msg(pass == (r.message[0] == '\0'), "%s: message \"%s\"", what, r.message);
}

/* Elements of an output, and where its rows lie: rows of the first expert that has tokens, in a tensor of experts. */
typedef struct view {
    int arg, output;
    int64_t n, width, start, rows;
} view;

static view view_of(const kn_gen *g, int output) {
    const kn_tensor *t = &g->call.tensor[first_output(g) + output];
    view v = {.arg = first_output(g) + output, .output = output, .n = kn_gen_elements(g, first_output(g) + output)};
    v.width = t->ndim > 1 ? t->shape[t->ndim - 1] : 1;
    v.rows = v.n / v.width;
    if (t->ndim == 3) {
        int64_t slice = v.n / t->shape[0];
        while (g->exact[output][v.start] == 0) v.start += slice;
        v.rows = slice / v.width;
    }
    return v;
}

/* The index-th row with something in it, counted from 0. */
static int64_t full_row(const kn_gen *g, const view *v, int index) {
    for (int64_t r = 0; r < v->rows; r++) {
        double largest = 0;
        for (int64_t j = 0; j < v->width; j++)
            largest = fmax(largest, fabs(g->exact[v->output][v->start + r * v->width + j]));
        if (largest > 0 && index-- == 0) return v->start + r * v->width;
    }
    ck_abort_msg("%s has no two full rows", g->op.args[v->arg].name);
    return -1;
}

static void restore(kn_gen *g) {
    kn_gen_store_exact(g);
}

START_TEST(the_exact_result_passes) {
    kn_gen *g = run_of(_i);
    for (int o = 0; o < g->op.n_outputs; o++) expect(g, o, true, "exact");
    kn_gen_free(g);
}
END_TEST

START_TEST(zeros_are_caught) {
    kn_gen *g = run_of(_i);
    for (int o = 0; o < g->op.n_outputs; o++) {
        view v = view_of(g, o);
        for (int64_t i = 0; i < v.n; i++) kn_gen_put(g, v.arg, i, 0);
        expect(g, o, false, "all zeros");
        restore(g);
        int64_t row = full_row(g, &v, 3);
        for (int64_t j = 0; j < v.width; j++) kn_gen_put(g, v.arg, row + j, 0);
        expect(g, o, false, "a row of zeros");
        restore(g);
    }
    kn_gen_free(g);
}
END_TEST

/* In a vector the rows to swap are its largest and smallest element: neighbours may be almost equal. */
static void choose_rows(const kn_gen *g, const view *v, int64_t *a, int64_t *b) {
    *a = full_row(g, v, 2);
    *b = full_row(g, v, 4);
    for (int64_t i = 0; v->width == 1 && i < v->n; i++) {
        if (g->exact[v->output][i] > g->exact[v->output][*a]) *a = i;
        if (g->exact[v->output][i] < g->exact[v->output][*b]) *b = i;
    }
}

START_TEST(swapped_rows_are_caught) {
    kn_gen *g = run_of(_i);
    for (int o = 0; o < g->op.n_outputs; o++) {
        view v = view_of(g, o);
        int64_t a, b;
        choose_rows(g, &v, &a, &b);
        for (int64_t j = 0; j < v.width; j++) {
            kn_gen_put(g, v.arg, a + j, g->exact[o][b + j]);
            kn_gen_put(g, v.arg, b + j, g->exact[o][a + j]);
        }
        expect(g, o, false, "two rows swapped");
        restore(g);
    }
    kn_gen_free(g);
}
END_TEST

START_TEST(a_nan_is_caught) {
    kn_gen *g = run_of(_i);
    for (int o = 0; o < g->op.n_outputs; o++) {
        view v = view_of(g, o);
        kn_gen_put(g, v.arg, v.n / 3, (double)NAN);
        kiln_check_result r = result_of(g, o);
        ck_assert(!r.pass && r.bad_elements == 1 && r.worst_index == (uint64_t)(v.n / 3));
        ck_assert_msg(strstr(r.message, "is NaN") != NULL, "%s", r.message);
        kn_gen_put(g, v.arg, v.n / 3, -(double)INFINITY);
        expect(g, o, false, "an infinity");
        restore(g);
    }
    kn_gen_free(g);
}
END_TEST

START_TEST(a_scaled_expert_is_caught) {
    kn_gen *g = run_of(_i);
    for (int o = 0; o < g->op.n_outputs; o++) {
        view v = view_of(g, o);
        const kn_tensor *t = &g->call.tensor[v.arg];
        /* one expert of a tensor of experts, one row of gate_weight's gradient, all of the others */
        bool by_row = t->ndim == 2 && t->shape[0] == g->config.experts;
        int64_t from = by_row ? full_row(g, &v, 1) : v.start, n = by_row ? v.width : v.rows * v.width;
        for (int64_t i = 0; i < n; i++) kn_gen_put(g, v.arg, from + i, 1.02 * g->exact[o][from + i]);
        expect(g, o, false, "scaled by 1.02");
        restore(g);
    }
    kn_gen_free(g);
}
END_TEST

/* The result of the same problem without one slot, in the operations that have slots. */
START_TEST(a_dropped_slot_is_caught) {
    kn_gen *g = run_of(_i);
    int ids = kn_gen_arg(g->op.name, "topk_indices");
    if (ids < 0) ids = kn_gen_arg(g->op.name, "selected_experts");
    if (ids >= 0) {
        kn_gen *less;
        ck_assert_ok(kn_gen_make(&g->config, &less));
        kn_gen_put(less, ids, 2 * 7 + 1, -1);
        ck_assert_ok(kn_gen_reference(less));
        for (int o = 0; o < g->op.n_outputs; o++) {
            view v = view_of(g, o);
            bool same = true;
            for (int64_t i = 0; i < v.n; i++) {
                same &= less->exact[o][i] == g->exact[o][i];
                kn_gen_put(g, v.arg, i, less->exact[o][i]);
            }
            if (!same) expect(g, o, false, "a slot dropped");
        }
        kn_gen_free(less);
    }
    kn_gen_free(g);
}
END_TEST

/* ---- how strict ----------------------------------------------------------------------------------------------------
 */

/* Multiply every element by 1 + e, e normal with standard deviation `relative`. */
static void add_noise(kn_gen *g, int output, double relative) {
    view v = view_of(g, output);
    for (int64_t i = 0; i < v.n; i++) {
        kn_gen_put(g, v.arg, i, g->exact[output][i] * (1 + relative * kn_gen_normal(g)));
    }
}

/* Limits of the Frobenius rule as docs/numerics.md states them: noise below passes, noise above does not. */
static void expect_limit(const kn_gen_config *c, int output, double limit) {
    /* sums of few terms meet their element rule before the finest limit */
    double below = limit == 2e-5 ? 0.15 : 0.6;
    kn_gen *g = made(c);
    add_noise(g, output, below * limit);
    expect(g, output, true, "noise below the limit");
    add_noise(g, output, 1.7 * limit);
    expect(g, output, false, "noise above the limit");
    kn_gen_free(g);
}

START_TEST(frobenius_limits) {
    kn_gen_config c = large("load_balance_backward", 1, KN_F32);
    expect_limit(&c, 0, 1e-6);
    c = large("expert_mlp_backward", 1, KN_BF16);
    expect_limit(&c, 2, 5e-3);
    c.out_dtype = KN_F32;
    expect_limit(&c, 2, 1e-2);
    c.out_dtype = KN_F16; /* no better than its operands */
    expect_limit(&c, 2, 5e-3);
    c.dtype = KN_F16;
    expect_limit(&c, 2, 1.5e-3);
    c = large("moe_layer_backward", 1, KN_F32);
    expect_limit(&c, 1, 2e-5);
    expect_limit(&c, 2, 1e-2);
    c = large("router_backward", 1, KN_F32);
    expect_limit(&c, 1, 1e-2);
    c.options.router.round_dlogits = KILN_ROUND_DLOGITS_F32;
    expect_limit(&c, 1, 2e-5);
    c = large("routed_experts_backward", 1, KN_F32);
    expect_limit(&c, 3, 1e-2);
    c.options.routed.math = KILN_MATH_ACCURATE;
    expect_limit(&c, 3, 2e-5);
    c = large("gemm", 1, KN_F32);
    expect_limit(&c, 0, 1e-4);
}
END_TEST

/* A row may be off by more than the tensor, if it is small, but not by its own limit. */
START_TEST(rows_are_judged_on_their_own) {
    kn_gen_config c = large("expert_mlp_backward", 1, KN_BF16);
    kn_gen *g = made(&c);
    view v = view_of(g, 0);
    int64_t row = full_row(g, &v, 3);
    for (int64_t j = 0; j < v.width; j++) kn_gen_put(g, v.arg, row + j, 1.007 * g->exact[0][row + j]);
    expect(g, 0, true, "a row off by 0.7%");
    for (int64_t j = 0; j < v.width; j++) kn_gen_put(g, v.arg, row + j, 1.015 * g->exact[0][row + j]);
    expect(g, 0, false, "a row off by 1.5%");
    kiln_check_result r = result_of(g, 0);
    ck_assert_msg(strstr(r.message, " row ") != NULL, "%s", r.message);
    ck_assert(r.frobenius < 5e-3 && r.worst_slice > 0.01 && r.bad_elements == 0);
    kn_gen_free(g);
}
END_TEST

/* One element just inside and just outside its bound, where nothing but the element rule applies. */
START_TEST(every_element_has_its_bound) {
    kn_gen_config c = kn_gen_defaults("expert_mlp_backward"); /* small: no Frobenius rule */
    kn_gen *g = made(&c);
    view v = view_of(g, 2);
    int64_t at = 77;
    double bound = 2 * 0x1p-24 * fabs(g->exact[2][at]) + 4 * 0x1p-9 * g->magnitude[2][at];
    kn_gen_put(g, v.arg, at, g->exact[2][at] + 0.99 * bound);
    expect(g, 2, true, "inside");
    kn_gen_put(g, v.arg, at, g->exact[2][at] - 1.01 * bound);
    kiln_check_result r = result_of(g, 2);
    ck_assert(!r.pass && r.bad_elements == 1 && r.worst_index == (uint64_t)at && r.frobenius < 0);
    ck_assert_double_eq_tol(r.max_ratio, 1.01, 1e-3);
    ck_assert_msg(strstr(r.message, "grad_w1_weight[1, 29] is off by 1.0") != NULL, "%s", r.message);
    kn_gen_free(g);
}
END_TEST

/* |a| |h| of one slot, from the definition. */
static double slot_norm(const kn_gen *g, int64_t slot) {
    const char *op = g->op.name;
    int64_t hidden = g->config.hidden, inner = g->config.inner, t = slot / g->config.top_k;
    int64_t e = (int64_t)kn_gen_get(g, kn_gen_arg(op, "topk_indices"), slot);
    double aa = 0, hh = 0;
    for (int64_t i = 0; i < inner; i++) {
        double a = 0, gate = 0, up = 0;
        for (int64_t j = 0; j < hidden; j++) {
            double x = kn_gen_get(g, kn_gen_arg(op, "hidden_states"), t * hidden + j);
            double dy = kn_gen_get(g, kn_gen_arg(op, "grad_output"), t * hidden + j);
            gate += x * kn_gen_get(g, kn_gen_arg(op, "gate_weights"), (e * inner + i) * hidden + j);
            up += x * kn_gen_get(g, kn_gen_arg(op, "up_weights"), (e * inner + i) * hidden + j);
            a += dy * kn_gen_get(g, kn_gen_arg(op, "down_weights"), (e * hidden + j) * inner + i);
        }
        double h = gate / (1 + exp(-gate)) * up;
        aa += a * a;
        hh += h * h;
    }
    return sqrt(aa * hh);
}

/* grad_topk_weights is held to the norms of its factors, far closer than by its element rule. */
START_TEST(slots_are_held_to_their_norms) {
    static const struct {
        int32_t math;
        double limit;
    } rows[] = {{KILN_MATH_BALANCED, 1e-3}, {KILN_MATH_ACCURATE, 2e-5}, {KILN_MATH_FAST, 5e-3}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        kn_gen_config c = large("routed_experts_backward", 1, KN_F32);
        c.options.routed.math = rows[i].math;
        kn_gen *g = made(&c);
        view v = view_of(g, 1);
        double bound = rows[i].limit * slot_norm(g, 9), rounding = 2 * 0x1p-24 * fabs(g->exact[1][9]);
        kn_gen_put(g, v.arg, 9, g->exact[1][9] + 0.95 * bound);
        expect(g, 1, true, "a slot inside its bound");
        kn_gen_put(g, v.arg, 9, g->exact[1][9] - 1.05 * bound - 2 * rounding);
        expect(g, 1, false, "a slot outside its bound");
        kn_gen_free(g);
    }
}
END_TEST

/* ---- special values ------------------------------------------------------------------------------------------------
 */

START_TEST(what_should_be_exactly_zero_must_be) {
    const char *op = "router_backward";
    kn_gen_config c = large(op, 1, KN_F32);
    int mask = kn_gen_arg(op, "token_mask");
    c.absent &= ~((uint64_t)1 << mask);
    kn_gen *g;
    ck_assert_ok(kn_gen_make(&c, &g));
    for (int64_t t = 0; t < c.tokens; t++) kn_gen_put(g, mask, t, t != 11);
    ck_assert_ok(kn_gen_reference(g));
    kn_gen_store_exact(g);
    expect(g, 0, true, "a masked token");
    kn_gen_put(g, first_output(g), 11 * c.hidden + 3, 1e-30);
    expect(g, 0, false, "something in a masked token's row");
    kn_gen_free(g);
}
END_TEST

START_TEST(non_finite_results_must_be_non_finite) {
    kn_gen_config c = large("gemm", 1, KN_F32);
    kn_gen *g;
    ck_assert_ok(kn_gen_make(&c, &g));
    kn_gen_put(g, 0, 5 * c.k, (double)NAN);
    ck_assert_ok(kn_gen_reference(g));
    kn_gen_store_exact(g);
    expect(g, 0, true, "a NaN row");
    kn_gen_put(g, 2, 5 * c.n + 1, 0);
    expect(g, 0, false, "a number where NaN belongs");
    kn_gen_free(g);
}
END_TEST

START_TEST(results_beyond_the_type_are_infinite) {
    kn_gen_config c = kn_gen_defaults("gemm");
    c.out_dtype = KN_F16;
    c.scale = 300;
    kn_gen *g = made(&c);
    int64_t beyond = 0;
    for (int64_t i = 0; i < c.m * c.n; i++) beyond += fabs(g->exact[0][i]) > 70000;
    ck_assert_int_gt(beyond, 100);
    expect(g, 0, true, "half precision infinities");
    for (int64_t i = 0; i < c.m * c.n; i++) {
        if (g->exact[0][i] > 70000) kn_gen_put(g, 2, i, -(double)INFINITY);
    }
    expect(g, 0, false, "infinities of the wrong sign");
    kn_gen_free(g);
}
END_TEST

/* Equal gradients of all slots cancel: only the element rule can speak of grad_router_weight. */
START_TEST(cancelled_gradients_have_no_relative_error) {
    const char *op = "moe_layer_backward";
    kn_gen_config c = large(op, 1, KN_F32);
    c.absent |= (uint64_t)1 << kn_gen_arg(op, "grad_topk_weights");
    kn_gen *g = made(&c);
    view v = view_of(g, 1);
    for (int64_t i = 0; i < v.n; i++) kn_gen_put(g, v.arg, i, 1e-7 * g->magnitude[1][i]);
    expect(g, 1, true, "noise");
    ck_assert(result_of(g, 1).frobenius < 0);
    for (int64_t i = 0; i < v.n; i++) kn_gen_put(g, v.arg, i, 1e-5 * g->magnitude[1][i]);
    expect(g, 1, false, "more than noise");
    kn_gen_free(g);
}
END_TEST

/* The gradient of an expert that no token selected cancels: what is left of it is the rounding of fp32 terms. */
START_TEST(an_expert_that_cancels_may_be_noise) {
    enum { GRAD_GATE_WEIGHT = 1 };
    kn_gen_config c = large("router_backward", 1, KN_F32);
    kn_gen *g = made(&c);
    view v = view_of(g, GRAD_GATE_WEIGHT);
    for (int64_t i = 0; i < v.width; i++) g->exact[GRAD_GATE_WEIGHT][i] *= 1e-12;
    for (int64_t i = 0; i < v.width; i++) kn_gen_put(g, v.arg, i, 0x1p-25 * g->magnitude[GRAD_GATE_WEIGHT][i]);
    expect(g, GRAD_GATE_WEIGHT, true, "noise");
    for (int64_t i = 0; i < v.width; i++) kn_gen_put(g, v.arg, i, 0x1p-20 * g->magnitude[GRAD_GATE_WEIGHT][i]);
    expect(g, GRAD_GATE_WEIGHT, false, "more than noise");
    kn_gen_free(g);
}
END_TEST

/* Multiply an expert's scores so that the root mean square of its dlogits becomes `wanted`. */
static void shrink_expert(kn_gen *g, int64_t expert, double wanted) {
    enum { GRAD_LOGITS = 3 };
    int probs = kn_gen_arg("router_backward", "routing_probs");
    for (int round = 0; round < 4; round++) { /* the selected weights' sum changes, too: a few steps */
        ck_assert_ok(kn_gen_reference(g));
        double squares = 0;
        for (int64_t t = 0; t < g->config.tokens; t++) {
            double dz = g->exact[GRAD_LOGITS][t * g->config.experts + expert];
            squares += dz * dz;
        }
        double factor = wanted / sqrt(squares / (double)g->config.tokens);
        for (int64_t t = 0; t < g->config.tokens; t++) {
            int64_t at = t * g->config.experts + expert;
            kn_gen_put(g, probs, at, factor * kn_gen_get(g, probs, at));
        }
    }
    ck_assert_ok(kn_gen_reference(g));
}

/* An expert with small scores has dlogits of which f16 keeps few digits: that is no fault, two percent are one. */
START_TEST(dlogits_that_f16_cannot_hold_are_no_fault) {
    enum { GRAD_GATE_WEIGHT = 1, GRAD_LOGITS = 3, EXPERT = 3 };
    kn_gen_config c = large("router_backward", 1, KN_F32);
    int logits = kn_gen_arg("router_backward", "grad_logits"), hidden = kn_gen_arg("router_backward", "hidden_states");
    c.dtype = KN_F16;
    c.absent &= ~((uint64_t)1 << logits);
    kn_gen *g;
    ck_assert_ok(kn_gen_make(&c, &g));
    shrink_expert(g, EXPERT, 5e-6);
    kn_gen_store_exact(g);
    view v = view_of(g, GRAD_GATE_WEIGHT);
    for (int64_t j = 0; j < c.hidden; j++) {
        double sum = 0;
        for (int64_t t = 0; t < c.tokens; t++) {
            double dz = g->exact[GRAD_LOGITS][t * c.experts + EXPERT];
            if (fabs(dz) < 0x1p-14) dz = round(dz * 0x1p24) * 0x1p-24;
            sum += dz * kn_gen_get(g, hidden, t * c.hidden + j);
        }
        kn_gen_put(g, v.arg, EXPERT * c.hidden + j, sum);
    }
    expect(g, GRAD_GATE_WEIGHT, true, "dlogits rounded to f16");
    ck_assert(result_of(g, GRAD_GATE_WEIGHT).worst_slice > 1.5e-3);
    for (int64_t j = 0; j < c.hidden; j++) {
        int64_t at = EXPERT * c.hidden + j;
        kn_gen_put(g, v.arg, at, 1.02 * g->exact[GRAD_GATE_WEIGHT][at]);
    }
    expect(g, GRAD_GATE_WEIGHT, false, "two percent too much");
    kn_gen_free(g);
}
END_TEST

START_TEST(absent_outputs_are_not_compared) {
    kn_gen_config c = large("router_backward", 1, KN_F32);
    c.absent |= (uint64_t)1 << kn_gen_arg("router_backward", "grad_gate_weight");
    kn_gen *g = made(&c);
    kiln_check_result r = result_of(g, 1);
    ck_assert(r.pass && r.frobenius < 0 && r.worst_slice < 0 && r.bad_elements == 0);
    expect(g, 0, true, "the other output");
    kn_gen_free(g);
}
END_TEST

/* The generator's own check sees writes between the rows. */
START_TEST(writes_into_gaps_are_caught) {
    kn_gen_config c = large("gemm", 1, KN_F32);
    c.gap = 3;
    kn_gen *g = made(&c);
    ck_assert_ok(kn_gen_check(g));
    ((float *)g->call.tensor[2].data)[c.n + 1] = 0;
    ck_assert_fails(kn_gen_check(g), KN_E_SIM, "d: byte 260 beside its elements");
    kn_gen_free(g);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ops/compare");
    TCase *t = tcase_create("compare");
    tcase_add_loop_test(t, the_exact_result_passes, 0, RUNS);
    tcase_add_loop_test(t, zeros_are_caught, 0, RUNS);
    tcase_add_loop_test(t, swapped_rows_are_caught, 0, RUNS);
    tcase_add_loop_test(t, a_nan_is_caught, 0, RUNS);
    tcase_add_loop_test(t, a_scaled_expert_is_caught, 0, RUNS);
    tcase_add_loop_test(t, a_dropped_slot_is_caught, 0, RUNS);
    tcase_add_test(t, frobenius_limits);
    tcase_add_test(t, rows_are_judged_on_their_own);
    tcase_add_test(t, every_element_has_its_bound);
    tcase_add_test(t, slots_are_held_to_their_norms);
    tcase_add_test(t, what_should_be_exactly_zero_must_be);
    tcase_add_test(t, non_finite_results_must_be_non_finite);
    tcase_add_test(t, results_beyond_the_type_are_infinite);
    tcase_add_test(t, cancelled_gradients_have_no_relative_error);
    tcase_add_test(t, an_expert_that_cancels_may_be_noise);
    tcase_add_test(t, dlogits_that_f16_cannot_hold_are_no_fault);
    tcase_add_test(t, absent_outputs_are_not_compared);
    tcase_add_test(t, writes_into_gaps_are_caught);
    suite_add_tcase(suite, t);
    return kn_run_suite(suite);
}
