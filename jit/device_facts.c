/* Reference devices: the facts of machines that are not there, for planning and for the simulator.
 *
 * h200's rates were measured (copy, and sustained bf16 products of large matrices). The others are derived from data
 * sheets: 0.87 of the memory's peak, as the H200 reaches, and the tensor rate by multiprocessors and power, rounded. */
#include "jit/backend.h"

#include <stdio.h>
#include <string.h>

#define MIB(n) (UINT64_C(n) << 20)
#define GIB(n) (UINT64_C(n) << 30)

static const struct {
    const char *key, *name, *target;
    uint32_t multiprocessors;
    uint64_t l2_bytes, memory_bytes;
    double hbm_bytes_per_s, bf16_flops;
} table[] = {
    {"h200", "NVIDIA H200", "sm_90a", 132, MIB(60), GIB(139), 4.3e12, 680e12},
    {"h100-pcie", "NVIDIA H100 PCIe", "sm_90a", 114, MIB(50), GIB(79), 1.77e12, 500e12},
    {"h20", "NVIDIA H20", "sm_90a", 78, MIB(60), GIB(95), 3.5e12, 140e12},
    {"a100", "NVIDIA A100-SXM4-80GB", "sm_80", 108, MIB(40), GIB(79), 1.77e12, 270e12},
    {"rtx-a6000", "NVIDIA RTX A6000", "sm_86", 84, MIB(6), GIB(47), 0.67e12, 120e12},
    {"l40s", "NVIDIA L40S", "sm_89", 142, MIB(96), GIB(44), 0.75e12, 290e12},
    {"b200", "NVIDIA B200", "sm_100", 148, MIB(126), GIB(178), 7.0e12, 1500e12},
    {"rtx-5090", "NVIDIA GeForce RTX 5090", "sm_120", 170, MIB(96), GIB(31), 1.56e12, 200e12},
};
enum { DEVICES = sizeof table / sizeof table[0] };

static kn_status unknown(const char *name) {
    char names[256];
    size_t n = 0;
    for (int k = 0; k < DEVICES; k++) {
        int w = snprintf(names + n, sizeof names - n, "%s%s (%s)", k ? ", " : "", table[k].key, table[k].target);
        if (w > 0 && n + (size_t)w < sizeof names) n += (size_t)w;
    }
    return kn_fail(KN_E_UNSUPPORTED, "no reference device %.64s: known are %s", name, names);
}

kn_status kn_device_facts_by_name(const char *name, kn_device_facts *facts, const kn_target **target) {
    for (int k = 0; k < DEVICES; k++) {
        if (strcmp(table[k].key, name) != 0 && strcmp(table[k].target, name) != 0) continue;
        KN_TRY(kn_target_by_name(table[k].target, target));
        *facts = (kn_device_facts){.cc_major = (*target)->cc / 10,
                                   .cc_minor = (*target)->cc % 10,
                                   .multiprocessors = table[k].multiprocessors,
                                   .smem_per_block = (*target)->smem_per_block,
                                   .smem_per_sm = (*target)->smem_per_sm,
                                   .l2_bytes = table[k].l2_bytes,
                                   .memory_bytes = table[k].memory_bytes,
                                   .hbm_bytes_per_s = table[k].hbm_bytes_per_s,
                                   .bf16_flops = table[k].bf16_flops};
        snprintf(facts->name, sizeof facts->name, "%s", table[k].name);
        return KN_OK;
    }
    return unknown(name);
}
