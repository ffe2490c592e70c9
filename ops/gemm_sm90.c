/* ops/gemm_sm90: plans products on the TMA + wgmma kernel, ptx_templates/gemm_sm90.ptxt: bf16 and f16, aligned, on
 * sm_90a.
 *
 * A plan is a tile, a way to share it, and which operand is wgmma's A ("swap": the weights, so that a ragged number of
 * tokens is padded to a multiple of 8 alone). Candidates are ranked by an analytic cost in clocks of one
 * multiprocessor, from what an H200 was measured to do (docs/gemm.md): 4096 FLOP a clock, what the L2 and the memory
 * deliver, whole waves of tiles, a first tile's latency and an epilogue. No candidate changes a bit of the result. */
#include "ops/gemm_internal.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum {
    K_BLOCK = 64,
    FIXED_BYTES = 1024,       /* mbarriers, alignment */
    PATCHES_BYTES = 8 * 5120, /* of epilogues that pass through shared memory */
    MAX_STAGES = 12,
    MAX_PROBLEMS = 4,
    MAP_BF16 = 9, /* CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 */
    MAP_F16 = 6,
    SWIZZLE_128B = 3,
    PROMOTE_128B = 2
};
/* What the cost is made of, in clocks of a multiprocessor at 1.7 GHz. docs/gemm.md says how well it ranks what was
 * measured. */
static const double FIRST_TILE = 3000;
static const double EPILOGUE = 300, EPILOGUE_128X128 = 1000; /* of any tile, and in proportion to its size */
static const double COOP = 1.03;                             /* consumers that share a tile wait for each other */
static const double L2_BYTES = 62;        /* a clock, of one multiprocessor, neighbours reading the same tiles */
static const double HBM_BYTES = 2300;     /* a clock, of the device */
static const double OUTSIDE_ROW = 3.8;    /* a row of a K-major box that lies outside of its matrix */
static const double REREAD = 0.4;         /* of a large operand, for each further tile that shares it, up to three */
static const double LARGE_OPERAND = 32e6; /* bytes that the L2 does not keep */

typedef struct candidate {
    bool swap, coop;
    int mb, bn;
} candidate;

/* Beside these: tiles whose bn divides the tokens with the least rest. No tile needs more than 128 accumulators a
 * thread: nvJitLink assembles relocatable code, in which setmaxnreg is ignored and a thread has 168 registers. */
static const struct {
    bool coop;
    int mb, bn;
} shapes[] = {{false, 2, 128}, {false, 1, 256}, {false, 2, 64}, {false, 1, 128}, {false, 1, 64},
              {true, 1, 256},  {true, 1, 192},  {true, 1, 128}, {false, 1, 32},  {false, 2, 32}};
enum { MAX_CANDIDATES = 256, MAX_PARTS = 64 };

static int tile_rows(const candidate *c) {
    return 64 * c->mb * (c->coop ? 2 : 1);
}

static bool operand_fits(const kn_gemm_operand *o, const kn_gemm_operand *like) {
    return o->dtype == like->dtype && o->depth_contiguous == like->depth_contiguous && o->align_log2 >= 4;
}

static bool is_one_of(const char *name, const char *const *names) {
    for (; *names; names++) {
        if (strcmp(name, *names) == 0) return true;
    }
    return false;
}

/* A product of this launch whose B the device chooses, or NULL. One flag serves all of them. */
static const kn_gemm *switched(const kn_gemm *const *g, int n) {
    for (int i = 0; i < n; i++)
        if (g[i]->b_switch) return g[i];
    return NULL;
}

static bool same_place(const kn_place *a, const kn_place *b) {
    return a->in_workspace == b->in_workspace && a->arg == b->arg && a->offset_bytes == b->offset_bytes;
}

bool kn_gemm_sm90_fits(const kn_gemm *const *g, int n, const kn_problem *p, const kn_target *target) {
    static const char *const epilogues[] = {"store", "swiglu_backward", "row_swiglu_backward", "scatter_rows", NULL};
    const kn_gemm_operand *a = &g[0]->segment[0].a, *b = &g[0]->segment[0].b;
    if (!target->wgmma || p->portable || n > MAX_PROBLEMS) return false;
    if ((a->dtype != KN_BF16 && a->dtype != KN_F16) || b->dtype != a->dtype) return false;
    for (int i = 0; i < n; i++) {
        const kn_gemm *q = g[i];
        if (q->a_split != 1 || q->b_split != 1 || q->group != KN_GROUP_NONE || q->gather_dtype != KN_DTYPE_NONE)
            return false;
        if (!is_one_of(q->epilogue, epilogues) || !kn_gemm_epilogue_is_wide(q)) return false;
        if (n > 1 && (strcmp(q->epilogue, "store") != 0 || q->m_is_tokens || q->d.dtype != g[0]->d.dtype ||
                      q->accumulate != g[0]->accumulate || (i < n - 1 && q->n_segments > 1)))
            return false;
        if (q->m == 0 || q->m > INT_MAX - 256 || q->n == 0 || q->n > INT_MAX - 256) return false;
        if (q->k_is_tokens != g[0]->k_is_tokens) return false;
        if (q->b_switch && !same_place(&q->b_flag, &switched(g, n)->b_flag)) return false;
        for (int s = 0; s < q->n_segments; s++) {
            if (q->segment[s].k == 0 || (s == 0 && q->segment[0].k != g[0]->segment[0].k)) return false;
            if (!operand_fits(&q->segment[s].a, a) || !operand_fits(&q->segment[s].b, b)) return false;
            if (q->b_switch && !operand_fits(&q->b_instead[s], b)) return false;
        }
    }
    return true;
}

