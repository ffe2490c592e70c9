/* router_backward: results. Golden cases, random problems over every option, sizes of experts and slots, no tokens, bad
 * ids, masked tokens, NaN, exact zeros, known numbers, bits that may not depend on other tokens. The device is
 * KILN_DEVICE's: the GPU where there is one, else the simulator. KN_LONG=1 runs more and larger random problems. */
#include "router_draw.h"

#include "kiln/kiln_tools.h"
#include "support/both_paths.h"
#include "support/golden.h"

#include <math.h>
#include <stdlib.h>

/* ---- golden ---------------------------------------------------------------------------------------------------------
 */

static void golden_case(const char *path, void *user) {
    (void)user;
    static const kn_dtype types[] = {KN_BF16, KN_F32};
    for (int i = 0; i < 8; i++) {
        kn_gen *g;
        uint64_t absent = i & 4 ? bit(WEIGHTS_SUM) | bit(ROUTER_LOGITS) : 0;
        ck_assert_ok(kn_golden_load(path, types[i & 1], absent, NULL, &g));
        kn_status st = kn_gen_run(g, i & 2 ? portable : fast);
        if (st == KN_OK) st = kn_gen_check(g);
        ck_assert_msg(st == KN_OK, "%s (%d): %s", path, i, kn_error_message());
        kn_gen_free(g);
    }
}

START_TEST(golden_cases) {
    open_both();
    ck_assert_int_eq(kn_golden_each("router_backward", golden_case, NULL), 4);
    close_both();
}
END_TEST

/* ---- random problems ------------------------------------------------------------------------------------------------
 */

static kn_gen_config draw_config(uint64_t *state, int64_t budget) {
    int64_t hidden, experts, tokens;
    do {
        hidden = kn_draw_edge(state, 700);
        experts = kn_draw_edge(state, 700);
        tokens = kn_draw_below(state, 12) ? kn_draw_edge(state, 384) : 0;
    } while (hidden * experts * (tokens + 16) > budget);
    kn_gen_config c = draw_features(state, hidden, experts);
    c.tokens = tokens;
    return c;
}

START_TEST(random_problems) {
    open_both();
    bool all = getenv("KN_LONG") != NULL;
    uint64_t state = 11;
    for (int i = 0; i < (all ? 2400 : 130); i++) {
        kn_gen_config c = draw_config(&state, all ? 4000000 : 400000);
        run_one(&c, i % 2 ? portable : fast, i % 2 ? "portable" : "fast");
    }
    close_both();
}
END_TEST

/* Whatever subset of the outputs is wanted. */
START_TEST(every_subset_of_outputs) {
    open_both();
    for (uint64_t unwanted = 0; unwanted < 16; unwanted++) {
        kn_gen_config c = config_of(40, 64, 24, 3);
        c.absent |= unwanted << OUT_HIDDEN;
        c.options.common.accumulate = unwanted * 7 % 16;
        if (unwanted % 3 == 1) c.absent &= ~bit(TOKEN_MASK);
        run_one(&c, unwanted % 2 ? portable : fast, "subset");
    }
    close_both();
}
END_TEST

/* Every number of experts where a boundary of the kernels lies, with few, many and all of them selected. */
START_TEST(sizes_of_experts_and_slots) {
    open_both();
    static const int64_t experts[] = {1,   2,   3,   7,   8,   31,  33,   60,   64,   96,   127, 128,
                                      129, 160, 256, 257, 384, 512, 1023, 1024, 1025, 2304, 8192};
    for (int i = 0; i < (int)(sizeof experts / sizeof *experts) * 3; i++) {
        int64_t e = experts[i / 3], most = e < 256 ? e : 256, k = i % 3 == 0 ? 1 : (i % 3 == 1 ? (most + 7) / 8 : most);
        kn_gen_config c = config_of(5, 8, e, k);
        c.options.router.score = i % 4;
        c.options.router.normalise = i / 4 % 4;
        c.options.router.logits_gradient = i / 2 % 2;
        c.absent = c.options.router.score == KILN_SCORE_SOFTMAX_SELECTED ? bit(AUX) | bit(AUX_ROW) : 0;
        c.aux_rows = 3;
        c.side_dtype = i % 5 < 2 ? KN_F32 : KN_BF16;
        run_one(&c, i % 2 ? portable : fast, "sizes");
    }
    close_both();
}
END_TEST

