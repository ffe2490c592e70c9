/* router_backward: what the checks refuse, what the planner chooses, and every kernel that it can ask for. Results are
 * tested in test_router_run.c. */
#include "test_router_support.h"

#include "base/alloc.h"
#include "jit/assemble.h"
#include "ops/router.h"

#include <stdlib.h>

/* ---- checks --------------------------------------------------------------------------------------------------------
 */

static kn_status describe(const kn_gen_config *c, kn_problem *p) {
    kn_gen *g = make(c);
    memset(p, 0, sizeof *p);
    kn_status st = kn_router_describe(&g->call, p);
    kn_gen_free(g);
    return st;
}

START_TEST(sizes_are_checked) {
    kn_problem p;
    kn_gen_config c = config_of(20, 48, 24, 5);
    ck_assert_ok(describe(&c, &p));
    ck_assert_int_eq(p.axis[KN_ROUTER_T], 20);
    ck_assert_int_eq(p.axis[KN_ROUTER_H], 48);
    ck_assert_int_eq(p.axis[KN_ROUTER_E], 24);
    ck_assert_int_eq(p.axis[KN_ROUTER_K], 5);
    ck_assert_int_eq(p.axis[KN_ROUTER_S], 0);
    c.hidden = 0;
    ck_assert_fails(describe(&c, &p), KN_E_SHAPE, "hidden_states has 0 columns; wanted 1 to");
    c = config_of(2, 4, 8193, 1);
    ck_assert_fails(describe(&c, &p), KN_E_SHAPE, "gate_weight has 8193 rows (experts); wanted 1 to 8192");
    c = config_of(0, 4, 8, 9);
    ck_assert_fails(describe(&c, &p), KN_E_SHAPE, "selected_experts has 9 columns; wanted 1 to 8");
    c = config_of(0, 4, 300, 257);
    ck_assert_fails(describe(&c, &p), KN_E_SHAPE, "selected_experts has 257 columns; wanted 1 to 256");
    c = config_of(0, 4, 8, 0);
    ck_assert_fails(describe(&c, &p), KN_E_SHAPE, "selected_experts has 0 columns");
}
END_TEST

START_TEST(losses_need_their_inputs) {
    kn_problem p;
    kn_gen_config c = config_of(6, 8, 4, 2);
    c.absent = bit(AUX_ROW) | bit(TOKEN_MASK);
    ck_assert_ok(describe(&c, &p));
    ck_assert_int_eq(p.axis[KN_ROUTER_S], 1);
    c.aux_rows = 3;
    ck_assert_fails(describe(&c, &p), KN_E_SHAPE, "aux_expert_coefficients has 3 rows and aux_row is NULL");
    c.absent &= ~bit(AUX_ROW);
    ck_assert_ok(describe(&c, &p));
    ck_assert_int_eq(p.axis[KN_ROUTER_S], 3);
    c.options.router.score = KILN_SCORE_SOFTMAX_SELECTED;
    ck_assert_fails(describe(&c, &p), KN_E_ARG, "score softmax_selected, which has no scores of all experts");
    c.absent |= bit(AUX);
    ck_assert_fails(describe(&c, &p), KN_E_ARG, "aux_row is given, but aux_expert_coefficients is NULL");
    c.absent |= bit(AUX_ROW);
    ck_assert_ok(describe(&c, &p));
    c.absent |= bit(ROUTER_LOGITS);
    ck_assert_fails(describe(&c, &p), KN_E_ARG, "z_loss_coefficient is given, but router_logits is NULL");
}
END_TEST

START_TEST(numbers_must_be_floats) {
    kn_problem p, q;
    kn_gen_config c = config_of(6, 8, 4, 2);
    ck_assert_ok(describe(&c, &p));
    c.options.router.eps = 1e-20;
    c.options.router.scaling = 1;
    ck_assert_ok(describe(&c, &q)); /* the defaults, spelled out */
    ck_assert_mem_eq(&p, &q, sizeof p);
    c.options.router.eps = 1e-40;
    ck_assert_fails(describe(&c, &p), KN_E_ARG, "eps is 1e-40");
    c.options.router.eps = -1;
    ck_assert_fails(describe(&c, &p), KN_E_ARG, "eps is -1");
    c.options.router.eps = 0;
    c.options.router.scaling = 1e39;
    ck_assert_fails(describe(&c, &p), KN_E_ARG, "scaling is 1e+39");
}
END_TEST

