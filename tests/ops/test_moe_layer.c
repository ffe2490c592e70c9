/* moe_layer_backward: golden cases, random problems over all options on both paths, and the corners: no tokens, outputs
 * that are not wanted, ids that are no experts or repeat, NaN. The device is KILN_DEVICE's: the GPU where there is one,
 * else the simulator. KN_LONG=1 runs many more random problems. Plans: test_moe_layer_plan.c. */
#include "support/both_paths.h"
#include "support/golden.h"

#include "ops/moe_layer_args.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- golden cases --------------------------------------------------------------------------------------------------
 */

static void run_golden(const char *path, void *user) {
    kiln_moe_layer_backward_options o = {.common.struct_size = sizeof o};
    if (strstr(path, "/t130_")) o.routed_scaling_factor = 2.5;
    for (int i = 0; i < 4; i++) {
        kn_gen *g;
        uint64_t absent = i % 2 ? bit(ACTIVATED) : 0;
        /* The file's outputs are those of the activated rows in it, which are rounded: leave out what depends on them.
         */
        if (absent) absent |= bit(OUT_DOWN);
        ck_assert_ok(kn_golden_load(path, i < 2 ? KN_F32 : KN_BF16, absent, &o, &g));
        ck_assert_ok(kn_gen_run(g, i % 3 ? portable : fast));
        kn_status st = kn_gen_check(g);
        ck_assert_msg(st == KN_OK, "%s: %s", path, kn_error_message());
        kn_gen_free(g);
    }
    ++*(int *)user;
}

START_TEST(golden_cases) {
    open_both();
    int n = 0;
    ck_assert_int_eq(kn_golden_each("moe_layer_backward", run_golden, &n), 3);
    ck_assert_int_eq(n, 3);
    close_both();
}
END_TEST

/* ---- random problems -----------------------------------------------------------------------------------------------
 */

static uint64_t state;
static int64_t draw(int64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)n);
}
#define PICK(...) ((int64_t[]){__VA_ARGS__}[draw(sizeof((int64_t[]){__VA_ARGS__}) / 8)])

static kn_gen_config draw_config(int64_t most) {
    kn_gen_config c = kn_gen_defaults("moe_layer_backward");
    bool aligned = draw(2) == 0;
    do {
        c.tokens = PICK(1, 2, 17, 40, 64, 130, 257);
        c.hidden = aligned ? PICK(8, 64, 136, 256) : PICK(1, 7, 36, 65, 130);
        c.inner = aligned ? PICK(8, 48, 88, 176) : PICK(1, 5, 30, 129);
    } while (c.tokens * c.hidden * c.inner > most);
    c.experts = aligned ? PICK(8, 16, 64, 128) : PICK(1, 5, 33, 300);
    c.top_k = 1 + draw(c.experts < 12 ? c.experts : draw(8) ? 12 : c.experts < 80 ? c.experts : 80);
    if (c.top_k > c.experts) c.top_k = c.experts;
    c.seed = (uint64_t)draw(1 << 30);
    c.dtype = draw(3) ? KN_BF16 : KN_F16;
    c.out_dtype = (kn_dtype)PICK(KN_BF16, KN_F16, KN_F32);
    c.id_dtype = draw(2) ? KN_I32 : KN_I64;
    c.gap = (int)(draw(3) == 0 ? (aligned ? 8 : 3) : 0);
    c.skip_percent = (int)PICK(0, 0, 20, 100);
    c.absent &= ~(uint64_t)(draw(4) << 3); /* bias and logits are never read */
    for (int i = SCORE_MASK; i <= GRAD_TOPK_WEIGHTS; i++) {
        if (i == SCORE_MASK || i >= ACTIVATED) c.absent = draw(3) ? c.absent & ~bit(i) : c.absent | bit(i);
    }
    for (int i = OUT_HIDDEN; i <= OUT_DOWN; i++) c.absent |= draw(5) ? 0 : bit(i);
    if (draw(2) == 0) c.options.common.accumulate = (uint64_t)draw(32);
    c.options.moe_layer.routed_scaling_factor = draw(2) ? 2.5 : 0;
    c.options.moe_layer.norm_topk_prob = draw(3) ? KILN_TRUE : KILN_FALSE;
    c.options.moe_layer.router_mode = draw(3) ? KILN_ROUTER_MODE_BENCHMARK : KILN_ROUTER_MODE_EXACT;
    return c;
}

