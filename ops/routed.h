/* ops/routed: routed_experts_backward: all routed experts of one layer, from the tokens' gradients to the gradients of
 * tokens, routing weights and expert weights. docs/routed_experts.md derives the steps. */
#ifndef KN_OPS_ROUTED_H
#define KN_OPS_ROUTED_H

#include "jit/program.h"
#include "ops/reference.h"

/* kn_problem.axis[]; T is the token axis. */
enum { KN_ROUTED_T, KN_ROUTED_H, KN_ROUTED_I, KN_ROUTED_L, KN_ROUTED_K };

/* The functions of the registry's row; kn_routed_experts_reference stands in ops/reference.h. */
kn_status kn_routed_experts_describe(const kn_call *call, kn_problem *p);
kn_status kn_routed_experts_plan(const kn_problem *p, const kn_device_facts *facts, const kn_target *target,
                                 kn_program *out);

#endif
