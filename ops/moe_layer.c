/* ops/moe_layer: checks and planner of moe_layer_backward. At most five launches:
 *
 *     router   dz of every token                          ptx_templates/moe_layer_router.ptxt
 *     da       grad_output * down -> dg, du (and h)       product with the SwiGLU-backward epilogue
 *     dw       gate, up and down weight gradients         one grouped product
 *     dw_router  dz^T * hidden                            product of its own: another type, other operands
 *     dx       du * up + dg * gate + dz * router          one product, K concatenated
 *
 * What no wanted output needs is left out. Derivations: docs/moe_layer.md. */
#include "ops/moe_layer.h"

#include "kiln/kiln.h"
#include "ops/gemm_parts.h"
#include "ops/moe_layer_args.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* kn_problem.option[]. */
enum { OPTION_SCALING, OPTION_UNNORMALISED, OPTION_EXACT };

enum {
    MAX_TOKENS = INT_MAX - 256,
    MAX_EXPERTS = 8192,
    MAX_TOP_K = 256,
    ROUTER_WARPS = 4,
    ROUTER_BLOCKS_PER_SM = 6,
    DZ_PARTS = 3
};

kn_status kn_moe_layer_describe(const kn_call *call, kn_problem *p) {
    const kiln_moe_layer_backward_options *o = call->options;
    const char letters[] = {'T', 'H', 'I', 'E', 'K'};
    for (int i = 0; i < 5; i++) p->axis[i] = call->letter[letters[i] - 'A'];
    int64_t h = p->axis[KN_MOE_LAYER_H], inner = p->axis[KN_MOE_LAYER_I];
    int64_t e = p->axis[KN_MOE_LAYER_E], k = p->axis[KN_MOE_LAYER_K];
    KN_REQUIRE(p->axis[KN_MOE_LAYER_T] <= MAX_TOKENS, KN_E_SHAPE, "grad_output has %lld rows; wanted at most %d",
               (long long)p->axis[KN_MOE_LAYER_T], MAX_TOKENS);
    KN_REQUIRE(h >= 1, KN_E_SHAPE, "grad_output has 0 columns; wanted at least 1");
    KN_REQUIRE(inner >= 1, KN_E_SHAPE, "shared_gate_output has 0 columns; wanted at least 1");
    KN_REQUIRE(e >= 1 && e <= MAX_EXPERTS, KN_E_SHAPE, "scores has %lld experts; wanted 1 to %d", (long long)e,
               MAX_EXPERTS);
    int64_t most = e < MAX_TOP_K ? e : MAX_TOP_K;
    KN_REQUIRE(k >= 1 && k <= most, KN_E_SHAPE, "topk_indices has %lld columns; wanted 1 to %lld, with %lld experts",
               (long long)k, (long long)most, (long long)e);
    double c = o->routed_scaling_factor == 0 ? 1 : o->routed_scaling_factor;
    KN_REQUIRE(isfinite(c) && isfinite((float)c) && (float)c != 0, KN_E_ARG,
               "routed_scaling_factor is not a finite number that f32 can hold");
    memcpy(&p->option[OPTION_SCALING], &c, sizeof c);
    p->option[OPTION_UNNORMALISED] = o->norm_topk_prob == KILN_FALSE;
    p->option[OPTION_EXACT] = o->router_mode == KILN_ROUTER_MODE_EXACT;
    return KN_OK;
}

/* ---- what is to be done ------------------------------------------------------------------------------------------ */

/* Sizes, what is wanted, and where in the workspace the parts meet. */
typedef struct layer {
    const kn_problem *p;
    const kn_device_facts *facts;
    const kn_target *target;
    kn_program_builder builder;
    int64_t tokens, hidden, inner, experts, top_k;
    kn_dtype type;                 /* of hidden states, weights and what is kept between the products */
    bool parts;                    /* dz^T * hidden takes dz as bf16 parts; else as f32 */
    int64_t inner_ld, dz_ld;       /* rows of the workspace: whole 16-byte accesses, so that TMA can read them */
    int64_t dg, du, h, dz, dz_f32; /* offsets of the slices */
    bool run_router;
    bool gradients; /* dg and du are needed */
    bool make_h;    /* the activated rows must be recomputed */
} layer;

static bool is_wanted(const layer *m, int output) {
    return m->p->dtype[output] != KN_DTYPE_NONE;
}

