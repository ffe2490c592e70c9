/* expert_mlp_backward on a real GPU, against the float64 reference: sets of features and options, each with many token
 * counts. What its arguments are: support/problem_sets.h. Functions of a user's have no reference: their test is
 * test_expert_mlp_user.c. */
#include "expert_mlp_support.h"
#include "support/problem_sets.h"

#include <stdlib.h>

enum {
    HUGE_SETS = 4, /* the first ones: sizes at which depths are split and operands rest in shared memory */
    LARGE_SETS = 12,
    SMALL = 2000000, /* tokens x hidden x inner of a problem, at most; */
    LARGE = 25000000 /* of the first sets */
};

/* ---- what was drawn -------------------------------------------------------------------------------------- */

static const kn_sets_row table[] = {
    {"tokens", {"0", "1", "2-64", "65-128", "129-256", "257+"}},
    {"batch", {"no tokens", "as tokens", "more", "4096+"}},
    {"hidden", {"1-64", "65-256", "257-512", "513+"}},
    {"inner", {"1-64", "65-256", "257-512", "513+"}},
    {"inputs", {"bf16", "f16"}},
    {"outputs", {"bf16", "f16", "f32"}},
    {"ids", {"int32", "int64"}},
    {"ids are", {"distinct", "repeated", "all the same", "first and last", "-1 too", "out of range too"}},
    {"activation", {"SwiGLU", "alpha", "limit", "offset"}},
    {"accumulate", {"nothing", "something", "everything"}},
    {"rows", {"compact", "with gaps"}},
    {"scale", {"1e-3", "1", "1e3"}},
    {"inputs there", {"gate_output", "gated_output", "expert_output"}},
    {"outputs wanted", {"hidden", "routing", "w1", "w2", "w3", "all", "one"}},
    {"kernels for", {"any tokens", "these tokens"}},
    {"launches", {"0", "1", "2", "3", "4", "5+"}},
    {"beside products", {"gather", "combine", "da fills rows"}},
    KN_SETS_PRODUCTS,
};

/* What the ids of a problem are, as columns of the table. */
static void count_ids(const kn_gen *g, int64_t *row) {
    int64_t t = g->config.tokens, b = g->config.batch;
    bool ends[2] = {false}, skipped = false, wild = false, repeated = false, same = t > 1;
    uint8_t *seen = calloc((size_t)b + 1, 1);
    for (int64_t i = 0; seen && i < t; i++) {
        int64_t id = (int64_t)kn_gen_get(g, TOKEN_INDICES, i);
        bool inside = id >= 0 && id < b;
        skipped |= id == -1;
        wild |= !inside && id != -1;
        ends[0] |= id == 0;
        ends[1] |= id == b - 1;
        same &= id == (int64_t)kn_gen_get(g, TOKEN_INDICES, 0);
        if (inside) repeated |= seen[id]++ != 0;
    }
    free(seen);
    row[repeated]++;
    row[2] += same;
    row[3] += ends[0] && ends[1] && b > 1;
    row[4] += skipped;
    row[5] += wild;
}