/* The fused kernel: one column slice or many, shares with and without tokens, one output
 * or the other, sums over more blocks than there are stages. */
START_TEST(fused_products) {
    open_both();
    const struct {
        int64_t t, h, e, k;
        uint64_t absent;
    } shapes[] = {{1, 64, 8, 1, 0},
                  {65, 72, 128, 8, bit(OUT_BIAS)},
                  {1000, 64, 16, 2, bit(OUT_BIAS)},
                  {200, 1032, 64, 4, bit(OUT_BIAS) | bit(OUT_LOGITS)},
                  {130, 2048, 120, 8, bit(OUT_BIAS)},
                  {300, 320, 128, 128, bit(OUT_BIAS) | bit(GRAD_LOGITS)},
                  {300, 320, 128, 2, bit(OUT_BIAS) | bit(OUT_HIDDEN)},
                  {300, 320, 128, 2, bit(OUT_BIAS) | bit(OUT_WEIGHT)},
                  {2100, 64, 24, 3, bit(OUT_BIAS)},
                  {2040, 64, 8, 1, bit(OUT_BIAS)},
                  {6000, 64, 8, 2, bit(OUT_BIAS)},
                  {4200, 136, 8, 2, 0},
                  {4100, 72, 72, 2, bit(OUT_BIAS)},
                  {200, 200, 256, 8, 0},
                  {200, 264, 192, 8, bit(OUT_HIDDEN)},
                  {200, 264, 136, 8, bit(OUT_WEIGHT)}};
    for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes) * 2; i++) {
        kn_gen_config c = config_of(shapes[i / 2].t, shapes[i / 2].h, shapes[i / 2].e, shapes[i / 2].k);
        c.absent |= shapes[i / 2].absent;
        c.dtype = i & 2 ? KN_F16 : KN_BF16;
        c.out_dtype = i & 1 ? KN_F32 : c.dtype;
        c.gap = i & 1 ? 8 : 0;
        c.options.common.accumulate = i & 1 ? 15 : 0;
        c.options.router.score = i / 4 % 4;
        run_one(&c, fast, "fused");
    }
    close_both();
}
END_TEST

/* Nobody clears the workspace: whatever it holds, the results are the same, again and again. */
START_TEST(any_workspace_will_do) {
    enum { PLENTY = 4 << 20 };
    open_both();
    char *noise = malloc(PLENTY);
    for (int k = 0; k < PLENTY; k++) noise[k] = (char)(k * 37 % 253 + 3);
    static const int64_t tokens[] = {1, 300, 65, 830};
    for (int i = 0; i < 4; i++) {
        kn_gen_config c = config_of(tokens[i], 136, 16, 2);
        c.absent |= i & 1 ? bit(OUT_BIAS) : 0;
        kn_gen *g = make(&c), *h = make(&c);
        run_and_check(g, fast, "workspace");
        kiln_router_backward_options *o = &h->config.options.router;
        void *memory;
        ck_assert_ok(kiln_device_alloc(fast, PLENTY, &memory));
        ck_assert_ok(kiln_device_copy_in(fast, memory, noise, PLENTY));
        memcpy(o, h->call.options, sizeof *o);
        o->common.workspace = memory;
        o->common.workspace_bytes = PLENTY;
        h->call.options = o;
        for (int again = 0; again < 3; again++) {
            ck_assert_ok(kn_gen_run(h, fast));
            same_bits(g, h);
        }
        ck_assert_ok(kiln_device_free(fast, memory));
        kn_gen_free(g);
        kn_gen_free(h);
    }
    free(noise);
    close_both();
}
END_TEST

/* ---- edges ----------------------------------------------------------------------------------------------------------
 */

/* Without tokens the sums over tokens are zeros with beta 0, whatever was there, and untouched with beta 1. */
START_TEST(no_tokens_and_one) {
    open_both();
    for (int i = 0; i < 8; i++) {
        kn_gen_config c = config_of(i & 4 ? 1 : 0, 64, 16, 4);
        c.absent = i & 2 ? bit(AUX_ROW) : bit(AUX) | bit(AUX_ROW) | bit(TOKEN_MASK);
        c.options.common.accumulate = i & 2 ? 15 : 0;
        run_one(&c, i & 1 ? portable : fast, "tokens");
    }
    close_both();
}
END_TEST