START_TEST(random_problems) {
    open_both();
    bool all = getenv("KN_LONG") != NULL;
    state = 5;
    for (int i = 0; i < (all ? 600 : 40); i++) {
        kn_gen_config c = draw_config(all ? 8000000 : 400000);
        run_one(&c, i % 3 ? fast : portable, i % 3 ? "fast" : "portable");
    }
    close_both();
}
END_TEST

/* ---- corners -------------------------------------------------------------------------------------------------------
 */

/* Everything there is: mask, activated rows, gradients of the weights. */
static kn_gen_config full_config(int64_t tokens) {
    kn_gen_config c = kn_gen_defaults("moe_layer_backward");
    c.tokens = tokens;
    c.hidden = 64;
    c.inner = 40;
    c.experts = 16;
    c.top_k = 4;
    c.absent &= ~(bit(SCORE_MASK) | bit(ACTIVATED) | bit(GRAD_TOPK_WEIGHTS));
    return c;
}

START_TEST(each_output_alone) {
    open_both();
    for (int i = 0; i < 10; i++) {
        kn_gen_config c = full_config(33);
        for (int out = OUT_HIDDEN; out <= OUT_DOWN; out++) c.absent |= out == OUT_HIDDEN + i % 5 ? 0 : bit(out);
        if (i >= 5) c.absent |= bit(ACTIVATED) | bit(GRAD_TOPK_WEIGHTS);
        run_one(&c, i % 2 ? fast : portable, "one output");
    }
    close_both();
}
END_TEST

/* Without tokens the weight gradients are zeros, or stay as they are. */
START_TEST(no_tokens) {
    open_both();
    for (int i = 0; i < 4; i++) {
        kn_gen_config c = full_config(0);
        if (i % 2) c.options.common.accumulate = 31;
        kn_gen *g;
        ck_assert_ok(kn_gen_make(&c, &g));
        for (int out = OUT_ROUTER; out <= OUT_DOWN; out++) {
            for (int64_t e = 0; i % 2 && e < kn_gen_elements(g, out); e++) kn_gen_put(g, out, e, (double)e + 0.5);
        }
        ck_assert_ok(kn_gen_run(g, i < 2 ? fast : portable));
        for (int out = OUT_ROUTER; out <= OUT_DOWN; out++) {
            for (int64_t e = 0; e < kn_gen_elements(g, out); e++) {
                ck_assert(kn_gen_get(g, out, e) == (i % 2 ? (double)e + 0.5 : 0));
            }
        }
        kn_gen_free(g);
    }
    close_both();
}
END_TEST

/* Ids that are no experts: the slot counts for nothing, whatever its weight and gradient hold. */
START_TEST(skipped_slots) {
    static const double wide[] = {-1, 16, 21, -2, 2147483647, -2147483648.0, 4294967299.0};
    open_both();
    for (int i = 0; i < 8; i++) {
        kn_gen_config c = full_config(9);
        c.id_dtype = i % 2 ? KN_I32 : KN_I64;
        c.options.moe_layer.router_mode = i / 2 % 2;
        c.options.moe_layer.norm_topk_prob = i / 4;
        kn_gen *g;
        uint64_t faults;
        ck_assert_ok(kn_gen_make(&c, &g));
        int n = i % 2 ? 6 : 7;
        for (int j = 0; j < n; j++) {
            int64_t slot = j * 4 + j % 4;
            kn_gen_put(g, TOPK_INDICES, slot, wide[j]);
            kn_gen_put(g, TOPK_WEIGHTS, slot, (double)NAN);
            kn_gen_put(g, GRAD_TOPK_WEIGHTS, slot, (double)NAN);
        }
        for (int k = 0; k < 4; k++) kn_gen_put(g, TOPK_INDICES, 7 * 4 + k, -1); /* a token without experts */
        ck_assert_ok(kiln_context_device_faults_reset(fast));
        run_and_check(g, fast, "skipped slots");
        ck_assert_ok(kiln_context_device_faults(fast, &faults));
        ck_assert_uint_eq(faults, (uint64_t)n - 1); /* -1 is none */
        kn_gen_free(g);
    }
    close_both();
}
END_TEST

