/* Integer arithmetic: add sub mul mad div rem neg abs min max, of 16, 32 and 64 bits and of packed halves. */
#include "sim/lanes.h"

/* Kernels by type: index by index_of. 16-bit values sit at the bottom of 32 bits. */
enum { T_U16, T_S16, T_U32, T_S32, T_U64, T_S64, T_U16X2, T_S16X2, T_INTS };

static int index_of(const kn_insn *i) {
    switch (i->type[0]) {
    case KN_T_u16: return T_U16;
    case KN_T_s16: return T_S16;
    case KN_T_u32: return T_U32;
    case KN_T_s32: return T_S32;
    case KN_T_u64: return T_U64;
    case KN_T_s64: return T_S64;
    case KN_T_u16x2: return T_U16X2;
    default: return T_S16X2;
    }
}

#define S16(v) ((int32_t)(int16_t)(v))
#define HALVES(f) ((uint32_t)(uint16_t)(f(a & 0xffff, b & 0xffff)) | (uint32_t)(uint16_t)(f(a >> 16, b >> 16)) << 16)

static inline uint32_t add16(uint32_t a, uint32_t b) {
    return a + b;
}
static inline uint32_t sub16(uint32_t a, uint32_t b) {
    return a - b;
}
static inline uint32_t minu(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}
static inline uint32_t maxu(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}
static inline uint32_t mins16(uint32_t a, uint32_t b) {
    return (uint32_t)(S16(a) < S16(b) ? S16(a) : S16(b));
}
static inline uint32_t maxs16(uint32_t a, uint32_t b) {
    return (uint32_t)(S16(a) > S16(b) ? S16(a) : S16(b));
}
static inline int32_t saturate32(int64_t v) {
    return v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : (int32_t)v;
}

KN_KERNEL2(add_32, uint32_t, uint32_t, uint32_t, a + b)
KN_KERNEL2(add_64, uint64_t, uint64_t, uint64_t, a + b)
KN_KERNEL2(add_x2, uint32_t, uint32_t, uint32_t, HALVES(add16))
KN_KERNEL2(add_sat, int32_t, int32_t, int32_t, saturate32((int64_t)a + b))
KN_KERNEL2(sub_32, uint32_t, uint32_t, uint32_t, a - b)
KN_KERNEL2(sub_64, uint64_t, uint64_t, uint64_t, a - b)
KN_KERNEL2(sub_x2, uint32_t, uint32_t, uint32_t, HALVES(sub16))
KN_KERNEL2(sub_sat, int32_t, int32_t, int32_t, saturate32((int64_t)a - b))

KN_KERNEL2(mul_lo32, uint32_t, uint32_t, uint32_t, a *b)
KN_KERNEL2(mul_lo64, uint64_t, uint64_t, uint64_t, a *b)
KN_KERNEL2(mul_hi_u16, uint32_t, uint32_t, uint32_t, (a * b) >> 16)
KN_KERNEL2(mul_hi_s16, uint32_t, uint32_t, uint32_t, (S16(a) * S16(b)) >> 16)
KN_KERNEL2(mul_hi_u32, uint32_t, uint32_t, uint32_t, ((uint64_t)a * b) >> 32)
KN_KERNEL2(mul_hi_s32, int32_t, int32_t, int32_t, ((int64_t)a * b) >> 32)
KN_KERNEL2(mul_hi_u64, uint64_t, uint64_t, uint64_t, ((unsigned __int128)a * b) >> 64)
KN_KERNEL2(mul_hi_s64, int64_t, int64_t, int64_t, ((__int128)a * b) >> 64)
KN_KERNEL2(mul_wide_u16, uint32_t, uint32_t, uint32_t, a *b)
KN_KERNEL2(mul_wide_s16, uint32_t, uint32_t, uint32_t, S16(a) * S16(b))
KN_KERNEL2(mul_wide_u32, uint32_t, uint32_t, uint64_t, (uint64_t)a *b)
KN_KERNEL2(mul_wide_s32, int32_t, int32_t, int64_t, (int64_t)a *b)

