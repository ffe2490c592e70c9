/* ops/compare: the tolerances of docs/numerics.md as code. Two rules are applied to every output:
 *
 *   element    |err| <= 2 u_out |exact| + c u_in Abs, for every element without exception
 *   Frobenius  |err|_F <= limit |exact|_F, for the tensor, and for each of its rows or experts, once sizes are >= 64
 *
 * What differs from output to output stands in the table `kinds` and in precision_of. */
#include "ops/compare.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "ops/ref_common.h"
#include "ops/ref_routed_experts.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- what each output is ----------------------------------------------------------------------------------------- */

typedef enum part_kind {
    PART_NONE,   /* judged as a whole */
    PART_ROW,    /* axis 0 counts tokens: each row is judged, the negligible ones apart */
    PART_EXPERT, /* axis 0 counts experts: each slice is judged */
    PART_SLOT    /* [T, K] dot products, each judged by the norms of its factors */
} part_kind;

/* Outputs of one operation, in order, and the axes that must be >= 64 for the Frobenius rule. */
static const struct op_kinds {
    const char *op, *axes;
    uint8_t part[8];
} kinds[] = {
    {"load_balance_backward", "B", {PART_ROW}},
    {"router_backward", "TH", {PART_ROW, PART_EXPERT, PART_NONE, PART_ROW}},
    {"expert_mlp_backward", "THF", {PART_ROW, PART_NONE, PART_NONE, PART_NONE, PART_NONE}},
    {"moe_layer_backward", "THI", {PART_ROW, PART_EXPERT, PART_NONE, PART_NONE, PART_NONE}},
    {"routed_experts_backward", "THI", {PART_ROW, PART_SLOT, PART_EXPERT, PART_EXPERT, PART_EXPERT}},
    {"gemm", "MNK", {PART_ROW}},
    {"grouped_gemm", "MK", {PART_NONE}},
};

static const struct op_kinds *kinds_of(const char *op) {
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kinds[i].op, op) == 0) return &kinds[i];
    }
    return NULL;
}

/* ---- how precise an output must be ------------------------------------------------------------------------------- */

/* Unit roundings; FINE is what fp32 arithmetic and hi + lo products are held to, EXACT_OPERANDS what products of 16-bit
 * operands that nothing rounds are: the tensor core cuts its partial sums off. */
#define U_BF16 0x1p-9
#define U_F16 0x1p-12
#define U_F32 0x1p-24
#define U_FINE 0x1p-20
#define U_EXACT_OPERANDS 0x1p-15

typedef struct precision {
    double u_out, c, u_in;
    double limit, row_limit; /* Frobenius; 0: the rule does not apply */
    double slot_limit;       /* PART_SLOT: times |a| |h| */
    double arithmetic; /* times Abs_F, added to what the Frobenius rule allows: rounding of fp32 terms that cancel */
    double underflow;  /* an element's, added likewise: an f16 factor's rounding where it is no longer relative */
    double tiny, huge; /* of the output's type: half the smallest step, and the largest finite value */
} precision;

static double unit_of(kn_dtype t) {
    return t == KN_BF16 ? U_BF16 : t == KN_F16 ? U_F16 : U_F32;
}

static int32_t math_of(const kn_call *call) {
    const char *op = call->op->name;
    if (strcmp(op, "routed_experts_backward") == 0) {
        return ((const kiln_routed_experts_backward_options *)call->options)->math;
    }
    if (strcmp(op, "gemm") == 0) return ((const kiln_gemm_options *)call->options)->math;
    if (strcmp(op, "grouped_gemm") == 0) return ((const kiln_grouped_gemm_options *)call->options)->math;
    return KILN_MATH_ACCURATE;
}

