/* tools/kiln/bench/bench_memory.c, bench_slices.c, bench_verify.c, on the simulator: right outputs pass, and every kind
 * of wrong one is found in every output of every operation. */
#include "bench/bench_verify.h"
#include "support/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static kt_library *lib;
static void *ctx;
static kt_bench_cases cases;
static kt_bench_memory memory;
static kt_bench_patterns patterns;

static void begin(void) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", getenv("KN_BUILD_DIR"), KILN_SONAME);
    ck_assert_msg(kt_library_open(path, &lib) == KT_GOOD, "%s", kt_message());
    ck_assert_int_eq(kt_status(lib, KT_CALL(lib, "kiln_context_create", KT_STR("sim"), KT_PTR(NULL), KT_PTR(&ctx))),
                     KT_GOOD);
    ck_assert_int_eq(kt_bench_memory_begin(&memory, lib, ctx, NULL), KT_GOOD);
}

static void end(void) {
    kt_bench_memory_free(&memory);
    kt_bench_patterns_free(&patterns);
    kt_bench_cases_free(&cases);
    (void)KT_CALL(lib, "kiln_context_destroy", KT_PTR(ctx));
    kt_library_close(lib);
}

/* One case, bound to memory. */
typedef struct bound {
    const kt_bench_case *c;
    kt_tensors tensors;
    void *options;
    uint32_t transposed;
} bound;

static bound bind(const kt_bench_case *c) {
    bound b = {.c = c};
    ck_assert_int_eq(kt_bench_case_options(c, &b.options), KT_GOOD);
    ck_assert_int_eq(kt_bench_case_tensors(c, b.options, &b.tensors, &b.transposed), KT_GOOD);
    ck_assert_int_eq(kt_bench_patterns_make(&patterns, &b.tensors), KT_GOOD);
    return b;
}

static void bind_memory(bound *b) {
    ck_assert_msg(kt_bench_memory_bind(&memory, &b->tensors, &patterns, b->transposed) == KT_GOOD, "%s", kt_message());
}

static kt_bench_verdict verify(const bound *b) {
    kt_bench_verdict v;
    ck_assert_msg(kt_bench_verify(&memory, &b->tensors, &patterns, b->options, b->transposed, 8, &v) == KT_GOOD, "%s",
                  kt_message());
    return v;
}