KN_KERNEL3(mad_lo32, uint32_t, uint32_t, uint32_t, uint32_t, a *b + c)
KN_KERNEL3(mad_lo64, uint64_t, uint64_t, uint64_t, uint64_t, a *b + c)
KN_KERNEL3(mad_hi_u16, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)((a * b) >> 16) + c)
KN_KERNEL3(mad_hi_s16, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)((S16(a) * S16(b)) >> 16) + c)
KN_KERNEL3(mad_hi_u32, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)(((uint64_t)a * b) >> 32) + c)
KN_KERNEL3(mad_hi_s32, int32_t, int32_t, uint32_t, uint32_t, (uint32_t)(((int64_t)a * b) >> 32) + c)
KN_KERNEL3(mad_hi_u64, uint64_t, uint64_t, uint64_t, uint64_t, (uint64_t)(((unsigned __int128)a * b) >> 64) + c)
KN_KERNEL3(mad_hi_s64, int64_t, int64_t, uint64_t, uint64_t, (uint64_t)(((__int128)a * b) >> 64) + c)
KN_KERNEL3(mad_wide_u16, uint32_t, uint32_t, uint32_t, uint32_t, a *b + c)
KN_KERNEL3(mad_wide_s16, uint32_t, uint32_t, uint32_t, uint32_t, (uint32_t)(S16(a) * S16(b)) + c)
KN_KERNEL3(mad_wide_u32, uint32_t, uint32_t, uint64_t, uint64_t, (uint64_t)a *b + c)
KN_KERNEL3(mad_wide_s32, int32_t, int32_t, uint64_t, uint64_t, (uint64_t)((int64_t)a *b) + c)

/* A division by zero has no specified result: all ones, as the H200 gives. */
static inline int32_t divs32(int32_t a, int32_t b) {
    return b == 0 ? -1 : b == -1 ? (int32_t)(0u - (uint32_t)a) : a / b;
}
static inline int32_t rems32(int32_t a, int32_t b) {
    return b == 0 ? -1 : b == -1 ? 0 : a % b;
}
static inline int64_t divs64(int64_t a, int64_t b) {
    return b == 0 ? -1 : b == -1 ? (int64_t)(0u - (uint64_t)a) : a / b;
}
static inline int64_t rems64(int64_t a, int64_t b) {
    return b == 0 ? -1 : b == -1 ? 0 : a % b;
}
KN_KERNEL2(div_u16, uint32_t, uint32_t, uint32_t, (b & 0xffff) ? (a & 0xffff) / (b & 0xffff) : 0xffffu)
KN_KERNEL2(div_s16, uint32_t, uint32_t, uint32_t, divs32(S16(a), S16(b)))
KN_KERNEL2(div_u32, uint32_t, uint32_t, uint32_t, b ? a / b : KN_FULL_MASK)
KN_KERNEL2(div_s32, int32_t, int32_t, int32_t, divs32(a, b))
KN_KERNEL2(div_u64, uint64_t, uint64_t, uint64_t, b ? a / b : UINT64_MAX)
KN_KERNEL2(div_s64, int64_t, int64_t, int64_t, divs64(a, b))
KN_KERNEL2(rem_u16, uint32_t, uint32_t, uint32_t, (b & 0xffff) ? (a & 0xffff) % (b & 0xffff) : 0xffffu)
KN_KERNEL2(rem_s16, uint32_t, uint32_t, uint32_t, rems32(S16(a), S16(b)))
KN_KERNEL2(rem_u32, uint32_t, uint32_t, uint32_t, b ? a % b : KN_FULL_MASK)
KN_KERNEL2(rem_s32, int32_t, int32_t, int32_t, rems32(a, b))
KN_KERNEL2(rem_u64, uint64_t, uint64_t, uint64_t, b ? a % b : UINT64_MAX)
KN_KERNEL2(rem_s64, int64_t, int64_t, int64_t, rems64(a, b))

KN_KERNEL1(neg_32, uint32_t, uint32_t, 0u - a)
KN_KERNEL1(neg_64, uint64_t, uint64_t, 0u - a)
KN_KERNEL1(abs_s16, uint32_t, uint32_t, S16(a) < 0 ? 0u - a : a)
KN_KERNEL1(abs_s32, uint32_t, uint32_t, (int32_t)a < 0 ? 0u - a : a)
KN_KERNEL1(abs_s64, uint64_t, uint64_t, (int64_t)a < 0 ? 0u - a : a)

KN_KERNEL2(min_u, uint32_t, uint32_t, uint32_t, minu(a, b))
KN_KERNEL2(min_s16, uint32_t, uint32_t, uint32_t, mins16(a, b))
KN_KERNEL2(min_s32, int32_t, int32_t, int32_t, a < b ? a : b)
KN_KERNEL2(min_u64, uint64_t, uint64_t, uint64_t, a < b ? a : b)
KN_KERNEL2(min_s64, int64_t, int64_t, int64_t, a < b ? a : b)
KN_KERNEL2(min_u16x2, uint32_t, uint32_t, uint32_t, HALVES(minu))
KN_KERNEL2(min_s16x2, uint32_t, uint32_t, uint32_t, HALVES(mins16))
KN_KERNEL2(max_u, uint32_t, uint32_t, uint32_t, maxu(a, b))
KN_KERNEL2(max_s16, uint32_t, uint32_t, uint32_t, maxs16(a, b))
KN_KERNEL2(max_s32, int32_t, int32_t, int32_t, a > b ? a : b)
KN_KERNEL2(max_u64, uint64_t, uint64_t, uint64_t, a > b ? a : b)
KN_KERNEL2(max_s64, int64_t, int64_t, int64_t, a > b ? a : b)
KN_KERNEL2(max_u16x2, uint32_t, uint32_t, uint32_t, HALVES(maxu))
KN_KERNEL2(max_s16x2, uint32_t, uint32_t, uint32_t, HALVES(maxs16))
KN_KERNEL2(min_relu, int32_t, int32_t, int32_t, (a < b ? a : b) < 0 ? 0 : a < b ? a : b)
KN_KERNEL2(max_relu, int32_t, int32_t, int32_t, (a > b ? a : b) < 0 ? 0 : a > b ? a : b)

