/* load_balance_backward: what the planner chooses, what the checks refuse, every kernel it can ask for, and results.
 * The device is KILN_DEVICE's: the GPU where there is one, else the simulator. */
#include "support/problem_gen.h"
#include "support/problem_run.h"
#include "support/suite.h"

#include "base/alloc.h"
#include "jit/assemble.h"
#include "ops/load_balance.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GRAD_TOKENS, GRAD_MASK, GRAD_LOSS, TOPK_IDX, EXPERT_MASK, TOKENS_PER_EXPERT, TRAINING, OUT };

/* ---- plans ---------------------------------------------------------------------------------------------------------
 */

static const kn_device_facts h200 = {.name = "H200", .cc_major = 9, .multiprocessors = 132};

static kn_problem problem(int64_t b, int64_t e, int64_t k, int align_log2) {
    kn_problem p;
    memset(&p, 0, sizeof p);
    p.axis[KN_LOAD_BALANCE_B] = b;
    p.axis[KN_LOAD_BALANCE_E] = e;
    p.axis[KN_LOAD_BALANCE_K] = k;
    for (int i = 0; i < 8; i++) {
        bool present = i != TOPK_IDX && i != EXPERT_MASK && i != TOKENS_PER_EXPERT;
        p.dtype[i] = (uint8_t)(!present ? KN_DTYPE_NONE : i == TRAINING ? KN_BOOL : KN_F32);
        p.align_log2[i] = (uint8_t)align_log2;
    }
    return p;
}

static kn_program *plan(const kn_problem *p, const kn_device_facts *facts, const char *target_name) {
    const kn_target *target;
    kn_program *out = NULL;
    ck_assert_ok(KN_NEW(&out, 1, "program"));
    ck_assert_ok(kn_target_by_name(target_name, &target));
    ck_assert_ok(kn_load_balance_plan(p, facts, target, out));
    return out;
}

static int64_t param(const kn_program *program, const char *name) {
    const kn_param *p = kn_params_find(&program->kernel[0].params, name);
    ck_assert_msg(p != NULL, "no parameter %s", name);
    return p->value;
}

START_TEST(plan_of_the_benchmark) {
    kn_problem p = problem(2048, 256, 8, 7);
    kn_program *program = plan(&p, &h200, "sm_90a");
    ck_assert_int_eq(program->n_launches, 1);
    ck_assert_int_eq(param(program, "VEC"), 4);
    ck_assert_int_eq(param(program, "TX"), 64);
    ck_assert_int_eq(param(program, "TY"), 4);
    ck_assert_int_eq(param(program, "B"), 2048);
    ck_assert_int_eq(program->launch[0].grid[0], 2048 / 4);
    ck_assert_int_eq(param(program, "WALK"), 0);
    ck_assert(program->floor_bytes == 8.0 * 2048 * 256);
    ck_assert(program->note[0] != '\0');
    kn_free(program);
}
END_TEST

START_TEST(blocks_walk_under_a_limit) {
    kn_problem p = problem(524288, 256, 8, 7);
    kn_program *program = plan(&p, &h200, "sm_90a");
    ck_assert_int_eq(program->launch[0].grid[0], 524288 / 4);
    ck_assert_int_eq(param(program, "WALK"), 0);
    p.sm_limit = 7;
    kn_program *limited = plan(&p, &h200, "sm_90a");
    ck_assert_int_eq(limited->launch[0].grid[0], 7 * 8);
    ck_assert_int_eq(param(limited, "WALK"), 1);
    kn_free(program);
    kn_free(limited);
}
END_TEST