static void count(const kn_sets_problem *p, int64_t (*drawn)[KN_SETS_COLUMNS]) {
    static const int64_t tokens[] = {0, 1, 64, 128, 256}, sizes[] = {64, 256, 512};
    const kn_gen_config *c = &p->g->config;
    const kiln_expert_mlp_backward_options *o = &c->options.expert_mlp;
    uint64_t wanted = ALL_OUTPUTS & ~c->absent, added = o->common.accumulate << OUT_HIDDEN & wanted;
    drawn[0][kn_sets_class(c->tokens, tokens, 5)]++;
    drawn[1][c->batch >= 4096 ? 3 : c->tokens == 0 ? 0 : c->batch == c->tokens ? 1 : 2]++;
    drawn[2][kn_sets_class(c->hidden, sizes, 3)]++;
    drawn[3][kn_sets_class(c->inner, sizes, 3)]++;
    drawn[4][kn_sets_dtype_column(c->dtype)]++;
    drawn[5][kn_sets_dtype_column(c->out_dtype)]++;
    drawn[6][c->id_dtype == KN_I64]++;
    count_ids(p->g, drawn[7]);
    drawn[8][0] += o->activation.alpha == 0 && o->activation.limit == 0 && o->activation.offset == 0;
    drawn[8][1] += o->activation.alpha != 0;
    drawn[8][2] += o->activation.limit != 0;
    drawn[8][3] += o->activation.offset != 0;
    drawn[9][added == 0 ? 0 : added == wanted ? 2 : 1]++;
    drawn[10][c->gap != 0]++;
    drawn[11][c->scale < 1 ? 0 : c->scale > 1 ? 2 : 1]++;
    drawn[12][0] += !(c->absent & bit(GATE_OUTPUT));
    drawn[12][1] += !(c->absent & bit(GATED_OUTPUT));
    drawn[12][2] += !(c->absent & bit(EXPERT_OUTPUT));
    for (int i = 0; i < 5; i++) drawn[13][i] += (wanted & bit(OUT_HIDDEN + i)) != 0;
    drawn[13][5] += wanted == ALL_OUTPUTS;
    drawn[13][6] += (wanted & (wanted - 1)) == 0;
    drawn[14][p->exact]++;
    drawn[15][p->launches < 5 ? p->launches : 5]++;
    drawn[16][0] += kn_sets_kernels(p->program, "expert_mlp_gather.ptxt", NULL, NULL);
    drawn[16][1] += kn_sets_kernels(p->program, "expert_mlp_combine.ptxt", NULL, NULL);
    drawn[16][2] += kn_sets_kernels(p->program, "gemm_sm90.ptxt", "FILL", NULL);
    kn_sets_count_products(p->program, drawn[17]);
}

/* ---- sets ------------------------------------------------------------------------------------------------ */

/* The first sets and half of the others have what the TMA + wgmma kernels take. */
static void draw_sizes(uint64_t *state, int64_t i, kn_gen_config *c) {
    static const int64_t huge[HUGE_SETS][2] = {{3072, 512}, {512, 2048}, {1536, 1024}, {256, 4096}};
    static const int64_t large[][2] = {{2048, 256}, {512, 1024}, {1024, 512}, {256, 2048}, {1536, 320}, {640, 768}};
    if (i < LARGE_SETS) {
        const int64_t *size = i < HUGE_SETS ? huge[i] : large[i % 6];
        c->hidden = size[0];
        c->inner = size[1];
        return;
    }
    do {
        c->hidden = kn_draw_edge(state, 700);
        c->inner = kn_draw_edge(state, 700);
        if (i % 2 == 0) {
            c->hidden = (c->hidden + 7) / 8 * 8;
            c->inner = (c->inner + 7) / 8 * 8;
        }
    } while (c->hidden * c->inner > 70000);
}

static void draw_outputs(uint64_t *state, int64_t i, kn_gen_config *c) {
    if (i < HUGE_SETS) { /* as models do */
        c->out_dtype = c->dtype;
        return;
    }
    int64_t kind = kn_draw_below(state, 4);
    if (kind == 0) { /* one alone */
        c->absent |= ALL_OUTPUTS & ~bit(OUT_HIDDEN + (int)kn_draw_below(state, 5));
    } else if (kind == 1) {
        for (int k = 0; k < 5; k++) c->absent |= kn_draw_below(state, 4) ? 0 : bit(OUT_HIDDEN + k);
    }
    int64_t added = kn_draw_below(state, 4);
    c->options.common.accumulate = added == 0 ? 31 : added == 1 ? (uint64_t)kn_draw_below(state, 32) : 0;
}

static kn_gen_config draw_set(uint64_t *state, int64_t i) {
    static const double limits[] = {7, 1, 3.05};
    kn_gen_config c = config_of(0, 0, 0, 0);
    draw_sizes(state, i, &c);
    c.seed = (uint64_t)kn_draw_below(state, 1 << 30);
    c.dtype = kn_draw_below(state, 2) ? KN_BF16 : KN_F16;
    c.out_dtype = kn_draw_dtype(state);
    c.id_dtype = kn_draw_below(state, 2) ? KN_I32 : KN_I64;
    c.gap = kn_draw_below(state, 3) == 0 ? 1 + (int)kn_draw_below(state, 24) : 0;
    if (i < LARGE_SETS || i % 2 == 0) c.gap = c.gap / 8 * 8;
    c.skip_percent = kn_draw_below(state, 3) == 0 ? 20 : 0;
    for (int k = 0; k < N_ARGS; k++) c.absent |= bit(k) & SAVED && kn_draw_below(state, 2) ? bit(k) : 0;
    draw_outputs(state, i, &c);
    kiln_expert_mlp_backward_options *o = &c.options.expert_mlp;
    if (kn_draw_below(state, 3) == 0) o->unique_indices = KILN_FALSE;
    if (kn_draw_below(state, 3) == 0) o->activation.alpha = kn_draw_below(state, 2) ? 1.702 : 0.5;
    if (kn_draw_below(state, 3) == 0) o->activation.limit = limits[kn_draw_below(state, 3)];
    if (kn_draw_below(state, 3) == 0) o->activation.offset = kn_draw_below(state, 2) ? 1 : -0.5;
    /* f16 holds neither products of large numbers nor all digits of small ones. */
    if (c.dtype == KN_BF16 && c.out_dtype != KN_F16 && kn_draw_below(state, 3) == 0)
        c.scale = kn_draw_below(state, 2) ? 1e-3 : 1e3;
    return c;
}

