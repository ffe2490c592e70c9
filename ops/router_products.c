/* ops/router_products: grad_hidden_states, grad_gate_weight and grad_gate_bias from dz in workspace.
 *
 * A sum over experts may have as few as one term, so an fp32 dz must keep nearly all its digits:
 *   bf16 hidden states  the engine takes dz as hi + lo bf16 parts, and what they leave over as a second segment
 *   f16 and f32 ones    both factors would lose digits: fp32 arithmetic (gemm_f32.ptxt)
 * A dz of the inputs' own 16-bit type is one product of the engine. */
#include "ops/gemm.h"
#include "ops/router_internal.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

enum { SUM_ROWS = 512 /* rows of one partial column sum */ };

static kn_gemm_operand tensor_rows(const kn_router *r, int arg, bool depth_contiguous) {
    return (kn_gemm_operand){.place = kn_place_arg(arg),
                             .dtype = (kn_dtype)r->p->dtype[arg],
                             .depth_contiguous = depth_contiguous,
                             .stride_dim = 0,
                             .group_dim = -1,
                             .align_log2 = r->p->align_log2[arg]};
}

static kn_gemm_operand workspace_rows(int64_t at, kn_dtype dtype, int64_t ld, bool depth_contiguous) {
    return (kn_gemm_operand){.place = kn_place_workspace(at),
                             .dtype = dtype,
                             .depth_contiguous = depth_contiguous,
                             .stride_dim = -1,
                             .stride_elems = ld,
                             .group_dim = -1,
                             .align_log2 = 4};
}

/* A product in fp32 arithmetic: dz, K-major or not, times rows along N. */
static void emit_fp32(const kn_router *r, const kn_gemm *g) {
    const kn_gemm_operand *a = &g->segment[0].a, *b = &g->segment[0].b;
    int64_t depth = g->segment[0].k, tiles = kn_router_ceil_div(g->m, 64) * kn_router_ceil_div(g->n, 64);
    if (tiles > INT_MAX) {
        r->builder->status = kn_fail(KN_E_SHAPE, "a product of %" PRId64 " x %" PRId64 " is too large", g->m, g->n);
        return;
    }
    bool masked = g->m_is_tokens && kn_router_has(r->p, KN_ROUTER_TOKEN_MASK);
    int kernel;
    kn_params *params = kn_add_kernel(r->builder, "gemm_f32.ptxt", &kernel);
    kn_params_set(params, "M", g->m_is_tokens && r->p->generic ? -1 : g->m);
    kn_params_set(params, "N", g->n);
    kn_params_set(params, "DEPTH", g->k_is_tokens && r->p->generic ? -1 : depth);
    kn_params_set_name(params, "A_MAJOR", a->depth_contiguous ? "k" : "mn");
    kn_params_set_name(params, "A_T", kn_dtype_name(a->dtype));
    kn_params_set_name(params, "B_T", kn_dtype_name(b->dtype));
    kn_params_set_name(params, "D_T", kn_dtype_name(g->d.dtype));
    kn_params_set(params, "ACCUMULATE", g->accumulate);
    kn_params_set(params, "ROW_MASK", masked);
    kn_params_set(params, "DEPENDENT", kn_router_dependent(r));
    kn_launch_spec *l = kn_add_launch(r->builder, kernel, (uint32_t)tiles, 1, 1);
    l->dependent = kn_router_dependent(r);
    kn_bind_workspace(l, a->place.offset_bytes);
    kn_bind_i64(l, a->stride_elems);
    if (b->place.in_workspace) {
        kn_bind_workspace(l, b->place.offset_bytes);
        kn_bind_i64(l, b->stride_elems);
    } else {
        kn_bind_tensor(l, b->place.arg, 0);
        kn_bind_stride(l, b->place.arg, 0);
    }
    kn_bind_tensor(l, g->d.place.arg, 0);
    kn_bind_stride(l, g->d.place.arg, 0);
    if (masked) {
        kn_bind_tensor(l, KN_ROUTER_TOKEN_MASK, 0);
    } else {
        kn_bind_i64(l, 0);
    }
    kn_bind_i32(l, (int32_t)g->m);
    kn_bind_i32(l, (int32_t)depth);
}

static void emit_product(const kn_router *r, kn_gemm *g) {
    if (r->fine && r->p->dtype[KN_ROUTER_HIDDEN] != KN_BF16) {
        emit_fp32(r, g);
        return;
    }
    if (r->rest) {
        g->segment[1] = g->segment[0];
        g->segment[1].a.place.offset_bytes = r->rest_at;
        g->n_segments = 2;
    }
    g->a_split = r->fine ? 2 : 1;
    g->b_split = 1;
    g->promote = r->fine;
    kn_gemm_emit(r->builder, g, r->p, r->facts, r->target);
}