/* u_in: the coarsest rounding that an operand of the products behind output i undergoes. */
static double operand_rounding(const kn_call *call, int output) {
    const char *op = call->op->name;
    double u = unit_of(call->tensor[0].dtype);
    if (strcmp(op, "load_balance_backward") == 0) return U_FINE;
    if (strcmp(op, "router_backward") == 0) {
        const kiln_router_backward_options *options = call->options;
        return options->round_dlogits == KILN_ROUND_DLOGITS_F32 || u == U_F32 ? U_FINE : u;
    }
    if (strcmp(op, "moe_layer_backward") == 0 && output == 1) return U_FINE; /* fp32 dz, hi + lo */
    if (u == U_F32) return math_of(call) == KILN_MATH_ACCURATE ? U_FINE : U_BF16;
    return strcmp(op, "gemm") == 0 || strcmp(op, "grouped_gemm") == 0 ? U_EXACT_OPERANDS : u;
}

static bool large_enough(const kn_call *call, const char *axes) {
    for (; *axes; axes++) {
        int64_t size = call->letter[*axes - 'A'];
        if (size >= 0 && size < 64) return false;
    }
    return true;
}

/* Relative Frobenius limits, from what the output's type and the products' operands can hold. */
static void set_limits(const kn_call *call, precision *p) {
    if (strcmp(call->op->name, "load_balance_backward") == 0) {
        p->limit = p->row_limit = 1e-6;
    } else if (p->u_out == U_BF16 || (p->u_out == U_F16 && p->u_in == U_BF16)) {
        p->limit = 5e-3;
        p->row_limit = 1e-2;
    } else if (p->u_out == U_F16 || p->u_in == U_F16) {
        p->limit = 1.5e-3;
        p->row_limit = 4e-3;
    } else {
        p->limit = p->row_limit = p->u_in == U_FINE ? 2e-5 : p->u_in == U_EXACT_OPERANDS ? 1e-4 : 1e-2;
    }
    if (p->u_in == U_BF16 && p->limit < 1e-2 && math_of(call) == KILN_MATH_FAST) p->limit = p->row_limit = 1e-2;
}

static precision precision_of(const kn_call *call, const struct op_kinds *k, int output, kn_dtype out) {
    precision p = {.u_out = unit_of(out), .c = 4, .u_in = operand_rounding(call, output)};
    p.tiny = out == KN_F16 ? 0x1p-25 : 0x1p-126; /* f32 and bf16: arithmetic may flush subnormals */
    p.huge = out == KN_F16 ? 65504 : out == KN_BF16 ? 0x1.FEp127 : (double)FLT_MAX;
    if (k->part[output] == PART_SLOT) p.c = 8;
    if (!large_enough(call, k->axes)) return p;
    if (k->part[output] == PART_SLOT) {
        bool wide = call->tensor[0].dtype == KN_F32;
        int32_t math = wide ? math_of(call) : KILN_MATH_BALANCED;
        p.slot_limit = math == KILN_MATH_ACCURATE ? 2e-5 : math == KILN_MATH_FAST ? 5e-3 : 1e-3;
        return p;
    }
    set_limits(call, &p);
    /* Where fp32 terms cancel, as in the gradient of an expert that no token selected, their own rounding is left. */
    bool single = strcmp(call->op->name, "routed_experts_backward") != 0;
    p.arithmetic = single ? U_F32 : 0;
    return p;
}

/* The router's dlogits may be rounded to f16, and those of an expert with small scores are small. Below 2^-14 such a
 * rounding is up to 2^-25 whatever the number. In a product with another matrix these errors, which are independent of
 * each other, add up to 2^-25 |other|_F for a row or an expert; twice that where the other's rows are alike. This is an
 * element's part of it; Abs has its own floor (kn_ref_rounded_to). */
