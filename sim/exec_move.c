/* Moving and choosing: mov (with packing), selp, slct, setp, set, testp, cvta, isspacep. */
#include "sim/lanes.h"
#include "sim/rounding.h"

KN_KERNEL1(mov_32, uint32_t, uint32_t, a)
KN_KERNEL1(mov_64, uint64_t, uint64_t, a)

kn_status kn_x_mov_pred(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint32_t v;
    KN_TRY(kn_src_pred(m, w, i, &i->op[1], active, &v));
    return kn_put_pred(m, w, i, &i->op[0], active, v);
}

/* mov.b64 d, {a, b}: the first element is the lowest. */
static kn_status pack(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint64_t out[KN_LANES] = {0};
    const kn_operand *list = &i->op[1];
    uint32_t share = 8u * kn_type_bytes[i->type[0]] / list->n;
    for (uint32_t k = 0; k < list->n; k++) {
        uint32_t room[KN_LANES];
        const uint32_t *v;
        KN_TRY(kn_src32(m, w, i, &list->elem[k], active, room, &v));
        for (int l = 0; l < KN_LANES; l++) out[l] |= (uint64_t)v[l] << share * k;
    }
    return kn_put64(m, w, i, &i->op[0], active, out);
}

static kn_status unpack(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint64_t room[KN_LANES];
    const uint64_t *v;
    const kn_operand *list = &i->op[0];
    uint32_t share = 8u * kn_type_bytes[i->type[0]] / list->n;
    KN_TRY(kn_src64(m, w, i, &i->op[1], active, room, &v));
    for (uint32_t k = 0; k < list->n; k++) {
        uint32_t out[KN_LANES];
        for (int l = 0; l < KN_LANES; l++) out[l] = (uint32_t)(v[l] >> share * k);
        KN_TRY(kn_put32(m, w, i, &list->elem[k], active, out));
    }
    return KN_OK;
}

kn_status kn_p_mov(kn_insn *i) {
    const kn_operand *d = &i->op[0], *s = &i->op[1];
    bool packs = s->kind == KN_O_VEC;
    if (d->kind != KN_O_VEC && !packs) return kn_use_kernel(i, kn_type_bytes[i->type[0]] == 8 ? mov_64 : mov_32);
    const kn_operand *list = packs ? s : d;
    if (kn_type_kind[i->type[0]] != 'b' || (packs && d->kind == KN_O_VEC))
        return kn_insn_error(i, "packing and unpacking need a .b type and one list");
    for (uint32_t k = 0; k < list->n; k++)
        if (list->elem[k].kind != KN_O_SINK && list->elem[k].bytes * list->n != kn_type_bytes[i->type[0]])
            return kn_insn_error(i, "the elements of the list do not fill .b%d", 8 * kn_type_bytes[i->type[0]]);
    i->exec = packs ? pack : unpack;
    return KN_OK;
}

/* ---- choosing
 * --------------------------------------------------------------------------------------------------------- */

/* Only the operand that is chosen is read. */
kn_status kn_x_selp(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint32_t p;
    KN_TRY(kn_src_pred(m, w, i, &i->op[3], active, &p));
    if (kn_type_bytes[i->type[0]] == 8) {
        uint64_t ra[KN_LANES], rb[KN_LANES], out[KN_LANES];
        const uint64_t *a, *b;
        KN_TRY(kn_src64(m, w, i, &i->op[1], p, ra, &a));
        KN_TRY(kn_src64(m, w, i, &i->op[2], active & ~p, rb, &b));
        for (int l = 0; l < KN_LANES; l++) out[l] = p >> l & 1 ? a[l] : b[l];
        return kn_put64(m, w, i, &i->op[0], active, out);
    }
    uint32_t ra[KN_LANES], rb[KN_LANES], out[KN_LANES];
    const uint32_t *a, *b;
    KN_TRY(kn_src32(m, w, i, &i->op[1], p, ra, &a));
    KN_TRY(kn_src32(m, w, i, &i->op[2], active & ~p, rb, &b));
    for (int l = 0; l < KN_LANES; l++) out[l] = p >> l & 1 ? a[l] : b[l];
    return kn_put32(m, w, i, &i->op[0], active, out);
}