/* Ids that are no experts: skipped, counted, -1 skipped and not counted. The reference skips them too. */
START_TEST(bad_ids_are_skipped_and_counted) {
    open_both();
    for (int i = 0; i < 4; i++) {
        kiln_context *ctx = i & 1 ? portable : fast;
        kn_gen_config c = config_of(40, 192, 16, 4);
        c.id_dtype = i & 2 ? KN_I32 : KN_I64;
        c.absent |= i & 2 ? bit(OUT_BIAS) : 0;
        kn_gen *g = make(&c);
        static const double bad[] = {16, 21, 2147483647.0, -2147483648.0, -2};
        for (int64_t j = 0; j < 5; j++) kn_gen_put(g, SELECTED, 7 * j + 1, bad[j]);
        if (c.id_dtype == KN_I64) kn_gen_put(g, SELECTED, 100, 4294967297.0);
        kn_gen_put(g, SELECTED, 150, -1);
        uint64_t faults;
        ck_assert_ok(kiln_context_device_faults_reset(ctx));
        run_and_check(g, ctx, "ids");
        ck_assert_ok(kiln_context_device_faults(ctx, &faults));
        ck_assert_uint_eq(faults, c.id_dtype == KN_I64 ? 6 : 5);
        kn_gen_free(g);
    }
    close_both();
}
END_TEST

/* A token without a single id: only what does not come from its slots remains. */
START_TEST(tokens_without_experts) {
    open_both();
    for (int i = 0; i < 16; i++) {
        kn_gen_config c = config_of(20, 64, 16, 4);
        c.options.router.score = i / 4;
        c.options.router.normalise = i % 4;
        c.absent |= i & 1 ? bit(WEIGHTS_SUM) : 0;
        c.absent |= i & 2 ? bit(GRAD_LOGITS) : 0;
        kn_gen *g = make(&c);
        for (int64_t j = 0; j < 4; j++) kn_gen_put(g, SELECTED, 12 + j, -1);
        if (!(c.absent & bit(WEIGHTS_SUM))) kn_gen_put(g, WEIGHTS_SUM, 3, 0);
        run_and_check(g, i & 1 ? portable : fast, "no experts");
        for (int64_t e = 0; i & 2 && e < 16; e++) ck_assert(kn_gen_get(g, OUT_LOGITS, 3 * 16 + e) == 0);
        kn_gen_free(g);
    }
    close_both();
}
END_TEST

/* Masked tokens: rows of zeros (beta 0) or left alone (beta 1), no part in any sum, whatever their tensors hold. */
START_TEST(masked_tokens_count_for_nothing) {
    open_both();
    for (int i = 0; i < 8; i++) {
        kn_gen_config c = config_of(70, i & 2 ? 61 : 64, 16, 4);
        c.absent = bit(AUX_ROW);
        c.options.common.accumulate = i & 4 ? 15 : 0;
        kn_gen *g = make(&c);
        for (int64_t t = 0; t < 70; t += 3) {
            kn_gen_put(g, TOKEN_MASK, t, 0);
            for (int64_t j = 0; j < c.hidden; j++) kn_gen_put(g, HIDDEN, t * c.hidden + j, (double)NAN);
            for (int64_t e = 0; e < 16; e++) {
                kn_gen_put(g, PROBS, t * 16 + e, (double)NAN);
                kn_gen_put(g, ROUTER_LOGITS, t * 16 + e, (double)INFINITY);
            }
            kn_gen_put(g, GRAD_WEIGHTS, t * 4, (double)NAN);
        }
        kn_gen_put(g, GATE_WEIGHT, 5, (double)NAN); /* poisons a column of every other token's row */
        run_and_check(g, i & 1 ? portable : fast, "masked");
        for (int64_t j = 0; !(i & 4) && j < c.hidden; j++) ck_assert(kn_gen_get(g, OUT_HIDDEN, 3 * c.hidden + j) == 0);
        for (int64_t e = 0; e < 16; e++) ck_assert(isfinite(kn_gen_get(g, OUT_WEIGHT, e * c.hidden)));
        kn_gen_free(g);
    }
    close_both();
}
END_TEST

