/* ops/router: checks and planner of router_backward. Derivation: docs/router.md.
 *
 *   1  dlogits      dz of every token, to workspace, and grad_logits
 *   2  mask rows    hidden_states without the masked tokens' rows: only with token_mask
 *   3  dh           grad_hidden_states = dz * gate_weight
 *   4  dw           grad_gate_weight = dz^T * hidden_states
 *   5  column sums  grad_gate_bias, in one or two steps
 *
 * A part whose outputs are not wanted is left out. */
#include "ops/router.h"

#include "kiln/kiln.h"
#include "ops/router_internal.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_E = 8192,
    MAX_K = 256,
    MAX_ROWS = INT_MAX - (1 << 20),
    MAX_COLUMNS = 1 << 28,
    MASK_ROWS = 8 /* of a block */
};

/* ---- checks --------------------------------------------------------------------------------------------------------
 */

static int64_t float_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static kn_status describe_options(const kiln_router_backward_options *o, kn_problem *p) {
    double eps = o->eps == 0 ? 1e-20 : o->eps, scaling = o->scaling == 0 ? 1 : o->scaling;
    /* Both must survive as normal floats. */
    KN_REQUIRE(eps >= 1.2e-38 && eps <= 3e38, KN_E_ARG, "eps is %g; wanted 1.2e-38 to 3e38, or 0 for 1e-20", o->eps);
    KN_REQUIRE(isfinite(scaling) && fabs(scaling) <= 3e38, KN_E_ARG, "scaling is %g; wanted a finite float",
               o->scaling);
    p->option[KN_ROUTER_SCORE] = o->score;
    p->option[KN_ROUTER_NORMALISE] = o->normalise;
    p->option[KN_ROUTER_AFTER_SOFTMAX] = o->logits_gradient == KILN_LOGITS_GRADIENT_AFTER_SOFTMAX;
    p->option[KN_ROUTER_ROUND_F32] = o->round_dlogits == KILN_ROUND_DLOGITS_F32;
    p->option[KN_ROUTER_EPS] = float_bits((float)eps);
    p->option[KN_ROUTER_SCALING] = float_bits((float)scaling);
    return KN_OK;
}

static bool is_given(const kn_call *call, int arg) {
    return call->tensor[arg].dtype != KN_DTYPE_NONE;
}

static kn_status describe_losses(const kn_call *call, kn_problem *p) {
    const kiln_router_backward_options *o = call->options;
    bool aux = is_given(call, KN_ROUTER_AUX), rows = is_given(call, KN_ROUTER_AUX_ROW);
    int64_t s = aux ? call->tensor[KN_ROUTER_AUX].shape[0] : 0;
    KN_REQUIRE(!aux || o->score != KILN_SCORE_SOFTMAX_SELECTED, KN_E_ARG,
               "aux_expert_coefficients is given with score softmax_selected, which has no scores of all experts");
    KN_REQUIRE(!aux || s == 1 || (s > 1 && rows), KN_E_SHAPE,
               "aux_expert_coefficients has %" PRId64 " rows and aux_row is %s; wanted one row, or aux_row too", s,
               rows ? "given" : "NULL");
    KN_REQUIRE(aux || !rows, KN_E_ARG, "aux_row is given, but aux_expert_coefficients is NULL");
    KN_REQUIRE(!is_given(call, KN_ROUTER_Z_LOSS) || is_given(call, KN_ROUTER_LOGITS), KN_E_ARG,
               "z_loss_coefficient is given, but router_logits is NULL");
    p->axis[KN_ROUTER_S] = s;
    return KN_OK;
}

kn_status kn_router_describe(const kn_call *call, kn_problem *p) {
    int64_t t = call->letter['T' - 'A'], e = call->letter['E' - 'A'];
    int64_t h = call->letter['H' - 'A'], k = call->letter['K' - 'A'];
    KN_REQUIRE(t <= MAX_ROWS, KN_E_SHAPE, "hidden_states has %" PRId64 " rows; wanted at most %d", t, MAX_ROWS);
    KN_REQUIRE(h >= 1 && h <= MAX_COLUMNS, KN_E_SHAPE, "hidden_states has %" PRId64 " columns; wanted 1 to %d", h,
               MAX_COLUMNS);
    KN_REQUIRE(e >= 1 && e <= MAX_E, KN_E_SHAPE, "gate_weight has %" PRId64 " rows (experts); wanted 1 to %d", e,
               MAX_E);
    KN_REQUIRE(k >= 1 && k <= MAX_K && k <= e, KN_E_SHAPE,
               "selected_experts has %" PRId64 " columns; wanted 1 to %" PRId64, k, e < MAX_K ? e : MAX_K);
    p->axis[KN_ROUTER_T] = t;
    p->axis[KN_ROUTER_E] = e;
    p->axis[KN_ROUTER_H] = h;
    p->axis[KN_ROUTER_K] = k;
    KN_TRY(describe_losses(call, p));
    return describe_options(call->options, p);
}

