/* sim/extents: the global memory that a launch may touch, and which of it has been written. */
#ifndef KN_SIM_EXTENTS_H
#define KN_SIM_EXTENTS_H

#include "sim/machine.h"

typedef struct kn_global kn_global;

/** Prepare the launch's extents: kn_run.global. Shadows of poisoned ones live in `memory`. */
kn_status kn_global_create(const kn_sim_launch *launch, const kn_sim_module *module, kn_sim_memory *memory,
                           kn_global **out);
void kn_global_free(kn_global *g);

/** The longest stretch around [addr, addr + 1) that the launch may read (or write); false: none. */
bool kn_global_span(const kn_global *g, uint64_t addr, bool write, kn_span *out);
/** Words for an address where nothing may be accessed: the nearest extent and how far it is. */
void kn_global_describe(const kn_global *g, uint64_t addr, bool write, char *out, size_t cap);

#endif