/* ---- plans ---------------------------------------------------------------------------------------------------------
 */

static const kn_device_facts h200 = {
    .name = "H200", .cc_major = 9, .multiprocessors = 132, .smem_per_block = 232448, .smem_per_sm = 233472};

static kn_problem problem(int64_t t, int64_t h, int64_t e, int64_t k, uint64_t absent, kn_dtype dtype) {
    kn_problem p;
    memset(&p, 0, sizeof p);
    p.axis[KN_ROUTER_T] = t;
    p.axis[KN_ROUTER_H] = h;
    p.axis[KN_ROUTER_E] = e;
    p.axis[KN_ROUTER_K] = k;
    p.axis[KN_ROUTER_S] = absent & bit(AUX) ? 0 : 3;
    p.option[4] = 0x1e3ce508; /* eps and scaling, as floats */
    p.option[5] = 0x3f800000;
    for (int i = 0; i < N_ARGS; i++) {
        bool fine = i == PROBS || i == WEIGHTS_SUM || i == AUX || i == Z_LOSS || i == OUT_BIAS;
        kn_dtype type = i == SELECTED     ? KN_I64
                        : i == AUX_ROW    ? KN_I32
                        : i == TOKEN_MASK ? KN_BOOL
                        : fine            ? KN_F32
                                          : dtype;
        p.dtype[i] = (uint8_t)(absent & bit(i) ? KN_DTYPE_NONE : type);
        p.align_log2[i] = 7;
    }
    return p;
}

static kn_program *plan(const kn_problem *p, const char *target_name) {
    const kn_target *target;
    kn_program *out = NULL;
    ck_assert_ok(KN_NEW(&out, 1, "program"));
    ck_assert_ok(kn_target_by_name(target_name, &target));
    ck_assert_ok(kn_router_plan(p, &h200, target, out));
    ck_assert(out->note[0] != '\0');
    return out;
}

#define BENCHMARK (bit(AUX) | bit(AUX_ROW) | bit(Z_LOSS) | bit(TOKEN_MASK) | bit(OUT_BIAS) | bit(OUT_LOGITS))

static int64_t param(const kn_program *program, int kernel, const char *name) {
    const kn_param *p = kn_params_find(&program->kernel[kernel].params, name);
    ck_assert_msg(p != NULL, "no parameter %s", name);
    return p->value;
}

/* The templates of a program's kernels, in order. */
static void uses(const kn_program *program, const char *const *names) {
    uint32_t n = 0;
    while (names[n]) n++;
    ck_assert_uint_eq(program->n_launches, n);
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_str_eq(program->kernel[program->launch[i].kernel].template_name, names[i]);
    }
}

START_TEST(two_launches_whatever_the_tokens) {
    static const char *const two[] = {"router_dlogits.ptxt", "router_fused.ptxt", NULL};
    for (int64_t t = 1; t <= 65536; t *= 2) {
        kn_problem p = problem(t, 2048, 128, 8, BENCHMARK, KN_BF16);
        kn_program *program = plan(&p, "sm_90a");
        uses(program, two);
        for (uint32_t i = 0; i < program->n_launches; i++) ck_assert(program->launch[i].dependent);
        kn_free(program);
    }
}
END_TEST

/* W is held in registers where they suffice and rows leave through boxes. */
START_TEST(few_experts_hold_the_weights) {
    static const int64_t experts[] = {8, 128, 136, 256};
    for (int i = 0; i < 4; i++) {
        for (int plain = 0; plain < 2; plain++) {
            kn_problem p = problem(1000, 2048, experts[i], 4, BENCHMARK, KN_BF16);
            if (!plain) p.dtype[OUT_HIDDEN] = KN_F32;
            kn_program *program = plan(&p, "sm_90a");
            ck_assert_int_eq(param(program, 1, "W_HELD"), plain && experts[i] <= 128);
            kn_free(program);
        }
    }
}
END_TEST

