/* sim/fault: reports that need more than one instruction's point of view. */
#ifndef KN_SIM_FAULT_H
#define KN_SIM_FAULT_H

#include "sim/machine.h"

/** Nothing in m->cluster can run: every warp's position. */
kn_status kn_deadlock(kn_machine *m);

#endif
