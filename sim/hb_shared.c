/* hb_shared: the ordering checks on shared memory. */
#include "sim/happens.h"

#include "base/alloc.h"

/* ---- words and split words ------------------------------------------------------------------------------- */

static bool is_split(kn_epoch written) {
    return (written & KN_CELL_OTHER) == KN_CELL_OTHER;
}

static kn_status new_split(kn_hb_cta *h, uint32_t *out) {
    if (h->n_free) {
        *out = h->free_splits[--h->n_free];
        return KN_OK;
    }
    if (h->n_splits == h->room_splits) {
        uint32_t room = h->room_splits ? 2 * h->room_splits : 256;
        kn_epoch *w = kn_realloc(h->split_written, (size_t)room * 4 * sizeof *w);
        if (w) h->split_written = w;
        uint64_t *r = kn_realloc(h->split_read, (size_t)room * 4 * sizeof *r);
        if (r) h->split_read = r;
        uint32_t *f = kn_realloc(h->free_splits, room * sizeof *f);
        if (f) h->free_splits = f;
        KN_REQUIRE(w && r && f, KN_E_NOMEM, "out of memory for the simulator's shadow of shared memory");
        h->room_splits = room;
    }
    *out = h->n_splits++;
    return KN_OK;
}

/* Give the four bytes of a word cells of their own. */
static kn_status split(kn_hb_cta *h, uint32_t word, uint32_t *out) {
    if (is_split(h->written[word])) {
        *out = (uint32_t)h->written[word];
        return KN_OK;
    }
    KN_TRY(new_split(h, out));
    for (uint32_t b = 0; b < 4; b++) {
        h->split_written[4 * *out + b] = h->written[word];
        h->split_read[4 * *out + b] = h->read[word];
    }
    h->written[word] = KN_CELL_OTHER | *out;
    h->read[word] = 0;
    return KN_OK;
}

/* One cell again if the bytes' are equal. */
static void rejoin(kn_hb_cta *h, uint32_t word) {
    uint32_t s = (uint32_t)h->written[word];
    const kn_epoch *w = h->split_written + 4 * s;
    const uint64_t *r = h->split_read + 4 * s;
    for (uint32_t b = 1; b < 4; b++)
        if (w[b] != w[0] || r[b] != r[0]) return;
    h->written[word] = w[0];
    h->read[word] = r[0];
    h->free_splits[h->n_free++] = s;
    h->split_read[4 * s] = h->split_read[4 * s + 1] = h->split_read[4 * s + 2] = h->split_read[4 * s + 3] = 0;
}

/* ---- one cell -------------------------------------------------------------------------------------------- */

typedef struct toucher {
    kn_machine *m;
    kn_warp *w;
    const kn_insn *i;
    kn_hb_access *a;
    kn_cta *cta;
    kn_reads *reads;
    uint64_t last_read, last_new; /* what became of the readers' cell before */
    bool any;
} toucher;

static kn_status race(const toucher *t, uint32_t at, kn_epoch prior, uint32_t lanes, bool write) {
    return kn_hb_race(t->m, t->w, t->i, t->a, "shared address", t->cta->rank << KN_SMEM_RANK_SHIFT | at, prior, lanes,
                      write);
}

static kn_status check_readers(const toucher *t, uint32_t at, uint64_t cell) {
    kn_reader one;
    const kn_reader *list;
    uint32_t n = kn_reads_list(t->reads, cell, &one, &list);
    for (uint32_t k = 0; k < n; k++)
        if (!kn_hb_ordered(t->a, list[k].who, list[k].lanes, KN_L_PROXY_SHARED))
            return race(t, at, list[k].who, list[k].lanes, false);
    return KN_OK;
}

/* The same thread, at whatever count. */
static inline bool same_thread(const kn_hb_access *a, uint64_t cell) {
    return ((cell ^ a->who) & ~KN_EPOCH_COUNT_MASK) == 0 && a->lanes == 0 && a->in_program;
}

static inline kn_status touch(toucher *t, kn_epoch *written, uint64_t *read, uint32_t at) {
    kn_hb_access *a = t->a;
    kn_epoch w = *written;
    uint64_t r = *read;
    if (w != 0 && w != a->who && !same_thread(a, w) && !kn_hb_ordered(a, w, 1u << kn_epoch_lane(w), KN_L_PROXY_SHARED))
        return race(t, at, w, 1u << kn_epoch_lane(w), true);
    if (a->kind == KN_READ) {
        if (!t->any || r != t->last_read) {
            if (a->lanes == 0 && (r == 0 || same_thread(a, r)))
                t->last_new = a->who;
            else
                KN_TRY(kn_reads_add(t->reads, r, a->who, a->lanes, a->vc, &t->last_new));
            t->last_read = r;
            t->any = true;
        }
        *read = t->last_new;
        return KN_OK;
    }
    if (r != 0 && r != t->last_read && !same_thread(a, r)) KN_TRY(check_readers(t, at, r));
    t->last_read = r;
    *read = 0;
    *written = a->who;
    return KN_OK;
}

