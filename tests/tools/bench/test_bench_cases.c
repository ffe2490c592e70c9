/* tools/kiln/bench/bench_cases.c, bench_pattern.c: case files and contents of tensors. */
#include "bench/bench_pattern.h"
#include "support/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static kt_bench_cases cases;

static void free_cases(void) {
    kt_bench_cases_free(&cases);
}

/* Read `text` as a case file. */
static int read_text(const char *text, const char *op) {
    char path[] = "/tmp/kiln-cases-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    kt_bench_cases_free(&cases);
    int code = kt_bench_cases_read(path, op, &cases);
    unlink(path);
    return code;
}

START_TEST(has_the_benchmarks_cases_built_in) {
    static const char *const ops[] = {"load_balance_backward", "router_backward", "expert_mlp_backward",
                                      "moe_layer_backward", "routed_experts_backward"};
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(kt_bench_cases_read(NULL, ops[i], &cases), KT_GOOD);
        ck_assert_uint_eq(cases.n, 16);
        ck_assert_double_gt(cases.item[0].best_public_us, 0);
        kt_bench_cases_free(&cases);
    }
    ck_assert_int_eq(kt_bench_cases_read(NULL, "expert_mlp_backward", &cases), KT_GOOD);
    ck_assert_str_eq(cases.item[4].name, "B=997 T=128");
    ck_assert_int_eq(cases.item[4].size['F' - 'A'], 14336);
    ck_assert_double_eq(kt_bench_tensor_flops(&cases, "NVIDIA H200", 1), 7.9e14);
    ck_assert_double_eq(kt_bench_tensor_flops(&cases, "Another", 1), 1);
    kt_bench_cases_free(&cases);
}
END_TEST

START_TEST(describes_the_tensors_of_a_case) {
    uint32_t transposed;
    kt_tensors tensors;
    void *options;
    ck_assert_int_eq(read_text("{\"groups\": [{\"op\": \"gemm\", \"dtypes\": {\"a\": \"f16\"}, \"cases\": [{\"M\": 3, "
                               "\"N\": 4, \"K\": 5, \"transposed\": [\"b\"]}]}]}",
                               NULL),
                     KT_GOOD);
    ck_assert_int_eq(kt_bench_case_options(&cases.item[0], &options), KT_GOOD);
    ck_assert_int_eq(kt_bench_case_tensors(&cases.item[0], options, &tensors, &transposed), KT_GOOD);
    ck_assert_uint_eq(transposed, 2);
    ck_assert_str_eq(tensors.tensor[0].dtype->name, "f16");
    ck_assert_str_eq(tensors.tensor[2].dtype->name, "f16");
    ck_assert_int_eq(tensors.tensor[1].shape[0], 5);
    free(options);
    kt_bench_cases_free(&cases);
    ck_assert_int_eq(kt_bench_cases_read(NULL, "router_backward", &cases), KT_GOOD);
    const kt_op *op = cases.item[0].op;
    ck_assert(kt_bench_has_arg(&cases.item[0], (int)(kt_op_arg(op, "grad_router_logits") - op->args)));
    ck_assert(!kt_bench_has_arg(&cases.item[0], (int)(kt_op_arg(op, "token_mask") - op->args)));
    ck_assert(kt_bench_has_arg(&cases.item[0], (int)(kt_op_arg(op, "grad_gate_weight") - op->args)));
    ck_assert(!kt_bench_has_arg(&cases.item[0], (int)(kt_op_arg(op, "grad_logits") - op->args)));
}
END_TEST

