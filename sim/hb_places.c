/* hb_places: addresses that threads synchronise through, and the clocks that releases leave there. */
#include "sim/happens.h"

#include "base/alloc.h"

static uint32_t slot_of(const kn_hb_places *p, uint64_t addr) {
    uint32_t s = (uint32_t)(addr * 0x9e3779b97f4a7c15ull >> 32) & (p->room - 1);
    while (p->at[s].addr && p->at[s].addr != addr) s = (s + 1) & (p->room - 1);
    return s;
}

static kn_hb_place *find_place(kn_hb_places *p, uint64_t addr) {
    if (p->room == 0) return NULL;
    kn_hb_place *at = &p->at[slot_of(p, addr)];
    return at->addr ? at : NULL;
}

static kn_status make_place(kn_hb_places *p, uint64_t addr, kn_hb_place **out) {
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
    kn_hb_place *p = find_place(places, addr);
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
    KN_TRY(make_place(places, addr, &p));
    if (a->kind == KN_WRITE) { /* a plain store ends the chain of releases that led here */
        kn_vc_free(&p->vc);
    }
    p->cta = me;
    p->scope = a->scope;
    return releases ? kn_hb_release(m, w, 1u << lane, &p->vc) : kn_hb_release_relaxed(w, &p->vc);
}
