/* Operands at run time: registers, immediates, special registers, addresses of variables, predicates. */
#include "sim/machine.h"
#include "sim/ptx_module.h"

/* A register fault is found on the fast path by one comparison of masks; this finds the words for it. */
kn_status kn_register_fault(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_operand *o, uint32_t lanes) {
    int lane = lanes ? __builtin_ctz(lanes) : -1;
    int which = 0;
    for (int k = 0; k < i->n_op; k++) /* which operand it is, counted as written */
        if (&i->op[k] == o || (i->op[k].elem && o >= i->op[k].elem && o < i->op[k].elem + i->op[k].n)) which = k + 1;
    if (o->kind == KN_O_PRED)
        return kn_fault(m, w, i, lane, "operand %d: a predicate is read that was never written", which);
    uint8_t hold = w->hold[o->slot];
    if (hold == KN_HOLD_ALL)
        return kn_fault(m, w, i, lane,
                        "operand %d: a register that a running asynchronous operation still owns is "
                        "used before the wait for it",
                        which);
    if (hold == KN_HOLD_WRITE)
        return kn_fault(m, w, i, lane,
                        "operand %d: a register is overwritten that a running asynchronous operation "
                        "still reads",
                        which);
    return kn_fault(m, w, i, lane, "operand %d: a register is read that was never written", which);
}

static uint64_t clock_value(kn_machine *m, int64_t which) {
    /* The clock counts the worker's instructions; a nanosecond is taken as two of them. */
    switch (which) {
    case KN_CLOCK: return (uint32_t)m->clock;
    case KN_CLOCK_HI: return (uint32_t)(m->clock >> 32);
    case KN_CLOCK64: return m->clock;
    case KN_GLOBALTIMER: return m->clock / 2;
    case KN_GLOBALTIMER_LO: return (uint32_t)(m->clock / 2);
    default: return (uint32_t)(m->clock / 2 >> 32);
    }
}

/* Address of a variable as this warp sees it. */
static uint64_t symbol_value(const kn_warp *w, const kn_operand *o) {
    uint64_t v = (uint64_t)o->imm;
    return o->space == KN_SPACE_SHARED ? v + ((uint64_t)w->cta->rank << KN_SMEM_RANK_SHIFT) : v;
}

/* A register of wgmma is read by an ordinary instruction: like a write, an access that needs a wgmma.fence behind it.
 */
static inline void note_read(kn_warp *w, const kn_operand *o) {
    if (__builtin_expect(w->n_holds != 0, 0) && w->hold[o->slot] == KN_HOLD_WATCH) kn_wgmma_touched(w, o->slot);
}

kn_status kn_src32(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_operand *o, uint32_t mask, uint32_t room[32],
                   const uint32_t **out) {
    if (o->kind == KN_O_REG) {
        uint32_t missing = mask & ~w->def[o->slot];
        if (__builtin_expect(missing != 0, 0)) return kn_register_fault(m, w, i, o, missing);
        note_read(w, o);
        *out = kn_reg32(w, o->slot);
        return KN_OK;
    }
    if (o->kind == KN_O_IMM) {
        *out = o->lanes;
        return KN_OK;
    }
    uint32_t v = (uint32_t)(o->kind == KN_O_CLOCK ? clock_value(m, o->imm) : symbol_value(w, o));
    for (int l = 0; l < KN_LANES; l++) room[l] = v;
    *out = room;
    return KN_OK;
}

kn_status kn_src64(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_operand *o, uint32_t mask, uint64_t room[32],
                   const uint64_t **out) {
    if (o->kind == KN_O_REG) {
        uint32_t missing = mask & ~w->def[o->slot];
        if (__builtin_expect(missing != 0, 0)) return kn_register_fault(m, w, i, o, missing);
        if (o->bytes == 8) {
            *out = kn_reg64(w, o->slot);
            return KN_OK;
        }
        const uint32_t *v = kn_reg32(w, o->slot);
        for (int l = 0; l < KN_LANES; l++) room[l] = v[l];
        *out = room;
        return KN_OK;
    }
    if (o->kind == KN_O_IMM && o->bytes == 8) {
        *out = o->lanes;
        return KN_OK;
    }
    uint64_t v = o->kind == KN_O_IMM     ? (uint64_t)o->imm
                 : o->kind == KN_O_CLOCK ? clock_value(m, o->imm)
                                         : symbol_value(w, o);
    for (int l = 0; l < KN_LANES; l++) room[l] = v;
    *out = room;
    return KN_OK;
}