START_TEST(repeated_ids_add_up) {
    open_both();
    kn_gen_config c = full_config(7);
    kn_gen *g;
    ck_assert_ok(kn_gen_make(&c, &g));
    for (int64_t t = 0; t < 7; t++) {
        kn_gen_put(g, TOPK_INDICES, 4 * t + 3, kn_gen_get(g, TOPK_INDICES, 4 * t));
        kn_gen_put(g, TOPK_INDICES, 4 * t + 2, kn_gen_get(g, TOPK_INDICES, 4 * t));
    }
    run_and_check(g, fast, "repeated ids");
    kn_gen_free(g);
    close_both();
}
END_TEST

/* A NaN poisons its own row and the sums that it enters; kn_gen_check wants finite numbers wherever the reference has
 * some. */
START_TEST(nan_stays_where_it_is) {
    static const int where[] = {GRAD_OUTPUT, HIDDEN,    TOPK_WEIGHTS, GRAD_TOPK_WEIGHTS,
                                GATE_OUTPUT, UP_OUTPUT, ACTIVATED};
    open_both();
    for (size_t i = 0; i < 2 * sizeof where / sizeof where[0]; i++) {
        kn_gen_config c = full_config(33);
        kn_gen *g;
        ck_assert_ok(kn_gen_make(&c, &g));
        int arg = where[i / 2];
        int64_t row = kn_gen_elements(g, arg) / 33;
        kn_gen_put(g, arg, 5 * row + 1, i % 2 ? (double)NAN : (double)INFINITY);
        run_and_check(g, i % 2 ? fast : portable, g->op.args[arg].name);
        int64_t bad = 0;
        for (int64_t e = 0; e < 33 * 64; e++) bad += !isfinite(kn_gen_get(g, OUT_HIDDEN, e));
        ck_assert_int_le(bad, 64);
        kn_gen_free(g);
    }
    close_both();
}
END_TEST

/* The stand-in gradient of rows of every length: whole turns of a warp, their ends, and unaligned ones. */
START_TEST(squares_of_long_rows) {
    static const int64_t hidden[] = {256, 264, 513, 520, 1024, 1032, 2048, 2056, 4096, 601};
    open_both();
    for (int i = 0; i < 10; i++) {
        kn_gen_config c = full_config(3);
        c.hidden = hidden[i];
        c.inner = 8;
        c.absent |= bit(GRAD_TOPK_WEIGHTS) | bit(OUT_GATE) | bit(OUT_UP) | bit(OUT_DOWN);
        c.dtype = i % 2 ? KN_F16 : KN_BF16;
        c.options.moe_layer.norm_topk_prob = KILN_FALSE; /* else it would cancel */
        kn_gen *g;
        ck_assert_ok(kn_gen_make(&c, &g));
        run_and_check(g, fast, "squares");
        kn_gen_free(g);
    }
    close_both();
}
END_TEST

/* One slot, normalised: its weight is 1 whatever the router says, so the router has no gradient. */
START_TEST(one_slot_has_no_gradient) {
    open_both();
    kn_gen_config c = full_config(20);
    c.top_k = 1;
    kn_gen *g;
    ck_assert_ok(kn_gen_make(&c, &g));
    ck_assert_ok(kn_gen_run(g, fast));
    for (int64_t e = 0; e < 16 * 64; e++) ck_assert(kn_gen_get(g, OUT_ROUTER, e) == 0);
    kn_gen_free(g);
    close_both();
}
END_TEST

