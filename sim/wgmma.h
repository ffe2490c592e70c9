/* wgmma: shared-memory matrix descriptors and register fragments of wgmma.mma_async, as pure functions.
 *
 * Layouts in 16-byte rows ("chunks"; 8 values of 16 bits or 4 of 32 bits), W = chunks of the swizzle (1, 2, 4, 8),
 * before the address is swizzled: K-major, row r, chunk c of 2:      (r % 8) * W + (r / 8) * SBO + c          (no
 * swizzle: c * LBO) MN-major, chunk c of mn, row k:    c % W + (c / W) * LBO + (k % 8) * W + (k / 8) * SBO (no swizzle:
 * c * SBO + (k % 8) + (k / 8) * LBO) */
#ifndef KN_SIM_WGMMA_H
#define KN_SIM_WGMMA_H

#include "sim/tensorcore.h"

#include <stdbool.h>

typedef struct kn_wgmma_desc {
    uint32_t addr, lbo, sbo; /* bytes */
    uint8_t swizzle;         /* CUtensorMapSwizzle: 0 none, 1 32 B, 2 64 B, 3 128 B */
} kn_wgmma_desc;

/** NULL, or a static sentence. base_offset must be 0: tiles start at a multiple of the swizzle's 256, 512 or 1024
 * bytes. */
const char *kn_wgmma_decode(uint64_t bits, kn_wgmma_desc *out);

/** Number of 16-byte chunks of an operand with `rows` rows of m or n (and the k of one instruction). */
uint32_t kn_wgmma_chunks(kn_tc_type type, uint32_t rows);
/** Byte address of each chunk, in the order that kn_wgmma_load_a and _b take them. */
void kn_wgmma_addresses(const kn_wgmma_desc *d, kn_tc_type type, bool mn_major, uint32_t rows, uint32_t *addr);

/** Decompose an operand from its chunks (chunk i = data + 16 * i), negated when `negate`; rows <= 256. Of A, which has
 * 64 rows, the 16 from row `first` on. */
void kn_wgmma_load_a(kn_tc_type type, bool mn_major, bool negate, uint32_t first, const uint8_t *data, kn_tc_a *a);
void kn_wgmma_load_b(kn_tc_type type, bool mn_major, bool negate, uint32_t rows, const uint8_t *data, kn_tc_b *b);
/** A from registers, 16 rows of one warp: reg[r] is the warp's register r (32 lanes), r < 4. */
void kn_wgmma_load_a_regs(kn_tc_type type, bool negate, const uint32_t *const reg[4], kn_tc_a *a);

/** Where register r of lane `lane` lies in the warp's 16 x N part of D. */
static inline void kn_wgmma_d_place(uint32_t lane, uint32_t r, uint32_t *row, uint32_t *col) {
    *row = (lane >> 2) + 8 * (r >> 1 & 1);
    *col = 8 * (r >> 2) + 2 * (lane & 3) + (r & 1);
}

#endif
