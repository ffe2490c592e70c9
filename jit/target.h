/* jit/target: the exact table of GPU architectures, what each may use, and the rule that picks PTX's .version. */
#ifndef KN_JIT_TARGET_H
#define KN_JIT_TARGET_H

#include "base/status.h"

#include <stdbool.h>

typedef struct kn_target {
    char name[16];           /* .target and -arch: "sm_90a" */
    uint32_t cc;             /* compute capability x 10: 90 */
    uint32_t min_ptx;        /* lowest .version that knows the target: 80 = 8.0 */
    bool wgmma;              /* sm_90a alone */
    bool tma, cluster;       /* bulk tensor copies, thread-block clusters: 9.0 and up */
    uint32_t smem_per_block; /* bytes a block may opt in to */
    uint32_t smem_per_sm;
} kn_target;

/** By name ("sm_90a", "sm_80"); KN_E_UNSUPPORTED naming the table's entries otherwise. */
kn_status kn_target_by_name(const char *name, const kn_target **out);
/** The target to compile for on a device of that compute capability: sm_90a for exactly 9.0, the device's own number
 *  for the others in the table, and for a newer unknown minor or major of at least 8.0 the portable sm_80 PTX is
 *  refused with KN_E_UNSUPPORTED: a cubin must match its device. */
kn_status kn_target_for_device(int cc_major, int cc_minor, const kn_target **out);
/** Table access for listings. */
int kn_target_count(void);
const kn_target *kn_target_at(int i);

/** .version for PTX that needs `feature_ptx` on `target`, given the newest version that the assembler (0: none) and,
 *  when the driver assembles, the driver accept. Never lowered: a need above the cap is KN_E_UNSUPPORTED naming both.
 */
kn_status kn_ptx_version(const kn_target *target, uint32_t feature_ptx, uint32_t assembler_cap, uint32_t *out);
/** Newest PTX version that a driver or toolkit release (13000 = 13.0) accepts. */
uint32_t kn_ptx_version_of_cuda(int cuda_version);
/** Oldest driver (12000 = 12.0) that loads a cubin of this assembler release: same major, any minor. */
int kn_driver_for_cubin(int assembler_version);

#endif