START_TEST(the_loss_waits_in_a_grid_of_one_wave) {
    static const struct {
        int64_t b;
        uint32_t sm_limit;
        const char *loss;
    } rows[] = {{2048, 0, "behind"}, {4224, 0, "behind"}, {4225, 0, "along"}, {2048, 7, "along"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        kn_problem p = problem(rows[i].b, 256, 8, 7);
        p.sm_limit = rows[i].sm_limit;
        kn_program *program = plan(&p, &h200, "sm_90a");
        ck_assert_str_eq(kn_params_find(&program->kernel[0].params, "LOSS")->text, rows[i].loss);
        kn_free(program);
    }
}
END_TEST

START_TEST(generic_kernels_do_not_know_the_rows) {
    kn_problem p = problem(100, 60, 4, 4), q = problem(900, 60, 4, 4);
    p.generic = q.generic = 1;
    kn_program *a = plan(&p, &h200, "sm_90a"), *b = plan(&q, &h200, "sm_90a");
    ck_assert_mem_eq(&a->kernel[0], &b->kernel[0], sizeof a->kernel[0]);
    ck_assert_int_eq(param(a, "B"), 0);
    ck_assert_str_eq(kn_params_find(&a->kernel[0].params, "LOSS")->text, "along");
    p.generic = 0; /* the same tile */
    kn_program *exact = plan(&p, &h200, "sm_90a");
    const char *tile[] = {"VEC", "TX", "TY"};
    for (int i = 0; i < 3; i++) ck_assert_int_eq(param(exact, tile[i]), param(a, tile[i]));
    ck_assert_int_eq(exact->launch[0].grid[0], a->launch[0].grid[0]);
    ck_assert_int_eq(exact->launch[0].n_bind, a->launch[0].n_bind);
    kn_free(a);
    kn_free(b);
    kn_free(exact);
}
END_TEST

START_TEST(unaligned_rows_take_single_elements) {
    static const struct {
        int64_t e;
        int align_log2;
        int64_t vec;
    } rows[] = {{256, 4, 4}, {256, 3, 1}, {60, 7, 4}, {61, 7, 1}, {1, 7, 1}, {8192, 4, 4}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        kn_problem p = problem(10, rows[i].e, 1, rows[i].align_log2);
        kn_program *program = plan(&p, &h200, "sm_90a");
        ck_assert_int_eq(param(program, "VEC"), rows[i].vec);
        kn_free(program);
    }
    kn_problem p = problem(10, 256, 1, 7); /* one unaligned tensor is enough */
    p.align_log2[OUT] = 2;
    kn_program *program = plan(&p, &h200, "sm_90a");
    ck_assert_int_eq(param(program, "VEC"), 1);
    kn_free(program);
}
END_TEST

START_TEST(nothing_to_do_is_no_launch) {
    kn_problem p = problem(0, 256, 8, 7), q = problem(5, 256, 8, 7);
    q.dtype[OUT] = KN_DTYPE_NONE;
    kn_program *a = plan(&p, &h200, "sm_90a"), *b = plan(&q, &h200, "sm_90a");
    ck_assert_int_eq(a->n_launches, 0);
    ck_assert_int_eq(b->n_launches, 0);
    kn_free(a);
    kn_free(b);
}
END_TEST

/* ---- checks --------------------------------------------------------------------------------------------------------
 */

static kn_status describe(kn_gen_config *c, int32_t top_k, kn_problem *p) {
    kn_gen *g;
    ck_assert_ok(kn_gen_make(c, &g));
    g->config.options.load_balance.top_k = top_k;
    memset(p, 0, sizeof *p);
    kn_status st = kn_load_balance_describe(&g->call, p);
    kn_gen_free(g);
    return st;
}

START_TEST(top_k_comes_from_the_ids_or_the_options) {
    kn_gen_config c = kn_gen_defaults("load_balance_backward");
    kn_problem p;
    ck_assert_ok(describe(&c, 5, &p));
    ck_assert_int_eq(p.axis[KN_LOAD_BALANCE_K], 5);
    ck_assert_int_eq(p.axis[KN_LOAD_BALANCE_B], c.batch);
    ck_assert_int_eq(p.axis[KN_LOAD_BALANCE_E], c.experts);
    ck_assert_fails(describe(&c, 0, &p), KN_E_ARG, "top_k is 0; wanted at least 1");
    c.absent &= ~((uint64_t)1 << TOPK_IDX);
    ck_assert_ok(describe(&c, 0, &p));
    ck_assert_int_eq(p.axis[KN_LOAD_BALANCE_K], 3);
    ck_assert_ok(describe(&c, 3, &p));
    ck_assert_fails(describe(&c, 4, &p), KN_E_ARG, "top_k is 4, but topk_idx has 3 columns");
    c.top_k = 0;
    ck_assert_fails(describe(&c, 0, &p), KN_E_SHAPE, "topk_idx has 0 columns");
    c.top_k = 3;
    c.experts = 0;
    ck_assert_fails(describe(&c, 0, &p), KN_E_SHAPE, "0 experts");
}
END_TEST

/* ---- kernels -------------------------------------------------------------------------------------------------------
 */

/* Every variant expands without a lint finding, and assembles without spills where an nvJitLink is at hand. */
START_TEST(every_variant_assembles) {
    static const struct {
        int64_t b, e;
        int align_log2;
    } rows[] = {{2048, 256, 7}, {524288, 256, 7}, {7, 1, 2}, {33, 8191, 2}, {33, 8192, 4}, {1 << 30, 8192, 4}};
    const kn_assembler_id *assembler;
    bool assemble = kn_nvjitlink_id(&assembler) == KN_OK;
    ck_assert_msg(assemble || !getenv("CI"), "%s", kn_error_message());
    for (int i = 0; i < 6 * 2 * 2 * 2; i++) {
        kn_problem p = problem(rows[i % 6].b, rows[i % 6].e, 8, rows[i % 6].align_log2);
        p.generic = (uint8_t)(i / 6 % 2);
        p.accumulate = (uint64_t)(i / 12 % 2);
        const char *target = i / 24 ? "sm_80" : "sm_90a";
        kn_program *program = plan(&p, &h200, target);
        kn_expansion x;
        ck_assert_ok(kn_expand("load_balance.ptxt", &program->kernel[0].params, target, KN_EXPAND_LINT, &x));
        ck_assert_int_eq(x.meta.n_args, program->launch[0].n_bind);
        ck_assert_int_eq(x.meta.grid_dependency, program->launch[0].dependent);
        ck_assert_uint_le(x.meta.threads[0] * x.meta.threads[1], 256);
        ck_assert_msg(strncmp(x.meta.entry, "kiln_load_balance_b", 19) == 0, "%s", x.meta.entry);
        void *cubin = NULL;
        size_t len;
        kn_asm_report report = {0};
        if (assemble) ck_assert_ok(kn_nvjitlink_assemble(&x, &cubin, &len, &report));
        ck_assert_msg(report.spill_stores + report.spill_loads + report.stack + report.remarks == 0, "%s spills",
                      x.meta.entry);
        kn_free(cubin);
        kn_expansion_free(&x);
        kn_free(program);
    }
}
END_TEST

/* ---- results -------------------------------------------------------------------------------------------------------
 */

static kiln_context *create(kiln_context_options options) {
    kiln_context *ctx;
    options.struct_size = sizeof options;
    ck_assert_ok(kiln_context_create(NULL, &options, &ctx));
    return ctx;
}

static kiln_context *context(int32_t shapes) {
    return create((kiln_context_options){.shapes = shapes});
}

static kiln_context *limited_context(int32_t sm_limit) {
    return create((kiln_context_options){.sm_limit = sm_limit});
}

static const struct {
    int64_t b, e, k;
    int gap;
} shapes[] = {
    {1, 1, 1, 0},    {37, 256, 8, 0},  {130, 100, 3, 0}, {5, 60, 4, 4}, {64, 7, 2, 0},
    {3, 1030, 5, 2}, {17, 4099, 1, 0}, {9, 8192, 8, 0},  {0, 16, 2, 0}, {2, 257, 256, 255},
    {200, 4, 1, 12}, {700, 64, 6, 1},  {220, 1030, 5, 2}}; /* the last: more blocks than an H200 holds at once */
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

static kn_gen_config config_of(int i) {
    kn_gen_config c = kn_gen_defaults("load_balance_backward");
    c.batch = shapes[i].b;
    c.experts = shapes[i].e;
    c.top_k = shapes[i].k;
    c.gap = shapes[i].gap;
    c.seed = (uint64_t)i + 1;
    return c;
}

START_TEST(results_of_all_shapes) {
    kiln_context *ctx = context(KILN_SHAPES_EXACT);
    kiln_context *same[] = {context(KILN_SHAPES_GENERIC), limited_context(1), limited_context(3)}; /* the same bits */
    for (int i = 0; i < N_SHAPES * 4; i++) {
        kn_gen_config c = config_of(i % N_SHAPES);
        kn_gen *g, *h;
        c.training = i / N_SHAPES % 2;
        c.options.common.accumulate = (uint64_t)(i / N_SHAPES / 2);
        if (i % 2) c.absent &= ~((uint64_t)1 << TOPK_IDX);
        ck_assert_ok(kn_gen_make(&c, &g));
        ck_assert_ok(kn_gen_make(&c, &h));
        if (!c.training) kn_gen_put(g, GRAD_LOSS, 0, (double)NAN); /* must not be seen */
        if (!c.training) kn_gen_put(h, GRAD_LOSS, 0, (double)NAN);
        ck_assert_ok(kn_gen_reference(g));
        ck_assert_ok(kn_gen_run(g, ctx));
        ck_assert_ok(kn_gen_check(g));
        ck_assert_ok(kn_gen_run(h, same[(i + i / N_SHAPES) % 3]));
        for (int64_t e = 0, n = kn_gen_elements(g, OUT); e < n; e++) {
            ck_assert(kn_gen_get(g, OUT, e) == kn_gen_get(h, OUT, e));
        }
        kn_gen_free(g);
        kn_gen_free(h);
    }
    ck_assert_ok(kiln_context_destroy(ctx));
    for (int i = 0; i < 3; i++) ck_assert_ok(kiln_context_destroy(same[i]));
}
END_TEST

/* The loss is divided by B*K once, in fp32, however large the count. */
/* More blocks than an H200 holds at once ask for the loss along with the rest. */
START_TEST(results_of_several_waves) {
    kiln_context *ctx = context(KILN_SHAPES_EXACT);
    for (int training = 0; training < 2; training++) {
        kn_gen_config c = config_of(0);
        kn_gen *g;
        c.batch = 1060;
        c.experts = 129;
        c.training = training;
        ck_assert_ok(kn_gen_make(&c, &g));
        if (!training) kn_gen_put(g, GRAD_LOSS, 0, (double)NAN); /* must not be seen */
        ck_assert_ok(kn_gen_reference(g));
        ck_assert_ok(kn_gen_run(g, ctx));
        ck_assert_ok(kn_gen_check(g));
        kn_gen_free(g);
    }
    ck_assert_ok(kiln_context_destroy(ctx));
}
END_TEST

START_TEST(the_loss_is_precise) {
    kiln_context *ctx = context(KILN_SHAPES_DEFAULT);
    kn_gen_config c = kn_gen_defaults("load_balance_backward");
    c.batch = 3;
    c.experts = 4;
    kn_gen *g;
    ck_assert_ok(kn_gen_make(&c, &g));
    for (int64_t i = 0; i < 12; i++) kn_gen_put(g, GRAD_MASK, i, 0);
    for (int64_t i = 0; i < 4; i++) kn_gen_put(g, GRAD_TOKENS, i, 0);
    kn_gen_put(g, GRAD_LOSS, 0, 1e7);
    g->config.options.load_balance.top_k = 16777213;
    ck_assert_ok(kn_gen_reference(g));
    ck_assert_ok(kn_gen_run(g, ctx));
    for (int64_t i = 0; i < 12; i++) {
        ck_assert_double_eq_tol(kn_gen_get(g, OUT, i), 1e7 / (3.0 * 16777213), 1.5e-7 * 1e7 / (3.0 * 16777213));
    }
    kn_gen_free(g);
    ck_assert_ok(kiln_context_destroy(ctx));
}
END_TEST

START_TEST(runs_in_place) {
    kiln_context *ctx = context(KILN_SHAPES_DEFAULT);
    for (int i = 0; i < N_SHAPES; i++) {
        kn_gen_config c = config_of(i);
        kn_gen *g;
        ck_assert_ok(kn_gen_make(&c, &g));
        ck_assert_ok(kn_gen_reference(g));
        g->call.tensor[OUT] = g->call.tensor[GRAD_MASK];
        g->args[OUT] = g->args[GRAD_MASK];
        ck_assert_ok(kn_gen_run(g, ctx));
        kiln_check_result results[8];
        ck_assert_ok(kn_gen_compare(g, results));
        ck_assert_msg(results[0].pass, "%s", results[0].message);
        kn_gen_free(g);
    }
    ck_assert_ok(kiln_context_destroy(ctx));
}
END_TEST

START_TEST(special_values_stay_where_they_are) {
    kiln_context *ctx = context(KILN_SHAPES_DEFAULT);
    kn_gen_config c = config_of(1);
    kn_gen *g;
    ck_assert_ok(kn_gen_make(&c, &g));
    kn_gen_put(g, GRAD_MASK, 3 * 256 + 7, (double)NAN);
    kn_gen_put(g, GRAD_MASK, 4 * 256 + 8, (double)INFINITY);
    ck_assert_ok(kn_gen_reference(g));
    ck_assert_ok(kn_gen_run(g, ctx));
    ck_assert_ok(kn_gen_check(g));
    int64_t bad = 0;
    for (int64_t i = 0; i < 37 * 256; i++) bad += !isfinite(kn_gen_get(g, OUT, i));
    ck_assert_int_eq(bad, 2);
    kn_gen_free(g);
    ck_assert_ok(kiln_context_destroy(ctx));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ops/load_balance");
    TCase *t = tcase_create("plan"), *results = tcase_create("results");
    tcase_add_test(t, plan_of_the_benchmark);
    tcase_add_test(t, blocks_walk_under_a_limit);
    tcase_add_test(t, the_loss_waits_in_a_grid_of_one_wave);
    tcase_add_test(t, generic_kernels_do_not_know_the_rows);
    tcase_add_test(t, unaligned_rows_take_single_elements);
    tcase_add_test(t, nothing_to_do_is_no_launch);
    tcase_add_test(t, top_k_comes_from_the_ids_or_the_options);
    tcase_add_test(t, every_variant_assembles);
    tcase_set_timeout(results, 60);
    tcase_add_test(results, results_of_all_shapes);
    tcase_add_test(results, results_of_several_waves);
    tcase_add_test(results, the_loss_is_precise);
    tcase_add_test(results, runs_in_place);
    tcase_add_test(results, special_values_stay_where_they_are);
    suite_add_tcase(suite, t);
    suite_add_tcase(suite, results);
    return kn_run_suite(suite);
}
