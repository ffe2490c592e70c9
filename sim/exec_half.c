/* Arithmetic of f16, bf16 and their packed pairs: add sub mul fma min max neg abs ex2 tanh.
 *
 * Each result is the exact one rounded once: sums and products of halves are computed in double, rounded to odd where
 * double cannot hold them. NaN results are 0x7fff. */
#include "sim/lanes.h"
#include "sim/rounding.h"

typedef enum half_op { H_ADD, H_SUB, H_MUL, H_FMA, H_MIN, H_MAX, H_NEG, H_ABS, H_EX2, H_TANH } half_op;

static inline double value(bool bf, uint32_t h) {
    return bf ? kn_bf16_value(h) : kn_f16_value(h);
}
static inline uint32_t rounded(bool bf, double v) {
    return (uint32_t)kn_round_double(v, bf ? kn_fmt_bf16 : kn_fmt_f16, KN_RN);
}
/* The same for x + y and for a product, quickly where the result is a float that nothing was lost of. */
static inline uint32_t rounded_float(bool bf, float f) {
    return bf ? kn_bf16_round(f) : kn_f16_round(f);
}
static inline uint32_t rounded_sum(bool bf, double x, double y) {
    double s = x + y, back = s - x, error = (x - (s - back)) + (y - back);
    float f = (float)s;
    if (__builtin_expect(error == 0 && (double)f == s, 1)) return rounded_float(bf, f);
    return rounded(bf, kn_odd_sum(x, y));
}
static inline uint32_t rounded_product(bool bf, double v) {
    float f = (float)v;
    return __builtin_expect((double)f == v, 1) ? rounded_float(bf, f) : rounded(bf, v);
}
static inline bool is_nan(bool bf, uint32_t h) {
    return (h & 0x7fff) > (bf ? 0x7f80u : 0x7c00u);
}

static inline uint32_t flush(const kn_insn *i, bool bf, uint32_t h) {
    if (bf || i->m[KN_M_FTZ] != KN_TOK_ftz) return h;
    return (h & 0x7c00) == 0 ? h & 0x8000 : h;
}

static uint32_t extreme(const kn_insn *i, bool bf, bool max, uint32_t a, uint32_t b) {
    bool na = is_nan(bf, a), nb = is_nan(bf, b);
    if (na || nb) return i->m[KN_M_NAN] || (na && nb) ? 0x7fff : na ? b : a;
    /* As sign-magnitude integers +0 is above -0. */
    int32_t ka = a & 0x8000 ? -(int32_t)(a & 0x7fff) - 1 : (int32_t)a;
    int32_t kb = b & 0x8000 ? -(int32_t)(b & 0x7fff) - 1 : (int32_t)b;
    return (ka > kb) == max ? a : b;
}

static uint32_t finish(const kn_insn *i, bool bf, uint32_t h) {
    h = flush(i, bf, h);
    if (i->m[KN_M_SAT]) { /* [0, 1]; NaN gives +0 */
        uint32_t one = bf ? 0x3f80 : 0x3c00;
        if (is_nan(bf, h) || (h & 0x8000)) return 0;
        return h > one ? one : h;
    }
    if (i->m[KN_M_RELU] && (h & 0x8000) && !is_nan(bf, h)) return 0;
    return h;
}

/* One operation on one half; the callers pass constants for `op` and `bf`. */
static inline uint32_t half_lane(const kn_insn *i, half_op op, bool bf, uint32_t a, uint32_t b, uint32_t c) {
    if ((op == H_NEG || op == H_ABS) && is_nan(bf, a)) return 0x7fff;
    if (op == H_NEG) return flush(i, bf, a) ^ 0x8000;
    if (op == H_ABS) return flush(i, bf, a) & 0x7fff;
    a = flush(i, bf, a);
    b = flush(i, bf, b);
    double x = value(bf, a), y = value(bf, b);
    switch (op) {
    case H_ADD: return finish(i, bf, rounded_sum(bf, x, y));
    case H_SUB: return finish(i, bf, rounded_sum(bf, x, -y));
    case H_MUL: return finish(i, bf, rounded_product(bf, x * y));
    case H_FMA: return finish(i, bf, rounded_sum(bf, x * y, value(bf, flush(i, bf, c))));
    case H_MIN: return finish(i, bf, extreme(i, bf, false, a, b));
    case H_MAX: return finish(i, bf, extreme(i, bf, true, a, b));
    case H_EX2: return finish(i, bf, rounded(bf, exp2(x)));
    default: return finish(i, bf, rounded(bf, tanh(x)));
    }
}

/* A kernel for each operation, format and packing. */
#define HALF_KERNEL(name, op, bf, pairs)                                                                               \
    static void name(const kn_insn *i, const void *const *src, void *dst) {                                            \
        const uint32_t *a = src[0], *b = i->n_op > 2 ? src[1] : src[0], *c = i->n_op > 3 ? src[2] : src[0];            \
        uint32_t *d = dst;                                                                                             \
        for (int l = 0; l < KN_LANES; l++) {                                                                           \
            uint32_t low = half_lane(i, op, bf, a[l] & 0xffff, b[l] & 0xffff, c[l] & 0xffff);                          \
            uint32_t high = (pairs) ? half_lane(i, op, bf, a[l] >> 16, b[l] >> 16, c[l] >> 16) : 0;                    \
            d[l] = low | high << 16;                                                                                   \
        }                                                                                                              \
    }
#define HALF_FAMILY(op, OP)                                                                                            \
    HALF_KERNEL(op##_f16, OP, false, false)                                                                            \
    HALF_KERNEL(op##_bf16, OP, true, false)                                                                            \
    HALF_KERNEL(op##_f16x2, OP, false, true)                                                                           \
    HALF_KERNEL(op##_bf16x2, OP, true, true)                                                                           \
    kn_status kn_p_##op##_half(kn_insn *i) {                                                                           \
        switch (i->type[0]) {                                                                                          \
        case KN_T_f16: return kn_use_kernel(i, op##_f16);                                                              \
        case KN_T_bf16: return kn_use_kernel(i, op##_bf16);                                                            \
        case KN_T_f16x2: return kn_use_kernel(i, op##_f16x2);                                                          \
        default: return kn_use_kernel(i, op##_bf16x2);                                                                 \
        }                                                                                                              \
    }
HALF_FAMILY(add, H_ADD)
HALF_FAMILY(sub, H_SUB)
HALF_FAMILY(mul, H_MUL)
HALF_FAMILY(fma, H_FMA)
HALF_FAMILY(min, H_MIN)
HALF_FAMILY(max, H_MAX)
HALF_FAMILY(neg, H_NEG)
HALF_FAMILY(abs, H_ABS)
HALF_FAMILY(ex2, H_EX2)
HALF_FAMILY(tanh, H_TANH)
