/* sim/rounding: numbers of any precision rounded to a binary format in any of PTX's rounding modes, and exact helpers
 * for sums, products, quotients and roots, without touching the host's rounding mode. */
#ifndef KN_SIM_ROUNDING_H
#define KN_SIM_ROUNDING_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef enum kn_rounding { KN_RN, KN_RZ, KN_RM, KN_RP, KN_RNA } kn_rounding;

typedef struct kn_format {
    uint8_t mantissa, exponent; /* stored bits */
} kn_format;
extern const kn_format kn_fmt_f16, kn_fmt_bf16, kn_fmt_tf32, kn_fmt_f32, kn_fmt_f64;

/** (-1)^negative * sig * 2^exp, `sticky`: plus something smaller than one unit of sig. Overflow gives infinity or the
 *  largest number, as the mode says. */
uint64_t kn_round_pack(bool negative, uint64_t sig, int exp, bool sticky, kn_format f, kn_rounding mode);
/** A finite or infinite double rounded to a format; NaN gives the format's canonical NaN. */
uint64_t kn_round_double(double v, kn_format f, kn_rounding mode);
/** Value of a number of a format; exact. */
double kn_widen(uint64_t bits, kn_format f);

/** x + y rounded to odd in double: exact, or the neighbour with an odd last bit; a later rounding to 50 or fewer bits
 *  gives what one rounding of the exact sum gives. */
double kn_odd_sum(double x, double y);
double kn_odd_quotient(double x, double y);
double kn_odd_root(double x);

static inline float kn_f32(uint32_t bits) {
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}
static inline uint32_t kn_f32_bits(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}
static inline double kn_f64(uint64_t bits) {
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}
static inline uint64_t kn_f64_bits(double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

/* The conversions that kernels use all the time. */
static inline float kn_bf16_value(uint32_t h) {
    return kn_f32(h << 16);
}
static inline uint32_t kn_bf16_round(float v) { /* to nearest even */
    uint32_t b = kn_f32_bits(v);
    if ((b & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (b + 0x7fff + (b >> 16 & 1)) >> 16;
}
static inline float kn_f16_value(uint32_t h) {
    uint32_t sign = (h & 0x8000) << 16, rest = h & 0x7fff;
    if (rest >= 0x7c00) return kn_f32(sign | 0x7f800000u | (rest & 0x3ff) << 13);
    if (rest >= 0x0400) return kn_f32(sign | ((rest << 13) + 0x38000000u));
    float v = (float)rest * 0x1p-24f;
    return sign ? -v : v;
}
static inline uint32_t kn_f16_round(float v) { /* to nearest even */
    uint32_t b = kn_f32_bits(v), sign = b >> 16 & 0x8000, rest = b & 0x7fffffffu;
    if (rest > 0x7f800000u) return 0x7fff;
    if (rest >= 0x47800000u) return sign | 0x7c00; /* >= 65536 */
    if (rest >= 0x38800000u) {                     /* normal: 65520 and more carry into infinity */
        rest -= 0x38000000u;
        return sign | (rest + 0xfff + (rest >> 13 & 1)) >> 13;
    }
    /* Subnormal: adding 0.5 leaves the 10 bits at the bottom of the sum, rounded to nearest even. */
    float shifted = kn_f32(rest) + 0.5f;
    return sign | (kn_f32_bits(shifted) - 0x3f000000u);
}

/** NaN results of f32 arithmetic are 0x7fffffff on the hardware. */
static inline float kn_f32_result(float v) {
    return v == v ? v : kn_f32(0x7fffffffu);
}
static inline float kn_f32_flush(float v) { /* .ftz: subnormals become zeros of their sign */
    uint32_t b = kn_f32_bits(v);
    return (b & 0x7f800000u) == 0 ? kn_f32(b & 0x80000000u) : v;
}
static inline float kn_f32_saturate(float v) {
    return v > 0.0f ? (v < 1.0f ? v : 1.0f) : 0.0f; /* NaN and -0 give +0 */
}

#endif
