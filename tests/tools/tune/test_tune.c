/* tools/kiln/tune_*.c with a timer that reads its times from a script: the fastest candidate gets into the file, the
 * library follows the file, and only then. */
#include "tune/tune.h"

#include "support/suite.h"

#include "kiln/kiln_tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the timer says: candidate number `fast` takes `fast_us`, everything else 100 us. */
typedef struct script {
    size_t fast;
    char name[64]; /* its name */
    double fast_us;
    size_t calls, candidates;
} script;

static int scripted(void *user, kt_bench_subject *subjects, size_t n) {
    script *s = user;
    s->calls++;
    s->candidates += n;
    for (size_t i = 0; i < n; i++) {
        double us = i == s->fast ? s->fast_us : 100;
        if (i == s->fast) snprintf(s->name, sizeof s->name, "%s", subjects[i].name);
        subjects[i].cold.events = kt_bench_stats_of(&us, 1);
    }
    return KT_GOOD;
}

static char library[1024], path[64];
static kt_tune t;
static script how;

static void begin(void) {
    snprintf(library, sizeof library, "%s/%s", getenv("KN_BUILD_DIR"), KILN_SONAME);
    snprintf(path, sizeof path, "/tmp/kn_test_tune_%d", (int)getpid());
    how = (script){.fast = 3, .fast_us = 80};
    t = (kt_tune){.bench = {.library = library, .iterations = 1, .report = json_object()},
                  .device = "null",
                  .top = 8,
                  .measure = scripted,
                  .measure_user = &how};
    setenv("KILN_LIBNVJITLINK", "off", 1);
    setenv("KILN_CACHE_DIR", "off", 1);
}
static void end(void) {
    kt_tune_close(&t);
    unlink(path);
}

static void cases_of(const char *axes) {
    const char *words[8] = {"gemm"}, *dtypes[] = {"a=bf16"};
    char text[64];
    kt_list operands = {words, 1}, types = {dtypes, 1}, none = {0};
    snprintf(text, sizeof text, "%s", axes);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) words[operands.n++] = word;
    const kt_tune_call call = {&operands, &types, &none, &none};
    ck_assert_msg(kt_tune_cases_of_call(&call, &t.bench.cases) == KT_GOOD, "%s", kt_message());
}

static void tune(void) {
    ck_assert_msg(kt_tune_open(&t) == KT_GOOD, "%s", kt_message());
    for (size_t i = 0; i < t.bench.cases.n; i++)
        ck_assert_msg(kt_tune_case(&t, &t.bench.cases.item[i]) == KT_GOOD, "%s", kt_message());
    ck_assert_msg(kt_tune_write(&t, path) == KT_GOOD, "%s", kt_message());
}

/* The first product of the plan of a context that follows `file`. Free *plan. */
static json_t *chosen_with(const char *file, json_t **plan) {
    kt_library *lib = t.bench.lib;
    const kt_bench_case *c = &t.bench.cases.item[0];
    kiln_context_options o = {.struct_size = sizeof o, .tuning = file};
    kt_tensors tensors;
    void *ctx, *options;
    uint32_t transposed;
    ck_assert_int_eq(kt_bench_case_options(c, &options), KT_GOOD);
    ck_assert_int_eq(kt_bench_case_tensors(c, options, &tensors, &transposed), KT_GOOD);
    ck_assert_int_eq(kt_status(lib, KT_CALL(lib, "kiln_context_create", KT_STR("null"), KT_PTR(&o), KT_PTR(&ctx))),
                     KT_GOOD);
    ck_assert_int_eq(kt_tensors_describe(&tensors, lib, ctx), KT_GOOD);
    int code = KT_CALL_JSON(lib, plan, "kiln_plan_json", KT_PTR(ctx), KT_STR(c->op->name), KT_PTR(tensors.on_device),
                            KT_I32(c->op->n_args), KT_PTR(options), KT_U32(KILN_PLAN_LIST | KILN_PLAN_EXPLAIN));
    (void)KT_CALL(lib, "kiln_context_destroy", KT_PTR(ctx));
    kt_tensors_free(&tensors, NULL, NULL);
    free(options);
    return code == KT_GOOD ? json_array_get(json_object_get(*plan, "products"), 0) : NULL;
}

static const char *text_of(const json_t *o, const char *key) {
    return json_string_value(json_object_get(o, key));
}

START_TEST(the_fastest_candidate_gets_into_the_file_and_the_library_follows_it) {
    json_t *with, *without;
    cases_of("M=64 N=512 K=1024");
    tune();
    ck_assert_uint_eq(t.n, 1);
    ck_assert_uint_eq(how.calls, 1);
    ck_assert_uint_eq(how.candidates, 8); /* the most that --top allows */
    ck_assert_str_eq(t.product[0].candidate[t.product[0].best].name, how.name);
    json_t *tuned = chosen_with(path, &with), *plain = chosen_with("", &without);
    ck_assert_str_eq(text_of(tuned, "chosen"), how.name);
    ck_assert_str_eq(text_of(tuned, "by"), "tuning");
    ck_assert_str_eq(text_of(plain, "by"), "cost");
    ck_assert_str_eq(text_of(plain, "chosen"), t.product[0].candidate[t.product[0].planned].name);
    ck_assert_str_ne(text_of(plain, "chosen"), how.name);
    /* The choice is part of the kernel, and so of its key. */
    const char *key[2];
    for (int i = 0; i < 2; i++)
        key[i] = text_of(json_array_get(json_object_get(i ? with : without, "kernels"), 0), "key");
    ck_assert_str_ne(key[0], key[1]);
    json_decref(with);
    json_decref(without);
}
END_TEST

