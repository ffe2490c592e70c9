/* tools/kiln/bench/bench_cublaslt.c, bench_peers.c, bench_composed.c, against a fake cuBLASLt on the fake driver: the
 * products are the right ones, the fastest algorithm is chosen, Kiln's own tensors are left alone. "composed" needs the
 * real NVRTC: without one it is skipped, and fails under CI=true. */
#include "bench/bench_cublaslt.h"
#include "bench/bench_peers.h"
#include "fakecuda/fake_user.h"
#include "support/cuda_c.h"
#include "support/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static kt_library *lib;
static void *ctx;
static kt_gpu *gpu;
static kt_bench_memory memory;
static kt_bench_timer timer;

/* CTest's LD_LIBRARY_PATH leads to the fake cuBLASLt. */
static void begin(void) {
    char path[1024];
    fake_start("");
    snprintf(path, sizeof path, "%s/%s", getenv("KN_BUILD_DIR"), KILN_SONAME);
    ck_assert_msg(kt_library_open(path, &lib) == KT_GOOD, "%s", kt_message());
    ck_assert_int_eq(kt_status(lib, KT_CALL(lib, "kiln_context_create", KT_STR("cuda:0"), KT_PTR(NULL), KT_PTR(&ctx))),
                     KT_GOOD);
    ck_assert_msg(kt_gpu_open(0, &gpu) == KT_GOOD, "%s", kt_message());
    ck_assert_int_eq(kt_bench_memory_begin(&memory, lib, ctx, gpu), KT_GOOD);
    ck_assert_int_eq(kt_bench_timer_begin(&timer, &memory, 1024), KT_GOOD);
    timer.flush_bytes = 4096; /* the fake has no L2 */
}

static void end(void) {
    kt_bench_timer_end(&timer);
    kt_bench_memory_free(&memory);
    (void)KT_CALL(lib, "kiln_context_destroy", KT_PTR(ctx));
    kt_gpu_close(gpu);
    kt_library_close(lib);
    fake_assert_clean();
}

static void give_back(const void *p) {
    (void)KT_CALL(lib, "kiln_device_free", KT_PTR(ctx), KT_PTR(p));
}

static void *device_matrix(int64_t elements, uint64_t seed) {
    void *p = NULL;
    kt_random random = {seed};
    const kt_dtype *bf16 = kt_dtype_named("bf16");
    ck_assert_int_eq(
        kt_status(lib, KT_CALL(lib, "kiln_device_alloc", KT_PTR(ctx), KT_U64((uint64_t)elements * 2), KT_PTR(&p))),
        KT_GOOD);
    for (int64_t i = 0; i < elements; i++) kt_bench_store(bf16, p, (uint64_t)i, kt_random_normal(&random));
    return p;
}

static double element(const void *p, int64_t rows, int64_t cols, bool transposed, int64_t i, int64_t j) {
    return kt_element(kt_dtype_named("bf16"), p, (uint64_t)(transposed ? i + j * rows : i * cols + j));
}

START_TEST(multiplies_what_it_is_asked_to) {
    kt_bench_cublaslt *lt;
    ck_assert_msg(kt_bench_cublaslt_open(&memory, &lt) == KT_GOOD, "%s", kt_message());
    ck_assert_int_eq(kt_bench_cublaslt_version(lt), 130001);
    for (int way = 0; way < 8; way++) {
        kt_bench_product p = {.m = 5, .n = 7, .k = 9, .dtype = kt_dtype_named("bf16")};
        p.a_transposed = way & 1;
        p.b_transposed = way >> 1 & 1;
        p.add = way >> 2 & 1;
        p.a = device_matrix(p.m * p.k, 1);
        p.b = device_matrix(p.k * p.n, 2);
        p.d = device_matrix(p.m * p.n, 3);
        kt_bench_cublaslt_plan *plan;
        ck_assert_msg(kt_bench_cublaslt_plan_make(lt, &p, &timer, &plan) == KT_GOOD, "%s", kt_message());
        void *before = device_matrix(p.m * p.n, 3);
        memcpy(p.d, before, (size_t)(p.m * p.n) * 2); /* choosing has run it */
        unsigned long launches = fake_driver.fakecuda_count("launch fake_gemm");
        ck_assert_int_eq(kt_bench_cublaslt_run(plan, timer.stream), KT_GOOD);
        ck_assert_uint_eq(fake_driver.fakecuda_count("launch fake_gemm"),
                          launches + 1); /* the fastest has one kernel */
        for (int64_t i = 0; i < p.m; i++) {
            for (int64_t j = 0; j < p.n; j++) {
                double sum = p.add ? element(before, p.m, p.n, false, i, j) : 0;
                for (int64_t k = 0; k < p.k; k++)
                    sum += element(p.a, p.m, p.k, p.a_transposed, i, k) * element(p.b, p.k, p.n, p.b_transposed, k, j);
                ck_assert_double_le(fabs(element(p.d, p.m, p.n, false, i, j) - sum), 0x1p-7 * fabs(sum) + 1e-4);
            }
        }
        kt_bench_cublaslt_plan_free(plan);
        const void *const matrices[] = {p.a, p.b, p.d, before};
        for (int i = 0; i < 4; i++) give_back(matrices[i]);
    }
    kt_bench_cublaslt_close(lt);
}
END_TEST

