/* expert_mlp_backward: results. Golden cases, random problems over every option, no tokens, bad ids, NaN where nobody
 * may look, bits that may not depend on path, repeat or kind of kernel. The device is KILN_DEVICE's: the GPU where
 * there is one, else the simulator. KN_LONG=1 runs more and larger random problems. */
#include "expert_mlp_support.h"

#include "kiln/kiln_tools.h"
#include "support/both_paths.h"
#include "support/golden.h"

#include <math.h>
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
    for (int i = 0; i < 2; i++) {
        kn_gen *g;
        /* The other saved tensors of these files are no functions of each other. */
        uint64_t absent = i ? bit(GATE_OUTPUT) : 0;
        ck_assert_ok(kn_golden_load(path, i ? KN_F32 : KN_BF16, absent, NULL, &g));
        kn_status st = kn_gen_run(g, i ? portable : fast);
        if (st == KN_OK) st = kn_gen_check(g);
        ck_assert_msg(st == KN_OK, "%s (%d): %s", path, i, kn_error_message());
        kn_gen_free(g);
    }
}

START_TEST(golden_cases) {
    open_both();
    ck_assert_int_eq(kn_golden_each("expert_mlp_backward", golden_case, NULL), 3);
    close_both();
}
END_TEST

/* ---- random problems ------------------------------------------------------------------------------------------------
 */

static const int64_t edges[] = {1,  2,  7,  8,  15,  16,  17,  31,  33,  40,  63,
                                64, 65, 72, 96, 127, 128, 129, 136, 200, 257, 384};

static int64_t draw_edge(int64_t most) {
    int64_t v;
    do v = edges[draw(sizeof edges / sizeof *edges)];
    while (v > most);
    return v;
}

static kn_gen_config draw_config(int64_t budget) {
    static const kn_dtype types[] = {KN_BF16, KN_F16, KN_F32};
    kn_gen_config c = config_of(0, 0, 0, 0);
    do {
        c.hidden = draw_edge(384);
        c.inner = draw_edge(384);
        c.tokens = draw(12) ? draw_edge(257) : 0;
    } while (c.hidden * c.inner * (c.tokens + 16) > budget);
    c.batch = c.tokens + (draw(3) ? draw(40) : 0);
    c.seed = (uint64_t)draw(1 << 30);
    c.dtype = types[draw(2)];
    c.out_dtype = types[draw(3)];
    c.id_dtype = draw(2) ? KN_I32 : KN_I64;
    c.gap = draw(3) == 0 ? (int)draw(12) : 0;
    c.skip_percent = draw(3) == 0 ? 30 : 0;
    for (int i = 0; i < N_ARGS; i++) {
        if (bit(i) & SAVED && draw(2)) c.absent |= bit(i);
        if (bit(i) & ALL_OUTPUTS && draw(5) == 0) c.absent |= bit(i);
    }
    kiln_expert_mlp_backward_options *o = &c.options.expert_mlp;
    o->common.accumulate = draw(2) ? 0 : (uint64_t)draw(32);
    if (draw(4) == 0) o->unique_indices = KILN_FALSE;
    if (draw(3) == 0) o->activation = (kiln_activation){.alpha = 1.702, .limit = 3.05, .offset = 1};
    return c;
}

START_TEST(random_problems) {
    open_both();
    bool all = getenv("KN_LONG") != NULL;
    state = 11;
    for (int i = 0; i < (all ? 400 : 60); i++) {
        kn_gen_config c = draw_config(all ? 20000000 : 600000);
        if (c.batch == 0) c.options.expert_mlp.unique_indices = 0;
        run_one(&c, i % 2 ? portable : fast, i % 2 ? "portable" : "fast");
    }
    close_both();
}
END_TEST

/* Intermediate results below f16's smallest normal number are not rounded in proportion to their size; the reference's
 * magnitudes say so. */
