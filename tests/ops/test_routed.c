/* routed_experts_backward: what the checks refuse, what the planner chooses, and every kernel that it asks for:
 * expanded with lint, its arguments counted, and those of the benchmark assembled. Results: test_routed_run.c. */
#include "routed_support.h"

#include "base/alloc.h"
#include "jit/assemble.h"
#include "ops/routed.h"
#include "ops/routed_internal.h"

#include <stdlib.h>

static const kn_device_facts h200 = {
    .name = "H200", .cc_major = 9, .multiprocessors = 132, .smem_per_block = 232448, .smem_per_sm = 233472};
static const kn_device_facts a100 = {
    .name = "A100", .cc_major = 8, .multiprocessors = 108, .smem_per_block = 166912, .smem_per_sm = 167936};

/* ---- checks --------------------------------------------------------------------------------------------------------
 */

static kn_status describe(const kn_gen_config *c, void (*change)(kn_gen *g), kn_problem *p) {
    kn_gen *g;
    ck_assert_ok(kn_gen_make(c, &g));
    if (change) change(g);
    memset(p, 0, sizeof *p);
    kn_status st = kn_routed_experts_describe(&g->call, p);
    kn_gen_free(g);
    return st;
}

static void give_offsets(kn_gen *g) {
    g->call.tensor[OFFSETS].dtype = KN_I64;
}
static void take_ids(kn_gen *g) {
    g->call.tensor[IDS].dtype = KN_DTYPE_NONE;
}
static void two_columns(kn_gen *g) {
    g->call.letter['K' - 'A'] = 2;
}
static void no_columns(kn_gen *g) {
    g->call.letter['K' - 'A'] = 0;
}
static void no_experts(kn_gen *g) {
    g->call.letter['L' - 'A'] = 0;
}
static void no_hidden(kn_gen *g) {
    g->call.letter['H' - 'A'] = 0;
}
static void many_tokens(kn_gen *g) {
    g->call.letter['T' - 'A'] = (int64_t)1 << 30;
}

START_TEST(refusals_name_what_is_wrong) {
    kn_gen_config c = routed_config(5, 16, 8, 4, 3), sorted = c;
    sorted.sorted = 1;
    kn_problem p;
    ck_assert_ok(describe(&c, NULL, &p));
    ck_assert_fails(describe(&c, give_offsets, &p), KN_E_ARG, "topk_indices and expert_offsets are both given");
    ck_assert_fails(describe(&c, take_ids, &p), KN_E_ARG, "topk_indices and expert_offsets are both NULL");
    ck_assert_ok(describe(&sorted, NULL, &p));
    ck_assert_fails(describe(&sorted, two_columns, &p), KN_E_SHAPE, "topk_weights has 2 columns; wanted 1");
    ck_assert_fails(describe(&c, no_columns, &p), KN_E_SHAPE, "topk_weights has 0 columns; wanted 1 to 256");
    ck_assert_fails(describe(&c, no_experts, &p), KN_E_SHAPE, "gate_weights has 0 experts; wanted 1 to 8192");
    ck_assert_fails(describe(&c, no_hidden, &p), KN_E_SHAPE, "hidden_states has 0 columns");
    ck_assert_fails(describe(&c, many_tokens, &p), KN_E_SHAPE, "T = 1073741824 times K = 3 is too large");
    c.options.routed.expert_lo = -1;
    ck_assert_fails(describe(&c, NULL, &p), KN_E_ARG, "expert_lo is -1");
    c.options.routed.expert_lo = 2;
    c.options.routed.num_experts = 5;
    ck_assert_fails(describe(&c, NULL, &p), KN_E_ARG, "num_experts is 5; wanted at least 6");
    c.options.routed.num_experts = 6;
    ck_assert_ok(describe(&c, NULL, &p));
    c.options.routed.activation.limit = -1;
    ck_assert_fails(describe(&c, NULL, &p), KN_E_ARG, "activation.limit is -1");
}
END_TEST