START_TEST(refuses_what_is_no_case_file) {
    static const struct {
        const char *text, *op, *sentence;
    } bad[] = {
        {"{", NULL, ":1: "},
        {"[]", NULL, "no list \"groups\""},
        {"{\"groups\": [{\"op\": \"gemm\"}]}", NULL, "needs \"op\" and \"cases\""},
        {"{\"groups\": [{\"op\": \"gem\", \"cases\": []}]}", NULL, "gem"},
        {"{\"groups\": [{\"op\": \"gemm\", \"cases\": []}]}", NULL, "has no case"},
        {"{\"groups\": [{\"op\": \"gemm\", \"cases\": [{\"M\": 1}]}]}", "router_backward",
         "no case of router_backward"},
        {"{\"groups\": [{\"op\": \"gemm\", \"cases\": [{\"M\": -1}]}]}", NULL, "axis M of gemm is no size"},
        {"{\"groups\": [{\"op\": \"gemm\", \"cases\": [{\"M\": 1, \"transposed\": [\"x\"]}]}]}", NULL,
         "names x, which is no argument of gemm"},
        {"{\"groups\": [{\"op\": \"gemm\", \"with\": [\"c\"], \"cases\": [{\"M\": 1}]}]}", NULL, "names c"},
        {"{\"groups\": [{\"op\": \"gemm\", \"dtypes\": {\"c\": \"f16\"}, \"cases\": [{\"M\": 1}]}]}", NULL,
         "\"dtypes\" names c, which is no argument of gemm"},
        {"{\"groups\": [{\"op\": \"gemm\", \"dtype\": {\"a\": \"f16\"}, \"cases\": [{\"M\": 1}]}]}", NULL,
         "a group of gemm has no \"dtype\""},
        {"{\"groups\": [{\"op\": \"gemm\", \"cases\": [{\"M\": 1, \"nam\": \"x\"}]}]}", NULL,
         "a case of gemm has no \"nam\""},
        {"{\"groups\": [{\"op\": \"gemm\", \"cases\": [{\"M\": 1, \"H\": 5}]}]}", NULL, "gemm has no axis H"},
        {"{\"groups\": [{\"op\": \"gemm\", \"axes\": {\"m\": 1}, \"cases\": [{\"M\": 1}]}]}", NULL,
         "the axes of gemm have no \"m\""},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_int_eq(read_text(bad[i].text, bad[i].op), KT_USAGE);
        ck_assert_msg(strstr(kt_message(), bad[i].sentence) != NULL, "\"%s\" does not say \"%s\"", kt_message(),
                      bad[i].sentence);
    }
}
END_TEST

/* ---- contents ---------------------------------------------------------------------------------------------------- */

START_TEST(stores_the_nearest_value) {
    static const char *const names[] = {"bf16", "f16", "f32"};
    kt_random random = {5};
    for (int d = 0; d < 3; d++) {
        const kt_dtype *t = kt_dtype_named(names[d]);
        double u = d == 0 ? 0x1p-8 : d == 1 ? 0x1p-11 : 0x1p-24;
        for (int i = 0; i < 2000; i++) {
            double v = kt_random_normal(&random) * (i % 3 ? 1 : 1e-4);
            char element[8];
            kt_bench_store(t, element, 0, v);
            double error = fabs(kt_element(t, element, 0) - v);
            ck_assert_double_le(error, u * 1.0000001 * fmax(fabs(v), 0x1p-14));
        }
    }
    const kt_dtype *f16 = kt_dtype_named("f16"), *bf16 = kt_dtype_named("bf16"), *i64 = kt_dtype_named("i64");
    uint16_t half[3];
    kt_bench_store(f16, half, 0, 65519);
    kt_bench_store(f16, half, 1, 65520);
    kt_bench_store(f16, half, 2, -0x1p-24);
    ck_assert_uint_eq(half[0], 0x7BFF);
    ck_assert_uint_eq(half[1], 0x7C00);
    ck_assert_uint_eq(half[2], 0x8001);
    kt_bench_store(bf16, half, 0, 1 + 0x1p-8); /* a tie: to even */
    kt_bench_store(bf16, half, 1, 1 + 0x1.8p-7);
    ck_assert_uint_eq(half[0], 0x3F80);
    ck_assert_uint_eq(half[1], 0x3F82);
    int64_t id;
    kt_bench_store(i64, &id, 0, -1);
    ck_assert_int_eq(id, -1);
}
END_TEST

