/* jit/backend_cuda on the fake driver: contexts, captures, threads on several devices, ends of processes. */
#define _GNU_SOURCE
#include "base/alloc.h"
#include "base/log.h"
#include "jit/cuda_probe.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

static kn_cu_context current_context(void) {
    int (*get)(kn_cu_context *) = NULL;
    kn_cu_context c = NULL;
    fake_call("cuCtxGetCurrent", &get);
    ck_assert_int_eq(get(&c), 0);
    return c;
}

START_TEST(the_current_context_is_left_alone) {
    kn_backend *a = NULL, *b = NULL;
    int (*retain)(kn_cu_context *, int), (*push)(kn_cu_context);
    fake_start("devices=2");
    ck_assert_ok(kn_backend_cuda_create(1, &b));
    fake_call("cuDevicePrimaryCtxRetain", &retain);
    fake_call("cuCtxPushCurrent_v2", &push);
    kn_cu_context first = NULL;
    ck_assert_int_eq(retain(&first, 0), 0);
    ck_assert_int_eq(push(first), 0);
    ck_assert_ok(kn_backend_cuda_create(0, &a));
    /* Device 0 is current, the work is on device 1: it lands there, and 0 stays current. */
    kn_expansion x = probe_kernel();
    kn_module *m = load(b, &x.meta);
    ck_assert_ok(launch(b, m, 1, false, NULL));
    ck_assert_uint_eq(fake_driver.fakecuda_count("launch probe device=1"), 1);
    ck_assert_ptr_eq(current_context(), first);
    b->ops->module_unload(b, m);
    /* A device's own context is used as it is, without a push. */
    unsigned long pushes = fake_driver.fakecuda_count("cuCtxPushCurrent");
    m = load(a, &x.meta);
    ck_assert_ok(launch(a, m, 1, false, NULL));
    ck_assert_uint_eq(fake_driver.fakecuda_count("cuCtxPushCurrent"), pushes);
    a->ops->module_unload(a, m);
    a->ops->destroy(a);
    b->ops->destroy(b);
    ck_assert_int_eq(fake_driver.fakecuda_live(), 1); /* this test's own reference */
    fake_assert_clean();
}
END_TEST

START_TEST(a_custom_context) {
    kn_backend *b = NULL;
    int (*create)(kn_cu_context *, unsigned, int), (*destroy)(kn_cu_context), (*pop)(kn_cu_context *);
    fake_start("");
    fake_call("cuCtxCreate_v2", &create);
    fake_call("cuCtxDestroy_v2", &destroy);
    fake_call("cuCtxPopCurrent_v2", &pop);
    int (*init)(unsigned) = NULL;
    fake_call("cuInit", &init);
    ck_assert_int_eq(init(0), 0);
    kn_cu_context custom = NULL, popped = NULL;
    ck_assert_int_eq(create(&custom, 0, 0), 0);
    ck_assert_ok(kn_backend_cuda_create(0, &b));
    ck_assert_uint_eq(fake_driver.fakecuda_count("cuDevicePrimaryCtxRetain"), 0); /* no second context beside it */
    kn_expansion x = probe_kernel();
    kn_module *m = load(b, &x.meta);
    void *p = NULL, *stream = NULL;
    ck_assert_ok(b->ops->alloc(b, 64, &p));
    ck_assert_ok(b->ops->stream_create(b, &stream));
    ck_assert_int_eq(pop(&popped), 0);
    ck_assert_ok(launch(b, m, 1, false, stream)); /* pushed and popped */
    ck_assert_ptr_null(current_context());
    ck_assert_int_eq(destroy(custom), 0);
    ck_assert_fails(launch(b, m, 1, false, stream), KN_E_DEVICE, "destroyed or reset");
    /* Freeing what died with the context succeeds and does not touch it. */
    b->ops->module_unload(b, m);
    ck_assert_ok(b->ops->free(b, p));
    ck_assert_ok(b->ops->stream_destroy(b, stream));
    b->ops->destroy(b);
    fake_assert_clean();
}
END_TEST