/* slct d, a, b, c: a if c >= 0 (a NaN is not). */
KN_KERNEL3(slct_32_s32, uint32_t, uint32_t, int32_t, uint32_t, c >= 0 ? a : b)
KN_KERNEL3(slct_64_s32, uint64_t, uint64_t, int32_t, uint64_t, c >= 0 ? a : b)
static inline bool not_negative(const kn_insn *i, float c) {
    return (i->m[KN_M_FTZ] ? kn_f32_flush(c) : c) >= 0;
}
KN_KERNEL3(slct_32_f32, uint32_t, uint32_t, float, uint32_t, not_negative(i, c) ? a : b)
KN_KERNEL3(slct_64_f32, uint64_t, uint64_t, float, uint64_t, not_negative(i, c) ? a : b)
kn_status kn_p_slct(kn_insn *i) {
    bool wide = kn_type_bytes[i->type[0]] == 8, f = i->type[1] == KN_T_f32;
    return kn_use_kernel(i, wide ? (f ? slct_64_f32 : slct_64_s32) : (f ? slct_32_f32 : slct_32_s32));
}

/* ---- comparing
 * -------------------------------------------------------------------------------------------------------- */

/* Three bits that say how a and b are related: the answer to each comparison is a set of them. */
enum { LESS = 1, EQUAL = 2, GREATER = 4, UNORDERED = 8 };

static uint32_t wanted(const kn_insn *i) {
    switch (i->m[KN_M_CMP]) {
    case KN_TOK_eq: return EQUAL;
    case KN_TOK_ne: return LESS | GREATER;
    case KN_TOK_lt:
    case KN_TOK_lo: return LESS;
    case KN_TOK_le:
    case KN_TOK_ls: return LESS | EQUAL;
    case KN_TOK_gt:
    case KN_TOK_hi: return GREATER;
    case KN_TOK_ge:
    case KN_TOK_hs: return GREATER | EQUAL;
    case KN_TOK_equ: return EQUAL | UNORDERED;
    case KN_TOK_neu: return LESS | GREATER | UNORDERED;
    case KN_TOK_ltu: return LESS | UNORDERED;
    case KN_TOK_leu: return LESS | EQUAL | UNORDERED;
    case KN_TOK_gtu: return GREATER | UNORDERED;
    case KN_TOK_geu: return GREATER | EQUAL | UNORDERED;
    case KN_TOK_num: return LESS | EQUAL | GREATER;
    default: return UNORDERED; /* nan */
    }
}

#define RELATE(T, pa, pb, want, result)                                                                                \
    do {                                                                                                               \
        const T *va = (const T *)(pa), *vb = (const T *)(pb);                                                          \
        for (int l = 0; l < KN_LANES; l++) {                                                                           \
            uint32_t r = va[l] < vb[l] ? LESS : va[l] == vb[l] ? EQUAL : va[l] > vb[l] ? GREATER : UNORDERED;          \
            (result) |= (uint32_t)((r & (want)) != 0) << l;                                                            \
        }                                                                                                              \
    } while (0)

/* Values of narrow types widened to 32 bits in `out`. */
static void widen(const kn_insn *i, kn_type t, uint32_t shift, const uint32_t *v, uint32_t out[32]) {
    for (int l = 0; l < KN_LANES; l++) {
        uint32_t h = v[l] >> shift & 0xffff;
        switch (t) {
        case KN_T_s16: out[l] = (uint32_t)(int32_t)(int16_t)h; break;
        case KN_T_f16:
        case KN_T_f16x2: out[l] = kn_f32_bits(kn_f16_value(h)); break;
        case KN_T_bf16:
        case KN_T_bf16x2: out[l] = kn_f32_bits(kn_bf16_value(h)); break;
        case KN_T_f32: out[l] = i->m[KN_M_FTZ] ? kn_f32_bits(kn_f32_flush(kn_f32(v[l]))) : v[l]; break;
        default: out[l] = h; break;
        }
    }
}

