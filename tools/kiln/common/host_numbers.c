/* Numbers: see host_numbers.h. */
#include "common/host_numbers.h"

#include <math.h>
#include <string.h>

/* ---- random numbers ---------------------------------------------------------------------------------------------- */

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

/* ---- elements ---------------------------------------------------------------------------------------------------- */

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

double kt_number_load(unsigned code, unsigned bits, const void *at) {
    uint64_t raw = 0;
    uint32_t wide;
    float f;
    double d;
    memcpy(&raw, at, bits / 8); /* little-endian */
    switch (code << 8 | bits) {
    case KT_DL_BFLOAT << 8 | 16:
        wide = (uint32_t)raw << 16;
        memcpy(&f, &wide, sizeof f);
        return (double)f;
    case KT_DL_FLOAT << 8 | 16: return from_f16((uint16_t)raw);
    case KT_DL_FLOAT << 8 | 32: memcpy(&f, &raw, sizeof f); return (double)f;
    case KT_DL_FLOAT << 8 | 64: memcpy(&d, &raw, sizeof d); return d;
    case KT_DL_INT << 8 | 64: return (double)(int64_t)raw;
    case KT_DL_INT << 8 | 32: return (double)(int32_t)(uint32_t)raw;
    case KT_DL_INT << 8 | 16: return (double)(int16_t)(uint16_t)raw;
    case KT_DL_INT << 8 | 8: return (double)(int8_t)(uint8_t)raw;
    default: return (double)raw; /* unsigned bytes, bools */
    }
}

void kt_number_store(unsigned code, unsigned bits, void *at, double value) {
    float f;
    uint16_t half;
    int64_t whole;
    switch (code << 8 | bits) {
    case KT_DL_BFLOAT << 8 | 16: half = to_bf16(value), memcpy(at, &half, sizeof half); break;
    case KT_DL_FLOAT << 8 | 16: half = to_f16(value), memcpy(at, &half, sizeof half); break;
    case KT_DL_FLOAT << 8 | 32: f = (float)value, memcpy(at, &f, sizeof f); break;
    case KT_DL_FLOAT << 8 | 64: memcpy(at, &value, sizeof value); break;
    default: whole = (int64_t)value, memcpy(at, &whole, bits / 8); /* little-endian integers and bools */
    }
}
