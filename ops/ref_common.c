/* ops/ref_common: matrices with magnitudes for the float64 references. */
#include "ops/ref_common.h"

#include "base/thread.h"

#include <math.h>
#include <string.h>

/* ---- elements ---------------------------------------------------------------------------------------------------- */

static double from_f16(uint16_t bits) {
    int exponent = bits >> 10 & 31;
    double mantissa = bits & 1023;
    double v;
    if (exponent == 31) {
        v = mantissa != 0 ? (double)NAN : (double)INFINITY;
    } else if (exponent == 0) {
        v = ldexp(mantissa, -24);
    } else {
        v = ldexp(mantissa + 1024, exponent - 25);
    }
    return bits >> 15 ? -v : v;
}

static double from_bf16(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float v;
    memcpy(&v, &wide, sizeof v);
    return (double)v;
}

double kn_ref_load(const kn_tensor *t, int64_t offset) {
    const char *p = (const char *)t->data + offset * (int64_t)kn_dtype_size(t->dtype);
    uint16_t u16;
    float f32;
    double f64;
    switch (t->dtype) {
    case KN_BF16: memcpy(&u16, p, sizeof u16); return from_bf16(u16);
    case KN_F16: memcpy(&u16, p, sizeof u16); return from_f16(u16);
    case KN_F32: memcpy(&f32, p, sizeof f32); return (double)f32;
    case KN_F64: memcpy(&f64, p, sizeof f64); return f64;
    default: return (double)kn_ref_id(t, offset);
    }
}

int64_t kn_ref_id(const kn_tensor *t, int64_t offset) {
    const char *p = (const char *)t->data + offset * (int64_t)kn_dtype_size(t->dtype);
    int32_t i32;
    int64_t i64;
    switch (t->dtype) {
    case KN_I32: memcpy(&i32, p, sizeof i32); return i32;
    case KN_I64: memcpy(&i64, p, sizeof i64); return i64;
    case KN_I8: return *(const int8_t *)p;
    default: /* KN_BOOL, KN_U8 */ return *(const uint8_t *)p;
    }
}

/* ---- matrices ---------------------------------------------------------------------------------------------------- */

kn_status kn_ref_zero(kn_arena *arena, int64_t rows, int64_t cols, kn_ref *out) {
    size_t n = (size_t)rows * (size_t)cols;
    *out = (kn_ref){.rows = rows, .cols = cols};
    KN_REQUIRE(cols == 0 || (size_t)rows <= SIZE_MAX / 16 / (size_t)cols, KN_E_NOMEM,
               "a reference's matrix of %lld x %lld does not fit into memory", (long long)rows, (long long)cols);
    out->x = kn_arena_alloc(arena, n * sizeof(double));
    out->m = kn_arena_alloc(arena, n * sizeof(double));
    KN_REQUIRE(out->x && out->m, KN_E_NOMEM, "out of memory for a reference's matrix of %lld x %lld", (long long)rows,
               (long long)cols);
    return KN_OK;
}

/* Threads for work on so many elements. */
static int threads_for(int64_t elements) {
    return elements < 1000000 ? 1 : kn_cpu_count();
}

typedef struct reading {
    const kn_tensor *t;
    int64_t base, row_stride, col_stride;
    kn_ref *out;
} reading;

static kn_status read_row(void *user, int64_t i) {
    const reading *r = user;
    int64_t cols = r->out->cols;
    for (int64_t j = 0; j < cols; j++) {
        double v = kn_ref_load(r->t, r->base + i * r->row_stride + j * r->col_stride);
        r->out->x[i * cols + j] = v;
        r->out->m[i * cols + j] = fabs(v);
    }
    return KN_OK;
}

kn_status kn_ref_read(kn_arena *arena, const kn_tensor *t, int64_t index, kn_ref *out) {
    int lead = t->ndim > 2 ? 1 : 0;
    int64_t rows = t->shape[lead], cols = t->ndim > 1 ? t->shape[lead + 1] : 1;
    reading r = {.t = t, .base = lead ? index * t->stride[0] : 0, .row_stride = t->stride[lead], .out = out};
    r.col_stride = t->ndim > 1 ? t->stride[lead + 1] : 0;
    KN_TRY(kn_ref_zero(arena, rows, cols, out));
    return kn_parallel_for(threads_for(rows * cols), rows, read_row, &r);
}

