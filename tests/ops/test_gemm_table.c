/* Every kernel that planners can ask for, assembled: all candidates of products with all epilogues, types and
 * majorness, and the other kernels of all operations under drawn options, for sm_90a and sm_80. None may spill, have
 * local memory or a C75xx remark, or need more than 300 ms of processor time to assemble. By default the kernels that
 * planners choose for a few sizes; KN_ALL=1 takes all of them (many minutes; KN_SHARE=I/N a share). */
#include "gemm_support.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "cache/cache.h"
#include "jit/assemble.h"
#include "jit/kernel.h"
#include "jit/user_function.h"
#include "ops/api_call.h"
#include "ops/registry.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { WATCHED = 2 }; /* each of the assembler's allocations passes the sanitizer, too */
#else
enum { WATCHED = 1 };
#endif
enum { MAX_KERNELS = 1 << 15, MOST_MS = 300 };

static bool all;
static char tuning_path[64];
static kn_digest seen[MAX_KERNELS]; /* by their low bits; all zeros: free */
static size_t assembled, bad;
static double slowest_ms;

/* ---- one kernel -------------------------------------------------------------------------------------------------- */

/* "M0", "K2" and the like of the wgmma kernel are numbers in it that change no register. */
static bool is_size(const char *template_name, const char *param) {
    if (strcmp(template_name, "gemm_sm90.ptxt") != 0) return false;
    bool numbered = strchr("MNK", param[0]) && param[1] >= '0' && param[1] <= '9' && !param[2];
    return numbered || strcmp(param, "A_BOX") == 0;
}

/* Of a size only this much tells kernels apart: whether it is an argument, and whether a box is a whole tile. */
static int64_t class_of(const kn_params *params, const kn_param *p) {
    if (strcmp(p->name, "A_BOX") != 0) return p->value > 0 ? 1 : p->value;
    int64_t rows = 64;
    for (int i = 0; i < params->count; i++) {
        const kn_param *q = &params->item[i];
        if (strcmp(q->name, "MB") == 0) rows *= q->value;
        if (strcmp(q->name, "MODE") == 0 && strcmp(q->text, "coop") == 0) rows *= 2;
    }
    return p->value < rows;
}

static bool is_new(const kn_kernel_spec *k, const char *target) {
    kn_buf b;
    kn_buf_init(&b, 1 << 16);
    kn_buf_addf(&b, "%s %s", target, k->template_name);
    for (int i = 0; i < k->params.count; i++) {
        const kn_param *p = &k->params.item[i];
        kn_buf_addf(&b, " %s=", p->name);
        if (p->is_name)
            kn_buf_add(&b, p->text);
        else
            kn_buf_add_i64(&b, is_size(k->template_name, p->name) ? class_of(&k->params, p) : p->value);
    }
    ck_assert_ok(kn_buf_status(&b));
    kn_digest d = kn_hash(b.data, b.len);
    kn_buf_free(&b);
    size_t at = d.lo % MAX_KERNELS;
    for (; seen[at].lo | seen[at].hi; at = (at + 1) % MAX_KERNELS)
        if (seen[at].lo == d.lo && seen[at].hi == d.hi) return false;
    seen[at] = d;
    ck_assert_uint_lt(++assembled, MAX_KERNELS / 2);
    return true;
}

static double cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* Processor time is longer where others want the processors too: then the limit is twice as long, and the shortest
 * of up to three counts. */
static double most_ms(void) {
    double load = 0;
    bool busy = getloadavg(&load, 1) == 1 && load > (double)sysconf(_SC_NPROCESSORS_ONLN);
    return (busy ? 2 : 1) * WATCHED * MOST_MS;
}

static void print_params(const kn_params *params) {
    for (int i = 0; i < params->count; i++) {
        const kn_param *p = &params->item[i];
        if (p->is_name)
            printf(" %s=%s", p->name, p->text);
        else
            printf(" %s=%lld", p->name, (long long)p->value);
    }
    printf("\n");
}

static void check_kernel(const kn_kernel_spec *k, const char *target) {
    if (!is_new(k, target)) return;
    const kn_key_inputs in = {.template_name = k->template_name, .target = target, .params = &k->params};
    kn_expansion x;
    kn_asm_report report = {0};
    void *cubin = NULL;
    size_t len;
    ck_assert_ok(kn_kernel_expand(&in, &x));
    double most = most_ms();
    double ms = 0;
    for (int i = 0; i < 3 && (i == 0 || ms > most); i++) {
        kn_free(cubin);
        double before = cpu_ms();
        ck_assert_ok(kn_nvjitlink_assemble(&x, &cubin, &len, &report));
        double took = cpu_ms() - before;
        if (i == 0 || took < ms) ms = took;
    }
    if (ms > slowest_ms) slowest_ms = ms;
    uint32_t spills = report.spill_stores + report.spill_loads;
    if (spills + report.stack + report.remarks > 0 || ms > most) {
        bad++;
        printf("%s %s: %u registers, %u B spilt, %u B of stack, %u remarks %s, %.0f ms:", target, k->template_name,
               report.registers, spills, report.stack, report.remarks, report.remark, ms);
        print_params(&k->params);
        fflush(stdout);
    }
    kn_free(cubin);
    kn_expansion_free(&x);
}

