/* ops/ref_routed_experts: what the tolerance of grad_topk_weights needs beyond the reference itself. */
#ifndef KN_OPS_REF_ROUTED_EXPERTS_H
#define KN_OPS_REF_ROUTED_EXPERTS_H

#include "jit/program.h"

/** norms[T, K] = |a| * |h| of each slot (|dx'| * |x| where the weight is on the input), 0 for skipped slots: the scale
 *  of the dot product that makes its gradient. */
kn_status kn_routed_experts_slot_norms(const kn_call *call, double *norms);

#endif