void kn_ref_rounded_to(kn_ref *a, kn_dtype t) {
    for (int64_t i = 0; t == KN_F16 && i < a->rows * a->cols; i++) {
        if (a->m[i] > 0) a->m[i] = fmax(a->m[i], 0x1p-14);
    }
}

void kn_ref_clear_row(kn_ref *a, int64_t i) {
    memset(a->x + i * a->cols, 0, (size_t)a->cols * sizeof(double));
    memset(a->m + i * a->cols, 0, (size_t)a->cols * sizeof(double));
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

typedef struct product {
    const double *a, *b;
    int64_t a_row, a_col; /* strides of op(a) */
    int64_t depth, cols;
    double *out;
} product;

/* One row: out[i, :] += sum over k of op(a)[i, k] * b[k, :]. The innermost loop runs along contiguous memory. */
static void product_row(const product *p, int64_t i) {
    double *restrict out = p->out + i * p->cols;
    for (int64_t k = 0; k < p->depth; k++) {
        double a = p->a[i * p->a_row + k * p->a_col];
        const double *restrict b = p->b + k * p->cols;
        for (int64_t j = 0; j < p->cols; j++) out[j] += a * b[j];
    }
}

/* The exact product and that of the magnitudes. */
static kn_status both_rows(void *user, int64_t i) {
    const product *p = user;
    product_row(&p[0], i);
    product_row(&p[1], i);
    return KN_OK;
}

enum { TURNED = 8 }; /* rows that are written together: a cache line of what is read */

static kn_status turn_rows(void *user, int64_t block) {
    kn_ref *const *both = user;
    const kn_ref *from = both[0], *to = both[1];
    int64_t first = block * TURNED, stop = first + TURNED < to->rows ? first + TURNED : to->rows;
    for (int64_t j = 0; j < from->rows; j++) {
        for (int64_t i = first; i < stop; i++) {
            to->x[i * to->cols + j] = from->x[j * from->cols + i];
            to->m[i * to->cols + j] = from->m[j * from->cols + i];
        }
    }
    return KN_OK;
}

static kn_status transpose(const kn_ref *from, kn_ref *to) {
    kn_ref *both[2] = {(kn_ref *)(uintptr_t)from, to};
    return kn_parallel_for(threads_for(to->rows * to->cols), (to->rows + TURNED - 1) / TURNED, turn_rows, both);
}

static _Thread_local kiln_product_fn given_product;
static _Thread_local void *given_user;

void kn_ref_set_products(kiln_product_fn function, void *user) {
    given_product = function;
    given_user = user;
}

static kn_status multiply(product *both, int64_t rows) {
    bool small = (double)rows * (double)both->cols * (double)both->depth < 1e6;
    if (small || !given_product) return kn_parallel_for(small ? 1 : kn_cpu_count(), rows, both_rows, both);
    for (int i = 0; i < 2; i++) {
        const product *p = &both[i];
        int32_t st = given_product(given_user, rows, p->cols, p->depth, p->a, p->a_row, p->a_col, p->b, p->out);
        KN_REQUIRE(st == KN_OK, (kn_status)st, "the caller's product of %lld x %lld x %lld failed", (long long)rows,
                   (long long)p->cols, (long long)p->depth);
    }
    return KN_OK;
}

kn_status kn_ref_product(const kn_ref *a, bool ta, const kn_ref *b, bool tb, kn_ref *out) {
    kn_arena scratch = {0};
    kn_ref turned = {0};
    kn_status st = KN_OK;
    int64_t depth = ta ? a->rows : a->cols;
    if ((ta ? a->cols : a->rows) != out->rows || (tb ? b->cols : b->rows) != depth ||
        (tb ? b->rows : b->cols) != out->cols) {
        return kn_fail(KN_E_INTERNAL, "a reference multiplies matrices that do not fit");
    }
    if (tb) {
        KN_TRY_OUT(st, kn_ref_zero(&scratch, b->cols, b->rows, &turned));
        KN_TRY_OUT(st, transpose(b, &turned));
        b = &turned;
    }
    product p = {.a = a->x, .b = b->x, .depth = depth, .cols = out->cols, .out = out->x};
    p.a_row = ta ? 1 : a->cols;
    p.a_col = ta ? a->cols : 1;
    product both[2] = {p, p};
    both[1].a = a->m;
    both[1].b = b->m;
    both[1].out = out->m;
    st = multiply(both, out->rows);
out:
    kn_arena_free(&scratch);
    return st;
}

/* ---- outputs ----------------------------------------------------------------------------------------------------- */

int64_t kn_ref_offset(const kn_tensor *t, int64_t linear) {
    int64_t offset = 0;
    for (int d = t->ndim - 1; d >= 0; d--) {
        offset += linear % t->shape[d] * t->stride[d];
        linear /= t->shape[d];
    }
    return offset;
}

kn_status kn_ref_output(const kn_call *call, int i, int64_t offset, const kn_ref *r, double *const *exact,
                        double *const *magnitude) {
    const kiln_common_options *common = call->options;
    const kn_tensor *t = &call->tensor[call->op->n_args - call->op->n_outputs + i];
    bool accumulate = common->accumulate >> i & 1;
    int64_t n = r->rows * r->cols;
    if (!kn_ref_wanted(exact, magnitude, i) || n == 0) return KN_OK;
    KN_REQUIRE(!accumulate || (kn_ref_present(t) && t->data), KN_E_ARG,
               "output %d is accumulated into, but there is no tensor to add to", i);
    for (int64_t e = 0; e < n; e++) {
        double old = accumulate ? kn_ref_load(t, kn_ref_offset(t, offset + e)) : 0;
        if (exact && exact[i]) exact[i][offset + e] = r->x[e] + old;
        if (magnitude && magnitude[i]) magnitude[i][offset + e] = r->m[e] + fabs(old);
    }
    return KN_OK;
}

/* ---- activations ------------------------------------------------------------------------------------------------- */

/* exp of a negative number alone, so that nothing overflows. */
double kn_ref_sigmoid(double x) {
    if (x >= 0) return 1 / (1 + exp(-x));
    double e = exp(x);
    return e / (1 + e);
}

kn_status kn_ref_act_init(const kiln_activation *activation, kn_ref_act *out) {
    KN_REQUIRE(!activation->source, KN_E_UNSUPPORTED,
               "activation.source is set: a user's activation has no float64 reference");
    out->alpha = activation->alpha == 0 ? 1 : activation->alpha;
    out->limit = activation->limit == 0 ? (double)INFINITY : activation->limit;
    out->offset = activation->offset;
    return KN_OK;
}

/* A logistic function below fp32's smallest normal number may be taken for zero: an error of all of it, where bounds
 * are 2^-18 of a magnitude or more. */
static const double flushed = 0x1p-108;

kn_ref_act_parts kn_ref_act_eval(const kn_ref_act *act, kn_ref_num g, kn_ref_num u) {
    kn_ref_act_parts out = {.g_clamped = g.x > act->limit, .u_clamped = fabs(u.x) > act->limit};
    double gx = out.g_clamped ? act->limit : g.x;
    double ux = out.u_clamped ? copysign(act->limit, u.x) : u.x;
    double s = kn_ref_sigmoid(act->alpha * gx), q = kn_ref_sigmoid(-act->alpha * gx); /* q = 1 - s, uncancelled */
    double ag = act->alpha * gx;
    out.silu.x = gx * s;
    out.dsilu.x = s * (1 + ag * q);
    out.up.x = ux + act->offset;

    /* How far g can move: its magnitude, as far as that exceeds the value itself. */
    double slack = out.g_clamped ? 0 : g.m - fabs(g.x);
    double second = fabs(act->alpha) * s * q * (2 + fabs(ag)); /* bounds |d dsilu / dg| */
    out.silu.m = fabs(gx) * fmax(s, flushed) + slack * s * (1 + fabs(ag) * q);
    out.dsilu.m = fmax(s, flushed) * (1 + fabs(ag) * q) + slack * second;
    out.up.m = (out.u_clamped ? fabs(ux) : u.m) + fabs(act->offset);
    return out;
}
