/* ops/expert_mlp: checks and planner of expert_mlp_backward. At most five launches:
 *
 *     gather   d = w * dy of the selected rows; r = <dy, y>; zeros for the tokens that were not selected;
 *              copies of x and h without the rows that stand for no token, if there are any
 *     da       a = d * w2, whose epilogue makes dg and du of it (and h, where there is no gated_output)
 *     dw       grad_w1 = dg^T x, grad_w3 = du^T x, grad_w2 = d^T h: one launch
 *     dx       dg * w1 + du * w3 as one sum, its rows scattered to their tokens
 *     finish   only where r comes from da's epilogue (no expert_output), or where ids may repeat
 *
 * A part whose outputs are not wanted is left out. Derivation: docs/expert_mlp.md. */
#include "ops/expert_mlp.h"

#include "kiln/kiln.h"
#include "ops/activation.h"
#include "ops/gemm.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

enum {
    GRAD_OUTPUT,
    TOKEN_INDICES,
    SELECTED_TOKENS,
    W1_OUTPUT,
    GATE_OUTPUT,
    UP_OUTPUT,
    GATED_OUTPUT,
    EXPERT_OUTPUT,
    SELECTED_WEIGHTS,
    W1,
    W2,
    W3,
    OUT_HIDDEN,
    OUT_ROUTING,
    OUT_W1,
    OUT_W2,
    OUT_W3
};
enum { OPTION_ALPHA, OPTION_LIMIT, OPTION_OFFSET, OPTION_REPEATED }; /* the first three: the bits of a float */
enum {
    ABSENT = -1, /* a slice of the workspace that is not needed */
    STRIP = 16,  /* columns of one partial sum of <a, h> */
    FILL_ROWS_MIN = 32,
    FILL_ROWS_MAX = 65536, /* FILL_CAP of expert_mlp_gather.ptxt */
    COMBINE_COLUMNS = 2048,
    MAX_ROWS = INT_MAX - (1 << 20)
};

/* ---- checks --------------------------------------------------------------------------------------------------------
 */

kn_status kn_expert_mlp_describe(const kn_call *call, kn_problem *p) {
    const kiln_expert_mlp_backward_options *options = call->options;
    int64_t b = call->letter['B' - 'A'], t = call->letter['T' - 'A'];
    int64_t h = call->letter['H' - 'A'], f = call->letter['F' - 'A'];
    KN_REQUIRE(h >= 1, KN_E_SHAPE, "grad_output has %" PRId64 " columns; wanted at least 1", h);
    KN_REQUIRE(f >= 1, KN_E_SHAPE, "w1_output has %" PRId64 " columns; wanted at least 1", f);
    KN_REQUIRE(t <= MAX_ROWS, KN_E_SHAPE, "token_indices has %" PRId64 " elements; wanted at most %d", t, MAX_ROWS);
    KN_REQUIRE(b <= MAX_ROWS, KN_E_SHAPE, "grad_output has %" PRId64 " rows; wanted at most %d", b, MAX_ROWS);
    p->axis[KN_EXPERT_MLP_B] = b;
    p->axis[KN_EXPERT_MLP_T] = t;
    p->axis[KN_EXPERT_MLP_H] = h;
    p->axis[KN_EXPERT_MLP_F] = f;
    p->option[OPTION_REPEATED] = options->unique_indices == KILN_FALSE;
    return kn_describe_activation(&options->activation, p, &p->option[OPTION_ALPHA], &p->option[OPTION_LIMIT],
                                  &p->option[OPTION_OFFSET]);
}

/* ---- what is to be done ---------------------------------------------------------------------------------------------
 */

