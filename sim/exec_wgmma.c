/* exec_wgmma: wgmma.mma_async, its fence and its groups.
 *
 * Each warp computes its 16 rows when it issues the instruction; what makes the instruction asynchronous is checked,
 * not imitated: the accumulators cannot be touched, and what it reads in shared memory cannot be written, before the
 * warp has waited for the group. The four warps of a warpgroup must issue the same instructions. */
#include "sim/ptx_module.h"
#include "sim/units.h"
#include "sim/wgmma.h"

kn_exec kn_x_wgmma;

enum { RING = 256 };

typedef struct held {
    uint32_t group;   /* that last used it */
    uint32_t touched; /* value of `fences` when an ordinary instruction touched it */
    uint16_t n;       /* as an accumulator: N of the instruction */
    uint8_t known;    /* it is a register of some wgmma of the kernel */
} held;

typedef struct kn_wgmma_state {
    uint32_t fences;          /* wgmma.fence executed */
    uint32_t issued;          /* mma_async executed */
    uint32_t steps;           /* all of wgmma's instructions executed */
    uint32_t group;           /* the open group, from 1 */
    uint32_t issued_at[RING]; /* [group]: `issued` at its commit */
    held *reg;                /* [n_slots] */
    uint32_t *slot;           /* the known registers */
    uint32_t n_slots;
} kn_wgmma_state;

/* What the warps of a warpgroup have issued: the first to come writes it down, the others must repeat it. */
typedef struct kn_wgmma_log {
    struct {
        const kn_insn *insn;
        uint64_t a, b;
    } entry[RING];
    uint32_t longest;
    const kn_insn *step[RING]; /* fences, commits and waits, too */
    uint32_t farthest;
} kn_wgmma_log;

typedef struct operands {
    kn_tc_type type;
    uint32_t n;
    uint64_t desc_a, desc_b;
    bool from_registers, zero;
    const uint32_t *a_reg[4];
} operands;

/* ---- state ----------------------------------------------------------------------------------------------- */

static void know(kn_wgmma_state *s, const kn_operand *o) {
    for (int k = 0; k < o->n; k++) {
        uint32_t slot = o->elem[k].slot;
        if (o->elem[k].kind != KN_O_REG || s->reg[slot].known) continue;
        s->reg[slot].known = 1;
        s->slot[s->n_slots++] = slot;
    }
}

static kn_status state_of(kn_machine *m, kn_warp *w, kn_wgmma_state **out) {
    kn_warp_units *u;
    KN_TRY(kn_warp_units_of(w, &u));
    if (!u->wgmma) {
        kn_arena *arena = &w->cta->cluster->arena;
        kn_wgmma_state *s = kn_arena_alloc(arena, sizeof *s);
        KN_REQUIRE(s != NULL, KN_E_NOMEM, "out of memory for wgmma's registers");
        s->reg = kn_arena_alloc(arena, (m->entry->n_slots + 1) * sizeof *s->reg);
        s->slot = kn_arena_alloc(arena, (m->entry->n_slots + 1) * sizeof *s->slot);
        KN_REQUIRE(s->reg && s->slot, KN_E_NOMEM, "out of memory for wgmma's registers");
        s->group = 1;
        for (uint32_t k = 0; k < m->entry->n_code; k++) {
            const kn_insn *i = &m->entry->code[k];
            if (i->exec != kn_x_wgmma) continue;
            know(s, &i->op[0]);
            if (i->op[1].kind == KN_O_VEC) know(s, &i->op[1]);
        }
        u->wgmma = s;
    }
    *out = u->wgmma;
    return KN_OK;
}

void kn_wgmma_touched(kn_warp *w, uint32_t slot) {
    kn_wgmma_state *s = ((kn_warp_units *)w->units)->wgmma;
    s->reg[slot].touched = s->fences;
    w->hold[slot] = KN_HOLD_NONE;
    w->n_holds--;
}

static void set_hold(kn_warp *w, uint32_t slot, uint8_t hold) {
    if (w->hold[slot] == KN_HOLD_NONE) w->n_holds++;
    w->hold[slot] = hold;
}

/* ---- the warpgroup --------------------------------------------------------------------------------------- */

