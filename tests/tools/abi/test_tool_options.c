/* tools/kiln/abi/options.c and table.c: JSON options into option structs; the table's rows against the headers. */
#include "abi/options.h"
#include "support/suite.h"

#include "kiln/kiln.h"

#include <string.h>

/* Fill `options` of `op` from JSON text. */
static int fill(const char *op, const char *text, void *options) {
    json_t *object = json_loads(text, JSON_DECODE_ANY, NULL);
    ck_assert_ptr_nonnull(object);
    int code = kt_options_fill(kt_op_find(op), object, options);
    json_decref(object);
    return code;
}

START_TEST(fills_every_kind_of_field) {
    kiln_load_balance_backward_options balance;
    ck_assert_int_eq(fill("load_balance_backward", "{\"top_k\": 8}", &balance), KT_GOOD);
    ck_assert_int_eq(balance.top_k, 8);
    ck_assert_uint_eq(balance.common.struct_size, sizeof balance);

    kiln_router_backward_options router;
    ck_assert_int_eq(fill("router_backward",
                          "{\"score\": \"sqrtsoftplus\", \"eps\": 1e-3, \"scaling\": 2, \"accumulate\": "
                          "[\"grad_gate_weight\", \"grad_logits\"]}",
                          &router),
                     KT_GOOD);
    ck_assert_int_eq(router.score, KILN_SCORE_SQRTSOFTPLUS);
    ck_assert_double_eq(router.eps, 1e-3);
    ck_assert_double_eq(router.scaling, 2);
    ck_assert_uint_eq(router.common.accumulate, 1u << 1 | 1u << 3);

    kiln_routed_experts_backward_options routed;
    ck_assert_int_eq(fill("routed_experts_backward",
                          "{\"activation\": {\"alpha\": 1.702}, \"activation.limit\": 7, \"expert_lo\": 5000000000}",
                          &routed),
                     KT_GOOD);
    ck_assert_double_eq(routed.activation.alpha, 1.702);
    ck_assert_double_eq(routed.activation.limit, 7);
    ck_assert_int_eq(routed.expert_lo, 5000000000);

    json_t *source = json_pack("{s:{s:s}}", "activation", "source", "__device__");
    kiln_expert_mlp_backward_options expert;
    ck_assert_int_eq(kt_options_fill(kt_op_find("expert_mlp_backward"), source, &expert), KT_GOOD);
    ck_assert_str_eq(expert.activation.source, "__device__");
    json_decref(source);
}
END_TEST

/* In the structs 0 is the default, so true is 0; a caller's 1 and 0 mean true and false. */
START_TEST(truth_values_are_turned_around) {
    static const struct {
        const char *text;
        int32_t value;
    } rows[] = {
        {"true", KILN_TRUE}, {"false", KILN_FALSE}, {"1", KILN_TRUE}, {"0", KILN_FALSE}, {"\"false\"", KILN_FALSE}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[64];
        snprintf(text, sizeof text, "{\"norm_topk_prob\": %s}", rows[i].text);
        kiln_moe_layer_backward_options o;
        ck_assert_int_eq(fill("moe_layer_backward", text, &o), KT_GOOD);
        ck_assert_int_eq(o.norm_topk_prob, rows[i].value);
    }
}
END_TEST

static const struct {
    const char *op, *text, *says;
} bad[] = {
    {"load_balance_backward", "{\"topk\": 8}", "has no option \"topk\"; it has accumulate, top_k"},
    {"load_balance_backward", "{\"top_k\": 8.5}", "top_k of load_balance_backward is 8.5; wanted a whole number"},
    {"load_balance_backward", "{\"top_k\": 3000000000}", "of 32 bits"},
    {"load_balance_backward", "{\"top_k\": {\"x\": 1}}", "wanted a whole number"},
    {"load_balance_backward", "[]", "must be a JSON object"},
    {"load_balance_backward", "{\"accumulate\": [\"training\"]}", "no output \"training\""},
    {"load_balance_backward", "{\"accumulate\": 1}", "must be a list"},
    {"router_backward", "{\"score\": \"relu\"}", "wanted softmax,sigmoid"},
    {"router_backward", "{\"score\": 1}", "wanted softmax,sigmoid"},
    {"router_backward", "{\"eps\": \"small\"}", "wanted a number"},
    {"moe_layer_backward", "{\"norm_topk_prob\": 2}", "wanted true,false"},
    {"routed_experts_backward", "{\"activation\": {\"beta\": 1}}", "no option \"activation.beta\""},
    {"routed_experts_backward", "{\"activation\": {\"source\": 1}}", "wanted a string"},
};