START_TEST(small_f16_numbers) {
    open_both();
    for (int i = 0; i < 4; i++) {
        kn_gen_config c = config_of(40, 24, 24, 40);
        c.dtype = KN_F16;
        c.out_dtype = KN_F32;
        c.scale = i < 2 ? 1e-3 : 1e-4;
        run_one(&c, i % 2 ? portable : fast, i % 2 ? "portable" : "fast");
    }
    close_both();
}
END_TEST

/* Whatever subset of the outputs is wanted. */
START_TEST(every_subset_of_outputs) {
    open_both();
    for (uint64_t unwanted = 0; unwanted < 32; unwanted++) {
        kn_gen_config c = config_of(30, 20, 24, 40);
        c.absent = unwanted << OUT_HIDDEN;
        c.options.common.accumulate = unwanted * 7 % 32;
        if (unwanted % 3 == 1) c.absent |= SAVED;
        if (unwanted % 5 == 4) c.options.expert_mlp.unique_indices = KILN_FALSE;
        c.skip_percent = 20;
        run_one(&c, unwanted % 2 ? portable : fast, "subset");
    }
    close_both();
}
END_TEST

START_TEST(no_tokens_and_one) {
    open_both();
    for (int i = 0; i < 16; i++) {
        kn_gen_config c = config_of(5 + i % 3 * 100, i % 2, 64, 72);
        c.options.common.accumulate = i & 2 ? 31 : 0;
        if (i & 4) c.absent = SAVED;
        if (i & 8) c.options.expert_mlp.unique_indices = KILN_FALSE;
        run_one(&c, fast, "few tokens");
    }
    kn_gen_config c = config_of(0, 0, 16, 16); /* not even a token to select */
    run_one(&c, fast, "no batch");
    close_both();
}
END_TEST

/* Every token selected; the first and the last one; more tokens than one marking block looks after. */
START_TEST(ids_at_both_ends) {
    open_both();
    kn_gen_config c = config_of(70, 70, 32, 48);
    run_one(&c, fast, "all tokens");
    c = config_of(9000, 3, 8, 8);
    kn_gen *g = make(&c);
    kn_gen_put(g, TOKEN_INDICES, 0, 8999);
    kn_gen_put(g, TOKEN_INDICES, 1, 0);
    kn_gen_put(g, TOKEN_INDICES, 2, 4500);
    run_and_check(g, fast, "both ends");
    kn_gen_free(g);
    close_both();
}
END_TEST

/* ---- ids that are no tokens -----------------------------------------------------------------------------------------
 */

static void poison_row(kn_gen *g, int arg, int64_t row, double v) {
    if (!g->args[arg]) return;
    int64_t columns = kn_gen_elements(g, arg) / g->call.tensor[arg].shape[0];
    for (int64_t j = 0; j < columns; j++) kn_gen_put(g, arg, row * columns + j, v);
}

/* Rows without a token may hold anything, tokens without a row too. */
START_TEST(bad_ids_are_skipped_and_counted) {
    open_both();
    static const double bad[] = {-1, 50, -2, 1e9, -1, -2e9};
    for (int i = 0; i < 8; i++) {
        kiln_context *ctx = i & 1 ? portable : fast;
        kn_gen_config c = config_of(50, 24, 64, 72);
        c.id_dtype = i & 2 ? KN_I32 : KN_I64;
        c.absent = i & 4 ? SAVED : 0;
        kn_gen *g = make(&c);
        for (int k = 0; k < 6; k++) kn_gen_put(g, TOKEN_INDICES, 3 * k, bad[k]);
        for (int k = 0; k < 6; k++) {
            for (int arg = SELECTED_TOKENS; arg <= SELECTED_WEIGHTS; arg++) poison_row(g, arg, 3 * k, (double)NAN);
        }
        bool selected[50] = {false};
        for (int64_t t = 0; t < 24; t++) {
            double id = kn_gen_get(g, TOKEN_INDICES, t);
            if (id >= 0 && id < 50) selected[(int)id] = true;
        }
        for (int64_t b = 0; b < 50; b++)
            if (!selected[b]) poison_row(g, GRAD_OUTPUT, b, (double)INFINITY);
        uint64_t faults = 0;
        ck_assert_ok(kiln_context_device_faults_reset(ctx));
        run_and_check(g, ctx, "bad ids");
        for (int arg = OUT_HIDDEN; arg < N_ARGS; arg++)
            for (int64_t e = 0; e < kn_gen_elements(g, arg); e++) ck_assert(isfinite(kn_gen_get(g, arg, e)));
        ck_assert_ok(kiln_context_device_faults(ctx, &faults));
        ck_assert_uint_eq(faults, 4);
        kn_gen_free(g);
    }
    close_both();
}
END_TEST

