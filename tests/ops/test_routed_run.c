/* routed_experts_backward: results. Golden cases, random problems over every option, every kind of imbalance, no
 * tokens, bad ids, NaN where nobody may look, views of fused weights. The device is KILN_DEVICE's: the GPU where there
 * is one, else the simulator. KN_LONG=1 runs more and larger random problems. */
#include "routed_support.h"

#include "base/alloc.h"
#include "support/both_paths.h"
#include "support/golden.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t state = 1;
static int64_t draw(int64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)n);
}

/* ---- golden ---------------------------------------------------------------------------------------------------------
 */

static void golden_case(const char *path, void *user) {
    (void)user;
    for (int i = 0; i < 4; i++) {
        kn_gen *g;
        kiln_routed_experts_backward_options o = {.common.struct_size = sizeof o, .math = i % 3, .num_experts = 64};
        ck_assert_ok(
            kn_golden_load(path, i & 1 ? KN_BF16 : KN_F32, bit(OFFSETS) | bit(SAVED_GATE) | bit(SAVED_UP), &o, &g));
        kn_status st = kn_gen_run(g, i < 3 ? fast : portable);
        if (st == KN_OK) st = kn_gen_check(g);
        ck_assert_msg(st == KN_OK, "%s (%d): %s", path, i, kn_error_message());
        kn_gen_free(g);
    }
}

START_TEST(golden_cases) {
    open_both();
    ck_assert_int_eq(kn_golden_each("routed_experts_backward", golden_case, NULL), 3);
    close_both();
}
END_TEST

/* ---- random problems ------------------------------------------------------------------------------------------------
 */

static const int64_t edges[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 40, 63, 64, 65, 72, 96, 128, 129, 136, 160};

static int64_t draw_edge(int64_t most) {
    int64_t v;
    do v = edges[draw(sizeof edges / sizeof *edges)];
    while (v > most);
    return v;
}

static void draw_options(kn_gen_config *c) {
    kiln_routed_experts_backward_options *o = &c->options.routed;
    o->common.accumulate = draw(2) ? 0 : (uint64_t)draw(32);
    o->math = (int32_t)draw(3);
    o->weight_on = draw(3) == 0 ? KILN_WEIGHT_ON_INPUT : KILN_WEIGHT_ON_OUTPUT;
    if (draw(3) == 0) o->activation = (kiln_activation){.alpha = 1.702, .limit = 3.05, .offset = 1};
    /* The derivative jumps at the limit: g and u must not be rounded across it. */
    if (o->math == KILN_MATH_FAST || o->weight_on == KILN_WEIGHT_ON_INPUT) o->activation.limit = 0;
    if (!c->sorted && draw(3) == 0) { /* a range of the experts */
        c->local_experts = 1 + draw(c->experts);
        o->expert_lo = draw(c->experts - c->local_experts + 1);
    }
}

static kn_gen_config draw_config(int64_t budget) {
    static const kn_dtype types[] = {KN_BF16, KN_F16, KN_F32};
    kn_gen_config c = routed_config(0, 0, 0, 0, 0);
    do {
        c.hidden = draw_edge(160);
        c.inner = draw_edge(160);
        c.experts = c.local_experts = 1 + draw(12);
        c.top_k = 1 + draw(c.experts < 5 ? c.experts : 5);
        c.tokens = draw(12) ? draw_edge(160) : 0;
    } while (c.hidden * c.inner * (c.tokens * c.top_k + 16 * c.experts) > budget);
    c.seed = (uint64_t)draw(1 << 30);
    c.dtype = draw(2) ? KN_F32 : types[draw(3)];
    c.out_dtype = types[draw(3)];
    c.id_dtype = draw(2) ? KN_I32 : KN_I64;
    c.gap = draw(3) == 0 ? (int)draw(12) : 0;
    c.skip_percent = draw(3) == 0 ? 30 : 0;
    c.skew = draw(3) == 0;
    c.sorted = draw(5) == 0;
    for (int i = 0; i < N_ARGS; i++) {
        if ((i == SAVED_GATE || i == SAVED_UP) && draw(4) == 0) c.absent &= ~bit(i);
        if (i >= OUT_HIDDEN && draw(6) == 0) c.absent |= bit(i);
    }
    draw_options(&c);
    return c;
}