static kn_status log_of(kn_machine *m, kn_warp *w, const kn_insn *i, kn_wgmma_log **out) {
    kn_cta_units *u;
    KN_TRY(kn_cta_units_of(w->cta, &u));
    if (w->live != KN_FULL_MASK || (w->id | 3) >= w->cta->n_warps)
        return kn_fault(m, w, i, -1, "wgmma needs a warpgroup of four whole warps");
    if (!u->wgmma[w->id / 4]) u->wgmma[w->id / 4] = kn_arena_alloc(&w->cta->cluster->arena, sizeof(kn_wgmma_log));
    *out = u->wgmma[w->id / 4];
    KN_REQUIRE(*out != NULL, KN_E_NOMEM, "out of memory for a warpgroup");
    return KN_OK;
}

/* All of wgmma's instructions are "aligned": each one binds the four warps of a warpgroup, those that wait too. A warp
 * executes `i` for good. */
static kn_status keep_step(kn_machine *m, kn_warp *w, const kn_insn *i, kn_wgmma_state *s) {
    kn_wgmma_log *log = NULL;
    KN_TRY(log_of(m, w, i, &log));
    const kn_insn **step = &log->step[s->steps % RING];
    if (s->steps == log->farthest) {
        *step = i;
        log->farthest++;
    } else if (log->farthest - s->steps <= RING && *step != i) {
        return kn_fault(m, w, i, -1,
                        "the warps of the warpgroup do not execute the same wgmma instructions (another warp: PTX line "
                        "%u, where this one is here)",
                        (*step)->line);
    }
    s->steps++;
    return KN_OK;
}

/* The least number of instructions that a warp of the group has issued. */
static uint32_t slowest(const kn_warp *w) {
    uint32_t least = UINT32_MAX;
    for (uint32_t k = w->id & ~3u; k <= (w->id | 3); k++) {
        const kn_warp_units *u = w->cta->warps[k].units;
        uint32_t n = u && u->wgmma ? u->wgmma->issued : 0;
        if (n < least) least = n;
    }
    return least;
}

static kn_status compare(kn_machine *m, kn_warp *w, const kn_insn *i, kn_wgmma_log *log, uint32_t index,
                         const operands *o) {
    if (index >= log->longest) {
        log->entry[index % RING].insn = i;
        log->entry[index % RING].a = o->desc_a;
        log->entry[index % RING].b = o->desc_b;
        log->longest = index + 1;
        return KN_OK;
    }
    if (log->entry[index % RING].insn != i)
        return kn_fault(m, w, i, -1,
                        "the warps of the warpgroup issue different wgmma instructions (another warp: PTX line %u)",
                        log->entry[index % RING].insn->line);
    if (log->entry[index % RING].a != o->desc_a || log->entry[index % RING].b != o->desc_b)
        return kn_fault(m, w, i, -1, "the warps of the warpgroup issue the instruction with different descriptors");
    return KN_OK;
}

/* ---- registers ------------------------------------------------------------------------------------------- */

static kn_status check_register(kn_machine *m, kn_warp *w, const kn_insn *i, kn_wgmma_state *s, const kn_operand *o,
                                bool accumulator, bool is_read) {
    uint32_t slot = o->slot;
    held *r = &s->reg[slot];
    uint8_t hold = w->hold[slot];
    if (hold == KN_HOLD_ALL && !accumulator)
        return kn_fault(m, w, i, -1, "a source register is the accumulator of a wgmma that has not been waited for");
    if (hold == KN_HOLD_ALL && r->n != i->shape[1])
        return kn_fault(m, w, i, -1, "the accumulator belongs to a running wgmma of another shape (n%u)", r->n);
    if (hold == KN_HOLD_WRITE && accumulator)
        return kn_fault(m, w, i, -1, "the accumulator is a source of a wgmma that has not been waited for");
    if (hold != KN_HOLD_ALL && is_read && w->def[slot] != KN_FULL_MASK)
        return kn_register_fault(m, w, i, o, ~w->def[slot]);
    if (r->touched == s->fences)
        return kn_fault(m, w, i, -1,
                        "a register of the instruction has been read or written without a wgmma.fence in between");
    return KN_OK;
}

