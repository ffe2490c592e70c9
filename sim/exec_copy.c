/* cp.async (not bulk): 4, 8 or 16 bytes a lane from global to shared memory, with zero fill, in groups.
 *
 * The bytes are in flight from the issue until the issuing thread has waited: nobody may read or write them. The copy
 * itself happens some time between, by seeded choice, and reads its source then. */
#include "sim/exec_copy.h"
#include "sim/access.h"
#include "sim/locate.h"

typedef struct copy_op {
    struct copy_op *next;
    uint64_t number; /* issue order in the warp */
    uint32_t lanes;  /* not yet waited for */
    uint32_t size;
    bool done; /* the bytes have been copied */
    uint32_t group[KN_LANES];
    uint32_t valid[KN_LANES]; /* bytes from the source, the rest are zeros */
    uint64_t from[KN_LANES];
    uint64_t to[KN_LANES]; /* shared address with rank */
} copy_op;

struct kn_cp_async {
    copy_op *ops, *unused;
    uint64_t next;
    uint32_t open[KN_LANES]; /* groups that the lane has committed */
};

static kn_status state_of(kn_warp *w, struct kn_cp_async **out) {
    if (!w->cp) w->cp = kn_arena_alloc(&w->cta->cluster->arena, sizeof *w->cp);
    if (!w->cp) return kn_fail(KN_E_NOMEM, "out of memory for cp.async");
    *out = w->cp;
    return KN_OK;
}

/* The seeded moment of the copy. */
static kn_status copy_step(kn_machine *m, kn_async *a) {
    copy_op *op = *(copy_op **)a->data;
    for (int l = 0; l < KN_LANES; l++) {
        if (!(op->lanes >> l & 1)) continue;
        if (op->valid[l]) KN_TRY(kn_global_at(m, a->warp, a->insn, l, op->from[l], op->valid[l], 1, KN_READ));
        uint8_t *to = a->cta->smem + KN_SMEM_OFFSET(op->to[l]);
        memset(to, 0, op->size);
        memcpy(to, (const void *)(uintptr_t)op->from[l], op->valid[l]);
    }
    op->done = true;
    kn_wake(m->cluster);
    return KN_OK;
}

/* Destination: inside the CTA's own shared memory, free of other marks; then in flight. */
static kn_status take_destination(kn_machine *m, kn_warp *w, const kn_insn *i, int l, uint64_t to, uint32_t size) {
    kn_cta *cta;
    uint32_t offset;
    KN_TRY(kn_shared_at(m, w, i, l, to, size, size, &cta, &offset));
    if (cta != w->cta) return kn_fault(m, w, i, l, "cp.async writes to another CTA's shared memory");
    KN_TRY(kn_shared_check(m, w, i, l, cta, offset, size, KN_WRITE));
    memset(cta->shadow + offset, KN_SH_INFLIGHT, size);
    return KN_OK;
}

/* Bytes to take from the source: all, or as src-size says. */
static kn_status source_sizes(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active, uint32_t size,
                              uint32_t valid[32]) {
    uint32_t room[KN_LANES];
    const uint32_t *v;
    int n_sizes = i->n_op - (i->m[KN_M_HINT] ? 1 : 0);
    for (int l = 0; l < KN_LANES; l++) valid[l] = size;
    if (n_sizes < 4) return KN_OK;
    KN_TRY(kn_src32(m, w, i, &i->op[3], active, room, &v));
    for (int l = 0; l < KN_LANES; l++) {
        valid[l] = v[l];
        if ((active >> l & 1) && v[l] > size)
            return kn_fault(m, w, i, l, "src-size %u is larger than cp-size %u", v[l], size);
    }
    return KN_OK;
}

kn_status kn_x_cp_async(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    struct kn_cp_async *s = NULL;
    KN_TRY(state_of(w, &s));
    copy_op *op = s->unused;
    if (op)
        s->unused = op->next;
    else
        op = kn_arena_alloc(&w->cta->cluster->arena, sizeof *op);
    if (!op) return kn_fail(KN_E_NOMEM, "out of memory for cp.async");
    memset(op, 0, sizeof *op);
    op->size = (uint32_t)i->op[2].imm;
    KN_TRY(kn_src_addr(m, w, i, &i->op[0], active, op->to));
    KN_TRY(kn_src_addr(m, w, i, &i->op[1], active, op->from));
    KN_TRY(source_sizes(m, w, i, active, op->size, op->valid));
    for (int l = 0; l < KN_LANES; l++) {
        if (!(active >> l & 1)) continue;
        if (op->from[l] & (op->size - 1))
            return kn_fault(m, w, i, l, "global address 0x%llx is not aligned to %u bytes",
                            (unsigned long long)op->from[l], op->size);
        if (op->valid[l]) KN_TRY(kn_global_at(m, w, i, l, op->from[l], op->valid[l], 1, KN_READ));
        KN_TRY(take_destination(m, w, i, l, op->to[l], op->size));
        op->group[l] = s->open[l];
    }
    if (m->hb) { /* the source is read on behalf of this thread */
        kn_access a = {KN_SPACE_GLOBAL, KN_READ, 0, 0, op->size, 0, op->from};
        for (int l = 0; l < KN_LANES; l++)
            if ((active >> l & 1) && op->valid[l] == op->size) a.mask |= 1u << l;
        if (a.mask) KN_TRY(m->hb->access(m, w, i, &a));
        /* What was done with the destination before must be over now, not when the copy is waited for. */
        kn_access to = {KN_SPACE_SHARED_CLUSTER, KN_WRITE, 0, 0, op->size, active, op->to};
        KN_TRY(m->hb->access(m, w, i, &to));
    }
    kn_async *pending;
    KN_TRY(kn_async_begin(m, w, i, -1, copy_step, sizeof op, &pending));
    *(copy_op **)pending->data = op;
    op->lanes = active;
    op->number = s->next++;
    op->next = s->ops;
    s->ops = op;
    m->stats.bytes_loaded += (uint64_t)op->size * (uint32_t)__builtin_popcount(active);
    return KN_OK;
}

