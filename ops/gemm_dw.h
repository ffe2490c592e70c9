/* ops/gemm_dw: gradients of expert weights on Hopper, ptx_templates/gemm_dw_sm90.ptxt: few rows of tokens make a large
 * matrix an expert, written by bulk copies.
 *
 * A product is described as a kn_gemm of KN_GROUP_K: A and B lie in the workspace row by row, 16 bits wide, every
 * expert's rows padded to a multiple of 16 with rows of zeros; D is a tensor [experts, m, n]. */
#ifndef KN_OPS_GEMM_DW_H
#define KN_OPS_GEMM_DW_H

#include "ops/gemm.h"

enum { KN_GEMM_DW_MAX = 3 };

/** Whether the kernel can make and store this product. */
bool kn_gemm_dw_fits(const kn_gemm *g, const kn_problem *p, const kn_target *target);
/** Add up to KN_GEMM_DW_MAX products of the same rows, types and `accumulate` as one launch. */
void kn_gemm_dw_emit(kn_program_builder *b, const kn_gemm *const *g, int n, const kn_problem *p,
                     const kn_device_facts *facts);

#endif