static kn_status check_registers(kn_machine *m, kn_warp *w, const kn_insn *i, kn_wgmma_state *s, operands *o) {
    if (s->fences == 0) return kn_fault(m, w, i, -1, "no wgmma.fence comes before the warp's first wgmma.mma_async");
    for (int k = 0; k < i->op[0].n; k++) KN_TRY(check_register(m, w, i, s, &i->op[0].elem[k], true, !o->zero));
    if (!o->from_registers) return KN_OK;
    for (int k = 0; k < 4; k++) {
        const kn_operand *r = &i->op[1].elem[k];
        KN_TRY(check_register(m, w, i, s, r, false, true));
        o->a_reg[k] = kn_reg32(w, r->slot);
    }
    return KN_OK;
}

static void hold_registers(kn_warp *w, const kn_insn *i, kn_wgmma_state *s, const operands *o) {
    for (int k = 0; k < i->op[0].n; k++) {
        uint32_t slot = i->op[0].elem[k].slot;
        set_hold(w, slot, KN_HOLD_ALL);
        w->def[slot] = 0;
        s->reg[slot].group = s->group;
        s->reg[slot].n = (uint16_t)o->n;
    }
    for (int k = 0; o->from_registers && k < 4; k++) {
        uint32_t slot = i->op[1].elem[k].slot;
        set_hold(w, slot, KN_HOLD_WRITE);
        s->reg[slot].group = s->group;
    }
}

/* ---- shared memory --------------------------------------------------------------------------------------- */

typedef struct tile {
    uint32_t n;
    uint32_t addr[512];
    uint8_t data[512 * 16];
} tile;

static kn_status read_tile(kn_machine *m, kn_warp *w, const kn_insn *i, uint64_t bits, const operands *o, bool mn_major,
                           uint32_t rows, tile *t) {
    kn_wgmma_desc d;
    const char *why = kn_wgmma_decode(bits, &d);
    if (why) return kn_fault(m, w, i, -1, "%s", why);
    kn_hb_access a = {.who = kn_hb_epoch(w, KN_A_WGMMA, 0, KN_EPOCH_ASYNC),
                      .vc = w->hb ? kn_hb_view(w, KN_FULL_MASK) : NULL,
                      .kind = KN_READ,
                      .lane = -1,
                      .self = w};
    t->n = kn_wgmma_chunks(o->type, rows);
    kn_wgmma_addresses(&d, o->type, mn_major, rows, t->addr);
    for (uint32_t k = 0; k < t->n; k++) {
        kn_cta *cta = NULL;
        uint32_t offset = 0;
        uint64_t addr = t->addr[k] | (uint64_t)w->cta->rank << KN_SMEM_RANK_SHIFT;
        KN_TRY(kn_shared_at(m, w, i, -1, addr, 16, 16, &cta, &offset));
        KN_TRY(kn_shared_check(m, w, i, -1, cta, offset, 16, KN_READ));
        KN_TRY(kn_hb_shared(m, w, i, &a, cta, offset, 16));
        memcpy(t->data + 16 * k, cta->smem + offset, 16);
    }
    return KN_OK;
}

/* ---- the instruction ------------------------------------------------------------------------------------- */

/* aux: bits 0 transpose A, 1 transpose B, 2 negate A, 3 negate B, 4.. kn_tc_type */
enum { TRANS_A = 1, TRANS_B = 2, NEGATE_A = 4, NEGATE_B = 8, TYPE_SHIFT = 4 };

static kn_status uniform64(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_operand *o, uint64_t *out) {
    uint64_t room[32];
    const uint64_t *v;
    KN_TRY(kn_src64(m, w, i, o, KN_FULL_MASK, room, &v));
    for (int lane = 1; lane < 32; lane++)
        if (v[lane] != v[0])
            return kn_fault(m, w, i, lane, "the matrix descriptor differs between the lanes of the warp");
    *out = v[0];
    return KN_OK;
}

static kn_status gather_operands(kn_machine *m, kn_warp *w, const kn_insn *i, operands *o) {
    uint32_t scale = 0;
    *o = (operands){
        .type = (kn_tc_type)(i->aux >> TYPE_SHIFT), .n = i->shape[1], .from_registers = i->op[1].kind == KN_O_VEC};
    if (!o->from_registers) KN_TRY(uniform64(m, w, i, &i->op[1], &o->desc_a));
    KN_TRY(uniform64(m, w, i, &i->op[2], &o->desc_b));
    KN_TRY(kn_src_pred(m, w, i, &i->op[3], KN_FULL_MASK, &scale));
    if (scale != 0 && scale != KN_FULL_MASK)
        return kn_fault(m, w, i, -1, "scale-d differs between the lanes of the warp");
    o->zero = scale == 0;
    return KN_OK;
}