kn_status kn_p_cp_async(kn_insn *i) {
    uint64_t size = (uint64_t)i->op[2].imm;
    bool cg = i->m[KN_M_CACHE] == KN_TOK_cg;
    if (i->op[2].kind != KN_O_IMM || (size != 16 && (cg || (size != 4 && size != 8))))
        return kn_insn_error(i, "cp-size must be 16%s", cg ? "" : ", 8 or 4");
    return KN_OK;
}

kn_status kn_x_cp_commit(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    struct kn_cp_async *s = NULL;
    (void)m;
    (void)i;
    KN_TRY(state_of(w, &s));
    for (int l = 0; l < KN_LANES; l++) s->open[l] += active >> l & 1;
    return KN_OK;
}

/* Lanes of `op` become readable. For the ordering checks this is when they are written. */
static kn_status publish(kn_machine *m, kn_warp *w, const kn_insn *i, copy_op *op, uint32_t lanes) {
    if (m->hb) {
        kn_access a = {KN_SPACE_SHARED_CLUSTER, KN_WRITE, 0, 0, op->size, lanes, op->to};
        KN_TRY(m->hb->access(m, w, i, &a));
    }
    for (int l = 0; l < KN_LANES; l++)
        if (lanes >> l & 1) memset(w->cta->shadow + KN_SMEM_OFFSET(op->to[l]), KN_SH_INIT, op->size);
    op->lanes &= ~lanes;
    return KN_OK;
}

/* Take operations that nobody waits for any more off the list. */
static void recycle(struct kn_cp_async *s) {
    for (copy_op **at = &s->ops; *at;) {
        copy_op *op = *at;
        if (op->lanes || !op->done) {
            at = &op->next;
            continue;
        }
        *at = op->next;
        op->next = s->unused;
        s->unused = op;
    }
}

/* Lanes of an operation that a wait covers: all, or those of groups older than the newest `keep`. */
static uint32_t covered(const struct kn_cp_async *s, const copy_op *op, uint32_t active, bool all, uint64_t keep) {
    uint32_t lanes = 0;
    for (int l = 0; l < KN_LANES; l++)
        if ((op->lanes & active) >> l & 1 && (all || op->group[l] + keep < s->open[l])) lanes |= 1u << l;
    return lanes;
}

kn_status kn_x_cp_wait(kn_machine *m, kn_warp *w, const kn_insn *i, uint32_t active) {
    struct kn_cp_async *s = NULL;
    bool all = i->n_op == 0;
    uint64_t keep = all ? 0 : (uint64_t)i->op[0].imm;
    KN_TRY(state_of(w, &s));
    for (const copy_op *op = s->ops; op; op = op->next) {
        if (op->done || !covered(s, op, active, all, keep)) continue;
        w->g->wait = "waits for cp.async groups, all but";
        w->g->wait_arg = keep;
        return KN_NOT_READY;
    }
    for (copy_op *op = s->ops; op; op = op->next) {
        uint32_t lanes = covered(s, op, active, all, keep);
        if (lanes) KN_TRY(publish(m, w, i, op, lanes));
    }
    recycle(s);
    return KN_OK;
}

uint64_t kn_copy_mark(const kn_warp *w) {
    return w->cp ? w->cp->next : 0;
}

bool kn_copy_done(const kn_warp *w, int lane, uint64_t mark) {
    for (const copy_op *op = w->cp ? w->cp->ops : NULL; op; op = op->next)
        if (op->number < mark && (op->lanes >> lane & 1) && !op->done) return false;
    return true;
}

kn_status kn_copy_publish(kn_machine *m, kn_warp *w, int lane, uint64_t mark) {
    const kn_insn *i = &m->entry->code[w->g->pc < m->entry->n_code ? w->g->pc : 0];
    for (copy_op *op = w->cp ? w->cp->ops : NULL; op; op = op->next)
        if (op->number < mark && (op->lanes >> lane & 1)) KN_TRY(publish(m, w, i, op, 1u << lane));
    if (w->cp) recycle(w->cp);
    return KN_OK;
}