kn_status kn_p_add_int(kn_insn *i) {
    static kn_kernel *const by_type[T_INTS] = {add_32, add_32, add_32, add_32, add_64, add_64, add_x2, add_x2};
    return kn_use_kernel(i, i->m[KN_M_SAT] ? add_sat : by_type[index_of(i)]);
}
kn_status kn_p_sub_int(kn_insn *i) {
    static kn_kernel *const by_type[T_INTS] = {sub_32, sub_32, sub_32, sub_32, sub_64, sub_64, sub_x2, sub_x2};
    return kn_use_kernel(i, i->m[KN_M_SAT] ? sub_sat : by_type[index_of(i)]);
}
kn_status kn_p_mul_int(kn_insn *i) {
    static kn_kernel *const hi[T_INTS] = {mul_hi_u16, mul_hi_s16, mul_hi_u32, mul_hi_s32, mul_hi_u64, mul_hi_s64};
    return kn_use_kernel(i, i->m[KN_M_CMP] == KN_TOK_hi      ? hi[index_of(i)]
                            : kn_type_bytes[i->type[0]] == 8 ? mul_lo64
                                                             : mul_lo32);
}
kn_status kn_p_mad_int(kn_insn *i) {
    static kn_kernel *const hi[T_INTS] = {mad_hi_u16, mad_hi_s16, mad_hi_u32, mad_hi_s32, mad_hi_u64, mad_hi_s64};
    return kn_use_kernel(i, i->m[KN_M_CMP] == KN_TOK_hi      ? hi[index_of(i)]
                            : kn_type_bytes[i->type[0]] == 8 ? mad_lo64
                                                             : mad_lo32);
}
/* wide: sources of type[0], the destination twice as wide; the row's signature names the widths. */
kn_status kn_p_mul_wide(kn_insn *i) {
    static kn_kernel *const by_type[T_INTS] = {mul_wide_u16, mul_wide_s16, mul_wide_u32, mul_wide_s32};
    return kn_use_kernel(i, by_type[index_of(i)]);
}
kn_status kn_p_mad_wide(kn_insn *i) {
    static kn_kernel *const by_type[T_INTS] = {mad_wide_u16, mad_wide_s16, mad_wide_u32, mad_wide_s32};
    return kn_use_kernel(i, by_type[index_of(i)]);
}
kn_status kn_p_div_int(kn_insn *i) {
    static kn_kernel *const by_type[T_INTS] = {div_u16, div_s16, div_u32, div_s32, div_u64, div_s64};
    return kn_use_kernel(i, by_type[index_of(i)]);
}
kn_status kn_p_rem_int(kn_insn *i) {
    static kn_kernel *const by_type[T_INTS] = {rem_u16, rem_s16, rem_u32, rem_s32, rem_u64, rem_s64};
    return kn_use_kernel(i, by_type[index_of(i)]);
}
kn_status kn_p_neg_int(kn_insn *i) {
    return kn_use_kernel(i, kn_type_bytes[i->type[0]] == 8 ? neg_64 : neg_32);
}
kn_status kn_p_abs_int(kn_insn *i) {
    static kn_kernel *const by_type[T_INTS] = {NULL, abs_s16, NULL, abs_s32, NULL, abs_s64};
    return kn_use_kernel(i, by_type[index_of(i)]);
}
kn_status kn_p_min_int(kn_insn *i) {
    static kn_kernel *const by_type[T_INTS] = {min_u, min_s16, min_u, min_s32, min_u64, min_s64, min_u16x2, min_s16x2};
    return kn_use_kernel(i, i->m[KN_M_RELU] ? min_relu : by_type[index_of(i)]);
}
kn_status kn_p_max_int(kn_insn *i) {
    static kn_kernel *const by_type[T_INTS] = {max_u, max_s16, max_u, max_s32, max_u64, max_s64, max_u16x2, max_s16x2};
    return kn_use_kernel(i, i->m[KN_M_RELU] ? max_relu : by_type[index_of(i)]);
}