/* D of this warp's 16 rows. */
static void multiply(kn_warp *w, const kn_insn *i, const operands *o, const kn_tc_a *a, const kn_tc_b *b) {
    static _Thread_local float d[16][KN_TC_N];
    for (uint32_t r = 0; r < o->n / 2 && !o->zero; r++) {
        const uint32_t *from = kn_reg32(w, i->op[0].elem[r].slot);
        for (uint32_t lane = 0; lane < 32; lane++) {
            uint32_t row, col;
            kn_wgmma_d_place(lane, r, &row, &col);
            memcpy(&d[row][col], &from[lane], 4);
        }
    }
    kn_tc_step(16, (int)o->n, i->shape[2], a, b, o->zero, d[0], KN_TC_N);
    for (uint32_t r = 0; r < o->n / 2; r++) {
        uint32_t *to = kn_reg32(w, i->op[0].elem[r].slot);
        for (uint32_t lane = 0; lane < 32; lane++) {
            uint32_t row, col;
            kn_wgmma_d_place(lane, r, &row, &col);
            memcpy(&to[lane], &d[row][col], 4);
        }
    }
}

kn_status kn_x_wgmma(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    static _Thread_local tile ta, tb;
    static _Thread_local kn_tc_a a;
    static _Thread_local kn_tc_b b;
    kn_wgmma_state *s = NULL;
    kn_wgmma_log *log = NULL;
    operands o;
    KN_TRY(log_of(m, w, i, &log));
    KN_TRY(state_of(m, w, &s));
    if (s->issued - slowest(w) >= RING) {
        w->g->wait = "the other warps of the warpgroup to issue wgmma";
        return KN_NOT_READY;
    }
    (void)active; /* aligned: all lanes */
    KN_TRY(gather_operands(m, w, i, &o));
    KN_TRY(compare(m, w, i, log, s->issued, &o));
    KN_TRY(check_registers(m, w, i, s, &o));
    if (o.from_registers) {
        kn_wgmma_load_a_regs(o.type, i->aux & NEGATE_A, o.a_reg, &a);
    } else {
        KN_TRY(read_tile(m, w, i, o.desc_a, &o, i->aux & TRANS_A, 64, &ta));
        kn_wgmma_load_a(o.type, i->aux & TRANS_A, i->aux & NEGATE_A, (w->id & 3) * 16, ta.data, &a);
    }
    KN_TRY(read_tile(m, w, i, o.desc_b, &o, i->aux & TRANS_B, o.n, &tb));
    kn_wgmma_load_b(o.type, i->aux & TRANS_B, i->aux & NEGATE_B, o.n, tb.data, &b);
    KN_TRY(keep_step(m, w, i, s));
    multiply(w, i, &o, &a, &b);
    hold_registers(w, i, s, &o);
    s->issued++;
    m->stats.mma_flops += 2ull * 16 * o.n * i->shape[2];
    kn_wake(m->cluster);
    return KN_OK;
}

static kn_status prep_immediate(kn_insn *i, int at, bool is_scale, uint64_t bit) {
    if (i->op[at].kind != KN_O_IMM) return kn_insn_error(i, "operand %d must be an immediate", at + 1);
    int32_t v = (int32_t)i->op[at].imm;
    if (is_scale ? v != 1 && v != -1 : v != 0 && v != 1)
        return kn_insn_error(i, "operand %d is %d: wanted %s", at + 1, v, is_scale ? "1 or -1" : "0 or 1");
    if (v == (is_scale ? -1 : 1)) i->aux |= bit;
    return KN_OK;
}

