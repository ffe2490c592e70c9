/* ops/gemm_cost: candidates of the TMA + wgmma kernel and what they cost: see gemm_cost.h. */
#include "ops/gemm_cost.h"

#include <string.h>

enum {
    FIXED_BYTES = 1024,          /* mbarriers, alignment */
    PATCHES_BYTES = 8 * 5120,    /* of epilogues that pass through shared memory */
    STREAMS_BYTES = 8 * 4096,    /* of the one that has tensors copied there */
    STREAMS_BOXES_BYTES = 65536, /* where TMA copies them */
    MAX_STAGES = 12
};

/* What the cost is made of, in clocks of a multiprocessor at 1.7 GHz. docs/gemm.md says how well it ranks what was
 * measured. */
static const double FIRST_TILE = 3000;
static const double EPILOGUE = 300, EPILOGUE_128X128 = 1000; /* of any tile, and in proportion to its size */
static const double ACTIVATION_128X128 = 5000;               /* with the derivative of an activation */
static const double BOXED[2] = {0.9, 0.4}; /* of these two, where TMA moves what lies in shared memory */
/* More, in that proportion, where it is added to D, and where a transpose is: of 16 bits and f32; where one is stored
 * as f32. */
static const double ADDED = 2000, SWAPPED_ADDED[2] = {11000, 15000}, SWAPPED_F32 = 3000;
/* Between a tile and the next of the other consumer: with a producer and without, each without boxes and with. */
static const double TURN[2][2] = {{700, 400}, {2300, 900}};
/* More where two CTAs wait for each other: alone, and where others of the launch are at other places. */
static const double TURN_PAIRED[2] = {1500, 500};
static const double LEAN_COOP = 1500; /* a tile's that both consumers share and load for */
/* Times the products, where the k blocks in shared memory last less clocks than this: with a resident B, and without a
 * producer. */
static const double FEW_STAGES = 1.17, IN_FLIGHT[2] = {3000, 3460}, ENOUGH_IN_FLIGHT = 3000;
static const double DRAIN = 400;   /* consumers that share tiles do not overlap them */
static const double COOP = 1.03;   /* consumers that share a tile wait for each other */
static const double L2_BYTES = 62; /* a clock, of one multiprocessor, neighbours reading the same tiles */
/* The same where the tiles of all tokens lie beside each other, and of the device. */
static const double CLOSE_L2_BYTES = 80, DEVICE_L2_BYTES = 9600;
static const double HBM_BYTES = 2300;     /* a clock, of the device */
static const double CTA_HBM_BYTES = 28;   /* of which one multiprocessor gets no more than this */
static const double OUTSIDE_ROW = 0.85;   /* more for a row of a K-major box that lies outside of its matrix */
static const double OVERLAP = 0.05;       /* of the shorter of computing and moving, which the longer does not hide */
static const double REREAD = 0.4;         /* of a large operand, for each further tile that shares it, up to three */
static const double LARGE_OPERAND = 32e6; /* bytes that the L2 does not keep */
static const double EXCHANGE = 1200, EXCHANGE_128X128 = 1600; /* of sums within a cluster of two */

/* The sums of two clusters meet in memory; and before, a launch of its own clears the counters. */
static const double MEET = 2000, MEET_128X128 = 2500, CLEARED = 3000;
static const double CROWDED = 4000; /* when clusters take more than nine in ten multiprocessors */

/* Beside these: tiles whose bn divides the tokens with the least rest. nvJitLink assembles relocatable code, in which
 * setmaxnreg is ignored: a thread of three warpgroups has 168 registers, of a lean frame's two 255. */
static const struct {
    bool coop;
    int mb, bn;
    bool lean;
} shapes[] = {{false, 2, 128, false}, {false, 1, 256, false}, {false, 2, 64, false}, {false, 1, 128, false},
              {false, 1, 64, false},  {true, 1, 256, false},  {true, 1, 192, false}, {true, 1, 128, false},
              {true, 1, 64, false},   {false, 1, 32, false},  {false, 2, 32, false}, {false, 2, 192, true},
              {false, 2, 128, true},  {true, 2, 128, true},   {true, 2, 192, true}};
