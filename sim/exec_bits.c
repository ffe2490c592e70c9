/* Bit instructions: logic, shifts, fields, byte permutes, counts. */
#include "sim/lanes.h"

KN_KERNEL2(and_32, uint32_t, uint32_t, uint32_t, a &b)
KN_KERNEL2(and_64, uint64_t, uint64_t, uint64_t, a &b)
KN_KERNEL2(or_32, uint32_t, uint32_t, uint32_t, a | b)
KN_KERNEL2(or_64, uint64_t, uint64_t, uint64_t, a | b)
KN_KERNEL2(xor_32, uint32_t, uint32_t, uint32_t, a ^ b)
KN_KERNEL2(xor_64, uint64_t, uint64_t, uint64_t, a ^ b)
KN_KERNEL1(not_32, uint32_t, uint32_t, ~a)
KN_KERNEL1(not_64, uint64_t, uint64_t, ~a)

static bool wide(const kn_insn *i) {
    return kn_type_bytes[i->type[0]] == 8;
}

kn_status kn_p_and(kn_insn *i) {
    return kn_use_kernel(i, wide(i) ? and_64 : and_32);
}
kn_status kn_p_or(kn_insn *i) {
    return kn_use_kernel(i, wide(i) ? or_64 : or_32);
}
kn_status kn_p_xor(kn_insn *i) {
    return kn_use_kernel(i, wide(i) ? xor_64 : xor_32);
}
kn_status kn_p_not(kn_insn *i) {
    return kn_use_kernel(i, wide(i) ? not_64 : not_32);
}

/* Logic on predicates: whole warps at once. */
kn_status kn_x_logic_pred(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint32_t a, b = 0;
    KN_TRY(kn_src_pred(m, w, i, &i->op[1], active, &a));
    if (i->n_op > 2) KN_TRY(kn_src_pred(m, w, i, &i->op[2], active, &b));
    uint32_t v = i->text[0] == 'a' ? a & b : i->text[0] == 'o' ? a | b : i->text[0] == 'x' ? a ^ b : ~a;
    return kn_put_pred(m, w, i, &i->op[0], active, v);
}

/* ---- shifts: amounts beyond the width are clamped ---------------------------------------------------------------- */

KN_KERNEL2(shl_16, uint32_t, uint32_t, uint32_t, b > 15 ? 0 : a << b)
KN_KERNEL2(shl_32, uint32_t, uint32_t, uint32_t, b > 31 ? 0 : a << b)
KN_KERNEL2(shl_64, uint64_t, uint32_t, uint64_t, b > 63 ? 0 : a << b)
KN_KERNEL2(shr_u32, uint32_t, uint32_t, uint32_t, b > 31 ? 0 : a >> b)
KN_KERNEL2(shr_s16, uint32_t, uint32_t, uint32_t, (int32_t)(int16_t)a >> (b > 15 ? 15 : b))
KN_KERNEL2(shr_s32, int32_t, uint32_t, int32_t, a >> (b > 31 ? 31 : b))
KN_KERNEL2(shr_u64, uint64_t, uint32_t, uint64_t, b > 63 ? 0 : a >> b)
KN_KERNEL2(shr_s64, int64_t, uint32_t, int64_t, a >> (b > 63 ? 63 : b))

kn_status kn_p_shl(kn_insn *i) {
    uint8_t bytes = kn_type_bytes[i->type[0]];
    return kn_use_kernel(i, bytes == 8 ? shl_64 : bytes == 4 ? shl_32 : shl_16);
}
kn_status kn_p_shr(kn_insn *i) {
    uint8_t bytes = kn_type_bytes[i->type[0]];
    bool arithmetic = kn_type_kind[i->type[0]] == 's';
    if (bytes == 8) return kn_use_kernel(i, arithmetic ? shr_s64 : shr_u64);
    if (!arithmetic) return kn_use_kernel(i, shr_u32);
    return kn_use_kernel(i, bytes == 4 ? shr_s32 : shr_s16);
}

/* Funnel shifts of b:a. */
static inline uint32_t funnel_l(uint32_t a, uint32_t b, uint32_t n) {
    return (uint32_t)((((uint64_t)b << 32 | a) << n) >> 32);
}
static inline uint32_t funnel_r(uint32_t a, uint32_t b, uint32_t n) {
    return (uint32_t)(((uint64_t)b << 32 | a) >> n);
}
KN_KERNEL3(shf_l_wrap, uint32_t, uint32_t, uint32_t, uint32_t, funnel_l(a, b, c & 31))
KN_KERNEL3(shf_r_wrap, uint32_t, uint32_t, uint32_t, uint32_t, funnel_r(a, b, c & 31))
KN_KERNEL3(shf_l_clamp, uint32_t, uint32_t, uint32_t, uint32_t, funnel_l(a, b, c > 32 ? 32 : c))
KN_KERNEL3(shf_r_clamp, uint32_t, uint32_t, uint32_t, uint32_t, funnel_r(a, b, c > 32 ? 32 : c))
kn_status kn_p_shf_l(kn_insn *i) {
    return kn_use_kernel(i, i->m[KN_M_OP] == KN_TOK_wrap ? shf_l_wrap : shf_l_clamp);
}
kn_status kn_p_shf_r(kn_insn *i) {
    return kn_use_kernel(i, i->m[KN_M_OP] == KN_TOK_wrap ? shf_r_wrap : shf_r_clamp);
}