typedef struct mlp {
    const kn_problem *p;
    const kn_device_facts *facts;
    const kn_target *target;
    kn_program_builder *builder;
    int64_t batch, tokens, hidden, inner; /* B, T, H, F */
    kn_dtype dtype;
    bool hidden_out, routing_out, w1_out, w2_out, w3_out;
    bool screen_x, screen_h; /* selected_tokens, gated_output enter sums */
    bool repeated;           /* ids may repeat: dx and r are combined by a kernel of their own */
    bool grads;              /* dg and du are wanted */
    bool dots;               /* r is the sum of da's partial sums, for there is no expert_output */
    bool r_by_rows;          /* r goes to the workspace first */
    bool da_fills;           /* da, and not gather, makes the rows of the other tokens zeros */
    int64_t strips;          /* partial sums a row */
    /* Workspace. */
    int64_t d;       /* [T,H] w * dy: left side of grad_w2, and of da unless dots */
    int64_t dy;      /* [T,H] rows of grad_output, where da must be formed before the weight (dots) */
    int64_t x;       /* [T,H] selected_tokens without rows that stand for no token: a NaN there must not reach a sum */
    int64_t h;       /* [T,F] gated_output likewise, or h itself where it is absent: right side of grad_w2 */
    int64_t flag;    /* i32: not 0 if some row stands for no token, and x and h were copied */
    int64_t dg, du;  /* [T,F] */
    int64_t r_parts; /* f32 [T, strips], or r itself: [T] */
    int64_t dx;      /* f32 [T,H] before repeated rows are added up */
    int64_t counters, n_counters; /* u32, for dx */
} mlp;

static bool wanted(const kn_problem *p, int arg) {
    return p->dtype[arg] != KN_DTYPE_NONE;
}

static bool accumulates(const mlp *m, int arg) {
    return m->p->accumulate >> (arg - OUT_HIDDEN) & 1;
}

static int64_t rows_of(const mlp *m, bool is_wanted, int64_t columns, kn_dtype dtype) {
    if (!is_wanted) return ABSENT;
    uint64_t rows = m->tokens > 0 ? (uint64_t)m->tokens : 1; /* an address, even if there is nothing at it */
    return kn_add_workspace(m->builder, rows * (uint64_t)columns * kn_dtype_size(dtype));
}

static void decide(mlp *m, const kn_problem *p) {
    m->batch = p->axis[KN_EXPERT_MLP_B];
    m->tokens = p->axis[KN_EXPERT_MLP_T];
    m->hidden = p->axis[KN_EXPERT_MLP_H];
    m->inner = p->axis[KN_EXPERT_MLP_F];
    m->dtype = (kn_dtype)p->dtype[GRAD_OUTPUT];
    m->hidden_out = wanted(p, OUT_HIDDEN);
    m->routing_out = wanted(p, OUT_ROUTING);
    m->w1_out = wanted(p, OUT_W1);
    m->w2_out = wanted(p, OUT_W2);
    m->w3_out = wanted(p, OUT_W3);
    m->repeated = p->option[OPTION_REPEATED] != 0;
    m->grads = m->hidden_out || m->w1_out || m->w3_out;
    m->dots = m->routing_out && !wanted(p, EXPERT_OUTPUT);
    m->r_by_rows = m->routing_out && !m->dots && m->repeated;
    m->strips = m->dots ? (m->inner + STRIP - 1) / STRIP : 1;
    m->d = rows_of(m, m->w2_out || (m->grads && !m->dots), m->hidden, m->dtype);
    m->dy = rows_of(m, m->dots, m->hidden, m->dtype);
    m->screen_x = m->w1_out || m->w3_out;
    m->screen_h = m->w2_out && wanted(p, GATED_OUTPUT);
    m->x = rows_of(m, m->screen_x, m->hidden, m->dtype);
    m->h = rows_of(m, m->w2_out, m->inner, m->dtype);
    m->dg = rows_of(m, m->grads, m->inner, m->dtype);
    m->du = rows_of(m, m->grads, m->inner, m->dtype);
    m->flag = m->screen_x || m->screen_h ? kn_add_workspace(m->builder, 4) : ABSENT;
    m->r_parts = rows_of(m, m->dots || m->r_by_rows, m->strips, KN_F32);
    m->dx = rows_of(m, m->repeated && m->hidden_out, m->hidden, KN_F32);
}

/* Rows of grad_hidden_states that no id names are zeros. */
static bool needs_zeros(const mlp *m) {
    return m->hidden_out && !m->repeated && !accumulates(m, OUT_HIDDEN);
}

/* Rows of these tensors, and of what Kiln makes beside them, can be taken 16 bytes at a time. */
static int64_t row_vec(const mlp *m, int64_t columns, const int *args, int n) {
    if (columns % 8 != 0) return 1;
    for (int i = 0; i < n; i++)
        if (wanted(m->p, args[i]) && m->p->align_log2[args[i]] < 4) return 1;
    return 8;
}

static const char *id_type(const mlp *m) {
    return m->p->dtype[TOKEN_INDICES] == KN_I64 ? "s64" : "s32";
}