static double at(const kt_bench_patterns *p, const char *name, uint64_t i) {
    const kt_bench_pattern *x = &p->arg[kt_op_arg(p->op, name) - p->op->args];
    return kt_element(x->dtype, x->block, i % x->period);
}

/* The patterns of the built-in case `n` of `op`. */
static void make_patterns(const char *op, size_t n, kt_bench_patterns *p, kt_tensors *tensors) {
    void *options;
    uint32_t transposed;
    ck_assert_int_eq(kt_bench_cases_read(NULL, op, &cases), KT_GOOD);
    ck_assert_int_eq(kt_bench_case_options(&cases.item[n], &options), KT_GOOD);
    ck_assert_int_eq(kt_bench_case_tensors(&cases.item[n], options, tensors, &transposed), KT_GOOD);
    ck_assert_int_eq(kt_bench_patterns_make(p, tensors), KT_GOOD);
    free(options);
}

START_TEST(saved_tensors_agree_with_each_other) {
    kt_bench_patterns p = {0};
    kt_tensors tensors;
    make_patterns("expert_mlp_backward", 4, &p, &tensors);
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < 5000; i++) {
        double g = at(&p, "w1_output", i), u = at(&p, "up_output", i), s = g / (1 + exp(-g));
        ck_assert_double_le(fabs(at(&p, "gate_output", i) - s), 0x1p-8 * fabs(s));
        ck_assert_double_le(fabs(at(&p, "gated_output", i) - s * u), 0x1p-8 * fabs(s * u));
        double w = at(&p, "w1_weight", i) / .02;
        sum += w;
        squares += w * w;
    }
    ck_assert_double_lt(fabs(sum / 5000), .05);
    ck_assert_double_lt(fabs(squares / 5000 - 1), .05);
    for (uint64_t i = 1; i < 128; i++) ck_assert_double_lt(at(&p, "token_indices", i - 1), at(&p, "token_indices", i));
    ck_assert_double_lt(at(&p, "token_indices", 127), 997);
    kt_bench_patterns_free(&p);
}
END_TEST

START_TEST(routing_is_a_choice_of_the_best) {
    kt_bench_patterns p = {0};
    kt_tensors tensors;
    make_patterns("router_backward", 0, &p, &tensors);
    for (uint64_t t = 0; t < 300; t++) {
        double row = 0, sum = 0, least = 2;
        bool chosen[128] = {false};
        for (uint64_t k = 0; k < 8; k++) {
            int e = (int)at(&p, "selected_experts", 8 * t + k);
            ck_assert(!chosen[e]);
            chosen[e] = true;
            double s = at(&p, "routing_probs", 128 * t + (uint64_t)e);
            sum += s;
            least = fmin(least, s);
        }
        for (uint64_t e = 0; e < 128; e++) {
            double s = at(&p, "routing_probs", 128 * t + e);
            row += s;
            if (!chosen[e]) ck_assert_double_le(s, least);
        }
        ck_assert_double_lt(fabs(row - 1), 1e-5);
        ck_assert_double_lt(fabs(at(&p, "routing_weights_sum", t) - sum), 1e-6);
    }
    kt_bench_patterns_free(&p);
}
END_TEST

int main(void) {
    Suite *s = suite_create("tools/bench_cases");
    TCase *t = tcase_create("bench_cases");
    tcase_add_checked_fixture(t, NULL, free_cases);
    tcase_add_test(t, has_the_benchmarks_cases_built_in);
    tcase_add_test(t, describes_the_tensors_of_a_case);
    tcase_add_test(t, refuses_what_is_no_case_file);
    tcase_add_test(t, stores_the_nearest_value);
    tcase_add_test(t, saved_tensors_agree_with_each_other);
    tcase_add_test(t, routing_is_a_choice_of_the_best);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
