/* ld, st, prefetch, discard. Cache operators and hints have no effect; .relaxed, .acquire and .release are left to the
 * ordering checks, as memory itself is sequentially consistent here. */
#include "sim/extents.h"
#include "sim/locate.h"

/* Does the access order memory between CTAs? Then CTAs must be interleaved. */
static void mark_serial(kn_insn *i, kn_space space) {
    uint8_t sem = i->m[KN_M_SEM], scope = i->m[KN_M_SCOPE];
    bool strong = sem != 0 && sem != KN_TOK_weak, far = scope != KN_TOK_cta && scope != KN_TOK_cluster;
    if (strong && far && (space == KN_SPACE_GLOBAL || space == KN_SPACE_GENERIC)) i->flags |= KN_I_SERIAL;
}

static inline const kn_operand *element(const kn_operand *o, uint32_t k) {
    return o->kind == KN_O_VEC ? &o->elem[k] : o;
}

/* Element k of every lane's data into a register, extended to its width. */
static kn_status put_element(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_operand *o, uint32_t active,
                             uint32_t k, uint8_t *const at[32]) {
    uint32_t bytes = kn_type_bytes[i->type[0]];
    bool sign = kn_type_kind[i->type[0]] == 's';
    uint64_t wide[KN_LANES];
    uint32_t v[KN_LANES];
    if (o->kind == KN_O_SINK) return KN_OK;
    if (bytes == 4 && o->bytes == 4) {
        for (int l = 0; l < KN_LANES; l++)
            if (active >> l & 1) memcpy(&v[l], at[l] + 4 * k, 4);
        return kn_put32(m, w, i, o, active, v);
    }
    for (int l = 0; l < KN_LANES; l++) {
        if (!(active >> l & 1)) continue;
        uint64_t x = 0;
        memcpy(&x, at[l] + bytes * k, bytes);
        int shift = 64 - 8 * (int)bytes;
        wide[l] = sign ? (uint64_t)((int64_t)(x << shift) >> shift) : x;
    }
    return kn_put64(m, w, i, o, active, wide);
}

kn_status kn_x_ld(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint64_t addr[KN_LANES];
    uint8_t *at[KN_LANES];
    uint32_t bytes = kn_type_bytes[i->type[0]] * (uint32_t)i->vec;
    KN_TRY(kn_src_addr(m, w, i, &i->op[1], active, addr));
    KN_TRY(kn_locate(m, w, i, addr, (kn_space)i->space[0], active, bytes, KN_READ, at));
    for (uint32_t k = 0; k < i->vec; k++) KN_TRY(put_element(m, w, i, element(&i->op[0], k), active, k, at));
    m->stats.bytes_loaded += (uint64_t)bytes * (uint32_t)__builtin_popcount(active);
    return KN_OK;
}

kn_status kn_p_ld(kn_insn *i) {
    mark_serial(i, (kn_space)i->space[0]);
    return KN_OK;
}

static kn_status get_element(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_operand *o, uint32_t active,
                             uint64_t out[32]) {
    if (o->bytes == 8) {
        uint64_t room[KN_LANES];
        const uint64_t *v;
        KN_TRY(kn_src64(m, w, i, o, active, room, &v));
        memcpy(out, v, KN_LANES * sizeof *out);
        return KN_OK;
    }
    uint32_t room[KN_LANES];
    const uint32_t *v;
    KN_TRY(kn_src32(m, w, i, o, active, room, &v));
    for (int l = 0; l < KN_LANES; l++) out[l] = v[l];
    return KN_OK;
}

kn_status kn_x_st(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint64_t addr[KN_LANES], v[4][KN_LANES];
    uint8_t *at[KN_LANES];
    uint32_t size = kn_type_bytes[i->type[0]], bytes = size * (uint32_t)i->vec;
    KN_TRY(kn_src_addr(m, w, i, &i->op[0], active, addr));
    for (uint32_t k = 0; k < i->vec; k++) KN_TRY(get_element(m, w, i, element(&i->op[1], k), active, v[k]));
    KN_TRY(kn_locate(m, w, i, addr, (kn_space)i->space[0], active, bytes, KN_WRITE, at));
    for (int l = 0; l < KN_LANES; l++) {
        if (!(active >> l & 1)) continue;
        for (uint32_t k = 0; k < i->vec; k++) memcpy(at[l] + size * k, &v[k][l], size);
    }
    m->stats.bytes_stored += (uint64_t)bytes * (uint32_t)__builtin_popcount(active);
    return KN_OK;
}

kn_status kn_p_st(kn_insn *i) {
    if (i->space[0] == KN_SPACE_CONST || i->space[0] == KN_SPACE_PARAM) return kn_insn_error(i, "cannot store there");
    mark_serial(i, (kn_space)i->space[0]);
    return KN_OK;
}

/* prefetch: only a hint, but its address must be readable as one. */
kn_status kn_x_prefetch(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint64_t addr[KN_LANES];
    return kn_src_addr(m, w, i, &i->op[0], active, addr);
}

/* discard.global.L2 [a], 128: the bytes are given up; they must be writable and are uninitialised from now on (where
 * the launch knows what is initialised: in poisoned extents). */
kn_status kn_x_discard(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    enum { BYTES = 128 };
    uint64_t addr[KN_LANES];
    KN_TRY(kn_src_addr(m, w, i, &i->op[0], active, addr));
    for (int l = 0; l < KN_LANES; l++) {
        kn_span s;
        if (!(active >> l & 1)) continue;
        if (addr[l] % BYTES) return kn_fault(m, w, i, l, "discard needs an address aligned to %d bytes", BYTES);
        if (!kn_global_span(m->run->global, addr[l], true, &s) || s.hi - addr[l] < BYTES)
            return kn_fault(m, w, i, l, "discard of memory that the launch may not write");
        if (s.shadow) memset(s.shadow + (addr[l] - s.lo), 0, BYTES);
    }
    return KN_OK;
}

/* createpolicy: a value that names the eviction priority; what takes a policy ignores it. */
kn_status kn_x_createpolicy(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    uint64_t out[KN_LANES];
    for (int l = 0; l < KN_LANES; l++) out[l] = i->aux;
    return kn_put64(m, w, i, &i->op[0], active, out);
}
kn_status kn_p_createpolicy(kn_insn *i) {
    if (i->n_op > 1 && i->op[1].kind != KN_O_IMM) return kn_insn_error(i, "the fraction must be a literal");
    i->aux = strstr(i->text, "L2::evict_last") ? UINT64_C(0x14F0000000000000) : UINT64_C(0x12F0000000000000);
    return KN_OK;
}