static void set_output(const mlp *m, kn_params *params, const char *type, const char *accumulate, int arg) {
    if (!wanted(m->p, arg)) return;
    kn_params_set_name(params, type, kn_dtype_name((kn_dtype)m->p->dtype[arg]));
    if (accumulate) kn_params_set(params, accumulate, accumulates(m, arg));
}

/* ---- gather, and the end of the routing gradient -------------------------------------------------------------------
 */

/* Multiprocessors that a launch may fill. */
static int64_t multiprocessors(const mlp *m) {
    int64_t all = m->facts->multiprocessors ? m->facts->multiprocessors : 1, limit = m->p->sm_limit;
    return limit && limit < all ? limit : all;
}

/* How many tokens a block looks after that no row stands for: each such block reads all ids. */
static int64_t fill_rows(const mlp *m) {
    int64_t blocks = 2 * multiprocessors(m);
    int64_t n = (m->batch + blocks - 1) / blocks;
    return n < FILL_ROWS_MIN ? FILL_ROWS_MIN : n > FILL_ROWS_MAX ? FILL_ROWS_MAX : n;
}

static void bind_slice(kn_launch_spec *l, int64_t offset) {
    if (offset == ABSENT)
        kn_bind_i64(l, 0);
    else
        kn_bind_workspace(l, offset);
}

/* Each block of rows reads all ids too, so there are only as many as the device can have at once. */
static int64_t row_blocks(const mlp *m) {
    int64_t blocks = 4 * multiprocessors(m);
    return m->tokens < blocks ? m->tokens : blocks;
}

static void bind_gather(const mlp *m, kn_launch_spec *l, bool first) {
    kn_bind_tensor(l, TOKEN_INDICES, 0);
    kn_bind_i64(l, m->batch);
    kn_bind_i32(l, (int32_t)m->tokens);
    kn_bind_i32(l, (int32_t)row_blocks(m));
    kn_bind_i32(l, (int32_t)fill_rows(m));
    kn_bind_tensor(l, GRAD_OUTPUT, 0);
    kn_bind_stride(l, GRAD_OUTPUT, 0);
    kn_bind_tensor(l, SELECTED_WEIGHTS, 0);
    kn_bind_tensor(l, SELECTED_TOKENS, 0);
    kn_bind_stride(l, SELECTED_TOKENS, 0);
    kn_bind_tensor(l, GATED_OUTPUT, 0);
    kn_bind_stride(l, GATED_OUTPUT, 0);
    if (first) {
        kn_bind_tensor(l, EXPERT_OUTPUT, 0);
        kn_bind_stride(l, EXPERT_OUTPUT, 0);
    } else {
        bind_slice(l, m->r_parts);
        kn_bind_i64(l, m->strips);
    }
    bind_slice(l, first ? m->d : ABSENT);
    bind_slice(l, first ? m->dy : ABSENT);
    bind_slice(l, first ? m->x : ABSENT);
    bind_slice(l, first && m->screen_h ? m->h : ABSENT);
    bind_slice(l, first ? m->flag : ABSENT);
    if (first && m->r_by_rows)
        bind_slice(l, m->r_parts);
    else
        kn_bind_tensor(l, OUT_ROUTING, 0);
    kn_bind_tensor(l, OUT_HIDDEN, 0);
    kn_bind_stride(l, OUT_HIDDEN, 0);
    bind_slice(l, first ? m->counters : ABSENT);
    kn_bind_faults(l);
}