static bool is_added_to(const layer *m, int output) {
    return m->p->accumulate >> (output - OUT_HIDDEN) & 1;
}

/* At least one row: what a launch binds must lie in the workspace, though without tokens nothing is read there. */
static int64_t add_rows(layer *m, int64_t ld, int64_t element_bytes) {
    return kn_add_workspace(&m->builder, (uint64_t)((m->tokens ? m->tokens : 1) * ld * element_bytes));
}

static void lay_out(layer *m) {
    int64_t element = kn_dtype_size(m->type);
    bool hidden = is_wanted(m, OUT_HIDDEN), router = is_wanted(m, OUT_ROUTER);
    m->make_h = is_wanted(m, OUT_DOWN) && m->p->dtype[ACTIVATED] == KN_DTYPE_NONE;
    m->gradients = hidden || is_wanted(m, OUT_GATE) || is_wanted(m, OUT_UP);
    m->run_router = hidden || router;
    m->parts = m->type == KN_BF16;
    m->inner_ld = (m->inner + 7) / 8 * 8;
    m->dz_ld = (m->experts + 7) / 8 * 8;
    if (m->gradients) { /* made by da, read by dw and dx */
        m->dg = add_rows(m, m->inner_ld, element);
        m->du = add_rows(m, m->inner_ld, element);
    }
    if (m->make_h) m->h = add_rows(m, m->inner_ld, element); /* made by da, read by dw */
    /* Made by the router's kernel: rounded to the products' type for dx, precise for dw_router. */
    if (m->run_router && (hidden || m->parts))
        m->dz = add_rows(m, m->dz_ld, element * (router && m->parts ? DZ_PARTS : 1));
    if (router && !m->parts) m->dz_f32 = add_rows(m, m->dz_ld, 4);
}

/* ---- the router -------------------------------------------------------------------------------------------------- */

/* A warp a token, or as many blocks as the multiprocessors of a limit can have at once. */
static int64_t whole_blocks(const layer *m) {
    return (m->tokens + ROUTER_WARPS - 1) / ROUTER_WARPS;
}

static int64_t router_blocks(const layer *m) {
    int64_t most = (int64_t)m->p->sm_limit * ROUTER_BLOCKS_PER_SM;
    return most && most < whole_blocks(m) ? most : whole_blocks(m);
}

static void fill_router_params(const layer *m, kn_params *params) {
    const kn_problem *p = m->p;
    bool given = p->dtype[GRAD_TOPK_WEIGHTS] != KN_DTYPE_NONE, router = is_wanted(m, OUT_ROUTER);
    bool wide = m->hidden % 8 == 0 && p->align_log2[GRAD_OUTPUT] >= 4;
    kn_params_set_name(params, "T", kn_dtype_name(m->type));
    kn_params_set(params, "TOKENS", p->generic ? -1 : m->tokens);
    kn_params_set(params, "H", given ? 1 : m->hidden);
    kn_params_set(params, "E", m->experts);
    kn_params_set(params, "K", m->top_k);
    kn_params_set(params, "LD", m->dz_ld);
    kn_params_set_name(params, "ID_T", p->dtype[TOPK_INDICES] == KN_I64 ? "s64" : "s32");
    kn_params_set_name(params, "G", given ? "given" : "square");
    kn_params_set(params, "VEC", given || !wide ? 1 : 8);
    kn_params_set_name(params, "MODE", p->option[OPTION_EXACT] ? "exact" : "benchmark");
    kn_params_set(params, "NORMALISED", !p->option[OPTION_UNNORMALISED]);
    kn_params_set(params, "MASK", p->dtype[SCORE_MASK] != KN_DTYPE_NONE);
    kn_params_set(params, "PARTS", router && m->parts ? DZ_PARTS : is_wanted(m, OUT_HIDDEN));
    kn_params_set(params, "DZ_F32", router && !m->parts);
    kn_params_set(params, "WALK", router_blocks(m) < whole_blocks(m));
}

