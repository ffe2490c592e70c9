/* expert_mlp_backward on a real GPU, against the float64 reference: sets of features and options, each with many token
 * counts. What its arguments are: support/problem_sets.h. Functions of a user's have no reference: their test is
 * test_expert_mlp_user.c. */
#include "expert_mlp_support.h"
#include "layer_sets.h"

#include <stdlib.h>

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
    static const int64_t tokens[] = {0, 1, 64, 128, 256};
    const kn_gen_config *c = &p->g->config;
    const kiln_expert_mlp_backward_options *o = &c->options.expert_mlp;
    drawn[0][kn_sets_class(c->tokens, tokens, 5)]++;
    drawn[1][c->batch >= 4096 ? 3 : c->tokens == 0 ? 0 : c->batch == c->tokens ? 1 : 2]++;
    count_sizes(c, drawn[2], drawn[3]);
    drawn[4][kn_sets_dtype_column(c->dtype)]++;
    drawn[5][kn_sets_dtype_column(c->out_dtype)]++;
    drawn[6][c->id_dtype == KN_I64]++;
    count_ids(p->g, drawn[7]);
    drawn[8][0] += o->activation.alpha == 0 && o->activation.limit == 0 && o->activation.offset == 0;
    drawn[8][1] += o->activation.alpha != 0;
    drawn[8][2] += o->activation.limit != 0;
    drawn[8][3] += o->activation.offset != 0;
    drawn[10][c->gap != 0]++;
    drawn[11][c->scale < 1 ? 0 : c->scale > 1 ? 2 : 1]++;
    drawn[12][0] += !(c->absent & bit(GATE_OUTPUT));
    drawn[12][1] += !(c->absent & bit(GATED_OUTPUT));
    drawn[12][2] += !(c->absent & bit(EXPERT_OUTPUT));
    count_outputs(c, OUT_HIDDEN, drawn[13], drawn[9]);
    drawn[14][p->exact]++;
    drawn[15][p->launches < 5 ? p->launches : 5]++;
    drawn[16][0] += kn_sets_kernels(p->program, "expert_mlp_gather.ptxt", NULL, NULL);
    drawn[16][1] += kn_sets_kernels(p->program, "expert_mlp_combine.ptxt", NULL, NULL);
    drawn[16][2] += kn_sets_kernels(p->program, "gemm_sm90.ptxt", "FILL", NULL);
    kn_sets_count_products(p->program, drawn[17]);
}

/* ---- sets ------------------------------------------------------------------------------------------------ */

static void draw_sizes(uint64_t *state, int64_t i, kn_gen_config *c) {
    if (i < LARGE_SETS) {
        large_sizes(i, c);
        return;
    }
    do draw_small_sizes(state, i, c);
    while (c->hidden * c->inner > 70000);
}

static kn_gen_config draw_set(uint64_t *state, int64_t i) {
    static const double limits[] = {7, 1, 3.05};
    kn_gen_config c = config_of(0, 0, 0, 0);
    draw_sizes(state, i, &c);
    c.seed = (uint64_t)kn_draw_below(state, 1 << 30);
    c.dtype = kn_draw_below(state, 2) ? KN_BF16 : KN_F16;
    c.out_dtype = kn_draw_dtype(state);
    c.id_dtype = kn_draw_below(state, 2) ? KN_I32 : KN_I64;
    draw_gap(state, i, &c);
    c.skip_percent = kn_draw_below(state, 3) == 0 ? 20 : 0;
    for (int k = 0; k < N_ARGS; k++) c.absent |= bit(k) & SAVED && kn_draw_below(state, 2) ? bit(k) : 0;
    draw_outputs(state, i, OUT_HIDDEN, &c);
    kiln_expert_mlp_backward_options *o = &c.options.expert_mlp;
    if (kn_draw_below(state, 3) == 0) o->unique_indices = KILN_FALSE;
    if (kn_draw_below(state, 3) == 0) o->activation.alpha = kn_draw_below(state, 2) ? 1.702 : 0.5;
    if (kn_draw_below(state, 3) == 0) o->activation.limit = limits[kn_draw_below(state, 3)];
    if (kn_draw_below(state, 3) == 0) o->activation.offset = kn_draw_below(state, 2) ? 1 : -0.5;
    draw_scale(state, &c);
    return c;
}

static void draw_tokens(uint64_t *state, int64_t i, int64_t n, kn_gen_config *c) {
    int64_t t = draw_count(state, i, n, c->hidden * c->inner);
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