/* The first launch, or (not first) the one that adds up partial sums of <a, h>. */
static void emit_gather(const mlp *m, bool first) {
    static const int inputs[] = {GRAD_OUTPUT, SELECTED_TOKENS, EXPERT_OUTPUT}, outputs[] = {OUT_HIDDEN};
    static const int gated[] = {GATED_OUTPUT};
    bool r = m->routing_out && (first ? !m->dots : m->dots);
    bool fill_r = r && !m->repeated && !accumulates(m, OUT_ROUTING);
    bool fill_hidden = first && needs_zeros(m) && !m->da_fills;
    int64_t blocks = row_blocks(m);
    if (fill_r || fill_hidden) blocks += (m->batch + fill_rows(m) - 1) / fill_rows(m);
    int kernel;
    kn_params *params = kn_add_kernel(m->builder, "expert_mlp_gather.ptxt", &kernel);
    kn_params_set_name(params, "T", kn_dtype_name(m->dtype));
    kn_params_set_name(params, "ID_T", id_type(m));
    kn_params_set(params, "H", m->hidden);
    kn_params_set(params, "VEC", row_vec(m, m->hidden, inputs, 3));
    kn_params_set(params, "D_OUT", first && m->d != ABSENT);
    kn_params_set(params, "DY_OUT", first && m->dots);
    kn_params_set(params, "SCREEN_X", first && m->screen_x);
    kn_params_set(params, "SCREEN_H", first && m->screen_h);
    if (first && m->screen_h) {
        kn_params_set(params, "F", m->inner);
        kn_params_set(params, "H_VEC", row_vec(m, m->inner, gated, 1));
    }
    kn_params_set_name(params, "R", !r ? "none" : first ? "dot" : "partials");
    kn_params_set(params, "PARTIALS", first ? 1 : m->strips);
    kn_params_set_name(params, "R_TO", m->r_by_rows ? "rows" : "tokens");
    if (r && !m->r_by_rows) set_output(m, params, "R_T", "R_ACCUMULATE", OUT_ROUTING);
    kn_params_set(params, "FILL_R", fill_r);
    kn_params_set(params, "FILL_HIDDEN", fill_hidden);
    if (fill_hidden) {
        set_output(m, params, "HIDDEN_T", NULL, OUT_HIDDEN);
        kn_params_set(params, "HIDDEN_VEC", row_vec(m, m->hidden, outputs, 1));
    }
    kn_params_set(params, "COUNT_FAULTS", first);
    if (first && m->counters != ABSENT) kn_params_set(params, "CLEAR", m->n_counters);
    kn_launch_spec *l = kn_add_launch(m->builder, kernel, (uint32_t)blocks, 1, 1);
    l->dependent = m->target->cc >= 90;
    bind_gather(m, l, first);
}

/* Repeated ids: the rows of a token are added up. */
static void emit_combine(const mlp *m) {
    static const int outputs[] = {OUT_HIDDEN};
    int64_t slices = m->hidden_out ? (m->hidden + COMBINE_COLUMNS - 1) / COMBINE_COLUMNS : 1;
    if (m->batch > INT_MAX / slices) {
        m->builder->status = kn_fail(
            KN_E_SHAPE, "grad_hidden_states is %" PRId64 " x %" PRId64 "; with repeated ids at most 2^42 elements",
            m->batch, m->hidden);
        return;
    }
    int kernel;
    kn_params *params = kn_add_kernel(m->builder, "expert_mlp_combine.ptxt", &kernel);
    kn_params_set_name(params, "ID_T", id_type(m));
    kn_params_set(params, "H", m->hidden);
    kn_params_set(params, "HIDDEN", m->hidden_out);
    set_output(m, params, "D_T", "ACCUMULATE", OUT_HIDDEN);
    if (m->hidden_out) kn_params_set(params, "VEC", row_vec(m, m->hidden, outputs, 1));
    kn_params_set(params, "R", m->routing_out);
    kn_params_set(params, "PARTIALS", m->strips);
    set_output(m, params, "R_T", "R_ACCUMULATE", OUT_ROUTING);
    kn_launch_spec *l = kn_add_launch(m->builder, kernel, (uint32_t)(m->batch * slices), 1, 1);
    l->dependent = m->target->cc >= 90;
    kn_bind_tensor(l, TOKEN_INDICES, 0);
    kn_bind_i64(l, m->batch);
    kn_bind_i32(l, (int32_t)m->tokens);
    bind_slice(l, m->dx);
    bind_slice(l, m->r_parts);
    kn_bind_tensor(l, OUT_HIDDEN, 0);
    kn_bind_stride(l, OUT_HIDDEN, 0);
    kn_bind_tensor(l, OUT_ROUTING, 0);
}

/* ---- products -------------------------------------------------------------------------------------------------------
 */

static kn_gemm_operand from_workspace(const mlp *m, int64_t offset, int64_t columns, bool depth_contiguous) {
    bool wide = columns * kn_dtype_size(m->dtype) % 16 == 0;
    return (kn_gemm_operand){.place = kn_place_workspace(offset),
                             .dtype = m->dtype,
                             .depth_contiguous = depth_contiguous,
                             .stride_dim = -1,
                             .stride_elems = columns,
                             .group_dim = -1,
                             .align_log2 = wide ? 4 : 1};
}