START_TEST(options_become_bits) {
    kn_gen_config c = routed_config(5, 16, 8, 4, 3);
    c.options.routed.num_experts = 9;
    c.options.routed.math = KILN_MATH_ACCURATE;
    kn_problem p;
    ck_assert_ok(describe(&c, NULL, &p));
    ck_assert_int_eq(p.option[KN_ROUTED_ALPHA], 0x3f800000); /* 0 stands for 1 */
    ck_assert_int_eq(p.option[KN_ROUTED_LIMIT], 0);
    ck_assert_int_eq(p.option[KN_ROUTED_EXPERTS], 9);
    ck_assert_int_eq(p.option[KN_ROUTED_MATH], KILN_MATH_ACCURATE);
    c.dtype = KN_BF16; /* where `math` means nothing, plans do not differ by it */
    c.options.routed.activation = (kiln_activation){.alpha = 1.702, .limit = 7, .offset = 1};
    ck_assert_ok(describe(&c, NULL, &p));
    ck_assert_int_eq(p.option[KN_ROUTED_MATH], KILN_MATH_BALANCED);
    ck_assert_int_eq(p.option[KN_ROUTED_ALPHA], 0x3fd9db23);
    ck_assert_int_eq(p.option[KN_ROUTED_LIMIT], 0x40e00000);
    ck_assert_int_eq(p.option[KN_ROUTED_ACT_OFFSET], 0x3f800000);
}
END_TEST

/* ---- plans ---------------------------------------------------------------------------------------------------------
 */

static kn_problem problem(int64_t t, int64_t h, int64_t i, int64_t local, int64_t k, kn_dtype dtype) {
    kn_problem p;
    memset(&p, 0, sizeof p);
    p.axis[KN_ROUTED_T] = t;
    p.axis[KN_ROUTED_H] = h;
    p.axis[KN_ROUTED_I] = i;
    p.axis[KN_ROUTED_L] = local;
    p.axis[KN_ROUTED_K] = k;
    p.option[KN_ROUTED_EXPERTS] = local;
    p.option[KN_ROUTED_ALPHA] = 0x3f800000;
    for (int a = 0; a < N_ARGS; a++) {
        bool present = a != OFFSETS && a != SAVED_GATE && a != SAVED_UP;
        p.dtype[a] = (uint8_t)(present ? dtype : KN_DTYPE_NONE);
        p.align_log2[a] = 7;
    }
    p.dtype[IDS] = KN_I64;
    p.dtype[WEIGHTS] = p.dtype[OUT_WEIGHTS] = KN_F32;
    return p;
}

static kn_problem benchmark(int64_t t) {
    return problem(t, 4096, 2048, 256, 8, KN_F32);
}

static kn_program *plan(const kn_problem *p, const char *target_name) {
    const kn_target *target;
    kn_program *out = NULL;
    ck_assert_ok(KN_NEW(&out, 1, "program"));
    ck_assert_ok(kn_target_by_name(target_name, &target));
    ck_assert_ok(kn_routed_experts_plan(p, target->cc >= 90 ? &h200 : &a100, target, out));
    return out;
}

/* The first kernel whose template's name begins so; NULL if there is none. */
static const kn_kernel_spec *find(const kn_program *program, const char *template_name) {
    for (uint32_t i = 0; i < program->n_kernels; i++) {
        if (strncmp(program->kernel[i].template_name, template_name, strlen(template_name)) == 0)
            return &program->kernel[i];
    }
    return NULL;
}

static int64_t param(const kn_kernel_spec *kernel, const char *name) {
    const kn_param *q = kn_params_find(&kernel->params, name);
    ck_assert_msg(q != NULL, "no parameter %s", name);
    return q->value;
}