/* The tiny cases of an operation, how many products its peer runs, and the kernels around them when it is composed. */
static const struct {
    const char *op, *list, *peer;
    unsigned long products;
    const char *kernels[4];
} operations[] = {
    {"gemm", "cublaslt", "cublaslt", 1, {NULL}},
    {"expert_mlp_backward", "cublaslt", "cublaslt_products", 6, {NULL}},
    {"moe_layer_backward", "cublaslt", "cublaslt_products", 6, {NULL}},
    {"router_backward", "cublaslt", NULL, 0, {NULL}},
    {"routed_experts_backward", "cublaslt", NULL, 0, {NULL}}, /* in fp32: no peer */
    {"gemm", "composed", NULL, 0, {NULL}},
    {"load_balance_backward", "composed", "composed", 0, {"load_balance"}},
    {"router_backward", "composed", "composed", 2, {"router_dlogits"}},
    {"expert_mlp_backward", "composed", "composed", 6, {"zero_rows", "gather_rows", "swiglu_backward", "scatter_rows"}},
    {"moe_layer_backward", "composed", "composed", 8, {"layer_router", "swiglu_backward"}},
};
enum { N_OPERATIONS = sizeof operations / sizeof operations[0] };

static unsigned long launches_of(const char *kernel) {
    char line[64];
    snprintf(line, sizeof line, "launch %s", kernel);
    return fake_driver.fakecuda_count(line);
}

static void assert_runs(const kt_bench_subject *subject, int at) {
    unsigned long products = launches_of("fake_gemm"), others[4];
    ck_assert_str_eq(subject->name, operations[at].peer);
    for (int i = 0; i < 4 && operations[at].kernels[i]; i++) others[i] = launches_of(operations[at].kernels[i]);
    ck_assert_msg(subject->enqueue(subject->user, timer.stream) == KT_GOOD, "%s", kt_message());
    ck_assert_uint_eq(launches_of("fake_gemm"), products + operations[at].products);
    for (int i = 0; i < 4 && operations[at].kernels[i]; i++)
        ck_assert_uint_eq(launches_of(operations[at].kernels[i]), others[i] + 1);
}

START_TEST(runs_the_steps_of_an_operation) {
    kt_bench_cases cases;
    kt_bench_patterns patterns = {0};
    kt_tensors tensors;
    kt_bench_peers *peers;
    void *options;
    uint32_t transposed;
    char path[1024];
    if (strcmp(operations[_i].list, "composed") == 0 && !kn_have_nvrtc()) return;
    snprintf(path, sizeof path, "%s/bench/cases/tiny.json", getenv("KN_SOURCE_DIR"));
    ck_assert_int_eq(kt_bench_cases_read(path, operations[_i].op, &cases), KT_GOOD);
    ck_assert_int_eq(kt_bench_case_options(&cases.item[0], &options), KT_GOOD);
    ck_assert_int_eq(kt_bench_case_tensors(&cases.item[0], options, &tensors, &transposed), KT_GOOD);
    ck_assert_int_eq(kt_bench_patterns_make(&patterns, &tensors), KT_GOOD);
    ck_assert_int_eq(kt_bench_memory_bind(&memory, &tensors, &patterns, transposed), KT_GOOD);
    ck_assert_int_eq(kt_bench_memory_poison(&memory, &tensors, options), KT_GOOD);
    ck_assert_msg(kt_bench_peers_open(operations[_i].list, &memory, &peers) == KT_GOOD, "%s", kt_message());
    kt_bench_subject subject[KT_BENCH_MAX_PEERS];
    size_t n = 0;
    ck_assert_msg(kt_bench_peers_add(peers, &tensors, transposed, &timer, subject, &n) == KT_GOOD, "%s", kt_message());
    ck_assert_uint_eq(n, operations[_i].peer ? 1 : 0);
    if (n) assert_runs(&subject[0], _i);
    for (int i = 0; i < tensors.op->n_args; i++) { /* still poisoned */
        const kt_tensor *t = &tensors.tensor[i];
        if (tensors.op->args[i].role != KT_OUT || !t->present) continue;
        for (uint64_t b = 0; b < t->bytes; b++) ck_assert_uint_eq(((unsigned char *)t->on_device.data)[b], 0xFF);
    }
    kt_bench_peers_close(peers);
    kt_bench_patterns_free(&patterns);
    kt_bench_cases_free(&cases);
    free(options);
}
END_TEST

START_TEST(refuses_unknown_peers) {
    kt_bench_peers *peers;
    ck_assert_int_eq(kt_bench_peers_open("cublaslt,magic", &memory, &peers), KT_USAGE);
    ck_assert_ptr_nonnull(strstr(kt_message(), "the peers are: cublaslt, composed"));
    ck_assert_ptr_null(peers);
}
END_TEST

int main(void) {
    Suite *s = suite_create("tools/bench_peers");
    TCase *t = tcase_create("bench_peers");
    tcase_add_checked_fixture(t, begin, end);
    tcase_add_test(t, multiplies_what_it_is_asked_to);
    tcase_add_loop_test(t, runs_the_steps_of_an_operation, 0, N_OPERATIONS);
    tcase_add_test(t, refuses_unknown_peers);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
