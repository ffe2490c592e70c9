/* cache/record.c: whole lines, also from many processes; failures warn once and do no harm. */
#define _GNU_SOURCE
#include "cache/cache_support.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

START_TEST(lines_never_mix) {
    enum { P = 8, LINES = 100, WIDTH = 300 };
    const char *path = in_scratch("shapes.jsonl");
    for (int p = 0; p < P; p++) {
        if (fork() != 0) continue;
        char line[WIDTH + 1];
        memset(line, 'a' + p, WIDTH);
        line[WIDTH] = '\0';
        for (int i = 0; i < LINES; i++) kn_record_line(path, line);
        _exit(0);
    }
    while (wait(NULL) > 0) {
    }
    size_t len;
    unsigned char *text = slurp(path, &len);
    ck_assert_uint_eq(len, P * LINES * (WIDTH + 1));
    for (size_t at = 0; at < len; at += WIDTH + 1) {
        for (size_t i = 1; i < WIDTH; i++) ck_assert_int_eq(text[at + i], text[at]);
        ck_assert_int_eq(text[at + WIDTH], '\n');
    }
    free(text);
}
END_TEST

START_TEST(failures_warn_once) {
    spew(in_scratch("victim"), "precious", 8);
    ck_assert_int_eq(symlink(in_scratch("victim"), in_scratch("link")), 0);
    ck_assert_int_eq(mkfifo(in_scratch("fifo"), 0600), 0);
    kn_record_line(in_scratch("no/such/file"), "{}");
    kn_record_line(in_scratch("link"), "{}");
    kn_record_line(in_scratch("fifo"), "{}");
    kn_record_line(in_scratch(""), "{}");
    ck_assert_int_eq(warnings(), 1);
    ck_assert(strstr(last_warning(), "no/such/file") != NULL);
    size_t len;
    unsigned char *text = slurp(in_scratch("victim"), &len);
    ck_assert_uint_eq(len, 8);
    free(text);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cache/record");
    TCase *t = scratch_case(s, "all");
    tcase_add_test(t, lines_never_mix);
    tcase_add_test(t, failures_warn_once);
    return kn_run_suite(s);
}