static void check_program(const kn_program *program, const char *target) {
    for (uint32_t i = 0; i < program->n_kernels; i++) check_kernel(&program->kernel[i], target);
}

/* ---- one call ---------------------------------------------------------------------------------------------------- */

typedef struct machine {
    kn_device_facts facts;
    const kn_target *target;
    kn_program *program;
} machine;

static machine machine_of(const char *name) {
    machine m = {0};
    ck_assert_ok(kn_device_facts_by_name(name, &m.facts, &m.target));
    ck_assert_ok(KN_NEW(&m.program, 1, "a program"));
    return m;
}

static void plan(machine *m, const kn_op *op, const kn_problem *p, kn_buf *explain) {
    memset(m->program, 0, sizeof *m->program);
    m->program->explain = explain;
    kn_status st = op->plan(p, &m->facts, m->target, m->program);
    ck_assert_msg(st == KN_OK, "%s: %s", op->name, kn_error_message());
    m->program->explain = NULL;
}

/* The same call with every candidate of one of its products. */
static void try_candidates(machine *m, const kn_op *op, const kn_problem *p, const json_t *product) {
    const char *key = json_string_value(json_object_get(product, "key"));
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(product, "candidates"), i, c) {
        if (json_object_get(c, "refused")) continue;
        write_choice(tuning_path, m->facts.name, key, json_string_value(json_object_get(c, "name")));
        kn_tuning *tuning;
        ck_assert_ok(kn_tuning_read(tuning_path, m->facts.name, &tuning));
        m->facts.tuning = tuning;
        plan(m, op, p, NULL);
        m->facts.tuning = NULL;
        kn_tuning_free(tuning);
        check_program(m->program, m->target->name);
    }
}

static void check_problem(machine *m, const kn_op *op, const kn_problem *p, bool candidates) {
    kn_buf explain;
    kn_buf_init(&explain, 1 << 22);
    plan(m, op, p, candidates ? &explain : NULL);
    check_program(m->program, m->target->name);
    if (candidates) {
        kn_buf list;
        size_t i;
        json_t *product;
        kn_buf_init(&list, 1 << 22);
        kn_buf_addf(&list, "[");
        kn_buf_add(&list, explain.data);
        kn_buf_add(&list, "]");
        json_t *products = json_loads(list.data, 0, NULL);
        ck_assert_ptr_nonnull(products);
        json_array_foreach(products, i, product) try_candidates(m, op, p, product);
        json_decref(products);
        kn_buf_free(&list);
    }
    kn_buf_free(&explain);
}

/* A call as its caller would describe it, exact and generic. */
static void check_call(machine *m, const kn_gen_config *c, bool candidates) {
    kn_gen *g;
    kn_problem p;
    const kn_op *op = kn_op_find(c->op);
    ck_assert_ok(kn_gen_make(c, &g));
    memset(&p, 0, sizeof p);
    g->call.op = op;
    kn_status st = kn_validate_problem(&g->call, &p);
    ck_assert_msg(st == KN_OK, "%s: %s", c->op, kn_error_message());
    for (uint8_t generic = 0; generic < 2; generic++) {
        p.generic = generic;
        if (!generic || op->token_axes) check_problem(m, op, &p, candidates && !generic);
    }
    kn_gen_free(g);
}

static void begin(void) {
    const kn_assembler_id *assembler;
    all = getenv("KN_ALL") != NULL;
    snprintf(tuning_path, sizeof tuning_path, "/tmp/kn_test_table_%d", (int)getpid());
    kn_status st = kn_nvjitlink_id(&assembler);
    ck_assert_msg(st == KN_OK || !getenv("CI"), "%s", kn_error_message());
    if (st != KN_OK) { /* as the other tests that need nvJitLink do */
        printf("skipped: %s\n", kn_error_message());
        exit(0);
    }
}