static kn_gemm_operand from_tensor(const mlp *m, int arg, bool depth_contiguous) {
    return (kn_gemm_operand){.place = kn_place_arg(arg),
                             .dtype = (kn_dtype)m->p->dtype[arg],
                             .depth_contiguous = depth_contiguous,
                             .stride_dim = 0,
                             .group_dim = -1,
                             .align_log2 = m->p->align_log2[arg]};
}

static kn_binding tensor(int arg) {
    return (kn_binding){.kind = KN_BIND_TENSOR, .arg = (uint8_t)arg};
}
static kn_binding stride(int arg) {
    return (kn_binding){.kind = KN_BIND_STRIDE, .arg = (uint8_t)arg};
}
static kn_binding workspace(int64_t offset) {
    return offset == ABSENT ? (kn_binding){.kind = KN_BIND_I64}
                            : (kn_binding){.kind = KN_BIND_WORKSPACE, .value = offset};
}
static kn_binding number(int64_t v) {
    return (kn_binding){.kind = KN_BIND_I64, .value = v};
}

static void epi_bind(kn_gemm *g, kn_binding binding) {
    g->epi_bind[g->n_epi_bind++] = binding;
}
static void epi_value(kn_gemm *g, const char *name, int64_t value) {
    kn_param *q = &g->epi_param[g->n_epi_params++];
    snprintf(q->name, sizeof q->name, "%s", name);
    q->value = value;
}
static void epi_name(kn_gemm *g, const char *name, const char *text) {
    kn_param *q = &g->epi_param[g->n_epi_params++];
    snprintf(q->name, sizeof q->name, "%s", name);
    snprintf(q->text, sizeof q->text, "%s", text);
    q->is_name = true;
}

static void epi_activation(kn_gemm *g, const kn_problem *p) {
    if (p->source[0] || p->source[1]) {
        epi_name(g, "ACTIVATION", "user");
        epi_value(g, "USER0", (int64_t)p->source[0]);
        epi_value(g, "USER1", (int64_t)p->source[1]);
        return;
    }
    epi_value(g, "ALPHA", p->option[OPTION_ALPHA]);
    epi_value(g, "LIMIT", p->option[OPTION_LIMIT]);
    epi_value(g, "OFFSET", p->option[OPTION_OFFSET]);
}

/* a = d * w2, then dg, du and h. Where h alone is wanted the product is empty: only its epilogue is of use. */
static kn_gemm product_da(const mlp *m) {
    bool product = m->grads || m->dots, h_out = m->w2_out && !m->screen_h;
    /* What else the epilogue holds in registers: measured with the assembler, which spills nothing then. */
    int most = h_out || m->dots || m->p->source[0] || m->p->source[1] ? 64 : 128;
    /* The left side of an empty product is never read. */
    kn_gemm g = {.symbol = "expert_mlp_da",
                 .m = m->tokens,
                 .n = m->inner,
                 .m_is_tokens = true,
                 .n_segments = 1,
                 .segment = {{from_workspace(m, m->dots ? m->dy : m->d, m->hidden, true), from_tensor(m, W2, false),
                              product ? m->hidden : 0}},
                 .a_split = 1,
                 .b_split = 1,
                 .most_accumulators = {most, most},
                 .epilogue = "row_swiglu_backward"};
    int up_align = m->p->align_log2[UP_OUTPUT], gate_align = m->p->align_log2[W1_OUTPUT];
    g.epi_align_log2 = up_align < gate_align ? up_align : gate_align;
    if (m->grads && !h_out && !m->dots) {
        g.epi_box[0] = from_tensor(m, W1_OUTPUT, false);
        g.epi_box[1] = from_tensor(m, UP_OUTPUT, false);
        g.epi_box[2] = from_workspace(m, m->dg, m->inner, false);
        g.epi_box[3] = from_workspace(m, m->du, m->inner, false);
    }
    epi_name(&g, "ACT_T", kn_dtype_name(m->dtype));
    epi_activation(&g, m->p);
    epi_name(&g, "ID_T", id_type(m));
    epi_name(&g, "WEIGHT_T", m->dots ? kn_dtype_name(m->dtype) : "none");
    epi_value(&g, "DOT", m->dots);
    epi_value(&g, "GRADS", m->grads);
    epi_value(&g, "H_OUT", h_out);
    epi_bind(&g, tensor(W1_OUTPUT));
    epi_bind(&g, stride(W1_OUTPUT));
    epi_bind(&g, tensor(UP_OUTPUT));
    epi_bind(&g, stride(UP_OUTPUT));
    epi_bind(&g, workspace(m->dg));
    epi_bind(&g, workspace(m->du));
    epi_bind(&g, workspace(m->h));
    epi_bind(&g, number(m->inner));
    epi_bind(&g, tensor(TOKEN_INDICES));
    epi_bind(&g, number(m->batch));
    epi_bind(&g, tensor(SELECTED_WEIGHTS));
    epi_bind(&g, workspace(m->r_parts));
    epi_bind(&g, number(m->strips));
    if (m->da_fills) {
        epi_value(&g, "FILL", m->hidden);
        epi_name(&g, "FILL_T", kn_dtype_name((kn_dtype)m->p->dtype[OUT_HIDDEN]));
    }
    epi_bind(&g, m->da_fills ? tensor(OUT_HIDDEN) : number(0));
    epi_bind(&g, m->da_fills ? stride(OUT_HIDDEN) : number(0));
    return g;
}

