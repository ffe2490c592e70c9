/* ops/reference: float64 references of all operations, on host tensors, written straight from their definitions.
 *
 * For output i, exact[i] receives the exact result for the stored inputs, without any intermediate rounding, and
 * magnitude[i] the same expression with every factor replaced by its absolute value: what the error bounds of
 * docs/numerics.md are made of. Both are compact row-major float64 buffers; a NULL skips that output, and the arrays
 * themselves may be NULL. Results are double sums in a fixed order, whatever the number of threads.
 *
 * Outputs that are accumulated into (bit i of common.accumulate) are read: call the reference before the operation
 * overwrites them. Options that choose how precisely to compute (math, round_dlogits) do not change a reference. */
#ifndef KN_OPS_REFERENCE_H
#define KN_OPS_REFERENCE_H

#include "jit/program.h"

kn_status kn_load_balance_reference(const kn_call *call, double *const *exact, double *const *magnitude);
kn_status kn_router_reference(const kn_call *call, double *const *exact, double *const *magnitude);
kn_status kn_expert_mlp_reference(const kn_call *call, double *const *exact, double *const *magnitude);
kn_status kn_moe_layer_reference(const kn_call *call, double *const *exact, double *const *magnitude);
kn_status kn_routed_experts_reference(const kn_call *call, double *const *exact, double *const *magnitude);
kn_status kn_gemm_reference(const kn_call *call, double *const *exact, double *const *magnitude);
kn_status kn_grouped_gemm_reference(const kn_call *call, double *const *exact, double *const *magnitude);

#endif
