/* ops/gemm_sm90: plans products on the TMA + wgmma kernel, ptx_templates/gemm_sm90.ptxt: bf16 and f16, aligned, on
 * sm_90a. Which tile and how it is shared: ops/gemm_cost. */
#include "ops/gemm_choice.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum {
    MAP_BF16 = 9, /* CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 */
    MAP_F16 = 6,
    SWIZZLE_128B = 3,
    PROMOTE_128B = 2,
    FEW_TOKENS = 128,   /* with more, what the next launches read suffers: measured */
    L2_BYTES = 50000000 /* of an H200: about what it holds */
};

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

/* Why these products cannot share a launch; NULL: they can. */
static const char *together(const kn_gemm *const *g, int n) {
    for (int i = 0; i < n; i++) {
        const kn_gemm *q = g[i];
        if (strcmp(q->epilogue, "store") != 0 || q->m_is_tokens) return "products that share a launch only store";
        if (q->d.dtype != g[0]->d.dtype || q->accumulate != g[0]->accumulate || q->k_is_tokens != g[0]->k_is_tokens)
            return "products that share a launch have one output type";
        if (i < n - 1 && q->n_segments > 1) return "only the last product of a launch has several segments";
        if (q->segment[0].k != g[0]->segment[0].k) return "products that share a launch have one depth";
    }
    return NULL;
}

static const char *operands_refusal(const kn_gemm *q, const kn_gemm_operand *a, const kn_gemm_operand *b) {
    for (int s = 0; s < q->n_segments; s++) {
        if (q->segment[s].k == 0) return "no depth";
        if (!operand_fits(&q->segment[s].a, a) || !operand_fits(&q->segment[s].b, b) ||
            (q->b_switch && !operand_fits(&q->b_instead[s], b)))
            return "TMA wants rows at multiples of 16 bytes, and all segments of one type and majorness";
    }
    return NULL;
}

const char *kn_gemm_sm90_refusal(const kn_gemm *const *g, int n, const kn_problem *p, const kn_target *target) {
    static const char *const epilogues[] = {"store", "row_swiglu_backward", "scatter_rows", NULL};
    const kn_gemm_operand *a = &g[0]->segment[0].a, *b = &g[0]->segment[0].b;
    if (!target->wgmma) return "the target has no wgmma";
    if (p->portable) return "portable kernels are asked for";
    if (n > KN_GEMM_SM90_MAX_PRODUCTS) return "more than four products";
    if ((a->dtype != KN_BF16 && a->dtype != KN_F16) || b->dtype != a->dtype)
        return "wgmma is for operands that are both bf16 or both f16";
    const char *no = n > 1 ? together(g, n) : NULL;
    for (int i = 0; i < n && !no; i++) {
        const kn_gemm *q = g[i];
        if (q->a_split != 1 || q->b_split != 1) return "operands in parts";
        if (q->group != KN_GROUP_NONE || q->gather_dtype != KN_DTYPE_NONE) return "ragged groups";
        if (!is_one_of(q->epilogue, epilogues) || !kn_gemm_epilogue_is_wide(q))
            return "the epilogue wants rows of D at multiples of 16 bytes and a multiple of 8 columns";
        if (q->m == 0 || q->m > INT_MAX - 256 || q->n == 0 || q->n > INT_MAX - 256) return "no rows, or too many";
        if (q->b_switch && !same_place(&q->b_flag, &switched(g, n)->b_flag)) return "more than one flag";
        no = operands_refusal(q, a, b);
    }
    return no;
}

static uint8_t map_type(kn_dtype dtype) {
    return dtype == KN_BF16 ? MAP_BF16 : MAP_F16;
}

static void set_stride(kn_map_spec *m, const kn_gemm_operand *o) {
    if (o->stride_dim >= 0) {
        m->stride_dim[0] = (int8_t)o->stride_dim;
    } else {
        m->map.stride[0] = (uint64_t)o->stride_elems * kn_dtype_size(o->dtype);
    }
}

/* The map of one operand: K-major tiles are one box of 64 k by `rows`; MN-major ones are boxes of 64 rows by `depth` k.
 */
