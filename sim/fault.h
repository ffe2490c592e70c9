/* sim/fault: reports that need more than one instruction's point of view. */
#ifndef KN_SIM_FAULT_H
#define KN_SIM_FAULT_H

#include "sim/machine.h"

/** "template.ptxt:12" or "PTX line 34". */
void kn_origin_text(const kn_run *run, uint32_t line, char *out, size_t cap);
/** Nothing in m->cluster can run: every warp's position. */
kn_status kn_deadlock(kn_machine *m);

#endif
