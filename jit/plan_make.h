/* jit/plan_make: one plan, from the planner's program to loaded kernels and laid-out parameter blocks. */
#ifndef KN_JIT_PLAN_MAKE_H
#define KN_JIT_PLAN_MAKE_H

#include "jit/plan.h"

/** A plan that no table holds yet, for exactly `p`; *out NULL with KN_OK if `want` does not reach its kernels. */
kn_status kn_plan_make(kn_engine *e, const kn_op *op, const kn_problem *p, kn_want want, kn_plan **out);
void kn_plan_free(kn_engine *e, kn_plan *plan);

#endif
