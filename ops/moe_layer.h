/* ops/moe_layer: moe_layer_backward, the shared expert and the sigmoid router of one layer.
 *
 *     a = grad_output * down;  du = a . silu(gate_out);  dg = a . up_out . silu'(gate_out)
 *     grad_gate = dg^T * hidden;  grad_up = du^T * hidden;  grad_down = grad_output^T * activated
 *     grad_router = dz^T * hidden;  grad_hidden = du * up + dg * gate + dz * router
 *
 * dz, the gradient of the router's logits, is the first kernel's: see ptx_templates/moe_layer_router.ptxt. */
#ifndef KN_OPS_MOE_LAYER_H
#define KN_OPS_MOE_LAYER_H

#include "jit/program.h"
#include "ops/reference.h"

/* kn_problem.axis[]; T is the token axis. */
enum { KN_MOE_LAYER_T, KN_MOE_LAYER_H, KN_MOE_LAYER_I, KN_MOE_LAYER_E, KN_MOE_LAYER_K };

/* The functions of the registry's row; kn_moe_layer_reference stands in ops/reference.h. */
kn_status kn_moe_layer_describe(const kn_call *call, kn_problem *p);
kn_status kn_moe_layer_plan(const kn_problem *p, const kn_device_facts *facts, const kn_target *target,
                            kn_program *out);

#endif