static void emit_da(const mlp *m) {
    if (!m->grads && !m->dots && (!m->w2_out || m->screen_h)) return;
    kn_gemm g = product_da(m);
    kn_gemm_emit(m->builder, &g, m->p, m->facts, m->target);
}

/* `right` is a tensor; where some row stands for no token, its copy in the workspace; or (NULL) the workspace alone. */
static kn_gemm weight_gradient(const mlp *m, int out, int64_t left, int64_t left_columns, const int *right,
                               int64_t copy, int64_t right_columns) {
    kn_gemm_operand screened = from_workspace(m, copy, right_columns, false);
    /* Without rows nobody has written the flag. */
    bool tensor = right && m->tokens > 0;
    return (kn_gemm){.symbol = "expert_mlp_dw",
                     .m = left_columns,
                     .n = right_columns,
                     .k_is_tokens = true,
                     .n_segments = 1,
                     .segment = {{from_workspace(m, left, left_columns, false),
                                  tensor ? from_tensor(m, *right, false) : screened, m->tokens}},
                     .b_switch = tensor,
                     .b_flag = kn_place_workspace(m->flag),
                     .b_instead = {screened},
                     .a_split = 1,
                     .b_split = 1,
                     .d = from_tensor(m, out, false),
                     .accumulate = accumulates(m, out),
                     .epilogue = "store"};
}

/* Those that are stored alike share a launch. */
static void emit_dw(const mlp *m) {
    static const int x = SELECTED_TOKENS, gated = GATED_OUTPUT;
    kn_gemm all[3];
    int n = 0;
    if (m->w2_out) all[n++] = weight_gradient(m, OUT_W2, m->d, m->hidden, m->screen_h ? &gated : NULL, m->h, m->inner);
    if (m->w1_out) all[n++] = weight_gradient(m, OUT_W1, m->dg, m->inner, &x, m->x, m->hidden);
    if (m->w3_out) all[n++] = weight_gradient(m, OUT_W3, m->du, m->inner, &x, m->x, m->hidden);
    bool done[3] = {false};
    for (int i = 0; i < n; i++) {
        const kn_gemm *alike[3];
        int count = 0;
        for (int j = i; j < n; j++) {
            if (done[j] || all[j].d.dtype != all[i].d.dtype || all[j].accumulate != all[i].accumulate) continue;
            alike[count++] = &all[j];
            done[j] = true;
        }
        /* Adding a sum over no rows changes nothing, to the bit. */
        if (count == 0 || (m->tokens == 0 && all[i].accumulate)) continue;
        kn_gemm_emit_group(m->builder, alike, count, m->p, m->facts, m->target);
    }
}