START_TEST(what_does_not_fit_takes_products_of_its_own) {
    static const char *const portable[] = {"router_dlogits.ptxt", "gemm_sm80.ptxt", "gemm_sm80.ptxt", NULL};
    static const char *const fp32[] = {"router_dlogits.ptxt", "gemm_f32.ptxt", "gemm_f32.ptxt", NULL};
    static const char *const masked[] = {"router_dlogits.ptxt", "mask_rows.ptxt", "gemm_sm80.ptxt", "gemm_sm90.ptxt",
                                         NULL};
    kn_problem p = problem(1000, 2048, 128, 8, BENCHMARK, KN_BF16);
    kn_program *program = plan(&p, "sm_80");
    uses(program, portable);
    kn_free(program);
    p.portable = 1;
    program = plan(&p, "sm_90a");
    uses(program, portable);
    kn_free(program);
    p = problem(1000, 2048, 128, 8, BENCHMARK, KN_F32);
    program = plan(&p, "sm_90a");
    uses(program, fp32);
    kn_free(program);
    p = problem(1000, 2048, 128, 8, BENCHMARK & ~bit(TOKEN_MASK), KN_BF16);
    program = plan(&p, "sm_90a");
    uses(program, masked);
    kn_free(program);
}
END_TEST

/* Neither grad_gate_bias nor grad_logits adds a launch, and the models' numbers of experts and slots fit. */
START_TEST(other_outputs_add_no_launch) {
    static const int64_t sizes[][3] = {{2048, 128, 8}, {4096, 8, 2},   {7168, 256, 8},
                                       {2048, 64, 6},  {5120, 160, 6}, {2048, 128, 16}};
    for (int64_t t = 50; t < 3000; t += 1000) {
        for (int i = 0; i < 6; i++) {
            kn_problem p = problem(t, sizes[i][0], sizes[i][1], sizes[i][2], bit(TOKEN_MASK), KN_BF16);
            kn_program *program = plan(&p, "sm_90a");
            ck_assert_uint_eq(program->n_launches, 2);
            kn_free(program);
        }
    }
}
END_TEST

/* The split of the tokens is part of the sums' order: no fact of the device may change it. */
START_TEST(no_device_changes_the_split) {
    const kn_target *target;
    ck_assert_ok(kn_target_by_name("sm_90a", &target));
    for (int64_t t = 1000; t < 10000; t += 8000) {
        kn_problem p = problem(t, 2048, 128, 8, BENCHMARK, KN_BF16);
        kn_program *a = plan(&p, "sm_90a"), *b = NULL;
        kn_device_facts small = h200;
        small.multiprocessors = 78;
        p.sm_limit = 40;
        ck_assert_ok(KN_NEW(&b, 1, "program"));
        ck_assert_ok(kn_router_plan(&p, &small, target, b));
        ck_assert_mem_eq(&a->kernel[0], &b->kernel[0], sizeof a->kernel[0]);
        int last = (int)a->n_kernels - 1;
        ck_assert_mem_eq(&a->kernel[last], &b->kernel[last], sizeof a->kernel[0]);
        ck_assert_uint_eq(a->launch[a->n_launches - 1].grid[0], b->launch[b->n_launches - 1].grid[0]);
        kn_free(a);
        kn_free(b);
    }
}
END_TEST

