/* Plans: who builds what, the shape policy, bounds, captures. */
#include "base/thread.h"
#include "engine_support.h"

/* An operation with token axis 0 and feature axis 1, whose kernel has both among its parameters unless generic. */
static kn_status plan_simple(const kn_problem *p, const kn_device_facts *facts, const kn_target *target,
                             kn_program *out) {
    (void)facts, (void)target;
    kn_program_builder b = {.program = out};
    int kernel;
    kn_params *params = kn_add_kernel(&b, "simple.ptxt", &kernel);
    kn_params_set(params, "N", p->generic ? p->axis[1] : p->axis[1] * 1000 + p->axis[0]);
    kn_launch_spec *l = kn_add_launch(&b, kernel, (uint32_t)p->axis[0], 1, 1);
    kn_bind_i64(l, p->axis[0]);
    return b.status;
}

static const kn_op simple = {.name = "simple", .n_args = 1, .n_outputs = 1, .plan = plan_simple, .token_axes = 1};

static kn_engine *e;

static void setup(void) {
    begin_dir();
    write_template("simple.ptxt", ".param .u64 n", "");
}

static void teardown(void) {
    kn_engine_destroy(e);
    e = NULL;
    end_dir();
}

static kn_problem problem(int64_t tokens, int64_t features) {
    kn_problem p;
    memset(&p, 0, sizeof p);
    p.axis[0] = tokens;
    p.axis[1] = features;
    return p;
}

/* The plan of a call; *built counts kernels built for it. */
static kn_plan *plan_of(int64_t tokens, int64_t features, uint64_t *built) {
    kn_problem p = problem(tokens, features);
    uint64_t before = e->count.kernels_built;
    bool fresh;
    kn_plan *plan = kn_plan_find(e, &p);
    if (!plan) ck_assert_ok(kn_plan_add(e, &simple, &p, false, &plan, &fresh));
    if (built) *built = e->count.kernels_built - before;
    return plan;
}

static bool is_generic(int64_t tokens, int64_t features, uint64_t *built) {
    kn_plan *plan = plan_of(tokens, features, built);
    bool generic = plan->generic;
    kn_plan_release(e, plan);
    return generic;
}

START_TEST(a_hit_allocates_nothing) {
    e = fake_engine(NULL);
    kn_plan_release(e, plan_of(5, 7, NULL));
    kn_problem p = problem(5, 7);
#ifdef KN_FAULT_INJECTION
    kn_fault_arm(0);
#endif
    kn_plan *plan = kn_plan_find(e, &p);
#ifdef KN_FAULT_INJECTION
    ck_assert_uint_eq(kn_fault_visits(), 0);
#endif
    ck_assert_ptr_nonnull(plan);
    kn_plan_release(e, plan);
    p.align_log2[0] = 4; /* any byte of the problem tells plans apart */
    ck_assert_ptr_null(kn_plan_find(e, &p));
}
END_TEST

START_TEST(auto_is_exact_for_sixteen_token_counts) {
    uint64_t built;
    e = fake_engine(&(kn_engine_options){.cache_dir = "off", .shapes = 1 + KN_SHAPES_AUTO});
    for (int64_t t = 1; t <= 16; t++) {
        ck_assert(!is_generic(t, 3, &built));
        ck_assert_uint_eq(built, 1);
    }
    ck_assert(is_generic(17, 3, &built));
    ck_assert_uint_eq(built, 1);
    for (int64_t t = 18; t <= 200; t++) {
        ck_assert(is_generic(t, 3, &built));
        ck_assert_uint_eq(built, 0);
    }
    ck_assert(!is_generic(5, 3, &built));  /* what is there exactly stays so */
    ck_assert(!is_generic(99, 4, &built)); /* other features count anew */
}
END_TEST

START_TEST(exact_and_generic_policies) {
    uint64_t built;
    e = fake_engine(&(kn_engine_options){.cache_dir = "off", .shapes = 1 + KN_SHAPES_EXACT});
    for (int64_t t = 1; t <= 20; t++) {
        ck_assert(!is_generic(t, 3, &built));
        ck_assert_uint_eq(built, 1);
    }
    kn_engine_destroy(e);
    e = fake_engine(&(kn_engine_options){.cache_dir = "off", .shapes = 1 + KN_SHAPES_GENERIC});
    for (int64_t t = 0; t <= 20; t++) {
        ck_assert(is_generic(t, 3, &built));
        ck_assert_uint_eq(built, t == 0);
    }
}
END_TEST

