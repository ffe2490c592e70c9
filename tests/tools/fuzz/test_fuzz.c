/* tools/kiln/fuzz_*.c: what is drawn, how it lies in memory, what is noticed, what is kept. That wrong kernels are
 * found: tests/planted. */
#include "fuzz/fuzz_known.h"
#include "fuzz/fuzz_save.h"
#include "support/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static kt_library *lib;
static kt_fuzz_machine machine;

static void begin(void) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", getenv("KN_BUILD_DIR"), KILN_SONAME);
    ck_assert_msg(kt_library_open(path, &lib) == KT_GOOD, "%s", kt_message());
    ck_assert_msg(kt_fuzz_machine_open(lib, "sim", &machine) == KT_GOOD, "%s", kt_message());
}

static void end(void) {
    kt_fuzz_machine_close(&machine);
    kt_library_close(lib);
}

static kt_fuzz_limits limits_of(double work) {
    kt_fuzz_limits limits = {.work = work};
    for (int i = 0; i < 26; i++) limits.fixed[i] = -1;
    return limits;
}

static kt_fuzz_case draw(const char *op, uint64_t number) {
    kt_fuzz_limits limits = limits_of(2e5);
    return kt_fuzz_draw(kt_op_find(op), 3, number, &limits);
}

static char *text_of(const kt_fuzz_case *c) {
    json_t *json = kt_fuzz_case_to_json(c);
    char *text = json_dumps(json, JSON_SORT_KEYS);
    json_decref(json);
    return text;
}

/* ---- cases ------------------------------------------------------------------------------------------------------- */

START_TEST(a_seed_draws_the_same_case_again) {
    for (int op = 0; kt_op_at(op); op++) {
        kt_fuzz_limits limits = limits_of(1e6);
        for (uint64_t number = 0; number < 50; number++) {
            kt_fuzz_case a = kt_fuzz_draw(kt_op_at(op), 5, number, &limits);
            kt_fuzz_case b = kt_fuzz_draw(kt_op_at(op), 5, number, &limits);
            kt_fuzz_case other = kt_fuzz_draw(kt_op_at(op), 6, number, &limits);
            char *text = text_of(&a), *again = text_of(&b), *different = text_of(&other);
            ck_assert_str_eq(text, again);
            ck_assert_str_ne(text, different);
            free(text);
            free(again);
            free(different);
            kt_fuzz_case_free(&a);
            kt_fuzz_case_free(&b);
            kt_fuzz_case_free(&other);
        }
    }
}
END_TEST

START_TEST(a_case_survives_json) {
    for (int op = 0; kt_op_at(op); op++) {
        for (uint64_t number = 0; number < 50; number++) {
            kt_fuzz_case a = draw(kt_op_at(op)->name, number), b;
            json_t *json = kt_fuzz_case_to_json(&a);
            ck_assert_msg(kt_fuzz_case_from_json(json, &b) == KT_GOOD, "%s", kt_message());
            char *text = text_of(&a), *again = text_of(&b);
            ck_assert_str_eq(text, again);
            free(text);
            free(again);
            json_decref(json);
            kt_fuzz_case_free(&a);
            kt_fuzz_case_free(&b);
        }
    }
}
END_TEST

START_TEST(bad_json_is_refused) {
    static const char *const texts[] = {
        "{}",
        "{\"op\": \"gemm\"}",
        "{\"op\": \"gem\", \"seed\": \"1\"}",
        "{\"op\": \"gemm\", \"seed\": \"1\", \"values\": \"odd\"}",
        "{\"op\": \"gemm\", \"seed\": \"1\", \"values\": \"ties\", \"ids\": \"uniform\", \"row\": \"finite\", "
        "\"path\": "
        "\"auto\", \"options\": {}, \"tensors\": {\"e\": {\"dtype\": \"bf16\"}}}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_t *json = json_loads(texts[i], 0, NULL);
        kt_fuzz_case c;
        ck_assert_ptr_nonnull(json);
        ck_assert_int_eq(kt_fuzz_case_from_json(json, &c), KT_USAGE);
        kt_fuzz_case_free(&c);
        json_decref(json);
    }
}
END_TEST