/* What the kernels of one test come to. */
static void judge(void) {
    printf("%zu kernels assembled, the slowest in %.0f ms\n", assembled, slowest_ms);
    ck_assert_msg(bad == 0, "%zu of %zu kernels spill, have remarks or are slow to assemble", bad, assembled);
    unlink(tuning_path);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

START_TEST(products_by_wgmma) {
    if (!is_mine((uint64_t)_i)) return;
    static const int64_t rows[] = {16, 64, 136, 256, 1024};
    machine m = machine_of("h200");
    for (int i = 0; i < (all ? 32 : 5); i++) {
        int64_t tokens = all ? 8 * (i + 1) : rows[i];
        /* Without KN_ALL every other way meets one of the sizes. */
        if (!all && (i != _i % 5 || _i % 2)) continue;
        kn_gen_config c = product(_i, tokens, 512, 1024), shallow = product(_i, tokens, 512, 64);
        check_call(&m, &c, all);
        /* Products of little depth store in another way. */
        if (!all || i % 8 == 7) check_call(&m, &shallow, all);
        /* Deep ones of so many tokens are shared by four. */
        kn_gen_config deep = product(_i, tokens, 512, 16384);
        if (tokens > 128 && (all || _i % 4 == 0)) check_call(&m, &deep, all && i % 4 == 3);
    }
    kn_free(m.program);
    judge();
}
END_TEST

static const char *const targets[] = {"h200", "a100"};

START_TEST(products_by_mma) {
    static const int64_t sizes[][3] = {{200, 136, 72}, {33, 129, 65}, {40, 24, 100}, {7, 1000, 40}};
    machine m = machine_of(targets[_i]);
    state = (uint64_t)_i;
    for (int i = 0; i < (all ? 400 : 4); i++) {
        const int64_t *s = sizes[draw(4)];
        kn_gen_config c = product((int)draw(WAYS), s[0], s[1], s[2]);
        c.options.gemm.math = (int32_t)draw(3);
        c.gap = (int)draw(3);
        if (draw(3) == 0) {
            c.op = "grouped_gemm";
            c.groups = 5;
            c.swapped &= 1;
            c.id_dtype = draw(2) ? KN_I64 : KN_I32;
            c.options.grouped.ragged = (int32_t)draw(2);
        }
        if (is_mine((uint64_t)i)) check_call(&m, &c, false);
    }
    kn_free(m.program);
    judge();
}
END_TEST

/* ---- operations -------------------------------------------------------------------------------------------------- */

START_TEST(operations_with_drawn_options) {
    const char *op = operations[_i / 2];
    machine m = machine_of(targets[_i % 2]);
    state = (uint64_t)_i;
    for (int i = 0; i < (all ? 60 : 1); i++) {
        kn_gen_config c = draw_call(op);
        if (is_mine((uint64_t)i)) check_call(&m, &c, all && i % 4 == 0);
    }
    kn_free(m.program);
    judge();
}
END_TEST

/* Generic kernels of experts are the largest: tiles for many rows that are taken as halves where rows are few. */
START_TEST(experts_of_any_count) {
    machine m = machine_of("h200");
    kn_gen_config c = kn_gen_defaults("routed_experts_backward");
    c.tokens = 256, c.hidden = 512, c.inner = 256, c.experts = c.local_experts = 64, c.top_k = 4;
    c.dtype = c.out_dtype = _i & 1 ? KN_BF16 : KN_F32;
    c.options.routed.math = _i & 2 ? KILN_MATH_FAST : KILN_MATH_BALANCED;
    c.options.routed.activation = (kiln_activation){.alpha = 1.702, .limit = 7, .offset = 1};
    if (_i & 4)
        c.absent &= ~((uint64_t)1 << kn_gen_arg(c.op, "saved_gate") | (uint64_t)1 << kn_gen_arg(c.op, "saved_up"));
    if (all || _i == 0 || _i == 6) check_call(&m, &c, false);
    kn_free(m.program);
    judge();
}
END_TEST

static TCase *add_case(Suite *s, const char *name) {
    TCase *t = tcase_create(name);
    tcase_add_checked_fixture(t, begin, NULL);
    tcase_set_timeout(t, 7200);
    suite_add_tcase(s, t);
    return t;
}

int main(void) {
    Suite *s = suite_create("ops/gemm_table");
    TCase *wgmma = add_case(s, "wgmma"), *mma = add_case(s, "mma"), *whole = add_case(s, "operations");
    tcase_add_loop_test(wgmma, products_by_wgmma, 0, WAYS_16_BIT);
    tcase_add_loop_test(mma, products_by_mma, 0, 2);
    tcase_add_loop_test(whole, operations_with_drawn_options, 0, 2 * OPERATIONS);
    tcase_add_loop_test(whole, experts_of_any_count, 0, 8);
    return kn_run_suite(s);
}
