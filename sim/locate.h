/* sim/locate: from the lanes' addresses to host pointers, with every check on the way. */
#ifndef KN_SIM_LOCATE_H
#define KN_SIM_LOCATE_H

#include "sim/machine.h"

/** Host pointers of `bytes` (a power of two, the alignment too) at each active lane's address in `space`. Bounds,
 *  alignment, initialisation and ordering are checked; writes are marked as done. */
kn_status kn_locate(kn_machine *m, kn_warp *w, const kn_insn *i, const uint64_t addr[32], kn_space space,
                    uint32_t active, uint32_t bytes, kn_access_kind kind, uint8_t *out[32]);

#endif
