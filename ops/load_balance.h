/* ops/load_balance: load_balance_backward, one streaming kernel.
 *
 *     out[b,e] = grad_expert_mask[b,e] + grad_tokens_per_expert[e] + (training ? grad_load_balance_loss / (B*K) : 0) */
#ifndef KN_OPS_LOAD_BALANCE_H
#define KN_OPS_LOAD_BALANCE_H

#include "jit/program.h"
#include "ops/reference.h"

/* kn_problem.axis[]; B is the token axis. */
enum { KN_LOAD_BALANCE_B, KN_LOAD_BALANCE_E, KN_LOAD_BALANCE_K };

/* The functions of the registry's row; kn_load_balance_reference stands in ops/reference.h. */
kn_status kn_load_balance_describe(const kn_call *call, kn_problem *p);
kn_status kn_load_balance_plan(const kn_problem *p, const kn_device_facts *facts, const kn_target *target,
                               kn_program *out);

#endif
