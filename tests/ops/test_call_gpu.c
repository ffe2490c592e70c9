/* Whole calls on a real GPU: results, a CUDA graph that outlives its context, several streams at once, bounded modules.
 * Skipped where there is none. */
#include "base/status.h"
#include "ops_support.h"
#include "support/gpu.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

static kn_gpu gpu;
static bool there;

static void setup(void) {
    there = kn_gpu_open(&gpu);
}

static kiln_context *create(int32_t max_modules) {
    kiln_context *ctx = NULL;
    kiln_context_options o = {.struct_size = sizeof o, .cache_dir = "off", .max_modules = max_modules};
    ck_assert_ok(kiln_context_create("cuda:0", &o, &ctx));
    return ctx;
}

static uint64_t bytes_of(const DLTensor *t) {
    uint64_t bytes = t->dtype.bits / 8;
    for (int d = 0; d < t->ndim; d++) bytes *= (uint64_t)t->shape[d];
    return bytes;
}

/* Copies of the host tensors on the device. */
static void move(lb_call *c, kiln_context *ctx) {
    for (int i = 0; i < 8; i++) {
        DLTensor *t = (DLTensor *)c->args[i];
        if (!t) continue;
        void *host = t->data;
        ck_assert_ok(kiln_device_alloc(ctx, bytes_of(t), &t->data));
        ck_assert_ok(kiln_device_copy_in(ctx, t->data, host, bytes_of(t)));
        t->device.device_type = 2;
    }
}

static void clear_result(const lb_call *c, kiln_context *ctx) {
    ck_assert_ok(kiln_device_fill(ctx, c->out.t.data, 0xff, bytes_of(&c->out.t), NULL));
    ck_assert_ok(kiln_stream_synchronize(ctx, NULL));
}

static void check_result(lb_call *c, kiln_context *ctx) {
    int64_t b = c->out.shape[0], e = c->out.shape[1];
    ck_assert_ok(kiln_device_copy_out(ctx, c->result, c->out.t.data, bytes_of(&c->out.t)));
    for (int64_t r = 0; r < b; r++)
        for (int64_t i = 0; i < e; i++) {
            float wanted = lb_expected(c, b, e, r, i), got = c->result[r * e + i];
            ck_assert_msg(fabsf(got - wanted) <= 1e-5f * (fabsf(wanted) + 1), "[%d,%d] is %g, wanted %g", (int)r,
                          (int)i, (double)got, (double)wanted);
        }
}

static void release(lb_call *c, kiln_context *ctx) {
    for (int i = 0; i < 8; i++)
        if (c->args[i]) ck_assert_ok(kiln_device_free(ctx, c->args[i]->data));
    lb_end(c);
}

START_TEST(results) {
    if (!there) return;
    static const int64_t shapes[][2] = {{1, 1}, {5, 60}, {130, 100}, {2048, 256}, {3, 8192}, {70000, 8}};
    kiln_context *ctx = create(0);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        lb_call c;
        lb_begin(&c, shapes[i][0], shapes[i][1]);
        move(&c, ctx);
        clear_result(&c, ctx);
        ck_assert_ok(lb_run(ctx, &c, NULL));
        check_result(&c, ctx);
        release(&c, ctx);
    }
    ck_assert_ok(kiln_context_destroy(ctx));
}
END_TEST

START_TEST(a_graph_outlives_its_kernels) {
    if (!there) return;
    lb_call c, other;
    void *stream = NULL, *graph = NULL, *exec = NULL;
    kiln_context *ctx = create(4), *keeper = create(0);
    lb_begin(&c, 130, 100);
    move(&c, ctx);
    ck_assert_ok(kiln_stream_create(ctx, &stream));
    ck_assert_int_eq(gpu.begin_capture(stream, 0), 0);
    ck_assert_int_eq(lb_run(ctx, &c, stream), KILN_E_CAPTURE);
    ck_assert_int_eq(gpu.end_capture(stream, &graph), 0); /* what was refused did not break it */
    c.options.common.flags = KILN_PREPARE_ONLY;
    ck_assert_ok(lb_run(ctx, &c, stream));
    c.options.common.flags = 0;
    ck_assert_int_eq(gpu.begin_capture(stream, 0), 0);
    ck_assert_ok(lb_run(ctx, &c, stream));
    ck_assert_int_eq(gpu.end_capture(stream, &graph), 0);
    ck_assert_int_eq(gpu.instantiate(&exec, graph, 0), 0);
    for (int k = 0; k < 100; k++) { /* other variants push everything out that may go */
        lb_begin(&other, 5, 8);
        other.options.top_k = 10 + k;
        move(&other, ctx);
        ck_assert_ok(lb_run(ctx, &other, NULL));
        release(&other, ctx);
    }
    kiln_counters n = counters_of(ctx);
    ck_assert_uint_le(n.kernels_loaded - n.kernels_unloaded, 4);
    ck_assert_ok(kiln_context_destroy(ctx));
    clear_result(&c, keeper);
    ck_assert_int_eq(gpu.graph_launch(exec, stream), 0);
    ck_assert_ok(kiln_stream_synchronize(keeper, stream));
    check_result(&c, keeper);
    ck_assert_ok(kiln_stream_destroy(keeper, stream));
    release(&c, keeper);
    ck_assert_ok(kiln_context_destroy(keeper));
}
END_TEST

START_TEST(memory_stays_bounded) {
    if (!there) return;
    size_t before = 0, after = 0, total;
    kiln_context *ctx = create(16);
    for (int k = 1; k <= 200; k++) {
        lb_call c;
        lb_begin(&c, 5, 8);
        c.options.top_k = k;
        move(&c, ctx);
        ck_assert_ok(lb_run(ctx, &c, NULL));
        release(&c, ctx);
        if (k == 10) ck_assert_int_eq(gpu.mem_info(&before, &total), 0);
    }
    ck_assert_int_eq(gpu.mem_info(&after, &total), 0);
    ck_assert_msg(after + (64 << 20) > before, "%zu bytes are gone", before - after);
    ck_assert_ok(kiln_context_destroy(ctx));
}
END_TEST

/* ---- several streams at once ------------------------------------------------------------------------------------- */

static kiln_context *shared;

typedef struct worker {
    lb_call call;
    void *stream;
} worker;

static void *run_often(void *arg) {
    worker *w = arg;
    for (int i = 0; i < 500; i++)
        if (lb_run(shared, &w->call, w->stream) != KILN_OK) abort();
    if (kiln_stream_synchronize(shared, w->stream) != KILN_OK) abort();
    return NULL;
}

START_TEST(four_streams_at_once) {
    if (!there) return;
    worker w[4];
    pthread_t thread[4];
    shared = create(0);
    for (int i = 0; i < 4; i++) {
        lb_begin(&w[i].call, 100 + i, 256);
        move(&w[i].call, shared);
        clear_result(&w[i].call, shared);
        ck_assert_ok(kiln_stream_create(shared, &w[i].stream));
    }
    for (int i = 0; i < 4; i++) pthread_create(&thread[i], NULL, run_often, &w[i]);
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 4; i++) {
        check_result(&w[i].call, shared);
        ck_assert_ok(kiln_stream_destroy(shared, w[i].stream));
        release(&w[i].call, shared);
    }
    ck_assert_ok(kiln_context_destroy(shared));
}
END_TEST

int main(void) {
    Suite *s = suite_create("call_gpu");
    TCase *t = tcase_create("calls");
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, results);
    tcase_add_test(t, a_graph_outlives_its_kernels);
    tcase_add_test(t, memory_stays_bounded);
    tcase_add_test(t, four_streams_at_once);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