/* More ids than the gather kernel reads at once, and only the last is no token. */
START_TEST(the_last_id_is_seen_too) {
    open_both();
    kn_gen_config c = config_of(1500, 1400, 8, 8);
    kn_gen *g = make(&c);
    kn_gen_put(g, TOKEN_INDICES, 1399, -1);
    poison_row(g, SELECTED_TOKENS, 1399, (double)NAN);
    poison_row(g, GATED_OUTPUT, 1399, (double)NAN);
    run_and_check(g, fast, "the last id");
    for (int64_t e = 0; e < 64; e++)
        ck_assert(isfinite(kn_gen_get(g, OUT_W1, e)) && isfinite(kn_gen_get(g, OUT_W2, e)));
    kn_gen_free(g);
    close_both();
}
END_TEST

/* A NaN in one row reaches its own rows and all weight gradients, no other token. */
START_TEST(nan_stays_with_its_token) {
    open_both();
    for (int i = 0; i < 4; i++) {
        kn_gen_config c = config_of(40, 24, 64, 72);
        c.absent = i & 2 ? SAVED : 0;
        kn_gen *g = make(&c);
        int64_t token = (int64_t)kn_gen_get(g, TOKEN_INDICES, 5);
        kn_gen_put(g, GRAD_OUTPUT, token * 64 + 9, (double)NAN);
        run_and_check(g, i & 1 ? portable : fast, "a NaN");
        for (int64_t b = 0; b < 40; b++) {
            ck_assert_int_eq(isnan(kn_gen_get(g, OUT_ROUTING, b)), b == token);
            ck_assert_int_eq(isnan(kn_gen_get(g, OUT_HIDDEN, b * 64 + 1)), b == token);
        }
        kn_gen_free(g);
    }
    close_both();
}
END_TEST

/* Columns beyond the last one have no part in <a, h>: infinity times their zeros would be no number. */
START_TEST(infinity_stays_infinity) {
    open_both();
    for (int i = 0; i < 4; i++) {
        kn_gen_config c = config_of(130, 128, 16, i & 2 ? 84 : 88);
        c.absent = SAVED;
        kn_gen *g = make(&c);
        for (int arg = W1_OUTPUT; arg <= W3; arg++)
            for (int64_t e = 0; g->args[arg] && e < kn_gen_elements(g, arg); e++)
                kn_gen_put(g, arg, e, fabs(kn_gen_get(g, arg, e)) + 0.5);
        int64_t token = (int64_t)kn_gen_get(g, TOKEN_INDICES, 1);
        kn_gen_put(g, GRAD_OUTPUT, token * 16 + 3, (double)INFINITY);
        ck_assert_ok(kn_gen_run(g, i & 1 ? portable : fast));
        ck_assert_msg(isinf(kn_gen_get(g, OUT_ROUTING, token)), "%g", kn_gen_get(g, OUT_ROUTING, token));
        kn_gen_free(g);
    }
    close_both();
}
END_TEST

/* A weight of zero is a weight: the routing gradient is formed before it. */
START_TEST(weights_of_zero) {
    open_both();
    for (int i = 0; i < 4; i++) {
        kn_gen_config c = config_of(40, 24, 64, 72);
        c.absent = i & 2 ? SAVED : 0;
        kn_gen *g = make(&c);
        for (int64_t t = 0; t < 24; t += 2) kn_gen_put(g, SELECTED_WEIGHTS, t, 0);
        run_and_check(g, i & 1 ? portable : fast, "zero weights");
        int64_t token = (int64_t)kn_gen_get(g, TOKEN_INDICES, 4);
        ck_assert(kn_gen_get(g, OUT_ROUTING, token) != 0 && kn_gen_get(g, OUT_HIDDEN, token * 64) == 0);
        kn_gen_free(g);
    }
    close_both();
}
END_TEST