enum {
    MOST_OF_A_TILE = KN_GEMM_MOST_COUNTED,
    MAX_SLICES = 64,
    DEEP = 16,
    SHALLOW = 32,
    PRODUCER_ACCUMULATORS = 128,
    LEAN_MORE = 64,
    SECOND_BLOCK = 32
};
enum { FEW_TOKENS = 256, MANY_TOKENS = 4096 }; /* of generic kernels */
/* Products that are hardly faster in parts are left whole. */
static const double WORTH_IT = 0.97;

/* An H200, by which is decided what must not differ from machine to machine. */
static const kn_device_facts reference = {.multiprocessors = 132, .smem_per_block = 232448};

static int64_t k_blocks(const kn_gemm *g) {
    int64_t n = 0;
    for (int s = 0; s < g->n_segments; s++) n += kn_ceil_div(g->segment[s].k, KN_GEMM_SM90_K_BLOCK);
    return n;
}

static int64_t stage_bytes(const kn_gemm_candidate *c) {
    return (int64_t)(kn_gemm_sm90_tile_rows(c) + (c->resident ? 0 : c->bn)) * KN_GEMM_SM90_K_BLOCK * 2;
}

static int stages_with(const kn_gemm_candidate *c, const kn_gemm *g, const kn_device_facts *facts, int slots);

int kn_gemm_sm90_slots(const kn_gemm_candidate *c, const kn_gemm *g, const kn_device_facts *facts) {
    int of_a_tile = c->mb * c->bn / 64, slots = of_a_tile % 4 == 0   ? 4
                                                : of_a_tile % 3 == 0 ? 3
                                                : of_a_tile % 2 == 0 ? 2
                                                                     : 1;
    /* Beside a resident B there is little room: k blocks that are under way come first. */
    double block = kn_gemm_sm90_tile_rows(c) * c->bn / 32.0;
    if (c->resident && slots == 4 && stages_with(c, g, facts, slots) * block < ENOUGH_IN_FLIGHT) slots = 2;
    return slots;
}

/* Boxes of 16 x 64 of each of 8 warps. */
static int boxes_bytes(const kn_gemm_candidate *c, const kn_gemm *g, int slots) {
    if (!c->boxes) return 0;
    if (strcmp(g->epilogue, "store") != 0) return STREAMS_BOXES_BYTES;
    return 8 * 2048 * slots;
}

bool kn_gemm_sm90_takes_boxes(const kn_gemm_candidate *c, const kn_gemm *g) {
    bool rows = c->parts == 1 && (c->swap || c->bn % 64 == 0);
    if (strcmp(g->epilogue, "row_swiglu_backward") == 0) return rows && g->epi_box[0].dtype != KN_DTYPE_NONE;
    /* They take shared memory from the k blocks: for products whose tiles take little longer than their stores. */
    return rows && k_blocks(g) <= SHALLOW && strcmp(g->epilogue, "store") == 0 && !g->accumulate &&
           kn_dtype_size(g->d.dtype) == 2 && !c->swap;
}

static int stages_with(const kn_gemm_candidate *c, const kn_gemm *g, const kn_device_facts *facts, int slots) {
    int64_t fixed = FIXED_BYTES + (strcmp(g->epilogue, "store") == 0 ? 0 : PATCHES_BYTES);
    if (strcmp(g->epilogue, "row_swiglu_backward") == 0) fixed += STREAMS_BYTES;
    if (c->boxes) fixed = FIXED_BYTES + boxes_bytes(c, g, slots);
    if (c->resident) fixed += k_blocks(g) * c->bn * KN_GEMM_SM90_K_BLOCK * 2;
    int64_t n = ((int64_t)facts->smem_per_block - fixed) / stage_bytes(c);
    return n > MAX_STAGES ? MAX_STAGES : (int)n;
}

int kn_gemm_sm90_stages(const kn_gemm_candidate *c, const kn_gemm *g, const kn_device_facts *facts) {
    return stages_with(c, g, facts, kn_gemm_sm90_slots(c, g, facts));
}

/* Accumulators of a thread beside which nothing is spilt, and with which a kernel takes less than 300 ms to assemble:
 * tests/ops/test_gemm_table.c assembles all that this allows. */
