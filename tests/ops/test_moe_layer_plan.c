/* moe_layer_backward: what the planner chooses, what the checks refuse, and every kernel of its own that it can ask
 * for. Results: test_moe_layer.c. */
#include "support/problem_gen.h"
#include "support/suite.h"

#include "base/alloc.h"
#include "jit/assemble.h"
#include "ops/moe_layer.h"
#include "ops/moe_layer_args.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BIT(arg) ((uint64_t)1 << (arg))

static const kn_device_facts h200 = {
    .name = "H200", .cc_major = 9, .multiprocessors = 132, .smem_per_block = 232448, .l2_bytes = 60 << 20};

/* The benchmark's sizes; router gradient f32, the others bf16. */
static kn_problem problem(int64_t tokens) {
    kn_problem p;
    memset(&p, 0, sizeof p);
    p.axis[KN_MOE_LAYER_T] = tokens;
    p.axis[KN_MOE_LAYER_H] = 4096;
    p.axis[KN_MOE_LAYER_I] = 1408;
    p.axis[KN_MOE_LAYER_E] = 128;
    p.axis[KN_MOE_LAYER_K] = 8;
    for (int i = 0; i <= OUT_DOWN; i++) {
        bool f32 = i == 5 || i == 7 || i == SCORE_MASK || i == OUT_ROUTER;
        p.dtype[i] = (uint8_t)(f32 ? KN_F32 : i == TOPK_INDICES ? KN_I64 : KN_BF16);
        p.align_log2[i] = 7;
    }
    p.dtype[3] = p.dtype[4] = p.dtype[GRAD_TOPK_WEIGHTS] = KN_DTYPE_NONE;
    double one = 1;
    memcpy(&p.option[0], &one, sizeof one);
    return p;
}

static kn_program *plan(const kn_problem *p, const char *target_name) {
    const kn_target *target;
    kn_program *out = NULL;
    ck_assert_ok(KN_NEW(&out, 1, "program"));
    ck_assert_ok(kn_target_by_name(target_name, &target));
    ck_assert_ok(kn_moe_layer_plan(p, &h200, target, out));
    return out;
}

static const kn_param *param(const kn_program *program, uint32_t kernel, const char *name) {
    const kn_param *p = kn_params_find(&program->kernel[kernel].params, name);
    ck_assert_msg(p != NULL, "no parameter %s", name);
    return p;
}

START_TEST(plan_of_the_benchmark) {
    static const int64_t tokens[] = {192, 211, 997, 1571, 3072, 8192};
    for (int i = 0; i < 6; i++) {
        kn_problem p = problem(tokens[i]);
        kn_program *program = plan(&p, "sm_90a");
        ck_assert_uint_eq(program->n_launches, 5);
        for (uint32_t l = 0; l < 5; l++) ck_assert(program->launch[l].dependent);
        ck_assert_str_eq(program->kernel[0].template_name, "moe_layer_router.ptxt");
        ck_assert_str_eq(param(program, 0, "G")->text, "square");
        ck_assert_int_eq(param(program, 0, "VEC")->value, 8);
        ck_assert_int_eq(program->launch[0].grid[0], (tokens[i] + 3) / 4);
        ck_assert(program->floor_flops == 2.0 * (double)tokens[i] * 4096 * (6 * 1408 + 2 * 128));
        /* dg, du; dz in three parts, shared by both products */
        uint64_t rows = (uint64_t)tokens[i] * 2;
        ck_assert_uint_le(program->workspace_bytes, rows * (2 * 1408 + 3 * 128) + 4 * 256);
        kn_free(program);
    }
}
END_TEST

START_TEST(a_limit_bounds_every_grid) {
    for (uint32_t limit = 1; limit < 140; limit += 23) {
        kn_problem p = problem(3072);
        p.sm_limit = limit;
        kn_program *program = plan(&p, "sm_90a");
        ck_assert_uint_eq(program->n_launches, 5);
        for (uint32_t l = 0; l < 5; l++) {
            /* small blocks: six to a multiprocessor; two that share a tile run at the same time, whatever the limit */
            uint32_t most = l == 0 ? 6 * limit : limit < 2 ? 2 : limit;
            ck_assert_uint_le(program->launch[l].grid[0] * program->launch[l].grid[1] * program->launch[l].grid[2],
                              most);
        }
        kn_free(program);
    }
}
END_TEST

