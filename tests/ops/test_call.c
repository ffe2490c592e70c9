/* Whole calls through the public interface on the null device: plans, caches, recording, faults injected everywhere. */
#include "base/alloc.h"
#include "base/status.h"
#include "ops_support.h"

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

static char work_dir[64];

static void setup(void) {
    snprintf(work_dir, sizeof work_dir, "/tmp/kiln-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(work_dir));
}

static void teardown(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", work_dir);
    ck_assert_int_eq(system(command), 0);
}

static kiln_context *create(kiln_context_options o) {
    kiln_context *ctx = NULL;
    o.struct_size = sizeof o;
    ck_assert_ok(kiln_context_create("null", &o, &ctx));
    return ctx;
}

START_TEST(a_second_context_builds_nothing) {
    lb_call c;
    lb_begin(&c, 37, 60);
    kiln_context *ctx = create((kiln_context_options){.cache_dir = work_dir});
    ck_assert_ok(lb_run(ctx, &c, NULL));
    ck_assert_ok(lb_run(ctx, &c, NULL));
    kiln_counters n = counters_of(ctx);
    ck_assert_uint_eq(n.calls, 2);
    ck_assert_uint_eq(n.launches, 2);
    ck_assert_uint_eq(n.plans, 1);
    ck_assert_uint_eq(n.plan_hits, 1);
    ck_assert_uint_eq(n.kernels_built, 1);
    ck_assert_uint_eq(n.published, 1);
    ck_assert_uint_eq(n.dir_usable, 1);
    ck_assert_str_eq(n.cache_dir, work_dir);
    ck_assert_ok(kiln_context_destroy(ctx));
    ctx = create((kiln_context_options){.cache_dir = work_dir, .on_miss = KILN_ON_MISS_ERROR});
    ck_assert_ok(lb_run(ctx, &c, NULL));
    n = counters_of(ctx);
    ck_assert_uint_eq(n.kernels_built, 0);
    ck_assert_uint_eq(n.kernels_loaded, 1);
    ck_assert_uint_eq(n.hits_dir, 1);
    ck_assert_uint_eq(n.expand_ns, 0);
    ck_assert_ok(kiln_context_destroy(ctx));
    lb_end(&c);
}
END_TEST

START_TEST(no_tokens_is_no_launch) {
    lb_call c;
    lb_begin(&c, 0, 60);
    kiln_context *ctx = create((kiln_context_options){.cache_dir = "off"});
    c.mask.t.data = c.out.t.data = NULL;
    ck_assert_ok(lb_run(ctx, &c, NULL));
    ck_assert_uint_eq(counters_of(ctx).launches, 0);
    ck_assert_ok(kiln_context_destroy(ctx));
    lb_end(&c);
}
END_TEST

START_TEST(prepare_only_runs_nothing) {
    lb_call c;
    lb_begin(&c, 5, 60);
    kiln_context *ctx = create((kiln_context_options){.cache_dir = "off"});
    c.options.common.flags = KILN_PREPARE_ONLY;
    for (int i = 0; i < 8; i++)
        if (c.args[i]) ((DLTensor *)c.args[i])->data = NULL;
    ck_assert_ok(lb_run(ctx, &c, NULL));
    kiln_counters n = counters_of(ctx);
    ck_assert_uint_eq(n.launches, 0);
    ck_assert_uint_eq(n.kernels_loaded, 1);
    c.options.common.flags = 0;
    ck_assert_fails(lb_run(ctx, &c, NULL), KILN_E_ARG,
                    "load_balance_backward: grad_tokens_per_expert: data is NULL, but it has elements");
    ck_assert_ok(kiln_context_destroy(ctx));
    lb_end(&c);
}
END_TEST

START_TEST(sentences_name_the_operation) {
    lb_call c;
    lb_begin(&c, 5, 60);
    kiln_context *ctx = create((kiln_context_options){.cache_dir = "off"});
    c.out.shape[0] = 6;
    ck_assert_fails(lb_run(ctx, &c, NULL), KILN_E_SHAPE,
                    "load_balance_backward: grad_expert_mask_out: axis 0 (B) is 6; grad_expert_mask has B = 5");
    c.out.shape[0] = 5;
    c.options.top_k = 0;
    ck_assert_fails(lb_run(ctx, &c, NULL), KILN_E_ARG, "load_balance_backward: top_k is 0; wanted at least 1");
    ck_assert_fails(kiln_load_balance_backward(NULL, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL), KILN_E_HANDLE,
                    "load_balance_backward: the context is NULL");
    uint64_t bytes = 1;
    ck_assert_fails(kiln_workspace_size(ctx, "no_such", c.args, 8, NULL, &bytes), KILN_E_ARG,
                    "there is no operation \"no_such\"");
    ck_assert_fails(kiln_workspace_size(ctx, NULL, c.args, 8, NULL, &bytes), KILN_E_ARG, "no operation");
    c.options.top_k = 4;
    ck_assert_ok(kiln_workspace_size(ctx, "load_balance_backward", c.args, 8, &c.options, &bytes));
    ck_assert_uint_eq(bytes, 0);
    char copy[20];
    ck_assert_int_eq(kiln_error_copy(copy, sizeof copy), KILN_OK);
    ck_assert_uint_eq(strlen(copy), 19);
    ck_assert_int_eq(kiln_error_copy(NULL, 5), KILN_E_ARG);
    ck_assert_ok(kiln_context_destroy(ctx));
    lb_end(&c);
}
END_TEST

START_TEST(workspace_of_the_caller_or_the_context) {
    static _Alignas(256) char memory[4][16384], workspace[1 << 16];
    gg_call c;
    kiln_context *ctx = create((kiln_context_options){.cache_dir = "off"});
    gg_begin(&c, memory[0], memory[1], memory[2], memory[3]);
    uint64_t bytes = gg_workspace(ctx, &c);
    ck_assert_uint_le(bytes, sizeof workspace);
    c.options.common.workspace = workspace;
    c.options.common.workspace_bytes = bytes - 1;
    ck_assert_fails(gg_run(ctx, &c, NULL), KILN_E_WORKSPACE, "grouped_gemm: options: workspace has ");
    ck_assert_uint_eq(counters_of(ctx).launches, 0);
    c.options.common.workspace_bytes = sizeof workspace;
    c.options.common.workspace = workspace + 16;
    ck_assert_fails(gg_run(ctx, &c, NULL), KILN_E_ALIGN, "wanted a multiple of 256 bytes");
    c.options.common.workspace = workspace;
    c.options.common.workspace_bytes = bytes;
    ck_assert_ok(gg_run(ctx, &c, NULL));
    c.options.common.workspace = NULL;
    ck_assert_ok(gg_run(ctx, &c, NULL));
    ck_assert_uint_gt(counters_of(ctx).launches, 1);
    ck_assert_ok(kiln_context_destroy(ctx));
}
END_TEST

/* ---- recording --------------------------------------------------------------------------------------------------- */

static const char *first_lines(const char *path, int *count) {
    static char text[1 << 16];
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    *count = 0;
    for (char *p = text; *p; p++) *count += *p == '\n';
    return text;
}

START_TEST(new_problems_are_recorded_once) {
    char path[96];
    int count;
    lb_call c;
    snprintf(path, sizeof path, "%s/record.jsonl", work_dir);
    kiln_context *ctx = create((kiln_context_options){.cache_dir = "off", .record = path});
    lb_begin(&c, 37, 60);
    int64_t wide[] = {64, 1};
    c.options.common.accumulate = 1;
    c.out.t.strides = wide;
    c.out.t.data = aligned_alloc(256, 4 * 64 * 37 + 256 - 4 * 64 * 37 % 256);
    c.mask.t.data = (char *)c.grad_mask + 4;
    c.mask.shape[0] = c.out.shape[0] = 36;
    for (int i = 0; i < 3; i++) ck_assert_ok(lb_run(ctx, &c, NULL));
    const char *text = first_lines(path, &count);
    ck_assert_int_eq(count, 1);
    ck_assert_ptr_nonnull(strstr(text, "{\"v\":1,\"op\":\"load_balance_backward\",\"args\":{"));
    ck_assert_ptr_nonnull(strstr(text, "\"grad_expert_mask\":{\"dtype\":\"f32\",\"shape\":[36,60],\"align\":4}"));
    ck_assert_ptr_nonnull(
        strstr(text, "\"grad_expert_mask_out\":{\"dtype\":\"f32\",\"shape\":[36,60],\"strides\":[64,1]}"));
    ck_assert_ptr_nonnull(strstr(text, "},\"accumulate\":1,\"options\":{\"top_k\":4}}\n"));
    c.options.top_k = 5;
    ck_assert_ok(lb_run(ctx, &c, NULL));
    first_lines(path, &count);
    ck_assert_int_eq(count, 2);
    free(c.out.t.data);
    ck_assert_ok(kiln_context_destroy(ctx));
    lb_end(&c);
}
END_TEST

START_TEST(strict_mode_gives_the_line_to_add) {
    lb_call c;
    lb_begin(&c, 37, 60);
    kiln_context *ctx = create((kiln_context_options){.cache_dir = "off", .on_miss = KILN_ON_MISS_ERROR});
    ck_assert_fails(lb_run(ctx, &c, NULL), KILN_E_NOT_CACHED,
                    "the line to add to the warm list is {\"v\":1,\"op\":\"load_balance_backward\",\"args\":");
    const char *line = strchr(kiln_error_message(), '{');
    ck_assert_str_eq(line + strlen(line) - 2, "}}");
    uint64_t needed;
    ck_assert_fails(
        kiln_plan_json(ctx, "load_balance_backward", c.args, 8, &c.options, KILN_PLAN_BUILD, NULL, 0, &needed),
        KILN_E_NOT_CACHED, "the line to add to the warm list is {\"v\":1,");
    ck_assert_ok(kiln_context_destroy(ctx));
    lb_end(&c);
}
END_TEST

/* ---- plans as JSON, the cache as JSON ---------------------------------------------------------------------------- */

START_TEST(json_of_plan_and_cache) {
    static char text[1 << 16];
    uint64_t needed = 0;
    lb_call c;
    lb_begin(&c, 37, 60);
    kiln_context *ctx = create((kiln_context_options){.cache_dir = work_dir});
    ck_assert_ok(kiln_plan_json(ctx, "load_balance_backward", c.args, 8, &c.options, 0, text, sizeof text, &needed));
    ck_assert_ptr_nonnull(strstr(text, "\"cache\":\"not looked for\""));
    ck_assert_ptr_nonnull(strstr(text, "\"template\":\"load_balance.ptxt\""));
    ck_assert_uint_eq(counters_of(ctx).kernels_loaded, 0);
    uint64_t expanding = counters_of(ctx).expand_ns;
    ck_assert_ok(kiln_plan_json(ctx, "load_balance_backward", c.args, 8, &c.options, KILN_PLAN_LIST, text, sizeof text,
                                &needed));
    ck_assert_ptr_nonnull(strstr(text, "\"kernels\":[{\"template\":\"load_balance.ptxt\",\"key\":\""));
    ck_assert_uint_eq(counters_of(ctx).expand_ns, expanding);
    ck_assert_ok(kiln_plan_json(ctx, "load_balance_backward", c.args, 8, &c.options, KILN_PLAN_BUILD, text, sizeof text,
                                &needed));
    ck_assert_ptr_nonnull(strstr(text, "\"cache\":\"built\""));
    ck_assert_uint_eq(counters_of(ctx).kernels_loaded, 1);
    ck_assert_ok(kiln_cache_json(work_dir, text, sizeof text, &needed));
    ck_assert_ptr_nonnull(strstr(text, "\"kernel\":\"kiln_load_balance_b37_e60"));
    ck_assert_ptr_nonnull(strstr(text, "\"template\":\"load_balance.ptxt\""));
    ck_assert_ptr_null(strstr(text, "\"error\""));
    uint64_t checked = 0, bad = 9;
    ck_assert_ok(kiln_cache_verify(work_dir, &checked, &bad, text, sizeof text));
    ck_assert_uint_eq(checked, 1);
    ck_assert_uint_eq(bad, 0);
    uint64_t removed = 0, bytes = 0, entries = 0;
    char pack[96];
    snprintf(pack, sizeof pack, "%s/a.pack", work_dir);
    ck_assert_ok(kiln_cache_merge((const char *[]){work_dir}, 1, pack, &entries));
    ck_assert_uint_eq(entries, 1);
    ck_assert_ok(kiln_cache_trim(work_dir, 0, &removed, &bytes));
    ck_assert_uint_eq(removed, 1);
    ck_assert_ok(kiln_context_destroy(ctx));
    ctx = create((kiln_context_options){.cache_dir = "off", .cache_read_only = pack, .on_miss = KILN_ON_MISS_ERROR});
    ck_assert_ok(lb_run(ctx, &c, NULL));
    ck_assert_uint_eq(counters_of(ctx).hits_read_only, 1);
    ck_assert_ok(kiln_context_destroy(ctx));
    lb_end(&c);
}
END_TEST

/* A plan that is built takes the generic kernel where that is what the caches have, as a call does. */
START_TEST(plans_take_what_is_cached) {
    static char text[1 << 16];
    uint64_t needed = 0;
    lb_call c;
    lb_begin(&c, 37, 60);
    kiln_context *ctx = create((kiln_context_options){.cache_dir = work_dir, .shapes = KILN_SHAPES_GENERIC});
    ck_assert_ok(lb_run(ctx, &c, NULL));
    ck_assert_ok(kiln_context_destroy(ctx));
    ctx = create((kiln_context_options){.cache_dir = work_dir, .on_miss = KILN_ON_MISS_ERROR});
    ck_assert_ok(kiln_plan_json(ctx, "load_balance_backward", c.args, 8, &c.options, KILN_PLAN_BUILD, text, sizeof text,
                                &needed));
    ck_assert_ptr_nonnull(strstr(text, "\"shapes\":\"generic\""));
    ck_assert_ok(lb_run(ctx, &c, NULL));
    ck_assert_ok(kiln_context_destroy(ctx));
    lb_end(&c);
}
END_TEST

/* The limit changes how many blocks there are. */
START_TEST(a_limit_of_multiprocessors) {
    static char all[1 << 16], few[1 << 16];
    uint64_t needed = 0;
    lb_call c;
    lb_begin(&c, 5000, 60);
    kiln_context *ctx = create((kiln_context_options){.cache_dir = "off"});
    ck_assert_ok(kiln_plan_json(ctx, "load_balance_backward", c.args, 8, &c.options, 0, all, sizeof all, &needed));
    ck_assert_ok(kiln_context_destroy(ctx));
    ctx = create((kiln_context_options){.cache_dir = "off", .sm_limit = 1});
    ck_assert_ok(kiln_plan_json(ctx, "load_balance_backward", c.args, 8, &c.options, 0, few, sizeof few, &needed));
    ck_assert_ok(kiln_context_destroy(ctx));
    ck_assert_int_le(atoi(strstr(few, "\"grid\":[") + 8), 8);
    ck_assert_int_gt(atoi(strstr(all, "\"grid\":[") + 8), 8);
    lb_end(&c);
}
END_TEST

/* Packs hold what the built-in templates give. */
START_TEST(own_templates_turn_packs_off) {
    char pack[96];
    uint64_t entries;
    lb_call c;
    lb_begin(&c, 37, 60);
    kiln_context *ctx = create((kiln_context_options){.cache_dir = work_dir});
    ck_assert_ok(lb_run(ctx, &c, NULL));
    ck_assert_ok(kiln_context_destroy(ctx));
    snprintf(pack, sizeof pack, "%s/a.pack", work_dir);
    ck_assert_ok(kiln_cache_merge((const char *[]){work_dir}, 1, pack, &entries));
    kiln_context_options o = {.cache_dir = "off", .cache_read_only = pack, .on_miss = KILN_ON_MISS_ERROR};
    setenv("KILN_TEMPLATE_DIR", work_dir, 1);
    ctx = create(o);
    ck_assert_int_eq(lb_run(ctx, &c, NULL), KILN_E_NOT_CACHED);
    unsetenv("KILN_TEMPLATE_DIR");
    ck_assert_ok(kiln_context_destroy(ctx));
    ctx = create(o);
    ck_assert_ok(lb_run(ctx, &c, NULL));
    ck_assert_ok(kiln_context_destroy(ctx));
    lb_end(&c);
}
END_TEST

/* An entry that says it was expanded from other text than it is now is found. */
START_TEST(verify_finds_a_changed_template) {
    char text[4096], path[160];
    uint64_t checked = 0, bad = 0;
    lb_call c;
    lb_begin(&c, 37, 60);
    snprintf(path, sizeof path, "%s/templates", work_dir);
    kiln_context *ctx = create((kiln_context_options){.cache_dir = work_dir});
    ck_assert_ok(lb_run(ctx, &c, NULL));
    ck_assert_ok(kiln_context_destroy(ctx));
    snprintf(text, sizeof text, "mkdir %s && printf '#param N in 0 .. 1 // n\\n' > %s/load_balance.ptxt", path, path);
    ck_assert_int_eq(system(text), 0);
    setenv("KILN_TEMPLATE_DIR", path, 1);
    ck_assert_ok(kiln_cache_verify(work_dir, &checked, &bad, text, sizeof text));
    unsetenv("KILN_TEMPLATE_DIR");
    ck_assert_uint_eq(checked + bad, 0);
    ck_assert_ptr_nonnull(strstr(text, "1 entries were made by another version"));
    lb_end(&c);
}
END_TEST

START_TEST(environment_as_json) {
    static char text[1 << 16];
    uint64_t needed = 0;
    setenv("KILN_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
    setenv("KILN_LIBNVJITLINK", "off", 1);
    ck_assert_ok(kiln_env_json(text, sizeof text, &needed));
    ck_assert_ptr_nonnull(strstr(text, "{\"name\":\"KILN_LIBNVJITLINK\",\"value\":\"off\","));
    ck_assert_ptr_nonnull(strstr(text, "{\"name\":\"KILN_DUMP\",\"value\":null,"));
    ck_assert_ptr_nonnull(strstr(text, "{\"name\":\"CUDA driver\",\"error\":"));
    ck_assert_ptr_nonnull(strstr(text, "{\"name\":\"nvJitLink\",\"error\":"));
    ck_assert_int_eq(text[needed - 2], '}');
}
END_TEST

/* ---- faults ------------------------------------------------------------------------------------------------------ */

#ifdef KN_FAULT_INJECTION
/* Context, first call, second call, destruction. KILN_OK, or the failure. */
static const char *const devices[] = {"null", "sim"};

static int32_t whole_life(const char *device, const lb_call *c, const char *record) {
    kiln_context *ctx = NULL;
    kiln_context_options o = {.struct_size = sizeof o, .cache_dir = work_dir, .record = record};
    int32_t st = kiln_context_create(device, &o, &ctx);
    if (st != KILN_OK) return st;
    st = lb_run(ctx, c, NULL);
    int32_t second = lb_run(ctx, c, NULL); /* only one fault is injected: the next call works */
    ck_assert(st == KILN_OK || second == KILN_OK);
    ck_assert_int_eq(kiln_context_destroy(ctx), KILN_OK);
    return st != KILN_OK ? st : second;
}

START_TEST(every_allocation_and_file_call_may_fail) {
    lb_call c;
    char record[96];
    int failed = 0;
    snprintf(record, sizeof record, "%s/record", work_dir);
    lb_begin(&c, 5, 60);
    kn_fault_arm(0);
    ck_assert_int_eq(whole_life(devices[_i], &c, record), KILN_OK);
    uint64_t visits = kn_fault_visits();
    ck_assert_uint_gt(visits, 20);
    for (uint64_t n = 1; n <= visits + 20; n++) {
        if (n % 2) ck_assert_ok(kiln_cache_trim(work_dir, 0, NULL, NULL)); /* half of them start with an empty cache */
        kn_fault_arm(n);
        int32_t st = whole_life(devices[_i], &c, record);
        kn_fault_arm(0);
        ck_assert_msg(st == KILN_OK || st == KILN_E_NOMEM || st == KILN_E_IO, "fault %d: %s: %s", (int)n,
                      kiln_status_name(st), kiln_error_message());
        failed += st != KILN_OK;
    }
    ck_assert_int_gt(failed, 5);
    ck_assert_int_eq(whole_life(devices[_i], &c, record), KILN_OK);
    lb_end(&c);
}
END_TEST

static void add_fault_tests(TCase *t) {
    tcase_add_loop_test(t, every_allocation_and_file_call_may_fail, 0, 2);
}
#else
static void add_fault_tests(TCase *t) {
    (void)t; /* only a build with fault injection can make calls fail */
}
#endif

int main(void) {
    Suite *s = suite_create("call");
    TCase *t = tcase_create("calls");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_second_context_builds_nothing);
    tcase_add_test(t, no_tokens_is_no_launch);
    tcase_add_test(t, prepare_only_runs_nothing);
    tcase_add_test(t, sentences_name_the_operation);
    tcase_add_test(t, workspace_of_the_caller_or_the_context);
    tcase_add_test(t, new_problems_are_recorded_once);
    tcase_add_test(t, strict_mode_gives_the_line_to_add);
    tcase_add_test(t, json_of_plan_and_cache);
    tcase_add_test(t, plans_take_what_is_cached);
    tcase_add_test(t, a_limit_of_multiprocessors);
    tcase_add_test(t, own_templates_turn_packs_off);
    tcase_add_test(t, verify_finds_a_changed_template);
    tcase_add_test(t, environment_as_json);
    add_fault_tests(t);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