static int most_accumulators(const kn_gemm_candidate *c, const kn_gemm *g, int n) {
    int most = g->most_accumulators[c->swap];
    /* Which of two blocks of rows a chunk is of, an epilogue finds out while all accumulators are alive. */
    if (most) return most + (c->lean ? LEAN_MORE : 0) - (c->mb > 1 && !c->boxes ? SECOND_BLOCK : 0);
    /* "store" is unrolled over all accumulators. */
    bool added = g->accumulate, wide = added || kn_dtype_size(g->d.dtype) > 2;
    if (c->lean && wide && n > 1) return 0;
    if (c->lean) return PRODUCER_ACCUMULATORS + LEAN_MORE;
    bool rows_of_256 = c->mb == 1 && !c->swap && !c->boxes;
    bool columns_added = c->mb == 2 && (c->swap || c->paired) && added;
    return rows_of_256 || columns_added ? PRODUCER_ACCUMULATORS - 8 : PRODUCER_ACCUMULATORS;
}

static bool may_rest(const kn_gemm_candidate *c, const kn_gemm *const *g, int n) {
    if (c->coop || c->lean || c->swap || c->parts != 1 || !c->boxes) return false;
    for (int i = 0; i < n; i++)
        if (g[i]->n_segments != 1) return false;
    return true;
}

/* Weight gradients. Tiles 2 i and 2 i + 1 must lie below each other, in all products. */
static bool may_pair(const kn_gemm_candidate *c, const kn_gemm *const *g, int n) {
    if (c->swap || c->lean || c->resident || c->parts != 1 || c->bn % 128 || kn_gemm_sm90_tile_rows(c) * c->bn < 16384)
        return false;
    if (g[0]->segment[0].a.depth_contiguous || g[0]->segment[0].b.depth_contiguous) return false;
    for (int i = 0; i < n; i++)
        if (kn_ceil_div(g[i]->m, kn_gemm_sm90_tile_rows(c)) % 2) return false;
    return true;
}

enum { MAX_WALK = 40 };
/* Tiles of time until B rests: of 256 columns, and of fewer. */
static const double NEXT_WALK = 0.5, NEXT_NARROW_WALK = 0.6;
/* By so many tiles longer walks are preferred where B has 256 columns: measured, from 64 to 256 tokens. */
static const double LONG_WALK = 3;

/* Clocks that the k blocks in shared memory last. */
static double in_flight(const kn_gemm_candidate *c, const kn_gemm *g) {
    return kn_gemm_sm90_stages(c, g, &reference) * (double)kn_gemm_sm90_tile_rows(c) * c->bn / 32;
}

int64_t kn_gemm_sm90_walks(const kn_gemm_candidate *c, const kn_gemm *const *g, int n, int walk) {
    int64_t walks = 0, rows = kn_gemm_sm90_tile_rows(c);
    for (int i = 0; i < n && walk; i++)
        walks += kn_ceil_div(kn_ceil_div(g[i]->m, rows), walk) * kn_ceil_div(g[i]->n, c->bn);
    return walks;
}

/* Rounds of walks of the CTA that has the most of them. */
static double walk_rounds(const kn_gemm_candidate *c, const kn_gemm *const *g, int n, int walk, double sms) {
    return (double)kn_ceil_div(kn_gemm_sm90_walks(c, g, n, walk), sms >= 1 ? (int64_t)sms : 1);
}

int kn_gemm_sm90_walk(const kn_gemm_candidate *c, const kn_gemm *const *g, int n, double sms) {
    int64_t rows = kn_gemm_sm90_tile_rows(c);
    int best = 0;
    double least = 0;
    for (int walk = 2; walk <= MAX_WALK; walk++) {
        bool possible = true;
        for (int i = 0; i < n; i++) {
            int64_t tiles = kn_ceil_div(g[i]->m, rows);
            possible = possible && tiles >= 2 && (tiles < walk || tiles % walk != 1);
        }
        double rounds = walk_rounds(c, g, n, walk, sms) * (walk + (c->bn > 128 ? LONG_WALK : NEXT_NARROW_WALK));
        if (!possible || (best && rounds >= least)) continue;
        least = rounds;
        best = walk;
    }
    return best;
}

