/* hb_shared: the ordering checks on shared memory, byte by byte; and addresses that threads synchronise through. */
#include "sim/happens.h"

#include "base/alloc.h"

static kn_status check_readers(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_hb_access *a, kn_cta *cta,
                               uint32_t at, uint64_t cell) {
    kn_reader one;
    const kn_reader *list;
    uint32_t n = kn_reads_list(&((kn_hb_cluster *)cta->cluster->hb)->reads, cell, &one, &list);
    for (uint32_t k = 0; k < n; k++)
        if (!kn_hb_ordered(a, list[k].who, list[k].lanes, KN_L_PROXY_SHARED))
            return kn_hb_race(m, w, i, a, "shared address", cta->rank << KN_SMEM_RANK_SHIFT | at, list[k].who,
                              list[k].lanes, false);
    return KN_OK;
}

/* Sets that no byte names any more are thrown away once they are many. */
static kn_status tidy(kn_cluster *c) {
    kn_hb_cluster *hc = c->hb;
    if (!kn_reads_full(&hc->reads)) return KN_OK;
    uint64_t *cells[KN_MAX_CLUSTER];
    uint32_t n_cells[KN_MAX_CLUSTER];
    for (uint32_t k = 0; k < c->n_ctas; k++) {
        cells[k] = ((kn_hb_cta *)c->ctas[k].hb)->read;
        n_cells[k] = c->ctas[k].smem_bytes;
    }
    return kn_reads_compact(&hc->reads, cells, n_cells, c->n_ctas);
}

kn_status kn_hb_shared(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_hb_access *a, kn_cta *cta, uint32_t offset,
                       uint32_t bytes) {
    kn_hb_cta *h = cta->hb;
    if (!h) return KN_OK;
    kn_reads *reads = &((kn_hb_cluster *)cta->cluster->hb)->reads;
    kn_epoch last_written = 0;
    uint64_t last_read = 0, last_new = 0;
    bool any = false;
    for (uint32_t at = offset; at < offset + bytes; at++) {
        kn_epoch written = h->written[at];
        if (written != last_written && written != a->who) {
            uint32_t lane = 1u << kn_epoch_lane(written);
            if (!kn_hb_ordered(a, written, lane, KN_L_PROXY_SHARED))
                return kn_hb_race(m, w, i, a, "shared address", cta->rank << KN_SMEM_RANK_SHIFT | at, written, lane,
                                  true);
            last_written = written;
        }
        uint64_t read = h->read[at];
        if (a->kind == KN_READ) {
            if (!any || read != last_read) {
                KN_TRY(kn_reads_add(reads, read, a->who, a->lanes, a->vc, &last_new));
                last_read = read;
                any = true;
            }
            h->read[at] = last_new;
        } else {
            if (read != 0 && read != last_read) KN_TRY(check_readers(m, w, i, a, cta, at, read));
            last_read = read;
            h->read[at] = 0;
            h->written[at] = a->who;
        }
    }
    return a->kind == KN_READ ? tidy(cta->cluster) : KN_OK;
}

kn_status kn_hb_shared_settle(kn_cta *cta, uint32_t offset, uint32_t bytes, kn_epoch from, kn_epoch to) {
    kn_hb_cta *h = cta->hb;
    if (!h) return KN_OK;
    kn_reads *reads = &((kn_hb_cluster *)cta->cluster->hb)->reads;
    static const kn_vc nothing;
    for (uint32_t at = offset; at < offset + bytes; at++) {
        if (h->written[at] == from) h->written[at] = to;
        if (h->read[at] == 0) continue;
        kn_reader one;
        const kn_reader *list;
        uint32_t n = kn_reads_list(reads, h->read[at], &one, &list);
        bool found = false;
        for (uint32_t k = 0; k < n; k++) found |= list[k].who == from;
        if (!found) continue;
        KN_TRY(kn_reads_remove(reads, h->read[at], from, &h->read[at]));
        KN_TRY(kn_reads_add(reads, h->read[at], to, 0, &nothing, &h->read[at]));
    }
    return KN_OK;
}