/* Repeats, and kernels that do not know the number of tokens, give the same bits. */
START_TEST(bits_repeat) {
    kiln_context *on[] = {open_context(KILN_SHAPES_EXACT, KILN_PATH_DEFAULT),
                          open_context(KILN_SHAPES_EXACT, KILN_PATH_DEFAULT),
                          open_context(KILN_SHAPES_GENERIC, KILN_PATH_DEFAULT)};
    static const int64_t tokens[] = {1, 70, 130};
    for (int i = 0; i < 6; i++) {
        kn_gen_config c = full_config(tokens[i % 3]);
        if (i % 2) c.absent |= bit(GRAD_TOPK_WEIGHTS) | bit(ACTIVATED);
        c.dtype = i < 3 ? KN_BF16 : KN_F16;
        kn_gen *g[3];
        for (int j = 0; j < 3; j++) {
            ck_assert_ok(kn_gen_make(&c, &g[j]));
            ck_assert_ok(kn_gen_run(g[j], on[j]));
        }
        for (int out = OUT_HIDDEN; out <= OUT_DOWN; out++) {
            size_t bytes = g[0]->call.tensor[out].bytes;
            ck_assert_mem_eq(g[0]->call.tensor[out].data, g[1]->call.tensor[out].data, bytes);
            ck_assert_mem_eq(g[0]->call.tensor[out].data, g[2]->call.tensor[out].data, bytes);
        }
        for (int j = 0; j < 3; j++) kn_gen_free(g[j]);
    }
    for (int j = 0; j < 3; j++) ck_assert_ok(kiln_context_destroy(on[j]));
}
END_TEST

static kiln_context *limited_context(int32_t sm_limit) {
    kiln_context *c;
    kiln_context_options o = {.struct_size = sizeof o, .cache_dir = "off", .sm_limit = sm_limit};
    ck_assert_ok(kiln_context_create(NULL, &o, &c));
    return c;
}

/* A limit makes every launch walk: tokens, tiles of the weight gradients, tiles that two blocks share. */
START_TEST(a_limit_changes_no_bit) {
    static const int32_t limits[] = {0, 1, 5};
    kn_gen_config c = full_config(1032); /* enough for gemm_parts */
    c.hidden = 136;
    c.experts = 136;
    kn_gen *first = NULL;
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        kiln_context *on = limited_context(limits[i]);
        kn_gen *g;
        ck_assert_ok(kn_gen_make(&c, &g));
        if (i == 0) ck_assert_ok(kn_gen_reference(g));
        ck_assert_ok(kn_gen_run(g, on));
        if (i == 0) ck_assert_ok(kn_gen_check(g));
        for (int out = OUT_HIDDEN; out <= OUT_DOWN && first; out++)
            ck_assert_mem_eq(g->call.tensor[out].data, first->call.tensor[out].data, g->call.tensor[out].bytes);
        if (first) kn_gen_free(g);
        if (!first) first = g;
        ck_assert_ok(kiln_context_destroy(on));
    }
    kn_gen_free(first);
}
END_TEST

/* The router's gradient alone of `tokens` tokens, with all terms of one sign. */
static kn_gen *one_sign(const kn_gen_config *given) {
    kn_gen_config c = *given;
    c.options.moe_layer.norm_topk_prob = KILN_FALSE;
    c.absent |= bit(OUT_HIDDEN) | bit(OUT_GATE) | bit(OUT_UP) | bit(OUT_DOWN);
    kn_gen *g;
    ck_assert_ok(kn_gen_make(&c, &g));
    static const int args[] = {HIDDEN, GRAD_TOPK_WEIGHTS};
    for (int i = 0; i < 2; i++) {
        for (int64_t e = 0, n = kn_gen_elements(g, args[i]); e < n; e++)
            kn_gen_put(g, args[i], e, fabs(kn_gen_get(g, args[i], e)));
    }
    return g;
}