/* ---- sums -----------------------------------------------------------------------------------------------------------
 */

/* Weight gradients of 256 and then 1 in fp32, beta 1: exactly 257, which bf16 does not have. */
START_TEST(main_gradients_add_in_fp32) {
    open_both();
    kn_gen_config c = config_of(1, 1, 8, 8);
    c.absent = ALL_OUTPUTS & ~bit(OUT_W2);
    kn_gen *g = make(&c);
    for (int64_t i = 0; i < 8; i++) {
        kn_gen_put(g, W1_OUTPUT, i, 32); /* silu(32) is 32 in every type */
        kn_gen_put(g, UP_OUTPUT, i, 0.5);
        kn_gen_put(g, GATED_OUTPUT, i, 16);
        kn_gen_put(g, GRAD_OUTPUT, i, 16);
    }
    kn_gen_put(g, TOKEN_INDICES, 0, 0);
    kn_gen_put(g, SELECTED_WEIGHTS, 0, 1);
    ck_assert_ok(kn_gen_run(g, fast));
    for (int64_t i = 0; i < 64; i++) ck_assert(kn_gen_get(g, OUT_W2, i) == 256);
    g->config.options.common.accumulate = 31;
    for (int64_t i = 0; i < 8; i++) kn_gen_put(g, GRAD_OUTPUT, i, 0.0625);
    ck_assert_ok(kn_gen_run(g, fast));
    for (int64_t i = 0; i < 64; i++) ck_assert(kn_gen_get(g, OUT_W2, i) == 257);
    kn_gen_free(g);
    close_both();
}
END_TEST

/* Rows of one token add up in the order of the rows: 2^24, 1 and -2^24 give 0, not 1. */
START_TEST(repeated_rows_add_in_their_order) {
    open_both();
    kn_gen_config c = config_of(2, 3, 8, 8);
    c.options.expert_mlp.unique_indices = KILN_FALSE;
    c.absent = ALL_OUTPUTS & ~bit(OUT_ROUTING);
    static const double y[] = {16777216, 1, -16777216};
    kn_gen *g = make(&c);
    for (int64_t t = 0; t < 3; t++) {
        kn_gen_put(g, TOKEN_INDICES, t, 1);
        for (int64_t j = 0; j < 8; j++) kn_gen_put(g, EXPERT_OUTPUT, t * 8 + j, j == 3 ? y[t] : 0);
    }
    for (int64_t j = 0; j < 16; j++) kn_gen_put(g, GRAD_OUTPUT, j, 1);
    ck_assert_ok(kn_gen_run(g, fast));
    ck_assert(kn_gen_get(g, OUT_ROUTING, 1) == 0 && kn_gen_get(g, OUT_ROUTING, 0) == 0);
    kn_gen_free(g);
    close_both();
}
END_TEST

/* Many rows of one token, and rows of it in several rounds of the ids. */
START_TEST(one_token_takes_all_rows) {
    open_both();
    kn_gen_config c = config_of(3, 600, 24, 16);
    c.options.expert_mlp.unique_indices = KILN_FALSE;
    c.options.common.accumulate = 3;
    kn_gen *g = make(&c);
    for (int64_t t = 0; t < 600; t++) kn_gen_put(g, TOKEN_INDICES, t, t % 300 == 7 ? 0 : 2);
    run_and_check(g, fast, "one token");
    kn_gen_free(g);
    close_both();
}
END_TEST