static void read_tiny(const char *group) {
    char path[1024];
    snprintf(path, sizeof path, "%s/bench/cases/tiny.json", getenv("KN_SOURCE_DIR"));
    ck_assert_msg(kt_bench_cases_read(path, group, &cases) == KT_GOOD, "%s", kt_message());
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

START_TEST(memory_repeats_the_pattern) {
    read_tiny("gemm");
    bound b = bind(&cases.item[0]);
    const kt_bench_pattern *p = &patterns.arg[0];
    uint64_t width = p->dtype->bits / 8u, n = 3 * p->period + 1237;
    kt_bench_buffer buffer = {0};
    for (int round = 0; round < 2; round++) { /* shorter first: then it must be filled further */
        uint64_t some = round ? n : p->period / 2;
        ck_assert_int_eq(kt_bench_memory_fill(&memory, &buffer, p, some * width), KT_GOOD);
        for (uint64_t i = 0; i < some; i++)
            ck_assert(memcmp((char *)buffer.device + i * width, (char *)p->block + i % p->period * width, width) == 0);
    }
    /* Kept as it is while the key stands, made again under another one. */
    memset(buffer.device, 0, 64);
    ck_assert_int_eq(kt_bench_memory_fill(&memory, &buffer, p, n * width), KT_GOOD);
    ck_assert_uint_eq(*(uint64_t *)buffer.device, 0);
    ck_assert_int_eq(kt_bench_memory_fill(&memory, &buffer, &patterns.arg[1], n * width), KT_GOOD);
    ck_assert(memcmp(buffer.device, patterns.arg[1].block, 64) == 0);
    kt_bench_memory_drop(&memory, &buffer);
    free(b.options);
}
END_TEST

/* ---- wrong outputs ----------------------------------------------------------------------------------------------- */

enum { UNWRITTEN, ZEROED_END, SCALED, FAULTS };
static const char *const fault_names[] = {"an element not written", "the last row zeroed", "scaled by 1.1"};

/* Damage output i in place; `saved` holds the good bytes. */
static void damage(const kt_tensor *t, int fault) {
    char *data = t->on_device.data;
    uint64_t width = t->dtype->bits / 8u, row = t->elements / (uint64_t)t->shape[0];
    switch (fault) {
    case UNWRITTEN: memset(data + t->elements / 2 * width, 0xFF, width); break;
    case ZEROED_END: memset(data + (t->elements - row) * width, 0, row * width); break;
    default:
        for (uint64_t i = 0; i < t->elements; i++)
            kt_bench_store(t->dtype, data, i, 1.1 * kt_element(t->dtype, data, i));
    }
}

/* A gradient whose last row is zero anyway cannot show that it was zeroed. */
static bool shows(const kt_tensor *t, int fault) {
    uint64_t row = t->elements / (uint64_t)t->shape[0];
    double largest = 0;
    for (uint64_t i = fault == ZEROED_END ? t->elements - row : 0; i < t->elements; i++)
        largest = fmax(largest, fabs(kt_element(t->dtype, t->on_device.data, i)));
    return fault == UNWRITTEN || largest > 0;
}

static const char *const groups[] = {"load_balance_backward", "router_backward",         "expert_mlp_backward",
                                     "moe_layer_backward",    "routed_experts_backward", "gemm"};

START_TEST(finds_every_wrong_output) {
    read_tiny(groups[_i]);
    int shown = 0, outputs = 0;
    for (size_t n = 0; n < cases.n; n++) {
        bound b = bind(&cases.item[n]);
        bind_memory(&b);
        ck_assert_int_eq(kt_bench_memory_poison(&memory, &b.tensors, b.options), KT_GOOD);
        ck_assert_msg(kt_call_op(lib, b.c->op, ctx, b.tensors.on_device, b.options, NULL) == KT_GOOD, "%s",
                      kt_message());
        kt_bench_verdict good = verify(&b);
        ck_assert_msg(good.pass, "%s: %s", b.c->name, good.message);
        ck_assert_uint_gt(good.compared, 0);
        for (int i = 0; i < b.c->op->n_args; i++) {
            const kt_tensor *t = &b.tensors.tensor[i];
            if (b.c->op->args[i].role != KT_OUT || !t->present) continue;
            outputs++;
            char *saved = kt_alloc(1, t->bytes);
            memcpy(saved, t->on_device.data, t->bytes);
            for (int fault = 0; fault < FAULTS; fault++) {
                if (!shows(t, fault)) continue;
                /* Without grad_topk_weights the router's terms cancel: there is noise, and noise is what 1.1 * noise
                 * is. */
                if (fault != UNWRITTEN && strcmp(b.c->op->args[i].name, "grad_router_weight") == 0) continue;
                damage(t, fault);
                kt_bench_verdict v = verify(&b);
                ck_assert_msg(!v.pass, "%s %s: %s: %s was not found", b.c->op->name, b.c->name, b.c->op->args[i].name,
                              fault_names[fault]);
                ck_assert(v.message[0] != '\0');
                bool same;
                ck_assert_int_eq(kt_bench_same_bits(&memory, &b.tensors, &good, &same), KT_GOOD);
                ck_assert(!same);
                memcpy(t->on_device.data, saved, t->bytes);
                shown++;
            }
            free(saved);
        }
        kt_bench_verdict again = verify(&b);
        ck_assert(again.pass);
        free(b.options);
    }
    ck_assert_int_gt(shown, outputs);
}
END_TEST

/* Outputs that are added to: right ones pass, and those that were written over do not. */
START_TEST(verifies_what_is_added_to) {
    read_tiny(groups[_i]);
    bound b = bind(&cases.item[0]);
    kiln_common_options *common = b.options;
    uint64_t all = 0; /* outputs */
    for (int i = 0; i < b.c->op->n_args; i++) all = b.c->op->args[i].role == KT_OUT ? 2 * all + 1 : all;
    bind_memory(&b);
    for (int added = 0; added < 2; added++) {
        common->accumulate = all;
        ck_assert_int_eq(kt_bench_memory_poison(&memory, &b.tensors, b.options), KT_GOOD);
        common->accumulate = added ? all : 0;
        ck_assert_msg(kt_call_op(lib, b.c->op, ctx, b.tensors.on_device, b.options, NULL) == KT_GOOD, "%s",
                      kt_message());
        common->accumulate = all;
        kt_bench_verdict v = verify(&b);
        ck_assert_msg(v.pass == added, "%s, %s: %s", b.c->op->name, added ? "added" : "written over", v.message);
    }
    free(b.options);
}
END_TEST

/* ---- slices ------------------------------------------------------------------------------------------------------ */

/* The slices of a built-in case, without any memory. */
static int slices_of(const char *op, size_t n, bound *b, kt_bench_slice slices[KT_BENCH_MAX_SLICES]) {
    kt_bench_cases_free(&cases);
    ck_assert_int_eq(kt_bench_cases_read(NULL, op, &cases), KT_GOOD);
    *b = bind(&cases.item[n]);
    return kt_bench_slices(&b->tensors, &patterns, 4, slices);
}

static void free_slices(bound *b, kt_bench_slice slices[KT_BENCH_MAX_SLICES]) {
    for (int i = 0; i < KT_BENCH_MAX_SLICES; i++) kt_bench_slice_free(&slices[i]);
    free(b->options);
}

/* Ascending, in range, the last index in it. */
static void check_index(const kt_bench_slice *s, char letter, int64_t n, int64_t size) {
    const int64_t *index = s->index[letter - 'A'];
    ck_assert_ptr_nonnull(index);
    ck_assert_int_eq(s->n[letter - 'A'], n);
    for (int64_t i = 1; i < n; i++) ck_assert_int_lt(index[i - 1], index[i]);
    ck_assert_int_ge(index[0], 0);
    ck_assert_int_eq(index[n - 1], size - 1);
}

START_TEST(slices_cover_every_output) {
    for (int g = 0; g < 6; g++) {
        kt_bench_slice slices[KT_BENCH_MAX_SLICES];
        bound b;
        uint32_t wanted = 0, covered = 0;
        int n = slices_of(groups[g], 0, &b, slices);
        for (int i = 0; i < b.c->op->n_args; i++)
            if (b.c->op->args[i].role == KT_OUT && b.tensors.tensor[i].present) wanted |= 1u << i;
        for (int i = 0; i < n; i++) covered |= slices[i].outputs;
        ck_assert_msg((covered & wanted) == wanted, "%s", groups[g]);
        free_slices(&b, slices);
    }
}
END_TEST

START_TEST(slices_take_the_ends_of_axes) {
    kt_bench_slice s[KT_BENCH_MAX_SLICES];
    bound b;
    ck_assert_int_eq(slices_of("router_backward", 15, &b, s), 2);
    check_index(&s[0], 'T', 64, 65536);
    check_index(&s[1], 'H', 64, 2048);
    ck_assert_ptr_null(s[1].index['T' - 'A']);
    free_slices(&b, s);
    ck_assert_int_eq(slices_of("moe_layer_backward", 15, &b, s), 2);
    check_index(&s[1], 'I', 32, 1408); /* long sums over tokens: fewer features */
    free_slices(&b, s);
    ck_assert_int_eq(slices_of("routed_experts_backward", 0, &b, s), 2);
    check_index(&s[0], 'T', 1, 2048);
    ck_assert_int_eq(s[0].n['L' - 'A'], 8);
    ck_assert_int_ge(s[1].n['L' - 'A'], 2);
    free_slices(&b, s);
    ck_assert_int_eq(slices_of("expert_mlp_backward", 15, &b, s), 2);
    ck_assert_int_eq(s[0].n['T' - 'A'], 8);
    ck_assert_int_eq(s[0].n['B' - 'A'], 16); /* their rows, and 8 that no token is */
    free_slices(&b, s);
}
END_TEST

/* Rows of a load balance that is too large to compare whole: the slice's own loss must come to the same share. Nothing
 * computes here but this test. */
START_TEST(load_balance_slices_keep_the_share_of_the_loss) {
    static const char text[] = "{\"groups\": [{\"op\": \"load_balance_backward\", \"axes\": {\"E\": 41, \"K\": 8}, "
                               "\"with\": [\"topk_idx\"], \"cases\": [{\"B\": 204808}]}]}";
    FILE *f = fopen("bench_verify_large.json", "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
    ck_assert_int_eq(kt_bench_cases_read("bench_verify_large.json", NULL, &cases), KT_GOOD);
    bound b = bind(&cases.item[0]);
    bind_memory(&b);
    int64_t rows = 204808, e = 41;
    const float *tokens = b.tensors.tensor[0].on_device.data, *mask = b.tensors.tensor[1].on_device.data;
    const float *loss = b.tensors.tensor[2].on_device.data;
    float *out = b.tensors.tensor[7].on_device.data, share = *loss / (float)(rows * 8);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < e; j++) out[i * e + j] = mask[i * e + j] + (tokens[j] + share);
    kt_bench_slice slices[KT_BENCH_MAX_SLICES];
    ck_assert_int_eq(kt_bench_slices(&b.tensors, &patterns, 8, slices), 1);
    ck_assert_int_eq(slices[0].n['B' - 'A'] * slices[0].top_k, rows * 8);
    kt_bench_slice_free(&slices[0]);
    kt_bench_verdict v = verify(&b);
    ck_assert_msg(v.pass, "%s", v.message);
    ck_assert_uint_lt(v.compared, (uint64_t)(rows * e));
    ck_assert_uint_ge(v.compared, 8 * 41);
    for (int64_t i = 0; i < rows * e; i++) out[i] += share * 1000; /* as if B * K were another number */
    ck_assert(!verify(&b).pass);
    remove("bench_verify_large.json");
    free(b.options);
}
END_TEST

int main(void) {
    Suite *s = suite_create("tools/bench_verify");
    TCase *t = tcase_create("bench_verify");
    tcase_add_checked_fixture(t, begin, end);
    tcase_add_test(t, memory_repeats_the_pattern);
    tcase_add_loop_test(t, verifies_what_is_added_to, 0, 6);
    tcase_add_loop_test(t, finds_every_wrong_output, 0, 6);
    tcase_add_test(t, slices_cover_every_output);
    tcase_add_test(t, slices_take_the_ends_of_axes);
    tcase_add_test(t, load_balance_slices_keep_the_share_of_the_loss);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
