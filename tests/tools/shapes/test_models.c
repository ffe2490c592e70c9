/* Models by name: the built-in list, and what it gives to calls; the progress line of kiln warm. */
#include "common/report.h"
#include "shapes/models.h"
#include "shapes/sizes.h"
#include "warm/warm_progress.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "support/suite.h"

static json_t *list;
static const json_t *models;

static void setup(void) {
    ck_assert_int_eq(kt_models_read(&list, &models), KT_GOOD);
}

static void teardown(void) {
    json_decref(list);
}

static const json_t *model(const char *name) {
    const json_t *m = NULL;
    ck_assert_msg(kt_models_find(models, name, &m) == KT_GOOD, "%s", kt_message());
    return m;
}

START_TEST(names_are_unique) {
    kt_list names = {0};
    size_t i, k;
    const json_t *m, *alias;
    json_array_foreach(models, i, m) {
        kt_list_add(&names, kt_json_text(m, "model", ""));
        json_array_foreach(json_object_get(m, "aliases"), k, alias) kt_list_add(&names, json_string_value(alias));
    }
    ck_assert_uint_ge(names.n, 49);
    for (i = 0; i < names.n; i++) {
        ck_assert_uint_gt(strlen(names.item[i]), 2);
        for (k = 0; k < i; k++) ck_assert_msg(strcasecmp(names.item[i], names.item[k]) != 0, "%s twice", names.item[i]);
        ck_assert_int_eq(kt_models_find(models, names.item[i], &m), KT_GOOD);
    }
    kt_list_free(&names);
    ck_assert_ptr_eq(model("deepseek-r1"), model("DeepSeek-V3"));
    ck_assert_ptr_eq(model("qwen3-30b-a3b"), model("Qwen3-30B-A3B"));
    ck_assert_int_eq(kt_models_find(models, "Mixtral", &m), KT_USAGE);
    ck_assert_ptr_nonnull(strstr(kt_message(), "Mixtral-8x7B, Mixtral-8x22B are"));
    ck_assert_int_eq(kt_models_find(models, "", &m), KT_USAGE);
}
END_TEST

static void check_names(const kt_sizes *s) {
    static const char *const lists[] = {"with", "without"};
    const json_t *name;
    const char *letter;
    json_t *size;
    size_t k;
    for (int l = 0; l < 2; l++) {
        json_array_foreach(json_object_get(s->base, lists[l]), k, name) {
            ck_assert_msg(kt_op_arg(s->op, json_string_value(name)) != NULL, "%s: %s", s->op->name,
                          json_string_value(name));
        }
    }
    json_object_foreach(json_object_get(s->base, "axes"), letter, size) {
        bool known = false;
        for (int a = 0; a < s->op->n_args; a++) known = known || strchr(s->op->args[a].shape, letter[0]);
        ck_assert_msg(known && json_integer_value(size) > 0, "%s: axis %s", s->op->name, letter);
    }
}

/* Every model's calls are calls: known axes, options and arguments; every size is there. */
START_TEST(every_call_is_valid) {
    int calls = 0, left_out = 0;
    size_t i;
    const json_t *m;
    json_array_foreach(models, i, m) {
        for (int o = 0; kt_op_at(o); o++) {
            const char *why = NULL;
            kt_sizes sizes = {.op = kt_op_at(o)};
            json_t *base = kt_model_call(m, sizes.op, 37, &why);
            if (!base) {
                ck_assert_ptr_nonnull(why);
                left_out++;
                continue;
            }
            ck_assert_ptr_null(why);
            sizes.base = base;
            check_names(&sizes);
            kt_call call;
            ck_assert_msg(kt_sizes_call(&sizes, &call) == KT_GOOD, "%s of %s: %s", sizes.op->name,
                          kt_json_text(m, "model", "?"), kt_message());
            kt_call_free(&call);
            json_decref(base);
            calls++;
        }
    }
    ck_assert_int_gt(calls, 190);
    ck_assert_int_gt(left_out, 100); /* the plain products among them */
}
END_TEST

/* The call of a model's operation, and one of its options or axes as text. */
static const char *given(const char *name, const char *op, const char *part, const char *key) {
    static char text[64];
    const char *why;
    json_t *base = kt_model_call(model(name), kt_op_find(op), 1000, &why);
    ck_assert_msg(base != NULL, "%s", why);
    json_t *value = json_object_get(json_object_get(base, part), key);
    char *dump = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6)) : NULL;
    snprintf(text, sizeof text, "%s", dump ? dump : "");
    free(dump);
    json_decref(base);
    return text;
}

