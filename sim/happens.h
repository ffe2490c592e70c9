/* happens: the ordering checks. Every access is compared with the last ones to the same bytes: unless one is ordered
 * before the other by barriers, mbarriers, fences or atomics, the run stops. Accesses of the asynchronous proxy (TMA,
 * wgmma) also need a proxy fence between them and earlier ordinary ones.
 *
 * This is what the units use beyond the hooks of kn_hb_ops (machine.h). All calls are no-ops, KN_OK, in a run without
 * checks (w->hb == NULL). */
#ifndef KN_SIM_HAPPENS_H
#define KN_SIM_HAPPENS_H

#include "sim/clocks.h"
#include "sim/hb_cells.h"
#include "sim/machine.h"

extern const kn_hb_ops kn_happens;

/* The agents of one warp: its threads, and the engines that work for it, whose work it knows of once it has waited. */
typedef enum kn_agent {
    KN_A_THREADS,
    KN_A_WGMMA,      /* reads of shared memory by wgmma; count = open wgmma group */
    KN_A_BULK_READ,  /* reads of bulk groups; count = group of the warp */
    KN_A_BULK_WRITE, /* writes of bulk groups */
    KN_A_INIT,       /* mbarrier.init's, as fence.mbarrier_init publishes them */
    KN_AGENTS
} kn_agent;

/* Addresses through which threads synchronise (atomics, ld.acquire, st.release): the clock that a release left there.
 */
typedef struct kn_hb_place {
    uint64_t addr; /* 0: free */
    kn_vc vc;
    uint32_t cta; /* of the last release: cluster index * 16 + rank */
    uint8_t scope;
} kn_hb_place;
typedef struct kn_hb_places {
    kn_hb_place *at;
    uint32_t n, room;
} kn_hb_places;

typedef struct kn_hb_warp {
    uint32_t base;             /* first agent; agent of `a` is base + a */
    uint32_t count[KN_AGENTS]; /* running counts, from 1 */
    kn_vc all, some;           /* what all lanes know; what the lanes in some_mask know beyond it */
    uint32_t some_mask;
    kn_vc fenced, seen; /* left by a fence for later relaxed writes; read by relaxed reads, for a later fence */
    bool has_fenced, has_seen;
    /* Bulk groups are a thread's own: the last one that a lane has waited for (of reads, of writes). The other lanes
     * learn of it where they meet. */
    uint32_t own[2][KN_LANES], own_mask;
    uint32_t *line; /* [count]: PTX line at which the count of KN_A_THREADS began */
    uint32_t room_lines;
} kn_hb_warp;

typedef struct kn_hb_cta {
    /* One cell for each aligned word of 4 bytes. A word whose bytes differ is split: `written` then is KN_CELL_OTHER
     * and a number s, and its bytes' cells are split_written[4 s + byte], split_read[4 s + byte]. */
    kn_epoch *written;
    uint64_t *read; /* cells of kn_reads */
    kn_epoch *split_written;
    uint64_t *split_read;
    uint32_t *free_splits;
    uint32_t n_splits, room_splits, n_free;
    kn_tick *visitor; /* [warps of the cluster]: the last access of other CTAs' threads to this one's shared memory */
    kn_vc exited;     /* what the warps that have exited knew */
} kn_hb_cta;

/* The clock of a barrier or mbarrier; freed with the cluster. */
typedef struct kn_hb_object {
    kn_vc vc;
    struct kn_hb_object *next;
} kn_hb_object;

typedef struct kn_hb_cluster {
    kn_reads reads;
    kn_hb_object *objects;
    uint32_t n_agents;   /* warps' agents, the previous grid, then mbarriers' */
    uint32_t grid_agent; /* count 1 is known after griddepcontrol.wait */
    uint32_t first_mbar;
    uint32_t *mbar_addr; /* [n_agents - first_mbar]: shared address, for reports */
    uint32_t room_mbars;
    kn_hb_places places;
} kn_hb_cluster;

/* ---- threads ----------------------------------------------------------------------------------------------------- */

