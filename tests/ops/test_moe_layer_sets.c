/* moe_layer_backward on a real GPU, against the float64 reference: sets of features and options, each with many token
 * counts. What its arguments are: support/problem_sets.h. */
#include "layer_sets.h"

#include "ops/moe_layer_args.h"

/* ---- what was drawn -------------------------------------------------------------------------------------- */

static const kn_sets_row table[] = {
    {"tokens", {"0", "1", "2-64", "65-128", "129-256", "257-1024", "1025+"}},
    {"hidden", {"1-64", "65-256", "257-512", "513+"}},
    {"inner", {"1-64", "65-256", "257-512", "513+"}},
    {"experts", {"1-64", "65-128", "129-256", "257+"}},
    {"slots", {"1", "2-8", "9-32", "33+"}},
    {"inputs", {"bf16", "f16"}},
    {"outputs", {"bf16", "f16", "f32"}},
    {"ids", {"int32", "int64"}},
    {"ids are", {"distinct", "repeated", "-1 too", "all -1", "out of range too"}},
    {"scaling factor", {"1", "another"}},
    {"norm_topk_prob", {"true", "false"}},
    {"router_mode", {"benchmark", "exact"}},
    {"accumulate", {"nothing", "something", "everything"}},
    {"rows", {"compact", "with gaps"}},
    {"scale", {"1e-3", "1", "1e3"}},
    {"inputs there", {"bias", "logits", "score_mask", "activated", "grad_topk_weights"}},
    {"outputs wanted", {"hidden", "router", "gate", "up", "down", "all", "one"}},
    {"kernels for", {"any tokens", "these tokens"}},
    {"launches", {"0", "1", "2", "3", "4", "5", "6+"}},
    {"beside products", {"router"}},
    KN_SETS_PRODUCTS,
};

/* What the ids of a problem are, as columns of the table. */
static void count_ids(const kn_gen *g, int64_t *row) {
    int64_t t = g->config.tokens, k = g->config.top_k, skipped = 0, wild = 0;
    bool repeated = false;
    for (int64_t i = 0; i < t * k; i++) {
        double id = kn_gen_get(g, TOPK_INDICES, i);
        skipped += id == -1;
        wild += id < -1 || id >= (double)g->config.experts;
        for (int64_t j = i / k * k; j < i; j++) repeated |= id >= 0 && kn_gen_get(g, TOPK_INDICES, j) == id;
    }
    row[repeated]++;
    row[2] += skipped > 0;
    row[3] += skipped > 0 && skipped == t * k;
    row[4] += wild > 0;
}

static void count(const kn_sets_problem *p, int64_t (*drawn)[KN_SETS_COLUMNS]) {
    static const int64_t tokens[] = {0, 1, 64, 128, 256, 1024}, experts[] = {64, 128, 256}, slots[] = {1, 8, 32};
    static const int inputs[] = {CORRECTION_BIAS, ROUTER_LOGITS, SCORE_MASK, ACTIVATED, GRAD_TOPK_WEIGHTS};
    const kn_gen_config *c = &p->g->config;
    const kiln_moe_layer_backward_options *o = &c->options.moe_layer;
    drawn[0][kn_sets_class(c->tokens, tokens, 6)]++;
    count_sizes(c, drawn[1], drawn[2]);
    drawn[3][kn_sets_class(c->experts, experts, 3)]++;
    drawn[4][kn_sets_class(c->top_k, slots, 3)]++;
    drawn[5][kn_sets_dtype_column(c->dtype)]++;
    drawn[6][kn_sets_dtype_column(c->out_dtype)]++;
    drawn[7][c->id_dtype == KN_I64]++;
    count_ids(p->g, drawn[8]);
    drawn[9][o->routed_scaling_factor != 0]++;
    drawn[10][o->norm_topk_prob == KILN_FALSE]++;
    drawn[11][o->router_mode]++;
    drawn[13][c->gap != 0]++;
    drawn[14][c->scale < 1 ? 0 : c->scale > 1 ? 2 : 1]++;
    for (int i = 0; i < 5; i++) drawn[15][i] += !(c->absent & bit(inputs[i]));
    count_outputs(c, OUT_HIDDEN, drawn[16], drawn[12]);
    drawn[17][p->exact]++;
    drawn[18][p->launches < 6 ? p->launches : 6]++;
    drawn[19][0] += kn_sets_kernels(p->program, "moe_layer_router.ptxt", NULL, NULL);
    kn_sets_count_products(p->program, drawn[20]);
}

