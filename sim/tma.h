/* tma: tensor maps and the walk over one box, as pure functions: which global bytes go where in shared memory.
 *
 * Modelled: tiled maps of 1 to 5 dimensions, no interleave, element strides of 1, zero fill. With a swizzle the inner
 * box must be exactly as wide as the swizzle (the layout of narrower ones is not documented). */
#ifndef KN_SIM_TMA_H
#define KN_SIM_TMA_H

#include "base/status.h"
#include "sim/sim.h"

#include <stdbool.h>

typedef struct kn_tma_map {
    uint8_t dtype, rank, swizzle, elem_bytes;
    uint64_t base;
    uint64_t dim[5];    /* elements; 1 beyond rank */
    uint64_t stride[5]; /* bytes; [0] = elem_bytes */
    uint32_t box[5];    /* elements; 1 beyond rank */
    uint32_t box_bytes;
} kn_tma_map;

/** Decode what kn_sim_encode_tensor_map wrote. NULL, or a static sentence: the bytes are no tensor map. */
const char *kn_tma_decode(const uint8_t map[128], kn_tma_map *out);

/** Shared-memory byte address -> the address where the swizzle puts it (modes of CUtensorMapSwizzle). */
static inline uint32_t kn_tma_swizzle(uint8_t mode, uint32_t addr) {
    return addr ^ ((addr >> 3) & ((1u << mode) - 1u) << 4);
}

/* One stretch of a box: `len` <= 16 bytes at shared address `smem` (swizzled); the first `valid` of them, from byte
 * `skip` on, exist in the tensor at `global` (the address of byte `skip`), the others are out of bounds. */
typedef struct kn_tma_piece {
    uint32_t smem;
    uint8_t len, skip, valid;
    uint64_t global;
} kn_tma_piece;
typedef kn_status kn_tma_visit(void *user, const kn_tma_piece *piece);

/** Visit all pieces of the box at `coord` (elements, may lie outside) that lands at shared address `smem`. */
kn_status kn_tma_walk(const kn_tma_map *map, const int32_t coord[5], uint32_t smem, kn_tma_visit *visit, void *user);

/* Element-wise reductions of cp.reduce.async.bulk, acc = op(acc, v) over `bytes` bytes. */
typedef enum kn_tma_op {
    KN_TMA_ADD,
    KN_TMA_MIN,
    KN_TMA_MAX,
    KN_TMA_AND,
    KN_TMA_OR,
    KN_TMA_XOR,
    KN_TMA_INC,
    KN_TMA_DEC
} kn_tma_op;
typedef enum kn_tma_elem {
    KN_TMA_U32,
    KN_TMA_S32,
    KN_TMA_U64,
    KN_TMA_S64,
    KN_TMA_F16,
    KN_TMA_BF16,
    KN_TMA_F32,
    KN_TMA_F64,
    KN_TMA_B32,
    KN_TMA_B64
} kn_tma_elem;

/** Bytes of an element, or 0 if the unit has no such reduction. */
uint32_t kn_tma_reduce_bytes(kn_tma_op op, kn_tma_elem elem);
void kn_tma_reduce(kn_tma_op op, kn_tma_elem elem, uint8_t *acc, const uint8_t *v, uint32_t bytes);
/** The element type of a map's dtype for tensor reductions; false if it has none. */
bool kn_tma_map_elem(uint8_t dtype, kn_tma_elem *out);

#endif