static int add_map(kn_program_builder *b, const kn_gemm_operand *o, int64_t extent, int64_t k, int rows, int depth) {
    kn_map_spec m = {.from_workspace = o->place.in_workspace,
                     .arg = (uint8_t)(o->place.in_workspace ? 0 : o->place.arg),
                     .offset_bytes = o->place.offset_bytes,
                     .stride_dim = {-1, -1, -1, -1}};
    m.map =
        (kn_tensor_map){.dtype = map_type(o->dtype), .rank = 2, .swizzle = SWIZZLE_128B, .l2_promotion = PROMOTE_128B};
    m.map.dim[0] = (uint64_t)(o->depth_contiguous ? k : extent);
    m.map.dim[1] = (uint64_t)(o->depth_contiguous ? extent : k);
    m.map.box[0] = KN_GEMM_SM90_K_BLOCK;
    m.map.box[1] = (uint32_t)(o->depth_contiguous ? rows : depth);
    set_stride(&m, o);
    return kn_add_map(b, &m);
}

static void set_sizes(kn_params *params, const kn_gemm_candidate *c, const kn_gemm *const *g, int n, bool generic) {
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

/* Rows of the kernel's A in a box. A generic kernel does not know how many there are. */
static int rows_loaded(const kn_gemm_candidate *c, const kn_gemm *const *g, int n, bool generic) {
    bool known = n == 1 && (c->swap || !g[0]->m_is_tokens || !generic);
    return known ? kn_gemm_sm90_rows_loaded(c, g[0]) : kn_gemm_sm90_tile_rows(c);
}

/* Few tokens, which one tile holds, against weights that the L2 does not hold: each of these is read once. */
static bool weights_pass(const kn_gemm_candidate *c, const kn_gemm *const *g, int n, bool generic) {
    int64_t bytes = 0, tile = c->swap ? c->bn : kn_gemm_sm90_tile_rows(c);
    for (int s = 0; s < g[0]->n_segments; s++) bytes += g[0]->n * g[0]->segment[s].k * kn_dtype_size(KN_BF16);
    return n == 1 && !generic && !g[0]->segment[0].b.depth_contiguous && g[0]->segment[0].a.depth_contiguous &&
           g[0]->m <= FEW_TOKENS && g[0]->m <= tile && bytes > L2_BYTES;
}

static void fill_params(kn_params *params, const kn_gemm_candidate *c, const kn_gemm *const *g, int n,
                        const kn_problem *p, const kn_device_facts *facts) {
    const kn_gemm_operand *a = &g[0]->segment[0].a, *b = &g[0]->segment[0].b;
    kn_params_set_name(params, "SYMBOL", g[0]->symbol);
    set_sizes(params, c, g, n, p->generic);
    kn_params_set_name(params, "T", kn_dtype_name(a->dtype));
    kn_params_set_name(params, "A_MAJOR", (c->swap ? b : a)->depth_contiguous ? "k" : "mn");
    kn_params_set_name(params, "B_MAJOR", (c->swap ? a : b)->depth_contiguous ? "k" : "mn");
    kn_params_set_name(params, "SWITCH", !switched(g, n) ? "none" : c->swap ? "of_a" : "of_b");
    kn_params_set(params, "SWAP", c->swap);
    kn_params_set_name(params, "MODE", c->coop ? "coop" : "pingpong");
    if ((c->swap ? b : a)->depth_contiguous) kn_params_set(params, "A_BOX", rows_loaded(c, g, n, p->generic));
    kn_params_set(params, "MB", c->mb);
    kn_params_set(params, "BN", c->bn);
    kn_params_set(params, "STAGES", kn_gemm_sm90_stages(c, g[0], facts));
    kn_params_set_name(params, "FRAME", c->lean ? "lean" : "producer");
    kn_params_set(params, "SPLIT", c->parts);
    /* Rows of tokens that many tiles of a weight gradient read, while these write a hundred times as much. */
    if (g[0]->k_is_tokens && !(c->swap ? b : a)->depth_contiguous) kn_params_set(params, "KEEP", 1);
    if (weights_pass(c, g, n, p->generic)) kn_params_set_name(params, "PASS", c->swap ? "of_a" : "of_b");
    kn_params_set(params, "PAIRED", c->paired);
    kn_params_set(params, "BOXES", c->boxes);
    if (c->boxes) kn_params_set(params, "SLOTS", kn_gemm_sm90_slots(c, g[0], facts));
    if (c->resident) kn_params_set(params, "WALK", kn_gemm_sm90_walk(c, g, n, facts->multiprocessors));
    kn_params_set(params, "RASTER", kn_gemm_sm90_raster(c, g[0], p->generic));
    kn_gemm_epilogue_params(g[0], params);
}

/* The maps of segment s of one product: the kernel's A in boxes of `rows`, its B, and what may stand instead of the
 * product's B. */
static void bind_maps(kn_program_builder *b, kn_launch_spec *l, const kn_gemm_candidate *c, const kn_gemm *g, int rows,
                      int s, bool with_instead, int depth) {
    /* Problems of one segment never read the maps of the others. */
    if (s >= g->n_segments) s = 0;
    const kn_gemm_operand *pa = &g->segment[s].a, *pb = &g->segment[s].b;
    const kn_gemm_operand *instead = g->b_switch ? &g->b_instead[s] : pb;
    int64_t k = g->segment[s].k;
    int rows_of_b = c->swap ? rows : c->bn;
    int map_a = add_map(b, pa, g->m, k, c->swap ? c->bn : rows, depth);
    int map_b = add_map(b, pb, g->n, k, rows_of_b, depth);
    kn_bind_map(l, c->swap ? map_b : map_a);
    kn_bind_map(l, c->swap ? map_a : map_b);
    if (with_instead) kn_bind_map(l, add_map(b, instead, g->n, k, rows_of_b, depth));
}

/* The map of a tensor of D's shape in boxes of so many rows. */
static int add_map_of_boxes(kn_program_builder *b, const kn_gemm *g, const kn_gemm_operand *o, int rows) {
    kn_map_spec m = {.from_workspace = o->place.in_workspace,
                     .arg = (uint8_t)(o->place.in_workspace ? 0 : o->place.arg),
                     .offset_bytes = o->place.offset_bytes,
                     .stride_dim = {-1, -1, -1, -1}};
    m.map = (kn_tensor_map){.dtype = map_type(o->dtype), .rank = 2, .swizzle = SWIZZLE_128B};
    m.map.dim[0] = (uint64_t)g->n;
    m.map.dim[1] = (uint64_t)g->m;
    m.map.box[0] = 64;
    m.map.box[1] = (uint32_t)rows;
    set_stride(&m, o);
    return kn_add_map(b, &m);
}

/* What TMA moves for the epilogue: D of each product, 16 rows of a warp at a time; or the tensors of an activation, 64
 * rows at a time, with swapped operands 32 and what is left of a tile. The templates decide alike. */
static void bind_boxes(kn_program_builder *b, kn_launch_spec *l, const kn_gemm_candidate *c, const kn_gemm *const *g,
                       int n) {
    bool store = strcmp(g[0]->epilogue, "store") == 0;
    for (int i = 0; i < n && store; i++) kn_bind_map(l, add_map_of_boxes(b, g[i], &g[i]->d, 16));
    for (int i = 0; i < 4 && !store; i++) {
        const kn_gemm_operand *o = &g[0]->epi_box[i];
        kn_bind_map(l, add_map_of_boxes(b, g[0], o, c->swap ? 32 : 64));
        if (c->swap && c->bn % 32) kn_bind_map(l, add_map_of_boxes(b, g[0], o, c->bn % 32));
    }
}

/* Depth of the last k block, in whole steps of 16, where it has maps of its own: rows of a box beyond the depth take
 * time too. 0: it has none. The template decides alike (TAIL_MAPS). */
static int tail_depth(const kn_gemm_candidate *c, const kn_gemm *const *g, int n, bool generic) {
    const kn_gemm *last = g[n - 1];
    int64_t k = last->segment[0].k;
    bool known = last->n_segments == 1 && c->parts == 1 && !(last->k_is_tokens && generic);
    if (!known || last->segment[0].a.depth_contiguous || last->segment[0].b.depth_contiguous) return 0;
    int steps = (int)kn_ceil_div(k % KN_GEMM_SM90_K_BLOCK, 16);
    return steps < 4 ? 16 * steps : 0;
}

/* Sums of half of a tile's rows: what each of the four CTAs that share a depth stores. */
static uint64_t sums_bytes(const kn_gemm_candidate *c) {
    return (uint64_t)kn_gemm_sm90_tile_rows(c) / 2 * (uint64_t)c->bn * 4;
}

/* Counters that a launch sets to 0. */
static kn_place clear_counters(kn_program_builder *b, const kn_gemm *g) {
    int64_t words = kn_gemm_counter_words(g), at = kn_add_workspace(b, (uint64_t)words * 4);
    int kernel;
    kn_params_set(kn_add_kernel(b, "clear_words.ptxt", &kernel), "WORDS", words);
    kn_launch_spec *l = kn_add_launch(b, kernel, 1, 1, 1);
    l->dependent = true;
    kn_bind_workspace(l, at);
    return kn_place_workspace(at);
}

void kn_gemm_sm90_emit(kn_program_builder *b, const kn_gemm *const *g, int n, const kn_problem *p,
                       const kn_device_facts *facts) {
    int64_t sms = facts->multiprocessors ? facts->multiprocessors : 1;
    /* A limit on the grid must not change the tile: it is planned for the whole device. */
    kn_gemm_candidate c = kn_gemm_sm90_pick(b, g, n, p->generic, facts);
    if (p->sm_limit && p->sm_limit < sms) sms = p->sm_limit;
    int64_t tiles = 0;
    for (int i = 0; i < n; i++) tiles += kn_gemm_sm90_tiles(&c, g[i]);
    if (c.resident) tiles = kn_gemm_sm90_walks(&c, g, n, kn_gemm_sm90_walk(&c, g, n, facts->multiprocessors));
    if (tiles > INT_MAX) {
        b->status = kn_fail(KN_E_SHAPE, "a product of %lld x %lld has %lld tiles; at most 2^31", (long long)g[0]->m,
                            (long long)g[0]->n, (long long)tiles);
        return;
    }
    kn_place counters = g[0]->counters;
    if (c.parts == 4 && !g[0]->has_counters) counters = clear_counters(b, g[0]);
    int kernel;
    fill_params(kn_add_kernel(b, "gemm_sm90.ptxt", &kernel), &c, g, n, p, facts);
    /* CTAs that share a tile run at the same time, whatever the limit. */
    int64_t at_once = kn_gemm_sm90_at_once(c.parts, sms);
    if (c.paired) at_once = sms < 2 ? 2 : sms / 2 * 2;
    kn_launch_spec *l = kn_add_launch(b, kernel, (uint32_t)(c.parts * (tiles < at_once ? tiles : at_once)), 1, 1);
    l->dependent = true;
    int segments = g[n - 1]->n_segments, tail = tail_depth(&c, g, n, p->generic);
    for (int i = 0; i < n; i++)
        for (int s = 0; s < segments; s++)
            for (int depth = KN_GEMM_SM90_K_BLOCK; depth; depth = depth == tail ? 0 : tail)
                bind_maps(b, l, &c, g[i], rows_loaded(&c, g, n, p->generic), s, switched(g, n) != NULL, depth);
    if (switched(g, n)) kn_gemm_bind_place(l, &switched(g, n)->b_flag);
    if (c.boxes) bind_boxes(b, l, &c, g, n);
    for (int i = 0; i < n; i++) kn_gemm_bind_epilogue(l, g[i]);
    if (c.parts == 4) {
        kn_bind_workspace(l, kn_add_workspace(b, (uint64_t)tiles * 4 * sums_bytes(&c)));
        kn_gemm_bind_place(l, &counters);
    }
    kn_bind_i32(l, (int32_t)(c.swap ? g[0]->n : g[0]->m));
    kn_bind_i32(l, (int32_t)(c.swap ? g[0]->m : g[0]->n));
    for (int s = 0; s < KN_GEMM_MAX_SEGMENTS; s++) kn_bind_i32(l, s < segments ? (int32_t)g[n - 1]->segment[s].k : 0);
}