START_TEST(random_problems) {
    open_both();
    bool all = getenv("KN_LONG") != NULL;
    state = 11;
    for (int i = 0; i < (all ? 400 : 40); i++) {
        kn_gen_config c = draw_config(all ? 8000000 : 400000);
        run_one(&c, i % 2 ? portable : fast, i % 2 ? "portable" : "fast");
    }
    close_both();
}
END_TEST

START_TEST(every_subset_of_outputs) {
    open_both();
    for (uint64_t unwanted = 0; unwanted < 32; unwanted++) {
        kn_gen_config c = routed_config(20, 24, 32, 4, 2);
        c.absent |= unwanted << OUT_HIDDEN;
        c.options.common.accumulate = unwanted * 7 % 32;
        c.options.routed.weight_on = unwanted % 3 == 1 ? KILN_WEIGHT_ON_INPUT : KILN_WEIGHT_ON_OUTPUT;
        if (unwanted % 4 == 1) c.absent &= ~(bit(SAVED_GATE) | bit(SAVED_UP));
        c.skip_percent = 20;
        run_one(&c, unwanted % 2 ? portable : fast, "subset");
    }
    close_both();
}
END_TEST

START_TEST(no_tokens_and_one) {
    open_both();
    for (int i = 0; i < 16; i++) {
        kn_gen_config c = routed_config(i % 2, 32, 24, 5, 2);
        c.options.common.accumulate = i & 2 ? 31 : 0;
        c.sorted = i >> 2 & 1;
        c.dtype = i & 8 ? (i & 1 ? KN_BF16 : KN_F16) : KN_F32;
        c.options.routed.math = i % 3;
        run_one(&c, i % 3 ? fast : portable, "few tokens");
        c.inner = 160;
        c.options.routed.weight_on = KILN_WEIGHT_ON_INPUT;
        run_one(&c, i % 3 ? portable : fast, "few tokens, wide");
    }
    close_both();
}
END_TEST

/* Products whose sums are long and split: the 2e-5 of `accurate`. */
START_TEST(accurate_is_accurate) {
    open_both();
    for (int i = 0; i < 4; i++) {
        kn_gen_config c = routed_config(64, 64, 72, 2, 1);
        c.options.routed.math = KILN_MATH_ACCURATE;
        c.options.routed.weight_on = i % 2 ? KILN_WEIGHT_ON_INPUT : KILN_WEIGHT_ON_OUTPUT;
        c.scale = i < 2 ? 1 : 1e-3;
        c.seed = (uint64_t)i + 5;
        run_one(&c, i % 2 ? portable : fast, "accurate");
    }
    close_both();
}
END_TEST

/* ---- imbalance ------------------------------------------------------------------------------------------------------
 */

/* Ids by a rule: slot s of `slots` goes to expert ids(s). */
static void run_counts(const int64_t *count, int64_t experts, int64_t top_k, const kn_gen_config *like,
                       const char *what) {
    kn_gen_config c = *like;
    int64_t slots = 0;
    for (int64_t e = 0; e < experts; e++) slots += count[e];
    c.experts = c.local_experts = experts;
    c.top_k = top_k;
    c.tokens = (slots + top_k - 1) / top_k;
    c.options.routed.num_experts = experts;
    kn_gen_config distinct = c; /* the generator wants ids to be distinct: they are replaced */
    if (distinct.top_k > experts) distinct.experts = top_k;
    kn_gen *g;
    ck_assert_ok(kn_gen_make(&distinct, &g));
    int64_t e = 0, left = count[0];
    for (int64_t s = 0; s < c.tokens * top_k; s++) {
        while (e < experts && left == 0) left = ++e < experts ? count[e] : 0;
        kn_gen_put(g, IDS, s, e < experts ? (double)e : -1);
        left--;
    }
    run_and_check(g, fast, what);
    kn_gen_free(g);
}