void kn_hb_shared_clear(kn_cta *cta, uint32_t offset, uint32_t bytes) {
    kn_hb_cta *h = cta->hb;
    if (!h) return;
    memset(h->written + offset, 0, bytes * sizeof *h->written);
    memset(h->read + offset, 0, bytes * sizeof *h->read);
}

/* ---- addresses that threads synchronise through
 * ---------------------------------------------------------------------*/

static uint32_t slot_of(const kn_hb_places *p, uint64_t addr) {
    uint32_t s = (uint32_t)(addr * 0x9e3779b97f4a7c15ull >> 32) & (p->room - 1);
    while (p->at[s].addr && p->at[s].addr != addr) s = (s + 1) & (p->room - 1);
    return s;
}

kn_hb_place *kn_hb_place_find(kn_hb_places *p, uint64_t addr) {
    if (p->room == 0) return NULL;
    kn_hb_place *at = &p->at[slot_of(p, addr)];
    return at->addr ? at : NULL;
}

kn_status kn_hb_place_make(kn_hb_places *p, uint64_t addr, kn_hb_place **out) {
    if (2 * (p->n + 1) > p->room) {
        kn_hb_places old = *p;
        p->room = old.room ? 2 * old.room : 64;
        p->at = NULL;
        kn_status st = KN_NEW(&p->at, p->room, "the simulator's synchronisation addresses");
        if (st != KN_OK) {
            *p = old;
            return st;
        }
        for (uint32_t k = 0; k < old.room; k++)
            if (old.at[k].addr) p->at[slot_of(p, old.at[k].addr)] = old.at[k];
        kn_free(old.at);
    }
    kn_hb_place *at = &p->at[slot_of(p, addr)];
    if (!at->addr) p->n++;
    at->addr = addr;
    *out = at;
    return KN_OK;
}

void kn_hb_places_free(kn_hb_places *p) {
    for (uint32_t k = 0; k < p->room; k++) kn_vc_free(&p->at[k].vc);
    kn_free(p->at);
    *p = (kn_hb_places){0};
}

static int scope_rank(uint8_t scope) {
    return scope == KN_TOK_cta ? 0 : scope == KN_TOK_cluster ? 1 : 2; /* gpu, sys, and what names no scope */
}

/* Do two threads of CTAs a and b (cluster * 16 + rank) lie in each other's scope? */
static bool in_scope(int scope, uint32_t a, uint32_t b) {
    return a == b || scope == 2 || (scope == 1 && a / KN_MAX_CLUSTER == b / KN_MAX_CLUSTER);
}

kn_status kn_hb_sync(kn_machine *m, kn_warp *w, const kn_access *a, uint32_t lane, kn_hb_places *places,
                     uint64_t addr) {
    kn_hb_warp *h = w->hb;
    bool reads = a->kind != KN_WRITE, writes = a->kind != KN_READ;
    bool acquires = a->sem == KN_TOK_acquire || a->sem == KN_TOK_acq_rel,
         releases = a->sem == KN_TOK_release || a->sem == KN_TOK_acq_rel;
    uint32_t me = m->cluster->index * KN_MAX_CLUSTER + w->cta->rank;
    kn_hb_place *p = kn_hb_place_find(places, addr);
    int scope = scope_rank(a->scope);
    if (reads && p && in_scope(scope, p->cta, me) && in_scope(scope_rank(p->scope), p->cta, me)) {
        if (acquires) {
            KN_TRY(kn_hb_acquire(w, 1u << lane, &p->vc));
        } else {
            KN_TRY(kn_vc_join(&h->seen, &p->vc));
            h->has_seen = true;
        }
    }
    if (!writes || (!releases && !h->has_fenced && !p)) return KN_OK;
    KN_TRY(kn_hb_place_make(places, addr, &p));
    if (a->kind == KN_WRITE) { /* a plain store ends the chain of releases that led here */
        kn_vc_free(&p->vc);
    }
    p->cta = me;
    p->scope = a->scope;
    return releases ? kn_hb_release(m, w, 1u << lane, &p->vc) : kn_hb_release_relaxed(w, &p->vc);
}