static bool has(const char *name, const char *op, const char *arg) {
    const char *why;
    kt_sizes sizes = {.op = kt_op_find(op)};
    json_t *base = kt_model_call(model(name), sizes.op, 1, &why);
    sizes.base = base;
    kt_call call;
    ck_assert_int_eq(kt_sizes_call(&sizes, &call), KT_GOOD);
    bool present = call.tensors.tensor[kt_op_arg(sizes.op, arg) - sizes.op->args].present;
    kt_call_free(&call);
    json_decref(base);
    return present;
}

START_TEST(families_differ) {
    const char *op = "router_backward";
    ck_assert_str_eq(given("DeepSeek-V3", op, "options", "score"), "\"sigmoid\"");
    ck_assert_str_eq(given("DeepSeek-V3", op, "options", "normalise"), "\"sum_eps\"");
    ck_assert_str_eq(given("DeepSeek-V3", op, "options", "scaling"), "2.5");
    ck_assert_str_eq(given("GLM-4.5", op, "options", "score"), "\"sigmoid\"");
    ck_assert_str_eq(given("Kimi-K2", op, "axes", "E"), "384");
    ck_assert_str_eq(given("Qwen3-30B-A3B", op, "options", "score"), "\"softmax\"");
    ck_assert_str_eq(given("Qwen3-30B-A3B", op, "options", "normalise"), "\"sum\"");
    ck_assert_str_eq(given("Mixtral-8x7B", op, "axes", "K"), "2");
    ck_assert_str_eq(given("OLMoE-1B-7B", op, "options", "normalise"), "\"none\"");
    ck_assert_str_eq(given("ERNIE-4.5-21B-A3B", op, "options", "eps"), "1e-12");
    ck_assert_str_eq(given("gpt-oss-20b", op, "options", "score"), "\"softmax_selected\"");
    ck_assert_str_eq(given("LongCat-Flash", op, "axes", "E"), "768");
    ck_assert_str_eq(given("Nemotron-3-Ultra-550B-A55B", op, "options", "scaling"), ""); /* not published */
    ck_assert(has("gpt-oss-20b", op, "grad_gate_bias"));
    ck_assert(!has("Qwen3-30B-A3B", op, "grad_gate_bias"));
    op = "routed_experts_backward";
    ck_assert_str_eq(given("Llama-4-Scout", op, "options", "weight_on"), "\"input\"");
    ck_assert_str_eq(given("gpt-oss-120b", op, "options", "activation.alpha"), "1.702");
    ck_assert_str_eq(given("LongCat-Flash", op, "axes", "L"), "512");
    /* An expert's share of 1000 tokens with 8 of 128 experts each. */
    ck_assert_str_eq(given("Qwen3-30B-A3B", "expert_mlp_backward", "axes", "T"), "63");
    ck_assert_str_eq(given("GLM-4.5-Air", "moe_layer_backward", "options", "norm_topk_prob"), "true");
    const char *why;
    static const char *const not_done[][2] = {{"Phi-3.5-MoE", "router_backward"},
                                              {"Grok-1", "routed_experts_backward"},
                                              {"Nemotron-3-Nano-30B-A3B", "expert_mlp_backward"},
                                              {"MiniMax-M3", "moe_layer_backward"},
                                              {"MiniMax-M2", "moe_layer_backward"},
                                              {"GLM-5", "gemm"}};
    for (size_t i = 0; i < sizeof not_done / sizeof *not_done; i++)
        ck_assert_ptr_null(kt_model_call(model(not_done[i][0]), kt_op_find(not_done[i][1]), 1, &why));
}
END_TEST

START_TEST(progress_says_how_far_it_is) {
    char text[256];
    kt_warm_progress p = {.kernels = 200, .built = 40, .cached = 10};
    kt_warm_progress_text(&p, 20, text, sizeof text);
    ck_assert_str_eq(text, " 25%  50 of 200 kernels, 40 built, 75 s left");
    p.bar = true;
    p.failed_calls = 1;
    kt_warm_progress_text(&p, 200, text, sizeof text);
    ck_assert_str_eq(text,
                     "[#######.......................]  25%  50 of 200 kernels, 40 built, 1 call failed, 12 min left");
    p.built = 0;
    kt_warm_progress_text(&p, 1, text, sizeof text); /* no pace yet */
    ck_assert_str_eq(text, "[#.............................]   5%  10 of 200 kernels, 0 built, 1 call failed");
    p = (kt_warm_progress){0};
    kt_warm_progress_text(&p, 1, text, sizeof text);
    ck_assert_str_eq(text, "  0%  0 of 0 kernels, 0 built");
}
END_TEST

int main(void) {
    Suite *s = suite_create("tools/models");
    TCase *t = tcase_create("models");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, names_are_unique);
    tcase_add_test(t, every_call_is_valid);
    tcase_add_test(t, families_differ);
    tcase_add_test(t, progress_says_how_far_it_is);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
