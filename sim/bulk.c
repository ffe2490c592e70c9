/* bulk: see the header. */
#include "sim/bulk.h"

/* ---- pieces ---------------------------------------------------------------------------------------------- */

static kn_status walk(const kn_copy *c, kn_tma_visit *visit, void *user) {
    if (c->tensor) return kn_tma_walk(&c->map, c->coord, c->offset, visit, user);
    for (uint32_t at = 0; at < c->bytes; at += 16) {
        kn_tma_piece p = {.smem = c->offset + at, .len = 16, .valid = 16, .global = c->global + at};
        KN_TRY(visit(user, &p));
    }
    return KN_OK;
}

typedef struct walker {
    kn_machine *m;
    kn_warp *w;
    const kn_insn *i;
    int lane;
    kn_copy *c;
    kn_hb_access shared, global;
    uint32_t at; /* pieces so far * 16 */
} walker;

static kn_status shadow_ok(const walker *k, const kn_cta *cta, uint32_t offset, uint32_t bytes, bool write) {
    for (uint32_t b = 0; b < bytes; b++) {
        uint8_t s = cta->shadow[offset + b];
        const char *why = s & KN_SH_OBJECT              ? "belongs to an mbarrier"
                          : s & KN_SH_INFLIGHT          ? "is being written by another asynchronous operation"
                          : !write && !(s & KN_SH_INIT) ? "was never written"
                                                        : NULL;
        if (why)
            return kn_fault(k->m, k->w, k->i, k->lane, "asynchronous %s of shared byte 0x%x of CTA %u, which %s",
                            write ? "write" : "read", offset + b, cta->rank, why);
    }
    return KN_OK;
}

/* ---- loads ----------------------------------------------------------------------------------------------- */

static kn_status issue_load_piece(void *user, const kn_tma_piece *p) {
    walker *k = user;
    if (p->valid) {
        KN_TRY(kn_global_at(k->m, k->w, k->i, k->lane, p->global, p->valid, 1, KN_READ));
        KN_TRY(kn_hb_global(k->m, k->w, k->i, &k->global, p->global, p->valid));
    }
    KN_TRY(shadow_ok(k, k->c->cta, p->smem, p->len, true));
    KN_TRY(kn_hb_shared(k->m, k->w, k->i, &k->shared, k->c->cta, p->smem, p->len));
    memset(k->c->cta->shadow + p->smem, KN_SH_INFLIGHT, p->len);
    return KN_OK;
}

static kn_status land_piece(void *user, const kn_tma_piece *p) {
    walker *k = user;
    uint8_t *to = k->c->cta->smem + p->smem;
    kn_epoch running = kn_bar_running(k->c->bar, KN_EPOCH_ASYNC), done = kn_bar_done(k->c->bar, KN_EPOCH_ASYNC);
    if (p->valid < p->len) memset(to, 0, p->len);
    if (p->valid) {
        memcpy(to + p->skip, (const void *)(uintptr_t)p->global, p->valid);
        if (k->w->hb) kn_hb_global_settle(k->m, p->global, p->valid, running, done);
    }
    memset(k->c->cta->shadow + p->smem, KN_SH_INIT, p->len);
    k->m->stats.bytes_loaded += p->valid;
    return kn_hb_shared_settle(k->c->cta, p->smem, p->len, running, done);
}

static kn_status gone(kn_machine *m, kn_async *a, const kn_cta *cta, const char *what) {
    return kn_fault(m, a->warp, a->insn, a->lane,
                    "CTA (%u,%u,%u) has exited while an asynchronous copy still %s its shared memory", cta->id[0],
                    cta->id[1], cta->id[2], what);
}

static kn_status finish_load(kn_machine *m, kn_async *a) {
    kn_copy *c = a->data;
    if (c->cta->live_warps == 0) return gone(m, a, c->cta, "writes");
    walker k = {.m = m, .w = a->warp, .i = a->insn, .lane = a->lane, .c = c};
    KN_TRY(walk(c, land_piece, &k));
    return kn_bar_complete_tx(m, a->warp, a->insn, a->lane, c->bar, c->bytes);
}

static kn_hb_access async_access(const kn_warp *w, int lane, kn_access_kind kind, kn_epoch who) {
    return (kn_hb_access){
        .who = who, .vc = w->hb ? kn_hb_view(w, 1u << lane) : NULL, .kind = kind, .lane = lane, .self = w};
}

