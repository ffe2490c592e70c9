/* Arithmetic of f32: add sub mul fma div rcp sqrt min max neg abs, in every rounding mode.
 *
 * Rounding to nearest is the host's own arithmetic (the build forbids contraction). The directed modes of f32 compute
 * in double rounded to odd, then round once; those of f64 are done with error terms. NaN results of f32 are 0x7fffffff.
 */
#include "sim/exec_double.h"
#include "sim/lanes.h"
#include "sim/rounding.h"

static kn_rounding mode_of(const kn_insn *i) {
    switch (i->m[KN_M_RND]) {
    case KN_TOK_rz: return KN_RZ;
    case KN_TOK_rm: return KN_RM;
    case KN_TOK_rp: return KN_RP;
    default: return KN_RN;
    }
}

/* ---- f32
 * ------------------------------------------------------------------------------------------------------------- */

static inline float in_f32(const kn_insn *i, float v) {
    return i->m[KN_M_FTZ] == KN_TOK_ftz ? kn_f32_flush(v) : v;
}
static inline float out_f32(const kn_insn *i, float v) {
    v = kn_f32_result(in_f32(i, v));
    return i->m[KN_M_SAT] ? kn_f32_saturate(v) : v;
}
/* An exact or odd-rounded double to f32. A sum that cancels is +0, or -0 when rounding down. */
static float narrow(const kn_insn *i, double v) {
    if (isnan(v)) return kn_f32(0x7fffffffu);
    return kn_f32((uint32_t)kn_round_double(v, kn_fmt_f32, mode_of(i)));
}
static float add_directed(const kn_insn *i, double a, double b) {
    double s = kn_odd_sum(a, b);
    if (s == 0 && a != 0 && mode_of(i) == KN_RM) return -0.0f;
    if (s == 0 && a == 0 && signbit(a) != signbit(b)) return mode_of(i) == KN_RM ? -0.0f : 0.0f;
    return narrow(i, s);
}

KN_KERNEL2(add_f32, float, float, float, kn_f32_result(a + b))
KN_KERNEL2(sub_f32, float, float, float, kn_f32_result(a - b))
KN_KERNEL2(mul_f32, float, float, float, kn_f32_result(a *b))
KN_KERNEL2(add_f32_mod, float, float, float, out_f32(i, in_f32(i, a) + in_f32(i, b)))
KN_KERNEL2(sub_f32_mod, float, float, float, out_f32(i, in_f32(i, a) - in_f32(i, b)))
KN_KERNEL2(mul_f32_mod, float, float, float, out_f32(i, in_f32(i, a) * in_f32(i, b)))
KN_KERNEL2(add_f32_dir, float, float, float, out_f32(i, add_directed(i, in_f32(i, a), in_f32(i, b))))
KN_KERNEL2(sub_f32_dir, float, float, float, out_f32(i, add_directed(i, in_f32(i, a), -in_f32(i, b))))
KN_KERNEL2(mul_f32_dir, float, float, float, out_f32(i, narrow(i, (double)in_f32(i, a) * (double)in_f32(i, b))))

/* a * b is exact in double. Rounding the sum to double and then to float goes wrong only where the double is exactly
 * between two floats, or below float's normal range: then the sum is taken again with care. */
static inline float fma_f32_lane(float a, float b, float c) {
    double p = (double)a * (double)b, s = p + (double)c;
    uint64_t bits = kn_f64_bits(s);
    if (__builtin_expect((bits & 0x1fffffffu) != 0x10000000u && (bits >> 52 & 0x7ff) > 1023 - 126, 1)) return (float)s;
    if (s == 0 || !isfinite(s)) return (float)s;
    return kn_f32((uint32_t)kn_round_double(kn_odd_sum(p, (double)c), kn_fmt_f32, KN_RN));
}
static inline float fma_directed(const kn_insn *i, float a, float b, float c) {
    return add_directed(i, (double)a * (double)b, (double)c);
}
KN_KERNEL3(fma_f32, float, float, float, float, kn_f32_result(fma_f32_lane(a, b, c)))
KN_KERNEL3(fma_f32_mod, float, float, float, float, out_f32(i, fma_f32_lane(in_f32(i, a), in_f32(i, b), in_f32(i, c))))
KN_KERNEL3(fma_f32_dir, float, float, float, float,
           out_f32(i, fma_directed(i, in_f32(i, a), in_f32(i, b), in_f32(i, c))))

/* div.approx and div.full may err by 2 ulp; the correctly rounded quotient is one of the allowed results. */
KN_KERNEL2(div_f32, float, float, float, out_f32(i, in_f32(i, a) / in_f32(i, b)))
KN_KERNEL2(div_f32_dir, float, float, float, out_f32(i, narrow(i, kn_odd_quotient(in_f32(i, a), in_f32(i, b)))))
KN_KERNEL1(rcp_f32, float, float, out_f32(i, 1.0f / in_f32(i, a)))
KN_KERNEL1(rcp_f32_dir, float, float, out_f32(i, narrow(i, kn_odd_quotient(1.0, in_f32(i, a)))))
KN_KERNEL1(sqrt_f32, float, float, out_f32(i, __builtin_sqrtf(in_f32(i, a))))
KN_KERNEL1(sqrt_f32_dir, float, float, out_f32(i, narrow(i, kn_odd_root(in_f32(i, a)))))
KN_KERNEL1(neg_f32, float, float, kn_f32_result(-in_f32(i, a)))
KN_KERNEL1(abs_f32, float, float, kn_f32_result(fabsf(in_f32(i, a))))

