/* hb_cells: see the header. */
#include "sim/hb_cells.h"

#include "base/alloc.h"

#include <string.h>

static bool is_set(uint64_t cell) {
    return (cell & KN_CELL_OTHER) == KN_CELL_OTHER;
}

void kn_reads_free(kn_reads *r) {
    kn_free(r->reader);
    kn_free(r->set);
    kn_free(r->scratch);
    memset(r, 0, sizeof *r);
}

uint32_t kn_reads_list(const kn_reads *r, uint64_t cell, kn_reader *one, const kn_reader **list) {
    *list = one;
    if (cell == 0) return 0;
    if (!is_set(cell)) {
        *one = (kn_reader){cell & ~KN_EPOCH_LANE_BITS, 1u << kn_epoch_lane(cell)};
        return 1;
    }
    const kn_reader_set *s = &r->set[(uint32_t)cell];
    *list = r->reader + s->first;
    return s->n;
}

static kn_status room(void **p, uint32_t *have, uint32_t want, size_t size) {
    if (want <= *have) return KN_OK;
    uint32_t n = *have ? *have : 64;
    while (n < want) n *= 2;
    void *more = kn_realloc(*p, n * size);
    KN_REQUIRE(more != NULL, KN_E_NOMEM, "out of memory for the simulator's reader sets");
    *p = more;
    *have = n;
    return KN_OK;
}

static uint32_t hash_of(const kn_reader *list, uint32_t n) {
    uint64_t h = n;
    for (uint32_t k = 0; k < n; k++) h = (h ^ list[k].who ^ (uint64_t)list[k].lanes << 20) * 0x9e3779b97f4a7c15ull;
    return (uint32_t)(h >> 32);
}

static bool same(const kn_reader *a, const kn_reader *b, uint32_t n) {
    for (uint32_t k = 0; k < n; k++)
        if (a[k].who != b[k].who || a[k].lanes != b[k].lanes) return false;
    return true;
}

/* The cell for a list of readers, which may lie in r->scratch. */
static kn_status intern(kn_reads *r, const kn_reader *list, uint32_t n, uint64_t *out) {
    if (n == 0) {
        *out = 0;
        return KN_OK;
    }
    if (n == 1 && (list->lanes & (list->lanes - 1)) == 0) {
        *out = list->who | (uint64_t)__builtin_ctz(list->lanes) << 24;
        return KN_OK;
    }
    uint32_t h = hash_of(list, n);
    for (uint32_t s = r->bucket[h % KN_READS_BUCKETS]; s; s = r->set[s - 1].next) {
        const kn_reader_set *set = &r->set[s - 1];
        if (set->hash != h || set->n != n || !same(r->reader + set->first, list, n)) continue;
        *out = KN_CELL_OTHER | (s - 1);
        return KN_OK;
    }
    KN_TRY(room((void **)&r->set, &r->room_sets, r->n_sets + 1, sizeof *r->set));
    KN_TRY(room((void **)&r->reader, &r->room_readers, r->n_readers + n, sizeof *r->reader));
    memcpy(r->reader + r->n_readers, list, n * sizeof *list);
    r->set[r->n_sets] = (kn_reader_set){r->n_readers, n, r->bucket[h % KN_READS_BUCKETS], h};
    r->n_readers += n;
    *out = KN_CELL_OTHER | r->n_sets;
    r->bucket[h % KN_READS_BUCKETS] = ++r->n_sets;
    return KN_OK;
}

/* May `old` be forgotten once `who` (which knows vc) has read? Only if whoever is ordered behind `who` passes every
 * check against `old` too: a generic read asks more of a later write than an asynchronous one, an ordinary more than a
 * strong. */