/* ---- sets ------------------------------------------------------------------------------------------------ */

static void draw_sizes(uint64_t *state, int64_t i, kn_gen_config *c) {
    c->experts = kn_draw_edge(state, 384);
    if (is_aligned(i)) c->experts = (c->experts + 7) / 8 * 8;
    if (i < LARGE_SETS) {
        large_sizes(i, c);
        if (c->experts > 128) c->experts = 128;
        return;
    }
    do {
        draw_small_sizes(state, i, c);
        if (i % 8 == 2) c->inner = 8 + 8 * kn_draw_below(state, 3); /* so that there is time for many tokens */
        if (i % 8 == 2) c->hidden = 64 + 8 * kn_draw_below(state, 9);
    } while (c->hidden * c->inner > 70000 || c->hidden * c->experts > 100000);
}

static kn_gen_config draw_set(uint64_t *state, int64_t i) {
    static const double factors[] = {2.5, 0.5, 16};
    kn_gen_config c = kn_gen_defaults("moe_layer_backward");
    draw_sizes(state, i, &c);
    c.top_k = 1 + kn_draw_below(state, kn_draw_below(state, 6) ? 8 : 80);
    if (c.top_k > c.experts) c.top_k = c.experts;
    c.seed = (uint64_t)kn_draw_below(state, 1 << 30);
    c.dtype = kn_draw_below(state, 3) ? KN_BF16 : KN_F16;
    c.out_dtype = kn_draw_dtype(state);
    c.id_dtype = kn_draw_below(state, 2) ? KN_I32 : KN_I64;
    draw_gap(state, i, &c);
    c.skip_percent = kn_draw_below(state, 3) ? 0 : kn_draw_below(state, 6) ? 20 : 100;
    static const int optional[] = {CORRECTION_BIAS, ROUTER_LOGITS, SCORE_MASK, ACTIVATED, GRAD_TOPK_WEIGHTS};
    c.absent = 0;
    for (int k = 0; k < 5; k++) c.absent |= kn_draw_below(state, 2) ? bit(optional[k]) : 0;
    draw_outputs(state, i, OUT_HIDDEN, &c);
    kiln_moe_layer_backward_options *o = &c.options.moe_layer;
    if (kn_draw_below(state, 2)) o->routed_scaling_factor = factors[kn_draw_below(state, 3)];
    if (kn_draw_below(state, 3) == 0) o->norm_topk_prob = KILN_FALSE;
    if (kn_draw_below(state, 2)) o->router_mode = KILN_ROUTER_MODE_EXACT;
    draw_scale(state, &c);
    return c;
}

static void draw_tokens(uint64_t *state, int64_t i, int64_t n, kn_gen_config *c) {
    c->tokens = draw_count(state, i, n, c->hidden * (c->inner + c->experts / 3));
}

/* In some problems an expert has two of a token's slots, in some ids are out of range. */
static void adjust(kn_gen *g) {
    int64_t slots = g->config.tokens * g->config.top_k, k = g->config.top_k, kind = kn_gen_below(g, 6);
    for (int64_t i = kn_gen_below(g, 9); kind < 2 && i < slots; i += 1 + kn_gen_below(g, 40)) {
        if (kind == 0)
            kn_gen_put(g, TOPK_INDICES, i, kn_gen_get(g, TOPK_INDICES, i / k * k));
        else
            kn_gen_put(g, TOPK_INDICES, i, kn_gen_below(g, 2) ? (double)(g->config.experts + kn_gen_below(g, 9)) : -2);
    }
}

int main(int argc, char **argv) {
    static const kn_sets moe_layer = {.op = "moe_layer_backward",
                                      .draw = draw_set,
                                      .draw_tokens = draw_tokens,
                                      .adjust = adjust,
                                      .count = count,
                                      .exact = exact,
                                      .rows = table,
                                      .n_rows = sizeof table / sizeof *table};
    return kn_sets_main(&moe_layer, argc, argv);
}