/* Why the kernel cannot make the products this way; NULL: it can. */
static const char *refusal(const kn_gemm_candidate *c, const kn_gemm *const *g, int n, const kn_device_facts *facts) {
    const kn_gemm_operand *columns = c->swap ? &g[0]->segment[0].a : &g[0]->segment[0].b;
    if (!columns->depth_contiguous && c->bn % 64 != 0)
        return "an operand that is not contiguous along k is read 64 columns at a time";
    if (c->swap && n > 1) return "several products in a launch are not swapped";
    if (c->parts > 1 && (!c->coop || c->lean)) return "CTAs that share a depth add up halves of a shared tile";
    int64_t sums = (int64_t)4 * kn_gemm_sm90_tile_rows(c) * c->bn / 2;
    if (c->parts > 1 && sums > kn_gemm_sm90_stages(c, g[0], facts) * stage_bytes(c))
        return "the ring is too small for the sums of others";
    if (c->resident && (!may_rest(c, g, n) || !kn_gemm_sm90_walk(c, g, n, reference.multiprocessors)))
        return "B rests where a short depth is known, for two tiles at least";
    if (c->paired && !may_pair(c, g, n))
        return "pairs are for weight gradients of an even number of rows of large tiles";
    if (c->boxes && !kn_gemm_sm90_takes_boxes(c, g[0])) return "boxes hold rows of 16-bit numbers";
    if (c->mb * c->bn / 2 > most_accumulators(c, g[0], n))
        return "the epilogue needs the registers of so many accumulators";
    if (kn_gemm_sm90_stages(c, g[0], facts) < 3) return "shared memory for less than three k blocks";
    return NULL;
}

int kn_gemm_sm90_rows_loaded(const kn_gemm_candidate *c, const kn_gemm *g) {
    int64_t rows = c->swap ? g->n : g->m;
    int tile = kn_gemm_sm90_tile_rows(c);
    return rows < tile ? (int)kn_ceil_div(rows, 8) * 8 : tile;
}

/* Rows of tiles that are walked together. Tokens as columns: all tiles of tokens that share a tile of weights are
 * walked one behind the other as long as they are few, for that one comes from memory, and is asked for once. */
enum { RASTER = 8, RASTER_OF_SOME = 2, RASTER_OF_ANY = 4, SOME_TILES = 20 };

int kn_gemm_sm90_raster(const kn_gemm_candidate *c, const kn_gemm *g, bool generic) {
    if (!c->swap || c->parts > 1) return RASTER;
    if (generic) return kn_gemm_is_for_few(g) ? 1 : RASTER_OF_ANY;
    int64_t tiles = kn_ceil_div(g->m, c->bn);
    return tiles <= RASTER ? 1 : tiles <= SOME_TILES ? RASTER_OF_SOME : RASTER;
}

/* Whether the tiles that share a tile of weights lie beside each other, all at one time: those of later waves drift
 * apart, and those that wait for the memory. */
static bool close_together(const kn_gemm_candidate *c, const kn_gemm *g, double waves) {
    double weights = 2 * (double)(k_blocks(g) * KN_GEMM_SM90_K_BLOCK) * (double)g->n;
    if (waves > 1 || c->parts > 1 || g->k_is_tokens || weights >= LARGE_OPERAND) return false;
    return kn_ceil_div(g->m, c->swap ? c->bn : kn_gemm_sm90_tile_rows(c)) <= RASTER;
}

/* Bytes a clock that the L2 delivers to one of so many multiprocessors. */
static double l2_bytes(bool close, double at_work) {
    double share = DEVICE_L2_BYTES / at_work;
    if (!close) return L2_BYTES;
    return share < CLOSE_L2_BYTES ? share : CLOSE_L2_BYTES;
}

int64_t kn_gemm_sm90_at_once(int parts, int64_t sms) {
    return sms > parts ? sms / parts : 1;
}

int64_t kn_gemm_sm90_tiles(const kn_gemm_candidate *c, const kn_gemm *g) {
    int64_t m = c->swap ? g->n : g->m, n = c->swap ? g->m : g->n;
    return kn_ceil_div(m, kn_gemm_sm90_tile_rows(c)) * kn_ceil_div(n, c->bn);
}

/* Bytes of an operand that come from memory: a large one is not wholly found in the L2 by all tiles that share it. */
static double operand_bytes(const kn_gemm *g, int64_t extent, int64_t sharing_tiles) {
    double k = (double)(k_blocks(g) * KN_GEMM_SM90_K_BLOCK), bytes = 2 * k * (double)extent;
    if (bytes < LARGE_OPERAND) return bytes;
    return bytes * (1 + REREAD * (double)(sharing_tiles > 4 ? 3 : sharing_tiles - 1));
}

/* Bytes that an element of the output moves: other epilogues than "store" read two tensors and write two or three. */
static double output_bytes(const kn_gemm *g) {
    if (strcmp(g->epilogue, "store") != 0) return strcmp(g->epilogue, "scatter_rows") == 0 ? 4 : 8;
    return kn_dtype_size(g->d.dtype) * (g->accumulate ? 2.0 : 1.0);
}