START_TEST(nan_stays_with_its_token) {
    open_both();
    for (int i = 0; i < 8; i++) {
        kn_gen_config c = config_of(70, 64, 16, 4);
        c.absent |= i & 4 ? bit(OUT_BIAS) : 0;
        kn_gen *g = make(&c), *h = make(&c);
        kn_gen_put(g, i & 2 ? PROBS : GRAD_LOGITS, 5 * 16 + 3, i & 4 ? (double)INFINITY : (double)NAN);
        run_and_check(g, i & 1 ? portable : fast, "NaN");
        ck_assert_ok(kn_gen_run(h, i & 1 ? portable : fast));
        for (int64_t t = 0; t < 70; t++) {
            if (t == 5) continue;
            same_row(g, t, h, t, OUT_HIDDEN);
            same_row(g, t, h, t, OUT_LOGITS);
        }
        ck_assert(!isfinite(kn_gen_get(g, OUT_HIDDEN, 5 * 64)));
        kn_gen_free(g);
        kn_gen_free(h);
    }
    close_both();
}
END_TEST

/* One expert a token and weights that sum to 1: the weight is a constant, its gradient exactly 0. */
START_TEST(one_slot_normalised_is_exactly_zero) {
    open_both();
    for (int i = 0; i < 8; i++) {
        kn_gen_config c = config_of(90, 64, 24, 1);
        c.absent |= bit(GRAD_MASK) | bit(GRAD_LOGITS) | (i & 1 ? bit(WEIGHTS_SUM) : 0) | (i & 4 ? bit(OUT_BIAS) : 0);
        c.options.router.score = i / 2 % 3;
        c.options.router.scaling = 2.5;
        c.side_dtype = KN_F32;
        kn_gen *g = make(&c);
        run_and_check(g, i & 1 ? portable : fast, "one slot");
        for (int64_t j = 0; j < 90 * 24; j++) ck_assert(kn_gen_get(g, OUT_LOGITS, j) == 0);
        for (int64_t j = 0; j < 24 * 64; j++) ck_assert(kn_gen_get(g, OUT_WEIGHT, j) == 0);
        kn_gen_free(g);
    }
    close_both();
}
END_TEST

/* ---- known numbers --------------------------------------------------------------------------------------------------
 */

typedef struct known {
    int32_t score, normalise;
    int64_t k;
    double z[4], g[4];
    int ids[4];
    double dz[4];
} known;

static const known knowns[] = {
    {KILN_SCORE_SOFTMAX, KILN_NORMALISE_SUM, 1, {0, 1, 2, 3}, {1}, {3}, {0, 0, 0, 0}},
    {KILN_SCORE_SOFTMAX,
     KILN_NORMALISE_NONE,
     1,
     {0, 1, 2, 3},
     {1},
     {3},
     {-0.0206430, -0.0561135, -0.1525322, 0.2292887}},
    /* an expert that is masked away */
    {KILN_SCORE_SOFTMAX,
     KILN_NORMALISE_SUM,
     2,
     {0, -(double)INFINITY, 2, 3},
     {1, 0},
     {3, 2},
     {0, 0, -0.1966119, 0.1966119}},
    /* all experts selected: the softmax itself */
    {KILN_SCORE_SOFTMAX,
     KILN_NORMALISE_SUM,
     4,
     {0, 1, 2, 3},
     {1, 2, 3, 4},
     {0, 1, 2, 3},
     {-0.0799110, -0.1300762, -0.1167010, 0.3266881}},
    /* every score underflows */
    {KILN_SCORE_SIGMOID, KILN_NORMALISE_SUM_EPS, 2, {-200, -200, -200, -200}, {1, 0}, {1, 3}, {0, 0, 0, 0}},
};

