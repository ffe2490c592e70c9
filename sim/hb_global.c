/* hb_global: the ordering checks on global memory that a launch may write. Cells of one element of the extent (at most
 * 4 bytes) hold the last writer and the last reader, in pages made on first use. Workers share them: a page has a lock.
 */
#include "sim/happens.h"

#include "base/alloc.h"
#include "base/thread.h"
#include "sim/ptx_module.h"

#include <stdlib.h>

enum { PAGE_BYTES = 4096 };

/* Reader cells that are no epoch: several threads of cluster N, or of several clusters. */
#define MANY_OF(cluster) ((uint64_t)(cluster) << 43 | ((UINT64_C(1) << 43) - 1))
#define MANY_CLUSTERS (~UINT64_C(0))

typedef struct cell {
    kn_epoch written;
    uint64_t read;
} cell;

typedef struct page {
    kn_mutex lock;
    cell cell[];
} page;

typedef struct range {
    uint64_t lo, hi;
    uint32_t grain;
    bool writable; /* else: only read, but made by an earlier launch of the program */
    page **page;
} range;

typedef struct state {
    range *range;
    uint32_t n;
    bool waits_for_grid; /* the kernel has a griddepcontrol.wait */
    bool shared;         /* several workers: pages are locked */
    kn_mutex lock;       /* of places, and for making pages */
    kn_hb_places places;
} state;

static int by_address(const void *a, const void *b) {
    const range *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* The bytes between an extent's first and last element. */
static range range_of(const kn_sim_extent *x) {
    int64_t lo = 0, hi = (int64_t)x->item;
    bool empty = false;
    for (uint32_t d = 0; d < x->ndim; d++) {
        int64_t reach = (x->shape[d] - 1) * x->stride[d] * (int64_t)x->item;
        empty |= x->shape[d] <= 0;
        if (reach < 0)
            lo += reach;
        else
            hi += reach;
    }
    uint64_t base = (uint64_t)(uintptr_t)x->data;
    uint32_t grain = x->item >= 4 ? 4 : x->item >= 2 ? 2 : 1;
    if (empty) return (range){0};
    return (range){.lo = base + (uint64_t)lo, .hi = base + (uint64_t)hi, .grain = grain, .writable = x->writable};
}

kn_status kn_hb_global_begin(kn_run *run, void **out) {
    const kn_sim_launch *l = run->launch;
    state *s = NULL;
    KN_TRY(KN_NEW(&s, 1, "the simulator's ordering checks"));
    kn_mutex_init(&s->lock);
    s->shared = !run->serial && l->threads > 1 && run->n_clusters > 1;
    kn_status st = KN_NEW(&s->range, l->n_extents + 1, "the simulator's ordering checks");
    if (st != KN_OK) goto out;
    for (uint32_t k = 0; k < l->n_extents; k++) {
        if (!l->extents[k].writable && !l->extents[k].poison) continue;
        range r = range_of(&l->extents[k]);
        if (r.hi > r.lo) s->range[s->n++] = r;
    }
    qsort(s->range, s->n, sizeof *s->range, by_address);
    uint32_t n = 0;
    for (uint32_t k = 0; k < s->n; k++) { /* overlapping ones become one, with the finer grain */
        range *last = n ? &s->range[n - 1] : NULL;
        if (last && s->range[k].lo < last->hi) {
            if (s->range[k].hi > last->hi) last->hi = s->range[k].hi;
            if (s->range[k].grain < last->grain) last->grain = s->range[k].grain;
            last->writable |= s->range[k].writable;
        } else {
            s->range[n++] = s->range[k];
        }
    }
    s->n = n;
    for (uint32_t k = 0; k < run->entry->n_code; k++)
        s->waits_for_grid |= strcmp(run->entry->code[k].text, "griddepcontrol.wait") == 0;
    for (uint32_t k = 0; k < n && st == KN_OK; k++)
        st = KN_NEW(&s->range[k].page, (s->range[k].hi - s->range[k].lo) / PAGE_BYTES + 1,
                    "the simulator's ordering checks");
out:
    if (st != KN_OK) {
        kn_hb_global_end(s);
        s = NULL;
    }
    *out = s;
    return st;
}

void kn_hb_global_end(void *opaque) {
    state *s = opaque;
    if (!s) return;
    for (uint32_t k = 0; k < s->n; k++) {
        range *r = &s->range[k];
        for (uint64_t p = 0; r->page && p <= (r->hi - r->lo) / PAGE_BYTES; p++) {
            if (!r->page[p]) continue;
            kn_mutex_destroy(&r->page[p]->lock);
            kn_free(r->page[p]);
        }
        kn_free(r->page);
    }
    kn_free(s->range);
    kn_hb_places_free(&s->places);
    kn_mutex_destroy(&s->lock);
    kn_free(s);
}

kn_hb_places *kn_hb_global_places(kn_run *run) {
    return &((state *)run->hb)->places;
}

void kn_hb_global_lock(kn_run *run, bool on) {
    state *s = run->hb;
    if (on)
        kn_lock(&s->lock);
    else
        kn_unlock(&s->lock);
}

static range *find(state *s, uint64_t addr) {
    uint32_t lo = 0, hi = s->n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (addr < s->range[mid].lo)
            hi = mid;
        else if (addr >= s->range[mid].hi)
            lo = mid + 1;
        else
            return &s->range[mid];
    }
    return NULL;
}