static double underflow_of(const kn_call *call, int output) {
    enum { HIDDEN, GATE_WEIGHT, OUT_HIDDEN = 0, OUT_GATE_WEIGHT = 1 };
    if (strcmp(call->op->name, "router_backward") != 0 || call->tensor[HIDDEN].dtype != KN_F16) return 0;
    const kiln_router_backward_options *options = call->options;
    if (options->round_dlogits == KILN_ROUND_DLOGITS_F32 || output > OUT_GATE_WEIGHT) return 0;
    const kn_tensor *other = &call->tensor[output == OUT_HIDDEN ? GATE_WEIGHT : HIDDEN];
    double squares = 0;
    for (int64_t i = 0; i < other->shape[0] * other->shape[1]; i++) {
        double v = kn_ref_load(other, kn_ref_offset(other, i));
        if (isfinite(v)) squares += v * v;
    }
    return other->shape[1] > 0 ? 0x1p-24 * sqrt(squares / (double)other->shape[1]) : 0;
}

/* ---- one output -------------------------------------------------------------------------------------------------- */

typedef struct norms {
    double err, exact, mag; /* sums of squares */
    uint64_t n;
} norms;

typedef struct comparison {
    const kn_call *call;
    const kn_tensor *tensor;
    const char *name;
    const double *exact, *magnitude, *slot_norms;
    part_kind part;
    precision p;
    kiln_check_result *result;
    bool mismatch; /* an element is over its bound; message is about the worst so far */
} comparison;

/* "[3, 17]" */
static void write_index(const kn_tensor *t, uint64_t linear, kn_buf *b) {
    uint64_t index[5] = {0};
    for (int d = t->ndim - 1; d >= 0; d--) {
        index[d] = linear % (uint64_t)t->shape[d];
        linear /= (uint64_t)t->shape[d];
    }
    kn_buf_add_char(b, '[');
    for (int d = 0; d < t->ndim; d++) {
        if (d) kn_buf_add(b, ", ");
        kn_buf_add_u64(b, index[d]);
    }
    kn_buf_add_char(b, ']');
}

/* A positive number in steps of 1e-7, as digits that no locale changes. */
static void write_ratio(double v, kn_buf *b) {
    if (!(v < 1e9)) {
        kn_buf_add(b, "over 1e9");
        return;
    }
    uint64_t steps = (uint64_t)(v * 1e7 + 0.5), fraction = steps % 10000000;
    kn_buf_add_u64(b, steps / 10000000);
    kn_buf_add_char(b, '.');
    for (uint64_t unit = 1000000; unit; unit /= 10) kn_buf_add_u64(b, fraction / unit % 10);
}

static void set_message(comparison *c, kn_buf *b) {
    snprintf(c->result->message, sizeof c->result->message, "%s", kn_buf_status(b) == KN_OK ? b->data : c->name);
    kn_buf_free(b);
}

static void report_element(comparison *c, double got, double exact) {
    kn_buf b;
    kn_buf_init(&b, 1024);
    kn_buf_add(&b, c->name);
    write_index(c->tensor, c->result->worst_index, &b);
    if (!isfinite(got) && isfinite(exact)) {
        kn_buf_add(&b, isnan(got) ? " is NaN" : " is infinite");
        kn_buf_add(&b, ", the exact value is finite");
    } else if (isfinite(got) && !isfinite(exact)) {
        kn_buf_add(&b, " is finite, the exact value is not");
    } else {
        kn_buf_add(&b, " is off by ");
        write_ratio(c->result->max_ratio, &b);
        kn_buf_add(&b, " times its bound");
    }
    kn_buf_add(&b, "; ");
    kn_buf_add_u64(&b, c->result->bad_elements);
    kn_buf_add(&b, " elements are over their bound");
    set_message(c, &b);
}

static void report_part(comparison *c, const char *what, int64_t index, double error, double limit) {
    kn_buf b;
    kn_buf_init(&b, 1024);
    c->result->pass = 0;
    if (c->result->message[0]) return; /* an element has been named: that says more */
    kn_buf_add(&b, c->name);
    kn_buf_add(&b, what);
    if (index >= 0) kn_buf_add_i64(&b, index);
    kn_buf_add(&b, ": relative Frobenius error ");
    write_ratio(error, &b);
    kn_buf_add(&b, ", wanted at most ");
    write_ratio(limit, &b);
    set_message(c, &b);
}