/** What lanes `lanes` all know. */
const kn_vc *kn_hb_view(const kn_warp *w, uint32_t lanes);
/** Everything that `lanes` have done or know becomes known to who acquires obj; relaxed: what a fence left before. */
kn_status kn_hb_release(kn_machine *m, kn_warp *w, uint32_t lanes, kn_vc *obj);
kn_status kn_hb_release_relaxed(kn_warp *w, kn_vc *obj);
kn_status kn_hb_acquire(kn_warp *w, uint32_t lanes, const kn_vc *obj);
kn_status kn_hb_fence_proxy(kn_machine *m, kn_warp *w, uint32_t lanes, bool shared, bool global);
kn_status kn_hb_fence_init(kn_machine *m, kn_warp *w, uint32_t lanes);
/** `lanes` have waited for the work of an engine up to `count`. */
kn_status kn_hb_waited(kn_warp *w, uint32_t lanes, kn_agent a, uint32_t count);
/** Lane `lane` alone has waited for its bulk groups up to `count` (KN_A_BULK_READ or _WRITE). */
void kn_hb_waited_alone(kn_warp *w, uint32_t lane, kn_agent a, uint32_t count);

/* ---- accesses ---------------------------------------------------------------------------------------------------- */

/** The epoch of an access now; flags KN_EPOCH_*. */
kn_epoch kn_hb_epoch(const kn_warp *w, kn_agent a, uint32_t lane, uint64_t flags);

typedef struct kn_hb_access {
    kn_epoch who;    /* recorded */
    uint32_t lanes;  /* recorded lanes, 0: the one of `who` */
    const kn_vc *vc; /* what the issuer knows */
    kn_access_kind kind;
    const kn_warp *self; /* who issues it */
    int lane;            /* and which lane, -1: all of them */
    bool in_program;     /* by a thread itself: what it did before is ordered */
    kn_epoch
        known[2]; /* earlier epochs, without lanes, that are known to be ordered before this: to be found quickly */
} kn_hb_access;

kn_status kn_hb_shared(kn_machine *m, kn_warp *w, const kn_insn *i, kn_hb_access *a, kn_cta *cta, uint32_t offset,
                       uint32_t bytes);
kn_status kn_hb_global(kn_machine *m, kn_warp *w, const kn_insn *i, kn_hb_access *a, uint64_t addr, uint32_t bytes);
/** Rename an epoch: what was recorded as running becomes what waiters of `to`'s agent know. */
kn_status kn_hb_shared_settle(kn_cta *cta, uint32_t offset, uint32_t bytes, kn_epoch from, kn_epoch to);
void kn_hb_global_settle(kn_machine *m, uint64_t addr, uint32_t bytes, kn_epoch from, kn_epoch to);
/** Forget: the bytes are new memory (mbarrier.inval). */
void kn_hb_shared_clear(kn_cta *cta, uint32_t offset, uint32_t bytes);

/** A clock for *object unless it has one (or there are no checks). */
kn_status kn_hb_object_make(kn_cluster *c, kn_hb_object **object);
/** griddepcontrol.wait. */
kn_status kn_hb_grid_wait(kn_warp *w, uint32_t lanes);
/** `lanes` touch the shared memory of `cta` (its mbarriers too): if it is another one's, it may not exit before. */
void kn_hb_visit(const kn_warp *w, uint32_t lanes, kn_cta *cta);
/** An agent of its own for an mbarrier at shared address `addr`. */
kn_status kn_hb_mbar_agent(kn_cluster *c, uint32_t addr, uint32_t *agent);

/* ---- inside ---------------------------------------------------------------------------------------------- */

/** Is `prior` (by `lanes` of its agent) ordered before access a? `proxy`: the layer for crossing proxies. */
bool kn_hb_ordered_slow(kn_hb_access *a, kn_epoch prior, uint32_t lanes, kn_layer proxy);
static inline bool kn_hb_ordered(kn_hb_access *a, kn_epoch prior, uint32_t lanes, kn_layer proxy) {
    kn_epoch key = prior & ~KN_EPOCH_LANE_BITS;
    if (key == a->known[0] || key == a->known[1]) return true;
    return kn_hb_ordered_slow(a, prior, lanes, proxy);
}
/** Fault: "<what> ... by <who>, not ordered". */
kn_status kn_hb_race(kn_machine *m, kn_warp *w, const kn_insn *i, const kn_hb_access *a, const char *where,
                     uint64_t addr, kn_epoch prior, uint32_t prior_lanes, bool prior_is_write);
void kn_hb_places_free(kn_hb_places *p);
/** Release and acquire of one strong access. */
kn_status kn_hb_sync(kn_machine *m, kn_warp *w, const kn_access *a, uint32_t lane, kn_hb_places *places, uint64_t addr);
kn_status kn_hb_global_begin(kn_run *run, void **state);
void kn_hb_global_end(void *state);
kn_hb_places *kn_hb_global_places(kn_run *run);
void kn_hb_global_lock(kn_run *run, bool on);

#endif