static void emit_router(layer *m) {
    static const int rows[] = {GRAD_OUTPUT, GRAD_TOPK_WEIGHTS, SCORES, TOPK_INDICES, TOPK_WEIGHTS, SCORE_MASK};
    double c;
    int kernel;
    memcpy(&c, &m->p->option[OPTION_SCALING], sizeof c);
    fill_router_params(m, kn_add_kernel(&m->builder, "moe_layer_router.ptxt", &kernel));
    kn_launch_spec *l = kn_add_launch(&m->builder, kernel, (uint32_t)router_blocks(m), 1, 1);
    l->dependent = m->target->cc >= 90;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (m->p->dtype[rows[i]] == KN_DTYPE_NONE) {
            kn_bind_i64(l, 0);
            kn_bind_i64(l, 0);
        } else {
            kn_bind_tensor(l, rows[i], 0);
            kn_bind_stride(l, rows[i], 0);
        }
    }
    kn_bind_faults(l);
    if (is_wanted(m, OUT_HIDDEN) || m->parts) {
        kn_bind_workspace(l, m->dz);
    } else {
        kn_bind_i64(l, 0);
    }
    kn_bind_i64(l, m->tokens * m->dz_ld * kn_dtype_size(m->type));
    if (is_wanted(m, OUT_ROUTER) && !m->parts) {
        kn_bind_workspace(l, m->dz_f32);
    } else {
        kn_bind_i64(l, 0);
    }
    kn_bind_f32(l, (float)c);
    kn_bind_i32(l, (int32_t)m->tokens);
}

/* ---- operands ---------------------------------------------------------------------------------------------------- */

/* A matrix of rows [., contiguous]. depth_contiguous: its columns are the product's depth. */
static kn_gemm_operand tensor_rows(const layer *m, int arg, bool depth_contiguous) {
    return (kn_gemm_operand){.place = kn_place_arg(arg),
                             .dtype = (kn_dtype)m->p->dtype[arg],
                             .depth_contiguous = depth_contiguous,
                             .stride_dim = 0,
                             .group_dim = -1,
                             .align_log2 = m->p->align_log2[arg]};
}

static kn_gemm_operand kept_rows(int64_t offset, int64_t ld, kn_dtype type, bool depth_contiguous) {
    return (kn_gemm_operand){.place = kn_place_workspace(offset),
                             .dtype = type,
                             .depth_contiguous = depth_contiguous,
                             .stride_dim = -1,
                             .stride_elems = ld,
                             .group_dim = -1,
                             .align_log2 = 4};
}

static kn_gemm_operand dz_part(const layer *m, int part, bool depth_contiguous) {
    int64_t part_bytes = m->tokens * m->dz_ld * kn_dtype_size(m->type);
    return kept_rows(m->dz + part * part_bytes, m->dz_ld, m->type, depth_contiguous);
}

/* ---- the products ------------------------------------------------------------------------------------------------ */

static void epi_bind(kn_gemm *g, kn_binding binding) {
    g->epi_bind[g->n_epi_bind++] = binding;
}

static void epi_bind_rows(kn_gemm *g, int arg) {
    epi_bind(g, (kn_binding){.kind = KN_BIND_TENSOR, .arg = (uint8_t)arg});
    epi_bind(g, (kn_binding){.kind = KN_BIND_STRIDE, .arg = (uint8_t)arg});
}

/* A slice of the workspace, or nothing. */
static void epi_bind_kept(kn_gemm *g, bool present, int64_t offset) {
    epi_bind(g, present ? (kn_binding){.kind = KN_BIND_WORKSPACE, .value = offset} : (kn_binding){.kind = KN_BIND_I64});
}

static void epi_name(kn_gemm *g, const char *name, const char *text) {
    kn_param *param = &g->epi_param[g->n_epi_params++];
    *param = (kn_param){.is_name = true};
    snprintf(param->name, sizeof param->name, "%s", name);
    snprintf(param->text, sizeof param->text, "%s", text);
}

static void epi_value(kn_gemm *g, const char *name, int64_t value) {
    kn_param *param = &g->epi_param[g->n_epi_params++];
    *param = (kn_param){.value = value};
    snprintf(param->name, sizeof param->name, "%s", name);
}

/* a = grad_output * down, and from it dg, du and h. Where h alone is needed a is not: a product of depth 0 reads
 * nothing. */