/* Sizes that were asked for stay, work stays within its limit, and all that matters is drawn. */
START_TEST(draws_cover_what_they_should) {
    kt_fuzz_limits limits = limits_of(1e6);
    limits.fixed['H' - 'A'] = 40;
    enum { N = 2000 };
    int no_tokens = 0, odd = 0, skipped = 0, wild = 0, not_finite = 0, adds = 0, gaps = 0, aligned = 0;
    for (uint64_t number = 0; number < N; number++) {
        kt_fuzz_case c = kt_fuzz_draw(kt_op_find("moe_layer_backward"), 1, number, &limits);
        ck_assert_int_eq(c.size['H' - 'A'], 40);
        ck_assert_double_le(kt_fuzz_case_work(&c), 1e6);
        ck_assert_int_le(c.size['K' - 'A'], c.size['E' - 'A']);
        no_tokens += c.size['T' - 'A'] == 0;
        odd += c.size['I' - 'A'] % 2 != 0;
        aligned += c.size['I' - 'A'] % 64 == 0;
        skipped += c.skip_percent > 0;
        wild += c.wild_percent > 0;
        not_finite += c.poison != KT_FUZZ_FINITE;
        adds += json_object_get(c.settings, "accumulate") != NULL;
        gaps += c.layout[0].gap > 0;
        kt_fuzz_case_free(&c);
    }
    const int least[] = {no_tokens, odd, aligned, skipped, wild, not_finite, adds, gaps};
    for (size_t i = 0; i < sizeof least / sizeof *least; i++) ck_assert_msg(least[i] > N / 40, "%zu: %d", i, least[i]);
}
END_TEST

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static kt_fuzz_memory *make_memory(const kt_fuzz_case *c) {
    kt_fuzz_memory *m = calloc(1, sizeof *m);
    ck_assert_msg(kt_fuzz_memory_make(c, lib, machine.ctx[KT_FUZZ_PATH_AUTO][0], m) == KT_GOOD, "%s", kt_message());
    ck_assert_msg(kt_fuzz_memory_workspace(m) == KT_GOOD, "%s", kt_message());
    ck_assert_int_eq(kt_fuzz_memory_reset(m, 0xFF), KT_GOOD);
    return m;
}

static void free_memory(kt_fuzz_memory *m) {
    kt_fuzz_memory_free(m);
    free(m);
}

/* A product with gaps in all of its matrices. */
static kt_fuzz_case spread_product(void) {
    kt_fuzz_case c = draw("grouped_gemm", 0);
    const char letters[] = "MNKG";
    for (int i = 0; i < 4; i++) c.size[letters[i] - 'A'] = 24;
    for (int i = 0; i < c.op->n_args; i++)
        c.layout[i] = (kt_fuzz_layout){.gap = i == 2 ? 0 : 5, .shift = 3, .byte_offset = 2, .at_end = i % 2};
    return c;
}

static int changed(kt_fuzz_memory *m, unsigned char *byte, bool *input) {
    unsigned char kept = *byte;
    *byte ^= 0x10;
    int code = kt_fuzz_memory_check(m, input);
    *byte = kept;
    return code;
}

