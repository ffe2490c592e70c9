/* sim/schedule: warps and clusters, run by seeded choice. */
#ifndef KN_SIM_SCHEDULE_H
#define KN_SIM_SCHEDULE_H

#include "sim/machine.h"

/** Run the cluster that m->cluster names for about `slice` instructions. *done: all its warps have exited. */
kn_status kn_cluster_run(kn_machine *m, uint64_t slice, bool *done);

/** exec_sync.c: a warp of the CTA has exited; barriers that wait for all may be complete now. */
void kn_barriers_recheck(kn_cta *c);

/** Seeded habits of one launch: how long a warp keeps its turn, how eagerly asynchronous work completes. */
typedef struct kn_habits {
    uint32_t quantum; /* most instructions of a turn */
    uint32_t eager;   /* of 256: chance that a pending operation completes after a turn */
} kn_habits;
kn_habits kn_habits_of(uint64_t seed);

#endif
