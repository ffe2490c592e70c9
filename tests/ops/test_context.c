/* Contexts: handles that are no handles, creation, options, forks. On the null device. */
#include "base/status.h"
#include "ops_support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static kiln_context *create(void) {
    kiln_context *ctx = NULL;
    ck_assert_ok(kiln_context_create("null", NULL, &ctx));
    return ctx;
}

static kiln_context *handle(uint64_t bits) {
    return (kiln_context *)(uintptr_t)bits;
}

static uint64_t bits_of(kiln_context *ctx) {
    return (uint64_t)(uintptr_t)ctx;
}

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

START_TEST(only_handles_are_handles) {
    int32_t type, id;
    uint64_t state = 42, faults;
    kiln_context *ctx = create(), *other = create();
    ck_assert_ok(kiln_context_device(ctx, &type, &id));
    ck_assert_int_eq(type, 1);
    ck_assert_int_eq(id, 0);
    ck_assert_fails(kiln_context_device(NULL, &type, &id), KILN_E_HANDLE, "the context is NULL");
    ck_assert_fails(kiln_context_device(handle(bits_of(ctx) & UINT32_MAX), &type, &id), KILN_E_HANDLE, "not a context");
    ck_assert_fails(kiln_context_device(handle(bits_of(ctx) | (uint64_t)1 << 60), &type, &id), KILN_E_HANDLE, "not a");
    ck_assert_fails(kiln_context_device((kiln_context *)&state, &type, &id), KILN_E_HANDLE, "not a context");
    for (int bit = 0; bit < 64; bit++) {
        kiln_context *near = handle(bits_of(ctx) ^ (uint64_t)1 << bit);
        if (near != other) ck_assert_int_eq(kiln_context_device(near, &type, &id), KILN_E_HANDLE);
    }
    for (int i = 0; i < 1000000; i++) {
        kiln_context *any = handle(next_random(&state));
        ck_assert_int_eq(kiln_context_device_faults(any, &faults), KILN_E_HANDLE);
    }
    ck_assert_int_eq(kiln_context_destroy(handle(next_random(&state))), KILN_E_HANDLE);
    ck_assert_ok(kiln_context_destroy(ctx));
    ck_assert_fails(kiln_context_destroy(ctx), KILN_E_HANDLE, "was destroyed");
    ck_assert_int_eq(kiln_context_device(ctx, &type, &id), KILN_E_HANDLE);
    kiln_context *reused = create(); /* the same row, another serial number */
    ck_assert_ptr_ne(reused, ctx);
    ck_assert_int_eq(kiln_context_device(ctx, &type, &id), KILN_E_HANDLE);
    ck_assert_ok(kiln_context_destroy(reused));
    ck_assert_ok(kiln_context_destroy(other));
}
END_TEST

/* Threads call while the context is destroyed under them: a call either runs or is refused. */
static _Atomic(kiln_context *) shared;
static atomic_bool stop;

static void *call_shared(void *arg) {
    lb_call c;
    (void)arg;
    lb_begin(&c, 5, 8);
    while (!atomic_load(&stop)) {
        int32_t st = lb_run(atomic_load(&shared), &c, NULL);
        if (st != KILN_OK && st != KILN_E_HANDLE) abort();
    }
    lb_end(&c);
    return NULL;
}

