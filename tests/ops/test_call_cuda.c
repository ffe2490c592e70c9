/* Whole calls through the public interface on the fake driver: captures, devices, streams, forks, and every driver call
 * failing once. */
#include "base/status.h"
#include "fakecuda/fake_user.h"
#include "ops_support.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

/* Without nvJitLink the driver links, so that this runs anywhere. */
static void start(const char *script) {
    setenv("KILN_LIBNVJITLINK", "off", 1);
    fake_start(script);
}

static kiln_context *create(const char *device) {
    kiln_context *ctx = NULL;
    kiln_context_options o = {.struct_size = sizeof o, .cache_dir = "off"};
    ck_assert_ok(kiln_context_create(device, &o, &ctx));
    return ctx;
}

/* The tensors of `c` in device memory of `ctx`. */
static void move(lb_call *c, kiln_context *ctx) {
    int32_t type, id;
    ck_assert_ok(kiln_context_device(ctx, &type, &id));
    for (int i = 0; i < 8; i++) {
        DLTensor *t = (DLTensor *)c->args[i];
        if (!t) continue;
        uint64_t bytes = t->dtype.bits / 8;
        for (int d = 0; d < t->ndim; d++) bytes *= (uint64_t)t->shape[d];
        ck_assert_ok(kiln_device_alloc(ctx, bytes, &t->data));
        memcpy(&t->device.device_type, &type, sizeof type); /* an enum in DLPack's header */
        t->device.device_id = id;
    }
}

static void release(lb_call *c, kiln_context *ctx) {
    for (int i = 0; i < 8; i++)
        if (c->args[i]) ck_assert_ok(kiln_device_free(ctx, c->args[i]->data));
    lb_end(c);
}

static unsigned long launches(void) {
    return fake_driver.fakecuda_count("cuLaunchKernel");
}

/* ---- where tensors live ------------------------------------------------------------------------------------------ */

START_TEST(addresses_are_the_drivers) {
    lb_call c;
    static float host[5 * 60];
    start("");
    kiln_context *ctx = create("cuda:0");
    lb_begin(&c, 5, 60);
    ck_assert_fails(lb_run(ctx, &c, NULL), KILN_E_DEVICE, "grad_tokens_per_expert: lives on CPU device 0");
    move(&c, ctx);
    void *data = c.mask.t.data;
    c.mask.t.data = host; /* says CUDA, is not */
    ck_assert_fails(lb_run(ctx, &c, NULL), KILN_E_DEVICE, "load_balance_backward: grad_expert_mask: ");
    ck_assert_uint_eq(launches(), 0);
    c.mask.t.data = data;
    ck_assert_ok(lb_run(ctx, &c, NULL));
    ck_assert_uint_eq(launches(), 1);
    release(&c, ctx);
    ck_assert_ok(kiln_context_destroy(ctx));
    ck_assert_int_eq(fake_driver.fakecuda_live(), 0);
    fake_assert_clean();
}
END_TEST

START_TEST(two_devices_in_one_process) {
    lb_call a, b;
    start("devices=2 device=1:8.6:84:101376");
    kiln_context *first = create("cuda:0"), *second = create("cuda:1");
    lb_begin(&a, 5, 60);
    lb_begin(&b, 5, 60);
    move(&a, first);
    move(&b, second);
    for (int i = 0; i < 3; i++) {
        ck_assert_ok(lb_run(first, &a, NULL));
        ck_assert_ok(lb_run(second, &b, NULL));
    }
    const DLTensor *mask = a.args[1];
    a.args[1] = b.args[1];
    ck_assert_fails(lb_run(first, &a, NULL), KILN_E_DEVICE,
                    "grad_expert_mask: lives on CUDA device 1 (DLPack type 2); the context's device is CUDA 0");
    a.args[1] = mask;
    b.tokens.t.data = a.tokens.t.data; /* says device 1, is of device 0 */
    b.options.top_k = 5;
    ck_assert_fails(lb_run(second, &b, NULL), KILN_E_DEVICE, "grad_tokens_per_expert: ");
    ck_assert_ok(lb_run(first, &a, NULL));
    ck_assert_uint_eq(launches(), 7);
    ck_assert_ok(kiln_context_destroy(first));
    ck_assert_ok(kiln_context_destroy(second));
    lb_end(&a);
    lb_end(&b);
    fake_assert_clean();
}
END_TEST