/* Neither the path, nor whether token counts are baked in, nor a second run changes a bit. */
START_TEST(bits) {
    kiln_context *ctx[] = {
        open_context(KILN_SHAPES_EXACT, KILN_PATH_DEFAULT), open_context(KILN_SHAPES_EXACT, KILN_PATH_DEFAULT),
        open_context(KILN_SHAPES_GENERIC, KILN_PATH_DEFAULT), open_context(KILN_SHAPES_EXACT, KILN_PATH_PORTABLE),
        open_context(KILN_SHAPES_GENERIC, KILN_PATH_PORTABLE)};
    for (int i = 0; i < 4; i++) {
        kn_gen_config c = config_of(50, 36, 72, 136);
        c.absent = i & 1 ? SAVED : 0;
        if (i & 2) c.options.expert_mlp.unique_indices = KILN_FALSE;
        c.options.common.accumulate = i & 1 ? 31 : 0;
        kn_gen *first = make(&c);
        run_and_check(first, ctx[0], "first");
        for (int k = 1; k < 5; k++) {
            kn_gen *g = make(&c);
            ck_assert_ok(kn_gen_run(g, ctx[k]));
            same_bits(first, g);
            kn_gen_free(g);
        }
        kn_gen_free(first);
    }
    for (int k = 0; k < 5; k++) ck_assert_ok(kiln_context_destroy(ctx[k]));
}
END_TEST

/* A limit on multiprocessors changes grids, never bits. */
START_TEST(a_limit_changes_no_bit) {
    kn_gen_config c = config_of(300, 90, 136, 264);
    kn_gen *first = NULL;
    for (int32_t limit = 0; limit < 6; limit += 1 + limit) {
        kiln_context_options o = {.struct_size = sizeof o, .cache_dir = "off", .sm_limit = limit};
        kiln_context *ctx;
        ck_assert_ok(kiln_context_create(NULL, &o, &ctx));
        kn_gen *g = make(&c);
        ck_assert_ok(kn_gen_run(g, ctx));
        if (first) {
            same_bits(first, g);
            kn_gen_free(g);
        } else {
            first = g;
        }
        ck_assert_ok(kiln_context_destroy(ctx));
    }
    kn_gen_free(first);
}
END_TEST

/* Clusters that share a depth count themselves (dx, in four parts): each call begins with counters of 0. */
START_TEST(four_share_the_depth_of_dx) {
    open_both();
    for (int i = 0; i < 2; i++) {
        kn_gen_config c = config_of(150, 136, 64, 2048);
        c.absent = bit(OUT_W1) | bit(OUT_W2) | bit(OUT_W3);
        if (i) c.options.expert_mlp.unique_indices = KILN_FALSE;
        kn_gen *first = make(&c);
        run_and_check(first, portable, "portable");
        for (int k = 0; k < 2; k++) {
            kn_gen *g = make(&c);
            ck_assert_ok(kn_gen_run(g, fast));
            same_bits(first, g);
            kn_gen_free(g);
        }
        kn_gen_free(first);
    }
    close_both();
}
END_TEST

int main(void) {
    Suite *s = suite_create("ops/expert_mlp_run");
    TCase *t = tcase_create("results");
    tcase_set_timeout(t, 900);
    tcase_add_test(t, golden_cases);
    tcase_add_test(t, random_problems);
    tcase_add_test(t, small_f16_numbers);
    tcase_add_test(t, every_subset_of_outputs);
    tcase_add_test(t, no_tokens_and_one);
    tcase_add_test(t, ids_at_both_ends);
    tcase_add_test(t, bad_ids_are_skipped_and_counted);
    tcase_add_test(t, the_last_id_is_seen_too);
    tcase_add_test(t, nan_stays_with_its_token);
    tcase_add_test(t, infinity_stays_infinity);
    tcase_add_test(t, weights_of_zero);
    tcase_add_test(t, main_gradients_add_in_fp32);
    tcase_add_test(t, repeated_rows_add_in_their_order);
    tcase_add_test(t, one_token_takes_all_rows);
    tcase_add_test(t, bits);
    tcase_add_test(t, four_share_the_depth_of_dx);
    tcase_add_test(t, a_limit_changes_no_bit);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