kn_status kn_p_wgmma(kn_insn *i) {
    bool tf32 = i->type[1] == KN_T_tf32, registers = i->op[1].kind == KN_O_VEC;
    kn_tc_type type = tf32 ? KN_TC_TF32 : i->type[1] == KN_T_f16 ? KN_TC_F16 : KN_TC_BF16;
    int wanted = tf32 ? 6 : registers ? 7 : 8;
    i->aux = (uint64_t)type << TYPE_SHIFT;
    if (i->type[1] != i->type[2]) return kn_insn_error(i, "A and B have different types");
    if (i->shape[0] != 64 || i->shape[1] % 8 || i->shape[1] < 8 || i->shape[1] > 256 || i->shape[2] != (tf32 ? 8 : 16))
        return kn_insn_error(i, "no wgmma has the shape m%un%uk%u with these types", i->shape[0], i->shape[1],
                             i->shape[2]);
    if (i->n_op != wanted) return kn_insn_error(i, "%u operands: wanted %d", i->n_op, wanted);
    if (i->op[0].kind != KN_O_VEC || i->op[0].n != i->shape[1] / 2)
        return kn_insn_error(i, "the accumulator must be a list of %u registers", i->shape[1] / 2);
    if (registers && i->op[1].n != 4) return kn_insn_error(i, "A must be a descriptor or a list of 4 registers");
    for (int o = 0; o <= (registers ? 1 : 0); o++)
        for (int k = 0; k < i->op[o].n; k++)
            if (i->op[o].elem[k].kind != KN_O_REG || i->op[o].elem[k].bytes != 4)
                return kn_insn_error(i, "operand %d must be a list of 32-bit registers", o + 1);
    if (!registers && (i->op[1].kind != KN_O_REG || i->op[1].bytes != 8))
        return kn_insn_error(i, "A must be a descriptor or a list of 4 registers");
    KN_TRY(prep_immediate(i, 4, true, NEGATE_A));
    KN_TRY(prep_immediate(i, 5, true, NEGATE_B));
    if (wanted == 8) KN_TRY(prep_immediate(i, 6, false, TRANS_A));
    return wanted >= 7 ? prep_immediate(i, wanted - 1, false, TRANS_B) : KN_OK;
}

/* ---- fence and groups ------------------------------------------------------------------------------------ */

kn_status kn_x_wgmma_fence(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    kn_wgmma_state *s = NULL;
    (void)active;
    KN_TRY(state_of(m, w, &s));
    KN_TRY(keep_step(m, w, i, s));
    s->fences++;
    for (uint32_t k = 0; k < s->n_slots; k++)
        if (w->hold[s->slot[k]] == KN_HOLD_NONE) set_hold(w, s->slot[k], KN_HOLD_WATCH);
    return KN_OK;
}

kn_status kn_x_wgmma_commit(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    kn_wgmma_state *s = NULL;
    (void)active;
    KN_TRY(state_of(m, w, &s));
    KN_TRY(keep_step(m, w, i, s));
    s->issued_at[s->group % RING] = s->issued;
    s->group++;
    if (w->hb) ((kn_hb_warp *)w->hb)->count[KN_A_WGMMA]++;
    return KN_OK;
}

kn_status kn_x_wgmma_wait(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    kn_wgmma_state *s = NULL;
    KN_TRY(state_of(m, w, &s));
    uint32_t keep = (uint32_t)i->op[0].imm, committed = s->group - 1;
    if (committed <= keep) return keep_step(m, w, i, s);
    uint32_t done = committed - keep;
    if (s->issued > 0 && slowest(w) < s->issued_at[done % RING]) {
        w->g->wait = "the other warps of the warpgroup to issue the same wgmma as this one; instructions issued here:";
        w->g->wait_arg = s->issued;
        return KN_NOT_READY;
    }
    KN_TRY(keep_step(m, w, i, s));
    for (uint32_t k = 0; k < s->n_slots; k++) {
        uint32_t slot = s->slot[k];
        uint8_t hold = w->hold[slot];
        if ((hold != KN_HOLD_ALL && hold != KN_HOLD_WRITE) || s->reg[slot].group > done) continue;
        if (hold == KN_HOLD_ALL) w->def[slot] = KN_FULL_MASK;
        w->hold[slot] = KN_HOLD_WATCH;
    }
    return kn_hb_waited(w, active, KN_A_WGMMA, done);
}

kn_status kn_p_wgmma_wait(kn_insn *i) {
    if (i->op[0].imm < 0 || i->op[0].imm > 7)
        return kn_insn_error(i, "wait_group %lld: wanted 0..7", (long long)i->op[0].imm);
    return KN_OK;
}