static int64_t k_blocks(const kn_gemm *g) {
    int64_t n = 0;
    for (int s = 0; s < g->n_segments; s++) n += kn_ceil_div(g->segment[s].k, K_BLOCK);
    return n;
}

static int64_t stage_bytes(const candidate *c) {
    return (int64_t)(tile_rows(c) + c->bn) * K_BLOCK * 2;
}

static int stages_of(const candidate *c, const kn_gemm *g, const kn_device_facts *facts) {
    int64_t fixed = FIXED_BYTES + (strcmp(g->epilogue, "store") == 0 ? 0 : PATCHES_BYTES);
    int64_t n = ((int64_t)facts->smem_per_block - fixed) / stage_bytes(c);
    return n > MAX_STAGES ? MAX_STAGES : (int)n;
}

static bool is_legal(const candidate *c, const kn_gemm *const *g, int n, const kn_device_facts *facts) {
    const kn_gemm_operand *columns = c->swap ? &g[0]->segment[0].a : &g[0]->segment[0].b;
    if (!columns->depth_contiguous && c->bn % 64 != 0) return false;
    if (c->swap && n > 1) return false;
    int most = g[0]->most_accumulators[c->swap];
    if (most && c->mb * c->bn / 2 > most) return false;
    return stages_of(c, g[0], facts) >= 3;
}

static int64_t tiles_of(const candidate *c, const kn_gemm *g) {
    int64_t m = c->swap ? g->n : g->m, n = c->swap ? g->m : g->n;
    return kn_ceil_div(m, tile_rows(c)) * kn_ceil_div(n, c->bn);
}

/* Bytes of an operand that come from memory: a large one is not wholly found in the L2 by all tiles that share it. */
static double operand_bytes(const kn_gemm *g, int64_t extent, int64_t sharing_tiles) {
    double k = (double)(k_blocks(g) * K_BLOCK), bytes = 2 * k * (double)extent;
    if (bytes < LARGE_OPERAND) return bytes;
    return bytes * (1 + REREAD * (double)(sharing_tiles > 4 ? 3 : sharing_tiles - 1));
}

/* Bytes that an element of the output moves: other epilogues than "store" read two tensors and write two or three. */
static double output_bytes(const kn_gemm *g) {
    if (strcmp(g->epilogue, "store") != 0) return strcmp(g->epilogue, "scatter_rows") == 0 ? 4 : 8;
    return kn_dtype_size(g->d.dtype) * (g->accumulate ? 2.0 : 1.0);
}

/* Clocks a k block takes in the tiles that set the pace: those over the edge of a K-major operand, in short launches.
 */
static double block_clocks(const candidate *c, const kn_gemm *g, double waves) {
    double bm = tile_rows(c), bn = c->bn;
    double tensor = bm * bn / 32 * (c->coop ? COOP : 1), feed = (bm + bn) * 2 * (double)K_BLOCK / L2_BYTES;
    double blk = tensor > feed ? tensor : feed, worst = blk;
    const kn_gemm_operand *operand[2] = {&g->segment[0].a, &g->segment[0].b};
    int64_t extent[2] = {g->m, g->n}, tile[2] = {c->swap ? c->bn : tile_rows(c), c->swap ? tile_rows(c) : c->bn};
    for (int i = 0; i < 2; i++) {
        int64_t tiles = kn_ceil_div(extent[i], tile[i]);
        double outside = (double)(tiles * tile[i] - extent[i]);
        double edge = feed + outside * (OUTSIDE_ROW - 2 * K_BLOCK / L2_BYTES);
        if (!operand[i]->depth_contiguous || edge <= blk) continue;
        edge = waves <= 2 ? edge : blk + (edge - blk) / (double)tiles;
        if (edge > worst) worst = edge;
    }
    return worst;
}

