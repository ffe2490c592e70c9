/* expert_mlp_backward without running it: what the planner makes of every wish, what the checks refuse, and that every
 * kernel of it assembles without spilling registers. Results: test_expert_mlp_run.c. */
#include "expert_mlp_support.h"

#include "base/alloc.h"
#include "jit/assemble.h"
#include "ops/expert_mlp.h"

#include <math.h>
#include <stdlib.h>

static const kn_device_facts h200 = {.name = "H200",
                                     .cc_major = 9,
                                     .multiprocessors = 132,
                                     .smem_per_block = 232448,
                                     .l2_bytes = 50 << 20,
                                     .memory_bytes = (uint64_t)141 << 30};

/* All inputs and outputs bf16, aligned; outputs in `outputs`, saved tensors absent as in `absent`. */
static kn_problem problem(int64_t b, int64_t t, int64_t h, int64_t f) {
    kn_problem p;
    memset(&p, 0, sizeof p);
    p.axis[KN_EXPERT_MLP_B] = b;
    p.axis[KN_EXPERT_MLP_T] = t;
    p.axis[KN_EXPERT_MLP_H] = h;
    p.axis[KN_EXPERT_MLP_F] = f;
    for (int i = 0; i < N_ARGS; i++) {
        p.dtype[i] = (uint8_t)(i == TOKEN_INDICES ? KN_I64 : KN_BF16);
        p.align_log2[i] = 7;
    }
    p.option[0] = 0x3f800000;
    return p;
}

static void leave_out(kn_problem *p, uint64_t args) {
    for (int i = 0; i < N_ARGS; i++)
        if (args >> i & 1) p->dtype[i] = KN_DTYPE_NONE;
}

static kn_program *plan_on(const kn_problem *p, const char *target_name) {
    const kn_target *target;
    kn_program *out = NULL;
    ck_assert_ok(KN_NEW(&out, 1, "program"));
    ck_assert_ok(kn_target_by_name(target_name, &target));
    ck_assert_ok(kn_expert_mlp_plan(p, &h200, target, out));
    return out;
}

static kn_program *plan(const kn_problem *p) {
    return plan_on(p, "sm_90a");
}

/* Which product launch i is of: "gather", "da", "dw", "dx", "routing", "combine". */
static const char *part(const kn_program *out, uint32_t i) {
    const kn_kernel_spec *k = &out->kernel[out->launch[i].kernel];
    if (strcmp(k->template_name, "expert_mlp_combine.ptxt") == 0) return "combine";
    if (strcmp(k->template_name, "expert_mlp_gather.ptxt") == 0)
        return strcmp(kn_params_find(&k->params, "R")->text, "partials") == 0 ? "routing" : "gather";
    const char *symbol = kn_params_find(&k->params, "SYMBOL")->text;
    return symbol + strlen("expert_mlp_");
}

static void expect_parts(const kn_problem *p, const char *want) {
    char got[128] = "";
    kn_program *out = plan(p);
    for (uint32_t i = 0; i < out->n_launches; i++) {
        strcat(got, i ? " " : "");
        strcat(got, part(out, i));
    }
    ck_assert_str_eq(got, want);
    kn_free(out);
}

static int64_t param(const kn_program *out, uint32_t launch, const char *name) {
    const kn_param *q = kn_params_find(&out->kernel[out->launch[launch].kernel].params, name);
    ck_assert_msg(q != NULL, "no parameter %s", name);
    return q->value;
}

START_TEST(the_benchmark_takes_four_launches) {
    static const int64_t tokens[] = {64, 128, 196, 215, 256, 296, 336, 496, 512, 2048};
    for (int i = 0; i < 10; i++) {
        kn_problem p = problem(4096, tokens[i], 4096, 14336);
        expect_parts(&p, "gather da dw dx");
        kn_program *out = plan(&p);
        ck_assert_int_eq(param(out, 2, "PROBLEMS"), 3);
        for (uint32_t l = 0; l < 4; l++) ck_assert(out->launch[l].dependent);
        /* d, dg, du, and what is only touched when some row stands for no token: x, h, flag */
        int64_t t = tokens[i];
        int64_t want = 2 * (t * 4096 * 2) + 3 * (t * 14336 * 2);
        bool quarters = t > 128 && t <= 256;
        ck_assert_int_eq(param(out, 3, "SPLIT"), quarters ? 4 : t < 500 ? 2 : 1);
        /* the sums of both clusters of 32 tiles of all tokens by 128 columns, and counters */
        if (quarters) want += 2 * 4096 * ((t + 7) / 8 * 8) * 4 + 4096;
        ck_assert_int_ge((int64_t)out->workspace_bytes, want);
        ck_assert_int_le((int64_t)out->workspace_bytes, want + 8 * 256);
        ck_assert(out->floor_flops == 12.0 * (double)t * 4096 * 14336);
        kn_free(out);
    }
}
END_TEST

