/* Rounding to binary formats in software, see rounding.h. */
#include "sim/rounding.h"

const kn_format kn_fmt_f16 = {10, 5}, kn_fmt_bf16 = {7, 8}, kn_fmt_tf32 = {10, 8}, kn_fmt_f32 = {23, 8},
                kn_fmt_f64 = {52, 11};

/* sign 0, all other bits 1 (f64: the quiet one with an empty payload) */
static uint64_t canonical_nan(kn_format f) {
    if (f.mantissa == 52) return UINT64_C(0x7ff8000000000000);
    return (UINT64_C(1) << (f.mantissa + f.exponent)) - 1;
}

uint64_t kn_round_pack(bool negative, uint64_t sig, int exp, bool sticky, kn_format f, kn_rounding mode) {
    int bias = (1 << (f.exponent - 1)) - 1, lowest = 1 - bias;
    uint64_t sign = (uint64_t)negative << (f.mantissa + f.exponent);
    uint64_t infinity = (((UINT64_C(1) << f.exponent) - 1) << f.mantissa);
    if (sig == 0 && !sticky) return sign;
    if (sig == 0) {
        sig = 1; /* less than any unit: all of it lies below the last place */
        exp = lowest - f.mantissa - 80;
    }
    int shift = __builtin_clzll(sig);
    sig <<= shift;
    int e = exp - shift + 63; /* exponent of the leading bit */
    int drop = 63 - f.mantissa;
    if (e < lowest) drop = lowest - e > 64 ? 128 : drop + (lowest - e);
    uint64_t keep = drop > 63 ? 0 : sig >> drop;
    uint64_t rest = drop > 64 ? 0 : drop == 64 ? sig : drop == 0 ? 0 : sig << (64 - drop);
    if (drop > 64) sticky = true;
    bool inexact = rest != 0 || sticky, up = false;
    bool tie = rest == UINT64_C(1) << 63 && !sticky,
         above = rest > UINT64_C(1) << 63 || (rest == UINT64_C(1) << 63 && sticky);
    switch (mode) {
    case KN_RN: up = above || (tie && (keep & 1)); break;
    case KN_RNA: up = above || tie; break;
    case KN_RZ: break;
    case KN_RM: up = negative && inexact; break;
    case KN_RP: up = !negative && inexact; break;
    }
    keep += up;
    /* The leading bit of a normal number adds one to the exponent field; a carry out of the mantissa does too. */
    uint64_t field = e < lowest ? 0 : (uint64_t)(e + bias - 1) << f.mantissa;
    uint64_t magnitude = e + bias > 4 * bias ? infinity : field + keep;
    if (magnitude >= infinity) {
        bool largest = mode == KN_RZ || (mode == KN_RM && !negative) || (mode == KN_RP && negative);
        magnitude = largest ? infinity - 1 : infinity;
    }
    return sign | magnitude;
}

uint64_t kn_round_double(double v, kn_format f, kn_rounding mode) {
    uint64_t bits = kn_f64_bits(v), mantissa = bits & ((UINT64_C(1) << 52) - 1);
    bool negative = bits >> 63;
    int e = (int)(bits >> 52 & 0x7ff);
    if (e == 0x7ff) {
        if (mantissa) return canonical_nan(f);
        return (uint64_t)negative << (f.mantissa + f.exponent) | ((UINT64_C(1) << f.exponent) - 1) << f.mantissa;
    }
    if (e == 0) return kn_round_pack(negative, mantissa, -1074, false, f, mode);
    return kn_round_pack(negative, mantissa | UINT64_C(1) << 52, e - 1075, false, f, mode);
}

double kn_widen(uint64_t bits, kn_format f) {
    int bias = (1 << (f.exponent - 1)) - 1;
    uint64_t mantissa = bits & ((UINT64_C(1) << f.mantissa) - 1);
    int e = (int)(bits >> f.mantissa & ((UINT64_C(1) << f.exponent) - 1));
    bool negative = bits >> (f.mantissa + f.exponent) & 1;
    double v;
    if (f.mantissa == 52) return kn_f64(bits);
    if (e == (1 << f.exponent) - 1)
        v = mantissa ? NAN : INFINITY;
    else if (e == 0)
        v = ldexp((double)mantissa, 1 - bias - f.mantissa);
    else
        v = ldexp((double)(mantissa | UINT64_C(1) << f.mantissa), e - bias - f.mantissa);
    return negative ? -v : v;
}

/* `v` is the exact value rounded to nearest and `error` has the sign of exact minus v: the neighbour with an odd last
 * bit of the two around the exact value. */
static double to_odd(double v, double error) {
    uint64_t bits = kn_f64_bits(v);
    if (error == 0 || !isfinite(v) || (bits & 1)) return v;
    if (v == 0) return error > 0 ? 0x1p-1074 : -0x1p-1074;
    bool outward = (error > 0) == (v > 0);
    return kn_f64(outward ? bits + 1 : bits - 1);
}

double kn_odd_sum(double x, double y) {
    double s = x + y;
    if (!isfinite(s)) return s;
    double back = s - x; /* Knuth's two-sum: x + y = s + error exactly */
    double error = (x - (s - back)) + (y - back);
    return to_odd(s, error);
}

double kn_odd_quotient(double x, double y) {
    double q = x / y;
    if (!isfinite(q) || y == 0 || isinf(y) || q == 0) return q;
    double remainder = fma(-q, y, x); /* exact */
    return to_odd(q, y > 0 ? remainder : -remainder);
}

double kn_odd_root(double x) {
    double r = sqrt(x);
    if (!isfinite(r) || r == 0) return r;
    return to_odd(r, fma(-r, r, x));
}
