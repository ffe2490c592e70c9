/* sim/exec_copy: cp.async, as the mbarrier unit needs it for cp.async.mbarrier.arrive. */
#ifndef KN_SIM_EXEC_COPY_H
#define KN_SIM_EXEC_COPY_H

#include "sim/machine.h"

/** A mark behind all cp.async that the warp has issued so far. */
uint64_t kn_copy_mark(const kn_warp *w);
/** Have all cp.async of `lane` before the mark copied their bytes? */
bool kn_copy_done(const kn_warp *w, int lane, uint64_t mark);
/** What `lane` copied before the mark may be read from now on (by who is ordered behind). All must be done. */
kn_status kn_copy_publish(kn_machine *m, kn_warp *w, int lane, uint64_t mark);

#endif