static double element_bound(const comparison *c, uint64_t i) {
    const precision *p = &c->p;
    double bound = 2 * p->u_out * fabs(c->exact[i]) + p->c * p->u_in * c->magnitude[i] + p->tiny;
    if (c->slot_norms && p->slot_limit > 0) {
        double slot = 2 * p->u_out * fabs(c->exact[i]) + p->slot_limit * c->slot_norms[i] + p->tiny;
        if (slot < bound) bound = slot;
    }
    return bound;
}

/* |got - exact| / bound; infinite where one is finite and the other is not. */
static double element_ratio(const comparison *c, uint64_t i, double got) {
    double exact = c->exact[i], bound = element_bound(c, i);
    if (!isfinite(exact)) return isfinite(got) ? (double)INFINITY : 0;
    if (isnan(got)) return (double)INFINITY;
    if (isinf(got)) { /* right if the exact value itself, or what it may be mistaken for, does not fit the type */
        return (got > 0) == (exact > 0) && fabs(exact) + bound > c->p.huge ? 0 : (double)INFINITY;
    }
    return fabs(got - exact) / bound;
}

static void compare_element(comparison *c, uint64_t i, double got, norms *sum) {
    kiln_check_result *r = c->result;
    double ratio = element_ratio(c, i, got), err = fabs(got - c->exact[i]);
    if (isfinite(err)) {
        if (err > r->max_error) r->max_error = err;
        sum->err += err * err;
        sum->exact += c->exact[i] * c->exact[i];
        sum->mag += c->magnitude[i] * c->magnitude[i];
        sum->n++;
    }
    bool bad = !(ratio <= 1);
    r->bad_elements += bad;
    double shown = ratio < DBL_MAX ? ratio : DBL_MAX;
    if (shown > r->max_ratio) {
        r->max_ratio = shown;
        r->worst_index = i;
    }
    c->mismatch |= bad;
}

/* What the Frobenius rule allows for a tensor or a part of it. */
static double allowed(const comparison *c, const norms *s, double limit) {
    return limit * sqrt(s->exact) + c->p.arithmetic * sqrt(s->mag) + (c->p.tiny + c->p.underflow) * sqrt((double)s->n);
}

static double relative(const norms *s) {
    return s->exact > 0 ? sqrt(s->err) / sqrt(s->exact) : s->err > 0 ? DBL_MAX : 0;
}

static void judge_whole(comparison *c, const norms *s) {
    c->result->frobenius = relative(s);
    if (s->exact > 0 && sqrt(s->err) > allowed(c, s, c->p.limit)) {
        report_part(c, "", -1, c->result->frobenius, c->p.limit);
    }
}

static void judge_parts(comparison *c, const norms *parts, int64_t n) {
    double largest = 0;
    bool rows = c->part == PART_ROW;
    double limit = rows ? c->p.row_limit : c->p.limit;
    c->result->worst_slice = 0;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, sqrt(parts[i].exact));
    for (int64_t i = 0; i < n; i++) {
        const norms *s = &parts[i];
        if (s->exact <= 0 || (rows && sqrt(s->exact) <= 1e-3 * largest)) continue;
        c->result->worst_slice = fmax(c->result->worst_slice, relative(s));
        if (sqrt(s->err) > allowed(c, s, limit)) report_part(c, rows ? " row " : " expert ", i, relative(s), limit);
    }
}

