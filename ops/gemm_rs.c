/* ops/gemm_rs: plans products of expert weights with rows of tokens on ptx_templates/gemm_rs_sm90.ptxt. */
#include "ops/gemm_rs.h"

#include "ops/gemm_choice.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    BM = 128, /* weight rows of a tile */
    BK = 64,
    FIXED_BYTES = 1024,       /* mbarriers, alignment */
    PATCHES_BYTES = 8 * 5120, /* of epilogues that pass through shared memory */
    MAX_STAGES = 8,
    PROMOTE_BLOCKS = KN_GEMM_PROMOTE_CHAIN / BK,
    /* Rows of a tile that may be taken as a half: more spill registers, beside fp32 weights too. */
    WIDE_TILE = 192,
    WIDE_TILE_F32 = 160,
    MAP_F32 = 7, /* CU_TENSOR_MAP_DATA_TYPE_FLOAT32 */
    MAP_BF16 = 9,
    MAP_F16 = 6,
    SWIZZLE_128B = 3,
    PROMOTE_128B = 2
};

/* Most rows of a tile whose accumulators and fragments leave wgmma enough registers. */
static int64_t most_rows(const kn_gemm_rs *how) {
    if (!how->fp32) return 256;
    return how->products == 3 ? 96 : 224;
}

/* How often an expert's weights are read on average, for tiles of `tile` rows. Tokens that choose their experts at
 * random give counts that are nearly normal, with a variance like their mean. */
static double passes(double mean, int64_t tile) {
    double deviation = sqrt(mean), sum = 0;
    for (int n = 0; n < 1000; n++) {
        double more = 0.5 * erfc(((double)(n * tile) + 0.5 - mean) / (deviation * sqrt(2.0)));
        if (more < 1e-4) break;
        sum += more;
    }
    return sum;
}

/* Time of one pass in units of reading the weights alone: the memory, and the tensor cores beyond so many rows, as an
 * H200 was measured (docs/routed_experts.md); near the crossing both count. */
static double pass_time(const kn_gemm_rs *how, int64_t tile) {
    double rows = how->products == 3 ? 99 : (how->fp32 ? 214 : 107);
    return pow(1 + pow((double)tile / rows, 4), 0.25);
}

int64_t kn_gemm_rs_tile(const kn_gemm_rs *how, int64_t rows, int64_t groups, int64_t pad) {
    int64_t step = pad < 8 ? 8 : pad, best = step;
    if (how->halves) return how->products == 3 ? most_rows(how) : how->fp32 ? WIDE_TILE_F32 : WIDE_TILE;
    double mean = (double)rows / (double)(groups ? groups : 1) + 0.5 * (double)pad, best_time = -1;
    for (int64_t tile = step; tile <= most_rows(how); tile += step) {
        double time = passes(mean, tile) * pass_time(how, tile);
        if (best_time < 0 || time < best_time) {
            best_time = time;
            best = tile;
        }
    }
    return best;
}

bool kn_gemm_rs_fits(const kn_gemm *g, const kn_problem *p, const kn_target *target) {
    if (!target->wgmma || p->portable || g->n % 8 != 0 || !kn_gemm_epilogue_is_wide(g)) return false;
    for (int s = 0; s < g->n_segments; s++) {
        const kn_gemm_operand *weights = &g->segment[s].b;
        if (g->segment[s].k % 8 != 0 || weights->align_log2 < 4) return false;
    }
    return true;
}

static uint8_t map_type(kn_dtype t) {
    return t == KN_F32 ? MAP_F32 : (t == KN_BF16 ? MAP_BF16 : MAP_F16);
}

/* The weights [experts, ., .]: boxes of 128 bytes along the contiguous axis. */
static int weight_map(kn_program_builder *b, const kn_gemm *g, int s) {
    const kn_gemm_operand *w = &g->segment[s].b;
    uint32_t size = kn_dtype_size(w->dtype);
    kn_map_spec m = {.arg = (uint8_t)w->place.arg, .stride_dim = {(int8_t)w->stride_dim, -1, -1, -1}};
    m.map =
        (kn_tensor_map){.dtype = map_type(w->dtype), .rank = 3, .swizzle = SWIZZLE_128B, .l2_promotion = PROMOTE_128B};
    m.map.dim[0] = (uint64_t)(w->depth_contiguous ? g->segment[s].k : g->n);
    m.map.dim[1] = (uint64_t)(w->depth_contiguous ? g->n : g->segment[s].k);
    m.map.dim[2] = (uint64_t)g->n_groups;
    m.map.box[0] = 128 / size;
    m.map.box[1] = w->depth_contiguous ? BM : BK;
    m.map.box[2] = 1;
    if (g->n_groups > 1) {
        m.stride_dim[1] = (int8_t)w->group_dim;
    } else { /* the stride of an axis of size 1 may be anything; TMA wants a multiple of 16 */
        m.map.stride[1] = m.map.dim[0] * m.map.dim[1] * size;
    }
    return kn_add_map(b, &m);
}

