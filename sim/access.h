/* sim/access: checked accesses of the memory instructions, beside those that machine.h offers to all. */
#ifndef KN_SIM_ACCESS_H
#define KN_SIM_ACCESS_H

#include "sim/machine.h"
#include "sim/ptx_module.h"

/** The worker's cached stretch of global memory for instruction `i`. */
static inline kn_span *kn_span_of(kn_machine *m, const kn_insn *i, bool write) {
    uint32_t at = (uint32_t)(i - m->entry->code) % KN_SPANS;
    return &m->span[write ? KN_SPANS + at : at];
}

kn_status kn_local_at(kn_machine *m, kn_warp *w, const kn_insn *i, int lane, uint64_t offset, uint32_t bytes,
                      uint32_t align, kn_access_kind kind, uint8_t **data);

#endif
