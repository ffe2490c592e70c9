/* Every configuration of the products' kernels, run on small sizes: all candidates of the wgmma kernel for all
 * majorness and types of results, and the operations' own kernels under drawn options; results against the float64
 * reference. Small enough for compute-sanitizer (tools/sanitize_gpu.sh). The device is KILN_DEVICE's: the GPU where
 * there is one, else the simulator, for which a sample is taken unless KN_ALL=1. */
#include "gemm_support.h"

#include "support/problem_run.h"

#include <jansson.h>
#include <unistd.h>

static kiln_context *ctx;
static char tuning_path[64], gpu[128];
static bool all;

static void begin(void) {
    const kiln_context_options o = {.struct_size = sizeof o, .tuning = ""};
    char *text = NULL;
    uint64_t bytes = 0;
    int32_t type, id;
    snprintf(tuning_path, sizeof tuning_path, "/tmp/kn_test_configurations_%d", (int)getpid());
    ck_assert_ok(kiln_context_create(NULL, &o, &ctx));
    ck_assert_ok(kiln_context_device(ctx, &type, &id));
    ck_assert_ok(kiln_context_device_json(ctx, NULL, 0, &bytes));
    text = malloc(bytes);
    ck_assert_ok(kiln_context_device_json(ctx, text, bytes, &bytes));
    json_t *device = json_loads(text, 0, NULL);
    snprintf(gpu, sizeof gpu, "%s", json_string_value(json_object_get(device, "name")));
    json_decref(device);
    free(text);
    all = getenv("KN_ALL") != NULL || type != 1;
}

static void end(void) {
    kiln_context_destroy(ctx);
    unlink(tuning_path);
}

static void run_on(kiln_context *on, const kn_gen_config *c, const char *how) {
    kn_gen *g;
    must(kn_gen_make(c, &g), c);
    must(kn_gen_reference(g), c);
    kn_status st = kn_gen_run(g, on);
    if (st == KN_OK) st = kn_gen_check(g);
    ck_assert_msg(st == KN_OK, "%s as %s: %s", describe(c), how, kn_error_message());
    kn_gen_free(g);
}

/* What the planner could choose for the call: "products" of its plan. */
static json_t *products_of(const kn_gen_config *c) {
    kn_gen *g;
    uint64_t bytes = 0;
    must(kn_gen_make(c, &g), c);
    const DLTensor *args[KN_MAX_TENSORS];
    DLTensor described[KN_MAX_TENSORS];
    int32_t type, id;
    ck_assert_ok(kiln_context_device(ctx, &type, &id));
    for (int i = 0; i < g->op.n_args; i++) {
        if (g->args[i]) described[i] = *g->args[i];
        memcpy(&described[i].device.device_type, &type, sizeof type);
        args[i] = g->args[i] ? &described[i] : NULL;
    }
    const uint32_t flags = KILN_PLAN_LIST | KILN_PLAN_EXPLAIN;
    must(kiln_plan_json(ctx, c->op, args, g->op.n_args, g->call.options, flags, NULL, 0, &bytes), c);
    char *text = malloc(bytes);
    must(kiln_plan_json(ctx, c->op, args, g->op.n_args, g->call.options, flags, text, bytes, &bytes), c);
    json_t *plan = json_loads(text, 0, NULL), *products = json_incref(json_object_get(plan, "products"));
    json_decref(plan);
    free(text);
    kn_gen_free(g);
    return products;
}

static uint64_t piece;

static void try_candidates(const kn_gen_config *c, const json_t *product) {
    size_t i;
    json_t *candidate;
    json_array_foreach(json_object_get(product, "candidates"), i, candidate) {
        const char *name = json_string_value(json_object_get(candidate, "name"));
        if (json_object_get(candidate, "refused") || !is_mine(piece++) || (!all && piece % 151)) continue;
        write_choice(tuning_path, gpu, json_string_value(json_object_get(product, "key")), name);
        const kiln_context_options o = {.struct_size = sizeof o, .tuning = tuning_path};
        kiln_context *tuned;
        ck_assert_ok(kiln_context_create(NULL, &o, &tuned));
        run_on(tuned, c, name);
        kiln_context_destroy(tuned);
    }
}

START_TEST(candidates_of_products) {
    static const int64_t rows[] = {40, 200};
    piece = 0;
    for (int way = 0; way < WAYS_16_BIT; way++) {
        /* bf16 to bf16 stored, and bf16 or f16 to f32 added: the others differ in conversions alone. */
        if (way != (way & 6) && way != (17 | (way & 6)) && way != 24 + (17 | (way & 6))) continue;
        for (int i = 0; i < 2; i++) {
            kn_gen_config c = product(way, rows[i], 136, 200);
            json_t *products = products_of(&c), *product_json;
            size_t k;
            ck_assert_uint_eq(json_array_size(products), 1);
            json_array_foreach(products, k, product_json) try_candidates(&c, product_json);
            json_decref(products);
        }
    }
    ck_assert_uint_gt(piece, 400);
}
END_TEST

/* What is behind the products of an activation's gradient moves through shared memory in several ways. */
START_TEST(candidates_of_an_activation) {
    static const int64_t tokens[] = {40, 150};
    piece = 0;
    for (int i = 0; i < 2; i++) {
        kn_gen_config c = kn_gen_defaults("expert_mlp_backward");
        c.tokens = tokens[i], c.batch = tokens[i] + 30, c.hidden = 136, c.inner = 200;
        c.dtype = c.out_dtype = i ? KN_F16 : KN_BF16;
        c.skip_percent = 10;
        c.absent &=
            ~((uint64_t)1 << kn_gen_arg(c.op, "expert_output") | (uint64_t)1 << kn_gen_arg(c.op, "gated_output"));
        json_t *products = products_of(&c), *product_json;
        size_t k;
        json_array_foreach(products, k, product_json) try_candidates(&c, product_json);
        json_decref(products);
    }
    ck_assert_uint_gt(piece, 250);
}
END_TEST

START_TEST(products_of_other_paths) {
    state = 5;
    for (uint64_t i = 0; i < (all ? 60 : 6); i++) {
        kn_gen_config c = product((int)draw(WAYS), 33 + (int64_t)draw(64), 40, 65 + (int64_t)draw(64));
        c.options.gemm.math = (int32_t)draw(3);
        c.gap = (int)draw(3);
        if (draw(2)) {
            c.op = "grouped_gemm";
            c.groups = 5;
            c.swapped &= 1;
            c.id_dtype = draw(2) ? KN_I64 : KN_I32;
            c.options.grouped.ragged = (int32_t)draw(2);
        }
        if (is_mine(i)) run_on(ctx, &c, "planned");
    }
}
END_TEST

START_TEST(operations_with_drawn_options) {
    state = (uint64_t)_i;
    for (uint64_t i = 0; i < (all ? 24 : 0); i++) {
        kn_gen_config c = draw_call(operations[_i]);
        c.tokens = 16 + c.tokens % 80;
        c.batch = 2 * c.tokens;
        if (is_mine(i)) run_on(ctx, &c, "planned");
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("ops/gemm_configurations");
    TCase *t = tcase_create("configurations");
    tcase_add_checked_fixture(t, begin, end);
    tcase_set_timeout(t, 3600);
    tcase_add_test(t, candidates_of_products);
    tcase_add_test(t, candidates_of_an_activation);
    tcase_add_test(t, products_of_other_paths);
    tcase_add_loop_test(t, operations_with_drawn_options, 0, OPERATIONS);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
