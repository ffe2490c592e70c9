/* atom and red: read, combine, write, one lane after the other. The first lane is a seeded choice, so that kernels
 * whose result depends on the order show it. Global memory may be shared between host threads: there the exchange is
 * atomic. */
#include "sim/locate.h"
#include "sim/rounding.h"

enum { VECTOR = 8 };

/* One addition of halves, rounded once. */
static uint32_t add_half(kn_format f, uint32_t a, uint32_t b) {
    return (uint32_t)kn_round_double(kn_odd_sum(kn_widen(a, f), kn_widen(b, f)), f, KN_RN);
}
static bool half_less(kn_format f, uint32_t a, uint32_t b) { /* for min and max; -0 < +0 */
    double x = kn_widen(a, f), y = kn_widen(b, f);
    return x < y || (x == y && (a >> 15) > (b >> 15));
}
static uint32_t half_op(kn_token op, kn_format f, uint32_t a, uint32_t b) {
    if (op == KN_TOK_add) return add_half(f, a, b);
    if (isnan(kn_widen(a, f))) return isnan(kn_widen(b, f)) ? 0x7fff : b;
    if (isnan(kn_widen(b, f))) return a;
    return half_less(f, a, b) == (op == KN_TOK_min) ? a : b;
}

static uint64_t float_op(const kn_insn *i, kn_type t, bool global, uint64_t a, uint64_t b) {
    kn_token op = (kn_token)i->m[KN_M_OP];
    kn_format f = t == KN_T_f16 || t == KN_T_f16x2 ? kn_fmt_f16 : kn_fmt_bf16;
    switch (t) {
    case KN_T_f64: return kn_f64_bits(kn_f64(a) + kn_f64(b));
    case KN_T_f32: {
        float x = kn_f32((uint32_t)a), y = kn_f32((uint32_t)b);
        if (!global) return kn_f32_bits(kn_f32_result(x + y));
        /* On global memory subnormal inputs and results are flushed (PTX, atom.add.f32). */
        return kn_f32_bits(kn_f32_flush(kn_f32_result(kn_f32_flush(x) + kn_f32_flush(y))));
    }
    case KN_T_f16:
    case KN_T_bf16: return half_op(op, f, (uint32_t)a, (uint32_t)b);
    default:
        return half_op(op, f, (uint32_t)a & 0xffff, (uint32_t)b & 0xffff) |
               half_op(op, f, (uint32_t)a >> 16, (uint32_t)b >> 16) << 16;
    }
}

static uint64_t int_op(const kn_insn *i, kn_type t, uint64_t a, uint64_t b) {
    bool wide = kn_type_bytes[t] == 8, sign = kn_type_kind[t] == 's';
    bool less = sign ? (wide ? (int64_t)a < (int64_t)b : (int32_t)a < (int32_t)b) : a < b;
    switch (i->m[KN_M_OP]) {
    case KN_TOK_add: return a + b;
    case KN_TOK_and: return a & b;
    case KN_TOK_or: return a | b;
    case KN_TOK_xor: return a ^ b;
    case KN_TOK_exch: return b;
    case KN_TOK_min: return less ? a : b;
    case KN_TOK_max: return less ? b : a;
    case KN_TOK_inc: return a >= b ? 0 : a + 1;
    default: return a == 0 || a > b ? b : a - 1; /* dec */
    }
}

static uint64_t combine(const kn_insn *i, bool global, uint64_t a, uint64_t b, uint64_t c) {
    kn_type t = (kn_type)i->type[0];
    if (i->m[KN_M_OP] == KN_TOK_cas) return a == b ? c : a;
    return kn_type_kind[t] == 'f' ? float_op(i, t, global, a, b) : int_op(i, t, a, b);
}

