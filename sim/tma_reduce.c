/* tma_reduce: the arithmetic of cp.reduce.async.bulk on stretches of memory. f32 sums flush subnormal inputs and
 * results to zero and round to nearest even; f16 and bf16 keep subnormals (.noftz). */
#include "sim/tma.h"

#include <math.h>
#include <string.h>

static const uint8_t elem_bytes[] = {4, 4, 8, 8, 2, 2, 4, 8, 4, 8};

uint32_t kn_tma_reduce_bytes(kn_tma_op op, kn_tma_elem elem) {
    bool ok = false;
    switch (op) {
    case KN_TMA_ADD: ok = elem != KN_TMA_B32 && elem != KN_TMA_B64; break;
    case KN_TMA_MIN:
    case KN_TMA_MAX: ok = elem <= KN_TMA_BF16; break;
    case KN_TMA_AND:
    case KN_TMA_OR:
    case KN_TMA_XOR: ok = elem != KN_TMA_F16 && elem != KN_TMA_BF16 && elem != KN_TMA_F32 && elem != KN_TMA_F64; break;
    case KN_TMA_INC:
    case KN_TMA_DEC: ok = elem == KN_TMA_U32; break;
    }
    return ok ? elem_bytes[elem] : 0;
}

bool kn_tma_map_elem(uint8_t dtype, kn_tma_elem *out) {
    static const int8_t of[] = {-1,         -1,         KN_TMA_U32, KN_TMA_S32, KN_TMA_U64,
                                KN_TMA_S64, KN_TMA_F16, KN_TMA_F32, KN_TMA_F64, KN_TMA_BF16};
    if (dtype >= sizeof of || of[dtype] < 0) return false;
    *out = (kn_tma_elem)of[dtype];
    return true;
}

/* 16-bit floats with `frac` fraction bits and an exponent bias: to double (exact) and back (nearest even). */
static double half_value(uint16_t h, int frac, int bias) {
    int field = h >> frac & ((1 << (15 - frac)) - 1), m = h & ((1 << frac) - 1);
    double v;
    if (field == (1 << (15 - frac)) - 1)
        v = m ? (double)NAN : (double)INFINITY;
    else
        v = ldexp(field ? m + (1 << frac) : m, (field ? field : 1) - bias - frac);
    return h >> 15 ? -v : v;
}

static uint16_t half_bits(double v, int frac, int bias) {
    uint16_t sign = signbit(v) ? 0x8000 : 0, inf = (uint16_t)(((1 << (15 - frac)) - 1) << frac);
    if (isnan(v)) return 0x7fff;
    if (v == 0) return sign;
    int e;
    frexp(v, &e); /* |v| in [2^(e-1), 2^e) */
    int unit = (e - 1 < 1 - bias ? 1 - bias : e - 1) - frac;
    if (isinf(v) || e > bias + 2) return (uint16_t)(sign | inf);
    long q = (long)rint(ldexp(fabs(v), -unit)); /* at most 2^(frac+1) */
    long field = unit + frac + bias;            /* of a normal number; 1 for subnormals too */
    long bits = q >= 1 << frac ? (field << frac) + (q - (1 << frac)) : q;
    return (uint16_t)(sign | (bits > inf ? inf : bits));
}

static double pick(kn_tma_op op, double a, double b) {
    if (op == KN_TMA_ADD) return a + b;
    if (isnan(a)) return b;
    if (isnan(b)) return a;
    if (a == b) return (op == KN_TMA_MIN) == (bool)signbit(a) ? a : b;
    return (op == KN_TMA_MIN) == (a < b) ? a : b;
}

static uint64_t whole(kn_tma_op op, kn_tma_elem elem, uint64_t a, uint64_t b) {
    bool is_signed = elem == KN_TMA_S32 || elem == KN_TMA_S64;
    bool less = is_signed ? (int64_t)a < (int64_t)b : a < b;
    switch (op) {
    case KN_TMA_ADD: return a + b;
    case KN_TMA_MIN: return less ? a : b;
    case KN_TMA_MAX: return less ? b : a;
    case KN_TMA_AND: return a & b;
    case KN_TMA_OR: return a | b;
    case KN_TMA_XOR: return a ^ b;
    case KN_TMA_INC: return a >= b ? 0 : a + 1;
    case KN_TMA_DEC: return a == 0 || a > b ? b : a - 1;
    }
    return a;
}

static void reduce_one(kn_tma_op op, kn_tma_elem elem, uint8_t *acc, const uint8_t *v) {
    if (elem == KN_TMA_F16 || elem == KN_TMA_BF16) {
        int frac = elem == KN_TMA_F16 ? 10 : 7, bias = elem == KN_TMA_F16 ? 15 : 127;
        uint16_t a, b;
        memcpy(&a, acc, 2);
        memcpy(&b, v, 2);
        a = half_bits(pick(op, half_value(a, frac, bias), half_value(b, frac, bias)), frac, bias);
        memcpy(acc, &a, 2);
    } else if (elem == KN_TMA_F32) {
        float a, b;
        memcpy(&a, acc, 4);
        memcpy(&b, v, 4);
        a += b;
        if (isnan(a))
            memset(acc, 0xff, 3), acc[3] = 0x7f; /* the only NaN that comes out */
        else
            memcpy(acc, &a, 4);
    } else if (elem == KN_TMA_F64) {
        double a, b;
        memcpy(&a, acc, 8);
        memcpy(&b, v, 8);
        a += b;
        memcpy(acc, &a, 8);
    } else if (elem_bytes[elem] == 4) {
        uint32_t a, b;
        memcpy(&a, acc, 4);
        memcpy(&b, v, 4);
        bool extend = elem == KN_TMA_S32;
        a = (uint32_t)whole(op, elem, extend ? (uint64_t)(int64_t)(int32_t)a : a,
                            extend ? (uint64_t)(int64_t)(int32_t)b : b);
        memcpy(acc, &a, 4);
    } else {
        uint64_t a, b;
        memcpy(&a, acc, 8);
        memcpy(&b, v, 8);
        a = whole(op, elem, a, b);
        memcpy(acc, &a, 8);
    }
}

void kn_tma_reduce(kn_tma_op op, kn_tma_elem elem, uint8_t *acc, const uint8_t *v, uint32_t bytes) {
    for (uint32_t at = 0; at < bytes; at += elem_bytes[elem]) reduce_one(op, elem, acc + at, v + at);
}