START_TEST(refuses_and_says_why) {
    char options[512];
    ck_assert_int_eq(fill(bad[_i].op, bad[_i].text, options), KT_USAGE);
    ck_assert_msg(strstr(kt_message(), bad[_i].says) != NULL, "%s: says \"%s\", wanted \"%s\"", bad[_i].text,
                  kt_message(), bad[_i].says);
}
END_TEST

START_TEST(reads_assignments) {
    const kt_op *op = kt_op_find("router_backward");
    json_t *object = json_object();
    static const char *const words[] = {"score=sigmoid", "eps=1e-3", "accumulate=grad_gate_weight",
                                        "accumulate=grad_logits"};
    for (size_t i = 0; i < 4; i++) ck_assert_int_eq(kt_options_add(op, object, words[i]), KT_GOOD);
    kiln_router_backward_options o;
    ck_assert_int_eq(kt_options_fill(op, object, &o), KT_GOOD);
    ck_assert_int_eq(o.score, KILN_SCORE_SIGMOID);
    ck_assert_double_eq(o.eps, 1e-3);
    ck_assert_uint_eq(o.common.accumulate, 1u << 1 | 1u << 3);
    ck_assert_int_eq(kt_options_add(op, object, "score"), KT_USAGE);
    ck_assert_int_eq(kt_options_add(op, object, "=1"), KT_USAGE);
    ck_assert_int_eq(kt_options_add(op, object, "temperature=1"), KT_USAGE);
    json_decref(object);
}
END_TEST

/* Rows of one operation stand together, inputs before outputs, '=' names an earlier argument. */
START_TEST(the_table_is_well_formed) {
    for (int k = 0; kt_op_at(k); k++) {
        const kt_op *op = kt_op_at(k);
        ck_assert_int_gt(op->n_args, 0);
        bool outputs = false;
        for (int i = 0; i < op->n_args; i++) {
            const kt_arg *a = &op->args[i];
            ck_assert_str_eq(a->op, op->name);
            outputs = outputs || a->role == KT_OUT;
            ck_assert_msg(!outputs || a->role == KT_OUT, "%s: input %s stands after an output", op->name, a->name);
            if (a->dtypes[0] != '=') continue;
            const kt_arg *other = kt_op_arg(op, a->dtypes + 1);
            ck_assert_msg(other && other < a && other->role == KT_IN, "%s: %s follows %s", op->name, a->name,
                          a->dtypes);
        }
        for (int i = 0; i < op->n_fields; i++) {
            ck_assert_str_eq(op->fields[i].op, op->name);
            ck_assert_uint_ge(op->fields[i].offset, sizeof(kiln_common_options));
            ck_assert_uint_lt(op->fields[i].offset, op->options_size);
        }
    }
    ck_assert_ptr_null(kt_op_find("softmax"));
    ck_assert_ptr_nonnull(strstr(kt_message(), "router_backward"));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tool_options");
    TCase *t = tcase_create("options");
    tcase_add_test(t, fills_every_kind_of_field);
    tcase_add_test(t, truth_values_are_turned_around);
    tcase_add_loop_test(t, refuses_and_says_why, 0, sizeof bad / sizeof *bad);
    tcase_add_test(t, reads_assignments);
    tcase_add_test(t, the_table_is_well_formed);
    suite_add_tcase(suite, t);
    return kn_run_suite(suite);
}