static void emit_da(layer *m) {
    const kn_problem *p = m->p;
    int gate_align = p->align_log2[GATE_OUTPUT], up_align = p->align_log2[UP_OUTPUT];
    kn_gemm g = {.symbol = "moe_layer_da",
                 .m = m->tokens,
                 .n = m->inner,
                 .m_is_tokens = true,
                 .n_segments = 1,
                 .a_split = 1,
                 .b_split = 1,
                 .segment = {{tensor_rows(m, GRAD_OUTPUT, true), tensor_rows(m, DOWN_WEIGHT, false),
                              m->gradients ? m->hidden : 0}},
                 .most_accumulators = {m->make_h ? 96 : 128, m->make_h ? 96 : 128},
                 .epilogue = "row_swiglu_backward",
                 .epi_align_log2 = gate_align < up_align ? gate_align : up_align};
    if (m->gradients && !m->make_h) {
        g.epi_box[0] = tensor_rows(m, GATE_OUTPUT, false);
        g.epi_box[1] = tensor_rows(m, UP_OUTPUT, false);
        g.epi_box[2] = kept_rows(m->dg, m->inner_ld, m->type, false);
        g.epi_box[3] = kept_rows(m->du, m->inner_ld, m->type, false);
    }
    epi_name(&g, "ACT_T", kn_dtype_name(m->type));
    epi_value(&g, "H_OUT", m->make_h);
    epi_bind_rows(&g, GATE_OUTPUT);
    epi_bind_rows(&g, UP_OUTPUT);
    epi_bind_kept(&g, m->gradients, m->dg);
    epi_bind_kept(&g, m->gradients, m->du);
    epi_bind_kept(&g, m->make_h, m->h);
    epi_bind(&g, (kn_binding){.kind = KN_BIND_I64, .value = m->inner_ld});
    /* Rows are tokens, without weights. */
    epi_value(&g, "GRADS", m->gradients);
    epi_value(&g, "DOT", 0);
    epi_name(&g, "ID_T", "none");
    epi_name(&g, "WEIGHT_T", "none");
    for (int i = 0; i < 7; i++) epi_bind(&g, (kn_binding){.kind = KN_BIND_I64});
    kn_gemm_emit(&m->builder, &g, p, m->facts, m->target);
}

/* output[rows, columns] = left^T * right, summed over the tokens. */
static kn_gemm weight_gradient(const layer *m, int output, const char *symbol, kn_gemm_operand left,
                               kn_gemm_operand right) {
    bool down = output == OUT_DOWN;
    int64_t rows = down ? m->hidden : output == OUT_ROUTER ? m->experts : m->inner;
    return (kn_gemm){.symbol = symbol,
                     .m = rows,
                     .n = down ? m->inner : m->hidden,
                     .k_is_tokens = true,
                     .n_segments = 1,
                     .a_split = 1,
                     .b_split = 1,
                     .segment = {{left, right, m->tokens}},
                     .d = tensor_rows(m, output, true),
                     .accumulate = is_added_to(m, output),
                     .epilogue = "store"};
}

/* The weight gradients of the shared expert, as few launches as types and beta allow. */
static void emit_dw(layer *m) {
    kn_gemm_operand hidden = tensor_rows(m, HIDDEN, false);
    kn_gemm_operand activated =
        m->make_h ? kept_rows(m->h, m->inner_ld, m->type, false) : tensor_rows(m, ACTIVATED, false);
    kn_gemm all[3];
    const kn_gemm *group[3];
    int n = 0;
    if (is_wanted(m, OUT_GATE))
        all[n++] = weight_gradient(m, OUT_GATE, "moe_layer_dw", kept_rows(m->dg, m->inner_ld, m->type, false), hidden);
    if (is_wanted(m, OUT_UP))
        all[n++] = weight_gradient(m, OUT_UP, "moe_layer_dw", kept_rows(m->du, m->inner_ld, m->type, false), hidden);
    if (is_wanted(m, OUT_DOWN))
        all[n++] = weight_gradient(m, OUT_DOWN, "moe_layer_dw", tensor_rows(m, GRAD_OUTPUT, false), activated);
    bool emitted[3] = {false};
    for (int i = 0; i < n; i++) {
        int in_group = 0;
        for (int j = i; j < n; j++) {
            if (emitted[j] || all[j].d.dtype != all[i].d.dtype || all[j].accumulate != all[i].accumulate) continue;
            emitted[j] = true;
            if (m->tokens > 0 || !all[j].accumulate) group[in_group++] = &all[j]; /* D += 0: not a bit changes */
        }
        if (in_group) kn_gemm_emit_group(&m->builder, group, in_group, m->p, m->facts, m->target);
    }
}