static bool dominated(const kn_reader *old, kn_epoch who, uint32_t lanes, const kn_vc *vc) {
    const uint64_t flags = KN_EPOCH_ASYNC | KN_EPOCH_STRONG;
    if (((old->who & flags) ^ KN_EPOCH_ASYNC ^ KN_EPOCH_STRONG) & ~((who & flags) ^ KN_EPOCH_ASYNC ^ KN_EPOCH_STRONG) &
        flags)
        return false;
    if (kn_epoch_count(old->who) == KN_EPOCH_RUNNING) return false;
    bool same_agent =
        kn_epoch_agent(old->who) == kn_epoch_agent(who) && kn_epoch_cluster(old->who) == kn_epoch_cluster(who);
    if (same_agent && (old->lanes & ~lanes) == 0) return true;
    return kn_tick_covers(kn_vc_get(vc, KN_L_ORDER, kn_epoch_cluster(old->who), kn_epoch_agent(old->who)),
                          kn_epoch_count(old->who), old->lanes);
}

kn_status kn_reads_add(kn_reads *r, uint64_t cell, kn_epoch who, uint32_t lanes, const kn_vc *vc, uint64_t *out) {
    if (cell == who && lanes == 0) {
        *out = cell;
        return KN_OK;
    }
    if (lanes == 0) lanes = 1u << kn_epoch_lane(who);
    who &= ~KN_EPOCH_LANE_BITS;
    const uint32_t asked = lanes; /* `lanes` grows below */
    uint32_t slot = (uint32_t)((cell * 31 + (who ^ (uint64_t)lanes << 24)) * 0x9e3779b97f4a7c15ull >> 55);
    if (r->memo[slot].cell == cell && r->memo[slot].who == who && r->memo[slot].lanes == asked && r->memo[slot].out) {
        *out = r->memo[slot].out;
        return KN_OK;
    }
    kn_reader one;
    const kn_reader *old;
    uint32_t n_old = kn_reads_list(r, cell, &one, &old), n = 0;
    KN_TRY(room((void **)&r->scratch, &r->room_scratch, n_old + 1, sizeof *r->scratch));
    for (uint32_t k = 0; k < n_old; k++) {
        if (old[k].who == who)
            lanes |= old[k].lanes;
        else if (!dominated(&old[k], who, lanes, vc))
            r->scratch[n++] = old[k];
    }
    r->scratch[n++] = (kn_reader){who, lanes};
    KN_TRY(intern(r, r->scratch, n, out));
    r->memo[slot].cell = cell;
    r->memo[slot].who = who;
    r->memo[slot].lanes = asked;
    r->memo[slot].out = *out;
    return KN_OK;
}

kn_status kn_reads_remove(kn_reads *r, uint64_t cell, kn_epoch who, uint64_t *out) {
    kn_reader one;
    const kn_reader *old;
    uint32_t n_old = kn_reads_list(r, cell, &one, &old), n = 0;
    KN_TRY(room((void **)&r->scratch, &r->room_scratch, n_old + 1, sizeof *r->scratch));
    for (uint32_t k = 0; k < n_old; k++)
        if (old[k].who != (who & ~KN_EPOCH_LANE_BITS)) r->scratch[n++] = old[k];
    return intern(r, r->scratch, n, out);
}

bool kn_reads_full(const kn_reads *r) {
    return r->n_readers > 1u << 18;
}

kn_status kn_reads_compact(kn_reads *r, uint64_t *const *cells, const uint32_t *n_cells, uint32_t n_arrays) {
    kn_reads fresh = {0};
    uint64_t *moved = NULL, last_from = 0, last_to = 0;
    kn_status st = KN_NEW(&moved, r->n_sets + 1, "the simulator's reader sets");
    for (uint32_t a = 0; a < n_arrays && st == KN_OK; a++) {
        for (uint32_t k = 0; k < n_cells[a]; k++) {
            uint64_t c = cells[a][k];
            if (!is_set(c)) continue;
            if (c != last_from) {
                uint64_t *to = &moved[(uint32_t)c];
                const kn_reader_set *s = &r->set[(uint32_t)c];
                if (!*to) KN_TRY_OUT(st, intern(&fresh, r->reader + s->first, s->n, to));
                last_from = c;
                last_to = *to;
            }
            cells[a][k] = last_to;
        }
    }
    kn_reads_free(r);
    *r = fresh;
    memset(&fresh, 0, sizeof fresh);
out:
    kn_reads_free(&fresh);
    kn_free(moved);
    return st;
}
