/* ops/gemm_choice: from the candidates of a product to the one that is used: the cheapest by the analytic cost, or what
 * a tuning file says; and the explanation of it, for `kiln plan --explain`.
 *
 * A product's key names all that its candidates' times depend on: "wgmma:bf16:k.mn:store.bf16:256x4096x28672" is A with
 * k contiguous times B with n contiguous, M x N x K; the products of one launch stand behind each other with ',',
 * segments with '+'. A candidate's name is frame, rows and columns of the tile, whether the operands are swapped, and
 * whether two or four CTAs share the depth, TMA moves the tensors of the epilogue, two CTAs load B for both, or B
 * rests: "pingpong-128x64-swap", "lean-pingpong-128x192", "coop-128x128-swap-halves", "resident-pingpong-64x256-boxes",
 * "paired-pingpong-128x128-boxes". */
#ifndef KN_OPS_GEMM_CHOICE_H
#define KN_OPS_GEMM_CHOICE_H

#include "ops/gemm_cost.h"

enum { KN_GEMM_NAME_CAP = 64 };

void kn_gemm_candidate_name(const kn_gemm_candidate *c, char out[KN_GEMM_NAME_CAP]);
void kn_gemm_sm90_key(const kn_gemm *const *g, int n, kn_buf *out);

/** The candidate for these products in one launch; explains itself if the program wants it. Fails in the builder. What
 * was measured for these sizes says nothing about a generic kernel, which serves others too. */
kn_gemm_candidate kn_gemm_sm90_pick(kn_program_builder *b, const kn_gemm *const *g, int n, bool generic,
                                    const kn_device_facts *facts);
/** Explain products of one launch that are made in the only way there is: `path` with a tile named `tile`. */
void kn_gemm_explain_only(kn_program_builder *b, const kn_gemm *const *g, int n, const char *path, const char *tile,
                          const char *reason);

#endif
