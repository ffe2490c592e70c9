/* tensorcore: see the header. Two forms of the same sum: kn_tc_dot works on integers and takes every input; kn_tc_step
 * does eight columns at once in fp32 and int32 and hands the columns that the fast form cannot hold to kn_tc_dot. */
#include "sim/tensorcore.h"

#include <stdbool.h>
#include <string.h>

enum { GUARD = 25 }; /* addends are kept down to 2^(E - GUARD) */

static uint32_t float_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float bits_float(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Exponent of an fp32 encoding: floor(log2|x|) of a normal number, -126 for all subnormals (they are not normalised).
 */
static int16_t exponent_of(uint32_t u) {
    if ((u & 0x7fffffffu) == 0) return KN_TC_EXP_ZERO;
    int field = (int)(u >> 23 & 255u);
    if (field == 255) return KN_TC_EXP_INF;
    return (int16_t)((field ? field : 1) - 127);
}

static float decode_f16(uint32_t h, int16_t *e) {
    uint32_t sign = (h & 0x8000u) << 16, field = h >> 10 & 31u, frac = h & 1023u;
    if (field == 31) {
        *e = KN_TC_EXP_INF;
        return bits_float(sign | 0x7f800000u | frac << 13);
    }
    if (field != 0) {
        *e = (int16_t)((int)field - 15);
        return bits_float(sign | (field + 112u) << 23 | frac << 13);
    }
    *e = frac ? -14 : KN_TC_EXP_ZERO;
    float v = (float)frac * 0x1p-24f;
    return sign ? -v : v;
}

void kn_tc_decode(kn_tc_type type, uint32_t bits, float *v, int16_t *e) {
    if (type == KN_TC_F16) {
        *v = decode_f16(bits & 0xffffu, e);
        return;
    }
    uint32_t u = type == KN_TC_BF16 ? bits << 16 : bits & 0xffffe000u;
    *v = bits_float(u);
    *e = exponent_of(u);
}

/* |x| = *m * 2^result exactly. */
static int split(float x, int64_t *m) {
    uint32_t u = float_bits(x), field = u >> 23 & 255u;
    *m = (int64_t)((u & 0x7fffffu) | (field ? 0x800000u : 0u));
    return (int)(field ? field : 1) - 150;
}

/* m * 2^exp in units of 2^unit, truncated toward zero; m < 2^48 and exp - unit <= 14 by the choice of E. */
static int64_t to_units(int64_t m, int exp, int unit) {
    int shift = exp - unit;
    if (shift >= 0) return m << shift;
    return shift > -63 ? m >> -shift : 0;
}

/* sum * 2^unit truncated toward zero to fp32. */
static float from_units(int64_t sum, int unit) {
    uint64_t mag = sum < 0 ? (uint64_t)-sum : (uint64_t)sum;
    uint32_t sign = sum < 0 ? 0x80000000u : 0u;
    if (mag == 0) return 0.0f;
    int top = 63 - __builtin_clzll(mag); /* |x| in [2^(top+unit), 2^(top+unit+1)) */
    int exp = top + unit;
    if (exp > 127) return bits_float(sign | 0x7f800000u);
    int last = (exp < -126 ? -126 : exp) - 23; /* weight of the last kept bit */
    int drop = last - unit;
    uint64_t kept = drop <= 0 ? mag << -drop : drop > 63 ? 0 : mag >> drop;
    if (exp < -126) return bits_float(sign | (uint32_t)kept);
    return bits_float(sign | (uint32_t)(exp + 127) << 23 | ((uint32_t)kept & 0x7fffffu));
}

/* Inf and NaN among the addends. Returns true and the result when there are any. */
static bool special(int k, const float *av, const float *bv, int b_stride, float c, float *out) {
    bool plus = false, minus = false, nan = false, any = false;
    for (int i = -1; i < k; i++) {
        uint32_t ua = i < 0 ? float_bits(c) : float_bits(av[i]),
                 ub = i < 0 ? 0x3f800000u : float_bits(bv[i * b_stride]);
        uint32_t ma = ua & 0x7fffffffu, mb = ub & 0x7fffffffu;
        if (ma < 0x7f800000u && mb < 0x7f800000u) continue;
        any = true;
        if (ma > 0x7f800000u || mb > 0x7f800000u || ma == 0 || mb == 0) nan = true;
        if ((ua ^ ub) >> 31)
            minus = true;
        else
            plus = true;
    }
    if (!any) return false;
    *out = bits_float(nan || (plus && minus) ? 0x7fffffffu : plus ? 0x7f800000u : 0xff800000u);
    return true;
}

float kn_tc_dot(int k, const float *av, const int16_t *ae, const float *bv, const int16_t *be, int b_stride, float c) {
    float out;
    if (special(k, av, bv, b_stride, c, &out)) return out;
    int top = exponent_of(float_bits(c));
    for (int i = 0; i < k; i++) {
        if (ae[i] == KN_TC_EXP_ZERO || be[i * b_stride] == KN_TC_EXP_ZERO) continue;
        int e = ae[i] + be[i * b_stride];
        if (e > top) top = e;
    }
    if (top == KN_TC_EXP_ZERO) return 0.0f;
    int unit = top - GUARD;
    int64_t mc, sum;
    int xc = split(c, &mc);
    sum = to_units(mc, xc, unit);
    if (float_bits(c) >> 31) sum = -sum;
    for (int i = 0; i < k; i++) {
        int64_t ma, mb;
        int x = split(av[i], &ma);
        x += split(bv[i * b_stride], &mb);
        int64_t p = to_units(ma * mb, x, unit);
        sum += (float_bits(av[i]) ^ float_bits(bv[i * b_stride])) >> 31 ? -p : p;
    }
    return from_units(sum, unit);
}

typedef float f8 __attribute__((vector_size(32)));
typedef int32_t i8 __attribute__((vector_size(32)));
typedef uint32_t u8 __attribute__((vector_size(32)));
typedef int16_t s8 __attribute__((vector_size(16)));

/* Eight columns j..j+7 of one row. Exact while every E lies in [LOW, HIGH]: then a product that is subnormal in fp32 is
 * below the last unit, no product overflows, and the scale 2^(25-E) is a normal number. All addends zero (E below
 * ALL_ZERO) needs no scale; Inf and NaN have an exponent that stays above HIGH even times zero. */
enum { LOW = -95, HIGH = 119, ALL_ZERO = -2000 };

static void eight_columns(int k, const float *av, const int16_t *ae, const kn_tc_b *b, int j, float *d) {
    s8 top;
    f8 c;
    memcpy(&c, d, sizeof c);
    for (int l = 0; l < 8; l++) top[l] = exponent_of(float_bits(c[l]));
    for (int i = 0; i < k; i++) {
        s8 e;
        memcpy(&e, &b->e[i][j], sizeof e);
        e += ae[i];
        s8 more = e > top;
        top = (e & more) | (top & ~more);
    }
    i8 scale_bits, hard = {0};
    for (int l = 0; l < 8; l++) {
        bool fits = top[l] >= LOW && top[l] <= HIGH;
        scale_bits[l] = fits ? (127 + GUARD - top[l]) << 23 : 0;
        hard[l] = !fits && top[l] > ALL_ZERO;
    }
    f8 scale = (f8)scale_bits;
    u8 sum = {0}; /* wraps in columns that do not fit, whose sum is not used */
    for (int i = 0; i < k; i++) {
        f8 bv;
        memcpy(&bv, &b->v[i][j], sizeof bv);
        sum += (u8) __builtin_convertvector(bv * av[i] * scale, i8);
    }
    i8 csum = __builtin_convertvector(c * scale, i8);
    for (int l = 0; l < 8; l++) {
        if (hard[l]) {
            d[l] = kn_tc_dot(k, av, ae, &b->v[0][j + l], &b->e[0][j + l], KN_TC_N, c[l]);
        } else {
            double s = (double)(int32_t)sum[l] + (double)csum[l]; /* exact: below 2^33 */
            uint64_t u;
            memcpy(&u, &s, sizeof u);
            u &= ~0x1fffffffull; /* 24 significant bits */
            memcpy(&s, &u, sizeof u);
            d[l] = s == 0 ? 0.0f : (float)s * (1.0f / scale[l]);
        }
    }
}

void kn_tc_step(int m, int n, int k, const kn_tc_a *a, const kn_tc_b *b, int zero_c, float *d, int ldd) {
    for (int i = 0; i < m; i++) {
        float *row = d + (long)i * ldd;
        for (int j = 0; j < n; j += 8) {
            if (zero_c) memset(row + j, 0, 8 * sizeof *row);
            eight_columns(k, a->v[i], a->e[i], b, j, row + j);
        }
    }
}

/* Where the values of a lane's registers lie: 16-bit types hold two neighbours in k per register, tf32 one value. */
static void load_fragments(kn_tc_type type, int k, uint32_t (*a)[4], uint32_t (*b)[2], kn_tc_a *ta, kn_tc_b *tb) {
    int per = type == KN_TC_TF32 ? 1 : 2, span = 4 * per; /* span: k values that one register of four lanes covers */
    for (int lane = 0; lane < 32; lane++) {
        int g = lane >> 2, t = lane & 3;
        for (int r = 0; r < k / span; r++) {
            for (int h = 0; h < per; h++) {
                int kk = r * span + t * per + h;
                for (int up = 0; up < 2; up++)
                    kn_tc_decode(type, a[lane][2 * r + up] >> 16 * h, &ta->v[g + 8 * up][kk], &ta->e[g + 8 * up][kk]);
                kn_tc_decode(type, b[lane][r] >> 16 * h, &tb->v[kk][g], &tb->e[kk][g]);
            }
        }
    }
}

void kn_tc_mma_sync(kn_tc_type type, int k, uint32_t (*a)[4], uint32_t (*b)[2], float (*c)[4], float (*d)[4]) {
    kn_tc_a ta;
    kn_tc_b tb;
    float acc[16][8];
    load_fragments(type, k, a, b, &ta, &tb);
    for (int lane = 0; lane < 32; lane++)
        for (int r = 0; r < 4; r++) acc[(lane >> 2) + 8 * (r >> 1)][2 * (lane & 3) + (r & 1)] = c[lane][r];
    kn_tc_step(16, 8, k, &ta, &tb, 0, acc[0], 8);
    for (int lane = 0; lane < 32; lane++)
        for (int r = 0; r < 4; r++) d[lane][r] = acc[(lane >> 2) + 8 * (r >> 1)][2 * (lane & 3) + (r & 1)];
}