START_TEST(plan_of_the_benchmark) {
    static const char *const launches[] = {"routed_sort.ptxt",   "routed_sort.ptxt",  "routed_sort.ptxt",
                                           "routed_gather.ptxt", "gemm_rs_sm90.ptxt", "gemm_rs_sm90.ptxt",
                                           "gemm_dw_sm90.ptxt",  "gemm_rs_sm90.ptxt", "routed_combine.ptxt"};
    kn_problem p = benchmark(2048);
    kn_program *program = plan(&p, "sm_90a");
    ck_assert_uint_eq(program->n_launches, 9);
    for (int i = 0; i < 9; i++) {
        const kn_launch_spec *l = &program->launch[i];
        ck_assert_str_eq(program->kernel[l->kernel].template_name, launches[i]);
        ck_assert(l->dependent);
    }
    /* Weights are read once: nearly no expert has more rows than a tile. */
    const kn_kernel_spec *gate = find(program, "gemm_rs_sm90.ptxt");
    ck_assert_int_eq(param(gate, "PRODUCTS"), 1);
    ck_assert_int_eq(param(gate, "SCALED"), 1);
    ck_assert_int_ge(param(gate, "BN"), 64 + 16);
    ck_assert_int_le(param(gate, "BN"), 128);
    ck_assert_int_eq(param(gate, "PROBLEMS"), 2);
    ck_assert_int_eq(param(find(program, "gemm_dw_sm90.ptxt"), "PROBLEMS"), 3);
    ck_assert(program->floor_bytes == 24.0 * 256 * 2048 * 4096);
    ck_assert(program->floor_flops == 16.0 * 2048 * 8 * 2048 * 4096);
    kn_free(program);
}
END_TEST

/* Precision by options: products of P1, of P2 and P3. */
START_TEST(math_chooses_the_products) {
    kn_problem p = benchmark(4096);
    p.option[KN_ROUTED_MATH] = KILN_MATH_FAST;
    kn_program *program = plan(&p, "sm_90a");
    ck_assert_int_eq(param(find(program, "gemm_rs_sm90.ptxt"), "SCALED"), 0);
    ck_assert_int_eq(param(find(program, "routed_gather.ptxt"), "PARTS"), 1);
    kn_free(program);
    p.option[KN_ROUTED_MATH] = KILN_MATH_ACCURATE;
    program = plan(&p, "sm_90a");
    ck_assert_int_eq(param(find(program, "gemm_rs_sm90.ptxt"), "PRODUCTS"), 3);
    ck_assert_int_eq(param(find(program, "gemm_rs_sm90.ptxt"), "SCALED"), 1);
    ck_assert_int_eq(param(find(program, "gemm_rs_sm90.ptxt"), "PROMOTE"), 1);
    ck_assert_int_eq(param(find(program, "gemm_sm80.ptxt"), "A_SPLIT"), 3); /* the gradients */
    ck_assert_ptr_null(find(program, "gemm_dw_sm90.ptxt"));
    kn_free(program);
    p = problem(100, 64, 32, 4, 2, KN_F32); /* sums too short for roundings to average out */
    p.option[KN_ROUTED_MATH] = KILN_MATH_FAST;
    program = plan(&p, "sm_90a");
    ck_assert_int_eq(param(find(program, "gemm_rs_sm90.ptxt"), "SCALED"), 1);
    kn_free(program);
}
END_TEST

START_TEST(what_tma_cannot_read_takes_the_portable_path) {
    static const struct {
        int64_t h, i;
        int arg, align;
        bool fast;
    } rows[] = {{64, 40, 0, 7, true},     {60, 40, 0, 7, false},    {64, 36, 0, 7, false},
                {64, 40, DOWN, 3, false}, {64, 40, GATE, 3, false}, {64, 40, OUT_GATE, 2, true},
                {64, 40, HIDDEN, 2, true}};
    for (size_t n = 0; n < sizeof rows / sizeof rows[0]; n++) {
        kn_problem p = problem(30, rows[n].h, rows[n].i, 4, 2, KN_BF16);
        p.align_log2[rows[n].arg] = (uint8_t)rows[n].align;
        kn_program *program = plan(&p, "sm_90a");
        ck_assert_msg((find(program, "gemm_rs_sm90.ptxt") != NULL) == rows[n].fast, "row %d", (int)n);
        /* an output that bulk copies cannot store is made by the portable kernel, alone */
        if (rows[n].arg == OUT_GATE) ck_assert_int_eq(param(find(program, "gemm_dw_sm90.ptxt"), "PROBLEMS"), 2);
        kn_free(program);
        p.portable = 1;
        program = plan(&p, "sm_90a");
        ck_assert_ptr_null(find(program, "gemm_rs_sm90.ptxt"));
        ck_assert_ptr_null(find(program, "gemm_dw_sm90.ptxt"));
        kn_free(program);
    }
}
END_TEST