/* Columns of the kernel's B that the L2 delivers with a tile's rows. */
static int columns_loaded(const kn_gemm_candidate *c) {
    return c->resident ? 0 : c->paired ? c->bn / 2 : c->bn;
}

/* k blocks of a tile; of the last one what is multiplied, where the kernel knows that. */
static double depth(const kn_gemm_candidate *c, const kn_gemm *g) {
    bool tail =
        g->n_segments == 1 && c->parts == 1 && !g->segment[0].a.depth_contiguous && !g->segment[0].b.depth_contiguous;
    return tail ? (double)kn_ceil_div(g->segment[0].k, 16) / 4 : (double)k_blocks(g);
}

/* Clocks in which the L2 delivers a k block in the tiles that set the pace: those over the edge of a K-major operand,
 * in short launches. `block`: what a whole tile takes. */
static double feed_clocks(const kn_gemm_candidate *c, const kn_gemm *g, double waves, double block, double rate) {
    int64_t loaded = kn_gemm_sm90_rows_loaded(c, g);
    double feed = (double)(loaded + columns_loaded(c)) * 2 * KN_GEMM_SM90_K_BLOCK / rate, worst = feed;
    const kn_gemm_operand *operand[2] = {&g->segment[0].a, &g->segment[0].b};
    int64_t extent[2] = {g->m, g->n};
    int64_t tile[2] = {c->swap ? c->bn : loaded, c->swap ? loaded : c->bn};
    for (int i = 0; i < 2; i++) {
        int64_t tiles = kn_ceil_div(extent[i], tile[i]);
        double outside = (double)(tiles * tile[i] - extent[i]);
        double edge = feed + outside * OUTSIDE_ROW;
        if (!operand[i]->depth_contiguous || edge <= block) continue;
        edge = waves <= 2 ? edge : block + (edge - block) / (double)tiles;
        if (edge > worst) worst = edge;
    }
    return worst;
}

/* A tile of all products' average, in clocks of the tensor core, of the L2 for what it reads and for what it writes,
 * and the bytes that all move. */
typedef struct work {
    double tensor, feed, tile, out, bytes;
} work;

static work work_of(const kn_gemm_candidate *c, const kn_gemm *const *g, int n, double tiles, double waves) {
    work w = {0};
    double rows = kn_gemm_sm90_tile_rows(c), tensor = rows * c->bn / 32 * (c->coop ? COOP : 1);
    double rate = l2_bytes(close_together(c, g[0], waves), tiles);
    for (int i = 0; i < n; i++) {
        double inside = (kn_gemm_sm90_rows_loaded(c, g[i]) + columns_loaded(c)) * 2.0 * KN_GEMM_SM90_K_BLOCK / rate;
        int64_t tiles_m = kn_ceil_div(g[i]->m, c->swap ? c->bn : kn_gemm_sm90_tile_rows(c));
        int64_t tiles_n = kn_ceil_div(g[i]->n, c->swap ? kn_gemm_sm90_tile_rows(c) : c->bn);
        double feed = feed_clocks(c, g[i], waves, tensor > inside ? tensor : inside, rate);
        double blocks = (double)kn_gemm_sm90_tiles(c, g[i]) / tiles * depth(c, g[i]);
        w.tensor += blocks * tensor;
        w.feed += blocks * feed;
        w.tile += blocks * (tensor > feed ? tensor : feed);
        w.bytes += operand_bytes(g[i], g[i]->m, tiles_n) + operand_bytes(g[i], g[i]->n, tiles_m);
        double out = output_bytes(g[i]) * (double)g[i]->m * (double)g[i]->n;
        w.out += out / tiles / L2_BYTES;
        w.bytes += out;
    }
    return w;
}

/* What storing 128 x 128 takes more than plain rows of 16 bits. */
static double store_clocks(const kn_gemm_candidate *c, const kn_gemm *g) {
    bool wide = kn_dtype_size(g->d.dtype) > 2;
    if (g->accumulate) return c->swap ? SWAPPED_ADDED[wide] : ADDED;
    return c->swap && wide ? SWAPPED_F32 : 0;
}