static void check_precision(kn_gen *g, double limit, const char *what) {
    double err = 0, exact = 0;
    for (int64_t e = 0, n = kn_gen_elements(g, OUT_ROUTER); e < n; e++) {
        double d = kn_gen_get(g, OUT_ROUTER, e) - g->exact[1][e];
        err += d * d;
        exact += g->exact[1][e] * g->exact[1][e];
    }
    ck_assert_msg(sqrt(err) <= limit * sqrt(exact), "%s: relative error %g", what, sqrt(err / exact));
}

/* The router's gradient is precise to fp32 even where every term has one sign and a token stands alone. */
START_TEST(router_gradient_is_precise) {
    open_both();
    for (int i = 0; i < 6; i++) {
        kn_gen_config c = full_config(i % 2 ? 1 : 300);
        c.dtype = i < 4 ? KN_BF16 : KN_F16;
        kn_gen *g = one_sign(&c);
        run_and_check(g, i % 4 < 2 ? fast : portable, "one sign");
        check_precision(g, i % 2 ? 3e-7 : 1.5e-6, "one sign");
        kn_gen_free(g);
    }
    close_both();
}
END_TEST

/* Sums so long that partial sums must leave the tensor cores; one or two blocks a tile, sizes around the tiles' edges.
 */
START_TEST(long_sums_of_the_router) {
    static const struct {
        int64_t tokens, hidden, experts;
        kn_dtype out;
        int gap, accumulate;
    } cases[] = {{1025, 72, 16, KN_F32, 0, 0},   {1100, 128, 128, KN_BF16, 8, 0}, {1088, 8, 200, KN_F32, 0, 1},
                 {1025, 4168, 20, KN_F32, 0, 0}, {1100, 96, 129, KN_F16, 4, 0},   {2048, 64, 5, KN_F32, 8, 1}};
    open_both();
    kiln_context *generic = open_context(KILN_SHAPES_GENERIC, KILN_PATH_DEFAULT);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        kn_gen_config c = full_config(cases[i].tokens);
        c.hidden = cases[i].hidden;
        c.experts = cases[i].experts;
        c.inner = 8;
        c.out_dtype = cases[i].out;
        c.gap = cases[i].gap;
        c.options.common.accumulate = cases[i].accumulate ? 1u << (OUT_ROUTER - OUT_HIDDEN) : 0;
        kn_gen *g = one_sign(&c), *h = one_sign(&c);
        run_and_check(g, fast, "long sums");
        if (c.out_dtype == KN_F32) check_precision(g, 1.2e-6, "long sums");
        ck_assert_ok(kn_gen_run(h, generic));
        ck_assert_mem_eq(g->call.tensor[OUT_ROUTER].data, h->call.tensor[OUT_ROUTER].data,
                         g->call.tensor[OUT_ROUTER].bytes);
        kn_gen_free(g);
        kn_gen_free(h);
    }
    ck_assert_ok(kiln_context_destroy(generic));
    close_both();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ops/moe_layer");
    TCase *t = tcase_create("results"), *sums = tcase_create("long_sums");
    tcase_add_test(t, golden_cases);
    tcase_add_test(t, random_problems);
    tcase_add_test(t, each_output_alone);
    tcase_add_test(t, no_tokens);
    tcase_add_test(t, skipped_slots);
    tcase_add_test(t, repeated_ids_add_up);
    tcase_add_test(t, nan_stays_where_it_is);
    tcase_add_test(t, squares_of_long_rows);
    tcase_add_test(t, one_slot_has_no_gradient);
    tcase_add_test(t, bits_repeat);
    tcase_add_test(t, a_limit_changes_no_bit);
    tcase_add_test(t, router_gradient_is_precise);
    tcase_add_test(sums, long_sums_of_the_router);
    suite_add_tcase(suite, t);
    suite_add_tcase(suite, sums);
    return kn_run_suite(suite);
}
