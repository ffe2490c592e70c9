/* base/file.c: whole files, and what cannot be read or written. The single calls are tested by the cache. */
#define _GNU_SOURCE
#include "base/file.h"

#include "base/alloc.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/suite.h"

static char folder[64], path[128];

static void setup(void) {
    snprintf(folder, sizeof folder, "/tmp/kiln-test-file-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/x", folder);
}

static void teardown(void) {
    unlink(path);
    rmdir(folder);
}

START_TEST(what_is_written_is_read) {
    char *data;
    size_t n;
    ck_assert_ok(kn_file_write(path, "one\0two", 7));
    ck_assert_ok(kn_file_read(path, 7, &data, &n));
    ck_assert_uint_eq(n, 7);
    ck_assert_mem_eq(data, "one\0two", 8); /* the NUL behind it among them */
    kn_free(data);
    ck_assert_ok(kn_file_write(path, "", 0));
    ck_assert_ok(kn_file_read(path, 7, &data, &n));
    ck_assert_uint_eq(n, 0);
    ck_assert_str_eq(data, "");
    kn_free(data);
}
END_TEST

START_TEST(refused_by_name) {
    char *data;
    size_t n;
    ck_assert_ok(kn_file_write(path, "12345678", 8));
    ck_assert_fails(kn_file_read(path, 7, &data, &n), KN_E_FORMAT, "/x: 8 bytes; at most 7 are read");
    ck_assert_ptr_null(data);
    ck_assert_fails(kn_file_read(folder, 100000, &data, &n), KN_E_IO, "Is a directory");
    unlink(path);
    ck_assert_fails(kn_file_read(path, 7, &data, &n), KN_E_IO, "/x: No such file or directory");
    ck_assert_fails(kn_file_write("/nowhere/x", "1", 1), KN_E_IO, "/nowhere/x: No such file or directory");
    ck_assert_fails(kn_file_write("/dev/full", "1", 1), KN_E_IO, "/dev/full: No space left on device");
}
END_TEST

#ifdef KN_FAULT_INJECTION
START_TEST(the_chosen_call_fails) {
    char *data;
    size_t n;
    ck_assert_ok(kn_file_write(path, "1", 1));
    kn_fault_force("openat", 3, EMFILE); /* the third from now */
    ck_assert_ok(kn_file_read(path, 7, &data, &n));
    kn_free(data);
    ck_assert_ok(kn_file_write(path, "2", 1));
    ck_assert_fails(kn_file_read(path, 7, &data, &n), KN_E_IO, "Too many open files");
    ck_assert_ok(kn_file_read(path, 7, &data, &n));
    kn_free(data);
    kn_fault_force("write", 0, ENOSPC); /* all of them */
    for (int i = 0; i < 3; i++) ck_assert_fails(kn_file_write(path, "3", 1), KN_E_IO, "No space left");
    kn_fault_force_clear();
    ck_assert_ok(kn_file_write(path, "3", 1));
    kn_fault_arm(1);
    kn_status st = kn_file_write(path, "4", 1);
    kn_fault_arm(0);
    ck_assert_int_eq(st, KN_E_IO);
}
END_TEST

/* Whatever fails, nothing leaks and the sentence names the file. */
START_TEST(each_site_fails_once) {
    char *data;
    size_t n;
    int failed = 0;
    ck_assert_ok(kn_file_write(path, "1234", 4));
    for (uint64_t k = 1; k <= 6; k++) {
        kn_fault_arm(k);
        kn_status st = kn_file_read(path, 7, &data, &n);
        kn_fault_arm(0);
        failed += st != KN_OK;
        ck_assert(st == KN_OK || st == KN_E_IO || st == KN_E_NOMEM);
        if (st == KN_OK)
            kn_free(data);
        else
            ck_assert_ptr_nonnull(strstr(kn_error_message(), path));
    }
    ck_assert_int_ge(failed, 4); /* open, stat, memory, read */
}
END_TEST
#endif

int main(void) {
    Suite *s = suite_create("base/file");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, what_is_written_is_read);
    tcase_add_test(t, refused_by_name);
#ifdef KN_FAULT_INJECTION
    tcase_add_test(t, the_chosen_call_fails);
    tcase_add_test(t, each_site_fails_once);
#endif
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