/* With a warm cache, what is there decides: exact first, then generic, whatever was seen. */
START_TEST(auto_takes_what_the_cache_has) {
    char dir[96];
    uint64_t built;
    snprintf(dir, sizeof dir, "%s/cache", work_dir);
    e = fake_engine(&(kn_engine_options){.cache_dir = dir, .shapes = 1 + KN_SHAPES_GENERIC});
    is_generic(1, 3, &built);
    kn_engine_destroy(e);
    e = fake_engine(&(kn_engine_options){.cache_dir = dir, .shapes = 1 + KN_SHAPES_EXACT});
    is_generic(50, 3, &built);
    kn_engine_destroy(e);
    e = fake_engine(&(kn_engine_options){.cache_dir = dir});
    ck_assert(is_generic(1, 3, &built));
    ck_assert_uint_eq(built, 0);
    ck_assert(!is_generic(50, 3, &built));
    ck_assert_uint_eq(built, 0);
    ck_assert(!is_generic(1, 4, &built));
    ck_assert_uint_eq(built, 1);
}
END_TEST

/* Token counts in one call after the other build nothing more, once the first ones are through. */
START_TEST(a_varying_token_count_never_stalls) {
    uint64_t built, all = 0;
    e = fake_engine(NULL);
    for (int64_t t = 1; t <= 600; t++) {
        is_generic(t, 3, &built);
        all += built;
    }
    for (int64_t t = 4095; t <= 4097; t++) {
        is_generic(t, 3, &built);
        all += built;
    }
    ck_assert_uint_eq(all, 17);
}
END_TEST

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static pthread_barrier_t barrier;

static void *cold_start(void *arg) {
    int64_t tokens = (int64_t)(intptr_t)arg % 8;
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 20; i++) {
        kn_plan *plan = plan_of(tokens, 3, NULL);
        if (plan->problem.axis[0] != tokens || plan->generic) abort();
        kn_plan_release(e, plan);
    }
    return NULL;
}

START_TEST(sixty_four_threads_build_eight_keys_once) {
    for (int round = 0; round < 10; round++) {
        pthread_t thread[64];
        e = fake_engine(&(kn_engine_options){.cache_dir = "off", .shapes = 1 + KN_SHAPES_EXACT});
        pthread_barrier_init(&barrier, NULL, 64);
        for (int i = 0; i < 64; i++) pthread_create(&thread[i], NULL, cold_start, (void *)(intptr_t)i);
        for (int i = 0; i < 64; i++) pthread_join(thread[i], NULL);
        pthread_barrier_destroy(&barrier);
        ck_assert_uint_eq(e->count.kernels_built, 8);
        ck_assert_int_eq(device.loads, 8);
        kn_engine_destroy(e);
        ck_assert_int_eq(device.unloads, 8);
        e = NULL;
    }
}
END_TEST

static void *churn(void *arg) {
    unsigned seed = (unsigned)(uintptr_t)arg;
    for (int i = 0; i < 300; i++) kn_plan_release(e, plan_of(rand_r(&seed) % 40, 3, NULL));
    return NULL;
}

START_TEST(threads_and_evictions) {
    pthread_t thread[8];
    e = fake_engine(&(kn_engine_options){.cache_dir = "off", .shapes = 1 + KN_SHAPES_EXACT, .max_modules = 4});
    e->max_plans = 6;
    for (uintptr_t i = 0; i < 8; i++) pthread_create(&thread[i], NULL, churn, (void *)(i + 1));
    for (int i = 0; i < 8; i++) pthread_join(thread[i], NULL);
    ck_assert_int_le(device.loads - device.unloads, 4);
    ck_assert_int_gt(device.unloads, 100);
}
END_TEST

/* ---- bounds and captures ----------------------------------------------------------------------------------------- */