/* Clocks until the last tile is stored. */
static double cost_of(const candidate *c, const kn_gemm *const *g, int n, double sms) {
    double tiles = 0, tile = 0, bytes = 0;
    for (int i = 0; i < n; i++) tiles += (double)tiles_of(c, g[i]);
    double waves = (double)kn_ceil_div((int64_t)tiles, (int64_t)sms);
    for (int i = 0; i < n; i++) {
        int64_t tiles_m = kn_ceil_div(g[i]->m, c->swap ? c->bn : tile_rows(c));
        int64_t tiles_n = kn_ceil_div(g[i]->n, c->swap ? tile_rows(c) : c->bn);
        tile += (double)tiles_of(c, g[i]) / tiles * (double)k_blocks(g[i]) * block_clocks(c, g[i], waves);
        bytes += operand_bytes(g[i], g[i]->m, tiles_n) + operand_bytes(g[i], g[i]->n, tiles_m);
        bytes += output_bytes(g[i]) * (double)g[i]->m * (double)g[i]->n;
    }
    double epilogue = EPILOGUE + EPILOGUE_128X128 * tile_rows(c) * c->bn / 16384;
    /* Ping-pong hides all epilogues but the last, unless they are longer than a tile's products. */
    double between = c->coop ? tile + epilogue : (tile > epilogue ? tile : epilogue);
    double compute = (waves - 1) * between + tile + epilogue, memory = bytes / HBM_BYTES;
    double longer = compute > memory ? compute : memory, shorter = compute > memory ? memory : compute;
    return FIRST_TILE + longer + 0.05 * shorter;
}

/* Tiles that may suit the product, those of the table first. */
static int list_candidates(const kn_gemm *g, candidate *out) {
    int n = 0;
    for (size_t i = 0; i < 2 * sizeof shapes / sizeof shapes[0]; i++)
        out[n++] = (candidate){i % 2 != 0, shapes[i / 2].coop, shapes[i / 2].mb, shapes[i / 2].bn};
    for (int64_t parts = 1; parts <= MAX_PARTS; parts++) {
        int64_t rows = kn_ceil_div(kn_ceil_div(g->m, parts), 8) * 8;
        if (rows > 256 || rows < 16) continue;
        int bn = (int)rows;
        out[n++] = (candidate){true, false, 1, bn};
        out[n++] = (candidate){true, true, 1, bn};
        if (bn <= 128) out[n++] = (candidate){true, false, 2, bn};
    }
    return n;
}

static candidate choose(const kn_gemm *const *g, int n, const kn_device_facts *facts, double sms) {
    candidate all[MAX_CANDIDATES], best = {false, false, 2, 128};
    double best_cost = -1;
    int count = list_candidates(g[0], all);
    for (int i = 0; i < count; i++) {
        if (!is_legal(&all[i], g, n, facts)) continue;
        double cost = cost_of(&all[i], g, n, sms);
        if (best_cost < 0 || cost < best_cost) {
            best_cost = cost;
            best = all[i];
        }
    }
    return best;
}

/* The map of one operand: K-major tiles are one box of 64 k by `rows`; MN-major ones are boxes of 64 rows by 64 k. */
static int add_map(kn_program_builder *b, const kn_gemm_operand *o, int64_t extent, int64_t k, int rows) {
    kn_map_spec m = {.from_workspace = o->place.in_workspace,
                     .arg = (uint8_t)(o->place.in_workspace ? 0 : o->place.arg),
                     .offset_bytes = o->place.offset_bytes,
                     .stride_dim = {-1, -1, -1, -1}};
    m.map = (kn_tensor_map){.dtype = o->dtype == KN_BF16 ? MAP_BF16 : MAP_F16,
                            .rank = 2,
                            .swizzle = SWIZZLE_128B,
                            .l2_promotion = PROMOTE_128B};
    m.map.dim[0] = (uint64_t)(o->depth_contiguous ? k : extent);
    m.map.dim[1] = (uint64_t)(o->depth_contiguous ? extent : k);
    m.map.box[0] = K_BLOCK;
    m.map.box[1] = (uint32_t)(o->depth_contiguous ? rows : K_BLOCK);
    if (o->stride_dim >= 0) {
        m.stride_dim[0] = (int8_t)o->stride_dim;
    } else {
        m.map.stride[0] = (uint64_t)o->stride_elems * kn_dtype_size(o->dtype);
    }
    return kn_add_map(b, &m);
}

static void set_sizes(kn_params *params, const candidate *c, const kn_gemm *const *g, int n, bool generic) {
    for (int i = 0; i < n; i++) {
        char m_name[4] = {'M', (char)('0' + i), 0}, n_name[4] = {'N', (char)('0' + i), 0};
        int64_t m = g[i]->m_is_tokens && generic ? -1 : g[i]->m;
        kn_params_set(params, c->swap ? n_name : m_name, m);
        kn_params_set(params, c->swap ? m_name : n_name, g[i]->n);
    }
    const kn_gemm *last = g[n - 1];
    for (int s = 0; s < last->n_segments; s++) {
        char name[4] = {'K', (char)('0' + s), 0};
        kn_params_set(params, name, last->k_is_tokens && generic ? -1 : last->segment[s].k);
    }
    kn_params_set(params, "PROBLEMS", n);
    kn_params_set(params, "SEGMENTS", last->n_segments);
    kn_params_set(params, "SPLIT_FROM", n > 1 && last->n_segments > 1 ? n - 1 : 0);
}