START_TEST(every_byte_but_outputs_is_watched) {
    kt_fuzz_case c = spread_product();
    kt_fuzz_memory *m = make_memory(&c);
    bool input;
    ck_assert_int_eq(kt_fuzz_memory_check(m, &input), KT_GOOD);
    for (int i = 0; i < c.op->n_args; i++) {
        const DLTensor *t = &m->on_host[i];
        unsigned char *first = kt_problem_element(t, 0), *last = kt_problem_element(t, kt_problem_elements(t) - 1);
        int width = t->dtype.bits / 8;
        bool output = kt_fuzz_is_output(m, i);
        ck_assert_int_eq(changed(m, first, &input), output ? KT_GOOD : KT_CHECK);
        ck_assert_int_eq(input, !output);
        ck_assert_int_eq(changed(m, last + width - 1, &input), output ? KT_GOOD : KT_CHECK);
        ck_assert_int_eq(changed(m, first - 1, &input), KT_CHECK);
        ck_assert(!input);
        if (last + width < m->block[i].host + m->block[i].bytes) {
            ck_assert_int_eq(changed(m, last + width, &input), KT_CHECK);
            ck_assert(!input);
        }
        if (!m->c->layout[i].gap) continue;
        unsigned char *row_end = kt_problem_element(t, t->shape[t->ndim - 1] - 1);
        ck_assert_int_eq(changed(m, row_end + width, &input), KT_CHECK);
        ck_assert(input == !output); /* between an input's elements: as good as in it */
    }
    unsigned char *workspace = ((kiln_common_options *)m->options)->workspace;
    if (workspace > m->workspace.host) ck_assert_int_eq(changed(m, workspace - 1, &input), KT_CHECK);
    ck_assert_int_eq(changed(m, workspace, &input), KT_GOOD);
    free_memory(m);
    kt_fuzz_case_free(&c);
}
END_TEST

/* Outputs that are overwritten and the workspace hold the poison; outputs that are added to, and inputs, do not. */
START_TEST(poison_is_where_it_should_be) {
    kt_fuzz_case c = spread_product();
    kt_fuzz_memory *m = make_memory(&c);
    ck_assert_int_eq(kt_fuzz_memory_reset(m, 0x4B), KT_GOOD);
    int d = kt_problem_arg("grouped_gemm", "d");
    bool adds = json_object_get(c.settings, "accumulate") != NULL;
    ck_assert(!adds);
    ck_assert_int_eq(*(unsigned char *)kt_problem_element(&m->on_host[d], 7), 0x4B);
    ck_assert_int_eq(*(unsigned char *)((kiln_common_options *)m->options)->workspace, 0x4B);
    free_memory(m);
    json_object_set_new(c.settings, "accumulate", json_pack("[s]", "d"));
    m = make_memory(&c);
    double before = kt_problem_get(&m->on_host[d], 7);
    ck_assert(isfinite(before) && before != 0);
    ck_assert_int_eq(kt_fuzz_memory_reset(m, 0x4B), KT_GOOD);
    ck_assert_double_eq(kt_problem_get(&m->on_host[d], 7), before);
    free_memory(m);
    kt_fuzz_case_free(&c);
}
END_TEST

/* ---- verdicts ---------------------------------------------------------------------------------------------------- */

START_TEST(right_calls_pass) {
    static const char *const ops[] = {"load_balance_backward", "gemm", "grouped_gemm"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        for (uint64_t number = 0; number < 3; number++) {
            kt_fuzz_case c = draw(ops[i], number);
            kt_fuzz_finding finding;
            ck_assert_msg(kt_fuzz_run(&machine, &c, &finding) == KT_GOOD, "%s", kt_message());
            ck_assert_msg(finding.kind == KT_FUZZ_PASSED, "%s %d: %s", ops[i], (int)number, finding.message);
            kt_fuzz_case_free(&c);
        }
    }
}
END_TEST

/* A slice that is 2 % too large, where sizes are below what the library's own Frobenius rule waits for. */
START_TEST(small_slices_are_judged) {
    kt_fuzz_case c = spread_product();
    c.dtype[0] = c.dtype[1] = kt_dtype_named("bf16");
    c.dtype[3] = kt_dtype_named("f32");
    c.scale = 1;
    c.values = KT_VALUES_NORMAL;
    c.poison = KT_FUZZ_FINITE;
    json_object_clear(c.settings);
    json_object_set_new(c.settings, "ragged", json_string("k"));
    c.size['G' - 'A'] = 2;
    c.size['K' - 'A'] = 60;
    kt_fuzz_memory *m = make_memory(&c);
    kt_fuzz_oracle oracle;
    ck_assert_msg(kt_fuzz_oracle_make(m, &oracle) == KT_GOOD, "%s", kt_message());
    const DLTensor *d = &m->on_host[3];
    int64_t n = kt_problem_elements(d);
    for (int wrong = 0; wrong < 2; wrong++) {
        for (int64_t i = 0; i < n; i++) kt_problem_put(d, i, oracle.exact[0][i] * (wrong && i >= n / 2 ? 1.02 : 1));
        int arg = -1;
        double worst = 0;
        ck_assert_int_eq(kt_fuzz_oracle_judge(&oracle, m, &arg, &worst), wrong ? KT_CHECK : KT_GOOD);
        ck_assert_int_eq(arg, 3);
    }
    kt_fuzz_oracle_free(&oracle);
    free_memory(m);
    kt_fuzz_case_free(&c);
}
END_TEST