START_TEST(known_numbers) {
    open_both();
    for (size_t i = 0; i < 2 * sizeof knowns / sizeof *knowns; i++) {
        const known *x = &knowns[i / 2];
        kn_gen_config c = config_of(3, 8, 4, x->k);
        c.absent |= bit(GRAD_MASK) | bit(GRAD_LOGITS) | bit(ROUTER_LOGITS) | bit(WEIGHTS_SUM);
        c.options.router.score = x->score;
        c.options.router.normalise = x->normalise;
        kn_gen *g = make(&c);
        double sum = 0;
        for (int e = 0; e < 4; e++) sum += exp(x->z[e]);
        for (int e = 0; e < 4; e++) {
            double s = x->score == KILN_SCORE_SOFTMAX ? exp(x->z[e]) / sum : 1 / (1 + exp(-x->z[e]));
            kn_gen_put(g, PROBS, 4 + e, (double)(float)s);
        }
        for (int64_t k = 0; k < x->k; k++) {
            kn_gen_put(g, SELECTED, x->k + k, x->ids[k]);
            kn_gen_put(g, GRAD_WEIGHTS, x->k + k, x->g[k]);
        }
        run_and_check(g, i & 1 ? portable : fast, "known");
        for (int e = 0; e < 4; e++) {
            double v = kn_gen_get(g, OUT_LOGITS, 4 + e);
            ck_assert_msg(x->dz[e] == 0 && x->normalise != KILN_NORMALISE_SUM ? v == 0 : fabs(v - x->dz[e]) < 2e-7,
                          "case %d, expert %d: %.9g", (int)(i / 2), e, v);
        }
        if (x->z[1] < -1e300) ck_assert(kn_gen_get(g, OUT_LOGITS, 4 + 1) == 0);
        kn_gen_free(g);
    }
    close_both();
}
END_TEST

/* The balance loss of 4 tokens that all chose expert 0, with uniform scores: by hand. And equal counts: nothing. */
START_TEST(balance_loss_by_hand) {
    open_both();
    kn_gen_config c = config_of(4, 8, 4, 1);
    c.absent = OPTIONAL & ~bit(AUX);
    kn_gen *g = make(&c);
    for (int64_t i = 0; i < 16; i++) kn_gen_put(g, PROBS, i, 0.25);
    for (int64_t t = 0; t < 4; t++) kn_gen_put(g, SELECTED, t, 0);
    for (int64_t e = 0; e < 4; e++) kn_gen_put(g, AUX, e, e == 0 ? 0.01 : 0);
    run_and_check(g, fast, "balance");
    for (int64_t i = 0; i < 16; i++)
        ck_assert_double_eq_tol(kn_gen_get(g, OUT_LOGITS, i), i % 4 == 0 ? 0.001875 : -0.000625, 1e-9);
    for (int64_t e = 0; e < 4; e++) kn_gen_put(g, AUX, e, 0.0025);
    ck_assert_ok(kn_gen_run(g, fast));
    for (int64_t i = 0; i < 16; i++) ck_assert(fabs(kn_gen_get(g, OUT_LOGITS, i)) < 1e-8);
    kn_gen_free(g);
    close_both();
}
END_TEST

/* A logit of 1 + 1/512 and one of 1 are told apart by the z-loss; -inf logits add nothing and are no NaN. */
START_TEST(z_loss_keeps_its_digits) {
    open_both();
    kn_gen_config c = config_of(2, 8, 4, 1);
    c.absent = OPTIONAL & ~(bit(Z_LOSS) | bit(ROUTER_LOGITS));
    c.side_dtype = KN_F32;
    c.options.router.normalise = KILN_NORMALISE_SUM;
    kn_gen *g = make(&c);
    for (int64_t e = 0; e < 4; e++) {
        kn_gen_put(g, ROUTER_LOGITS, e, e == 1 ? 1 + 1.0 / 512 : (e == 2 ? -(double)INFINITY : 1));
        kn_gen_put(g, ROUTER_LOGITS, 4 + e, -(double)INFINITY);
    }
    run_and_check(g, fast, "z");
    ck_assert(kn_gen_get(g, OUT_LOGITS, 1) / kn_gen_get(g, OUT_LOGITS, 0) > 1 + 1.9 / 1024);
    ck_assert(kn_gen_get(g, OUT_LOGITS, 2) == 0);
    for (int64_t e = 0; e < 4; e++) ck_assert(kn_gen_get(g, OUT_LOGITS, 4 + e) == 0);
    kn_gen_free(g);
    close_both();
}
END_TEST

