/* jit/driver: which library, how old, what is missing, forks, threads; all on the fake driver. Each test is a process
 * of its own, because the driver is loaded once a process. */
#define _GNU_SOURCE
#include "jit/driver.h"

#include "fakecuda/fake_user.h"
#include "jit/backend.h"
#include "support/suite.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

START_TEST(no_driver) {
    int count = -1, version = -1;
    const char *path = "x";
    kn_backend *b = NULL;
    setenv("KILN_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
    ck_assert_fails(kn_backend_cuda_version(&version, &path), KN_E_UNAVAILABLE, "/nonexistent/libcuda.so.1");
    ck_assert_int_eq(version, 0);
    ck_assert_ptr_null(path);
    ck_assert_fails(kn_backend_cuda_count(&count), KN_E_UNAVAILABLE, "KILN_LIBCUDA names a library that does not load");
    ck_assert_int_eq(count, 0);
    ck_assert_fails(kn_backend_cuda_create(0, &b), KN_E_UNAVAILABLE, "the CUDA driver");
    ck_assert_ptr_null(b);
    /* Not for ever: a driver that appears is found. */
    fake_start("");
    ck_assert_ok(kn_backend_cuda_count(&count));
    ck_assert_int_eq(count, 1);
}
END_TEST

/* The default search, in a process without PATH: "libcuda.so.1" by the loader, and no plain libcuda.so anywhere. */
START_TEST(found_by_the_loader) {
    char folder[512], self[512], out[256] = "";
    snprintf(folder, sizeof folder, "%s", fake_path("fakecuda", "libcuda.so.1"));
    *strrchr(folder, '/') = '\0';
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    ck_assert_int_gt(n, 0);
    self[n] = '\0';
    int fds[2];
    ck_assert_int_eq(pipe(fds), 0);
    pid_t child = fork();
    if (child == 0) {
        char library_path[600];
        snprintf(library_path, sizeof library_path, "LD_LIBRARY_PATH=%s", folder);
        char *argv[] = {self, "--probe", NULL}, *env[] = {library_path, "PATH=", "FAKECUDA=devices=3", NULL};
        dup2(fds[1], 1);
        execve(self, argv, env);
        _exit(9);
    }
    close(fds[1]);
    size_t got = 0;
    ssize_t k;
    while ((k = read(fds[0], out + got, sizeof out - 1 - got)) > 0) got += (size_t)k;
    int status = -1;
    waitpid(child, &status, 0);
    ck_assert_msg(status == 0, "%s", out);
    ck_assert_msg(strstr(out, "3 devices, 13000, ") && strstr(out, "fakecuda/libcuda.so.1"), "%s", out);
}
END_TEST

static int probe(void) {
    int count = 0, version = 0;
    const char *path = "";
    if (kn_backend_cuda_count(&count) != KN_OK || kn_backend_cuda_version(&version, &path) != KN_OK) {
        printf("%s\n", kn_error_message());
        return 1;
    }
    printf("%d devices, %d, %s\n", count, version, path);
    return 0;
}

START_TEST(stub) {
    int count, version;
    const char *path;
    fake_start("stub");
    ck_assert_fails(kn_backend_cuda_count(&count), KN_E_UNAVAILABLE, "link-time stub");
    ck_assert_ptr_nonnull(strstr(kn_error_message(), "fakecuda/libcuda.so.1"));
    ck_assert_fails(kn_backend_cuda_version(&version, &path), KN_E_UNAVAILABLE, "link-time stub");
}
END_TEST

START_TEST(stub_seen_by_init) {
    int count;
    fake_start("init=34");
    ck_assert_fails(kn_backend_cuda_count(&count), KN_E_UNAVAILABLE, "link-time stub");
}
END_TEST

START_TEST(old_driver) {
    int count, version = 0;
    const char *path;
    fake_start("version=11040");
    ck_assert_fails(kn_backend_cuda_count(&count), KN_E_UNAVAILABLE, "supports CUDA 11.4");
    ck_assert_ptr_nonnull(strstr(kn_error_message(), "CUDA 12.0"));
    ck_assert_ok(kn_backend_cuda_version(&version, &path)); /* kiln env still shows it */
    ck_assert_int_eq(version, 11040);
}
END_TEST

START_TEST(missing_function) {
    int count;
    setenv("KILN_LIBCUDA", fake_path("fakecuda_without_tensor_maps", "libcuda.so.1"), 1);
    ck_assert_fails(kn_backend_cuda_count(&count), KN_E_UNAVAILABLE, "no function cuTensorMapEncodeTiled");
    ck_assert_ptr_nonnull(strstr(kn_error_message(), "CUDA 12.0 brought"));
}
END_TEST

START_TEST(no_device) {
    int count = -1;
    fake_start("init=100");
    ck_assert_fails(kn_backend_cuda_count(&count), KN_E_UNAVAILABLE, "CUDA_ERROR_NO_DEVICE");
    ck_assert_int_eq(count, 0);
    kn_backend *b;
    fake_driver.fakecuda_script("init=0 devices=2");
    ck_assert_ok(kn_backend_cuda_count(&count));
    ck_assert_int_eq(count, 2);
    ck_assert_fails(kn_backend_cuda_create(2, &b), KN_E_UNAVAILABLE, "cuda:2: the driver shows 2 devices");
    ck_assert_fails(kn_backend_cuda_create(-1, &b), KN_E_UNAVAILABLE, "cuda:-1");
}
END_TEST

START_TEST(unknown_codes_are_told_too) {
    int count;
    fake_start("init=12345");
    ck_assert_fails(kn_backend_cuda_count(&count), KN_E_UNAVAILABLE, "cuInit: an unknown code (12345: no description)");
}
END_TEST

/* Loading the library and asking its version is not using the driver: the child may still use it. */
START_TEST(fork_before_first_use) {
    int version, count;
    const char *path;
    fake_start("");
    ck_assert_ok(kn_backend_cuda_version(&version, &path));
    pid_t child = fork();
    if (child == 0) _exit(kn_backend_cuda_count(&count) == KN_OK ? 0 : 1);
    int status = -1;
    waitpid(child, &status, 0);
    ck_assert_int_eq(status, 0);
    ck_assert_ok(kn_backend_cuda_count(&count));
}
END_TEST

START_TEST(fork_after_first_use) {
    int count;
    kn_backend *b = NULL;
    fake_start("");
    ck_assert_ok(kn_backend_cuda_create(0, &b));
    unsigned long before = fake_driver.fakecuda_calls();
    pid_t child = fork();
    if (child == 0) {
        kn_backend *c = NULL;
        void *p = NULL;
        alarm(5);
        bool right = kn_backend_cuda_count(&count) == KN_E_FORK && kn_backend_cuda_create(0, &c) == KN_E_FORK &&
                     b->ops->alloc(b, 64, &p) == KN_E_FORK && b->ops->free(b, &count) == KN_E_FORK &&
                     strstr(kn_error_message(), "forked") != NULL;
        b->ops->destroy(b);
        _exit(right && fake_driver.fakecuda_calls() == before ? 0 : 1); /* the driver was not called at all */
    }
    int status = -1;
    waitpid(child, &status, 0);
    ck_assert_int_eq(status, 0);
    void *p = NULL;
    ck_assert_ok(b->ops->alloc(b, 64, &p));
    ck_assert_ok(b->ops->free(b, p));
    b->ops->destroy(b);
}
END_TEST

/* Somebody else's code initialised the driver before the fork; the driver itself then says so. */
START_TEST(fork_after_use_by_others) {
    int count;
    fake_start("");
    int (*init)(unsigned) = NULL;
    fake_call("cuInit", &init);
    ck_assert_int_eq(init(0), 0);
    pid_t child = fork();
    if (child == 0) _exit(kn_backend_cuda_count(&count) == KN_E_FORK && strstr(kn_error_message(), "forked") ? 0 : 1);
    int status = -1;
    waitpid(child, &status, 0);
    ck_assert_int_eq(status, 0);
}
END_TEST

static pthread_barrier_t start;

static void *count_devices(void *arg) {
    (void)arg;
    int count = 0;
    pthread_barrier_wait(&start);
    return kn_backend_cuda_count(&count) == KN_OK && count == 1 ? NULL : (void *)1;
}

START_TEST(threads_initialise_once) {
    pthread_t t[32];
    fake_start("");
    pthread_barrier_init(&start, NULL, 32);
    for (int i = 0; i < 32; i++) ck_assert_int_eq(pthread_create(&t[i], NULL, count_devices, NULL), 0);
    for (int i = 0; i < 32; i++) {
        void *failed;
        pthread_join(t[i], &failed);
        ck_assert_ptr_null(failed);
    }
    ck_assert_uint_eq(fake_driver.fakecuda_count("cuInit"), 1);
}
END_TEST

START_TEST(codes_choose_statuses) {
    const kn_driver *cu = NULL;
    fake_start("");
    ck_assert_ok(kn_driver_get(&cu));
    static const struct {
        int rc;
        kn_status status;
    } rows[] = {{1, KN_E_LOAD},      {2, KN_E_NOMEM},    {4, KN_E_UNAVAILABLE}, {100, KN_E_UNAVAILABLE},
                {200, KN_E_LOAD},    {700, KN_E_LAUNCH}, {719, KN_E_LAUNCH},    {900, KN_E_CAPTURE},
                {908, KN_E_CAPTURE}, {909, KN_E_LOAD}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ck_assert_int_eq(kn_driver_fail(cu, KN_E_LOAD, "cuThis", rows[i].rc, "%s", ""), rows[i].status);
    kn_driver_fail(cu, KN_E_LOAD, "cuThis", 1, "of %d", 7);
    ck_assert_str_eq(kn_error_message(), "cuThis: CUDA_ERROR_INVALID_VALUE (1: invalid argument); of 7");
    ck_assert(kn_driver_gone(0) && kn_driver_gone(4) && kn_driver_gone(201) && kn_driver_gone(709));
    ck_assert(!kn_driver_gone(1) && !kn_driver_gone(700));
}
END_TEST

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--probe") == 0) return probe();
    Suite *s = suite_create("jit/driver");
    TCase *t = tcase_create("all");
    tcase_add_test(t, no_driver);
    tcase_add_test(t, found_by_the_loader);
    tcase_add_test(t, stub);
    tcase_add_test(t, stub_seen_by_init);
    tcase_add_test(t, old_driver);
    tcase_add_test(t, missing_function);
    tcase_add_test(t, no_device);
    tcase_add_test(t, unknown_codes_are_told_too);
    tcase_add_test(t, fork_before_first_use);
    tcase_add_test(t, fork_after_first_use);
    tcase_add_test(t, fork_after_use_by_others);
    tcase_add_test(t, threads_initialise_once);
    tcase_add_test(t, codes_choose_statuses);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