START_TEST(unwanted_outputs_skip_their_phases) {
    kn_problem p = benchmark(2048);
    p.dtype[OUT_HIDDEN] = p.dtype[OUT_WEIGHTS] = KN_DTYPE_NONE;
    kn_program *program = plan(&p, "sm_90a");
    ck_assert_ptr_null(find(program, "routed_combine.ptxt"));
    ck_assert_uint_eq(program->n_launches, 7);
    kn_free(program);
    p = benchmark(2048);
    p.dtype[OUT_GATE] = p.dtype[OUT_UP] = p.dtype[OUT_DOWN] = KN_DTYPE_NONE;
    program = plan(&p, "sm_90a");
    ck_assert_ptr_null(find(program, "gemm_dw_sm90.ptxt"));
    kn_free(program);
    p.dtype[OUT_HIDDEN] = p.dtype[OUT_WEIGHTS] = KN_DTYPE_NONE;
    program = plan(&p, "sm_90a");
    ck_assert_uint_eq(program->n_launches, 0);
    kn_free(program);
    p = benchmark(2048); /* saved g and u: one product fewer each, the two that are left share nothing */
    p.dtype[SAVED_GATE] = p.dtype[SAVED_UP] = KN_F32;
    program = plan(&p, "sm_90a");
    ck_assert_uint_eq(program->n_launches, 8);
    kn_free(program);
}
END_TEST

/* All numbers of tokens together have few generic kernels. */
START_TEST(generic_kernels_are_few) {
    static kn_kernel_spec seen[64];
    int n = 0;
    for (int64_t tokens = 1; tokens <= 1 << 17; tokens += tokens / 3 + 1) {
        kn_problem p = benchmark(tokens);
        p.generic = 1;
        kn_program *program = plan(&p, "sm_90a");
        for (uint32_t k = 0; k < program->n_kernels; k++) {
            int i = 0;
            while (i < n && memcmp(&seen[i], &program->kernel[k], sizeof seen[i]) != 0) i++;
            if (i == n) seen[n++] = program->kernel[k];
            ck_assert_int_le(n, 8);
        }
        kn_free(program);
    }
}
END_TEST

/* Grids follow the multiprocessors, kernels do not; generic kernels do not know the tokens. */
START_TEST(kernels_depend_on_shapes_alone) {
    kn_problem p = benchmark(2048), q = benchmark(2064);
    kn_program *all = plan(&p, "sm_90a");
    p.sm_limit = 7;
    kn_program *limited = plan(&p, "sm_90a");
    ck_assert_uint_eq(all->n_kernels, limited->n_kernels);
    ck_assert_mem_eq(all->kernel, limited->kernel, sizeof all->kernel);
    ck_assert_uint_eq(limited->launch[6].grid[0], 7);
    kn_free(limited);
    p.sm_limit = 0;
    p.generic = q.generic = 1;
    kn_program *generic = plan(&p, "sm_90a"), *other = plan(&q, "sm_90a");
    ck_assert_mem_eq(generic->kernel, other->kernel, sizeof generic->kernel);
    ck_assert_int_eq(param(find(generic, "gemm_rs_sm90.ptxt"), "ENTRIES"), -1);
    kn_free(all);
    kn_free(generic);
    kn_free(other);
}
END_TEST

/* T, K and E alone bound the workspace, whatever the ids say; sizes beyond 2^32 bytes are no matter. */
START_TEST(workspace_is_bounded_by_shapes) {
    kn_problem p = problem(1 << 20, 4096, 1024, 512, 8, KN_BF16);
    kn_program *program = plan(&p, "sm_90a");
    uint64_t rows = (1u << 23) + 15u * 512;
    ck_assert_uint_ge(program->workspace_bytes, rows * (2 * 4096 * 2 + 2 * 1024 * 4 + 3 * 1024 * 2 + 4096 * 2));
    ck_assert_uint_le(program->workspace_bytes, rows * (2 * 4096 * 2 + 2 * 1024 * 4 + 3 * 1024 * 2 + 4096 * 2 + 512));
    kn_free(program);
}
END_TEST

/* ---- kernels -------------------------------------------------------------------------------------------------------
 */

