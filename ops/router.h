/* ops/router: router_backward, from the gradient of the routing weights to those of the router's input and weight.
 *
 *     dz[T,E]           from scores, ids and gradients, token by token     ptx_templates/router_dlogits.ptxt
 *     grad_hidden      = dz * gate_weight
 *     grad_gate_weight = dz^T * hidden_states
 *     grad_gate_bias   = column sums of dz
 * Derivation: docs/router.md. */
#ifndef KN_OPS_ROUTER_H
#define KN_OPS_ROUTER_H

#include "jit/program.h"
#include "ops/reference.h"

/* kn_problem.axis[]; T is the token axis. */
enum { KN_ROUTER_T, KN_ROUTER_E, KN_ROUTER_H, KN_ROUTER_K, KN_ROUTER_S };

/* The functions of the registry's row; kn_router_reference stands in ops/reference.h. */
kn_status kn_router_describe(const kn_call *call, kn_problem *p);
kn_status kn_router_plan(const kn_problem *p, const kn_device_facts *facts, const kn_target *target, kn_program *out);

#endif