/* Global to shared, completing on c->bar. All fields of c are set; it is copied. */
static kn_status load_bulk(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, const kn_copy *c) {
    kn_async *a = NULL;
    KN_TRY(kn_async_begin(m, w, i, lane, finish_load, sizeof *c, &a));
    memcpy(a->data, c, sizeof *c);
    kn_epoch who = kn_bar_running(c->bar, KN_EPOCH_ASYNC);
    walker k = {.m = m,
                .w = w,
                .i = i,
                .lane = lane,
                .c = a->data,
                .shared = async_access(w, lane, KN_WRITE, who),
                .global = async_access(w, lane, KN_READ, who)};
    return walk(c, issue_load_piece, &k);
}

kn_status kn_bulk_load_all(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, kn_copy *c, uint64_t dst,
                           uint64_t bar, bool multicast, uint32_t mask, uint32_t align) {
    uint32_t n = m->cluster->n_ctas;
    if (multicast && (mask == 0 || mask >> n))
        return kn_fault(m, w, i, lane, "the multicast mask 0x%x does not fit a cluster of %u CTAs", mask, n);
    if (!multicast && KN_SMEM_RANK(dst) != KN_SMEM_RANK(bar))
        return kn_fault(m, w, i, lane, "the destination lies in CTA %u, its mbarrier in CTA %u", KN_SMEM_RANK(dst),
                        KN_SMEM_RANK(bar));
    if (!multicast) mask = 1u << KN_SMEM_RANK(dst);
    for (; mask; mask &= mask - 1) {
        uint64_t rank = (uint64_t)__builtin_ctz(mask) << KN_SMEM_RANK_SHIFT;
        KN_TRY(kn_shared_at(m, w, i, lane, rank | KN_SMEM_OFFSET(dst), c->bytes, align, &c->cta, &c->offset));
        KN_TRY(kn_bar_at(m, w, i, lane, rank | KN_SMEM_OFFSET(bar), true, &c->bar));
        KN_TRY(load_bulk(m, w, i, lane, c));
    }
    return KN_OK;
}

/* ---- stores ---------------------------------------------------------------------------------------------- */

static kn_status issue_store_piece(void *user, const kn_tma_piece *p) {
    walker *k = user;
    KN_TRY(shadow_ok(k, k->c->cta, p->smem, p->len, false));
    KN_TRY(kn_hb_shared(k->m, k->w, k->i, &k->shared, k->c->cta, p->smem, p->len));
    if (!p->valid) return KN_OK;
    KN_TRY(kn_global_at(k->m, k->w, k->i, k->lane, p->global, p->valid, 1, k->c->reduces ? KN_ATOMIC : KN_WRITE));
    return kn_hb_global(k->m, k->w, k->i, &k->global, p->global, p->valid);
}

static kn_status capture_piece(void *user, const kn_tma_piece *p) {
    walker *k = user;
    memcpy(k->c->data + k->at, k->c->cta->smem + p->smem, p->len);
    k->at += 16;
    return KN_OK;
}

static kn_status put_piece(void *user, const kn_tma_piece *p) {
    walker *k = user;
    uint8_t *to = (uint8_t *)(uintptr_t)p->global, *from = k->c->data + k->at + p->skip;
    k->at += 16;
    if (!p->valid) return KN_OK;
    if (k->c->reduces)
        kn_tma_reduce(k->c->op, k->c->elem, to, from, p->valid);
    else
        memcpy(to, from, p->valid);
    k->m->stats.bytes_stored += p->valid;
    return KN_OK;
}

static kn_status finish_store(kn_machine *m, kn_async *a) {
    kn_copy *c = a->data;
    walker k = {.m = m, .w = a->warp, .i = a->insn, .lane = a->lane, .c = c};
    if (!c->captured) {
        if (c->cta->live_warps == 0) return gone(m, a, c->cta, "reads");
        KN_TRY(walk(c, capture_piece, &k));
        c->captured = true;
        c->group->reads--;
        kn_wake(m->cluster);
        return KN_NOT_READY;
    }
    KN_TRY(walk(c, put_piece, &k));
    c->group->writes--;
    return KN_OK;
}

static kn_status open_group(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, kn_bulk_group **out) {
    kn_warp_units *u;
    KN_TRY(kn_warp_units_of(w, &u));
    kn_bulk_lane *b = u->bulk[lane];
    if (!b) b = u->bulk[lane] = kn_arena_alloc(&w->cta->cluster->arena, sizeof *b);
    KN_REQUIRE(b != NULL, KN_E_NOMEM, "out of memory for bulk groups");
    (void)m;
    (void)i;
    *out = &b->group[(b->first + b->n) % KN_BULK_GROUPS];
    return KN_OK;
}