/* Every launch binds what its kernel takes. */
static void check_launches(const kn_program *program, const char *target, bool assemble) {
    for (uint32_t i = 0; i < program->n_launches; i++) {
        const kn_launch_spec *l = &program->launch[i];
        const kn_kernel_spec *kernel = &program->kernel[l->kernel];
        kn_expansion x;
        ck_assert_ok(kn_expand(kernel->template_name, &kernel->params, target, KN_EXPAND_LINT, &x));
        ck_assert_msg(x.meta.n_args == l->n_bind, "%s takes %u arguments, bound are %u", x.meta.entry, x.meta.n_args,
                      l->n_bind);
        ck_assert_msg(x.meta.grid_dependency == l->dependent, "%s", x.meta.entry);
        void *cubin = NULL;
        size_t len;
        kn_asm_report report = {0};
        if (assemble) ck_assert_ok(kn_nvjitlink_assemble(&x, &cubin, &len, &report));
        ck_assert_msg(report.spill_stores + report.spill_loads + report.stack == 0, "%s spills", x.meta.entry);
        /* C7504 alone: nvJitLink assembles relocatable code, in which setmaxnreg is ignored */
        ck_assert_msg(report.remarks <= (strstr(kernel->template_name, "sm90") != NULL), "%s: remarks", x.meta.entry);
        kn_free(cubin);
        kn_expansion_free(&x);
    }
}

START_TEST(every_plan_expands_and_binds) {
    static const kn_dtype types[] = {KN_F32, KN_BF16, KN_F16};
    for (int i = 0; i < 3 * 3 * 2 * 2 * 2; i++) {
        kn_problem p = problem(100, i % 2 ? 96 : 90, 40, 6, i / 2 % 2 ? 1 : 3, types[i / 4 % 3]);
        p.option[KN_ROUTED_MATH] = i / 12 % 3;
        p.option[KN_ROUTED_WEIGHT_ON] = i / 36 % 2;
        p.generic = (uint8_t)(i / 3 % 2);
        p.accumulate = i % 5 == 0 ? 31 : 0;
        if (i / 2 % 2) {
            p.dtype[OFFSETS] = KN_I32;
            p.dtype[IDS] = KN_DTYPE_NONE;
        }
        if (i % 7 == 3) p.dtype[SAVED_GATE] = p.dtype[GATE];
        if (i % 4 == 2) {
            p.option[KN_ROUTED_ALPHA] = 0x3fd9db23;
            p.option[KN_ROUTED_LIMIT] = 0x40e00000;
            p.option[KN_ROUTED_ACT_OFFSET] = 0x3f800000;
        }
        const char *target = i % 6 == 5 ? "sm_80" : "sm_90a";
        kn_program *program = plan(&p, target);
        check_launches(program, target, false);
        kn_free(program);
    }
}
END_TEST

START_TEST(the_benchmarks_kernels_do_not_spill) {
    const kn_assembler_id *assembler;
    if (kn_nvjitlink_id(&assembler) != KN_OK) {
        ck_assert_msg(!getenv("CI"), "%s", kn_error_message());
        return;
    }
    kn_problem p = benchmark(2048), q = benchmark(6144);
    q.option[KN_ROUTED_MATH] = KILN_MATH_FAST;
    kn_program *a = plan(&p, "sm_90a"), *b = plan(&q, "sm_90a");
    check_launches(a, "sm_90a", true);
    check_launches(b, "sm_90a", true);
    kn_free(a);
    kn_free(b);
}
END_TEST

int main(void) {
    Suite *s = suite_create("ops/routed");
    TCase *t = tcase_create("plans");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, refusals_name_what_is_wrong);
    tcase_add_test(t, options_become_bits);
    tcase_add_test(t, plan_of_the_benchmark);
    tcase_add_test(t, math_chooses_the_products);
    tcase_add_test(t, what_tma_cannot_read_takes_the_portable_path);
    tcase_add_test(t, unwanted_outputs_skip_their_phases);
    tcase_add_test(t, generic_kernels_are_few);
    tcase_add_test(t, kernels_depend_on_shapes_alone);
    tcase_add_test(t, workspace_is_bounded_by_shapes);
    tcase_add_test(t, every_plan_expands_and_binds);
    tcase_add_test(t, the_benchmarks_kernels_do_not_spill);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