/* ---- the plan ------------------------------------------------------------------------------------------------------
 */

static void decide(kn_router *r) {
    const kn_problem *p = r->p;
    r->tokens = p->axis[KN_ROUTER_T];
    r->experts = p->axis[KN_ROUTER_E];
    r->hidden = p->axis[KN_ROUTER_H];
    r->hidden_out = kn_router_has(p, KN_ROUTER_OUT_HIDDEN);
    r->weight_out = kn_router_has(p, KN_ROUTER_OUT_GATE_WEIGHT);
    r->bias_out = kn_router_has(p, KN_ROUTER_OUT_GATE_BIAS);
    r->logits_out = kn_router_has(p, KN_ROUTER_OUT_LOGITS);
    kn_dtype input = (kn_dtype)p->dtype[KN_ROUTER_HIDDEN];
    r->fine = input == KN_F32 || p->option[KN_ROUTER_ROUND_F32];
    r->fused = kn_router_fused_fits(r);
    if (r->hidden_out || r->weight_out || r->bias_out) r->dz = r->fine ? KN_F32 : input;
    /* Rows of 16 bytes, which TMA and wide loads want. A place of its own even without tokens: launches bind it. */
    uint64_t rows = r->tokens > 0 ? (uint64_t)r->tokens : 1;
    r->dz_ld = kn_router_ceil_div(r->experts, 8) * 8;
    r->rows_ld = kn_router_ceil_div(r->hidden, 8) * 8;
    if (r->dz != KN_DTYPE_NONE)
        r->dz_at = kn_add_workspace(r->builder, rows * (uint64_t)r->dz_ld * kn_dtype_size(r->dz));
    r->rest = r->fine && input == KN_BF16 && (r->hidden_out || r->weight_out);
    /* The bias is a sum over all tokens of terms of both signs: of dz before it is rounded. */
    r->parts = r->bias_out && r->fused;
    r->whole = r->bias_out && !r->fine && !r->fused;
    if (r->parts) r->parts_at = kn_add_workspace(r->builder, (uint64_t)(r->experts * kn_router_bias_parts(r)) * 4);
    if (r->rest || r->whole) r->rest_at = kn_add_workspace(r->builder, rows * (uint64_t)r->dz_ld * 4);
    if (kn_router_masks_rows(r))
        r->rows_at = kn_add_workspace(r->builder, rows * (uint64_t)r->rows_ld * kn_dtype_size(input));
}

static void emit_dlogits(const kn_router *r) {
    const kn_problem *p = r->p;
    int kernel, out = KN_ROUTER_OUT_LOGITS;
    kn_params *params = kn_add_kernel(r->builder, "router_dlogits.ptxt", &kernel);
    kn_router_token_params(p, params);
    kn_params_set(params, "TOKENS", p->generic ? -1 : r->tokens);
    kn_params_set_name(params, "DZ_T", r->dz == KN_DTYPE_NONE ? "none" : kn_dtype_name(r->dz));
    kn_params_set(params, "DZ_LD", r->dz == KN_DTYPE_NONE ? 0 : r->dz_ld);
    kn_params_set(params, "REST", r->whole ? 2 : r->rest);
    kn_params_set(params, "PARTS", r->parts);
    kn_params_set(params, "THREADS", kn_router_dlogits_threads(r));
    kn_router_logits_params(r, params);
    kn_params_set(params, "DEPENDENT", kn_router_dependent(r));
    int64_t groups = kn_router_dlogits_threads(r) / kn_router_lanes(r->experts);
    kn_launch_spec *l = kn_add_launch(r->builder, kernel, (uint32_t)kn_router_ceil_div(r->tokens, groups), 1, 1);
    l->dependent = kn_router_dependent(r);
    kn_router_bind_token(p, l);
    if (r->dz == KN_DTYPE_NONE) {
        kn_bind_i64(l, 0);
    } else {
        kn_bind_workspace(l, r->dz_at);
    }
    if (r->rest || r->whole) {
        kn_bind_workspace(l, r->rest_at);
    } else {
        kn_bind_i64(l, 0);
    }
    if (r->parts) {
        kn_bind_workspace(l, r->parts_at);
    } else {
        kn_bind_i64(l, 0);
    }
    kn_bind_tensor(l, out, 0);
    kn_bind_stride(l, out, 0);
    kn_bind_i32(l, (int32_t)r->tokens);
}

