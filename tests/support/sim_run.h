/* Running small pieces of PTX on the simulator: one instruction on given operands, or a whole kernel text. */
#ifndef KN_TESTS_SUPPORT_SIM_RUN_H
#define KN_TESTS_SUPPORT_SIM_RUN_H

#include "sim/sim.h"

#include <stdint.h>

/** Run statements on one thread. Operands in all widths: %ra %da %ha %pa are the first value as .b32 .b64 .b16 and as a
 *  predicate (bit 0), then b, c, e. They write %rz, %dz, %hz or %pz, as `result` says: 'r', 'd', 'h', 'p'. */
kn_status kn_simtest_eval(const char *statements, char result, uint64_t a, uint64_t b, uint64_t c, uint64_t e,
                          uint64_t *out);

/* A launch of a kernel text with a few buffers as 64-bit parameters, in order. */
typedef struct kn_simtest_buffer {
    const char *name;
    void *data;
    int64_t bytes;
    bool writable, poison;
} kn_simtest_buffer;

typedef struct kn_simtest {
    const char
        *ptx; /* module text, or only a kernel's body: then a module with the buffers as .param is put around it */
    uint32_t grid, block, cluster, smem; /* 0: 1, 32, 1, 0 */
    uint64_t seed, budget;               /* budget 0: a million */
    int threads;
    kn_simtest_buffer buffer[6]; /* ends at the first without a name */
    kn_sim_memory *memory;
    kn_sim_stats stats; /* filled */
} kn_simtest;
kn_status kn_simtest_run(kn_simtest *t);

#endif