static uint32_t compare32(const kn_insn *i, kn_type t, uint32_t shift, const uint32_t *a, const uint32_t *b) {
    uint32_t want = wanted(i), result = 0, ua[KN_LANES], ub[KN_LANES];
    bool narrow = kn_type_bytes[t] == 2 || t == KN_T_f16x2 || t == KN_T_bf16x2 || (t == KN_T_f32 && i->m[KN_M_FTZ]);
    if (narrow) {
        widen(i, t, shift, a, ua);
        widen(i, t, shift, b, ub);
        a = ua;
        b = ub;
    }
    if (kn_type_kind[t] == 'f')
        RELATE(float, a, b, want, result);
    else if (kn_type_kind[t] == 's')
        RELATE(int32_t, a, b, want, result);
    else
        RELATE(uint32_t, a, b, want, result);
    return result;
}

/* Lanes for which operands x and y compare as asked; *high: the upper halves of packed types. */
static kn_status compare(kn_machine *m, kn_warp *w, const kn_insn *i, kn_type t, const kn_operand *x,
                         const kn_operand *y, uint32_t active, uint32_t *low, uint32_t *high) {
    uint32_t result = 0;
    if (kn_type_bytes[t] == 8) {
        uint64_t ra[KN_LANES], rb[KN_LANES];
        const uint64_t *a, *b;
        KN_TRY(kn_src64(m, w, i, x, active, ra, &a));
        KN_TRY(kn_src64(m, w, i, y, active, rb, &b));
        if (kn_type_kind[t] == 'f')
            RELATE(double, a, b, wanted(i), result);
        else if (kn_type_kind[t] == 's')
            RELATE(int64_t, a, b, wanted(i), result);
        else
            RELATE(uint64_t, a, b, wanted(i), result);
        *low = result;
        return KN_OK;
    }
    uint32_t ra[KN_LANES], rb[KN_LANES];
    const uint32_t *a, *b;
    KN_TRY(kn_src32(m, w, i, x, active, ra, &a));
    KN_TRY(kn_src32(m, w, i, y, active, rb, &b));
    *low = compare32(i, t, 0, a, b);
    if (t == KN_T_f16x2 || t == KN_T_bf16x2) *high = compare32(i, t, 16, a, b);
    return KN_OK;
}

static uint32_t combine(const kn_insn *i, uint32_t t, uint32_t c) {
    switch (i->m[KN_M_OP]) {
    case KN_TOK_and: return t & c;
    case KN_TOK_or: return t | c;
    case KN_TOK_xor: return t ^ c;
    default: return t;
    }
}

/* setp p|q, a, b{, c}: p from the comparison, q from its negation; packed types: p from the low halves, q the high. */
kn_status kn_x_setp(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint32_t low = 0, high = 0, c = 0;
    kn_type t = (kn_type)i->type[0];
    KN_TRY(compare(m, w, i, t, &i->op[1], &i->op[2], active, &low, &high));
    if (i->n_op > 3) KN_TRY(kn_src_pred(m, w, i, &i->op[3], active, &c));
    const kn_operand *d = &i->op[0];
    bool packed = t == KN_T_f16x2 || t == KN_T_bf16x2;
    if (d->kind != KN_O_PAIR) return kn_put_pred(m, w, i, d, active, combine(i, low, c));
    KN_TRY(kn_put_pred(m, w, i, &d->elem[0], active, combine(i, low, c)));
    return kn_put_pred(m, w, i, &d->elem[1], active, combine(i, packed ? high : ~low, c));
}
kn_status kn_p_setp(kn_insn *i) {
    bool unsigned_only = i->m[KN_M_CMP] == KN_TOK_lo || i->m[KN_M_CMP] == KN_TOK_ls || i->m[KN_M_CMP] == KN_TOK_hi ||
                         i->m[KN_M_CMP] == KN_TOK_hs;
    bool float_only = i->m[KN_M_CMP] >= KN_TOK_equ && i->m[KN_M_CMP] <= KN_TOK_nan && !unsigned_only;
    char kind = kn_type_kind[i->type[i->type[1] ? 1 : 0]];
    if (unsigned_only && kind != 'u') return kn_insn_error(i, "this comparison is for unsigned types");
    if (float_only && kind != 'f') return kn_insn_error(i, "this comparison is for floating types");
    if (kind == 'b' && i->m[KN_M_CMP] != KN_TOK_eq && i->m[KN_M_CMP] != KN_TOK_ne)
        return kn_insn_error(i, "a .b type has only eq and ne");
    return KN_OK;
}