/* ---- fields ------------------------------------------------------------------------------------------------------ */

static inline uint64_t ones(uint32_t n) {
    return n >= 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
}

/* Bits pos .. pos + len - 1 of a `width`-bit value, zero- or sign-filled above the field or above the value. */
static inline uint64_t extract(uint64_t a, uint32_t pos, uint32_t len, uint32_t width, bool sign) {
    pos &= 0xff;
    len &= 0xff;
    if (len == 0) return 0;
    uint32_t last = pos + len - 1 < width - 1 ? pos + len - 1 : width - 1;
    bool fill = sign && (a >> last & 1);
    uint32_t have = pos >= width ? 0 : last - pos + 1;
    uint64_t field = have ? (a >> pos) & ones(have) : 0;
    return fill ? field | ~ones(have) : field;
}
static inline uint64_t insert(uint64_t a, uint64_t b, uint32_t pos, uint32_t len, uint32_t width) {
    pos &= 0xff;
    len &= 0xff;
    if (pos >= width || len == 0) return b;
    uint32_t n = len < width - pos ? len : width - pos;
    uint64_t mask = ones(n) << pos;
    return (b & ~mask) | (a << pos & mask);
}
KN_KERNEL3(bfe_u32, uint32_t, uint32_t, uint32_t, uint32_t, extract(a, b, c, 32, false))
KN_KERNEL3(bfe_s32, uint32_t, uint32_t, uint32_t, uint32_t, extract(a, b, c, 32, true))
KN_KERNEL3(bfe_u64, uint64_t, uint32_t, uint32_t, uint64_t, extract(a, b, c, 64, false))
KN_KERNEL3(bfe_s64, uint64_t, uint32_t, uint32_t, uint64_t, extract(a, b, c, 64, true))
kn_status kn_p_bfe(kn_insn *i) {
    bool sign = kn_type_kind[i->type[0]] == 's';
    return kn_use_kernel(i, wide(i) ? (sign ? bfe_s64 : bfe_u64) : (sign ? bfe_s32 : bfe_u32));
}
static void bfi_32(const kn_insn *i, const void *const *src, void *dst) {
    const uint32_t *a = src[0], *b = src[1], *pos = src[2], *len = src[3];
    uint32_t *d = dst;
    (void)i;
    for (int l = 0; l < KN_LANES; l++) d[l] = (uint32_t)insert(a[l], b[l], pos[l], len[l], 32);
}
static void bfi_64(const kn_insn *i, const void *const *src, void *dst) {
    const uint64_t *a = src[0], *b = src[1];
    const uint32_t *pos = src[2], *len = src[3];
    uint64_t *d = dst;
    (void)i;
    for (int l = 0; l < KN_LANES; l++) d[l] = insert(a[l], b[l], pos[l], len[l], 64);
}
kn_status kn_p_bfi(kn_insn *i) {
    return kn_use_kernel(i, wide(i) ? bfi_64 : bfi_32);
}

/* ---- bytes and truth tables
 * ------------------------------------------------------------------------------------------ */

/* Selectors of the special modes of prmt by the low two bits of c, as the manual's table has them: four nibbles, the
 * byte for bits 0-7 lowest. */
static uint32_t prmt_selectors(kn_token mode, uint32_t c) {
    static const uint16_t f4e[4] = {0x3210, 0x4321, 0x5432, 0x6543}, b4e[4] = {0x5670, 0x6701, 0x7012, 0x0123};
    static const uint16_t rc8[4] = {0x0000, 0x1111, 0x2222, 0x3333}, ecl[4] = {0x3210, 0x3211, 0x3222, 0x3333};
    static const uint16_t ecr[4] = {0x0000, 0x1110, 0x2210, 0x3210}, rc16[4] = {0x1010, 0x3232, 0x1010, 0x3232};
    switch (mode) {
    case KN_TOK_f4e: return f4e[c & 3];
    case KN_TOK_b4e: return b4e[c & 3];
    case KN_TOK_rc8: return rc8[c & 3];
    case KN_TOK_ecl: return ecl[c & 3];
    case KN_TOK_ecr: return ecr[c & 3];
    case KN_TOK_rc16: return rc16[c & 3];
    default: return c;
    }
}
static uint32_t permute(uint32_t a, uint32_t b, uint32_t selectors) {
    uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t v = 0;
    for (int k = 0; k < 4; k++) {
        uint32_t s = selectors >> 4 * k & 0xf;
        uint32_t byte = (uint32_t)(bytes >> 8 * (s & 7)) & 0xff;
        if (s & 8) byte = byte & 0x80 ? 0xff : 0;
        v |= byte << 8 * k;
    }
    return v;
}
KN_KERNEL3(prmt_kernel, uint32_t, uint32_t, uint32_t, uint32_t,
           permute(a, b, prmt_selectors((kn_token)i->m[KN_M_OP], c)))
