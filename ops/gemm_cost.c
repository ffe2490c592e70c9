/* ops/gemm_cost: what candidates of the TMA + wgmma kernel hold in shared memory, how they walk, and what they cost:
 * see gemm_cost.h. */
#include "ops/gemm_cost.h"

#include <string.h>

enum {
    FIXED_BYTES = 1024,          /* mbarriers, alignment */
    PATCHES_BYTES = 8 * 5120,    /* of epilogues that pass through shared memory */
    STREAMS_BYTES = 8 * 4096,    /* of the one that has tensors copied there */
    STREAMS_BOXES_BYTES = 65536, /* where TMA copies them */
    MAX_STAGES = 12,
    SHALLOW = 32 /* k blocks up to which boxes hold rows of D */
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

/* An H200, by which is decided what must not differ from machine to machine. */
const kn_device_facts kn_gemm_reference_device = {.multiprocessors = 132, .smem_per_block = 232448};

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
    return rows && kn_gemm_k_blocks(g) <= SHALLOW && strcmp(g->epilogue, "store") == 0 && !g->accumulate &&
           kn_dtype_size(g->d.dtype) == 2 && !c->swap;
}

static int stages_with(const kn_gemm_candidate *c, const kn_gemm *g, const kn_device_facts *facts, int slots) {
    int64_t fixed = FIXED_BYTES + (strcmp(g->epilogue, "store") == 0 ? 0 : PATCHES_BYTES);
    if (strcmp(g->epilogue, "row_swiglu_backward") == 0) fixed += STREAMS_BYTES;
    if (c->boxes) fixed = FIXED_BYTES + boxes_bytes(c, g, slots);
    if (c->resident) fixed += kn_gemm_k_blocks(g) * c->bn * KN_GEMM_SM90_K_BLOCK * 2;
    int64_t n = ((int64_t)facts->smem_per_block - fixed) / kn_gemm_sm90_stage_bytes(c);
    return n > MAX_STAGES ? MAX_STAGES : (int)n;
}

int kn_gemm_sm90_stages(const kn_gemm_candidate *c, const kn_gemm *g, const kn_device_facts *facts) {
    return stages_with(c, g, facts, kn_gemm_sm90_slots(c, g, facts));
}

enum { MAX_WALK = 40 };
/* Tiles of time until B rests: of 256 columns, and of fewer. */
static const double NEXT_WALK = 0.5, NEXT_NARROW_WALK = 0.6;
/* By so many tiles longer walks are preferred where B has 256 columns: measured, from 64 to 256 tokens. */
static const double LONG_WALK = 3;

/* Clocks that the k blocks in shared memory last. */
static double in_flight(const kn_gemm_candidate *c, const kn_gemm *g) {
    return kn_gemm_sm90_stages(c, g, &kn_gemm_reference_device) * (double)kn_gemm_sm90_tile_rows(c) * c->bn / 32;
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
    double weights = 2 * (double)(kn_gemm_k_blocks(g) * KN_GEMM_SM90_K_BLOCK) * (double)g->n;
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
    double k = (double)(kn_gemm_k_blocks(g) * KN_GEMM_SM90_K_BLOCK), bytes = 2 * k * (double)extent;
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
    return tail ? (double)kn_ceil_div(g->segment[0].k, 16) / 4 : (double)kn_gemm_k_blocks(g);
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
