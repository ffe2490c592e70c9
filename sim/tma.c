/* tma: see the header. The encoded map is our own: a magic, the fields, zeros. */
#include "sim/tma.h"

#include <string.h>

enum { MAP_MAGIC = 0x70614d54 }; /* "TMap" */

typedef struct map_bytes {
    uint32_t magic;
    uint8_t dtype, rank, swizzle, l2_promotion;
    uint64_t base, dim[5], stride[4];
    uint32_t box[5];
    uint8_t zero[20];
} map_bytes;
_Static_assert(sizeof(map_bytes) == 128, "a tensor map is 128 bytes");

/* CUtensorMapDataType: bytes of an element; the packed sub-byte types are not modelled. */
static const uint8_t dtype_bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};

/* cuTensorMapEncodeTiled's rules, with the sentence that names the field. */
static kn_status check_map(const kn_sim_tensor_map *t) {
    KN_REQUIRE(t->dtype < sizeof dtype_bytes, KN_E_ARG, "tensor map: data type %u, wanted 0..12", t->dtype);
    KN_REQUIRE(t->rank >= 1 && t->rank <= 5, KN_E_ARG, "tensor map: rank %u, wanted 1..5", t->rank);
    KN_REQUIRE(t->swizzle <= 3, KN_E_ARG, "tensor map: swizzle %u, wanted 0..3", t->swizzle);
    KN_REQUIRE(t->l2_promotion <= 3, KN_E_ARG, "tensor map: L2 promotion %u, wanted 0..3", t->l2_promotion);
    KN_REQUIRE(t->base != NULL && (uintptr_t)t->base % 16 == 0, KN_E_ALIGN,
               "tensor map: base address %p, wanted a multiple of 16", t->base);
    for (int d = 0; d < t->rank; d++) {
        KN_REQUIRE(t->dim[d] >= 1 && t->dim[d] <= (UINT64_C(1) << 32), KN_E_SHAPE,
                   "tensor map: dimension %d has %llu elements, wanted 1..2^32", d, (unsigned long long)t->dim[d]);
        KN_REQUIRE(t->box[d] >= 1 && t->box[d] <= 256, KN_E_SHAPE, "tensor map: box[%d] is %u, wanted 1..256", d,
                   t->box[d]);
        if (d > 0) {
            uint64_t s = t->stride[d - 1];
            KN_REQUIRE(s % 16 == 0 && s < (UINT64_C(1) << 40), KN_E_ALIGN,
                       "tensor map: stride of dimension %d is %llu bytes, wanted a multiple of 16 below 2^40", d,
                       (unsigned long long)s);
        }
    }
    uint32_t inner = t->box[0] * dtype_bytes[t->dtype];
    KN_REQUIRE(inner % 16 == 0, KN_E_SHAPE, "tensor map: the inner box is %u bytes, wanted a multiple of 16", inner);
    KN_REQUIRE(t->swizzle == 0 || inner <= 16u << t->swizzle, KN_E_SHAPE,
               "tensor map: the inner box is %u bytes, wanted at most the swizzle's %u", inner, 16u << t->swizzle);
    KN_REQUIRE(t->swizzle == 0 || inner == 16u << t->swizzle, KN_E_UNSUPPORTED,
               "tensor map: the inner box is %u bytes, narrower than the swizzle's %u: not modelled", inner,
               16u << t->swizzle);
    return KN_OK;
}

kn_status kn_sim_encode_tensor_map(const kn_sim_tensor_map *map, uint8_t out[128]) {
    KN_TRY(check_map(map));
    map_bytes m = {.magic = MAP_MAGIC,
                   .dtype = map->dtype,
                   .rank = map->rank,
                   .swizzle = map->swizzle,
                   .l2_promotion = map->l2_promotion,
                   .base = (uint64_t)(uintptr_t)map->base};
    for (int d = 0; d < 5; d++) {
        m.dim[d] = d < map->rank ? map->dim[d] : 1;
        m.box[d] = d < map->rank ? map->box[d] : 1;
        if (d > 0) m.stride[d - 1] = d < map->rank ? map->stride[d - 1] : 0;
    }
    memcpy(out, &m, sizeof m);
    return KN_OK;
}

const char *kn_tma_decode(const uint8_t map[128], kn_tma_map *out) {
    static const map_bytes blank;
    map_bytes m;
    memcpy(&m, map, sizeof m);
    if (m.magic != MAP_MAGIC || memcmp(m.zero, blank.zero, sizeof m.zero) != 0)
        return "these 128 bytes are no tensor map";
    if (m.dtype >= sizeof dtype_bytes || m.rank < 1 || m.rank > 5 || m.swizzle > 3) return "the tensor map is damaged";
    *out = (kn_tma_map){.dtype = m.dtype, .rank = m.rank, .swizzle = m.swizzle, .base = m.base};
    out->elem_bytes = dtype_bytes[m.dtype];
    out->box_bytes = out->elem_bytes;
    for (int d = 0; d < 5; d++) {
        if (m.box[d] < 1 || m.box[d] > 256 || m.dim[d] < 1) return "the tensor map is damaged";
        out->dim[d] = m.dim[d];
        out->box[d] = m.box[d];
        out->stride[d] = d ? m.stride[d - 1] : out->elem_bytes;
        out->box_bytes *= m.box[d];
    }
    return NULL;
}

/* The pieces of one inner row. `row` is the address of element 0 of the row in the tensor, `inside` whether the outer
 * coordinates lie in the tensor. */
static kn_status walk_row(const kn_tma_map *map, int64_t x, uint64_t row, bool inside, uint32_t smem,
                          kn_tma_visit *visit, void *user) {
    int64_t bytes = (int64_t)map->box[0] * map->elem_bytes, start = x * map->elem_bytes;
    int64_t end = (int64_t)map->dim[0] * map->elem_bytes;
    for (int64_t at = 0; at < bytes; at += 16) {
        int64_t lo = start + at, hi = lo + 16; /* byte range in the row */
        int64_t from = lo < 0 ? 0 : lo, to = hi > end ? end : hi;
        kn_tma_piece p = {.smem = kn_tma_swizzle(map->swizzle, smem + (uint32_t)at), .len = 16};
        if (inside && from < to) {
            p.skip = (uint8_t)(from - lo);
            p.valid = (uint8_t)(to - from);
            p.global = row + (uint64_t)from;
        }
        KN_TRY(visit(user, &p));
    }
    return KN_OK;
}

kn_status kn_tma_walk(const kn_tma_map *map, const int32_t coord[5], uint32_t smem, kn_tma_visit *visit, void *user) {
    uint32_t at[5] = {0};
    for (;;) {
        bool inside = true;
        uint64_t row = map->base;
        for (int d = 1; d < map->rank; d++) {
            int64_t c = (int64_t)coord[d] + at[d];
            if (c < 0 || c >= (int64_t)map->dim[d])
                inside = false;
            else
                row += (uint64_t)c * map->stride[d];
        }
        KN_TRY(walk_row(map, coord[0], row, inside, smem, visit, user));
        smem += map->box[0] * map->elem_bytes;
        int d = 1;
        while (d < map->rank && ++at[d] == map->box[d]) at[d++] = 0;
        if (d >= map->rank) return KN_OK;
    }
}