void kn_router_emit_dh(const kn_router *r) {
    const kn_problem *p = r->p;
    kn_gemm g = {.symbol = "router_dh",
                 .m = r->tokens,
                 .n = r->hidden,
                 .m_is_tokens = true,
                 .n_segments = 1,
                 .segment = {{workspace_rows(r->dz_at, r->dz, r->dz_ld, true),
                              tensor_rows(r, KN_ROUTER_GATE_WEIGHT, false), r->experts}},
                 .d = tensor_rows(r, KN_ROUTER_OUT_HIDDEN, false),
                 .accumulate = kn_router_accumulates(p, KN_ROUTER_OUT_HIDDEN),
                 .epilogue = "store"};
    if (kn_router_has(p, KN_ROUTER_TOKEN_MASK)) {
        /* A masked token's row is 0 even where gate_weight holds a NaN. */
        g.epilogue = "store_masked";
        g.epi_align_log2 = g.d.align_log2;
        kn_param type = {.name = "D_T", .is_name = true}, add = {.name = "ACCUMULATE", .value = g.accumulate};
        snprintf(type.text, sizeof type.text, "%s", kn_dtype_name(g.d.dtype));
        g.epi_param[g.n_epi_params++] = type;
        g.epi_param[g.n_epi_params++] = add;
        g.epi_bind[g.n_epi_bind++] = (kn_binding){.kind = KN_BIND_TENSOR, .arg = KN_ROUTER_OUT_HIDDEN};
        g.epi_bind[g.n_epi_bind++] = (kn_binding){.kind = KN_BIND_STRIDE, .arg = KN_ROUTER_OUT_HIDDEN};
        g.epi_bind[g.n_epi_bind++] = (kn_binding){.kind = KN_BIND_TENSOR, .arg = KN_ROUTER_TOKEN_MASK};
    }
    emit_product(r, &g);
}

void kn_router_emit_dw(const kn_router *r) {
    const kn_problem *p = r->p;
    kn_dtype input = (kn_dtype)p->dtype[KN_ROUTER_HIDDEN];
    kn_gemm g = {.symbol = "router_dw",
                 .m = r->experts,
                 .n = r->hidden,
                 .k_is_tokens = true,
                 .n_segments = 1,
                 .segment = {{workspace_rows(r->dz_at, r->dz, r->dz_ld, false),
                              kn_router_masks_rows(r) ? workspace_rows(r->rows_at, input, r->rows_ld, false)
                                                      : tensor_rows(r, KN_ROUTER_HIDDEN, false),
                              r->tokens}},
                 .d = tensor_rows(r, KN_ROUTER_OUT_GATE_WEIGHT, false),
                 .accumulate = kn_router_accumulates(p, KN_ROUTER_OUT_GATE_WEIGHT),
                 .epilogue = "store"};
    emit_product(r, &g);
}

/* One launch of column sums: `rows` rows at `from` in chunks of `chunk` (0: one chunk), to workspace or to the bias. */
static void emit_column_sums(const kn_router *r, int64_t from, kn_dtype dtype, int64_t ld, int64_t rows, int64_t chunk,
                             int64_t to, bool last) {
    int kernel;
    kn_params *params = kn_add_kernel(r->builder, "column_sums.ptxt", &kernel);
    kn_params_set(params, "N", r->experts);
    kn_params_set(params, "M", r->p->generic ? -1 : rows);
    kn_params_set(params, "ROWS", chunk);
    kn_params_set_name(params, "X_T", kn_dtype_name(dtype));
    kn_params_set_name(params, "OUT_T", "f32");
    kn_params_set(params, "ACCUMULATE", last && kn_router_accumulates(r->p, KN_ROUTER_OUT_GATE_BIAS));
    kn_params_set(params, "DEPENDENT", kn_router_dependent(r));
    int64_t chunks = chunk ? kn_router_ceil_div(rows, chunk) : 1;
    kn_launch_spec *l =
        kn_add_launch(r->builder, kernel, (uint32_t)(chunks * kn_router_ceil_div(r->experts, 32)), 1, 1);
    l->dependent = kn_router_dependent(r);
    kn_bind_workspace(l, from);
    kn_bind_i64(l, ld);
    if (last) {
        kn_bind_tensor(l, KN_ROUTER_OUT_GATE_BIAS, 0);
    } else {
        kn_bind_workspace(l, to);
    }
    kn_bind_i64(l, r->experts);
    kn_bind_i32(l, (int32_t)rows);
}

void kn_router_emit_bias(const kn_router *r) {
    int64_t from = r->whole ? r->rest_at : r->dz_at;
    int64_t chunks = kn_router_ceil_div(r->tokens, SUM_ROWS);
    if (chunks <= 1) {
        emit_column_sums(r, from, KN_F32, r->dz_ld, r->tokens, 0, 0, true);
        return;
    }
    int64_t parts = kn_add_workspace(r->builder, (uint64_t)(chunks * r->experts) * 4);
    emit_column_sums(r, from, KN_F32, r->dz_ld, r->tokens, SUM_ROWS, parts, false);
    emit_column_sums(r, parts, KN_F32, r->experts, chunks, 0, 0, true);
}
