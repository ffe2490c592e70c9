/* cvt: between all integer and floating types, with rounding, saturation and packed results. One general conversion
 * does every form lane by lane; the frequent ones have kernels of their own that give the same bits (tested). */
#include "sim/lanes.h"
#include "sim/rounding.h"

static kn_rounding mode_of(const kn_insn *i) {
    switch (i->m[KN_M_RND]) {
    case KN_TOK_rz: return KN_RZ;
    case KN_TOK_rm: return KN_RM;
    case KN_TOK_rp: return KN_RP;
    case KN_TOK_rna: return KN_RNA;
    default: return KN_RN;
    }
}

static kn_format format_of(kn_type t) {
    switch (t) {
    case KN_T_f16:
    case KN_T_f16x2: return kn_fmt_f16;
    case KN_T_bf16:
    case KN_T_bf16x2: return kn_fmt_bf16;
    case KN_T_tf32: return kn_fmt_tf32;
    case KN_T_f64: return kn_fmt_f64;
    default: return kn_fmt_f32;
    }
}

static uint64_t low_bits(uint64_t v, uint32_t bytes) {
    return bytes >= 8 ? v : v & ((UINT64_C(1) << 8 * bytes) - 1);
}
static int64_t sign_extend(uint64_t v, uint32_t bytes) {
    int shift = 64 - 8 * (int)bytes;
    return (int64_t)(v << shift) >> shift;
}

/* Largest and smallest values of an integer type: the smallest as int64_t, the largest as uint64_t. */
static int64_t lowest(kn_type t) {
    return kn_type_kind[t] == 's' ? (int64_t)(UINT64_MAX << (8 * kn_type_bytes[t] - 1)) : 0;
}
static uint64_t highest(kn_type t) {
    uint64_t all = low_bits(UINT64_MAX, kn_type_bytes[t]);
    return kn_type_kind[t] == 's' ? all >> 1 : all;
}

static uint64_t int_to_int(const kn_insn *i, kn_type to, kn_type from, uint64_t bits) {
    bool negative = kn_type_kind[from] == 's' && sign_extend(bits, kn_type_bytes[from]) < 0;
    uint64_t v = negative ? (uint64_t)sign_extend(bits, kn_type_bytes[from]) : bits;
    if (!i->m[KN_M_SAT]) return v;
    if (negative) return (int64_t)v < lowest(to) ? (uint64_t)lowest(to) : v;
    return v > highest(to) ? highest(to) : v;
}

static double to_integral(const kn_insn *i, double v) {
    switch (i->m[KN_M_RND]) {
    case KN_TOK_rmi: return floor(v);
    case KN_TOK_rpi: return ceil(v);
    case KN_TOK_rni: return rint(v);
    case KN_TOK_rzi: return trunc(v);
    default: return v;
    }
}

/* NaN: 0, but the top bit alone where a 64-bit type takes part, as on the H200. */
static uint64_t int_of_nan(kn_type to, kn_type from) {
    uint32_t bytes = kn_type_bytes[to];
    if (bytes == 8) return UINT64_C(1) << 63;
    return from == KN_T_f64 && bytes == 4 ? UINT64_C(1) << 31 : 0;
}

static uint64_t float_to_int(const kn_insn *i, kn_type to, kn_type from, double v) {
    if (isnan(v)) return int_of_nan(to, from);
    v = to_integral(i, v);
    /* Values beyond the range are clamped; both bounds are compared as doubles that bound them from outside. */
    if (v >= ldexp(1.0, 8 * kn_type_bytes[to] - (kn_type_kind[to] == 's'))) return highest(to);
    if (v < (double)lowest(to)) return (uint64_t)lowest(to);
    return v < 0 ? (uint64_t)(int64_t)v : (uint64_t)v;
}

/* A NaN keeps its sign and the upper bits of its payload when it comes from f64 or goes from bf16 to f32, and becomes
 * quiet; .tf32 with .rna only drops bits. All others become the canonical NaN of the destination. */
static bool keeps_nan(const kn_insn *i, kn_type to, kn_type from, uint64_t bits, uint64_t *out) {
    kn_format f = format_of(to);
    if (i->m[KN_M_SAT] == KN_TOK_sat) return false;
    if (from == KN_T_f64) {
        uint64_t payload = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 51;
        uint64_t exponent = ((UINT64_C(1) << f.exponent) - 1) << f.mantissa;
        *out = bits >> 63 << (f.mantissa + f.exponent) | exponent | payload >> (52 - f.mantissa);
        return true;
    }
    if (from == KN_T_bf16 && to == KN_T_f32) {
        *out = bits << 16;
        return true;
    }
    if (to == KN_T_tf32 && i->m[KN_M_RND] == KN_TOK_rna) {
        *out = bits & 0xffffe000u;
        return true;
    }
    return false;
}