/* Bytes [from, to) of a word that is split or not touched as a whole. */
static kn_status touch_bytes(toucher *t, kn_hb_cta *h, uint32_t word, uint32_t from, uint32_t to) {
    uint32_t s = 0;
    KN_TRY(split(h, word, &s));
    for (uint32_t b = from; b < to; b++)
        KN_TRY(touch(t, &h->split_written[4 * s + b], &h->split_read[4 * s + b], word * 4 + b));
    rejoin(h, word);
    return KN_OK;
}

/* Sets that no byte names any more are thrown away once they are many. */
static kn_status tidy(kn_cluster *c) {
    kn_hb_cluster *hc = c->hb;
    if (!kn_reads_full(&hc->reads)) return KN_OK;
    uint64_t *cells[2 * KN_MAX_CLUSTER];
    uint32_t n_cells[2 * KN_MAX_CLUSTER];
    for (uint32_t k = 0; k < c->n_ctas; k++) {
        const kn_hb_cta *h = c->ctas[k].hb;
        cells[2 * k] = h->read;
        n_cells[2 * k] = c->ctas[k].smem_bytes / 4;
        cells[2 * k + 1] = h->split_read;
        n_cells[2 * k + 1] = 4 * h->n_splits;
    }
    return kn_reads_compact(&hc->reads, cells, n_cells, 2 * c->n_ctas);
}

kn_status kn_hb_shared(kn_machine *m, kn_warp *w, const kn_insn *i, kn_hb_access *a, kn_cta *cta, uint32_t offset,
                       uint32_t bytes) {
    kn_hb_cta *h = cta->hb;
    if (!h) return KN_OK;
    toucher t = {.m = m, .w = w, .i = i, .a = a, .cta = cta, .reads = &((kn_hb_cluster *)cta->cluster->hb)->reads};
    uint32_t end = offset + bytes;
    for (uint32_t at = offset; at < end;) {
        uint32_t word = at / 4, stop = (word + 1) * 4 < end ? (word + 1) * 4 : end;
        if (stop - at == 4 && !is_split(h->written[word]))
            KN_TRY(touch(&t, &h->written[word], &h->read[word], at));
        else
            KN_TRY(touch_bytes(&t, h, word, at % 4, stop - word * 4));
        at = stop;
    }
    return a->kind == KN_READ ? tidy(cta->cluster) : KN_OK;
}

/* ---- asynchronous work ends ------------------------------------------------------------------------------ */

static kn_status settle(kn_reads *reads, kn_epoch *written, uint64_t *read, kn_epoch from, kn_epoch to) {
    static const kn_vc nothing;
    kn_reader one;
    const kn_reader *list;
    bool found = false;
    if (*written == from) *written = to;
    if (*read == 0) return KN_OK;
    uint32_t n = kn_reads_list(reads, *read, &one, &list);
    for (uint32_t k = 0; k < n; k++) found |= list[k].who == from;
    if (!found) return KN_OK;
    KN_TRY(kn_reads_remove(reads, *read, from, read));
    return kn_reads_add(reads, *read, to, 0, &nothing, read);
}

kn_status kn_hb_shared_settle(kn_cta *cta, uint32_t offset, uint32_t bytes, kn_epoch from, kn_epoch to) {
    kn_hb_cta *h = cta->hb;
    if (!h) return KN_OK;
    kn_reads *reads = &((kn_hb_cluster *)cta->cluster->hb)->reads;
    for (uint32_t at = offset; at < offset + bytes; at += 4) {
        uint32_t word = at / 4;
        if (!is_split(h->written[word])) {
            KN_TRY(settle(reads, &h->written[word], &h->read[word], from, to));
            continue;
        }
        uint32_t s = (uint32_t)h->written[word];
        for (uint32_t b = 0; b < 4; b++)
            KN_TRY(settle(reads, &h->split_written[4 * s + b], &h->split_read[4 * s + b], from, to));
    }
    return KN_OK;
}

void kn_hb_shared_clear(kn_cta *cta, uint32_t offset, uint32_t bytes) {
    kn_hb_cta *h = cta->hb;
    for (uint32_t word = offset / 4; h && word < (offset + bytes) / 4; word++) {
        if (is_split(h->written[word])) {
            uint32_t s = (uint32_t)h->written[word];
            memset(h->split_read + 4 * s, 0, 4 * sizeof *h->split_read);
            h->free_splits[h->n_free++] = s;
        }
        h->written[word] = 0;
        h->read[word] = 0;
    }
}