/* Boxes of `rows` rows. */
static int token_map(kn_program_builder *b, const kn_gemm *g, int s, int64_t skip_bytes, int64_t rows) {
    const kn_gemm_operand *x = &g->segment[s].a;
    kn_map_spec m = {
        .from_workspace = true, .offset_bytes = x->place.offset_bytes + skip_bytes, .stride_dim = {-1, -1, -1, -1}};
    m.map =
        (kn_tensor_map){.dtype = map_type(x->dtype), .rank = 2, .swizzle = SWIZZLE_128B, .l2_promotion = PROMOTE_128B};
    m.map.dim[0] = (uint64_t)g->segment[s].k;
    m.map.dim[1] = (uint64_t)g->m;
    m.map.box[0] = BK;
    m.map.box[1] = (uint32_t)rows;
    m.map.stride[0] = (uint64_t)x->stride_elems * kn_dtype_size(x->dtype);
    return kn_add_map(b, &m);
}

static int64_t stages_of(const kn_gemm *g, const kn_gemm_rs *how, int64_t tile, const kn_device_facts *facts) {
    int64_t parts = how->products == 3 ? 2 : 1;
    int64_t stage = BM * BK * (int64_t)kn_dtype_size(g->segment[0].b.dtype) + tile * BK * 2 * parts;
    int64_t fixed = FIXED_BYTES + (strcmp(g->epilogue, "store") == 0 ? 0 : PATCHES_BYTES);
    int64_t n = ((int64_t)facts->smem_per_block - fixed) / stage;
    return n > MAX_STAGES ? MAX_STAGES : n;
}

static void fill_params(kn_params *params, const kn_gemm *g, int n, const kn_gemm_rs *how, int64_t tile,
                        int64_t entries, const kn_problem *p, const kn_device_facts *facts) {
    const kn_gemm_operand *w = &g->segment[0].b;
    kn_params_set_name(params, "SYMBOL", g->symbol);
    kn_params_set(params, "M", g->n);
    kn_params_set(params, "K", g->segment[0].k);
    kn_params_set(params, "EXPERTS", g->n_groups);
    kn_params_set(params, "PROBLEMS", n);
    kn_params_set(params, "SEGMENTS", g->n_segments);
    kn_params_set(params, "ENTRIES", g->m_is_tokens && p->generic ? -1 : entries);
    kn_params_set_name(params, "W_T", kn_dtype_name(w->dtype));
    kn_params_set_name(params, "A_MAJOR", w->depth_contiguous ? "k" : "mn");
    kn_params_set(params, "PRODUCTS", how->products);
    kn_params_set(params, "SCALED", how->scaled);
    kn_params_set(params, "PROMOTE", how->promote ? PROMOTE_BLOCKS : 0);
    kn_params_set_name(params, "OFFSETS_T", g->offsets_dtype == KN_I64 ? "s64" : "s32");
    kn_params_set(params, "BN", tile);
    kn_params_set(params, "HALVES", how->halves);
    kn_params_set(params, "STAGES", stages_of(g, how, tile, facts));
    kn_gemm_epilogue_params(g, params);
}

void kn_gemm_rs_emit(kn_program_builder *b, const kn_gemm *const *g, int n, const kn_gemm_rs *how, int64_t tile,
                     const kn_problem *p, const kn_device_facts *facts) {
    int64_t entries = kn_gemm_tile_map_entries(g[0]->m, g[0]->n_groups, tile);
    if (entries == 0) return;
    int64_t tiles = kn_ceil_div(g[0]->n, BM) * n, sms = facts->multiprocessors ? facts->multiprocessors : 1;
    if (p->sm_limit && p->sm_limit < sms) sms = p->sm_limit;
    if (entries > INT_MAX / tiles) {
        b->status = kn_fail(KN_E_SHAPE, "%lld rows of %lld columns are too many tiles; at most 2^31",
                            (long long)g[0]->m, (long long)g[0]->n);
        return;
    }
    char name[KN_GEMM_NAME_CAP];
    snprintf(name, sizeof name, "%dx%d", BM, (int)tile);
    kn_gemm_explain_only(b, g, n, "rs", name,
                         "expert weights are read once, by the tile of rows that takes the fewest passes");
    int kernel;
    fill_params(kn_add_kernel(b, "gemm_rs_sm90.ptxt", &kernel), g[0], n, how, tile, entries, p, facts);
    int64_t items = entries * tiles;
    kn_launch_spec *l = kn_add_launch(b, kernel, (uint32_t)(items < sms ? items : sms), 1, 1);
    l->dependent = true;
    for (int i = 0; i < n; i++) {
        for (int s = 0; s < g[i]->n_segments; s++) kn_bind_map(l, weight_map(b, g[i], s));
    }
    int64_t box = how->halves ? tile / 2 : tile;
    for (int s = 0; s < g[0]->n_segments; s++) {
        kn_bind_map(l, token_map(b, g[0], s, 0, box));
        if (how->products == 3) kn_bind_map(l, token_map(b, g[0], s, how->low_bytes, box));
    }
    kn_gemm_bind_place(l, &g[0]->offsets);
    kn_gemm_bind_place(l, &g[0]->tile_map);
    if (how->scaled) kn_bind_workspace(l, how->scales);
    for (int i = 0; i < n; i++) kn_gemm_bind_epilogue(l, g[i]);
    kn_bind_i32(l, (int32_t)entries);
}