/* Experts with none, one, and a tile and its neighbours of rows; everything to the last one; the same expert twice. */
START_TEST(any_imbalance) {
    open_both();
    static const int64_t tiles[] = {0, 1, 15, 16, 17, 0, 31, 32, 33, 63, 64, 65, 0};
    static const int64_t last[] = {0, 0, 0, 0, 0, 0, 130}, first[] = {130, 0, 0}, saw[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    kn_gen_config like = routed_config(0, 32, 40, 1, 1);
    run_counts(tiles, 13, 1, &like, "tile and neighbours");
    run_counts(tiles, 13, 4, &like, "tile and neighbours, 4 slots");
    run_counts(last, 7, 2, &like, "all to the last");
    run_counts(first, 3, 8, &like, "all to the first");
    run_counts(saw, 9, 3, &like, "sawtooth");
    like.dtype = KN_BF16;
    run_counts(tiles, 13, 2, &like, "bf16");
    like.options.routed.weight_on = KILN_WEIGHT_ON_INPUT;
    run_counts(last, 7, 2, &like, "all to the last, weight on the input");
    close_both();
}
END_TEST

/* Rows of each expert by a pattern; `most` in all. */
static void draw_counts(int pattern, int64_t *count, int64_t experts, int64_t most) {
    int64_t left = most, base = 16 * (1 + draw(5));
    for (int64_t e = 0; e < experts; e++) {
        int64_t n = 0;
        switch (pattern) {
        case 0: n = most / experts; break;                           /* uniform */
        case 1: n = e == most % experts ? most : 0; break;           /* one-hot */
        case 2: n = 1 + 3 * e % 40; break;                           /* sawtooth */
        case 3: n = base - 1 + draw(3); break;                       /* a tile and its neighbours */
        case 4: n = draw(3) ? 0 : draw(50); break;                   /* most are empty */
        case 5: n = e == experts - 1 ? most : 0; break;              /* all to the last */
        default: n = draw(2) ? draw(4) : 16 * draw(4) + draw(3) - 1; /* a mix */
        }
        count[e] = n < 0 ? 0 : n < left ? n : left;
        left -= count[e];
    }
}

/* Tokens whose experts come in any order, the same one twice among them, -1 and what other ranks hold between them. */
static void shuffle_ids(kn_gen *g, int64_t slots) {
    for (int64_t s = slots - 1; s > 0; s--) {
        int64_t other = draw(s + 1);
        double a = kn_gen_get(g, IDS, s), b = kn_gen_get(g, IDS, other);
        kn_gen_put(g, IDS, s, b);
        kn_gen_put(g, IDS, other, a);
    }
}

START_TEST(fuzzed_counts) {
    open_both();
    static const kn_dtype types[] = {KN_F32, KN_BF16, KN_F32, KN_F16};
    int64_t runs = getenv("KN_LONG") ? 300 : 21;
    state = 5;
    for (int64_t i = 0; i < runs; i++) {
        int64_t count[40], experts = 1 + draw(20), slots = 0, top_k = 1 + draw(4);
        draw_counts((int)(i % 7), count, experts, 20 + draw(150));
        for (int64_t e = 0; e < experts; e++) slots += count[e];
        kn_gen_config c = routed_config((slots + top_k) / top_k, 8 * (1 + draw(8)), 8 * (1 + draw(8)), experts, top_k);
        c.dtype = types[draw(4)];
        c.id_dtype = draw(2) ? KN_I32 : KN_I64;
        c.options.common.accumulate = draw(3) ? 0 : 31;
        c.options.routed.num_experts = experts + 1; /* that of the last is on another rank */
        kn_gen_config distinct = c;                 /* the generator's own ids are replaced */
        if (top_k > experts) distinct.experts = top_k;
        kn_gen *g;
        ck_assert_ok(kn_gen_make(&distinct, &g));
        int64_t s = 0, all = c.tokens * top_k;
        for (int64_t e = 0; e < experts; e++)
            for (int64_t n = 0; n < count[e]; n++) kn_gen_put(g, IDS, s++, (double)e);
        for (; s < all; s++) kn_gen_put(g, IDS, s, draw(2) ? -1 : (double)experts);
        shuffle_ids(g, all);
        run_and_check(g, i % 5 == 4 ? portable : fast, "counts");
        kn_gen_free(g);
    }
    close_both();
}
END_TEST

/* More slots than one warp of the sort takes, more experts than one turn of its scan. */
START_TEST(many_slots_and_experts) {
    open_both();
    const uint64_t weight_gradients = bit(OUT_GATE) | bit(OUT_UP) | bit(OUT_DOWN);
    kn_gen_config c = routed_config(400, 8, 8, 600, 3);
    c.skew = 1;
    c.absent |= weight_gradients;
    run_one(&c, portable, "many slots");
    c = routed_config(5, 8, 8, 300, 256);
    c.id_dtype = KN_I32;
    c.absent |= weight_gradients;
    run_one(&c, fast, "256 slots a token");
    c = routed_config(1500, 8, 8, 5, 1);
    c.sorted = 1;
    run_one(&c, fast, "sorted rows");
    close_both();
}
END_TEST

/* A token that names an expert twice is a token with the sum of the two weights. */
START_TEST(an_expert_twice) {
    open_both();
    kn_gen_config c = routed_config(6, 32, 32, 4, 2), one = routed_config(6, 32, 32, 4, 1);
    c.options.routed.math = one.options.routed.math = KILN_MATH_ACCURATE;
    kn_gen *twice, *once;
    ck_assert_ok(kn_gen_make(&c, &twice));
    ck_assert_ok(kn_gen_make(&one, &once));
    static const int same[] = {GRAD_OUTPUT, HIDDEN, GATE, UP, DOWN};
    for (int i = 0; i < 5; i++)
        memcpy(once->call.tensor[same[i]].data, twice->call.tensor[same[i]].data, once->call.tensor[same[i]].bytes);
    for (int64_t t = 0; t < 6; t++) {
        for (int k = 0; k < 2; k++) kn_gen_put(twice, IDS, 2 * t + k, 3);
        kn_gen_put(twice, WEIGHTS, 2 * t, 0.25);
        kn_gen_put(twice, WEIGHTS, 2 * t + 1, 0.75);
        kn_gen_put(once, IDS, t, 3);
        kn_gen_put(once, WEIGHTS, t, 1);
    }
    run_and_check(twice, fast, "twice");
    run_and_check(once, fast, "once");
    for (int i = OUT_HIDDEN; i < N_ARGS; i++) {
        for (int64_t e = 0; i != OUT_WEIGHTS && e < kn_gen_elements(once, i); e++) {
            double a = kn_gen_get(twice, i, e), b = kn_gen_get(once, i, e);
            ck_assert_msg(fabs(a - b) <= 1e-5 * (1 + fabs(b)), "%s[%lld]: %g and %g", once->op.args[i].name,
                          (long long)e, a, b);
        }
    }
    for (int64_t t = 0; t < 6; t++) {
        ck_assert(kn_gen_get(twice, OUT_WEIGHTS, 2 * t) == kn_gen_get(twice, OUT_WEIGHTS, 2 * t + 1));
    }
    kn_gen_free(twice);
    kn_gen_free(once);
    close_both();
}
END_TEST

/* ---- ids, NaN, views ------------------------------------------------------------------------------------------------
 */

/* What is no id is skipped and counted; -1 and other ranks' experts are skipped alone. */
START_TEST(bad_ids_are_skipped_and_counted) {
    open_both();
    static const int64_t bad64[] = {6, 11, INT_MAX, INT_MIN, -2, (int64_t)1 << 32 | 1, INT64_MIN, -1};
    for (int wide = 0; wide < 2; wide++) {
        kn_gen_config c = routed_config(10, 24, 16, 6, 2);
        c.local_experts = 3;
        c.options.routed.expert_lo = 2;
        c.id_dtype = wide ? KN_I64 : KN_I32;
        kn_gen *g;
        ck_assert_ok(kn_gen_make(&c, &g));
        int64_t n = wide ? 8 : 5;
        for (int64_t i = 0; i < n; i++) {
            if (wide)
                ((int64_t *)g->call.tensor[IDS].data)[2 * i] = bad64[i];
            else
                ((int32_t *)g->call.tensor[IDS].data)[2 * i] = (int32_t)bad64[i];
        }
        ck_assert_ok(kiln_context_device_faults_reset(fast));
        run_and_check(g, fast, "bad ids");
        uint64_t faults;
        ck_assert_ok(kiln_context_device_faults(fast, &faults));
        ck_assert_uint_eq(faults, wide ? 7 : 5);
        for (int64_t i = 0; i < n; i++) ck_assert(kn_gen_get(g, OUT_WEIGHTS, 2 * i) == 0);
        kn_gen_free(g);
    }
    close_both();
}
END_TEST

/* A token's NaN stays in its own rows, in the gradients of its own experts, and nowhere else. */
START_TEST(nan_stays_where_it_belongs) {
    open_both();
    for (int i = 0; i < 4; i++) {
        kn_gen_config c = routed_config(20, 40, 24, 6, 2);
        c.dtype = i & 1 ? KN_BF16 : KN_F32;
        kn_gen *g;
        ck_assert_ok(kn_gen_make(&c, &g));
        for (int64_t s = 0; s < 40; s++)
            kn_gen_put(g, IDS, s, s == 7 || s == 6 ? 5 : (double)(s % 4)); /* token 3 alone */
        for (int64_t h = 0; h < 40; h++) kn_gen_put(g, i & 2 ? GRAD_OUTPUT : HIDDEN, 3 * 40 + h, NAN);
        ck_assert_ok(kn_gen_run(g, i & 1 ? portable : fast));
        for (int64_t e = 0; e < 20 * 40; e++) ck_assert(isnan(kn_gen_get(g, OUT_HIDDEN, e)) == (e / 40 == 3));
        for (int64_t e = 0; e < 40; e++) ck_assert(isnan(kn_gen_get(g, OUT_WEIGHTS, e)) == (e / 2 == 3));
        for (int out = OUT_GATE; out <= OUT_DOWN; out++) {
            for (int64_t e = 0; e < 6 * 24 * 40; e++) {
                ck_assert_msg(isnan(kn_gen_get(g, out, e)) == (e / (24 * 40) == 5), "output %d element %lld", out,
                              (long long)e);
            }
        }
        kn_gen_free(g);
    }
    close_both();
}
END_TEST

/* Padding rows enter no sum: an infinite weight makes infinite gradients of its expert's rows, no NaN of 0 times it. */
START_TEST(infinity_stays_infinity) {
    open_both();
    kn_gen_config c = routed_config(3, 32, 16, 3, 1);
    c.dtype = KN_BF16;
    kn_gen *g;
    ck_assert_ok(kn_gen_make(&c, &g));
    for (int64_t t = 0; t < 3; t++) kn_gen_put(g, IDS, t, (double)t);
    kn_gen_put(g, DOWN, (1 * 32 + 7) * 16 + 5, INFINITY); /* expert 1, row 7, column 5 */
    ck_assert_ok(kn_gen_run(g, fast));
    for (int64_t e = 0; e < 3 * 16 * 32; e++) {
        bool hit = e / 32 == 1 * 16 + 5;
        ck_assert(hit ? isinf(kn_gen_get(g, OUT_GATE, e)) : isfinite(kn_gen_get(g, OUT_GATE, e)));
        ck_assert(hit ? isinf(kn_gen_get(g, OUT_UP, e)) : isfinite(kn_gen_get(g, OUT_UP, e)));
    }
    kn_gen_free(g);
    close_both();
}
END_TEST

/* One number of 64 is 256 times as large: errors do not average out, and sigmoid'(g) of a large g magnifies those of g.
 * A weight on the input must not be rounded into the row that it scales. */
START_TEST(outliers_with_the_weight_on_the_input) {
    static const int inputs[] = {GRAD_OUTPUT, HIDDEN, GATE, UP, DOWN};
    open_both();
    for (int i = 0; i < 6; i++) {
        kn_gen_config c = routed_config(70 + i, 64 + 8 * i, 72, 1 + i % 3, 1);
        c.dtype = c.out_dtype = KN_BF16;
        c.options.routed.weight_on = KILN_WEIGHT_ON_INPUT;
        if (i & 1) c.absent |= bit(OUT_WEIGHTS);
        kn_gen *g;
        ck_assert_ok(kn_gen_make(&c, &g));
        for (int k = 0; k < 5; k++) {
            for (int64_t e = 0; e < kn_gen_elements(g, inputs[k]); e++)
                if (draw(64) == 0) kn_gen_put(g, inputs[k], e, 256 * kn_gen_get(g, inputs[k], e));
        }
        run_and_check(g, i < 4 ? fast : portable, "outliers");
        kn_gen_free(g);
    }
    close_both();
}
END_TEST

/* Sums of H terms are long enough for bf16 in <dx', x>: the Hopper kernels with the weight on the input. */
START_TEST(weight_on_the_input_of_wide_rows) {
    open_both();
    for (int i = 0; i < 3; i++) {
        kn_gen_config c = routed_config(21, 512, 24, 3, 2);
        c.dtype = i == 1 ? KN_BF16 : KN_F32;
        c.options.routed.weight_on = KILN_WEIGHT_ON_INPUT;
        c.options.routed.math = i == 2 ? KILN_MATH_FAST : KILN_MATH_BALANCED;
        c.options.common.accumulate = i == 0 ? 31 : 0;
        run_one(&c, fast, "wide rows");
    }
    close_both();
}
END_TEST

/* Weights and rows whose numbers grow, shrink or are as small and large as they get: `balanced` takes them as f16 with
 * scales. Columns of the weights times 2^shift, those of x and dy times its inverse: all terms of a sum count alike. */
static void shift_columns(kn_gen *g, int kind) {
    for (int arg = GRAD_OUTPUT; arg <= DOWN; arg++) {
        if (arg == IDS || arg == OFFSETS || arg == WEIGHTS) continue;
        int64_t inner = g->config.inner, hidden = g->config.hidden, n = kn_gen_elements(g, arg);
        for (int64_t e = 0; e < n; e++) {
            int64_t h = arg == DOWN ? e / inner % hidden : e % hidden;
            int shift = kind == 0 ? (int)h / 8 : kind == 1 ? -(int)h / 8 : kind == 2 ? (int)(h * 37 % 16) : 0;
            int level = kind == 3 ? 60 : kind == 4 ? -60 : 0;
            double v = kn_gen_get(g, arg, e);
            kn_gen_put(g, arg, e, ldexp(v, arg >= GATE ? shift + level : -shift - level));
        }
    }
}

START_TEST(scales_follow_the_numbers) {
    open_both();
    for (int kind = 0; kind < 5; kind++) {
        kn_gen_config c = routed_config(70, 160, 72, 3, 2);
        c.options.routed.weight_on = KILN_WEIGHT_ON_OUTPUT;
        kn_gen *g;
        ck_assert_ok(kn_gen_make(&c, &g));
        shift_columns(g, kind);
        run_and_check(g, fast, "scales");
        kn_gen_free(g);
    }
    /* Rows of nothing but zeros, and a weight that is infinite: in its own row of gate's gradient alone. */
    kn_gen_config c = routed_config(6, 64, 16, 3, 1);
    kn_gen *g;
    ck_assert_ok(kn_gen_make(&c, &g));
    for (int64_t t = 0; t < 6; t++) kn_gen_put(g, IDS, t, (double)(t % 3));
    for (int64_t h = 0; h < 64; h++) {
        kn_gen_put(g, HIDDEN, 64 + h, 0);
        kn_gen_put(g, GATE, (2 * 16 + 4) * 64 + h, 0);
    }
    kn_gen_put(g, UP, 5 * 64 + 50, INFINITY); /* expert 0, row 5 */
    ck_assert_ok(kn_gen_run(g, fast));
    for (int64_t e = 0; e < 3 * 16 * 64; e++) ck_assert(isfinite(kn_gen_get(g, OUT_GATE, e)) == (e / 64 != 5));
    for (int64_t e = 0; e < 6 * 64; e++) ck_assert(isfinite(kn_gen_get(g, OUT_HIDDEN, e)) == (e / 64 % 3 != 0));
    kn_gen_free(g);
    close_both();
}
END_TEST

/* A view of `from`'s values inside a larger buffer: matrices `expert` elements apart, rows `row` apart, from `first`
 * on. */
static void make_view(kn_gen *g, int arg, char *buffer, int64_t first, int64_t expert, int64_t row) {
    const kn_tensor *t = &g->call.tensor[arg];
    int64_t item = kn_dtype_size(t->dtype), n = kn_gen_elements(g, arg);
    char *data = buffer + first * item;
    for (int64_t i = 0; i < n; i++) {
        int64_t e = i / (t->shape[1] * t->shape[2]), y = i / t->shape[2] % t->shape[1], x = i % t->shape[2];
        memcpy(data + (e * expert + y * row + x) * item, (char *)t->data + i * item, (size_t)item);
    }
    int64_t strides[3] = {expert, row, 1};
    memcpy(g->stride[arg], strides, sizeof strides);
    memcpy(g->call.tensor[arg].stride, strides, sizeof strides);
    g->call.tensor[arg].data = data;
    g->tensor[arg].data = data;
    g->call.tensor[arg].bytes = (uint64_t)(((t->shape[0] - 1) * expert + (t->shape[1] - 1) * row + t->shape[2]) * item);
}

/* gate and up as halves [E, 2I, H] or as interleaved rows of one tensor, weights and gradients: the same bits as apart.
 */
START_TEST(fused_and_interleaved_weights) {
    open_both();
    enum { E = 3, I = 24, H = 40 };
    for (int i = 0; i < 4; i++) {
        bool interleaved = i & 1;
        kn_gen_config c = routed_config(20, H, I, E, 2);
        c.options.routed.math = KILN_MATH_FAST;
        if (i & 2) c.options.common.accumulate = 31;
        kn_gen *apart, *views;
        ck_assert_ok(kn_gen_make(&c, &apart));
        ck_assert_ok(kn_gen_make(&c, &views));
        char *weights = NULL, *grads = NULL;
        ck_assert_ok(KN_NEW(&weights, E * 2 * I * H * 4, "fused weights"));
        ck_assert_ok(KN_NEW(&grads, E * 2 * I * H * 4, "fused gradients"));
        int64_t row = interleaved ? 2 * H : H, second = interleaved ? H : I * H;
        make_view(views, GATE, weights, 0, 2 * I * H, row);
        make_view(views, UP, weights, second, 2 * I * H, row);
        make_view(views, OUT_GATE, grads, 0, 2 * I * H, row);
        make_view(views, OUT_UP, grads, second, 2 * I * H, row);
        ck_assert_ok(kn_gen_run(apart, fast));
        int32_t type, id;
        ck_assert_ok(kiln_context_device(fast, &type, &id));
        if (type == 1) { /* tensors that share memory stay on the host */
            ck_assert_ok(kn_gen_run(views, fast));
            for (int out = OUT_HIDDEN; out < N_ARGS; out++) {
                for (int64_t e = 0; e < kn_gen_elements(apart, out); e++)
                    ck_assert(kn_gen_get(apart, out, e) == kn_gen_get(views, out, e));
            }
        }
        kn_gen_free(apart);
        kn_gen_free(views);
        kn_free(weights);
        kn_free(grads);
    }
    close_both();
}
END_TEST

int main(void) {
    Suite *s = suite_create("ops/routed_run");
    TCase *t = tcase_create("results");
    tcase_set_timeout(t, 900);
    tcase_add_test(t, golden_cases);
    tcase_add_test(t, random_problems);
    tcase_add_test(t, every_subset_of_outputs);
    tcase_add_test(t, no_tokens_and_one);
    tcase_add_test(t, accurate_is_accurate);
    tcase_add_test(t, any_imbalance);
    tcase_add_test(t, fuzzed_counts);
    tcase_add_test(t, many_slots_and_experts);
    tcase_add_test(t, an_expert_twice);
    tcase_add_test(t, bad_ids_are_skipped_and_counted);
    tcase_add_test(t, nan_stays_where_it_belongs);
    tcase_add_test(t, infinity_stays_infinity);
    tcase_add_test(t, outliers_with_the_weight_on_the_input);
    tcase_add_test(t, weight_on_the_input_of_wide_rows);
    tcase_add_test(t, scales_follow_the_numbers);
    tcase_add_test(t, fused_and_interleaved_weights);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
