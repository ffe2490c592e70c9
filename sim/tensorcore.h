/* tensorcore: the tensor core's own accumulation, bit by bit, as pure functions over plain buffers.
 *
 * One step adds C and the k exact products of one instruction at once (k = 16 for bf16 and fp16, 8 for tf32; the k8
 * forms of bf16 and fp16 are one step of 8). With e(x) the exponent that an operand enters the sum with: E   = max of
 * e(C) over a nonzero C and of e(a) + e(b) over the nonzero products (not normalised after multiplying) sum = exact sum
 * of all addends, each truncated toward zero to a multiple of 2^(E-25) D   = sum truncated toward zero to fp32 The bf16
 * and fp16 rule was fitted on an H200 over random dots; docs/simulator.md says which corners were measured. */
#ifndef KN_SIM_TENSORCORE_H
#define KN_SIM_TENSORCORE_H

#include <stdint.h>

typedef enum kn_tc_type { KN_TC_BF16, KN_TC_F16, KN_TC_TF32 } kn_tc_type;

enum { KN_TC_M = 64, KN_TC_N = 256, KN_TC_K = 16, KN_TC_EXP_ZERO = -4000, KN_TC_EXP_INF = 8000 };

/* Decomposed operands of one step: the value as fp32 (exact) and its exponent; KN_TC_EXP_ZERO for a zero. Columns of
 * `b` beyond n up to the next multiple of 8 must hold zeros (kn_tc_b_clear does it). */
typedef struct kn_tc_a {
    float v[KN_TC_M][KN_TC_K];
    int16_t e[KN_TC_M][KN_TC_K];
} kn_tc_a;
typedef struct kn_tc_b {
    float v[KN_TC_K][KN_TC_N] __attribute__((aligned(32)));
    int16_t e[KN_TC_K][KN_TC_N] __attribute__((aligned(32)));
} kn_tc_b;

/** Operand bits (the low 16 for bf16 and fp16, all 32 for tf32, whose low 13 bits are ignored) -> value and exponent.
 */
void kn_tc_decode(kn_tc_type type, uint32_t bits, float *v, int16_t *e);

/** One step for one output: c + sum of k products; element i of b at b[i * b_stride]. k <= KN_TC_K. */
float kn_tc_dot(int k, const float *av, const int16_t *ae, const float *bv, const int16_t *be, int b_stride, float c);

/** One step for m x n outputs in place: d[i * ldd + j], n a multiple of 8. With `zero_c` the old d is taken as 0. */
void kn_tc_step(int m, int n, int k, const kn_tc_a *a, const kn_tc_b *b, int zero_c, float *d, int ldd);

/** mma.sync m16n8k{16,8,4}: registers a[lane][4], b[lane][2], c and d[lane][4] in the PTX fragment layouts. bf16 and
 * fp16 take k 16 or 8, tf32 takes k 8 or 4. */
void kn_tc_mma_sync(kn_tc_type type, int k, uint32_t (*a)[4], uint32_t (*b)[2], float (*c)[4], float (*d)[4]);

#endif