static kn_gemm product_dx(const mlp *m) {
    kn_gemm g = {.symbol = "expert_mlp_dx",
                 .m = m->tokens,
                 .n = m->hidden,
                 .m_is_tokens = true,
                 .n_segments = 2,
                 .segment = {{from_workspace(m, m->dg, m->inner, true), from_tensor(m, W1, false), m->inner},
                             {from_workspace(m, m->du, m->inner, true), from_tensor(m, W3, false), m->inner}},
                 .a_split = 1,
                 .b_split = 1,
                 .has_counters = true,
                 .counters = kn_place_workspace(m->counters)};
    if (m->repeated) {
        g.d = from_workspace(m, m->dx, m->hidden, false);
        g.d.dtype = KN_F32;
        g.d.align_log2 = m->hidden % 4 == 0 ? 4 : 2;
        g.epilogue = "store";
        return g;
    }
    g.epilogue = "scatter_rows";
    g.epi_align_log2 = m->p->align_log2[OUT_HIDDEN];
    g.accumulate = accumulates(m, OUT_HIDDEN);
    epi_name(&g, "D_T", kn_dtype_name((kn_dtype)m->p->dtype[OUT_HIDDEN]));
    epi_value(&g, "ACCUMULATE", g.accumulate);
    epi_name(&g, "ID_T", id_type(m));
    epi_bind(&g, tensor(OUT_HIDDEN));
    epi_bind(&g, stride(OUT_HIDDEN));
    epi_bind(&g, tensor(TOKEN_INDICES));
    epi_bind(&g, number(m->batch));
    return g;
}

/* dx may count clusters that are done (docs/gemm.md): gather clears the counters. Where kernels serve any number of
 * tokens gather clears what the one that counts most needs, always: it is one kernel then. */
static void reserve_counters(mlp *m) {
    m->counters = ABSENT;
    if (!m->hidden_out) return;
    kn_gemm dx = product_dx(m);
    m->n_counters = kn_gemm_counters(&dx, m->p, m->target);
    if (m->p->generic) {
        dx.m = KN_GEMM_MOST_COUNTED;
        int64_t most = kn_gemm_counters(&dx, m->p, m->target);
        if (most > m->n_counters) m->n_counters = most;
    }
    if (m->n_counters) m->counters = kn_add_workspace(m->builder, (uint64_t)m->n_counters * 4);
}

/* ---- the plan -------------------------------------------------------------------------------------------------------
 */

static void set_floor(const mlp *m, kn_program *out) {
    double b = (double)m->batch, t = (double)m->tokens, h = (double)m->hidden, f = (double)m->inner;
    double size = kn_dtype_size(m->dtype), flop = 2 * t * h * f;
    out->floor_flops = flop * ((m->grads || m->dots) + 2 * m->hidden_out + m->w1_out + m->w2_out + m->w3_out);
    double elements = t * h * (1 + (m->w1_out || m->w3_out) + (m->routing_out && !m->dots)); /* dy, x, y */
    if (m->grads || m->dots || m->w2_out) elements += 2 * t * f;                             /* g, u */
    elements += h * f * ((m->grads || m->dots) + 2 * m->hidden_out);                         /* w2; w1, w3 */
    out->floor_bytes = size * elements;
    const double outputs[] = {b * h, b, f * h, h * f, f * h};
    for (int i = OUT_HIDDEN; i <= OUT_W3; i++)
        out->floor_bytes +=
            outputs[i - OUT_HIDDEN] * kn_dtype_size((kn_dtype)m->p->dtype[i]) * (accumulates(m, i) ? 2 : 1);
}

kn_status kn_expert_mlp_plan(const kn_problem *p, const kn_device_facts *facts, const kn_target *target,
                             kn_program *out) {
    kn_program_builder builder = {.program = out};
    mlp m = {.p = p, .facts = facts, .target = target, .builder = &builder};
    decide(&m, p);
    set_floor(&m, out);
    if (!m.grads && !m.routing_out && !m.w2_out) {
        snprintf(out->note, sizeof out->note, "nothing to do");
        return KN_OK;
    }
    if (needs_zeros(&m) && row_vec(&m, m.hidden, (const int[]){OUT_HIDDEN}, 1) == 8) {
        kn_gemm da = product_da(&m);
        m.da_fills = kn_gemm_may_fill(&da, p, target);
    }
    reserve_counters(&m);
    emit_gather(&m, true);
    emit_da(&m);
    emit_dw(&m);
    if (m.hidden_out) {
        kn_gemm dx = product_dx(&m);
        kn_gemm_emit(m.builder, &dx, m.p, m.facts, m.target);
    }
    if (m.repeated && (m.hidden_out || m.routing_out))
        emit_combine(&m);
    else if (m.dots)
        emit_gather(&m, false);
    snprintf(out->note, sizeof out->note, "%u launches%s%s", out->n_launches,
             m.dots ? ", routing gradient from <a, h>" : "", m.repeated ? ", repeated ids added up" : "");
    return builder.status;
}