/* Exchange at `at`; the value before. */
static uint64_t exchange(const kn_insn *i, uint8_t *at, bool global, uint64_t b, uint64_t c) {
    switch (kn_type_bytes[i->type[0]]) {
    case 8: {
        uint64_t *p = (uint64_t *)(void *)at, old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
        while (!__atomic_compare_exchange_n(p, &old, combine(i, global, old, b, c), false, __ATOMIC_SEQ_CST,
                                            __ATOMIC_SEQ_CST)) {
        }
        return old;
    }
    case 4: {
        uint32_t *p = (uint32_t *)(void *)at, old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
        while (!__atomic_compare_exchange_n(p, &old, (uint32_t)combine(i, global, old, b, c), false, __ATOMIC_SEQ_CST,
                                            __ATOMIC_SEQ_CST)) {
        }
        return old;
    }
    default: {
        uint16_t *p = (uint16_t *)(void *)at, old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
        while (!__atomic_compare_exchange_n(p, &old, (uint16_t)combine(i, global, old, b, c), false, __ATOMIC_SEQ_CST,
                                            __ATOMIC_SEQ_CST)) {
        }
        return old;
    }
    }
}

static kn_status source(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_operand *o, uint32_t k, uint32_t active,
                        uint64_t out[32]) {
    uint64_t room[KN_LANES];
    const uint64_t *v;
    KN_TRY(kn_src64(m, w, i, o->kind == KN_O_VEC ? &o->elem[k] : o, active, room, &v));
    memcpy(out, v, KN_LANES * sizeof *out);
    return KN_OK;
}

/* d: the destination or NULL; address, b, c: operands. */
static kn_status atomic(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active, const kn_operand *d,
                        const kn_operand *address, const kn_operand *b, const kn_operand *c) {
    uint64_t addr[KN_LANES], vb[VECTOR][KN_LANES], vc[KN_LANES] = {0}, old[VECTOR][KN_LANES] = {{0}};
    uint8_t *at[KN_LANES];
    uint32_t size = kn_type_bytes[i->type[0]];
    KN_TRY(kn_src_addr(m, w, i, address, active, addr));
    for (uint32_t k = 0; k < i->vec; k++) KN_TRY(source(m, w, i, b, k, active, vb[k]));
    if (c) KN_TRY(source(m, w, i, c, 0, active, vc));
    KN_TRY(kn_locate(m, w, i, addr, (kn_space)i->space[0], active, size * i->vec, KN_ATOMIC, at));
    uint32_t first = kn_choose(m, KN_LANES);
    for (uint32_t n = 0; n < KN_LANES; n++) {
        uint32_t l = (first + n) % KN_LANES;
        uint64_t global_addr;
        if (!(active >> l & 1)) continue;
        bool global = i->space[0] == KN_SPACE_GLOBAL ||
                      (i->space[0] == KN_SPACE_GENERIC && kn_resolve(addr[l], &global_addr) == KN_SPACE_GLOBAL);
        for (uint32_t k = 0; k < i->vec; k++) old[k][l] = exchange(i, at[l] + size * k, global, vb[k][l], vc[l]);
    }
    kn_wake(m->cluster);
    for (uint32_t k = 0; d && k < i->vec; k++)
        KN_TRY(kn_put64(m, w, i, d->kind == KN_O_VEC ? &d->elem[k] : d, active, old[k]));
    return KN_OK;
}

kn_status kn_x_atom(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    return atomic(m, w, i, active, &i->op[0], &i->op[1], &i->op[2], i->m[KN_M_OP] == KN_TOK_cas ? &i->op[3] : NULL);
}
kn_status kn_x_red(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    return atomic(m, w, i, active, NULL, &i->op[0], &i->op[1], NULL);
}

static bool far_memory(const kn_insn *i) {
    bool far = i->m[KN_M_SCOPE] != KN_TOK_cta && i->m[KN_M_SCOPE] != KN_TOK_cluster;
    return far && (i->space[0] == KN_SPACE_GLOBAL || i->space[0] == KN_SPACE_GENERIC);
}
/* The value that atom returns depends on the other CTAs. */
kn_status kn_p_atom(kn_insn *i) {
    if (far_memory(i)) i->flags |= KN_I_SERIAL;
    return KN_OK;
}
/* Sums of integers and the like do not depend on the order; floating sums do, and a release may signal. */
kn_status kn_p_red(kn_insn *i) {
    bool ordered =
        kn_type_kind[i->type[0]] == 'f' || i->m[KN_M_SEM] == KN_TOK_release || i->m[KN_M_SEM] == KN_TOK_acq_rel;
    if (far_memory(i) && ordered) i->flags |= KN_I_SERIAL;
    return KN_OK;
}