static page *page_at(state *s, range *r, uint64_t index) {
    page **slot = &r->page[index];
    page *p = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
    if (p) return p;
    kn_lock(&s->lock);
    p = *slot;
    if (!p && (p = kn_calloc(1, sizeof *p + PAGE_BYTES / r->grain * sizeof(cell)))) {
        kn_mutex_init(&p->lock);
        __atomic_store_n(slot, p, __ATOMIC_RELEASE);
    }
    kn_unlock(&s->lock);
    return p;
}

/* The same thread, at whatever count. */
static inline bool same_thread(const kn_hb_access *a, uint64_t prior) {
    return ((prior ^ a->who) & ~KN_EPOCH_COUNT_MASK) == 0 && a->in_program;
}

/* The readers' cell after one more reader. */
static uint64_t read_again(kn_hb_access *a, uint64_t read) {
    uint32_t cluster = kn_epoch_cluster(a->who);
    if (read == 0 || same_thread(a, read)) return a->who;
    if (read == MANY_CLUSTERS || read == MANY_OF(cluster)) return read;
    if (kn_epoch_cluster(read) != cluster) return MANY_CLUSTERS;
    bool stricter = (read & ~a->who & KN_EPOCH_ASYNC) || !((read ^ a->who) & KN_EPOCH_ASYNC);
    if (stricter && kn_hb_ordered(a, read, 1u << kn_epoch_lane(read), KN_L_PROXY_GLOBAL)) return a->who;
    return MANY_OF(cluster);
}

/* Several clusters have read what is written now. Where clusters cannot synchronise that is a race; where they can, the
 * cell has forgotten whether they did. */
static bool many_race(kn_machine *m, kn_hb_access *a, uint64_t read) {
    if (m->run->serial) return false;
    return read == MANY_CLUSTERS || read != MANY_OF(kn_epoch_cluster(a->who));
}

static bool is_many(uint64_t read) {
    return read == MANY_CLUSTERS || read == MANY_OF(kn_epoch_cluster(read));
}