/* set d, a, b{, c}: all ones where the comparison holds. */
kn_status kn_x_set(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint32_t t = 0, high = 0, c = 0, out[KN_LANES];
    KN_TRY(compare(m, w, i, (kn_type)i->type[1], &i->op[1], &i->op[2], active, &t, &high));
    if (i->n_op > 3) KN_TRY(kn_src_pred(m, w, i, &i->op[3], active, &c));
    t = combine(i, t, c);
    for (int l = 0; l < KN_LANES; l++) out[l] = t >> l & 1 ? KN_FULL_MASK : 0;
    return kn_put32(m, w, i, &i->op[0], active, out);
}

kn_status kn_x_testp(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint64_t room[KN_LANES];
    const uint64_t *a;
    uint32_t result = 0;
    bool wide = i->type[0] == KN_T_f64;
    KN_TRY(kn_src64(m, w, i, &i->op[1], active, room, &a));
    for (int l = 0; l < KN_LANES; l++) {
        double v = wide ? kn_f64(a[l]) : (double)kn_f32((uint32_t)a[l]);
        int kind = wide ? fpclassify(v) : fpclassify(kn_f32((uint32_t)a[l]));
        bool yes = false;
        switch (i->m[KN_M_OP]) {
        case KN_TOK_finite: yes = isfinite(v); break;
        case KN_TOK_infinite: yes = isinf(v); break;
        case KN_TOK_number: yes = !isnan(v); break;
        case KN_TOK_notanumber: yes = isnan(v); break;
        case KN_TOK_normal: yes = kind == FP_NORMAL || kind == FP_ZERO; break; /* zeros count */
        default: yes = kind == FP_SUBNORMAL; break;
        }
        result |= (uint32_t)yes << l;
    }
    return kn_put_pred(m, w, i, &i->op[0], active, result);
}

/* ---- addresses
 * -------------------------------------------------------------------------------------------------------- */

static uint64_t window_of(kn_space space) {
    switch (space) {
    case KN_SPACE_SHARED:
    case KN_SPACE_SHARED_CLUSTER: return KN_WINDOW_SHARED;
    case KN_SPACE_LOCAL: return KN_WINDOW_LOCAL;
    case KN_SPACE_PARAM: return KN_WINDOW_PARAM;
    default: return 0;
    }
}

/* cvta.space: address of the space -> generic; cvta.to.space: back. */
kn_status kn_x_cvta(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint64_t room[KN_LANES], out[KN_LANES], window = window_of((kn_space)i->space[0]);
    const uint64_t *a;
    bool to = i->m[KN_M_WORD] == KN_TOK_to;
    KN_TRY(kn_src64(m, w, i, &i->op[1], active, room, &a));
    for (int l = 0; l < KN_LANES; l++) {
        if (to && (active >> l & 1) && (a[l] & KN_WINDOW_MASK) != window)
            return kn_fault(m, w, i, l, "generic address 0x%llx does not lie in that space", (unsigned long long)a[l]);
        out[l] = to ? a[l] & ~KN_WINDOW_MASK : a[l] | window;
    }
    return kn_put64(m, w, i, &i->op[0], active, out);
}

kn_status kn_x_isspacep(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint64_t room[KN_LANES];
    const uint64_t *a;
    uint32_t result = 0;
    KN_TRY(kn_src64(m, w, i, &i->op[1], active, room, &a));
    for (int l = 0; l < KN_LANES; l++) {
        uint64_t at;
        kn_space space = kn_resolve(a[l], &at);
        bool yes = false;
        switch (i->space[0]) {
        case KN_SPACE_SHARED: yes = space == KN_SPACE_SHARED_CLUSTER && KN_SMEM_RANK(at) == w->cta->rank; break;
        case KN_SPACE_SHARED_CLUSTER: yes = space == KN_SPACE_SHARED_CLUSTER; break;
        default: yes = space == (kn_space)i->space[0]; break;
        }
        result |= (uint32_t)yes << l;
    }
    return kn_put_pred(m, w, i, &i->op[0], active, result);
}
