/* ops/gemm, inside: what the product planner's files share. */
#ifndef KN_OPS_GEMM_INTERNAL_H
#define KN_OPS_GEMM_INTERNAL_H

#include "ops/gemm.h"

static inline int64_t kn_ceil_div(int64_t a, int64_t b) {
    return a / b + (a % b != 0);
}

/* Generic kernels are planned for one of two numbers of tokens, so that a layer has few of them. Is this call's kernel
 * the one for few? A product whose depth may be in parts has it so where tokens are few: that alone tells its two
 * kernels apart. */
bool kn_gemm_is_for_few(const kn_gemm *g);

/* Tile of the portable kernel: a pure function of the product's sizes. */
typedef struct kn_gemm_tile {
    int64_t bm, bn, warps_m, warps_n;
} kn_gemm_tile;
kn_gemm_tile kn_gemm_portable_tile(const kn_gemm *g, bool generic);
void kn_gemm_portable_emit(kn_program_builder *b, const kn_gemm *g, const kn_problem *p);

/* In how many parts a product's depth is summed up, 1, 2 or 4: of its k blocks (64 deep, those of all segments behind
 * each other) equal parts, rounded up, the last one what is left; then the sums are added in their order, of four parts
 * the second two's sum to the first two's. A pure function of the product's sizes, kinds and types, whatever the
 * device, the path and the alignment, for it shows in the bits. */
int kn_gemm_depth_parts(const kn_gemm *g);
enum { KN_GEMM_DEPTH_BLOCK = 64 };
/* Is every segment's depth a multiple of that? Then no part is longer than the first, all of them are put aside at
 * equal distances, and the distance may be an argument: a generic portable kernel serves token counts that halve the
 * depth and those that take quarters. */
bool kn_gemm_has_whole_blocks(const kn_gemm *g);
/* Counters that the TMA + wgmma kernel needs for that, whatever its tile. */
int64_t kn_gemm_counter_words(const kn_gemm *g);

/* Why one launch of the TMA + wgmma kernel cannot make these products (NULL: it can), and its plan. */
const char *kn_gemm_sm90_refusal(const kn_gemm *const *g, int n, const kn_problem *p, const kn_target *target);
void kn_gemm_sm90_emit(kn_program_builder *b, const kn_gemm *const *g, int n, const kn_problem *p,
                       const kn_device_facts *facts);

/* Bindings that both paths make: a place, a leading stride, and that with the stride from group to group. */
void kn_gemm_bind_place(kn_launch_spec *l, const kn_place *place);
void kn_gemm_bind_ld(kn_launch_spec *l, const kn_gemm_operand *o);
void kn_gemm_bind_strides(kn_launch_spec *l, const kn_gemm_operand *o);
/* The epilogue's parameters and arguments (of "store": from g->d). */
bool kn_gemm_epilogue_is_wide(const kn_gemm *g);
void kn_gemm_epilogue_params(const kn_gemm *g, kn_params *params);
void kn_gemm_bind_epilogue(kn_launch_spec *l, const kn_gemm *g);

#endif