START_TEST(destroy_under_running_calls) {
    pthread_t thread[4];
    atomic_store(&shared, create());
    for (int i = 0; i < 4; i++) pthread_create(&thread[i], NULL, call_shared, NULL);
    for (int i = 0; i < 200; i++) {
        kiln_context *old = atomic_exchange(&shared, create());
        ck_assert_ok(kiln_context_destroy(old));
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
    ck_assert_ok(kiln_context_destroy(atomic_load(&shared)));
}
END_TEST

START_TEST(many_contexts) {
    static kiln_context *all[1025];
    for (int i = 0; i < 1024; i++) all[i] = create();
    ck_assert_fails(kiln_context_create("null", NULL, &all[1024]), KILN_E_UNAVAILABLE, "1024 contexts already");
    ck_assert_ptr_null(all[1024]);
    for (int i = 0; i < 1024; i++) ck_assert_ok(kiln_context_destroy(all[i]));
}
END_TEST

START_TEST(device_names) {
    static const char *const wrong[] = {"",         "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:99999999999",
                                        "sim sm_80"};
    kiln_context *ctx = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ck_assert_fails(kiln_context_create(wrong[i], NULL, &ctx), KILN_E_ARG, "wanted auto, cuda:N, sim, sim:ARCH");
        ck_assert_ptr_null(ctx);
    }
    ck_assert_fails(kiln_context_create("null:sm_77", NULL, &ctx), KILN_E_UNSUPPORTED, "sm_77");
    ck_assert_fails(kiln_context_create("null", NULL, NULL), KILN_E_ARG, "out is NULL");
    setenv("KILN_DEVICE", "null:sm_80", 1);
    ck_assert_ok(kiln_context_create(NULL, NULL, &ctx));
    char json[2048];
    uint64_t needed = 0;
    ck_assert_ok(kiln_context_device_json(ctx, json, sizeof json, &needed));
    ck_assert_ptr_nonnull(strstr(json, "\"kind\":\"null\""));
    ck_assert_ptr_nonnull(strstr(json, "\"target\":\"sm_80\""));
    ck_assert_uint_eq(needed, strlen(json) + 1);
    ck_assert_fails(kiln_context_device_json(ctx, json, 10, &needed), KILN_E_ARG, "the buffer has 10");
    ck_assert_ok(kiln_context_device_json(ctx, NULL, 0, &needed));
    ck_assert_ok(kiln_context_destroy(ctx));
}
END_TEST

