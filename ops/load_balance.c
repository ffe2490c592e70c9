/* ops/load_balance: checks and planner of load_balance_backward. The kernel is ptx_templates/load_balance.ptxt.
 *
 * The kernel is a copy with one addition, and all that is planned is how wide an access is and how a block of threads
 * lies on the matrix. */
#include "ops/load_balance.h"

#include "kiln/kiln.h"

#include <stdio.h>

/* The tensors, in the order of the arguments. */
enum { GRAD_TOKENS, GRAD_MASK, GRAD_LOSS, TOPK_IDX, EXPERT_MASK, TOKENS_PER_EXPERT, TRAINING, OUT };

enum {
    THREADS = 256,
    BLOCKS_PER_SM = 8,     /* that a multiprocessor holds at once; and as many as are planned, under a limit */
    MAX_ROWS = 1 << 30,    /* that one grid covers, a row a thread */
    MAX_COL_TILES = 65535, /* of a grid's y */
    MAX_E = MAX_COL_TILES * THREADS
};

kn_status kn_load_balance_describe(const kn_call *call, kn_problem *p) {
    const kiln_load_balance_backward_options *options = call->options;
    int64_t b = call->letter['B' - 'A'], e = call->letter['E' - 'A'];
    int64_t k = call->letter['K' - 'A'];
    KN_REQUIRE(e >= 1 && e <= MAX_E, KN_E_SHAPE, "grad_expert_mask has %lld experts; wanted 1 to %d", (long long)e,
               MAX_E);
    if (call->tensor[TOPK_IDX].dtype == KN_DTYPE_NONE) {
        k = options->top_k;
        KN_REQUIRE(k >= 1, KN_E_ARG, "top_k is %lld; wanted at least 1, since topk_idx is NULL", (long long)k);
    } else {
        KN_REQUIRE(k >= 1, KN_E_SHAPE, "topk_idx has %lld columns; wanted at least 1", (long long)k);
        KN_REQUIRE(options->top_k == 0 || options->top_k == k, KN_E_ARG,
                   "top_k is %d, but topk_idx has %lld columns; wanted them equal, or top_k 0", options->top_k,
                   (long long)k);
    }
    KN_REQUIRE(b <= INT64_MAX / 8 / k, KN_E_SHAPE, "B = %lld times K = %lld is too large to count", (long long)b,
               (long long)k);
    p->axis[KN_LOAD_BALANCE_B] = b;
    p->axis[KN_LOAD_BALANCE_E] = e;
    p->axis[KN_LOAD_BALANCE_K] = k;
    return KN_OK;
}

/* How a block of THREADS threads lies on the matrix. */
typedef struct tile {
    int64_t vec;       /* columns a thread owns: 4 (one 16-byte access) or 1 */
    int64_t threads_x; /* threads side by side; one row of them covers a column tile */
    int64_t threads_y; /* rows side by side */
    int64_t col_tiles; /* column tiles of the matrix */
    int64_t blocks;    /* along the rows */
    bool walk;         /* a block comes back for more rows */
    bool one_wave;     /* all blocks are on the device at once, as far as the kernel may know */
} tile;

static bool is_aligned16(const kn_problem *p, int arg) {
    return p->align_log2[arg] >= 4;
}

static int64_t ceil_div(int64_t a, int64_t b) {
    return a / b + (a % b != 0);
}

static tile choose_tile(const kn_problem *p, const kn_device_facts *facts) {
    int64_t b = p->axis[KN_LOAD_BALANCE_B], e = p->axis[KN_LOAD_BALANCE_E];
    bool wide = e % 4 == 0 && is_aligned16(p, GRAD_TOKENS) && is_aligned16(p, GRAD_MASK) && is_aligned16(p, OUT);
    tile t = {.vec = wide ? 4 : 1};
    int64_t columns = e / t.vec;
    t.col_tiles = ceil_div(columns, THREADS);
    t.threads_x = ceil_div(columns, t.col_tiles);
    t.threads_y = THREADS / t.threads_x;
    /* A row a thread: short-lived blocks keep the memory busier than long-lived ones that walk. */
    int64_t row_blocks = ceil_div(b, t.threads_y), most = MAX_ROWS / t.threads_y;
    if (p->sm_limit) most = (int64_t)p->sm_limit * BLOCKS_PER_SM / t.col_tiles;
    if (most < 1) most = 1;
    t.walk = p->sm_limit || row_blocks > most;
    t.blocks = row_blocks < most ? row_blocks : most;
    t.one_wave = !p->generic && !t.walk && t.blocks * t.col_tiles <= (int64_t)facts->multiprocessors * BLOCKS_PER_SM;
    return t;
}

static void fill_params(const kn_problem *p, const tile *t, kn_params *params) {
    kn_params_set(params, "E", p->axis[KN_LOAD_BALANCE_E]);
    kn_params_set(params, "B", p->generic ? 0 : p->axis[KN_LOAD_BALANCE_B]); /* 0: an argument */
    kn_params_set(params, "VEC", t->vec);
    kn_params_set(params, "TX", t->threads_x);
    kn_params_set(params, "TY", t->threads_y);
    kn_params_set(params, "ACCUMULATE", (int64_t)(p->accumulate & 1));
    kn_params_set(params, "WALK", t->walk);
    /* A scalar more to wait for, and yet 0.2 us less in a grid of one wave; with more waves 1% more (measured). */
    kn_params_set_name(params, "LOSS", t->one_wave ? "behind" : "along");
}

kn_status kn_load_balance_plan(const kn_problem *p, const kn_device_facts *facts, const kn_target *target,
                               kn_program *out) {
    (void)target;
    int64_t b = p->axis[KN_LOAD_BALANCE_B], e = p->axis[KN_LOAD_BALANCE_E];
    double elements = (double)b * (double)e;
    out->floor_bytes = (p->accumulate & 1 ? 12 : 8) * elements;
    if (b == 0 || p->dtype[OUT] == KN_DTYPE_NONE) {
        snprintf(out->note, sizeof out->note, "nothing to do");
        return KN_OK;
    }
    tile t = choose_tile(p, facts);
    kn_program_builder builder = {.program = out};
    int kernel;
    fill_params(p, &t, kn_add_kernel(&builder, "load_balance.ptxt", &kernel));
    kn_launch_spec *launch = kn_add_launch(&builder, kernel, (uint32_t)t.blocks, (uint32_t)t.col_tiles, 1);
    kn_bind_tensor(launch, GRAD_TOKENS, 0);
    kn_bind_tensor(launch, GRAD_MASK, 0);
    kn_bind_tensor(launch, GRAD_LOSS, 0);
    kn_bind_tensor(launch, TRAINING, 0);
    kn_bind_tensor(launch, OUT, 0);
    kn_bind_stride(launch, GRAD_MASK, 0);
    kn_bind_stride(launch, OUT, 0);
    kn_bind_f32(launch, (float)(1 / ((double)b * (double)p->axis[KN_LOAD_BALANCE_K])));
    kn_bind_i64(launch, b);
    snprintf(out->note, sizeof out->note, "one pass: %lld x %lld threads of %lld bytes, %lld x %lld blocks",
             (long long)t.threads_x, (long long)t.threads_y, (long long)(4 * t.vec), (long long)t.blocks,
             (long long)t.col_tiles);
    return builder.status;
}