/* ---- what is kept ------------------------------------------------------------------------------------------------ */

START_TEST(a_saved_case_is_the_same_case) {
    char path[] = "/tmp/kiln-fuzz-XXXXXX";
    close(mkstemp(path));
    kt_fuzz_case c = draw("router_backward", 4), loaded;
    ck_assert_msg(kt_fuzz_save(&machine, &c, path) == KT_GOOD, "%s", kt_message());
    ck_assert_msg(kt_fuzz_load(path, &loaded) == KT_GOOD, "%s", kt_message());
    char *text = text_of(&c), *again = text_of(&loaded);
    ck_assert_str_eq(text, again);
    free(text);
    free(again);
    kt_fuzz_case_free(&loaded);
    kt_fuzz_case_free(&c);
    unlink(path);
}
END_TEST

static int read_ledger(const char *text, json_t **out) {
    char path[] = "/tmp/kiln-known-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    int code = kt_fuzz_known_read(path, out);
    unlink(path);
    return code;
}

START_TEST(the_ledger_knows_what_it_says) {
    kt_fuzz_case c = draw("gemm", 0);
    kt_fuzz_finding f = {.kind = KT_FUZZ_WRONG, .arg = 2, .message = "d[1, 2] is off"};
    static const struct {
        const char *row;
        bool known;
    } rows[] = {
        {"{\"op\": \"gemm\", \"why\": \"x\"}", true},
        {"{\"op\": \"grouped_gemm\", \"why\": \"x\"}", false},
        {"{\"kind\": \"wrong\", \"argument\": \"d\", \"why\": \"x\"}", true},
        {"{\"kind\": \"wrong\", \"argument\": \"a\", \"why\": \"x\"}", false},
        {"{\"kind\": \"fault\", \"why\": \"x\"}", false},
        {"{\"message\": \"is off\", \"why\": \"x\"}", true},
        {"{\"message\": \"is on\", \"why\": \"x\"}", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[200];
        json_t *ledger;
        snprintf(text, sizeof text, "[%s]", rows[i].row);
        ck_assert_msg(read_ledger(text, &ledger) == KT_GOOD, "%s", kt_message());
        ck_assert_msg((kt_fuzz_known_find(ledger, &c, &f) != NULL) == rows[i].known, "%s", rows[i].row);
        json_decref(ledger);
    }
    static const char *const bad[] = {"{}",
                                      "[1]",
                                      "[{\"op\": \"gemm\"}]",
                                      "[{\"why\": \"x\"}]",
                                      "[{\"op\": \"gemm\", \"why\": \"\"}]",
                                      "[{\"seed\": \"1\", \"why\": \"x\"}]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *ledger;
        ck_assert_msg(read_ledger(bad[i], &ledger) == KT_USAGE, "%s", bad[i]);
        json_decref(ledger);
    }
    kt_fuzz_case_free(&c);
}
END_TEST

int main(void) {
    Suite *s = suite_create("tools/fuzz");
    TCase *t = tcase_create("fuzz");
    tcase_add_checked_fixture(t, begin, end);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, a_seed_draws_the_same_case_again);
    tcase_add_test(t, a_case_survives_json);
    tcase_add_test(t, bad_json_is_refused);
    tcase_add_test(t, draws_cover_what_they_should);
    tcase_add_test(t, every_byte_but_outputs_is_watched);
    tcase_add_test(t, poison_is_where_it_should_be);
    tcase_add_test(t, right_calls_pass);
    tcase_add_test(t, small_slices_are_judged);
    tcase_add_test(t, a_saved_case_is_the_same_case);
    tcase_add_test(t, the_ledger_knows_what_it_says);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