START_TEST(options_and_environment) {
    kiln_context *ctx = NULL;
    union {
        kiln_context_options o;
        unsigned char bytes[256];
    } u;
    memset(&u, 0, sizeof u);
    ck_assert_fails(kiln_context_create("null", &u.o, &ctx), KILN_E_ABI, "struct_size is 0");
    u.o.struct_size = sizeof u; /* a newer caller */
    ck_assert_ok(kiln_context_create("null", &u.o, &ctx));
    ck_assert_ok(kiln_context_destroy(ctx));
    u.bytes[200] = 1;
    ck_assert_fails(kiln_context_create("null", &u.o, &ctx), KILN_E_ABI, "byte 200 of 256 is set");
    u.o.struct_size = sizeof u.o;
    u.o.shapes = 4;
    ck_assert_fails(kiln_context_create("null", &u.o, &ctx), KILN_E_ARG, "shapes is 4; wanted 0 to 3");
    u.o.shapes = 0;
    u.o.sm_limit = -1;
    ck_assert_fails(kiln_context_create("null", &u.o, &ctx), KILN_E_ARG, "sm_limit is -1");
    u.o.sm_limit = 0;
    u.o.cache_max_bytes = -5;
    ck_assert_fails(kiln_context_create("null", &u.o, &ctx), KILN_E_ARG, "cache_max_bytes is -5");
    u.o.cache_max_bytes = 0;
    u.o.struct_size = 8; /* an older caller: the rest is not read */
    u.o.path = 77;
    ck_assert_ok(kiln_context_create("null", &u.o, &ctx));
    ck_assert_ok(kiln_context_destroy(ctx));
    static const char *const wrong[][2] = {{"KILN_SHAPES", "some"},    {"KILN_ON_MISS", "2"},
                                           {"KILN_PATH", "x"},         {"KILN_MAX_MODULES", "0"},
                                           {"KILN_CACHE_MAX", "1e30"}, {"KILN_LINEINFO", "yes"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        setenv(wrong[i][0], wrong[i][1], 1);
        ck_assert_fails(kiln_context_create("null", NULL, &ctx), KILN_E_ARG, wrong[i][0]);
        unsetenv(wrong[i][0]);
    }
}
END_TEST

START_TEST(the_environment_is_read_once) {
    lb_call c;
    kiln_context *ctx = NULL;
    char file[] = "/tmp/kiln-test-record-XXXXXX";
    close(mkstemp(file));
    lb_begin(&c, 5, 8);
    setenv("KILN_RECORD", file, 1);
    setenv("KILN_ON_MISS", "error", 1);
    ck_assert_ok(kiln_context_create("null", NULL, &ctx));
    unsetenv("KILN_ON_MISS");
    ck_assert_int_eq(lb_run(ctx, &c, NULL), KILN_E_NOT_CACHED);
    ck_assert_ok(kiln_context_destroy(ctx));
    ctx = create();
    unsetenv("KILN_RECORD");
    ck_assert_ok(lb_run(ctx, &c, NULL));
    FILE *f = fopen(file, "r");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ne(fgetc(f), EOF);
    fclose(f);
    unlink(file);
    ck_assert_ok(kiln_context_destroy(ctx));
    lb_end(&c);
}
END_TEST

/* ---- forks ------------------------------------------------------------------------------------------------------- */

static int exit_code_of(pid_t child) {
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

/* In a child: 0 if an inherited context is refused and a new one works. */
static int child_of_fork(kiln_context *inherited, const lb_call *c) {
    kiln_context *own = NULL;
    alarm(20);
    if (lb_run(inherited, c, NULL) != KILN_E_FORK) return 1;
    if (!strstr(kiln_error_message(), "before this process was forked")) return 2;
    if (kiln_context_destroy(inherited) != KILN_OK) return 3;
    if (kiln_context_create("null", NULL, &own) != KILN_OK) return 4;
    if (lb_run(own, c, NULL) != KILN_OK) return 5;
    return kiln_context_destroy(own) == KILN_OK ? 0 : 6;
}

START_TEST(a_forked_child_needs_its_own_context) {
    lb_call c;
    kiln_context *ctx = create();
    lb_begin(&c, 5, 8);
    ck_assert_ok(lb_run(ctx, &c, NULL));
    pid_t child = fork();
    if (child == 0) _exit(child_of_fork(ctx, &c));
    ck_assert_int_eq(exit_code_of(child), 0);
    ck_assert_ok(lb_run(ctx, &c, NULL)); /* the parent goes on */
    ck_assert_ok(kiln_context_destroy(ctx));
    lb_end(&c);
}
END_TEST

static void *build_all_the_time(void *arg) {
    lb_call c;
    int64_t rows = 1;
    while (!atomic_load(&stop)) {
        lb_begin(&c, rows++ % 500 + 1, 8);
        if (lb_run(arg, &c, NULL) != KILN_OK) abort();
        lb_end(&c);
    }
    return NULL;
}

/* Forking while another thread builds: no child may hang. */
START_TEST(forks_while_another_thread_builds) {
    lb_call c;
    pthread_t thread;
    kiln_context *ctx = NULL;
    kiln_context_options o = {.struct_size = sizeof o, .shapes = KILN_SHAPES_EXACT, .max_modules = 8};
    ck_assert_ok(kiln_context_create("null", &o, &ctx));
    lb_begin(&c, 5, 8);
    pthread_create(&thread, NULL, build_all_the_time, ctx);
    for (int i = 0; i < 200; i++) {
        pid_t child = fork();
        if (child == 0) _exit(child_of_fork(ctx, &c));
        ck_assert_int_eq(exit_code_of(child), 0);
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    ck_assert_ok(kiln_context_destroy(ctx));
    lb_end(&c);
}
END_TEST

int main(void) {
    Suite *s = suite_create("context");
    TCase *t = tcase_create("contexts");
    tcase_add_test(t, only_handles_are_handles);
    tcase_add_test(t, destroy_under_running_calls);
    tcase_add_test(t, many_contexts);
    tcase_add_test(t, device_names);
    tcase_add_test(t, options_and_environment);
    tcase_add_test(t, the_environment_is_read_once);
    tcase_add_test(t, a_forked_child_needs_its_own_context);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    /* The sanitizers' own allocators hang in the child of a process whose other threads allocate. */
    tcase_add_test(t, forks_while_another_thread_builds);
#else
    (void)forks_while_another_thread_builds;
#endif
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
