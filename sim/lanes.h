/* sim/lanes: instructions that compute each lane from the same lane's operands. Their prep picks a kernel, a loop over
 * 32 lanes; one executor fetches operands, runs it and writes the result. */
#ifndef KN_SIM_LANES_H
#define KN_SIM_LANES_H

#include "sim/machine.h"

/* src[k]: 32 values of operand k + 1, uint32_t or (8 bytes wide) uint64_t; dst likewise. All lanes are computed, also
 * inactive ones with whatever they hold: a kernel must not trap. */
typedef void kn_kernel(const kn_insn *i, const void *const *src, void *dst);

/** Make `i` run `kernel`; the first operand is the destination, all others are sources. NULL: the form does not exist.
 */
kn_status kn_use_kernel(kn_insn *i, kn_kernel *kernel);

static inline kn_kernel *kn_kernel_of(const kn_insn *i) {
    return (kn_kernel *)(uintptr_t)i->aux;
}

/* S: how a source lane is read, D: how the result is written, EXPR: of a, b, c, e. */
#define KN_KERNEL1(name, S, D, EXPR)                                                                                   \
    static void name(const kn_insn *i, const void *const *src, void *dst) {                                            \
        const S *pa = src[0];                                                                                          \
        D *d = dst;                                                                                                    \
        (void)i;                                                                                                       \
        for (int l = 0; l < KN_LANES; l++) {                                                                           \
            const S a = pa[l];                                                                                         \
            d[l] = (D)(EXPR);                                                                                          \
        }                                                                                                              \
    }
#define KN_KERNEL2(name, S, T, D, EXPR)                                                                                \
    static void name(const kn_insn *i, const void *const *src, void *dst) {                                            \
        const S *pa = src[0];                                                                                          \
        const T *pb = src[1];                                                                                          \
        D *d = dst;                                                                                                    \
        (void)i;                                                                                                       \
        for (int l = 0; l < KN_LANES; l++) {                                                                           \
            const S a = pa[l];                                                                                         \
            const T b = pb[l];                                                                                         \
            d[l] = (D)(EXPR);                                                                                          \
        }                                                                                                              \
    }
#define KN_KERNEL3(name, S, T, U, D, EXPR)                                                                             \
    static void name(const kn_insn *i, const void *const *src, void *dst) {                                            \
        const S *pa = src[0];                                                                                          \
        const T *pb = src[1];                                                                                          \
        const U *pc = src[2];                                                                                          \
        D *d = dst;                                                                                                    \
        (void)i;                                                                                                       \
        for (int l = 0; l < KN_LANES; l++) {                                                                           \
            const S a = pa[l];                                                                                         \
            const T b = pb[l];                                                                                         \
            const U c = pc[l];                                                                                         \
            d[l] = (D)(EXPR);                                                                                          \
        }                                                                                                              \
    }

#endif