kn_gemm_cost kn_gemm_sm90_cost(const kn_gemm_candidate *c, const kn_gemm *const *g, int n, double sms) {
    double tiles = 0, parts = c->parts, tile_size = kn_gemm_sm90_tile_rows(c) * c->bn / 16384.0;
    for (int i = 0; i < n; i++) tiles += (double)kn_gemm_sm90_tiles(c, g[i]);
    int64_t at_once = kn_gemm_sm90_at_once(c->parts, (int64_t)sms);
    double waves = (double)kn_ceil_div((int64_t)tiles, at_once);
    if (c->resident) {
        int walk = kn_gemm_sm90_walk(c, g, n, sms);
        waves = walk_rounds(c, g, n, walk, sms) * (walk + (c->bn > 128 ? NEXT_WALK : NEXT_NARROW_WALK));
    }
    work w = work_of(c, g, n, tiles, waves);
    w.tensor /= parts, w.feed /= parts, w.tile /= parts;
    bool activation = strcmp(g[0]->epilogue, "row_swiglu_backward") == 0;
    double size_cost = activation ? ACTIVATION_128X128 : EPILOGUE_128X128;
    if (c->boxes) size_cost *= BOXED[activation];
    if (!activation) size_cost += store_clocks(c, g[0]);
    double epilogue = EPILOGUE + size_cost * tile_size;
    if (c->parts > 1) epilogue = EPILOGUE + EXCHANGE + (size_cost / 2 + EXCHANGE_128X128) * tile_size;
    if (c->parts == 4) epilogue += MEET + MEET_128X128 * tile_size + (g[0]->has_counters ? 0 : CLEARED);
    if (c->coop && c->lean) epilogue += LEAN_COOP;
    /* Ping-pong hides all epilogues but the last, unless they are longer than a tile's products. */
    double turn = TURN[c->lean][c->boxes] + (c->paired ? TURN_PAIRED[n > 1] : 0);
    if ((c->lean || c->resident) && in_flight(c, g[0]) < IN_FLIGHT[c->lean]) w.tile *= FEW_STAGES;
    double next = w.tile > w.feed + w.out ? w.tile : w.feed + w.out;
    double between = c->coop ? w.tile + epilogue + DRAIN : next + turn > epilogue ? next + turn : epilogue;
    double crowded = (c->parts > 1 || c->paired) && tiles > 0.92 * (double)at_once ? CROWDED : 0;
    double compute = (waves - 1) * between + w.tile + epilogue;
    double at_work = (tiles < (double)at_once ? tiles : (double)at_once) * parts * CTA_HBM_BYTES;
    double memory = w.bytes / (at_work < HBM_BYTES ? at_work : HBM_BYTES);
    double longer = compute > memory ? compute : memory, shorter = compute > memory ? memory : compute;
    return (kn_gemm_cost){.tiles = tiles,
                          .waves = waves,
                          .tensor = waves * w.tensor,
                          .l2 = waves * w.feed,
                          .hbm = memory,
                          .epilogues = compute - waves * w.tile,
                          .clocks = FIRST_TILE + crowded + longer + OVERLAP * shorter};
}

static bool same(const kn_gemm_candidate *a, const kn_gemm_candidate *b) {
    return a->swap == b->swap && a->coop == b->coop && a->mb == b->mb && a->bn == b->bn && a->lean == b->lean &&
           a->parts == b->parts && a->boxes == b->boxes && a->resident == b->resident && a->paired == b->paired;
}

static int add(kn_gemm_candidate *out, int n, kn_gemm_candidate c) {
    for (int i = 0; i < n; i++)
        if (same(&out[i], &c)) return n;
    out[n] = c;
    return n + 1;
}

/* Tiles that may suit the product, those of the table first. */
static int list_candidates(const kn_gemm *g, int parts, kn_gemm_candidate *out) {
    int n = 0;
    for (size_t i = 0; i < 2 * sizeof shapes / sizeof shapes[0]; i++)
        n = add(out, n,
                (kn_gemm_candidate){i % 2 != 0, shapes[i / 2].coop, shapes[i / 2].mb, shapes[i / 2].bn,
                                    shapes[i / 2].lean, parts, false, false, false});
    for (int64_t slices = 1, before = 0; slices <= MAX_SLICES; slices++) {
        int64_t rows = kn_ceil_div(kn_ceil_div(g->m, slices), 8) * 8;
        if (rows > 256 || rows < 16 || rows == before) continue;
        before = rows;
        int bn = (int)rows;
        n = add(out, n, (kn_gemm_candidate){true, false, 1, bn, false, parts, false, false, false});
        n = add(out, n, (kn_gemm_candidate){true, true, 1, bn, false, parts, false, false, false});
        if (bn <= 192) n = add(out, n, (kn_gemm_candidate){true, false, 2, bn, bn > 128, parts, false, false, false});
    }
    for (int i = 0, whole = n; i < whole; i++) {
        kn_gemm_candidate c = out[i];
        c.boxes = true;
        if (!kn_gemm_sm90_takes_boxes(&c, g)) continue;
        n = add(out, n, c);
        c.resident = true;
        if (may_rest(&c, &g, 1)) n = add(out, n, c);
    }
    for (int i = 0, alone = n; i < alone; i++) {
        kn_gemm_candidate c = out[i];
        if (!may_pair(&c, &g, 1)) continue;
        c.paired = true;
        n = add(out, n, c);
    }
    return n;
}