START_TEST(a_reset_of_the_primary_context) {
    kn_backend *b = NULL, *c = NULL;
    int (*reset)(int);
    fake_start("");
    ck_assert_ok(kn_backend_cuda_create(0, &b));
    kn_expansion x = probe_kernel();
    kn_module *m = load(b, &x.meta);
    void *p = NULL, *stream = NULL, *event = NULL, *host = NULL, *device = NULL;
    ck_assert_ok(b->ops->alloc(b, 64, &p));
    ck_assert_ok(b->ops->alloc_mapped(b, 64, &host, &device));
    ck_assert_ok(b->ops->stream_create(b, &stream));
    ck_assert_ok(b->ops->event_create(b, &event));
    fake_call("cuDevicePrimaryCtxReset_v2", &reset);
    ck_assert_int_eq(reset(0), 0);
    ck_assert_ok(kn_backend_cuda_create(0, &c)); /* the same address, another context */
    ck_assert_fails(launch(b, m, 1, false, NULL), KN_E_DEVICE, "destroyed or reset");
    b->ops->module_unload(b, m);
    ck_assert_ok(b->ops->free(b, p));
    ck_assert_ok(b->ops->free_mapped(b, host));
    ck_assert_ok(b->ops->event_destroy(b, event));
    ck_assert_ok(b->ops->stream_destroy(b, stream));
    b->ops->destroy(b);
    m = load(c, &x.meta);
    ck_assert_ok(launch(c, m, 1, false, NULL));
    c->ops->module_unload(c, m);
    c->ops->destroy(c);
    fake_assert_clean();
}
END_TEST

/* ---- captures, threads, ends ------------------------------------------------------------------------------------- */

START_TEST(captures_are_not_broken) {
    kn_backend *b = NULL;
    fake_start("");
    ck_assert_ok(kn_backend_cuda_create(0, &b));
    void *stream = NULL, *p = NULL, *host = NULL, *device = NULL, *event = NULL, *cubin = NULL;
    size_t len = 0;
    kn_asm_report r;
    bool capturing = false;
    ck_assert_ok(b->ops->stream_create(b, &stream));
    fake_driver.fakecuda_capture(stream, 1);
    ck_assert_ok(b->ops->stream_capturing(b, stream, &capturing));
    ck_assert(capturing);
    kn_expansion x = probe_kernel();
    kn_module *m = load(b, &x.meta);
    ck_assert_ok(b->ops->link(b, &x, &cubin, &len, &r));
    kn_free(cubin);
    ck_assert_ok(b->ops->alloc(b, 64, &p));
    ck_assert_ok(b->ops->free(b, p));
    ck_assert_ok(b->ops->alloc_mapped(b, 64, &host, &device));
    ck_assert_ok(b->ops->free_mapped(b, host));
    ck_assert_ok(b->ops->event_create(b, &event));
    ck_assert_ok(b->ops->event_destroy(b, event));
    ck_assert_ok(launch(b, m, 1, false, stream));
    b->ops->module_unload(b, m);
    ck_assert(fake_driver.fakecuda_capture_intact());
    /* The thread's own mode is what it was: a strict call of the program itself is still refused. */
    int (*alloc)(kn_cu_ptr *, size_t) = NULL;
    kn_cu_ptr q = 0;
    fake_call("cuMemAlloc_v2", &alloc);
    ck_assert_int_eq(alloc(&q, 64), 900);
    ck_assert(!fake_driver.fakecuda_capture_intact());
    fake_driver.fakecuda_capture(stream, 0);
    ck_assert_ok(b->ops->stream_destroy(b, stream));
    b->ops->destroy(b);
    fake_assert_clean();
}
END_TEST

typedef struct worker {
    kn_backend *backend[2];
    kn_module *module[2];
    pthread_barrier_t *start;
    bool ok;
} worker;

static void *work(void *arg) {
    worker *w = arg;
    void *p = NULL;
    pthread_barrier_wait(w->start);
    w->ok = true;
    for (int i = 0; i < 200 && w->ok; i++) {
        kn_backend *b = w->backend[i % 2];
        w->ok = launch(b, w->module[i % 2], 1, false, NULL) == KN_OK && b->ops->alloc(b, 64, &p) == KN_OK &&
                b->ops->free(b, p) == KN_OK;
    }
    if (w->ok && current_context() != NULL) w->ok = false;
    return NULL;
}