/* ---- captures ---------------------------------------------------------------------------------------------------- */

START_TEST(capture_needs_what_is_prepared) {
    lb_call c;
    void *stream = NULL;
    start("");
    kiln_context *ctx = create("cuda:0");
    lb_begin(&c, 5, 60);
    move(&c, ctx);
    ck_assert_ok(kiln_stream_create(ctx, &stream));
    fake_driver.fakecuda_capture(stream, 1);
    ck_assert_fails(
        lb_run(ctx, &c, stream), KILN_E_CAPTURE,
        "load_balance_backward: kernels for these shapes are not loaded yet, and the stream is being captured");
    fake_driver.fakecuda_capture(stream, 0);
    c.options.common.flags = KILN_PREPARE_ONLY;
    ck_assert_ok(lb_run(ctx, &c, NULL));
    c.options.common.flags = 0;
    ck_assert_uint_eq(launches(), 0);
    fake_driver.fakecuda_capture(stream, 1);
    ck_assert_ok(lb_run(ctx, &c, stream));
    ck_assert_int_eq(fake_driver.fakecuda_capture_intact(), 1);
    fake_driver.fakecuda_capture(stream, 0);
    ck_assert_uint_eq(launches(), 1);
    /* What the graph uses outlives everything. */
    for (int k = 10; k < 40; k++) {
        c.options.top_k = k;
        ck_assert_ok(lb_run(ctx, &c, NULL));
    }
    ck_assert_ok(kiln_stream_destroy(ctx, stream));
    release(&c, ctx);
    ck_assert_ok(kiln_context_destroy(ctx));
    ck_assert_uint_eq(fake_driver.fakecuda_count("cuMemFreeHost"), 0); /* the fault counter */
    ck_assert_uint_eq(fake_driver.fakecuda_count("cuModuleUnload"), fake_driver.fakecuda_count("cuModuleLoadData") - 1);
    fake_assert_clean();
}
END_TEST

START_TEST(a_captured_call_brings_its_workspace) {
    gg_call c;
    void *stream = NULL, *memory[5];
    start("");
    kiln_context *ctx = create("cuda:0");
    for (int i = 0; i < 5; i++) ck_assert_ok(kiln_device_alloc(ctx, 1 << 16, &memory[i]));
    gg_begin(&c, memory[0], memory[1], memory[2], memory[3]);
    for (int i = 0; i < 4; i++) ((DLTensor *)c.args[i])->device.device_type = 2;
    uint64_t bytes = gg_workspace(ctx, &c);
    ck_assert_ok(kiln_stream_create(ctx, &stream));
    c.options.common.flags = KILN_PREPARE_ONLY;
    ck_assert_ok(gg_run(ctx, &c, stream));
    unsigned long allocations = fake_driver.fakecuda_count("cuMemAlloc");
    c.options.common.flags = 0;
    ck_assert_ok(gg_run(ctx, &c, stream)); /* sized by the call before: nothing is allocated */
    ck_assert_uint_eq(fake_driver.fakecuda_count("cuMemAlloc"), allocations);
    fake_driver.fakecuda_capture(stream, 1);
    ck_assert_fails(gg_run(ctx, &c, stream), KILN_E_CAPTURE, "a captured call must bring its workspace: ");
    c.options.common.workspace = (void *)(((uintptr_t)memory[4] + 255) / 256 * 256);
    c.options.common.workspace_bytes = bytes;
    ck_assert_ok(gg_run(ctx, &c, stream));
    ck_assert_int_eq(fake_driver.fakecuda_capture_intact(), 1);
    fake_driver.fakecuda_capture(stream, 0);
    ck_assert_uint_eq(fake_driver.fakecuda_count("cuMemAlloc"), allocations);
    ck_assert_ok(kiln_stream_destroy(ctx, stream));
    for (int i = 0; i < 5; i++) ck_assert_ok(kiln_device_free(ctx, memory[i]));
    ck_assert_ok(kiln_context_destroy(ctx));
    fake_assert_clean();
}
END_TEST

