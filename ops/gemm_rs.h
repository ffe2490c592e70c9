/* ops/gemm_rs: products of expert weights with rows of tokens on Hopper, ptx_templates/gemm_rs_sm90.ptxt: the weights
 * are the large operand, read once, and may be fp32; the tokens are 16 bits wide and sorted by expert.
 *
 * A product is described as a kn_gemm of KN_GROUP_M whose segments' A are the tokens (K-major, in the workspace) and
 * whose B are the weights (a tensor [experts, ., .]). */
#ifndef KN_OPS_GEMM_RS_H
#define KN_OPS_GEMM_RS_H

#include "ops/gemm.h"

typedef struct kn_gemm_rs {
    bool fp32;         /* the weights are fp32 */
    bool scaled;       /* fp32 weights become f16, scaled row by row; the tokens are f16 with scales of their own */
    int64_t scales;    /* scaled: where in the workspace lie two bf16 a row of tokens, whose product undoes its scale */
    int products;      /* 1: one 16-bit number of each; 3: hi + lo f16 parts of scaled fp32 numbers */
    int64_t low_bytes; /* products 3: the tokens' lo parts lie this far behind their hi parts */
    bool promote;      /* partial sums move to fp32 registers */
    bool halves;       /* one kernel for few rows and for many: tiles that are at most half full take half the time */
} kn_gemm_rs;

/** Rows of a tile for `rows` rows in `groups` groups, each padded to a multiple of `pad`. */
int64_t kn_gemm_rs_tile(const kn_gemm_rs *how, int64_t rows, int64_t groups, int64_t pad);
/** Whether the weights of a product can be read by TMA. */
bool kn_gemm_rs_fits(const kn_gemm *g, const kn_problem *p, const kn_target *target);
/** Add one product, or two (n = 2) of the same tokens and sizes as one launch. */
void kn_gemm_rs_emit(kn_program_builder *b, const kn_gemm *const *g, int n, const kn_gemm_rs *how, int64_t tile,
                     const kn_problem *p, const kn_device_facts *facts);

#endif