/* Two micro-batches of 256 and 1 into an fp32 gradient: exactly 257. */
START_TEST(main_gradients_add_in_fp32) {
    open_both();
    kn_gen_config c = config_of(1, 8, 4, 1);
    c.absent |= bit(GRAD_MASK) | bit(WEIGHTS_SUM);
    c.options.router.score = KILN_SCORE_SIGMOID;
    c.options.router.logits_gradient = KILN_LOGITS_GRADIENT_AFTER_SOFTMAX;
    kn_gen *g = make(&c);
    for (int64_t i = 0; i < 8; i++) kn_gen_put(g, HIDDEN, i, 1);
    for (int64_t i = 0; i < 4; i++) kn_gen_put(g, GRAD_LOGITS, i, 256);
    ck_assert_ok(kn_gen_run(g, fast));
    g->config.options.common.accumulate = 15;
    for (int64_t i = 0; i < 4; i++) kn_gen_put(g, GRAD_LOGITS, i, 1);
    ck_assert_ok(kn_gen_run(g, fast));
    for (int64_t i = 0; i < 32; i++) ck_assert(kn_gen_get(g, OUT_WEIGHT, i) == 257);
    for (int64_t i = 0; i < 4; i++) ck_assert(kn_gen_get(g, OUT_BIAS, i) == 257);
    for (int64_t i = 0; i < 4; i++) ck_assert(kn_gen_get(g, OUT_LOGITS, i) == 257);
    kn_gen_free(g);
    close_both();
}
END_TEST

/* ---- bits -----------------------------------------------------------------------------------------------------------
 */

/* All outputs agree to the bit; their rows may be apart by different gaps. */
static void same_rows(const kn_gen *a, const kn_gen *b) {
    for (int i = OUT_HIDDEN; i < N_ARGS; i++) {
        for (int64_t r = 0; a->args[i] && r < a->call.tensor[i].shape[0]; r++) same_row(a, r, b, r, i);
    }
}

/* Neither a second run nor whether token counts are baked in changes a bit, nor do gaps between rows. */
START_TEST(bits) {
    kiln_context *ctx[] = {
        open_context(KILN_SHAPES_EXACT, KILN_PATH_DEFAULT),    open_context(KILN_SHAPES_EXACT, KILN_PATH_DEFAULT),
        open_context(KILN_SHAPES_GENERIC, KILN_PATH_DEFAULT),  open_context(KILN_SHAPES_EXACT, KILN_PATH_PORTABLE),
        open_context(KILN_SHAPES_GENERIC, KILN_PATH_PORTABLE), open_context(KILN_SHAPES_EXACT, KILN_PATH_PORTABLE)};
    for (int i = 0; i < 6; i++) {
        kn_gen_config c = config_of(i & 1 ? 600 : 130, 64, i & 2 ? 128 : 24, 4);
        c.absent |= i & 1 ? bit(OUT_BIAS) : 0;
        c.options.common.accumulate = i == 3 ? 15 : 0;
        c.options.router.round_dlogits = i == 4;
        c.options.router.score = i == 5 ? KILN_SCORE_SQRTSOFTPLUS : 0;
        for (int path = 0; path < 6; path += 3) {
            kn_gen *first = make(&c);
            run_and_check(first, ctx[path], "first");
            for (int k = path + 1; k < path + 3; k++) {
                kn_gen *g = make(&c);
                ck_assert_ok(kn_gen_run(g, ctx[k]));
                same_bits(first, g);
                kn_gen_free(g);
            }
            kn_gen_config gaps = c;
            gaps.gap = 3;
            kn_gen *g = make(&gaps);
            if (path) ck_assert_ok(kn_gen_run(g, ctx[path]));
            if (path && !c.options.common.accumulate) same_rows(first, g);
            kn_gen_free(g);
            kn_gen_free(first);
        }
    }
    for (int k = 0; k < 6; k++) ck_assert_ok(kiln_context_destroy(ctx[k]));
}
END_TEST

