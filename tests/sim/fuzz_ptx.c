/* Fuzz target of the simulator: any text is parsed or refused with a sentence, and a kernel that parses runs to its
 * end, to a fault or to the end of its budget; nothing crashes, hangs or leaves its buffers. */
#include "sim/ptx_module.h"
#include "sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BUFFER = 8192, PARAMS = 32768 };

static void require(bool good, const char *what) {
    if (good) return;
    fprintf(stderr, "the simulator is inconsistent: %s (%s)\n", what, kn_error_message());
    abort();
}

/* Parameters that are mostly pointers to the buffer. */
static void run(const kn_sim_module *m, const kn_entry *e, uint64_t seed) {
    static uint8_t buffer[BUFFER + 64];
    static uint64_t params[PARAMS / 8];
    for (size_t k = 0; k < PARAMS / 8; k++) params[k] = (uint64_t)(uintptr_t)(buffer + 32 + k % 4 * 1024);
    memset(buffer, 0x5a, sizeof buffer);
    kn_sim_extent extents[2] = {{"buffer", buffer + 32, 1, 1, {BUFFER / 2}, {1}, true, false},
                                {"rest", buffer + 32 + BUFFER / 2, 2, 2, {16, 100}, {128, 1}, true, true}};
    kn_sim_launch l = {.grid = {2, 1, 1},
                       .block = {64, 1, 1},
                       .cluster = {1, 1, 1},
                       .smem_dynamic = 4096,
                       .params = params,
                       .params_len = PARAMS,
                       .extents = extents,
                       .n_extents = 2,
                       .seed = seed,
                       .budget = 3000,
                       .threads = 1,
                       .multiprocessors = 4};
    if (e->reqntid[0]) memcpy(l.block, e->reqntid, sizeof l.block);
    if (e->cluster[0]) memcpy(l.cluster, e->cluster, sizeof l.cluster);
    l.grid[0] = l.cluster[0];
    l.grid[1] = l.cluster[1];
    l.grid[2] = l.cluster[2];
    kn_status st = kn_sim_run(m, e->name, &l, NULL);
    require(st == KN_OK || ((st == KN_E_SIM || st == KN_E_LAUNCH || st == KN_E_ARG) && kn_error_message()[0]),
            "a run's status");
    for (size_t k = 0; k < 32; k++)
        require(buffer[k] == 0x5a && buffer[BUFFER + 32 + k] == 0x5a, "a write out of bounds");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    kn_sim_module *m = NULL;
    kn_error_clear();
    kn_status st = kn_sim_parse((const char *)data, size, NULL, NULL, &m);
    require(st == KN_OK || (st == KN_E_SIM && kn_error_message()[0] && !m), "a refusal's status");
    if (st != KN_OK) return 0;
    for (uint32_t k = 0; k < m->n_entries && k < 4; k++)
        for (uint64_t seed = 0; seed < 2; seed++) run(m, &m->entry[k], seed);
    kn_sim_free(m);
    return 0;
}