/* Building and loading on one thread while another one captures in the strictest mode. */
START_TEST(a_capture_elsewhere_is_left_alone) {
    lb_call c;
    void *stream = NULL;
    start("");
    kiln_context *ctx = create("cuda:0"), *other = create("cuda:0");
    lb_begin(&c, 5, 60);
    move(&c, ctx);
    ck_assert_ok(kiln_stream_create(ctx, &stream));
    fake_driver.fakecuda_capture(stream, 1);
    ck_assert_ok(lb_run(ctx, &c, NULL));
    ck_assert_ok(lb_run(other, &c, NULL));
    ck_assert_ok(kiln_context_destroy(other));
    ck_assert_int_eq(fake_driver.fakecuda_capture_intact(), 1);
    fake_driver.fakecuda_capture(stream, 0);
    ck_assert_ok(kiln_stream_destroy(ctx, stream));
    release(&c, ctx);
    ck_assert_ok(kiln_context_destroy(ctx));
    fake_assert_clean();
}
END_TEST

/* ---- failures ---------------------------------------------------------------------------------------------------- */

/* Context, one call, destruction; what the call's device memory needs is there already. */
static char sentence[4096];

static int32_t whole_life(lb_call *c, bool *created) {
    kiln_context *ctx = NULL;
    kiln_context_options o = {.struct_size = sizeof o, .cache_dir = "off"};
    int32_t st = kiln_context_create("cuda:0", &o, &ctx);
    *created = st == KILN_OK;
    kiln_error_copy(sentence, sizeof sentence);
    if (st != KILN_OK) return st;
    st = lb_run(ctx, c, NULL);
    kiln_error_copy(sentence, sizeof sentence);
    int32_t second = lb_run(ctx, c, NULL);
    if (second != KILN_OK) kiln_error_copy(sentence, sizeof sentence);
    ck_assert_msg(second == KILN_OK || st == KILN_OK, "the call after a failed one: %s", kiln_error_message());
    ck_assert_int_eq(kiln_context_destroy(ctx), KILN_OK);
    return st != KILN_OK ? st : second;
}

START_TEST(every_driver_call_may_fail) {
    lb_call c;
    bool created;
    int named = 0;
    start("");
    kiln_context *owner = create("cuda:0");
    lb_begin(&c, 5, 60);
    move(&c, owner);
    long live = fake_driver.fakecuda_live();
    unsigned long before = fake_driver.fakecuda_calls();
    ck_assert_int_eq(whole_life(&c, &created), KILN_OK);
    unsigned long calls = fake_driver.fakecuda_calls() - before;
    ck_assert_uint_gt(calls, 10);
    for (unsigned long n = 1; n <= calls; n++) {
        char script[64];
        snprintf(script, sizeof script, "reset fail=%lu:999", n);
        fake_driver.fakecuda_script(script);
        int32_t st = whole_life(&c, &created);
        if (st != KILN_OK) {
            bool with_sizes = strstr(sentence, "(B=5, E=60)") != NULL;
            ck_assert_msg(st != KILN_E_INTERNAL, "call %lu: %s", n, sentence);
            ck_assert_msg(strstr(sentence, "999") || strstr(sentence, "destroyed or reset"), "call %lu: %s", n,
                          sentence);
            if (st == KILN_E_LAUNCH) named += with_sizes;
        }
        /* What the driver refused to take back is still there, and nothing else. */
        long left = fake_driver.fakecuda_live() - live;
        bool refused = st == KILN_OK || strstr(sentence, "Destroy");
        ck_assert_msg(left == 0 || (left == 1 && refused), "call %lu leaves %ld objects: %s", n, left, sentence);
        live += left;
    }
    ck_assert_int_gt(named, 0);
    fake_driver.fakecuda_script("reset");
    ck_assert_int_eq(whole_life(&c, &created), KILN_OK);
    ck_assert_int_eq(fake_driver.fakecuda_live(), live);
    release(&c, owner);
    ck_assert_ok(kiln_context_destroy(owner));
    fake_assert_clean();
}
END_TEST