START_TEST(generic_kernels_do_not_know_the_tokens) {
    static const int64_t pairs[][2] = {{100, 1400}, {1500, 4000}, {5000, 60000}};
    for (int i = 0; i < 3; i++) {
        for (int portable = 0; portable < 2; portable++) {
            kn_problem p = problem(pairs[i][0], 256, 64, 4, LOSSES, KN_BF16), q = p;
            q.axis[KN_ROUTER_T] = pairs[i][1];
            p.portable = q.portable = (uint8_t)portable;
            p.generic = q.generic = 1;
            kn_program *a = plan(&p, "sm_90a"), *b = plan(&q, "sm_90a");
            ck_assert_mem_eq(&a->kernel[0], &b->kernel[0], sizeof a->kernel[0]);
            ck_assert_mem_eq(&a->kernel[1], &b->kernel[1], sizeof a->kernel[1]);
            ck_assert_int_eq(param(a, 0, "TOKENS"), -1);
            kn_free(a);
            kn_free(b);
        }
    }
}
END_TEST

START_TEST(nothing_wanted_is_no_launch) {
    kn_problem p = problem(100, 64, 16, 2, BENCHMARK | OUTPUTS, KN_BF16);
    kn_program *program = plan(&p, "sm_90a");
    ck_assert_uint_eq(program->n_launches, 0);
    kn_free(program);
    p = problem(0, 64, 16, 2, BENCHMARK, KN_BF16);
    p.accumulate = 15;
    program = plan(&p, "sm_90a");
    ck_assert_uint_eq(program->n_launches, 0);
    kn_free(program);
}
END_TEST

/* ---- kernels -------------------------------------------------------------------------------------------------------
 */

static void assemble_all(const kn_program *program, const char *target, bool assemble) {
    for (uint32_t i = 0; i < program->n_launches; i++) {
        const kn_launch_spec *l = &program->launch[i];
        const kn_kernel_spec *k = &program->kernel[l->kernel];
        if (strncmp(k->template_name, "gemm_sm", 7) == 0) continue; /* the engine's */
        kn_expansion x;
        ck_assert_ok(kn_expand(k->template_name, &k->params, target, KN_EXPAND_LINT, &x));
        ck_assert_msg(x.meta.n_args == l->n_bind, "%s has %u arguments, %u bound", x.meta.entry, x.meta.n_args,
                      l->n_bind);
        ck_assert_int_eq(x.meta.grid_dependency, l->dependent);
        ck_assert_uint_le(x.meta.smem_dynamic, h200.smem_per_block);
        ck_assert_uint_eq(l->grid[0] % (x.meta.cluster[0] ? x.meta.cluster[0] : 1), 0);
        void *cubin = NULL;
        size_t len;
        kn_asm_report report = {0};
        if (assemble) ck_assert_ok(kn_nvjitlink_assemble(&x, &cubin, &len, &report));
        bool good = report.spill_stores + report.spill_loads + report.stack + report.remarks == 0;
        if (!good && getenv("KN_SHOW")) {
            printf("%s: %u registers, %u bytes spilled;", x.meta.entry, report.registers, report.spill_stores);
            for (int n = 0; n < k->params.count; n++) {
                const kn_param *q = &k->params.item[n];
                if (q->is_name)
                    printf(" %s=%s", q->name, q->text);
                else
                    printf(" %s=%lld", q->name, (long long)q->value);
            }
            printf("\n");
        }
        ck_assert_msg(good || getenv("KN_SHOW"), "%s: %s spills, or %s", target, x.meta.entry,
                      "the assembler remarks on it");
        kn_free(cubin);
        kn_expansion_free(&x);
    }
}