static void fill_params(kn_params *params, const candidate *c, const kn_gemm *const *g, int n, const kn_problem *p,
                        const kn_device_facts *facts) {
    const kn_gemm_operand *a = &g[0]->segment[0].a, *b = &g[0]->segment[0].b;
    kn_params_set_name(params, "SYMBOL", g[0]->symbol);
    set_sizes(params, c, g, n, p->generic);
    kn_params_set_name(params, "T", kn_dtype_name(a->dtype));
    kn_params_set_name(params, "A_MAJOR", (c->swap ? b : a)->depth_contiguous ? "k" : "mn");
    kn_params_set_name(params, "B_MAJOR", (c->swap ? a : b)->depth_contiguous ? "k" : "mn");
    kn_params_set_name(params, "SWITCH", !switched(g, n) ? "none" : c->swap ? "of_a" : "of_b");
    kn_params_set(params, "SWAP", c->swap);
    kn_params_set_name(params, "MODE", c->coop ? "coop" : "pingpong");
    kn_params_set(params, "MB", c->mb);
    kn_params_set(params, "BN", c->bn);
    kn_params_set(params, "STAGES", stages_of(c, g[0], facts));
    kn_params_set(params, "RASTER", 8);
    kn_gemm_epilogue_params(g[0], params);
}

/* The maps of segment s of one product: the kernel's A, its B, and what may stand instead of the product's B. */
static void bind_maps(kn_program_builder *b, kn_launch_spec *l, const candidate *c, const kn_gemm *g, int s,
                      bool with_instead) {
    /* Problems of one segment never read the maps of the others. */
    if (s >= g->n_segments) s = 0;
    const kn_gemm_operand *pa = &g->segment[s].a, *pb = &g->segment[s].b;
    const kn_gemm_operand *instead = g->b_switch ? &g->b_instead[s] : pb;
    int64_t k = g->segment[s].k;
    int rows_of_b = c->swap ? tile_rows(c) : c->bn;
    int map_a = add_map(b, pa, g->m, k, c->swap ? c->bn : tile_rows(c)), map_b = add_map(b, pb, g->n, k, rows_of_b);
    kn_bind_map(l, c->swap ? map_b : map_a);
    kn_bind_map(l, c->swap ? map_a : map_b);
    if (with_instead) kn_bind_map(l, add_map(b, instead, g->n, k, rows_of_b));
}

void kn_gemm_sm90_emit(kn_program_builder *b, const kn_gemm *const *g, int n, const kn_problem *p,
                       const kn_device_facts *facts) {
    int64_t sms = facts->multiprocessors ? facts->multiprocessors : 1;
    /* A limit on the grid must not change the tile: it is planned for the whole device. */
    candidate c = choose(g, n, facts, (double)sms);
    if (p->sm_limit && p->sm_limit < sms) sms = p->sm_limit;
    int64_t tiles = 0;
    for (int i = 0; i < n; i++) tiles += tiles_of(&c, g[i]);
    if (tiles > INT_MAX) {
        b->status = kn_fail(KN_E_SHAPE, "a product of %lld x %lld has %lld tiles; at most 2^31", (long long)g[0]->m,
                            (long long)g[0]->n, (long long)tiles);
        return;
    }
    int kernel;
    fill_params(kn_add_kernel(b, "gemm_sm90.ptxt", &kernel), &c, g, n, p, facts);
    kn_launch_spec *l = kn_add_launch(b, kernel, (uint32_t)(tiles < sms ? tiles : sms), 1, 1);
    l->dependent = true;
    int segments = g[n - 1]->n_segments;
    for (int i = 0; i < n; i++)
        for (int s = 0; s < segments; s++) bind_maps(b, l, &c, g[i], s, switched(g, n) != NULL);
    if (switched(g, n)) kn_gemm_bind_place(l, &switched(g, n)->b_flag);
    for (int i = 0; i < n; i++) kn_gemm_bind_epilogue(l, g[i]);
    kn_bind_i32(l, (int32_t)(c.swap ? g[0]->n : g[0]->m));
    kn_bind_i32(l, (int32_t)(c.swap ? g[0]->m : g[0]->n));
    for (int s = 0; s < KN_GEMM_MAX_SEGMENTS; s++) kn_bind_i32(l, s < segments ? (int32_t)g[n - 1]->segment[s].k : 0);
}