kn_status kn_p_prmt(kn_insn *i) {
    return kn_use_kernel(i, prmt_kernel);
}

static void lop3_kernel(const kn_insn *i, const void *const *src, void *dst) {
    const uint32_t *a = src[0], *b = src[1], *c = src[2];
    uint32_t *d = dst, table = *(const uint32_t *)src[3];
    (void)i;
    for (int l = 0; l < KN_LANES; l++) {
        uint32_t v = 0;
        if (table & 0x01) v |= ~a[l] & ~b[l] & ~c[l];
        if (table & 0x02) v |= ~a[l] & ~b[l] & c[l];
        if (table & 0x04) v |= ~a[l] & b[l] & ~c[l];
        if (table & 0x08) v |= ~a[l] & b[l] & c[l];
        if (table & 0x10) v |= a[l] & ~b[l] & ~c[l];
        if (table & 0x20) v |= a[l] & ~b[l] & c[l];
        if (table & 0x40) v |= a[l] & b[l] & ~c[l];
        if (table & 0x80) v |= a[l] & b[l] & c[l];
        d[l] = v;
    }
}
kn_status kn_p_lop3(kn_insn *i) {
    if ((uint64_t)i->op[4].imm > 255) return kn_insn_error(i, "the truth table must be in [0, 255]");
    return kn_use_kernel(i, lop3_kernel);
}

/* ---- counts
 * ----------------------------------------------------------------------------------------------------------- */

static inline uint32_t reverse(uint32_t v) {
    v = (v >> 1 & 0x55555555u) | (v & 0x55555555u) << 1;
    v = (v >> 2 & 0x33333333u) | (v & 0x33333333u) << 2;
    v = (v >> 4 & 0x0f0f0f0fu) | (v & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(v);
}
static inline uint32_t top_bit(uint64_t v) {
    return v ? 63u - (uint32_t)__builtin_clzll(v) : KN_FULL_MASK;
}
static inline uint32_t shift_of(uint32_t bit, uint32_t width) {
    return bit == KN_FULL_MASK ? bit : width - 1 - bit;
}

KN_KERNEL1(popc_32, uint32_t, uint32_t, __builtin_popcount(a))
KN_KERNEL1(popc_64, uint64_t, uint32_t, __builtin_popcountll(a))
KN_KERNEL1(clz_32, uint32_t, uint32_t, a ? __builtin_clz(a) : 32)
KN_KERNEL1(clz_64, uint64_t, uint32_t, a ? __builtin_clzll(a) : 64)
KN_KERNEL1(brev_32, uint32_t, uint32_t, reverse(a))
KN_KERNEL1(brev_64, uint64_t, uint64_t, (uint64_t)reverse((uint32_t)a) << 32 | reverse((uint32_t)(a >> 32)))
KN_KERNEL1(bfind_u32, uint32_t, uint32_t, top_bit(a))
KN_KERNEL1(bfind_s32, uint32_t, uint32_t, top_bit((int32_t)a < 0 ? ~a : a))
KN_KERNEL1(bfind_u64, uint64_t, uint32_t, top_bit(a))
KN_KERNEL1(bfind_s64, uint64_t, uint32_t, top_bit((int64_t)a < 0 ? ~a : a))
KN_KERNEL1(bshift_u32, uint32_t, uint32_t, shift_of(top_bit(a), 32))
KN_KERNEL1(bshift_s32, uint32_t, uint32_t, shift_of(top_bit((int32_t)a < 0 ? ~a : a), 32))
KN_KERNEL1(bshift_u64, uint64_t, uint32_t, shift_of(top_bit(a), 64))
KN_KERNEL1(bshift_s64, uint64_t, uint32_t, shift_of(top_bit((int64_t)a < 0 ? ~a : a), 64))

kn_status kn_p_popc(kn_insn *i) {
    return kn_use_kernel(i, wide(i) ? popc_64 : popc_32);
}
kn_status kn_p_clz(kn_insn *i) {
    return kn_use_kernel(i, wide(i) ? clz_64 : clz_32);
}
kn_status kn_p_brev(kn_insn *i) {
    return kn_use_kernel(i, wide(i) ? brev_64 : brev_32);
}
kn_status kn_p_bfind(kn_insn *i) {
    bool sign = kn_type_kind[i->type[0]] == 's';
    if (i->m[KN_M_OP] == KN_TOK_shiftamt)
        return kn_use_kernel(i, wide(i) ? (sign ? bshift_s64 : bshift_u64) : (sign ? bshift_s32 : bshift_u32));
    return kn_use_kernel(i, wide(i) ? (sign ? bfind_s64 : bfind_u64) : (sign ? bfind_s32 : bfind_u32));
}
