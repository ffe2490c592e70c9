/* Elements of host tensors and random numbers: the ground of problem_fill.c. */
#include "problem_fill.h"

#include <math.h>
#include <string.h>

/* ---- random numbers ------------------------------------------------------------------------------------------------
 */

uint64_t kt_random_bits(kt_random *r) { /* splitmix64 */
    uint64_t z = r->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

double kt_random_uniform(kt_random *r) {
    return ldexp((double)(kt_random_bits(r) >> 11), -53);
}

double kt_random_normal(kt_random *r) {
    double u = 1 - kt_random_uniform(r), v = kt_random_uniform(r);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

int64_t kt_random_below(kt_random *r, int64_t n) {
    return (int64_t)(kt_random_bits(r) % (uint64_t)n);
}

/* ---- elements ------------------------------------------------------------------------------------------------------
 */

enum { INT = 0, UINT = 1, FLOAT = 2, BFLOAT = 4, BOOL = 6 };

static uint16_t to_bf16(double v) {
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (isnan(f)) return 0x7FC0;
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static uint16_t to_f16(double v) {
    uint16_t sign = signbit(v) ? 0x8000 : 0;
    double a = fabs(v);
    if (isnan(v)) return 0x7E00;
    if (a >= 65520) return sign | 0x7C00;
    int exponent = a < 0x1p-14 ? -14 : ilogb(a);
    uint32_t steps = (uint32_t)nearbyint(ldexp(a, 10 - exponent)); /* 1024 .. 2048 for normal numbers */
    return (uint16_t)(sign | (((uint32_t)(exponent + 14) << 10) + steps));
}

static double from_f16(uint16_t bits) {
    int exponent = bits >> 10 & 31;
    double mantissa = bits & 1023, v;
    if (exponent == 31)
        v = mantissa != 0 ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        v = ldexp(mantissa, -24);
    else
        v = ldexp(mantissa + 1024, exponent - 25);
    return bits >> 15 ? -v : v;
}

void *kt_problem_element(const DLTensor *t, int64_t linear) {
    int64_t offset = 0, inner = 1;
    for (int d = t->ndim - 1; d >= 0; d--) {
        offset += linear % t->shape[d] * (t->strides ? t->strides[d] : inner);
        linear /= t->shape[d];
        inner *= t->shape[d];
    }
    return (char *)t->data + t->byte_offset + offset * (t->dtype.bits / 8);
}

double kt_problem_get(const DLTensor *t, int64_t linear) {
    const char *at = kt_problem_element(t, linear);
    uint32_t u32 = 0;
    uint16_t u16 = 0;
    float f32 = 0;
    double f64 = 0;
    int64_t i64 = 0;
    int32_t i32 = 0;
    switch (t->dtype.code << 8 | t->dtype.bits) {
    case BFLOAT << 8 | 16:
        memcpy(&u16, at, sizeof u16);
        u32 = (uint32_t)u16 << 16;
        memcpy(&f32, &u32, sizeof f32);
        return (double)f32;
    case FLOAT << 8 | 16: memcpy(&u16, at, sizeof u16); return from_f16(u16);
    case FLOAT << 8 | 32: memcpy(&f32, at, sizeof f32); return (double)f32;
    case FLOAT << 8 | 64: memcpy(&f64, at, sizeof f64); return f64;
    case INT << 8 | 64: memcpy(&i64, at, sizeof i64); return (double)i64;
    case INT << 8 | 32: memcpy(&i32, at, sizeof i32); return (double)i32;
    case INT << 8 | 8: return *(const int8_t *)at;
    default: return *(const uint8_t *)at; /* uint8, bool */
    }
}

void kt_problem_put(const DLTensor *t, int64_t linear, double v) {
    char *at = kt_problem_element(t, linear);
    uint16_t u16;
    switch (t->dtype.code << 8 | t->dtype.bits) {
    case BFLOAT << 8 | 16:
        u16 = to_bf16(v);
        memcpy(at, &u16, sizeof u16);
        return;
    case FLOAT << 8 | 16:
        u16 = to_f16(v);
        memcpy(at, &u16, sizeof u16);
        return;
    case FLOAT << 8 | 32: memcpy(at, &(float){(float)v}, sizeof(float)); return;
    case FLOAT << 8 | 64: memcpy(at, &v, sizeof v); return;
    case INT << 8 | 64: memcpy(at, &(int64_t){(int64_t)v}, sizeof(int64_t)); return;
    case INT << 8 | 32: memcpy(at, &(int32_t){(int32_t)v}, sizeof(int32_t)); return;
    case INT << 8 | 8: *(int8_t *)at = (int8_t)v; return;
    default: *(uint8_t *)at = (uint8_t)v; /* uint8, bool */
    }
}

int64_t kt_problem_elements(const DLTensor *t) {
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++) n *= t->shape[d];
    return n;
}
