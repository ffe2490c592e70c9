/* sim/cluster: the memory of one cluster of CTAs; made once, used for one cluster of the grid after the other. */
#ifndef KN_SIM_CLUSTER_H
#define KN_SIM_CLUSTER_H

#include "sim/machine.h"

kn_status kn_cluster_create(const kn_run *run, kn_cluster **out);
void kn_cluster_free(kn_cluster *c);
/** Become cluster `index` of the grid, at its first instruction. Sets m->cluster. */
kn_status kn_cluster_begin(kn_machine *m, kn_cluster *c, uint32_t index);
/** After kn_cluster_run was done, or on a fault: forget what is pending. */
void kn_cluster_end(kn_machine *m, kn_cluster *c);

#endif