static void copy_rows(kn_gen *to, const kn_gen *from, int64_t first, int64_t step) {
    static const int args[] = {HIDDEN, PROBS, SELECTED, WEIGHTS_SUM, GRAD_WEIGHTS, GRAD_LOGITS};
    int64_t t_to = to->config.tokens;
    for (int64_t t = 0; t < t_to; t++) {
        int64_t source = first + step * t;
        for (size_t a = 0; a < sizeof args / sizeof *args; a++) {
            int64_t n = kn_gen_elements(to, args[a]) / t_to;
            for (int64_t j = 0; j < n; j++)
                kn_gen_put(to, args[a], t * n + j, kn_gen_get(from, args[a], source * n + j));
        }
    }
}

/* A token's rows of the outputs have the same bits wherever it stands and whoever stands beside it. */
START_TEST(tokens_do_not_know_each_other) {
    open_both();
    for (int i = 0; i < 4; i++) {
        static const int64_t counts[] = {1, 8, 9, 33, 200};
        kn_gen_config c = config_of(200, 64, i & 2 ? 128 : 16, 4);
        c.absent |= bit(GRAD_MASK) | (i & 2 ? bit(OUT_BIAS) : 0);
        kn_gen *all = make(&c);
        run_and_check(all, i & 1 ? portable : fast, "all");
        for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
            c.tokens = counts[n];
            kn_gen *some = make(&c);
            /* the last tokens, in reverse order */
            for (int64_t j = 0; j < kn_gen_elements(some, GATE_WEIGHT); j++)
                kn_gen_put(some, GATE_WEIGHT, j, kn_gen_get(all, GATE_WEIGHT, j));
            copy_rows(some, all, 199, -1);
            ck_assert_ok(kn_gen_run(some, i & 1 ? portable : fast));
            for (int64_t t = 0; t < c.tokens; t++) {
                same_row(some, t, all, 199 - t, OUT_HIDDEN);
                same_row(some, t, all, 199 - t, OUT_LOGITS);
            }
            kn_gen_free(some);
        }
        kn_gen_free(all);
    }
    close_both();
}
END_TEST

/* Of one expert the share is 1 and the balance loss adds nothing to its token: a share that is off by its last place
 * is seen where little else is left. This one was drawn; a GPU's division shows it, the simulator's is exact. */
START_TEST(balance_of_one_expert_is_nothing) {
    open_both();
    kn_gen_config c = config_of(1815, 256, 1, 1);
    c.seed = 9570612;
    c.dtype = c.out_dtype = KN_F32;
    c.side_dtype = KN_F16;
    c.id_dtype = KN_I64;
    c.skip_percent = 30;
    c.absent = bit(ROUTER_LOGITS) | bit(GRAD_MASK) | bit(AUX_ROW) | bit(Z_LOSS) | bit(OUT_BIAS);
    c.options.router.score = KILN_SCORE_SIGMOID;
    c.options.router.normalise = KILN_NORMALISE_SUM_CLAMP;
    c.options.router.scaling = 2.5;
    run_one(&c, fast, "one expert");
    close_both();
}
END_TEST

int main(void) {
    Suite *s = suite_create("ops/router_run");
    TCase *t = tcase_create("results");
    tcase_set_timeout(t, 1800);
    tcase_add_test(t, golden_cases);
    tcase_add_test(t, random_problems);
    tcase_add_test(t, every_subset_of_outputs);
    tcase_add_test(t, sizes_of_experts_and_slots);
    tcase_add_test(t, no_tokens_and_one);
    tcase_add_test(t, bad_ids_are_skipped_and_counted);
    tcase_add_test(t, tokens_without_experts);
    tcase_add_test(t, masked_tokens_count_for_nothing);
    tcase_add_test(t, nan_stays_with_its_token);
    tcase_add_test(t, one_slot_normalised_is_exactly_zero);
    tcase_add_test(t, balance_of_one_expert_is_nothing);
    tcase_add_test(t, known_numbers);
    tcase_add_test(t, balance_loss_by_hand);
    tcase_add_test(t, z_loss_keeps_its_digits);
    tcase_add_test(t, main_gradients_add_in_fp32);
    tcase_add_test(t, bits);
    tcase_add_test(t, tokens_do_not_know_each_other);
    suite_add_tcase(s, t);
    t = tcase_create("fused");
    tcase_set_timeout(t, 900);
    tcase_add_test(t, fused_products);
    tcase_add_test(t, any_workspace_will_do);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