START_TEST(modules_are_bounded) {
    e = fake_engine(&(kn_engine_options){.cache_dir = "off", .shapes = 1 + KN_SHAPES_EXACT, .max_modules = 4});
    for (int64_t t = 0; t < 100; t++) {
        kn_plan_release(e, plan_of(t, 3, NULL));
        ck_assert_int_le(device.loads - device.unloads, 4);
    }
    ck_assert_int_eq(device.loads, 100);
    kn_plan *kept = plan_of(99, 3, NULL); /* used last: still there */
    ck_assert_int_eq(device.loads, 100);
    for (int64_t t = 200; t < 300; t++) kn_plan_release(e, plan_of(t, 3, NULL));
    ck_assert_str_eq(((fake_module *)kept->launches[0].kernel->module)->entry,
                     "kiln_test_3099"); /* in use: not unloaded */
    kn_plan_release(e, kept);
}
END_TEST

START_TEST(plans_are_bounded) {
    kn_problem first = problem(1, 3), last = problem(50, 3);
    e = fake_engine(&(kn_engine_options){.cache_dir = "off", .shapes = 1 + KN_SHAPES_GENERIC});
    e->max_plans = 6;
    for (int64_t t = 1; t <= 50; t++) kn_plan_release(e, plan_of(t, 3, NULL));
    ck_assert_int_eq(device.loads - device.unloads, 1); /* all of them use one kernel */
    ck_assert_ptr_null(kn_plan_find(e, &first));
    kn_plan *plan = kn_plan_find(e, &last);
    ck_assert_ptr_nonnull(plan);
    kn_plan_release(e, plan);
}
END_TEST

START_TEST(captured_plans_are_pinned) {
    e = fake_engine(&(kn_engine_options){.cache_dir = "off", .shapes = 1 + KN_SHAPES_EXACT, .max_modules = 4});
    kn_plan *captured = plan_of(1, 3, NULL);
    kn_module *module = captured->launches[0].kernel->module;
    kn_plan_pin(e, captured);
    kn_plan_release(e, captured);
    for (int64_t t = 200; t < 300; t++) kn_plan_release(e, plan_of(t, 3, NULL));
    ck_assert_int_le(device.loads - device.unloads, 4);
    kn_problem p = problem(1, 3);
    kn_plan *again = kn_plan_find(e, &p); /* found, not made again */
    ck_assert_ptr_nonnull(again);
    ck_assert_ptr_eq(again->launches[0].kernel->module, module);
    kn_plan_release(e, again);
    int loads = device.loads;
    void *faults = e->faults_host; /* stays as well */
    kn_engine_destroy(e);
    e = NULL;
    ck_assert_int_eq(device.unloads, loads - 1); /* not even at the end */
    free(faults);
}
END_TEST

START_TEST(nothing_is_loaded_during_a_capture) {
    char dir[96];
    bool fresh;
    kn_plan *plan = NULL;
    kn_problem p = problem(5, 3);
    snprintf(dir, sizeof dir, "%s/cache", work_dir);
    e = fake_engine(&(kn_engine_options){.cache_dir = dir});
    ck_assert_fails(kn_plan_add(e, &simple, &p, true, &plan, &fresh), KN_E_CAPTURE, "KILN_PREPARE_ONLY before");
    kn_plan_release(e, plan_of(5, 3, NULL)); /* on the disk now, too */
    kn_engine_destroy(e);
    e = fake_engine(&(kn_engine_options){.cache_dir = dir});
    ck_assert_fails(kn_plan_add(e, &simple, &p, true, &plan, &fresh), KN_E_CAPTURE, "not loaded yet");
    ck_assert_int_eq(device.loads, 0);
    kn_plan_release(e, plan_of(5, 3, NULL));
    p.align_log2[0] = 7; /* another problem with the same kernel: all it takes is there */
    ck_assert_ok(kn_plan_add(e, &simple, &p, true, &plan, &fresh));
    ck_assert_int_eq(device.loads, 1);
    kn_plan_release(e, plan);
}
END_TEST

/* ---- programs that do not fit their kernels ---------------------------------------------------------------------- */

static void (*mistake)(kn_program *p);