/* One NaN gives the other operand, with .NaN a NaN; +0 is greater than -0. */
static inline float min_lane(const kn_insn *i, float a, float b) {
    if (a != a || b != b) return i->m[KN_M_NAN] || (a != a && b != b) ? kn_f32(0x7fffffffu) : a != a ? b : a;
    if (a == b) return signbit(a) ? a : b;
    return a < b ? a : b;
}
static inline float max_lane(const kn_insn *i, float a, float b) {
    if (a != a || b != b) return i->m[KN_M_NAN] || (a != a && b != b) ? kn_f32(0x7fffffffu) : a != a ? b : a;
    if (a == b) return signbit(a) ? b : a;
    return a > b ? a : b;
}
KN_KERNEL2(min_f32, float, float, float, min_lane(i, in_f32(i, a), in_f32(i, b)))
KN_KERNEL2(max_f32, float, float, float, max_lane(i, in_f32(i, a), in_f32(i, b)))
KN_KERNEL2(copysign_f32, uint32_t, uint32_t, uint32_t, (a & 0x80000000u) | (b & 0x7fffffffu))

/* ---- choice
 * ----------------------------------------------------------------------------------------------------------- */

/* For f32: the plain kernel, the one with .ftz or .sat, the one of a directed mode. */
static kn_status pick(kn_insn *i, kn_kernel *plain, kn_kernel *modified, kn_kernel *directed, kn_kernel *f64) {
    if (i->type[0] == KN_T_f64) return kn_use_kernel(i, f64);
    if (mode_of(i) != KN_RN) return kn_use_kernel(i, directed);
    return kn_use_kernel(i, i->m[KN_M_FTZ] || i->m[KN_M_SAT] ? modified : plain);
}
kn_status kn_p_add_float(kn_insn *i) {
    return pick(i, add_f32, add_f32_mod, add_f32_dir, kn_add_f64);
}
kn_status kn_p_sub_float(kn_insn *i) {
    return pick(i, sub_f32, sub_f32_mod, sub_f32_dir, kn_sub_f64);
}
kn_status kn_p_mul_float(kn_insn *i) {
    return pick(i, mul_f32, mul_f32_mod, mul_f32_dir, kn_mul_f64);
}
kn_status kn_p_fma_float(kn_insn *i) {
    return pick(i, fma_f32, fma_f32_mod, fma_f32_dir, kn_fma_f64);
}
kn_status kn_p_div_float(kn_insn *i) {
    return pick(i, div_f32, div_f32, div_f32_dir, kn_div_f64);
}
kn_status kn_p_rcp(kn_insn *i) {
    return pick(i, rcp_f32, rcp_f32, rcp_f32_dir, kn_rcp_f64);
}
kn_status kn_p_sqrt(kn_insn *i) {
    return pick(i, sqrt_f32, sqrt_f32, sqrt_f32_dir, kn_sqrt_f64);
}
kn_status kn_p_neg_float(kn_insn *i) {
    return pick(i, neg_f32, neg_f32, NULL, kn_neg_f64);
}
kn_status kn_p_abs_float(kn_insn *i) {
    return pick(i, abs_f32, abs_f32, NULL, kn_abs_f64);
}
kn_status kn_p_min_float(kn_insn *i) {
    return pick(i, min_f32, min_f32, NULL, kn_min_f64);
}
kn_status kn_p_max_float(kn_insn *i) {
    return pick(i, max_f32, max_f32, NULL, kn_max_f64);
}
kn_status kn_p_copysign(kn_insn *i) {
    return pick(i, copysign_f32, NULL, NULL, kn_copysign_f64);
}

/* ---- transcendental functions: the double result rounded to f32, well within the documented error
 * --------------------- */

static inline float function_f32(const kn_insn *i, double (*f)(double), float a) {
    return out_f32(i, (float)f((double)in_f32(i, a)));
}
static double reciprocal_root(double a) {
    return 1.0 / sqrt(a);
}
KN_KERNEL1(ex2_f32, float, float, function_f32(i, exp2, a))
KN_KERNEL1(lg2_f32, float, float, function_f32(i, log2, a))
KN_KERNEL1(sin_f32, float, float, function_f32(i, sin, a))
KN_KERNEL1(cos_f32, float, float, function_f32(i, cos, a))
KN_KERNEL1(tanh_f32, float, float, function_f32(i, tanh, a))
KN_KERNEL1(rsqrt_f32, float, float, function_f32(i, reciprocal_root, a))
KN_KERNEL1(rsqrt_f64, double, double, reciprocal_root(a))
kn_status kn_p_ex2(kn_insn *i) {
    return kn_use_kernel(i, ex2_f32);
}
kn_status kn_p_lg2(kn_insn *i) {
    return kn_use_kernel(i, lg2_f32);
}
kn_status kn_p_sin(kn_insn *i) {
    return kn_use_kernel(i, sin_f32);
}
kn_status kn_p_cos(kn_insn *i) {
    return kn_use_kernel(i, cos_f32);
}
kn_status kn_p_tanh(kn_insn *i) {
    return kn_use_kernel(i, tanh_f32);
}
kn_status kn_p_rsqrt(kn_insn *i) {
    return pick(i, rsqrt_f32, rsqrt_f32, NULL, rsqrt_f64);
}
