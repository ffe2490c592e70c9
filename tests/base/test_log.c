/* base/log.c: levels from KILN_LOG, what a level that is none does, where lines go. */
#define _GNU_SOURCE
#include "base/log.h"
#include "base/status.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/suite.h"

enum { MOST_LINES = 8 };
static char lines[MOST_LINES][256];
static int n_lines;

static void keep(void *user, int level, const char *line) {
    (void)user;
    if (n_lines < MOST_LINES) snprintf(lines[n_lines++], sizeof lines[0], "%d %s", level, line);
}

static void begin(const char *level) {
    setenv("KILN_LOG", level, 1);
    kn_log_set_level(-1);
    kn_log_set_callback(keep, NULL);
    n_lines = 0;
}

START_TEST(lines_up_to_the_level) {
    begin("2");
    ck_assert_int_eq(kn_log_level(), KN_LOG_PLAN);
    kn_log(KN_LOG_WARN, "a %d", 1);
    kn_log(KN_LOG_PLAN, "b");
    kn_log(KN_LOG_LAUNCH, "c");
    ck_assert_int_eq(n_lines, 2);
    ck_assert_str_eq(lines[0], "1 a 1");
    ck_assert_str_eq(lines[1], "2 b");
}
END_TEST

START_TEST(off) {
    begin("0");
    kn_log(KN_LOG_WARN, "a");
    ck_assert_int_eq(n_lines, 0);
    kn_log_set_level(KN_LOG_ALL);
    kn_log(KN_LOG_ALL, "b");
    ck_assert_int_eq(n_lines, 1);
}
END_TEST

START_TEST(unset_is_warnings) {
    begin("");
    ck_assert_int_eq(kn_log_level(), KN_LOG_WARN);
    ck_assert_int_eq(n_lines, 0);
}
END_TEST

/* Lines are written while an error sentence is on its way to the caller. */
static const char *const bad[] = {"debug", "5", "-1", "1x", "10"};
START_TEST(a_level_that_is_none_is_told_of_once) {
    char wanted[128];
    begin(bad[_i]);
    kn_fail(KN_E_ARG, "the sentence");
    kn_log(KN_LOG_ALL, "x");
    kn_log(KN_LOG_WARN, "y: %s", kn_error_message());
    ck_assert_str_eq(kn_error_message(), "the sentence");
    snprintf(wanted, sizeof wanted, "1 KILN_LOG is \"%s\"; wanted 0 to 4: taken for 1", bad[_i]);
    ck_assert_int_eq(n_lines, 2);
    ck_assert_str_eq(lines[0], wanted);
    ck_assert_str_eq(lines[1], "1 y: the sentence");
}
END_TEST

START_TEST(a_file_grows) {
    char path[] = "/tmp/kiln-test-log-XXXXXX", text[128] = "";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    begin("1");
    kn_log_set_callback(NULL, NULL);
    setenv("KILN_LOG_FILE", path, 1);
    kn_log(KN_LOG_WARN, "one");
    kn_log(KN_LOG_PLAN, "not this");
    kn_log(KN_LOG_WARN, "two");
    ck_assert_int_gt(read(fd, text, sizeof text - 1), 0);
    ck_assert_str_eq(text, "kiln[1] one\nkiln[1] two\n");
    close(fd);
    unlink(path);
}
END_TEST

int main(void) {
    Suite *s = suite_create("base/log");
    TCase *t = tcase_create("all");
    tcase_add_test(t, lines_up_to_the_level);
    tcase_add_test(t, off);
    tcase_add_test(t, unset_is_warnings);
    tcase_add_loop_test(t, a_level_that_is_none_is_told_of_once, 0, sizeof bad / sizeof *bad);
    tcase_add_test(t, a_file_grows);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
