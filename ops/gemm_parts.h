/* ops/gemm_parts: products whose left side is precise and lies in memory as bf16 parts, on the kernel
 * ptx_templates/gemm_parts_sm90.ptxt: weight gradients of routers.
 *
 *     D[M,N] (+)= (A_0 + A_1 + A_2)^T * B        accumulated in fp32, partial sums promoted
 *
 * The product is described as kn_gemm describes it with a segment a part: all segments have the same B and depth. What
 * does not fit here is the product engine's, to which the parts are segments. */
#ifndef KN_OPS_GEMM_PARTS_H
#define KN_OPS_GEMM_PARTS_H

#include "ops/gemm.h"

/** Whether the kernel can make the product, and is to be preferred to the engine's: sums are long. The segments go from
 * the smallest part to the largest, as the engine is to add them up. */
bool kn_gemm_parts_fits(const kn_gemm *g, const kn_problem *p, const kn_target *target);
void kn_gemm_parts_emit(kn_program_builder *b, const kn_gemm *g, const kn_problem *p);

#endif