START_TEST(a_file_that_names_no_possible_candidate_is_an_error) {
    static const char *const names[] = {"pingpong-128x72", "pingpong-128x32", "warp-8x8"};
    static const char *const says[] = {"none of its", "not possible", "none of its"};
    json_t *plan = NULL;
    cases_of("M=64 N=512 K=1024");
    tune();
    for (int i = 0; i < 3; i++) {
        FILE *f = fopen(path, "w");
        fprintf(f, "kiln-tuning 1\ngpu NVIDIA H200\n\nproduct %s %s\n", t.product[0].key, names[i]);
        fclose(f);
        ck_assert_ptr_null(chosen_with(path, &plan));
        ck_assert_msg(strstr(kt_message(), says[i]) && strstr(kt_message(), names[i]) && strstr(kt_message(), path) &&
                          strstr(kt_message(), ":4 "),
                      "%s", kt_message());
    }
}
END_TEST

START_TEST(a_gain_within_the_noise_changes_nothing) {
    how.fast_us = 99.5;
    cases_of("M=64 N=512 K=1024");
    tune();
    ck_assert_uint_eq(t.product[0].best, t.product[0].planned);
}
END_TEST

/* A call whose products were measured already, and one that has only one way, add nothing. */
START_TEST(what_is_known_is_not_measured_again) {
    static const char line[] = "{\"v\":1,\"op\":\"gemm\",\"args\":{\"a\":{\"dtype\":\"bf16\",\"shape\":[64,1024]},"
                               "\"b\":{\"dtype\":\"bf16\",\"shape\":[1024,512]},\"d\":{\"dtype\":\"%s\",\"shape\":"
                               "[64,512]}},\"options\":{}}\n";
    static const char portable[] = "{\"v\":1,\"op\":\"gemm\",\"args\":{\"a\":{\"dtype\":\"f32\",\"shape\":[64,1024]},"
                                   "\"b\":{\"dtype\":\"f32\",\"shape\":[1024,512]},\"d\":{\"dtype\":\"f32\",\"shape\":"
                                   "[64,512]}},\"options\":{\"math\":\"accurate\"}}\n";
    FILE *f = fopen(path, "w");
    fprintf(f, line, "bf16");
    fprintf(f, line, "bf16");
    fputs("\n", f);
    fputs(portable, f);
    fprintf(f, line, "f32");
    fclose(f);
    ck_assert_msg(kt_tune_cases_of_record(path, &t.bench.cases) == KT_GOOD, "%s", kt_message());
    ck_assert_uint_eq(t.bench.cases.n, 4);
    tune();
    ck_assert_uint_eq(t.n, 2);
    ck_assert_uint_eq(how.calls, 2);
    ck_assert_str_ne(t.product[0].key, t.product[1].key); /* the type of the result is part of it */
}
END_TEST

START_TEST(all_products_of_an_operation_are_tuned) {
    static const char *const wanted[] = {"expert_mlp_da", "expert_mlp_dw", "expert_mlp_dx"};
    const char *words[] = {"expert_mlp_backward", "B=64", "T=64", "H=256", "F=512"};
    kt_list operands = {words, 5}, none = {0};
    const kt_tune_call call = {&operands, &none, &none, &none};
    ck_assert_msg(kt_tune_cases_of_call(&call, &t.bench.cases) == KT_GOOD, "%s", kt_message());
    tune();
    ck_assert_uint_eq(t.n, 3);
    for (size_t i = 0; i < 3; i++) ck_assert_str_eq(t.product[i].product, wanted[i]);
}
END_TEST

START_TEST(without_a_gpu_nothing_is_measured) {
    t.measure = NULL;
    cases_of("M=64 N=512 K=1024");
    ck_assert_int_eq(kt_tune_open(&t), KT_USAGE);
    ck_assert_str_eq(kt_message(), "kiln tune measures on a GPU; the device is null");
}
END_TEST

int main(void) {
    Suite *s = suite_create("tools/tune");
    TCase *c = tcase_create("tune");
    tcase_add_checked_fixture(c, begin, end);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, the_fastest_candidate_gets_into_the_file_and_the_library_follows_it);
    tcase_add_test(c, a_file_that_names_no_possible_candidate_is_an_error);
    tcase_add_test(c, a_gain_within_the_noise_changes_nothing);
    tcase_add_test(c, what_is_known_is_not_measured_again);
    tcase_add_test(c, all_products_of_an_operation_are_tuned);
    tcase_add_test(c, without_a_gpu_nothing_is_measured);
    suite_add_tcase(s, c);
    return kn_run_suite(s);
}
