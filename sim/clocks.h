/* clocks: what one thread knows of the others. The arithmetic of the happens-before checks, without a machine.
 *
 * Agents of a cluster are its warps, the asynchronous engines that work for each warp, and its mbarriers. An agent
 * counts its synchronisations; an access is an epoch (agent, count at the time, lane). A kn_vc says how much of every
 * agent's past a thread is ordered behind. A warp's lanes mostly know the same, so an entry holds one count for all
 * lanes and a greater one for some of them; where that is not enough it errs towards knowing more (a race may be
 * missed, a right kernel is never accused).
 *
 * Every entry exists in three layers: plain order, and what has also passed a proxy fence for shared or for global
 * memory, so that the asynchronous proxy may see it. */
#ifndef KN_SIM_CLOCKS_H
#define KN_SIM_CLOCKS_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- epochs ---------------------------------------------------------------------------------------------- */

/* One access: cluster 21 | flags 2 | agent 12 | lane 5 | count 24. 0 is no access: counts start at 1. */
typedef uint64_t kn_epoch;
enum { KN_EPOCH_COUNT_BITS = 24, KN_EPOCH_MAX = (1 << KN_EPOCH_COUNT_BITS) - 2, KN_EPOCH_RUNNING = KN_EPOCH_MAX + 1 };
enum { KN_AGENT_MAX = 4095, KN_CLUSTER_MAX = (1 << 21) - 2 };
#define KN_EPOCH_ASYNC (UINT64_C(1) << 41)  /* by the asynchronous proxy */
#define KN_EPOCH_STRONG (UINT64_C(1) << 42) /* atomic, volatile, relaxed..: does not race with its like */

#define KN_EPOCH_LANE_BITS (UINT64_C(31) << 24)
#define KN_EPOCH_COUNT_MASK UINT64_C(0xffffff)

static inline kn_epoch kn_epoch_make(uint32_t cluster, uint32_t agent, uint32_t lane, uint32_t count, uint64_t flags) {
    return (uint64_t)cluster << 43 | flags | (uint64_t)agent << 29 | (uint64_t)lane << 24 | count;
}
static inline uint32_t kn_epoch_count(kn_epoch e) {
    return (uint32_t)e & 0xffffff;
}
static inline uint32_t kn_epoch_lane(kn_epoch e) {
    return (uint32_t)(e >> 24) & 31;
}
static inline uint32_t kn_epoch_agent(kn_epoch e) {
    return (uint32_t)(e >> 29) & 4095;
}
static inline uint32_t kn_epoch_cluster(kn_epoch e) {
    return (uint32_t)(e >> 43);
}

/* ---- what is known --------------------------------------------------------------------------------------- */

typedef struct kn_tick {
    uint32_t all;        /* count known of every lane */
    uint32_t some, mask; /* some > all: count known of the lanes in mask; otherwise both are 0 */
} kn_tick;

/** Raise *a to at least b, lane by lane. */
void kn_tick_join(kn_tick *a, kn_tick b);
static inline bool kn_tick_covers(kn_tick t, uint32_t count, uint32_t lanes) {
    return count <= t.all || (count <= t.some && (lanes & ~t.mask) == 0);
}

typedef enum kn_layer { KN_L_ORDER, KN_L_PROXY_SHARED, KN_L_PROXY_GLOBAL, KN_LAYERS } kn_layer;

typedef struct kn_vc_part { /* entries of one cluster's agents */
    uint32_t cluster, n;
    kn_tick *tick[KN_LAYERS]; /* [n] each, one allocation at tick[0] */
} kn_vc_part;

typedef struct kn_vc {
    kn_vc_part *part; /* [0]: the own cluster's */
    uint32_t n_parts;
} kn_vc; /* zeroed: knows nothing */

void kn_vc_free(kn_vc *v);
/** The entry of an agent; all zeros when nothing is known. */
kn_tick kn_vc_get(const kn_vc *v, kn_layer layer, uint32_t cluster, uint32_t agent);
kn_status kn_vc_raise(kn_vc *v, kn_layer layer, uint32_t cluster, uint32_t agent, kn_tick t);
kn_status kn_vc_join(kn_vc *v, const kn_vc *other);
kn_status kn_vc_copy(kn_vc *v, const kn_vc *other);
/** A proxy fence: `layer` learns all that is in order. */
void kn_vc_fence(kn_vc *v, kn_layer layer);

#endif