static uint64_t int_to_float(const kn_insn *i, kn_type to, kn_type from, uint64_t bits) {
    int64_t s = sign_extend(bits, kn_type_bytes[from]);
    bool negative = kn_type_kind[from] == 's' && s < 0;
    return kn_round_pack(negative, negative ? 0 - (uint64_t)s : bits, 0, false, format_of(to), mode_of(i));
}

static uint64_t float_to_float(const kn_insn *i, kn_type to, double v) {
    kn_format f = format_of(to);
    uint64_t sign = UINT64_C(1) << (f.mantissa + f.exponent), infinity = ((UINT64_C(1) << f.exponent) - 1)
                                                                         << f.mantissa;
    /* .ftz looks at the value before it is rounded. */
    if (to == KN_T_f32 && i->m[KN_M_FTZ] && fabs(v) < 0x1p-126) v = copysign(0.0, v);
    if (i->m[KN_M_SAT] == KN_TOK_sat) v = v > 0 ? (v < 1 ? v : 1) : 0;
    uint64_t bits = kn_round_double(to_integral(i, v), f, mode_of(i));
    bool nan = (bits & (sign - 1)) > infinity;
    if (i->m[KN_M_RELU] && (bits & sign) && !nan) bits = 0;
    if (i->m[KN_M_SAT] == KN_TOK_satfinite && !nan && (bits & (sign - 1)) == infinity) bits -= 1;
    if (to == KN_T_tf32) bits = bits << 13; /* the low 13 bits of the register are zero */
    return bits;
}

/* `bits` of type `from` as type `to`, with the rounding and saturation that `i` carries. */
static uint64_t convert(const kn_insn *i, kn_type to, kn_type from, uint64_t bits) {
    bits = low_bits(bits, kn_type_bytes[from]);
    bool from_float = kn_type_kind[from] == 'f', to_float = kn_type_kind[to] == 'f';
    if (!from_float) return to_float ? int_to_float(i, to, from, bits) : int_to_int(i, to, from, bits);
    double v = kn_widen(bits, format_of(from));
    if (from == KN_T_f32 && i->m[KN_M_FTZ] && (bits & 0x7f800000u) == 0) v = copysign(0.0, v);
    uint64_t nan;
    if (!to_float) return float_to_int(i, to, from, v);
    return isnan(v) && keeps_nan(i, to, from, bits, &nan) ? nan : float_to_float(i, to, v);
}

/* The general form: registers may be wider than the types. */
kn_status kn_x_cvt(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint64_t room[KN_LANES], out[KN_LANES] = {0};
    const uint64_t *a;
    kn_type to = (kn_type)i->type[0], from = (kn_type)i->type[1];
    KN_TRY(kn_src64(m, w, i, &i->op[1], active, room, &a));
    for (int l = 0; l < KN_LANES; l++) {
        if (!(active >> l & 1)) continue;
        uint64_t v = low_bits(convert(i, to, from, a[l]), kn_type_bytes[to]);
        out[l] = kn_type_kind[to] == 's' ? (uint64_t)sign_extend(v, kn_type_bytes[to]) : v;
    }
    return kn_put64(m, w, i, &i->op[0], active, out);
}

/* cvt.rn.bf16x2.f32 d, a, b: a becomes the upper half. */
static void pack_kernel(const kn_insn *i, const void *const *src, void *dst) {
    const uint32_t *a = src[0], *b = src[1];
    uint32_t *d = dst;
    kn_type half = i->type[0] == KN_T_f16x2 ? KN_T_f16 : KN_T_bf16;
    for (int l = 0; l < KN_LANES; l++)
        d[l] = (uint32_t)convert(i, half, KN_T_f32, a[l]) << 16 | (uint32_t)convert(i, half, KN_T_f32, b[l]);
}
KN_KERNEL2(pack_bf16, float, float, uint32_t, kn_bf16_round(a) << 16 | kn_bf16_round(b))
KN_KERNEL2(pack_f16, float, float, uint32_t, kn_f16_round(a) << 16 | kn_f16_round(b))

kn_status kn_p_cvt_pack(kn_insn *i) {
    bool plain = i->m[KN_M_RND] == KN_TOK_rn && !i->m[KN_M_RELU] && !i->m[KN_M_SAT];
    if (!plain) return kn_use_kernel(i, pack_kernel);
    return kn_use_kernel(i, i->type[0] == KN_T_f16x2 ? pack_f16 : pack_bf16);
}

/* ---- frequent forms ---------------------------------------------------------------------------------------------- */