/* Masked tokens' rows of hidden_states must not be seen by the product over tokens: 0 * NaN is no zero. */
static void emit_mask_rows(const kn_router *r) {
    int64_t size = kn_dtype_size((kn_dtype)r->p->dtype[KN_ROUTER_HIDDEN]), vec = 16;
    while (r->hidden * size % vec != 0 || vec > 1 << r->p->align_log2[KN_ROUTER_HIDDEN]) vec /= 2;
    int kernel;
    kn_params *params = kn_add_kernel(r->builder, "mask_rows.ptxt", &kernel);
    kn_params_set(params, "COLUMNS", r->hidden);
    kn_params_set(params, "SIZE", size);
    kn_params_set(params, "ROWS", r->p->generic ? -1 : r->tokens);
    kn_params_set(params, "VEC", vec);
    kn_params_set(params, "DEPENDENT", kn_router_dependent(r));
    kn_launch_spec *l = kn_add_launch(r->builder, kernel, (uint32_t)kn_router_ceil_div(r->tokens, MASK_ROWS), 1, 1);
    l->dependent = kn_router_dependent(r);
    kn_bind_tensor(l, KN_ROUTER_HIDDEN, 0);
    kn_bind_stride(l, KN_ROUTER_HIDDEN, 0);
    kn_bind_workspace(l, r->rows_at);
    kn_bind_i64(l, r->rows_ld);
    kn_bind_tensor(l, KN_ROUTER_TOKEN_MASK, 0);
    kn_bind_i32(l, (int32_t)r->tokens);
}

/* The least that must be moved and multiplied. */
static void set_floor(const kn_router *r, kn_program *out) {
    const kn_problem *p = r->p;
    double t = (double)r->tokens, e = (double)r->experts, h = (double)r->hidden;
    double input = kn_dtype_size((kn_dtype)p->dtype[KN_ROUTER_HIDDEN]);
    out->floor_bytes = t * e * 4;
    if (kn_router_has(p, KN_ROUTER_GRAD_LOGITS))
        out->floor_bytes += t * e * kn_dtype_size((kn_dtype)p->dtype[KN_ROUTER_GRAD_LOGITS]);
    if (r->logits_out) out->floor_bytes += t * e * kn_dtype_size((kn_dtype)p->dtype[KN_ROUTER_OUT_LOGITS]);
    if (r->hidden_out)
        out->floor_bytes += t * h * kn_dtype_size((kn_dtype)p->dtype[KN_ROUTER_OUT_HIDDEN]) + e * h * input;
    if (r->weight_out)
        out->floor_bytes += e * h * kn_dtype_size((kn_dtype)p->dtype[KN_ROUTER_OUT_GATE_WEIGHT]) + t * h * input;
    out->floor_flops = 2 * t * e * h * ((r->hidden_out ? 1 : 0) + (r->weight_out ? 1 : 0));
}

kn_status kn_router_plan(const kn_problem *p, const kn_device_facts *facts, const kn_target *target, kn_program *out) {
    kn_program_builder builder = {.program = out};
    kn_router r = {.p = p, .facts = facts, .target = target, .builder = &builder};
    decide(&r);
    set_floor(&r, out);
    if (r.tokens > 0 && (r.dz != KN_DTYPE_NONE || r.logits_out)) emit_dlogits(&r);
    if (r.fused) {
        kn_router_emit_fused(&r);
    } else {
        if (r.tokens > 0 && kn_router_masks_rows(&r)) emit_mask_rows(&r);
        if (r.tokens > 0 && r.hidden_out) kn_router_emit_dh(&r);
        /* Without tokens the sums over tokens are 0: written, or nothing is added. */
        if (r.weight_out && (r.tokens > 0 || !kn_router_accumulates(p, KN_ROUTER_OUT_GATE_WEIGHT)))
            kn_router_emit_dw(&r);
    }
    if (r.bias_out && !r.fused && (r.tokens > 0 || !kn_router_accumulates(p, KN_ROUTER_OUT_GATE_BIAS)))
        kn_router_emit_bias(&r);
    size_t used = strlen(out->note);
    snprintf(out->note + used, sizeof out->note - used,
             "%" PRId64 " threads a token, dz in workspace as %s, %u launches", kn_router_lanes(r.experts),
             r.dz == KN_DTYPE_NONE ? "none" : kn_dtype_name(r.dz), out->n_launches);
    return builder.status;
}