START_TEST(parts_without_outputs_are_left_out) {
    const uint64_t weights = bit(OUT_W1) | bit(OUT_W2) | bit(OUT_W3);
    const struct {
        uint64_t without;
        const char *want;
    } rows[] = {
        {ALL_OUTPUTS, ""},
        {ALL_OUTPUTS & ~bit(OUT_ROUTING), "gather"},
        {ALL_OUTPUTS & ~bit(OUT_W2), "gather dw"}, /* no product but its own */
        {ALL_OUTPUTS & ~bit(OUT_W1), "gather da dw"},
        {bit(OUT_HIDDEN), "gather da dw"},                         /* weight gradients only */
        {bit(OUT_W1) | bit(OUT_W2) | bit(OUT_W3), "gather da dx"}, /* data gradients only */
        {ALL_OUTPUTS & ~bit(OUT_HIDDEN), "gather da dx"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        kn_problem p = problem(300, 100, 64, 128);
        leave_out(&p, rows[i].without);
        expect_parts(&p, rows[i].want);
    }
    kn_problem p = problem(300, 100, 64, 128);
    leave_out(&p, weights | bit(OUT_HIDDEN) | bit(EXPERT_OUTPUT));
    expect_parts(&p, "gather da routing");
    p = problem(300, 100, 64, 128);
    leave_out(&p, (ALL_OUTPUTS & ~bit(OUT_W2)) | bit(GATED_OUTPUT));
    expect_parts(&p, "gather da dw"); /* h alone: an empty product */
    kn_program *out = plan(&p);
    ck_assert_int_eq(param(out, 1, "K0"), 0);
    kn_free(out);
    p = problem(300, 100, 64, 128);
    p.option[3] = 1;
    expect_parts(&p, "gather da dw dx combine");
    leave_out(&p, bit(EXPERT_OUTPUT));
    expect_parts(&p, "gather da dw dx combine");
}
END_TEST

/* Gradients that are stored alike share a launch. */
START_TEST(weight_gradients_are_grouped) {
    kn_problem p = problem(300, 100, 64, 128);
    p.accumulate = 1u << (OUT_W3 - OUT_HIDDEN);
    expect_parts(&p, "gather da dw dw dx");
    p.accumulate = 7u << (OUT_W1 - OUT_HIDDEN);
    expect_parts(&p, "gather da dw dx");
    p.dtype[OUT_W1] = KN_F32;
    expect_parts(&p, "gather da dw dw dx");
}
END_TEST

START_TEST(no_tokens) {
    kn_problem p = problem(300, 0, 64, 128);
    kn_program *out = plan(&p);
    for (uint32_t i = 0; i < out->n_launches; i++) ck_assert_str_ne(part(out, i), "da");
    kn_free(out);
    p.accumulate = 31; /* nothing to add */
    out = plan(&p);
    for (uint32_t i = 0; i < out->n_launches; i++) ck_assert_uint_eq(out->launch[i].grid[0], 0);
    kn_free(out);
}
END_TEST

START_TEST(limits_and_kinds_change_no_kernel) {
    kn_problem p = problem(4096, 256, 4096, 14336), q = p;
    q.sm_limit = 10;
    kn_program *a = plan(&p), *b = plan(&q);
    ck_assert_uint_eq(a->n_kernels, b->n_kernels);
    for (uint32_t i = 0; i < a->n_kernels; i++) ck_assert_mem_eq(&a->kernel[i], &b->kernel[i], sizeof a->kernel[i]);
    ck_assert_uint_eq(b->launch[2].grid[0], 10);
    kn_free(a);
    kn_free(b);
    /* Generic kernels serve all token counts of a tile. */
    p.generic = q.generic = 1;
    q.sm_limit = 0;
    q.axis[KN_EXPERT_MLP_B] = 5000;
    q.axis[KN_EXPERT_MLP_T] = 255;
    a = plan(&p);
    b = plan(&q);
    for (uint32_t i = 0; i < a->n_kernels; i++) ck_assert_mem_eq(&a->kernel[i], &b->kernel[i], sizeof a->kernel[i]);
    kn_free(a);
    kn_free(b);
    p = problem(40, 20, 64, 72);
    a = plan_on(&p, "sm_80");
    for (uint32_t i = 0; i < a->n_launches; i++) ck_assert(!a->launch[i].dependent);
    kn_free(a);
}
END_TEST

/* ---- checks ---------------------------------------------------------------------------------------------------------
 */

static kn_status describe(kn_gen_config *c, kn_problem *p) {
    kn_gen *g = make(c);
    memset(p, 0, sizeof *p);
    kn_status st = kn_expert_mlp_describe(&g->call, p);
    kn_gen_free(g);
    return st;
}

START_TEST(options_are_read) {
    kn_gen_config c = config_of(10, 5, 16, 24);
    kn_problem p;
    ck_assert_ok(describe(&c, &p));
    ck_assert_int_eq(p.axis[KN_EXPERT_MLP_T], 5);
    ck_assert_int_eq(p.axis[KN_EXPERT_MLP_F], 24);
    ck_assert_int_eq(p.option[0], 0x3f800000);
    ck_assert(p.option[1] == 0 && p.option[2] == 0 && p.option[3] == 0 && p.source[0] == 0);
    c.options.expert_mlp.activation = (kiln_activation){.alpha = 1.702, .limit = 7, .offset = 1};
    c.options.expert_mlp.unique_indices = KILN_FALSE;
    ck_assert_ok(describe(&c, &p));
    ck_assert_int_eq(p.option[0], 0x3fd9db23);
    ck_assert_int_eq(p.option[1], 0x40e00000);
    ck_assert_int_eq(p.option[2], 0x3f800000);
    ck_assert_int_eq(p.option[3], 1);
    c.options.expert_mlp.activation.limit = (double)INFINITY; /* no limit */
    ck_assert_ok(describe(&c, &p));
    ck_assert_int_eq(p.option[1], 0);
}
END_TEST

START_TEST(wrong_values_are_refused) {
    kn_gen_config c = config_of(10, 5, 16, 24);
    kn_gen *g = make(&c);
    kn_problem p;
    kiln_activation *a = &g->config.options.expert_mlp.activation;
    memset(&p, 0, sizeof p);
    a->limit = -1;
    ck_assert_fails(kn_expert_mlp_describe(&g->call, &p), KN_E_ARG, "activation.limit is -1; wanted a positive number");
    a->limit = (double)NAN;
    ck_assert_fails(kn_expert_mlp_describe(&g->call, &p), KN_E_ARG, "activation.limit is");
    *a = (kiln_activation){.alpha = (double)INFINITY};
    ck_assert_fails(kn_expert_mlp_describe(&g->call, &p), KN_E_ARG, "activation.alpha is inf; wanted a finite number");
    *a = (kiln_activation){.alpha = 1e300}; /* no float */
    ck_assert_fails(kn_expert_mlp_describe(&g->call, &p), KN_E_ARG, "activation.alpha is 1e+300; wanted a finite");
    *a = (kiln_activation){.offset = (double)NAN};
    ck_assert_fails(kn_expert_mlp_describe(&g->call, &p), KN_E_ARG, "activation.offset is");
    *a = (kiln_activation){0};
    g->call.letter['H' - 'A'] = 0;
    ck_assert_fails(kn_expert_mlp_describe(&g->call, &p), KN_E_SHAPE, "grad_output has 0 columns; wanted at least 1");
    g->call.letter['H' - 'A'] = 16;
    g->call.letter['T' - 'A'] = (int64_t)1 << 31;
    ck_assert_fails(kn_expert_mlp_describe(&g->call, &p), KN_E_SHAPE, "token_indices has 2147483648 elements");
    kn_gen_free(g);
}
END_TEST

/* ---- kernels --------------------------------------------------------------------------------------------------------
 */

static void check_kernels(const kn_program *out, const char *target, bool assemble) {
    for (uint32_t i = 0; i < out->n_launches; i++) {
        const kn_kernel_spec *k = &out->kernel[out->launch[i].kernel];
        kn_expansion x;
        ck_assert_ok(kn_expand(k->template_name, &k->params, target, KN_EXPAND_LINT, &x));
        ck_assert_uint_eq(x.meta.n_args, out->launch[i].n_bind);
        ck_assert(!out->launch[i].dependent || x.meta.grid_dependency);
        ck_assert_msg(strncmp(x.meta.entry, "kiln_expert_mlp_", 16) == 0, "%s", x.meta.entry);
        void *cubin = NULL;
        size_t len;
        kn_asm_report report = {0};
        if (assemble) ck_assert_ok(kn_nvjitlink_assemble(&x, &cubin, &len, &report));
        ck_assert_msg(report.spill_stores + report.spill_loads + report.stack == 0, "%s spills %u bytes", x.meta.entry,
                      report.spill_stores);
        kn_free(cubin);
        kn_expansion_free(&x);
    }
}

START_TEST(every_kernel_assembles) {
    const kn_assembler_id *assembler;
    bool assemble = kn_nvjitlink_id(&assembler) == KN_OK;
    ck_assert_msg(assemble || !getenv("CI"), "%s", kn_error_message());
    static const int64_t tokens[] = {64, 215, 256, 2048};
    for (int i = 0; i < 8; i++) {
        kn_problem p = problem(4096, tokens[i % 4], i < 6 ? 4096 : 130, i < 6 ? 14336 : 75);
        if (i & 1) leave_out(&p, SAVED);
        if (i >= 4) p.option[3] = 1;
        if (i % 3 == 0) p.accumulate = 31;
        p.generic = i & 1;
        const char *target = i == 7 ? "sm_80" : "sm_90a";
        kn_program *out = plan_on(&p, target);
        check_kernels(out, target, assemble);
        kn_free(out);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("ops/expert_mlp");
    TCase *t = tcase_create("plan");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, the_benchmark_takes_four_launches);
    tcase_add_test(t, parts_without_outputs_are_left_out);
    tcase_add_test(t, weight_gradients_are_grouped);
    tcase_add_test(t, no_tokens);
    tcase_add_test(t, limits_and_kinds_change_no_kernel);
    tcase_add_test(t, options_are_read);
    tcase_add_test(t, wrong_values_are_refused);
    tcase_add_test(t, every_kernel_assembles);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
