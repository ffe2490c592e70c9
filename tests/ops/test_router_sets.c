/* router_backward on a real GPU, against the float64 reference: sets of features and options, each with many token
 * counts. What its arguments are: support/problem_sets.h. */
#include "router_draw.h"

enum { LARGE = 5000000 /* tokens x hidden x experts of a problem, at most */ };

/* ---- what was drawn -------------------------------------------------------------------------------------- */

static const kn_sets_row table[] = {
    {"tokens", {"0", "1-64", "65-192", "193-700", "701-2048", "2049+"}},
    {"hidden", {"1-64", "65-256", "257-700", "2048"}},
    {"experts", {"1-64", "65-128", "129-256", "257+"}},
    {"slots", {"1", "2-8", "9-16", "17+"}},
    {"hidden_states", {"bf16", "f16", "f32"}},
    {"side inputs", {"bf16", "f16", "f32"}},
    {"outputs", {"bf16", "f16", "f32"}},
    {"ids", {"int32", "int64"}},
    {"score", {"softmax", "sigmoid", "sqrtsoftplus", "selected"}},
    {"normalise", {"sum", "none", "sum_eps", "sum_clamp"}},
    {"logits_gradient", {"before", "after"}},
    {"round_dlogits", {"input", "f32"}},
    {"accumulate", {"nothing", "something"}},
    {"rows", {"compact", "with gaps"}},
    {"skipped ids", {"none", "30%"}},
    {"inputs", {"weights_sum", "grad_mask", "grad_logits", "aux", "aux_row", "z_loss", "token_mask"}},
    {"outputs wanted", {"hidden", "weight", "bias", "logits"}},
    {"launches", {"0", "1", "2", "3", "4", "5+"}},
    {"plan", {"fused", "of the engine's products"}},
    {"launches, fused", {"0", "1", "2", "3", "4", "5+"}},
};

static void count(const kn_sets_problem *p, int64_t (*drawn)[KN_SETS_COLUMNS]) {
    const kn_gen_config *c = &p->g->config;
    static const int64_t tokens[] = {0, 64, 192, 700, 2048}, hidden[] = {64, 256, 700}, experts[] = {64, 128, 256},
                         slots[] = {1, 8, 16};
    static const int inputs[] = {WEIGHTS_SUM, GRAD_MASK, GRAD_LOGITS, AUX, AUX_ROW, Z_LOSS, TOKEN_MASK};
    const kiln_router_backward_options *o = &c->options.router;
    int column[] = {kn_sets_class(c->tokens, tokens, 5),
                    kn_sets_class(c->hidden, hidden, 3),
                    kn_sets_class(c->experts, experts, 3),
                    kn_sets_class(c->top_k, slots, 3),
                    kn_sets_dtype_column(c->dtype),
                    kn_sets_dtype_column(c->side_dtype),
                    kn_sets_dtype_column(c->out_dtype),
                    c->id_dtype == KN_I64,
                    o->score,
                    o->normalise,
                    o->logits_gradient,
                    o->round_dlogits,
                    o->common.accumulate != 0,
                    c->gap != 0,
                    c->skip_percent != 0};
    for (int i = 0; i < 15; i++) drawn[i][column[i]]++;
    for (int i = 0; i < 7; i++) drawn[15][i] += !(c->absent & bit(inputs[i]));
    for (int i = 0; i < 4; i++) drawn[16][i] += !(c->absent & bit(OUT_HIDDEN + i));
    int launches = p->launches < 5 ? (int)p->launches : 5;
    bool fused = kn_sets_kernels(p->program, "router_fused.ptxt", NULL, NULL) > 0;
    drawn[17][launches]++;
    drawn[18][0] += fused;
    drawn[18][1] += p->launches > 0 && !fused;
    if (fused) drawn[19][launches]++;
}

/* ---- sets ------------------------------------------------------------------------------------------------ */

/* Most are small; each eighth has a model's number of columns. Half have what the fused kernel takes. */
static kn_gen_config draw_set(uint64_t *state, int64_t i) {
    int64_t hidden, experts;
    do {
        hidden = i % 8 == 0 ? 2048 : kn_draw_edge(state, 700);
        experts = kn_draw_edge(state, 512);
        if (i % 2 == 0) hidden = (hidden + 7) / 8 * 8;
        if (i % 2 == 0) experts = (experts < 249 ? experts + 7 : 256) / 8 * 8;
    } while (hidden * experts > 100000 && i % 8 != 0);
    if (i % 8 == 0) experts = experts < 128 ? experts : 128;
    kn_gen_config c = draw_features(state, hidden, experts);
    if (i % 2 != 0) return c;
    c.dtype = kn_draw_below(state, 2) ? KN_BF16 : KN_F16;
    c.options.router.round_dlogits = KILN_ROUND_DLOGITS_INPUT;
    c.gap = c.gap / 8 * 8;
    c.absent |= bit(TOKEN_MASK);
    if (i % 4 == 0 && c.top_k > 8) c.top_k = 8;
    return c;
}

/* A third of the sets have few tokens, a third fewer than fill all stages. */
static void draw_tokens(uint64_t *state, int64_t i, int64_t n, kn_gen_config *c) {
    (void)n;
    int64_t most = LARGE / (c->hidden * c->experts), top = i % 3 == 0 ? 192 : i % 3 == 1 ? 2048 : 6050, t;
    do {
        int64_t kind = kn_draw_below(state, 16);
        t = kind == 0   ? kn_draw_below(state, 2)
            : kind == 1 ? 2047 + kn_draw_below(state, 3)
            : kind == 2 ? 2050 + kn_draw_below(state, 4000)
            : kind == 3 ? 700 + kn_draw_below(state, 1348)
            : kind < 8  ? kn_draw_edge(state, 700)
                        : 1 + kn_draw_below(state, 300);
    } while (t > top || (t > most && t > 40));
    c->tokens = t;
}

int main(int argc, char **argv) {
    static const kn_sets router = {.op = "router_backward",
                                   .draw = draw_set,
                                   .draw_tokens = draw_tokens,
                                   .count = count,
                                   .rows = table,
                                   .n_rows = sizeof table / sizeof *table};
    return kn_sets_main(&router, argc, argv);
}