static bool exact(int64_t i, int64_t n) {
    return n % (i < HUGE_SETS ? 15 : 60) == 0;
}

static void draw_tokens(uint64_t *state, int64_t i, int64_t n, kn_gen_config *c) {
    int64_t most = (i < LARGE_SETS ? LARGE : SMALL) / (c->hidden * c->inner), t;
    do {
        int64_t kind = kn_draw_below(state, 12);
        t = kind == 0   ? kn_draw_below(state, 2)
            : kind == 1 ? 300 + kn_draw_below(state, 1500)
            : kind < 6  ? kn_draw_edge(state, 700)
                        : 1 + kn_draw_below(state, 300);
    } while (t > most && t > 24);
    if (i < HUGE_SETS && exact(i, n)) t = 65 + kn_draw_below(state, 192);
    int64_t kind = kn_draw_below(state, 6);
    /* Beyond 4096 tokens rows are looked after by more than one block of the gather kernel. */
    int64_t more = kind == 0                       ? 0
                   : kind == 1 && c->hidden <= 256 ? 4096 + kn_draw_below(state, 500)
                                                   : kn_draw_below(state, 3 * t / 2 + 40);
    c->tokens = t;
    c->batch = t + more;
    if (c->options.expert_mlp.unique_indices == KILN_FALSE && kn_draw_below(state, 2)) /* many rows of a token */
        c->batch = 1 + kn_draw_below(state, t + 1);
}

/* In some problems: the first and the last token among the ids; ids out of range; where they may repeat, all the same.
 */
static void adjust(kn_gen *g) {
    int64_t t = g->config.tokens, b = g->config.batch, kind = kn_gen_below(g, 6);
    bool repeats = g->config.options.expert_mlp.unique_indices == KILN_FALSE;
    if (kind == 0 && t > 1 && b > 1) {
        for (int64_t i = 0; i < t; i++) { /* whoever has one of the two gives it up */
            int64_t id = (int64_t)kn_gen_get(g, TOKEN_INDICES, i);
            if (!repeats && (id == 0 || id == b - 1)) kn_gen_put(g, TOKEN_INDICES, i, -1);
        }
        kn_gen_put(g, TOKEN_INDICES, kn_gen_below(g, t / 2), 0);
        kn_gen_put(g, TOKEN_INDICES, t / 2 + kn_gen_below(g, t - t / 2), (double)(b - 1));
    } else if (kind == 1) {
        for (int64_t i = kn_gen_below(g, 3); i < t; i += 1 + kn_gen_below(g, 20))
            kn_gen_put(g, TOKEN_INDICES, i, kn_gen_below(g, 2) ? (double)(b + kn_gen_below(g, 9)) : -2);
    } else if (kind == 2 && repeats && t > 0) {
        double id = kn_gen_get(g, TOKEN_INDICES, 0);
        for (int64_t i = 0; i < t; i++) kn_gen_put(g, TOKEN_INDICES, i, id);
    }
}

int main(int argc, char **argv) {
    static const kn_sets expert_mlp = {.op = "expert_mlp_backward",
                                       .draw = draw_set,
                                       .draw_tokens = draw_tokens,
                                       .adjust = adjust,
                                       .count = count,
                                       .exact = exact,
                                       .rows = table,
                                       .n_rows = sizeof table / sizeof *table};
    return kn_sets_main(&expert_mlp, argc, argv);
}