kn_status kn_bulk_store(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, const kn_copy *c) {
    kn_async *a = NULL;
    KN_TRY(kn_async_begin(m, w, i, lane, finish_store, sizeof *c + c->bytes, &a));
    kn_copy *mine = a->data;
    memcpy(mine, c, sizeof *c);
    KN_TRY(open_group(m, w, i, lane, &mine->group));
    uint64_t flags = KN_EPOCH_ASYNC | (c->reduces ? KN_EPOCH_STRONG : 0);
    walker k = {.m = m,
                .w = w,
                .i = i,
                .lane = lane,
                .c = mine,
                .shared =
                    async_access(w, lane, KN_READ, kn_hb_epoch(w, KN_A_BULK_READ, (uint32_t)lane, KN_EPOCH_ASYNC)),
                .global = async_access(w, lane, c->reduces ? KN_ATOMIC : KN_WRITE,
                                       kn_hb_epoch(w, KN_A_BULK_WRITE, (uint32_t)lane, flags))};
    mine->group->reads++;
    mine->group->writes++;
    if (w->hb) mine->group->count = ((kn_hb_warp *)w->hb)->count[KN_A_BULK_READ];
    return walk(mine, issue_store_piece, &k);
}

kn_status kn_bulk_source(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, uint64_t src, uint32_t bytes,
                         uint32_t align, kn_cta **cta, uint32_t *offset) {
    KN_TRY(kn_shared_at(m, w, i, lane, src, bytes, align, cta, offset));
    if (*cta != w->cta)
        return kn_fault(m, w, i, lane, "the source 0x%llx lies in another CTA", (unsigned long long)src);
    return KN_OK;
}

kn_status kn_bulk_reduction(kn_machine *m, kn_warp *w, const kn_insn *i, kn_tma_elem elem, kn_copy *c) {
    static const struct {
        uint8_t tok, op;
    } ops[] = {{KN_TOK_add, KN_TMA_ADD}, {KN_TOK_min, KN_TMA_MIN}, {KN_TOK_max, KN_TMA_MAX}, {KN_TOK_and, KN_TMA_AND},
               {KN_TOK_or, KN_TMA_OR},   {KN_TOK_xor, KN_TMA_XOR}, {KN_TOK_inc, KN_TMA_INC}, {KN_TOK_dec, KN_TMA_DEC}};
    for (uint32_t k = 0; k < sizeof ops / sizeof ops[0]; k++) {
        if (ops[k].tok != i->m[KN_M_OP]) continue;
        c->op = (kn_tma_op)ops[k].op;
        c->elem = elem;
        c->reduces = true;
        if (kn_tma_reduce_bytes(c->op, elem)) return KN_OK;
    }
    return kn_fault(m, w, i, -1, "this element type has no such reduction");
}

/* ---- shared to a peer's shared memory -------------------------------------------------------------------- */

static kn_status finish_peer(kn_machine *m, kn_async *a) {
    kn_copy *c = a->data;
    if (c->cta->live_warps == 0) return gone(m, a, c->cta, "writes");
    if (c->from->live_warps == 0) return gone(m, a, c->from, "reads");
    kn_epoch running = kn_bar_running(c->bar, KN_EPOCH_ASYNC), done = kn_bar_done(c->bar, KN_EPOCH_ASYNC);
    memcpy(c->cta->smem + c->offset, c->from->smem + c->from_offset, c->bytes);
    memset(c->cta->shadow + c->offset, KN_SH_INIT, c->bytes);
    KN_TRY(kn_hb_shared_settle(c->cta, c->offset, c->bytes, running, done));
    KN_TRY(kn_hb_shared_settle(c->from, c->from_offset, c->bytes, running, done));
    return kn_bar_complete_tx(m, a->warp, a->insn, a->lane, c->bar, c->bytes);
}

kn_status kn_bulk_peer(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, const kn_copy *c) {
    kn_async *a = NULL;
    KN_TRY(kn_async_begin(m, w, i, lane, finish_peer, sizeof *c, &a));
    memcpy(a->data, c, sizeof *c);
    kn_epoch who = kn_bar_running(c->bar, KN_EPOCH_ASYNC);
    kn_hb_access from = async_access(w, lane, KN_READ, who), to = async_access(w, lane, KN_WRITE, who);
    walker k = {.m = m, .w = w, .i = i, .lane = lane};
    KN_TRY(shadow_ok(&k, c->from, c->from_offset, c->bytes, false));
    KN_TRY(shadow_ok(&k, c->cta, c->offset, c->bytes, true));
    KN_TRY(kn_hb_shared(m, w, i, &from, c->from, c->from_offset, c->bytes));
    KN_TRY(kn_hb_shared(m, w, i, &to, c->cta, c->offset, c->bytes));
    memset(c->cta->shadow + c->offset, KN_SH_INFLIGHT, c->bytes);
    return KN_OK;
}