int kn_gemm_sm90_candidates(const kn_gemm *const *g, int n, const kn_device_facts *facts,
                            kn_gemm_ranked out[KN_GEMM_MAX_CANDIDATES]) {
    kn_gemm_candidate all[KN_GEMM_MAX_CANDIDATES];
    double sms = facts->multiprocessors ? facts->multiprocessors : 1;
    int count = list_candidates(g[0], n == 1 ? kn_gemm_depth_parts(g[0]) : 1, all);
    for (int i = 0; i < count; i++)
        out[i] = (kn_gemm_ranked){all[i], kn_gemm_sm90_cost(&all[i], g, n, sms), refusal(&all[i], g, n, facts)};
    return count;
}

/* The cheapest candidate with that number of parts; its clocks, or -1 without any. Generic kernels may meet less than
 * the two tiles of a strip or a pair. */
static double cheapest(const kn_gemm *const *g, int n, const kn_device_facts *facts, int parts, bool generic,
                       kn_gemm_candidate *best) {
    kn_gemm_candidate all[KN_GEMM_MAX_CANDIDATES];
    double sms = facts->multiprocessors ? facts->multiprocessors : 1, least = -1;
    int count = list_candidates(g[0], parts, all);
    for (int i = 0; i < count; i++) {
        bool exact = all[i].resident || (all[i].paired && g[0]->m_is_tokens);
        if (refusal(&all[i], g, n, facts) || (generic && exact)) continue;
        double cost = kn_gemm_sm90_cost(&all[i], g, n, sms).clocks;
        if (least < 0 || cost < least) {
            least = cost;
            *best = all[i];
        }
    }
    return least;
}

/* The cheapest one for products of these sizes, with the depth in so many parts. */
static kn_gemm_candidate choose(const kn_gemm *const *g, int n, const kn_device_facts *facts, int parts, bool generic) {
    kn_gemm_candidate best = {parts > 1, parts > 1, parts > 1 ? 1 : 2, parts > 1 ? 64 : 128, false, parts, false,
                              false,     false};
    (void)cheapest(g, n, facts, parts, generic, &best);
    return best;
}

kn_gemm_candidate kn_gemm_sm90_choose(const kn_gemm *const *g, int n, const kn_device_facts *facts) {
    return choose(g, n, facts, n == 1 ? kn_gemm_depth_parts(g[0]) : 1, false);
}

static bool may_have_parts(const kn_gemm *g) {
    const kn_gemm_operand *a = &g->segment[0].a, *b = &g->segment[0].b;
    return g->group == KN_GROUP_NONE && g->gather_dtype == KN_DTYPE_NONE && !g->k_is_tokens && !g->promote &&
           g->a_split == 1 && g->b_split == 1 && a->dtype != KN_F32 && b->dtype == a->dtype && k_blocks(g) >= DEEP;
}

bool kn_gemm_has_whole_blocks(const kn_gemm *g) {
    for (int s = 0; s < g->n_segments; s++)
        if (g->segment[s].k % KN_GEMM_DEPTH_BLOCK) return false;
    return true;
}

/* Quarters are for tokens that one tile holds, where halves would need two tiles to keep all multiprocessors
 * at work: then each weight is read by one of them alone. The portable kernel puts sums aside at equal distances. */
static bool may_have_quarters(const kn_gemm *g) {
    return g->m > MOST_OF_A_TILE / 2 && g->m <= MOST_OF_A_TILE && kn_gemm_has_whole_blocks(g);
}