static kn_status plan_wrong(const kn_problem *p, const kn_device_facts *facts, const kn_target *target,
                            kn_program *out) {
    KN_TRY(plan_simple(p, facts, target, out));
    mistake(out);
    return KN_OK;
}
static void bind_too_few(kn_program *p) {
    p->launch[0].n_bind = 0;
}
static void bind_wrong_size(kn_program *p) {
    p->launch[0].bind[0].kind = KN_BIND_I32;
}
static void bind_too_many(kn_program *p) {
    for (int i = 0; i < KN_MAX_BINDINGS; i++) kn_bind_i64(&p->launch[0], i);
}
static void name_no_kernel(kn_program *p) {
    p->launch[0].kernel = 1;
}
static void name_no_tensor(kn_program *p) {
    p->launch[0].bind[0] = (kn_binding){.kind = KN_BIND_TENSOR, .arg = 1};
}
static void name_no_map(kn_program *p) {
    p->launch[0].bind[0] = (kn_binding){.kind = KN_BIND_MAP};
}
static void name_no_workspace(kn_program *p) {
    p->launch[0].bind[0] = (kn_binding){.kind = KN_BIND_WORKSPACE};
}
static void huge_grid(kn_program *p) {
    p->launch[0].grid[1] = 65536;
}
static void never_waits(kn_program *p) {
    p->launch[0].dependent = true;
}

static const struct {
    void (*make)(kn_program *p);
    const char *sentence;
} mistakes[] = {
    {bind_too_few, "kiln_test_3005 has 1 arguments; the planner binds 0"},
    {bind_wrong_size, "argument 0 (n) has 8 bytes; the planner binds 4"},
    {bind_too_many, "simple.ptxt: more than "},
    {name_no_kernel, "a launch names kernel 1 of 1"},
    {name_no_tensor, "binding 0 names tensor 1 of 1"},
    {name_no_map, "binding 0 names map 0 of 0"},
    {name_no_workspace, "binding 0 lies outside of the workspace"},
    {huge_grid, "a grid of 5 x 65536 x 1 is larger than a device takes"},
    {never_waits, "never waits for the launch before it"},
};

START_TEST(planners_mistakes_are_named) {
    kn_op wrong = simple;
    bool fresh;
    kn_plan *plan;
    kn_problem p = problem(5, 3);
    wrong.plan = plan_wrong;
    e = fake_engine(NULL);
    mistake = mistakes[_i].make;
    ck_assert_fails(kn_plan_add(e, &wrong, &p, false, &plan, &fresh), KN_E_INTERNAL, mistakes[_i].sentence);
    ck_assert_ptr_null(plan);
}
END_TEST

START_TEST(grids_are_whole_clusters) {
    kn_problem odd = problem(5, 3), even = problem(6, 3);
    bool fresh;
    kn_plan *plan;
    char path[128];
    snprintf(path, sizeof path, "%s/templates/simple.ptxt", work_dir);
    const char *text =
        "#param N in 0 .. 1000000 // a number\n.version 7.8\n.target ${target}\n.address_size 64\n"
        ".visible .entry clustered_${N}(.param .u64 n)\n.reqntid 32\n.reqnctapercluster 2\n{\n    ret;\n}\n";
    ck_assert_ok(kn_file_write(path, text, strlen(text)));
    e = fake_engine(NULL);
    ck_assert_fails(kn_plan_add(e, &simple, &odd, false, &plan, &fresh), KN_E_INTERNAL,
                    "grid axis 0 is 5, not a multiple of the cluster's 2");
    ck_assert_ok(kn_plan_add(e, &simple, &even, false, &plan, &fresh));
    kn_plan_release(e, plan);
}
END_TEST

int main(void) {
    Suite *s = suite_create("plan");
    TCase *t = tcase_create("plans");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_hit_allocates_nothing);
    tcase_add_test(t, auto_is_exact_for_sixteen_token_counts);
    tcase_add_test(t, exact_and_generic_policies);
    tcase_add_test(t, auto_takes_what_the_cache_has);
    tcase_add_test(t, a_varying_token_count_never_stalls);
    tcase_add_test(t, sixty_four_threads_build_eight_keys_once);
    tcase_add_test(t, threads_and_evictions);
    tcase_add_test(t, modules_are_bounded);
    tcase_add_test(t, plans_are_bounded);
    tcase_add_test(t, captured_plans_are_pinned);
    tcase_add_test(t, grids_are_whole_clusters);
    tcase_add_test(t, nothing_is_loaded_during_a_capture);
    tcase_add_loop_test(t, planners_mistakes_are_named, 0, (int)(sizeof mistakes / sizeof *mistakes));
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
