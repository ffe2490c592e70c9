/* ops/expert_mlp: one SwiGLU expert on the tokens that were routed to it, backward. */
#ifndef KN_OPS_EXPERT_MLP_H
#define KN_OPS_EXPERT_MLP_H

#include "jit/program.h"

/* kn_problem.axis[]. */
enum { KN_EXPERT_MLP_B, KN_EXPERT_MLP_T, KN_EXPERT_MLP_H, KN_EXPERT_MLP_F };

kn_status kn_expert_mlp_describe(const kn_call *call, kn_problem *p);
kn_status kn_expert_mlp_plan(const kn_problem *p, const kn_device_facts *facts, const kn_target *target,
                             kn_program *out);

#endif