int kn_gemm_depth_parts(const kn_gemm *g) {
    kn_gemm_candidate best;
    if (g->m == 0 || g->n == 0 || !may_have_parts(g)) return 1;
    double least = cheapest(&g, 1, &reference, 1, false, &best);
    int parts = 1;
    for (int more = 2; more <= (may_have_quarters(g) ? 4 : 2); more *= 2) {
        double clocks = cheapest(&g, 1, &reference, more, false, &best);
        if (clocks < 0 || (least >= 0 && clocks >= WORTH_IT * least)) continue;
        least = clocks;
        parts = more;
    }
    return parts;
}

int64_t kn_gemm_counter_words(const kn_gemm *g) {
    if (kn_gemm_depth_parts(g) != 4) return 0;
    /* Tiles that share a depth have 128 rows of one operand, and 16 at least of the other. */
    int64_t tiles = kn_ceil_div(g->m, 128) * kn_ceil_div(g->n, 16);
    int64_t swapped = kn_ceil_div(g->m, 16) * kn_ceil_div(g->n, 128);
    return 2 * (tiles > swapped ? tiles : swapped);
}

/* Numbers of tokens that generic kernels are planned for. */
enum { COUNTS = 9 };
static const int64_t counts[COUNTS] = {64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

bool kn_gemm_is_for_few(const kn_gemm *g) {
    if (may_have_parts(g)) return kn_gemm_depth_parts(g) > 1;
    return (g->group == KN_GROUP_M && g->n_groups > 0 ? kn_ceil_div(g->m, g->n_groups) : g->m) <= FEW_TOKENS;
}

static const int64_t MATTERS = 512; /* tokens from which on a loss counts */
static const double MORE = 3;       /* times as much */

/* The tile of a generic kernel: of those that are the best for one of these numbers of tokens, the one that at worst
 * loses least for the others that share the kernel. */
static kn_gemm_candidate choose_for_all_tokens(const kn_gemm *g, const kn_device_facts *facts) {
    kn_gemm sized[COUNTS];
    kn_gemm_candidate best[COUNTS], chosen;
    double clocks[COUNTS], least = -1;
    int n = 0, parts = kn_gemm_depth_parts(g);
    bool few = kn_gemm_is_for_few(g);
    for (int i = 0; i < COUNTS; i++) {
        const kn_gemm *one = &sized[n];
        sized[n] = *g;
        sized[n].m = counts[i];
        if (kn_gemm_is_for_few(one) != few) continue;
        best[n] = choose(&one, 1, facts, parts, true);
        clocks[n] = kn_gemm_sm90_cost(&best[n], &one, 1, facts->multiprocessors).clocks;
        n++;
    }
    if (n == 0) { /* parts that pay between these numbers alone */
        const kn_gemm *one = &sized[0];
        sized[0].m = FEW_TOKENS;
        return choose(&one, 1, facts, parts, true);
    }
    for (int c = 0; c < n; c++) {
        double worst = 0;
        for (int i = 0; i < n; i++) {
            const kn_gemm *one = &sized[i];
            double loss = kn_gemm_sm90_cost(&best[c], &one, 1, facts->multiprocessors).clocks / clocks[i] - 1;
            if (one->m >= MATTERS) loss *= MORE;
            if (loss > worst) worst = loss;
        }
        if (least >= 0 && worst >= least) continue;
        least = worst;
        chosen = best[c];
    }
    return chosen;
}

kn_gemm_candidate kn_gemm_sm90_choose_generic(const kn_gemm *const *g, int n, const kn_device_facts *facts) {
    kn_gemm sized[KN_GEMM_SM90_MAX_PRODUCTS];
    const kn_gemm *list[KN_GEMM_SM90_MAX_PRODUCTS];
    /* One kernel for all machines of the architecture that have the memory for it. */
    kn_device_facts machine = *facts;
    machine.multiprocessors = reference.multiprocessors;
    if (n == 1 && g[0]->m_is_tokens) return choose_for_all_tokens(g[0], &machine);
    for (int i = 0; i < n; i++) {
        sized[i] = *g[i];
        list[i] = &sized[i];
        /* Depth hardly matters to a tile. */
        for (int s = 0; g[i]->k_is_tokens && s < g[i]->n_segments; s++) sized[i].segment[s].k = MANY_TOKENS;
    }
    return choose(list, n, &machine, n == 1 ? kn_gemm_depth_parts(g[0]) : 1, true);
}
