/* jit/dl, and the choice of an nvJitLink among several: order, overrides, refusals, forks. */
#define _GNU_SOURCE
#include "jit/dl.h"

#include "base/alloc.h"
#include "fakecuda/fake_user.h"
#include "jit/assemble.h"
#include "support/suite.h"

#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- searching --------------------------------------------------------------------------------------------------- */

static char root[64];
static const char *const probe_names[] = {"libkilnprobe.so.13", "libkilnprobe.so.12", NULL};
static const char *const probe_folders[] = {
    "$CUDA_HOME/lib64", "$VIRTUAL_ENV/lib/python3*/site-packages/nvidia/cu13/lib", "/nonexistent/folder", NULL};
static const kn_dl_search probe = {"the probe", KN_ENV_LIBNVRTC, probe_names, probe_folders, "build it"};

/* root/DIR/NAME -> the fake library `what`. */
static void plant(const char *dir, const char *name, const char *what, const char *file) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s/", root, dir);
    for (char *c = path + 1; *c; c++)
        if (*c == '/') {
            *c = '\0';
            mkdir(path, 0755);
            *c = '/';
        }
    strcat(path, name);
    ck_assert_int_eq(symlink(fake_path(what, file), path), 0);
}

static void make_root(void) {
    snprintf(root, sizeof root, "/tmp/kiln-dl-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    unsetenv("KILN_LIBNVRTC");
    unsetenv("KILN_LIBNVJITLINK");
    unsetenv("CUDA_HOME");
    unsetenv("VIRTUAL_ENV");
}

static void remove_root(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    ck_assert_int_eq(system(command), 0);
}

START_TEST(nothing_found) {
    void *h = (void *)1;
    char path[KN_DL_PATH_CAP];
    ck_assert_fails(kn_dl_open(&probe, &h, path), KN_E_UNAVAILABLE, "the probe was not found");
    ck_assert_ptr_null(h);
    const char *parts[] = {"libkilnprobe.so.13, libkilnprobe.so.12", "$CUDA_HOME/lib64", "/nonexistent/folder",
                           "build it", "KILN_LIBNVRTC"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        ck_assert_msg(strstr(kn_error_message(), parts[i]) != NULL, "%s: %s", parts[i], kn_error_message());
}
END_TEST

START_TEST(newest_name_wins_over_folders) {
    void *h = NULL;
    char path[KN_DL_PATH_CAP];
    plant("home/lib64", "libkilnprobe.so.12", "fakenvjitlink_12_0", "libnvJitLink.so.12");
    plant("venv/lib/python3.11/site-packages/nvidia/cu13/lib", "libkilnprobe.so.13", "fakenvjitlink_12_8",
          "libnvJitLink.so.12");
    char home[96], venv[96];
    snprintf(home, sizeof home, "%s/home", root);
    snprintf(venv, sizeof venv, "%s/venv", root);
    setenv("CUDA_HOME", home, 1);
    ck_assert_ok(kn_dl_open(&probe, &h, path));
    ck_assert_ptr_nonnull(strstr(path, "home/lib64/libkilnprobe.so.12"));
    setenv("VIRTUAL_ENV", venv, 1);
    ck_assert_ok(kn_dl_open(&probe, &h, path));
    ck_assert_ptr_nonnull(strstr(path, "cu13/lib/libkilnprobe.so.13"));
    int (*f)(void) = NULL;
    ck_assert(kn_dl_symbol(h, "nvJitLinkVersion", &f));
    ck_assert_ptr_nonnull((void *)(uintptr_t)f);
    ck_assert(!kn_dl_symbol(h, "no_such_function", &f));
}
END_TEST

START_TEST(relative_variables_are_not_followed) {
    void *h = NULL;
    char path[KN_DL_PATH_CAP];
    plant("home/lib64", "libkilnprobe.so.12", "fakenvjitlink_12_0", "libnvJitLink.so.12");
    ck_assert_int_eq(chdir(root), 0);
    setenv("CUDA_HOME", "home", 1);
    ck_assert_int_eq(kn_dl_open(&probe, &h, path), KN_E_UNAVAILABLE);
}
END_TEST

START_TEST(a_file_that_does_not_load_is_named_and_passed_over) {
    void *h = NULL;
    char path[KN_DL_PATH_CAP], home[96];
    plant("home/lib64", "libkilnprobe.so.13", "fakenvjitlink_broken", "libnvJitLink.so.13");
    snprintf(home, sizeof home, "%s/home", root);
    setenv("CUDA_HOME", home, 1);
    ck_assert_fails(kn_dl_open(&probe, &h, path), KN_E_UNAVAILABLE, "kiln_symbol_that_exists_nowhere");
    plant("home/lib64", "libkilnprobe.so.12", "fakenvjitlink_12_0", "libnvJitLink.so.12");
    ck_assert_ok(kn_dl_open(&probe, &h, path));
    ck_assert_ptr_nonnull(strstr(path, "libkilnprobe.so.12"));
}
END_TEST

START_TEST(overrides) {
    void *h = NULL;
    char path[KN_DL_PATH_CAP];
    setenv("KILN_LIBNVRTC", "off", 1);
    ck_assert_fails(kn_dl_open(&probe, &h, path), KN_E_UNAVAILABLE, "switched off");
    setenv("KILN_LIBNVRTC", "/nonexistent/lib.so", 1);
    ck_assert_fails(kn_dl_open(&probe, &h, path), KN_E_UNAVAILABLE, "KILN_LIBNVRTC names a library that does not load");
    setenv("KILN_LIBNVRTC", fake_path("fakenvjitlink_12_0", "libnvJitLink.so.12"), 1);
    ck_assert_ok(kn_dl_open(&probe, &h, path));
    ck_assert_ptr_nonnull(strstr(path, "fakenvjitlink_12_0"));
}
END_TEST

#ifdef KN_FAULT_INJECTION
START_TEST(out_of_memory) {
    for (uint64_t n = 1; n < 10; n++) {
        void *h;
        char path[KN_DL_PATH_CAP];
        kn_fault_arm(n);
        kn_status st = kn_dl_open(&probe, &h, path);
        bool reached = kn_fault_visits() >= n;
        kn_fault_arm(0);
        ck_assert_int_eq(st, reached ? KN_E_NOMEM : KN_E_UNAVAILABLE);
        if (!reached) return;
    }
}
END_TEST
#endif

/* ---- nvJitLink variants: each test is a process of its own ------------------------------------------------------- */

static kn_expansion tiny(void) {
    static char ptx[] = ".version 8.0\n.target sm_90a\n";
    kn_expansion x = {.ptx = ptx, .ptx_len = strlen(ptx)};
    strcpy(x.meta.entry, "tiny");
    strcpy(x.meta.target, "sm_90a");
    return x;
}

static kn_status assemble_tiny(char cubin_text[64], kn_asm_report *r) {
    kn_expansion x = tiny();
    void *cubin = NULL;
    size_t len = 0;
    kn_status st = kn_nvjitlink_assemble(&x, &cubin, &len, r);
    if (st == KN_OK) snprintf(cubin_text, 64, "%s", (const char *)cubin + 1);
    kn_free(cubin);
    return st;
}

START_TEST(oldest_names_without_a_version_call) {
    const kn_assembler_id *id;
    kn_asm_report r;
    char text[64];
    setenv("KILN_LIBNVJITLINK", fake_path("fakenvjitlink_12_0", "libnvJitLink.so.12"), 1);
    ck_assert_ok(kn_nvjitlink_id(&id));
    ck_assert_uint_eq(id->version, 12000);
    ck_assert_str_eq(id->options, "-O3 -Xptxas=-v");
    ck_assert_ptr_nonnull(strstr(id->path, "fakenvjitlink_12_0"));
    ck_assert_ok(assemble_tiny(text, &r));
    ck_assert_str_eq(text, "ELF fake nvJitLink 12_0");
    ck_assert_uint_eq(r.registers, 11);
}
END_TEST

START_TEST(newer_names_and_version_call) {
    const kn_assembler_id *id;
    kn_asm_report r;
    char text[64];
    setenv("KILN_LIBNVJITLINK", fake_path("fakenvjitlink_12_8", "libnvJitLink.so.12"), 1);
    ck_assert_ok(kn_nvjitlink_id(&id));
    ck_assert_uint_eq(id->version, 12090); /* what it says of itself, not its names */
    ck_assert_str_eq(id->options, "-O3 -Xptxas=-v -no-cache");
    ck_assert_ok(assemble_tiny(text, &r));
    ck_assert_str_eq(text, "ELF fake nvJitLink 12_8");
}
END_TEST

START_TEST(incomplete_and_broken_libraries) {
    const kn_assembler_id *id;
    setenv("KILN_LIBNVJITLINK", fake_path("fakenvjitlink_partial", "libnvJitLink.so.12"), 1);
    ck_assert_fails(kn_nvjitlink_id(&id), KN_E_UNAVAILABLE, "no complete set of functions");
    ck_assert_ptr_null(id);
    setenv("KILN_LIBNVJITLINK", fake_path("fakenvjitlink_broken", "libnvJitLink.so.13"), 1);
    ck_assert_fails(kn_nvjitlink_id(&id), KN_E_UNAVAILABLE, "kiln_symbol_that_exists_nowhere");
    /* A failure is not for ever. */
    setenv("KILN_LIBNVJITLINK", fake_path("fakenvjitlink_12_8", "libnvJitLink.so.12"), 1);
    ck_assert_ok(kn_nvjitlink_id(&id));
}
END_TEST

START_TEST(every_call_counts) {
    static const char *const calls[] = {
        "Create:3",         "Destroy:6",        "AddData:4",   "Complete:9", "GetLinkedCubinSize:6",
        "GetLinkedCubin:6", "GetInfoLogSize:6", "GetInfoLog:6"};
    kn_asm_report r;
    char text[64];
    setenv("KILN_LIBNVJITLINK", fake_path("fakenvjitlink_12_0", "libnvJitLink.so.12"), 1);
    ck_assert_ok(assemble_tiny(text, &r));
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        setenv("FAKENVJITLINK", calls[i], 1);
        ck_assert_msg(assemble_tiny(text, &r) == KN_E_ASSEMBLE, "%s", calls[i]);
        char code[16];
        snprintf(code, sizeof code, "code %s", strchr(calls[i], ':') + 1);
        ck_assert_msg(strstr(kn_error_message(), code) != NULL, "%s: %s", calls[i], kn_error_message());
        unsetenv("FAKENVJITLINK");
        ck_assert_ok(assemble_tiny(text, &r)); /* the next one works */
    }
    setenv("FAKENVJITLINK", "AddData:4", 1);
    ck_assert_fails(assemble_tiny(text, &r), KN_E_ASSEMBLE, "PTX line 3: error: planted");
    unsetenv("FAKENVJITLINK");
}
END_TEST

/* ---- forks ------------------------------------------------------------------------------------------------------- */

static kn_fork_lock lock = KN_FORK_LOCK_INIT;
static pthread_barrier_t held, let_go;

static void *hold_lock(void *arg) {
    (void)arg;
    kn_fork_lock_take(&lock);
    pthread_barrier_wait(&held);
    pthread_barrier_wait(&let_go);
    kn_fork_lock_release(&lock);
    return NULL;
}

START_TEST(lock_held_at_the_fork) {
    pthread_t t;
    pthread_barrier_init(&held, NULL, 2);
    pthread_barrier_init(&let_go, NULL, 2);
    pthread_create(&t, NULL, hold_lock, NULL);
    pthread_barrier_wait(&held);
    pid_t child = fork();
    if (child == 0) {
        alarm(5);
        kn_fork_lock_take(&lock);
        kn_fork_lock_release(&lock);
        _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    ck_assert_int_eq(status, 0);
    pthread_barrier_wait(&let_go);
    pthread_join(t, NULL);
    kn_fork_lock_take(&lock);
    kn_fork_lock_release(&lock);
}
END_TEST

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static volatile bool stop;

static void *assemble_forever(void *arg) {
    kn_asm_report r;
    char text[64];
    while (!stop && assemble_tiny(text, &r) == KN_OK) {
    }
    return arg;
}

START_TEST(forks_beside_a_compiling_thread) {
    pthread_t t;
    setenv("KILN_LIBNVJITLINK", fake_path("fakenvjitlink_12_0", "libnvJitLink.so.12"), 1);
    pthread_create(&t, NULL, assemble_forever, NULL);
    for (int i = 0; i < 200; i++) {
        pid_t child = fork();
        if (child == 0) {
            kn_asm_report r;
            char text[64];
            alarm(10);
            _exit(assemble_tiny(text, &r) == KN_OK ? 0 : 1);
        }
        int status = -1;
        waitpid(child, &status, 0);
        ck_assert_int_eq(status, 0);
    }
    stop = true;
    pthread_join(t, NULL);
}
END_TEST
#endif

int main(void) {
    Suite *s = suite_create("jit/dl");
    TCase *t = tcase_create("search");
    tcase_add_checked_fixture(t, make_root, remove_root);
    tcase_add_test(t, nothing_found);
    tcase_add_test(t, newest_name_wins_over_folders);
    tcase_add_test(t, relative_variables_are_not_followed);
    tcase_add_test(t, a_file_that_does_not_load_is_named_and_passed_over);
    tcase_add_test(t, overrides);
#ifdef KN_FAULT_INJECTION
    tcase_add_test(t, out_of_memory);
#endif
    tcase_add_test(t, oldest_names_without_a_version_call);
    tcase_add_test(t, newer_names_and_version_call);
    tcase_add_test(t, incomplete_and_broken_libraries);
    tcase_add_test(t, every_call_counts);
    suite_add_tcase(s, t);
    t = tcase_create("forks");
    tcase_add_test(t, lock_held_at_the_fork);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* their own locks do not survive such forks */
    tcase_add_test(t, forks_beside_a_compiling_thread);
#endif
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