kn_status kn_src_pred(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_operand *o, uint32_t mask, uint32_t *out) {
    if (o->kind == KN_O_IMM) {
        *out = o->imm ? mask : 0;
        return KN_OK;
    }
    uint32_t missing = mask & ~w->pred_def[o->slot];
    if (__builtin_expect(missing != 0, 0)) return kn_register_fault(m, w, i, o, missing);
    *out = mask & (o->negate ? ~w->pred[o->slot] : w->pred[o->slot]);
    return KN_OK;
}

/* Before a write: lanes become defined, unless an asynchronous operation owns the register. */
static inline kn_status claim(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_operand *o, uint32_t mask) {
    if (__builtin_expect(w->n_holds != 0, 0) && w->hold[o->slot]) {
        if (w->hold[o->slot] != KN_HOLD_WATCH) return kn_register_fault(m, w, i, o, mask);
        kn_wgmma_touched(w, o->slot);
    }
    w->def[o->slot] |= mask;
    return KN_OK;
}

kn_status kn_put32(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_operand *o, uint32_t mask,
                   const uint32_t v[32]) {
    if (o->kind == KN_O_SINK) return KN_OK;
    KN_TRY(claim(m, w, i, o, mask));
    if (o->bytes == 8) {
        uint64_t *r = kn_reg64(w, o->slot);
        for (int l = 0; l < KN_LANES; l++)
            if (mask >> l & 1) r[l] = v[l];
        return KN_OK;
    }
    uint32_t *r = kn_reg32(w, o->slot);
    uint32_t keep = o->bytes == 4 ? KN_FULL_MASK : o->bytes == 2 ? 0xffffu : 0xffu;
    if (mask == KN_FULL_MASK) {
        for (int l = 0; l < KN_LANES; l++) r[l] = v[l] & keep;
    } else {
        for (int l = 0; l < KN_LANES; l++) r[l] = mask >> l & 1 ? v[l] & keep : r[l];
    }
    return KN_OK;
}

kn_status kn_put64(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_operand *o, uint32_t mask,
                   const uint64_t v[32]) {
    if (o->kind == KN_O_SINK) return KN_OK;
    if (o->bytes != 8) {
        uint32_t low[KN_LANES];
        for (int l = 0; l < KN_LANES; l++) low[l] = (uint32_t)v[l];
        return kn_put32(m, w, i, o, mask, low);
    }
    KN_TRY(claim(m, w, i, o, mask));
    uint64_t *r = kn_reg64(w, o->slot);
    if (mask == KN_FULL_MASK) {
        memmove(r, v, KN_LANES * sizeof *r);
    } else {
        for (int l = 0; l < KN_LANES; l++) r[l] = mask >> l & 1 ? v[l] : r[l];
    }
    return KN_OK;
}

kn_status kn_put_pred(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_operand *o, uint32_t mask, uint32_t bits) {
    (void)m;
    (void)i;
    if (o->kind == KN_O_SINK) return KN_OK;
    w->pred[o->slot] = (w->pred[o->slot] & ~mask) | (bits & mask);
    w->pred_def[o->slot] |= mask;
    return KN_OK;
}

kn_status kn_src_addr(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_operand *o, uint32_t mask,
                      uint64_t out[32]) {
    if (o->slot == KN_NO_SLOT) {
        uint64_t v = symbol_value(w, o);
        for (int l = 0; l < KN_LANES; l++) out[l] = v;
        return KN_OK;
    }
    uint32_t missing = mask & ~w->def[o->slot];
    if (__builtin_expect(missing != 0, 0)) return kn_register_fault(m, w, i, o, missing);
    if (o->bytes == 8) {
        const uint64_t *base = kn_reg64(w, o->slot);
        for (int l = 0; l < KN_LANES; l++) out[l] = base[l] + (uint64_t)o->imm;
    } else {
        const uint32_t *base = kn_reg32(w, o->slot);
        for (int l = 0; l < KN_LANES; l++) out[l] = (uint32_t)(base[l] + (uint32_t)o->imm);
    }
    return KN_OK;
}