/* grad_router = dz^T * hidden, dz to 24 bits: in bf16 parts, the smallest first, or f32 in parts made on the way. */
static void emit_dw_router(layer *m) {
    kn_gemm_operand hidden = tensor_rows(m, HIDDEN, false);
    kn_gemm g = weight_gradient(
        m, OUT_ROUTER, "moe_layer_dw_router",
        m->parts ? dz_part(m, DZ_PARTS - 1, false) : kept_rows(m->dz_f32, m->dz_ld, KN_F32, false), hidden);
    if (m->tokens == 0 && g.accumulate) return;
    g.promote = KN_GEMM_PROMOTE;
    if (m->parts) {
        g.n_segments = DZ_PARTS;
        for (int i = 1; i < DZ_PARTS; i++) {
            g.segment[i] = g.segment[0];
            g.segment[i].a = dz_part(m, DZ_PARTS - 1 - i, false);
        }
    } else {
        g.a_split = 3;
        g.b_split = 2; /* 16 bits hold an f16 */
    }
    if (m->parts && kn_gemm_parts_fits(&g, m->p, m->target)) {
        kn_gemm_parts_emit(&m->builder, &g, m->p);
    } else {
        kn_gemm_emit(&m->builder, &g, m->p, m->facts, m->target);
    }
}

static void emit_dx(layer *m) {
    kn_gemm g = {
        .symbol = "moe_layer_dx",
        .m = m->tokens,
        .n = m->hidden,
        .m_is_tokens = true,
        .n_segments = 3,
        .a_split = 1,
        .b_split = 1,
        .segment = {{kept_rows(m->du, m->inner_ld, m->type, true), tensor_rows(m, UP_WEIGHT, false), m->inner},
                    {kept_rows(m->dg, m->inner_ld, m->type, true), tensor_rows(m, GATE_WEIGHT, false), m->inner},
                    {dz_part(m, 0, true), tensor_rows(m, ROUTER_WEIGHT, false), m->experts}},
        .d = tensor_rows(m, OUT_HIDDEN, true),
        .accumulate = is_added_to(m, OUT_HIDDEN),
        .epilogue = "store"};
    kn_gemm_emit(&m->builder, &g, m->p, m->facts, m->target);
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

static void set_floor(const layer *m, kn_program *out) {
    double t = (double)m->tokens, h = (double)m->hidden, i = (double)m->inner, e = (double)m->experts;
    double size = kn_dtype_size(m->type), flops = 0, bytes = 0;
    if (m->gradients) flops += 2 * t * h * i;
    for (int o = OUT_HIDDEN; o <= OUT_DOWN; o++) {
        if (!is_wanted(m, o)) continue;
        double rows = o == OUT_HIDDEN ? t : o == OUT_ROUTER ? e : i;
        flops += 2 * t * h * (o == OUT_HIDDEN ? 2 * i + e : rows);
        bytes += rows * h * kn_dtype_size((kn_dtype)m->p->dtype[o]) * (is_added_to(m, o) ? 2 : 1);
    }
    bytes += size * (2 * t * h + 3 * t * i + h * (3 * i + e)); /* rows and weights, each read once */
    bytes += t * 4 * (e + (double)m->top_k * 3);
    out->floor_flops = flops;
    out->floor_bytes = bytes;
}

kn_status kn_moe_layer_plan(const kn_problem *p, const kn_device_facts *facts, const kn_target *target,
                            kn_program *out) {
    layer m = {.p = p, .facts = facts, .target = target, .builder = {.program = out}};
    m.tokens = p->axis[KN_MOE_LAYER_T];
    m.hidden = p->axis[KN_MOE_LAYER_H];
    m.inner = p->axis[KN_MOE_LAYER_I];
    m.experts = p->axis[KN_MOE_LAYER_E];
    m.top_k = p->axis[KN_MOE_LAYER_K];
    m.type = (kn_dtype)p->dtype[GRAD_OUTPUT];
    lay_out(&m);
    set_floor(&m, out);
    if (m.run_router && m.tokens > 0) emit_router(&m);
    if ((m.gradients || m.make_h) && m.tokens > 0) emit_da(&m);
    if (is_wanted(&m, OUT_ROUTER)) emit_dw_router(&m);
    emit_dw(&m);
    if (is_wanted(&m, OUT_HIDDEN) && m.tokens > 0) emit_dx(&m);
    snprintf(out->note, sizeof out->note, "%u launches%s%s", out->n_launches,
             m.make_h ? ", the activated rows recomputed" : "",
             m.parts ? ", the router's weight gradient from 3 bf16 parts of dz" : "");
    return m.builder.status;
}