/* Kernels of every kind expand without a lint finding, and assemble without spills where an nvJitLink is at hand. */
START_TEST(every_kind_of_kernel_assembles) {
    static const struct {
        int64_t t, h, e, k;
    } sizes[] = {{1024, 2048, 128, 8}, {9000, 7168, 256, 8}, {100, 72, 24, 3},  {100, 4096, 64, 6},
                 {3000, 65, 61, 4},    {50, 8, 8192, 256},   {50, 8, 1000, 64}, {50, 640, 120, 120}};
    const kn_assembler_id *assembler;
    bool assemble = kn_nvjitlink_id(&assembler) == KN_OK;
    ck_assert_msg(assemble || !getenv("CI"), "%s", kn_error_message());
    for (int i = 0; i < 8 * 4; i++) {
        int score = i / 8, s = i % 8;
        uint64_t absent = i % 3 == 0 ? BENCHMARK : i % 3 == 1 ? bit(OUT_BIAS) | bit(TOKEN_MASK) : 0;
        if (score == KILN_SCORE_SOFTMAX_SELECTED) absent |= bit(AUX) | bit(AUX_ROW);
        static const kn_dtype types[] = {KN_BF16, KN_BF16, KN_F16, KN_F32};
        kn_problem p = problem(sizes[s].t, sizes[s].h, sizes[s].e, sizes[s].k, absent, types[(i + score) % 4]);
        p.option[0] = score;
        p.option[1] = i / 2 % 4;
        p.option[2] = i % 2;
        p.option[3] = i % 5 == 0;
        p.generic = (uint8_t)(i / 4 % 2);
        p.accumulate = i % 7 == 0 ? 15 : 0;
        const char *target = i % 4 == 3 ? "sm_80" : "sm_90a";
        kn_program *program = plan(&p, target);
        assemble_all(program, target, assemble);
        kn_free(program);
    }
}
END_TEST

/* Two warpgroups of each product and one more share the registers: whatever must be stored and added to, no kernel
 * spills. */
START_TEST(fused_kernels_do_not_spill) {
    static const int64_t experts[] = {8, 24, 64, 72, 128, 136, 192, 256}, hidden[] = {64, 72, 640, 2048, 4096, 7168};
    static const kn_dtype types[] = {KN_BF16, KN_F16};
    const kn_assembler_id *assembler;
    if (kn_nvjitlink_id(&assembler) != KN_OK) return;
    uint64_t random = 1;
    for (int i = 0; i < (getenv("KN_LONG") ? 400 : 8); i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint32_t r = (uint32_t)(random >> 32);
        int64_t e = experts[r % 8], k = (r >> 3) % 3 == 0 ? 4 * (e <= 128 ? 8 : 16) : (r >> 3) % 3 == 1 ? 8 : 1;
        int score = (int)(r >> 6 & 3);
        uint64_t absent = (uint64_t)(r >> 8) & (OPTIONAL | OUTPUTS) & ~bit(OUT_WEIGHT);
        absent |= bit(TOKEN_MASK) | (r >> 28 & 1 ? bit(AUX_ROW) : 0);
        if (score == KILN_SCORE_SOFTMAX_SELECTED) absent |= bit(AUX) | bit(AUX_ROW);
        kn_problem p = problem(50, hidden[r % 6], e, k < e ? k : e, absent, types[r >> 29 & 1]);
        p.option[0] = score;
        p.option[1] = r >> 12 & 3;
        p.option[2] = r >> 30 & 1;
        p.generic = (uint8_t)(r >> 31);
        p.accumulate = r >> 5 & 15;
        for (int a = 0; a < N_ARGS; a++)
            p.align_log2[a] = (uint8_t)(a != HIDDEN && a != GATE_WEIGHT && r >> 27 & 1 ? 1 : 7);
        kn_program *program = plan(&p, "sm_90a");
        ck_assert_uint_eq(program->n_launches, 2);
        assemble_all(program, "sm_90a", true);
        kn_free(program);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("ops/router");
    TCase *t = tcase_create("plan");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, sizes_are_checked);
    tcase_add_test(t, losses_need_their_inputs);
    tcase_add_test(t, numbers_must_be_floats);
    tcase_add_test(t, two_launches_whatever_the_tokens);
    tcase_add_test(t, few_experts_hold_the_weights);
    tcase_add_test(t, what_does_not_fit_takes_products_of_its_own);
    tcase_add_test(t, other_outputs_add_no_launch);
    tcase_add_test(t, no_device_changes_the_split);
    tcase_add_test(t, generic_kernels_do_not_know_the_tokens);
    tcase_add_test(t, nothing_wanted_is_no_launch);
    tcase_add_test(t, every_kind_of_kernel_assembles);
    tcase_add_test(t, fused_kernels_do_not_spill);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