START_TEST(no_driver_is_a_status) {
    int32_t count;
    kiln_context *ctx = NULL;
    setenv("KILN_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
    ck_assert_fails(kiln_context_create("cuda:0", NULL, &ctx), KILN_E_UNAVAILABLE, "/nonexistent/libcuda.so.1");
    ck_assert_fails(kiln_device_count(&count), KILN_E_UNAVAILABLE, "/nonexistent/libcuda.so.1");
    ck_assert_ok(kiln_context_create("null", NULL, &ctx)); /* all that needs no device goes on working */
    ck_assert_ok(kiln_context_destroy(ctx));
}
END_TEST

START_TEST(a_child_of_a_process_with_a_driver) {
    lb_call c;
    start("");
    kiln_context *ctx = create("cuda:0");
    lb_begin(&c, 5, 60);
    move(&c, ctx);
    ck_assert_ok(lb_run(ctx, &c, NULL));
    pid_t child = fork();
    if (child == 0) {
        kiln_context *own = NULL;
        if (lb_run(ctx, &c, NULL) != KILN_E_FORK) _exit(1);
        if (kiln_context_create("cuda:0", NULL, &own) != KILN_E_FORK) _exit(2);
        if (kiln_context_create("null", NULL, &own) != KILN_OK) _exit(3);
        unsigned long calls = fake_driver.fakecuda_calls();
        if (kiln_context_destroy(ctx) != KILN_OK || fake_driver.fakecuda_calls() != calls) _exit(4);
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child says %d", status);
    ck_assert_ok(lb_run(ctx, &c, NULL));
    release(&c, ctx);
    ck_assert_ok(kiln_context_destroy(ctx));
    fake_assert_clean();
}
END_TEST

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static kiln_context *shared;

static void *run_often(void *arg) {
    for (int i = 0; i < 200; i++)
        if (lb_run(shared, arg, NULL) != KILN_OK) abort();
    return NULL;
}

START_TEST(threads_share_a_context) {
    pthread_t thread[8];
    lb_call c[8];
    start("");
    shared = create("cuda:0");
    for (int i = 0; i < 8; i++) {
        lb_begin(&c[i], 5 + i / 2, 60);
        move(&c[i], shared);
    }
    for (int i = 0; i < 8; i++) pthread_create(&thread[i], NULL, run_often, &c[i]);
    for (int i = 0; i < 8; i++) pthread_join(thread[i], NULL);
    ck_assert_uint_eq(counters_of(shared).kernels_built, 4);
    ck_assert_uint_eq(counters_of(shared).launches, 1600);
    for (int i = 0; i < 8; i++) release(&c[i], shared);
    ck_assert_ok(kiln_context_destroy(shared));
    ck_assert_int_eq(fake_driver.fakecuda_live(), 0);
    fake_assert_clean();
}
END_TEST

int main(void) {
    Suite *s = suite_create("call_cuda");
    TCase *t = tcase_create("calls");
    tcase_add_test(t, addresses_are_the_drivers);
    tcase_add_test(t, two_devices_in_one_process);
    tcase_add_test(t, capture_needs_what_is_prepared);
    tcase_add_test(t, a_captured_call_brings_its_workspace);
    tcase_add_test(t, a_capture_elsewhere_is_left_alone);
    tcase_add_test(t, every_driver_call_may_fail);
    tcase_add_test(t, no_driver_is_a_status);
    tcase_add_test(t, a_child_of_a_process_with_a_driver);
    tcase_add_test(t, threads_share_a_context);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
