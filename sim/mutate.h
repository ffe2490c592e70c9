/* mutate: does the simulator notice when an ordering instruction of a kernel is missing? Takes each instruction that
 * the ISA table marks as ordering, deletes or weakens it, runs the kernel under several schedules, and counts what is
 * caught. */
#ifndef KN_SIM_MUTATE_H
#define KN_SIM_MUTATE_H

#include "base/status.h"
#include "sim/sim.h"

/** Run the module once and check its results. KN_OK: they are right. KN_E_SIM: the simulator objects. Any other status:
 *  the results differ. */
typedef kn_status kn_mutate_run(void *user, const kn_sim_module *m, uint64_t seed);

typedef struct kn_mutant {
    uint32_t line;      /* of the PTX */
    const char *text;   /* the instruction; lives as long as the report */
    const char *change; /* "deleted", "made relaxed", .. */
    bool caught;
    uint64_t seed;      /* that caught it */
    char sentence[240]; /* what was said */
} kn_mutant;

typedef struct kn_mutate_report {
    uint32_t sites;     /* ordering instructions */
    uint32_t unreached; /* of them never executed by these runs; they make no mutants */
    uint32_t mutants, caught;
    kn_mutant *mutant; /* [mutants] */
    kn_sim_module *original;
} kn_mutate_report;

/** Mutate every ordering instruction of the (only) kernel of `ptx`, each under seeds 0..seeds-1 until one catches it.
 * Fails if the kernel as it is does not pass under every seed, or has no ordering instruction at all. */
kn_status kn_sim_mutate(const char *ptx, size_t len, uint32_t seeds, kn_mutate_run *run, void *user,
                        kn_mutate_report *out);
void kn_sim_mutate_free(kn_mutate_report *r);

#endif