static kn_status check_cell(kn_machine *m, kn_warp *w, const kn_insn *i, kn_hb_access *a, cell *c, uint64_t addr) {
    uint32_t lane = 1u << kn_epoch_lane(c->written);
    if (c->written && c->written != a->who && !same_thread(a, c->written) &&
        !kn_hb_ordered(a, c->written, lane, KN_L_PROXY_GLOBAL))
        return kn_hb_race(m, w, i, a, "global address", addr, c->written, lane, true);
    if (a->kind == KN_READ) {
        if (!(a->who & KN_EPOCH_STRONG)) c->read = read_again(a, c->read);
        return KN_OK;
    }
    uint64_t read = c->read;
    if (read && is_many(read)) {
        if (many_race(m, a, read))
            return kn_fault(m, w, i, a->lane,
                            "race: writes global address 0x%llx, which other CTAs of this launch read",
                            (unsigned long long)addr);
    } else if (read) {
        lane = 1u << kn_epoch_lane(read);
        if (!same_thread(a, read) && !kn_hb_ordered(a, read, lane, KN_L_PROXY_GLOBAL))
            return kn_hb_race(m, w, i, a, "global address", addr, read, lane, false);
    }
    c->written = a->who;
    c->read = 0;
    return KN_OK;
}

/* With programmatic dependent launch the previous kernel may still be writing what earlier launches of the program make
 * (poisoned extents), and reading what this one overwrites. */
static kn_status check_grid_wait(kn_machine *m, kn_warp *w, const kn_insn *i, kn_hb_access *a, uint64_t addr) {
    const kn_hb_cluster *hc = m->cluster->hb;
    if (kn_vc_get(a->vc, KN_L_ORDER, m->cluster->index, hc->grid_agent).all) return KN_OK;
    return kn_fault(m, w, i, a->lane,
                    "global address 0x%llx, which the launch before this one may still use, is %s without a "
                    "griddepcontrol.wait that is ordered before",
                    (unsigned long long)addr, a->kind == KN_READ ? "read" : "written");
}

kn_status kn_hb_global(kn_machine *m, kn_warp *w, const kn_insn *i, kn_hb_access *a, uint64_t addr, uint32_t bytes) {
    state *s = m->run->hb;
    if (!s || !w->hb) return KN_OK;
    range *r = find(s, addr);
    if (!r) return KN_OK;
    if (s->waits_for_grid) KN_TRY(check_grid_wait(m, w, i, a, addr));
    /* Part of an element: the cell cannot tell who touched which part. */
    if (!r->writable || addr % r->grain || bytes % r->grain) return KN_OK;
    for (uint64_t at = addr, end = addr + bytes < r->hi ? addr + bytes : r->hi; at < end;) {
        uint64_t index = (at - r->lo) / PAGE_BYTES, stop = r->lo + (index + 1) * PAGE_BYTES;
        page *p = page_at(s, r, index);
        KN_REQUIRE(p != NULL, KN_E_NOMEM, "out of memory for the simulator's ordering checks");
        kn_status st = KN_OK;
        if (s->shared) kn_lock(&p->lock);
        for (; at < stop && at < end && st == KN_OK; at += r->grain)
            st = check_cell(m, w, i, a, &p->cell[(at - r->lo) % PAGE_BYTES / r->grain], at);
        if (s->shared) kn_unlock(&p->lock);
        KN_TRY(st);
    }
    return KN_OK;
}

void kn_hb_global_settle(kn_machine *m, uint64_t addr, uint32_t bytes, kn_epoch from, kn_epoch to) {
    state *s = m->run->hb;
    range *r = s ? find(s, addr) : NULL;
    if (!r || addr % r->grain || bytes % r->grain) return;
    for (uint64_t at = addr, end = addr + bytes < r->hi ? addr + bytes : r->hi; at < end; at += r->grain) {
        page *p = page_at(s, r, (at - r->lo) / PAGE_BYTES);
        if (!p) return; /* never made: nothing was recorded there */
        kn_lock(&p->lock);
        cell *c = &p->cell[(at - r->lo) % PAGE_BYTES / r->grain];
        if (c->written == from) c->written = to;
        if (c->read == from) c->read = to;
        kn_unlock(&p->lock);
    }
}