/* The three weight gradients of one type are one launch; a product that no wanted output needs is none. */
START_TEST(unwanted_outputs_cost_nothing) {
    static const struct {
        uint32_t wanted; /* bit i: output i */
        bool activated;
        uint32_t launches;
        uint64_t rows; /* of the workspace, bytes a token */
    } cases[] = {
        {31, true, 5, 2 * (2 * 1408 + 3 * 128)},
        {31, false, 5, 2 * (3 * 1408 + 3 * 128)},
        {1, true, 3, 2 * (2 * 1408 + 128)},
        {2, true, 2, 2 * 3 * 128},
        {4, true, 2, 2 * 2 * 1408},
        {12, true, 2, 2 * 2 * 1408},
        {16, true, 1, 0},
        {16, false, 2, 2 * 1408},
        {28, true, 2, 2 * 2 * 1408},
        {3, true, 4, 2 * (2 * 1408 + 3 * 128)},
        {0, true, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        kn_problem p = problem(512);
        for (int o = 0; o < 5; o++)
            if (!(cases[i].wanted >> o & 1)) p.dtype[OUT_HIDDEN + o] = KN_DTYPE_NONE;
        if (!cases[i].activated) p.dtype[ACTIVATED] = KN_DTYPE_NONE;
        kn_program *program = plan(&p, "sm_90a");
        ck_assert_msg(program->n_launches == cases[i].launches, "case %zu: %u launches", i, program->n_launches);
        ck_assert_uint_eq(program->workspace_bytes, 512 * cases[i].rows);
        kn_free(program);
    }
}
END_TEST

START_TEST(weight_gradients_group_by_type_and_beta) {
    kn_problem p = problem(512);
    p.dtype[OUT_UP] = KN_F32;
    kn_program *program = plan(&p, "sm_90a");
    ck_assert_uint_eq(program->n_launches, 6);
    kn_free(program);
    p.dtype[OUT_UP] = KN_BF16;
    p.accumulate = 1u << 4;
    program = plan(&p, "sm_90a");
    ck_assert_uint_eq(program->n_launches, 6);
    kn_free(program);
}
END_TEST

START_TEST(generic_kernels_do_not_know_the_tokens) {
    kn_problem p = problem(8192), q = problem(8191);
    p.generic = q.generic = 1;
    kn_program *a = plan(&p, "sm_90a"), *b = plan(&q, "sm_90a");
    ck_assert_uint_eq(a->n_kernels, b->n_kernels);
    ck_assert_mem_eq(&a->kernel[0], &b->kernel[0], sizeof a->kernel[0]);
    ck_assert_int_eq(param(a, 0, "TOKENS")->value, -1);
    p.generic = 0;
    kn_program *exact = plan(&p, "sm_90a");
    ck_assert_int_eq(param(exact, 0, "TOKENS")->value, 8192);
    kn_free(a);
    kn_free(b);
    kn_free(exact);
}
END_TEST

START_TEST(no_tokens_no_rows) {
    kn_problem p = problem(0);
    kn_program *program = plan(&p, "sm_90a");
    ck_assert_uint_eq(program->n_launches, 4); /* zeros in four weight gradients */
    kn_free(program);
    p.accumulate = 31;
    program = plan(&p, "sm_90a");
    ck_assert_uint_eq(program->n_launches, 0);
    kn_free(program);
}
END_TEST

/* ---- checks --------------------------------------------------------------------------------------------------------
 */

static kn_status describe(const kn_gen_config *c, kn_problem *p) {
    kn_gen *g;
    ck_assert_ok(kn_gen_make(c, &g));
    memset(p, 0, sizeof *p);
    kn_status st = kn_moe_layer_describe(&g->call, p);
    kn_gen_free(g);
    return st;
}

START_TEST(sizes_and_options_are_checked) {
    kn_gen_config c = kn_gen_defaults("moe_layer_backward");
    kn_problem p;
    ck_assert_ok(describe(&c, &p));
    ck_assert_int_eq(p.axis[KN_MOE_LAYER_T], c.tokens);
    ck_assert_int_eq(p.axis[KN_MOE_LAYER_H], c.hidden);
    ck_assert_int_eq(p.axis[KN_MOE_LAYER_I], c.inner);
    ck_assert_int_eq(p.axis[KN_MOE_LAYER_E], c.experts);
    ck_assert_int_eq(p.axis[KN_MOE_LAYER_K], c.top_k);
    kn_gen *g;
    ck_assert_ok(kn_gen_make(&c, &g)); /* sizes that are too large for tensors of a test, by their letters alone */
    static const struct {
        char letter;
        int64_t size;
        const char *sentence;
    } wrong[] = {{'K', 0, "topk_indices has 0 columns; wanted 1 to 12, with 12 experts"},
                 {'K', 13, "topk_indices has 13 columns; wanted 1 to 12"},
                 {'E', 0, "scores has 0 experts; wanted 1 to 8192"},
                 {'E', 8193, "scores has 8193 experts"},
                 {'H', 0, "grad_output has 0 columns"},
                 {'I', 0, "shared_gate_output has 0 columns"},
                 {'T', 2147483392, "grad_output has 2147483392 rows; wanted at most 2147483391"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        int64_t *size = &g->call.letter[wrong[i].letter - 'A'], right = *size;
        *size = wrong[i].size;
        ck_assert_fails(kn_moe_layer_describe(&g->call, &p), KN_E_SHAPE, wrong[i].sentence);
        *size = right;
    }
    static const double scales[] = {(double)NAN, (double)INFINITY, 1e39, 1e-50};
    for (int i = 0; i < 4; i++) {
        g->config.options.moe_layer.routed_scaling_factor = scales[i];
        ck_assert_fails(kn_moe_layer_describe(&g->call, &p), KN_E_ARG, "routed_scaling_factor is not");
    }
    g->config.options.moe_layer.routed_scaling_factor = -2.5;
    ck_assert_ok(kn_moe_layer_describe(&g->call, &p));
    kn_gen_free(g);
}
END_TEST

/* ---- kernels -------------------------------------------------------------------------------------------------------
 */

/* Every variant of the router's kernel expands without a lint finding, and assembles without spills or remarks where an
 * nvJitLink is at hand. */
START_TEST(every_router_kernel_assembles) {
    const kn_assembler_id *assembler;
    bool assemble = kn_nvjitlink_id(&assembler) == KN_OK;
    ck_assert_msg(assemble || !getenv("CI"), "%s", kn_error_message());
    for (int i = 0; i < 32; i++) {
        kn_problem p = problem(i % 5 == 0 ? 1 : 1000);
        p.generic = (uint8_t)(i % 2);
        if (i / 2 % 2) p.dtype[GRAD_TOPK_WEIGHTS] = KN_F32;
        if (i / 4 % 2) p.dtype[SCORE_MASK] = KN_DTYPE_NONE;
        if (i / 8 % 2) p.dtype[GRAD_OUTPUT] = KN_F16;
        if (i / 16 % 2) p.align_log2[GRAD_OUTPUT] = 1;
        if (i % 3 == 0) p.dtype[TOPK_INDICES] = KN_I32;
        if (i % 3 == 1) p.axis[KN_MOE_LAYER_E] = 300, p.axis[KN_MOE_LAYER_K] = 256, p.axis[KN_MOE_LAYER_H] = 37;
        if (i % 7 == 0) p.dtype[OUT_ROUTER] = KN_DTYPE_NONE;
        if (i % 7 == 1) p.dtype[OUT_HIDDEN] = KN_DTYPE_NONE;
        p.option[1] = i % 4 == 3;
        p.option[2] = i % 5 > 2;
        const char *target = i % 6 == 5 ? "sm_80" : "sm_90a";
        kn_program *program = plan(&p, target);
        kn_expansion x;
        ck_assert_ok(kn_expand("moe_layer_router.ptxt", &program->kernel[0].params, target, KN_EXPAND_LINT, &x));
        ck_assert_int_eq(x.meta.n_args, program->launch[0].n_bind);
        ck_assert_int_eq(x.meta.grid_dependency, program->launch[0].dependent);
        ck_assert_int_eq(x.meta.threads[0], 128);
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

int main(void) {
    Suite *suite = suite_create("ops/moe_layer_plan");
    TCase *t = tcase_create("plan");
    tcase_add_test(t, plan_of_the_benchmark);
    tcase_add_test(t, a_limit_bounds_every_grid);
    tcase_add_test(t, unwanted_outputs_cost_nothing);
    tcase_add_test(t, weight_gradients_group_by_type_and_beta);
    tcase_add_test(t, generic_kernels_do_not_know_the_tokens);
    tcase_add_test(t, no_tokens_no_rows);
    tcase_add_test(t, sizes_and_options_are_checked);
    tcase_add_test(t, every_router_kernel_assembles);
    suite_add_tcase(suite, t);
    return kn_run_suite(suite);
}
