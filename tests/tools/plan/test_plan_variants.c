/* The kernels that published models need: few for each operation, whatever the number of tokens. Planned, not built. */
#include "common/report.h"
#include "plan/plan_variants.h"
#include "shapes/models.h"
#include "shapes/sizes.h"

#include "kiln/kiln.h"
#include "kiln/kiln_tools.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/suite.h"

enum { MOST_KERNELS = 8, CAP = 256 };

/* Kernels by their keys. */
typedef struct key_set {
    char key[CAP][33];
    int n;
} key_set;

static const char *const devices[] = {"offline:h200", "offline:a100"};
static kt_library *lib;
static void *ctx;
static json_t *list;
static const json_t *models;

static void setup(int device) {
    const kiln_context_options options = {
        .struct_size = sizeof options, .shapes = KILN_SHAPES_GENERIC, .cache_dir = "off"};
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("KN_BUILD_DIR"), KILN_SONAME);
    ck_assert_msg(kt_library_open(path, &lib) == KT_GOOD, "%s", kt_message());
    ck_assert_int_eq(KT_CALL(lib, "kiln_context_create", KT_STR(devices[device]), KT_PTR(&options), KT_PTR(&ctx)),
                     KILN_OK);
    ck_assert_int_eq(kt_models_read(&list, &models), KT_GOOD);
}

static void teardown(void) {
    json_decref(list);
    (void)KT_CALL(lib, "kiln_context_destroy", KT_PTR(ctx));
    kt_library_close(lib);
}

/* The keys of the kernels of one call that are not in `keys` yet join them; false if the model has no such call. */
static bool add_keys(const json_t *model, const kt_op *op, int64_t tokens, key_set *keys) {
    const char *why;
    kt_sizes sizes = {.op = op, .base = kt_model_call(model, op, tokens, &why)};
    kt_call call;
    json_t *plan, *kernel;
    size_t i;
    if (!sizes.base) return false;
    ck_assert_int_eq(kt_sizes_call(&sizes, &call), KT_GOOD);
    ck_assert_int_eq(kt_tensors_describe(&call.tensors, lib, ctx), KT_GOOD);
    int code = KT_CALL_JSON(lib, &plan, "kiln_plan_json", KT_PTR(ctx), KT_STR(op->name), KT_PTR(call.tensors.on_device),
                            KT_I32(op->n_args), KT_PTR(call.options), KT_U32(KILN_PLAN_LIST));
    ck_assert_msg(code == KT_GOOD, "%s", kt_message());
    json_array_foreach(json_object_get(plan, "kernels"), i, kernel) {
        const char *key = kt_json_text(kernel, "key", "");
        int k = 0;
        while (k < keys->n && strcmp(keys->key[k], key) != 0) k++;
        ck_assert_int_lt(k, CAP);
        if (k == keys->n) snprintf(keys->key[keys->n++], sizeof keys->key[0], "%s", key);
    }
    json_decref(plan);
    kt_call_free(&call);
    json_decref((json_t *)sizes.base);
    return true;
}

/* All numbers of tokens together, on the architecture of that device. */
START_TEST(models_need_few_kernels) {
    int64_t *tokens;
    size_t n, i;
    const json_t *m;
    int pairs = 0;
    setup(_i);
    ck_assert_int_eq(kt_parse_tokens(KT_USUAL_TOKENS, &tokens, &n), KT_GOOD);
    json_array_foreach(models, i, m) {
        for (int o = 0; kt_op_at(o); o++) {
            key_set keys = {.n = 0};
            for (size_t t = 0; t < n; t++)
                if (!add_keys(m, kt_op_at(o), tokens[t], &keys)) break;
            ck_assert_msg(keys.n <= MOST_KERNELS, "%s of %s: %d kernels", kt_op_at(o)->name,
                          kt_json_text(m, "model", "?"), keys.n);
            pairs += keys.n > 0;
        }
    }
    free(tokens);
    ck_assert_int_gt(pairs, 190);
    teardown();
}
END_TEST

int main(void) {
    Suite *s = suite_create("tools/plan_variants");
    TCase *t = tcase_create("variants");
    tcase_add_loop_test(t, models_need_few_kernels, 0, sizeof devices / sizeof *devices);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
