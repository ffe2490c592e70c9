/* ops/gemm_parts: plans of products with a left side in bf16 parts: see gemm_parts.h.
 *
 * Beside one pass of the engine over a depth of three times K this reads B once, and keeps the precision that the parts
 * have however long the sum is. With 128 experts and 4096 columns a tile of 128 x 64 makes 64 tiles: two blocks a tile
 * fill a machine of 132 multiprocessors. How K is cut depends on the sizes alone. */
#include "ops/gemm_parts.h"

#include "ops/gemm_choice.h"

#include <limits.h>
#include <stdio.h>

enum {
    TILE_M = 128,
    TILE_N = 64,
    K_BLOCK = 64,
    PROMOTE_BLOCKS = 8, /* 512 of k: the adder's bias stays below 1e-6 */
    LONG = 1024,        /* depth up to which the engine's own sums are as good */
    WANTED_BLOCKS = 128,
    STAGES = 4,   /* of 3 parts; 2 would hide the latency of loads no more */
    MAP_BF16 = 9, /* CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 */
    SWIZZLE_128B = 3,
    PROMOTE_128B = 2
};

static bool is_aligned_bf16(const kn_gemm_operand *o) {
    return o->dtype == KN_BF16 && !o->depth_contiguous && o->align_log2 >= 4;
}

static bool same_rows(const kn_gemm_operand *a, const kn_gemm_operand *b) {
    return a->place.in_workspace == b->place.in_workspace && a->place.arg == b->place.arg &&
           a->place.offset_bytes == b->place.offset_bytes && a->stride_dim == b->stride_dim &&
           a->stride_elems == b->stride_elems;
}

bool kn_gemm_parts_fits(const kn_gemm *g, const kn_problem *p, const kn_target *target) {
    if (!target->wgmma || p->portable || g->group != KN_GROUP_NONE || g->gather_dtype != KN_DTYPE_NONE) return false;
    if (g->segment[0].k <= LONG || g->m == 0 || g->n == 0) return false;
    for (int s = 0; s < g->n_segments; s++) {
        if (!is_aligned_bf16(&g->segment[s].a) || !is_aligned_bf16(&g->segment[s].b)) return false;
        if (g->segment[s].k != g->segment[0].k || !same_rows(&g->segment[s].b, &g->segment[0].b)) return false;
    }
    return g->m <= INT_MAX - TILE_M && g->n <= INT_MAX - TILE_N &&
           kn_ceil_div(g->m, TILE_M) <= INT_MAX / 2 / kn_ceil_div(g->n, TILE_N);
}

static void bind_map(kn_program_builder *b, kn_launch_spec *l, const kn_gemm_operand *o, int64_t extent, int64_t k) {
    kn_map_spec m = {.from_workspace = o->place.in_workspace,
                     .arg = (uint8_t)(o->place.in_workspace ? 0 : o->place.arg),
                     .offset_bytes = o->place.offset_bytes,
                     .stride_dim = {(int8_t)o->stride_dim, -1, -1, -1}};
    m.map = (kn_tensor_map){.dtype = MAP_BF16,
                            .rank = 2,
                            .swizzle = SWIZZLE_128B,
                            .l2_promotion = PROMOTE_128B,
                            .dim = {(uint64_t)extent, (uint64_t)k},
                            .box = {K_BLOCK, K_BLOCK}};
    if (o->stride_dim < 0) m.map.stride[0] = (uint64_t)o->stride_elems * kn_dtype_size(o->dtype);
    kn_bind_map(l, kn_add_map(b, &m));
}

void kn_gemm_parts_emit(kn_program_builder *b, const kn_gemm *g, const kn_problem *p) {
    int64_t tiles = kn_ceil_div(g->m, TILE_M) * kn_ceil_div(g->n, TILE_N), k = g->segment[0].k;
    int64_t split = 2 * tiles <= WANTED_BLOCKS ? 2 : 1;
    char tile[KN_GEMM_NAME_CAP];
    snprintf(tile, sizeof tile, "%dx%d%s", TILE_M, TILE_N, split > 1 ? "-halves" : "");
    kn_gemm_explain_only(b, &g, 1, "parts", tile, "a long sum of a left side in bf16 parts");
    int kernel;
    kn_params *params = kn_add_kernel(b, "gemm_parts_sm90.ptxt", &kernel);
    kn_params_set_name(params, "SYMBOL", g->symbol);
    kn_params_set(params, "M", g->m);
    kn_params_set(params, "N", g->n);
    kn_params_set(params, "K", g->k_is_tokens && p->generic ? -1 : k);
    kn_params_set(params, "PARTS", g->n_segments);
    kn_params_set(params, "SPLIT", split);
    kn_params_set(params, "STAGES", STAGES);
    kn_params_set(params, "PROMOTE", PROMOTE_BLOCKS);
    kn_gemm_epilogue_params(g, params);
    int64_t at_once = p->sm_limit >= split ? p->sm_limit / split : p->sm_limit ? 1 : tiles;
    kn_launch_spec *l = kn_add_launch(b, kernel, (uint32_t)((tiles < at_once ? tiles : at_once) * split), 1, 1);
    l->dependent = true;
    for (int s = g->n_segments - 1; s >= 0; s--) bind_map(b, l, &g->segment[s].a, g->m, k);
    bind_map(b, l, &g->segment[0].b, g->n, k);
    kn_gemm_bind_epilogue(l, g);
    kn_bind_i32(l, (int32_t)k);
}
