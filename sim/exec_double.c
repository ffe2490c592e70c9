/* Arithmetic of f64. The directed modes switch the host's rounding mode around the loop (this file is compiled with
 * -frounding-math). Which of several NaN operands becomes the result is as the H200 has it. */
#include "sim/exec_double.h"
#include "sim/rounding.h"

#include <fenv.h>

static int host_mode(const kn_insn *i) {
    switch (i->m[KN_M_RND]) {
    case KN_TOK_rz: return FE_TOWARDZERO;
    case KN_TOK_rm: return FE_DOWNWARD;
    case KN_TOK_rp: return FE_UPWARD;
    default: return FE_TONEAREST;
    }
}

static double quiet(double v) {
    return kn_f64(kn_f64_bits(v) | UINT64_C(1) << 51);
}

/* The first NaN of the three, or `v`. */
static double choose_nan(double x, double y, double z, double v) {
    return x != x ? quiet(x) : y != y ? quiet(y) : z != z ? quiet(z) : v;
}

#define DOUBLE_KERNEL(name, EXPR, NAN_EXPR)                                                                            \
    void name(const kn_insn *i, const void *const *src, void *dst) {                                                   \
        const double *pa = src[0], *pb = i->n_op > 2 ? src[1] : pa, *pc = i->n_op > 3 ? src[2] : pa;                   \
        double *d = dst;                                                                                               \
        int mode = host_mode(i);                                                                                       \
        if (mode != FE_TONEAREST) fesetround(mode);                                                                    \
        for (int l = 0; l < KN_LANES; l++) {                                                                           \
            const double a = pa[l], b = pb[l], c = pc[l];                                                              \
            (void)b;                                                                                                   \
            (void)c;                                                                                                   \
            const double v = (EXPR);                                                                                   \
            d[l] = (NAN_EXPR);                                                                                         \
        }                                                                                                              \
        if (mode != FE_TONEAREST) fesetround(FE_TONEAREST);                                                            \
    }
DOUBLE_KERNEL(kn_add_f64, a + b, choose_nan(b, a, 0, v))
DOUBLE_KERNEL(kn_sub_f64, a - b, choose_nan(-b, a, 0, v))
DOUBLE_KERNEL(kn_mul_f64, a *b, choose_nan(b, a, 0, v))
DOUBLE_KERNEL(kn_fma_f64, fma(a, b, c), choose_nan(b, c, a, v))
DOUBLE_KERNEL(kn_div_f64, a / b, choose_nan(a, b, 0, v))
DOUBLE_KERNEL(kn_rcp_f64, 1.0 / a, v)
DOUBLE_KERNEL(kn_sqrt_f64, sqrt(a), v)

static double min_lane(double a, double b) {
    if (a != a && b != b) return quiet(b);
    if (a != a || b != b) return a != a ? b : a;
    if (a == b) return signbit(a) ? a : b;
    return a < b ? a : b;
}
static double max_lane(double a, double b) {
    if (a != a && b != b) return quiet(b);
    if (a != a || b != b) return a != a ? b : a;
    if (a == b) return signbit(a) ? b : a;
    return a > b ? a : b;
}
DOUBLE_KERNEL(kn_min_f64, min_lane(a, b), v)
DOUBLE_KERNEL(kn_max_f64, max_lane(a, b), v)
DOUBLE_KERNEL(kn_neg_f64, kn_f64(kn_f64_bits(a) ^ UINT64_C(1) << 63), v)
DOUBLE_KERNEL(kn_abs_f64, kn_f64(kn_f64_bits(a) & ~(UINT64_C(1) << 63)), v)
DOUBLE_KERNEL(kn_copysign_f64, copysign(b, a), v)