static kn_status compare_output(comparison *c) {
    const kn_tensor *t = c->tensor;
    uint64_t n = 1;
    for (int d = 0; d < t->ndim; d++) n *= (uint64_t)t->shape[d];
    if (n == 0) return KN_OK;
    int64_t n_parts = t->ndim > 1 ? t->shape[0] : 1;
    norms *parts = NULL, whole = {0};
    KN_TRY(KN_NEW(&parts, n_parts, "the comparison of an output"));
    uint64_t part_size = n / (uint64_t)n_parts;
    for (uint64_t i = 0; i < n; i++) {
        compare_element(c, i, kn_ref_load(t, kn_ref_offset(t, (int64_t)i)), &parts[i / part_size]);
    }
    for (int64_t i = 0; i < n_parts; i++) {
        whole.err += parts[i].err;
        whole.exact += parts[i].exact;
        whole.mag += parts[i].mag;
        whole.n += parts[i].n;
    }
    if (c->mismatch) {
        uint64_t worst = c->result->worst_index;
        c->result->pass = 0;
        report_element(c, kn_ref_load(t, kn_ref_offset(t, (int64_t)worst)), c->exact[worst]);
    }
    if (c->p.limit > 0) {
        judge_whole(c, &whole);
        bool split = t->ndim > 1 && (c->part == PART_EXPERT || (c->part == PART_ROW && part_size >= 16));
        if (split) judge_parts(c, parts, n_parts);
    }
    kn_free(parts);
    return KN_OK;
}

/* The exact gradient is zero up to cancellation when every slot of a token receives the same gradient, and nothing can
 * be said relative to it. */
static bool cancels(const kn_call *call, int output) {
    enum { TOPK_INDICES = 6, GRAD_TOPK_WEIGHTS = 15, OUT_ROUTER = 1 };
    if (strcmp(call->op->name, "moe_layer_backward") != 0 || output != OUT_ROUTER) return false;
    const kiln_moe_layer_backward_options *options = call->options;
    bool one = call->tensor[TOPK_INDICES].shape[1] == 1, same = call->tensor[GRAD_TOPK_WEIGHTS].dtype == KN_DTYPE_NONE;
    return options->norm_topk_prob == KILN_TRUE && (one || same);
}

kn_status kn_compare(const kn_call *call, const double *const *exact, const double *const *magnitude,
                     kiln_check_result *results) {
    const struct op_kinds *k = kinds_of(call->op->name);
    KN_REQUIRE(k, KN_E_INTERNAL, "operation %s has no row in the table of tolerances", call->op->name);
    double *slot_norms = NULL;
    kn_status st = KN_OK;
    for (int i = 0; i < call->op->n_outputs; i++) {
        int arg = call->op->n_args - call->op->n_outputs + i;
        comparison c = {.call = call, .tensor = &call->tensor[arg], .name = call->op->args[arg].name};
        c.result = &results[i];
        results[i] =
            (kiln_check_result){.struct_size = sizeof results[i], .pass = 1, .frobenius = -1, .worst_slice = -1};
        if (!kn_ref_present(c.tensor) || !exact[i]) continue;
        if (!magnitude[i]) {
            st = kn_fail(KN_E_ARG, "magnitude[%d] is NULL, but %s is to be compared", i, c.name);
            goto out;
        }
        c.exact = exact[i];
        c.magnitude = magnitude[i];
        c.part = (part_kind)k->part[i];
        c.p = precision_of(call, k, i, c.tensor->dtype);
        if (cancels(call, i)) c.p.limit = 0;
        if (c.p.limit > 0) c.p.underflow = underflow_of(call, i);
        if (c.p.slot_limit > 0) {
            KN_TRY_OUT(st, KN_NEW(&slot_norms, c.tensor->shape[0] * (c.tensor->ndim > 1 ? c.tensor->shape[1] : 1),
                                  "the norms of the slots"));
            KN_TRY_OUT(st, kn_routed_experts_slot_norms(call, slot_norms));
            c.slot_norms = slot_norms;
        }
        KN_TRY_OUT(st, compare_output(&c));
    }
out:
    kn_free(slot_norms);
    return st;
}