static inline int32_t float_to_s32(float v) {
    if (v != v) return 0;
    return v >= 0x1p31f ? INT32_MAX : v < -0x1p31f ? INT32_MIN : (int32_t)v;
}
static inline uint32_t float_to_u32(float v) {
    return v > 0 ? (v >= 0x1p32f ? UINT32_MAX : (uint32_t)v) : 0;
}

KN_KERNEL1(f32_bf16, uint32_t, uint32_t, a << 16)
KN_KERNEL1(f32_f16, uint32_t, float, kn_f32_result(kn_f16_value(a)))
KN_KERNEL1(bf16_f32, float, uint32_t, kn_bf16_round(a))
KN_KERNEL1(f16_f32, float, uint32_t, kn_f16_round(a))
KN_KERNEL1(f32_s32, int32_t, float, a)
KN_KERNEL1(f32_u32, uint32_t, float, a)
KN_KERNEL1(s32_f32_rzi, float, int32_t, float_to_s32(a))
KN_KERNEL1(s32_f32_rni, float, int32_t, float_to_s32(rintf(a)))
KN_KERNEL1(u32_f32_rzi, float, uint32_t, float_to_u32(a))
KN_KERNEL1(u64_u32, uint32_t, uint64_t, a)
KN_KERNEL1(s64_s32, int32_t, int64_t, a)
KN_KERNEL1(u32_u64, uint64_t, uint32_t, a)
KN_KERNEL1(u32_u16, uint32_t, uint32_t, a)
KN_KERNEL1(f64_f32, float, double, a)

static const struct {
    uint8_t to, from, rnd;
    kn_kernel *kernel;
} frequent[] = {
    {KN_T_f32, KN_T_bf16, 0, f32_bf16},
    {KN_T_f32, KN_T_f16, 0, f32_f16},
    {KN_T_bf16, KN_T_f32, KN_TOK_rn, bf16_f32},
    {KN_T_f16, KN_T_f32, KN_TOK_rn, f16_f32},
    {KN_T_f32, KN_T_s32, KN_TOK_rn, f32_s32},
    {KN_T_f32, KN_T_u32, KN_TOK_rn, f32_u32},
    {KN_T_s32, KN_T_f32, KN_TOK_rzi, s32_f32_rzi},
    {KN_T_s32, KN_T_f32, KN_TOK_rni, s32_f32_rni},
    {KN_T_u32, KN_T_f32, KN_TOK_rzi, u32_f32_rzi},
    {KN_T_u64, KN_T_u32, 0, u64_u32},
    {KN_T_s64, KN_T_u32, 0, u64_u32},
    {KN_T_s64, KN_T_s32, 0, s64_s32},
    {KN_T_u64, KN_T_s32, 0, s64_s32},
    {KN_T_u32, KN_T_u64, 0, u32_u64},
    {KN_T_s32, KN_T_s64, 0, u32_u64},
    {KN_T_u32, KN_T_u16, 0, u32_u16},
    {KN_T_f64, KN_T_f32, 0, f64_f32},
};

static kn_status check_rounding(const kn_insn *i) {
    kn_type to = (kn_type)i->type[0], from = (kn_type)i->type[1];
    bool from_float = kn_type_kind[from] == 'f', to_float = kn_type_kind[to] == 'f';
    uint8_t rnd = i->m[KN_M_RND];
    bool integral = rnd == KN_TOK_rni || rnd == KN_TOK_rzi || rnd == KN_TOK_rmi || rnd == KN_TOK_rpi;
    bool narrowing = to_float && (!from_float || format_of(to).mantissa < format_of(from).mantissa ||
                                  (to == KN_T_f16 && from == KN_T_bf16));
    if (from_float && !to_float && !integral) return kn_insn_error(i, "needs .rni, .rzi, .rmi or .rpi");
    if (!from_float && !to_float && rnd) return kn_insn_error(i, "takes no rounding");
    if (narrowing && (!rnd || integral)) return kn_insn_error(i, "needs .rn, .rz, .rm, .rp or .rna");
    return KN_OK;
}

kn_status kn_p_cvt(kn_insn *i) {
    KN_TRY(check_rounding(i));
    bool plain = !i->m[KN_M_FTZ] && !i->m[KN_M_SAT] && !i->m[KN_M_RELU];
    bool fit = i->op[0].bytes == kn_type_bytes[i->type[0]] && i->op[1].bytes == kn_type_bytes[i->type[1]];
    for (size_t k = 0; plain && fit && k < sizeof frequent / sizeof frequent[0]; k++)
        if (frequent[k].to == i->type[0] && frequent[k].from == i->type[1] && frequent[k].rnd == i->m[KN_M_RND])
            return kn_use_kernel(i, frequent[k].kernel);
    return KN_OK;
}