START_TEST(threads_on_two_devices) {
    enum { THREADS = 8 };
    worker w[THREADS];
    pthread_t t[THREADS];
    pthread_barrier_t barrier;
    fake_start("devices=2 device=1:8.6:84:101376");
    pthread_barrier_init(&barrier, NULL, THREADS);
    kn_backend *b[2];
    kn_module *m[2];
    kn_expansion x = probe_kernel();
    for (int i = 0; i < 2; i++) {
        ck_assert_ok(kn_backend_cuda_create(i, &b[i]));
        x.meta.smem_dynamic = i ? 70000 : 200000; /* two limits, each on its own device */
        m[i] = load(b[i], &x.meta);
    }
    for (int i = 0; i < THREADS; i++) {
        w[i] = (worker){{b[0], b[1]}, {m[0], m[1]}, &barrier, false};
        ck_assert_int_eq(pthread_create(&t[i], NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(t[i], NULL);
        ck_assert(w[i].ok);
    }
    ck_assert_uint_eq(fake_driver.fakecuda_count("launch probe device=0"), THREADS * 100);
    ck_assert_uint_eq(fake_driver.fakecuda_count("launch probe device=1"), THREADS * 100);
    for (int i = 0; i < 2; i++) {
        b[i]->ops->module_unload(b[i], m[i]);
        b[i]->ops->destroy(b[i]);
    }
    ck_assert_int_eq(fake_driver.fakecuda_live(), 0);
    fake_assert_clean();
}
END_TEST

START_TEST(a_driver_that_has_shut_down) {
    kn_backend *b = NULL;
    int warnings = 0;
    kn_log_set_callback(mute, &warnings);
    fake_start("");
    ck_assert_ok(kn_backend_cuda_create(0, &b));
    kn_expansion x = probe_kernel();
    kn_module *m = load(b, &x.meta);
    void *p = NULL;
    ck_assert_ok(b->ops->alloc(b, 64, &p));
    /* The context may go between the question and the call. */
    fake_driver.fakecuda_script("fail=cuMemFree_v2:1:709");
    ck_assert_ok(b->ops->free(b, p));
    fake_driver.fakecuda_script("deinit");
    b->ops->module_unload(b, m);
    ck_assert_ok(b->ops->free(b, p));
    b->ops->destroy(b);
    ck_assert_int_eq(warnings, 0);
}
END_TEST

/* exit(0) with everything still alive, from the main thread and from another: nothing of ours runs, nothing is said. */
static void *exit_now(void *arg) {
    (void)arg;
    exit(0);
}

static kn_backend *alive;
static kn_module *volatile alive_module; /* for leak checkers: reachable */

START_TEST(exit_with_everything_alive) {
    for (int other_thread = 0; other_thread < 2; other_thread++) {
        int fds[2];
        ck_assert_int_eq(pipe(fds), 0);
        pid_t child = fork();
        if (child == 0) {
            dup2(fds[1], 2);
            fake_start("");
            kn_expansion x = probe_kernel();
            void *p = NULL;
            if (kn_backend_cuda_create(0, &alive) != KN_OK || alive->ops->alloc(alive, 64, &p) != KN_OK) _exit(3);
            alive_module = load(alive, &x.meta);
            if (launch(alive, alive_module, 1, false, NULL) != KN_OK) _exit(4);
            pthread_t t;
            if (other_thread && pthread_create(&t, NULL, exit_now, NULL) == 0) pause();
            exit(0);
        }
        close(fds[1]);
        char text[2048];
        ssize_t n = read(fds[0], text, sizeof text);
        int status = -1;
        waitpid(child, &status, 0);
        ck_assert_msg(status == 0 && n == 0, "status %d, stderr: %.*s", status, (int)n, text);
        close(fds[0]);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("jit/backend_cuda_context");
    TCase *t = tcase_create("all");
    tcase_add_test(t, the_current_context_is_left_alone);
    tcase_add_test(t, a_custom_context);
    tcase_add_test(t, a_reset_of_the_primary_context);
    tcase_add_test(t, captures_are_not_broken);
    tcase_add_test(t, threads_on_two_devices);
    tcase_add_test(t, a_driver_that_has_shut_down);
    tcase_add_test(t, exit_with_everything_alive);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
