/* cache/evict.c: the directory stays within its bound, the longest unused goes first, readers are not disturbed
 * (C-10). */
#define _GNU_SOURCE
#include "cache/cache_support.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ENTRY = 100 * 1024, LIMIT = 10 << 20 };

static kn_cache *open_bounded(int64_t max_bytes) {
    const kn_cache_options o = {.dir = in_scratch("c"), .no_read_only = true, .max_bytes = max_bytes};
    kn_cache *c;
    ck_assert_ok(kn_cache_open(&o, &c));
    return c;
}

static void set_age(const char *file, time_t seconds) {
    struct timespec t[2] = {{.tv_sec = time(NULL)}, {.tv_sec = time(NULL) - seconds}}; /* atime: now, and no matter */
    ck_assert_int_eq(utimensat(AT_FDCWD, file, t, AT_SYMLINK_NOFOLLOW), 0);
}

START_TEST(never_over_the_bound) {
    kn_cache *c = open_bounded(LIMIT);
    for (int i = 0; i < 200; i++) {
        publish_number(c, i, ENTRY);
        size_t used = disk_usage(in_scratch("c"));
        ck_assert_msg(used <= LIMIT, "after %d entries: %zu bytes", i + 1, used);
        ck_assert_uint_eq(stats_of(c).bytes_dir, used);
    }
    kn_cache_stats s = stats_of(c);
    ck_assert_uint_ge(s.evicted, 90);
    ck_assert_uint_eq(s.published, 200);
    kn_cache_close(c);
    c = open_bounded(LIMIT);
    int kept = 0;
    for (int i = 0; i < 200; i++) {
        bool there = has_number(c, i, ENTRY);
        if (kept) ck_assert_msg(there, "entry %d is gone, older ones are not", i); /* the newest survive */
        kept += there;
    }
    ck_assert_int_ge(kept, 80);
    kn_cache_close(c);
    ck_assert_int_eq(warnings(), 0);
}
END_TEST

START_TEST(the_used_one_survives) {
    kn_cache *c = open_bounded(LIMIT);
    publish_number(c, 1000, ENTRY);
    kn_cache_close(c);
    char file[512];
    snprintf(file, sizeof file, "%s", only_file(in_scratch("c"), ""));
    for (int i = 0; i < 300; i++) {
        if (i % 10 == 0) {
            set_age(file, 4000); /* an hour on: the next hit renews the stamp */
            c = open_bounded(LIMIT);
            ck_assert_msg(has_number(c, 1000, ENTRY), "gone after %d", i);
            kn_cache_close(c);
            c = open_bounded(LIMIT);
        }
        publish_number(c, i, ENTRY);
        if (i % 10 == 9) kn_cache_close(c);
    }
}
END_TEST

/* Another process has the entry open while it is evicted. */
START_TEST(open_entries_stay_readable) {
    kn_cache *c = open_bounded(LIMIT);
    publish_number(c, 1, ENTRY);
    int fd = open(only_file(in_scratch("c"), ""), O_RDONLY);
    size_t len;
    unsigned char *before = slurp(only_file(in_scratch("c"), ""), &len);
    uint64_t n, bytes;
    ck_assert_ok(kn_cache_trim(c, 0, &n, &bytes));
    ck_assert_uint_eq(n, 1);
    ck_assert_uint_ge(bytes, ENTRY);
    ck_assert_int_eq(count_files(in_scratch("c"), ""), 0);
    unsigned char *after = malloc(len);
    ck_assert_int_eq(read(fd, after, len), (ssize_t)len);
    ck_assert_mem_eq(before, after, len);
    close(fd);
    free(before);
    free(after);
    kn_cache_close(c);
}
END_TEST

START_TEST(trim_to_a_size) {
    kn_cache *c = open_bounded(LIMIT);
    for (int i = 0; i < 20; i++) publish_number(c, i, ENTRY);
    uint64_t n, bytes;
    ck_assert_ok(kn_cache_trim(c, LIMIT, &n, &bytes));
    ck_assert_uint_eq(n, 0);
    ck_assert_ok(kn_cache_trim(c, 10 * 108 * 1024, &n, &bytes));
    ck_assert_uint_eq(n, 10);
    ck_assert_uint_le(disk_usage(in_scratch("c")), 10 * 108 * 1024);
    ck_assert_fails(kn_cache_trim(c, -1, &n, &bytes), KN_E_ARG, "-1");
    kn_cache_close(c);
    c = open_cache("off");
    ck_assert_ok(kn_cache_trim(c, 0, &n, &bytes));
    ck_assert_uint_eq(n, 0);
    kn_cache_close(c);
}
END_TEST

/* Left-overs: temporaries go when their writer must be dead, quarantined files before any entry; strangers stay. */
START_TEST(leftovers) {
    kn_cache *c = open_bounded(LIMIT);
    publish_number(c, 1, ENTRY);
    char file[512], path[600];
    snprintf(file, sizeof file, "%s", only_file(in_scratch("c"), ""));
    char *name = strrchr(file, '/') + 1;
    snprintf(path, sizeof path, "%.*s.t-old", (int)(name - file), file);
    spew(path, "x", 1);
    set_age(path, 4000);
    snprintf(path, sizeof path, "%.*s.t-new", (int)(name - file), file);
    spew(path, "x", 1);
    snprintf(path, sizeof path, "%.*sREADME", (int)(name - file), file);
    spew(path, "x", 1);
    set_age(path, 1000000);
    snprintf(path, sizeof path, "%s.bad", file);
    spew(path, "x", 1);
    uint64_t n, bytes;
    ck_assert_ok(kn_cache_trim(c, LIMIT, &n, &bytes));
    ck_assert_int_eq(count_files(in_scratch("c"), ".t-old"), 0);
    ck_assert_int_eq(count_files(in_scratch("c"), ".t-new"), 1);
    ck_assert_int_eq(count_files(in_scratch("c"), ".bad"), 1);
    set_age(path, 8 * 24 * 3600);
    ck_assert_ok(kn_cache_trim(c, LIMIT, &n, &bytes));
    ck_assert_int_eq(count_files(in_scratch("c"), ".bad"), 0);
    spew(path, "x", 1);
    ck_assert_ok(kn_cache_trim(c, (int64_t)disk_usage(in_scratch("c")) - 4096 - 1, &n, &bytes));
    ck_assert_uint_eq(n, 0); /* the quarantined one sufficed */
    ck_assert_int_eq(access(file, F_OK), 0);
    ck_assert_ok(kn_cache_trim(c, 0, &n, &bytes));
    ck_assert_uint_eq(n, 1);
    ck_assert_int_eq(count_files(in_scratch("c"), ""), 2);
    ck_assert_int_eq(count_files(in_scratch("c"), "README"), 1);
    kn_cache_close(c);
}
END_TEST

/* Limits as users write them. */
START_TEST(odd_limits) {
    const kn_cache_options o = {.dir = in_scratch("c"), .no_read_only = true};
    kn_cache *c;
    setenv("KILN_CACHE_MAX", "0", 1); /* look, but write nothing */
    ck_assert_ok(kn_cache_open(&o, &c));
    publish_number(c, 1, 100);
    ck_assert_uint_eq(stats_of(c).published + stats_of(c).publish_failed, 0);
    ck_assert_str_eq(stats_of(c).dir_reason, "KILN_CACHE_MAX is 0: nothing is written");
    kn_cache_close(c);
    ck_assert_int_eq(count_files(in_scratch("c"), ""), 0);
    const char *bad[] = {"-1", "1e30", "18446744073709551615", "lots"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        setenv("KILN_CACHE_MAX", bad[i], 1);
        ck_assert_fails(kn_cache_open(&o, &c), KN_E_ARG, "KILN_CACHE_MAX");
    }
    setenv("KILN_CACHE_MAX", "9223372036854775807", 1);
    ck_assert_ok(kn_cache_open(&o, &c));
    publish_number(c, 1, 100);
    ck_assert_uint_eq(stats_of(c).published, 1);
    kn_cache_close(c);
    setenv("KILN_CACHE_MAX", "50K", 1); /* smaller than the entry */
    ck_assert_ok(kn_cache_open(&o, &c));
    publish_number(c, 2, ENTRY);
    ck_assert_uint_eq(stats_of(c).publish_failed, 1);
    ck_assert(has_number(c, 1, 100)); /* nothing was thrown out for it */
    kn_cache_close(c);
}
END_TEST

/* Others fill the directory meanwhile: seen when enough has been added ourselves, or some time has passed. */
START_TEST(additions_of_others) {
    kn_cache *c = open_bounded(LIMIT), *other = open_bounded(10 * LIMIT);
    publish_number(c, 1, ENTRY);
    for (int i = 0; i < 150; i++) publish_number(other, 1000 + i, ENTRY);
    ck_assert_uint_gt(disk_usage(in_scratch("c")), LIMIT);
    if (_i == 0) {
        for (int i = 10; i < 14; i++) publish_number(c, i, ENTRY);
    } else {
        sleep(11);
        publish_number(c, 2, 100);
    }
    ck_assert_uint_le(disk_usage(in_scratch("c")), LIMIT);
    kn_cache_close(c);
    kn_cache_close(other);
}
END_TEST

/* Four processes fill one directory: the bound holds when they are done, and all they say is the truth. */
START_TEST(several_processes) {
    enum { P = 4 };
    pid_t ids[P];
    for (int p = 0; p < P; p++) {
        ids[p] = fork();
        if (ids[p] == 0) {
            kn_cache *c = open_bounded(LIMIT / 4);
            for (int i = 0; i < 60; i++) publish_number(c, p * 1000 + i, ENTRY);
            bool quiet = stats_of(c).publish_failed == 0 && stats_of(c).rejected == 0 && warnings() == 0;
            kn_cache_close(c);
            _exit(quiet ? 0 : 1);
        }
    }
    for (int p = 0; p < P; p++) {
        int status;
        waitpid(ids[p], &status, 0);
        ck_assert_int_eq(status, 0);
    }
    kn_cache *c = open_bounded(LIMIT / 4);
    publish_number(c, 9999, ENTRY);
    ck_assert_uint_le(disk_usage(in_scratch("c")), LIMIT / 4);
    kn_cache_close(c);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cache/evict");
    TCase *t = scratch_case(s, "all");
    tcase_add_test(t, never_over_the_bound);
    tcase_add_test(t, the_used_one_survives);
    tcase_add_test(t, open_entries_stay_readable);
    tcase_add_test(t, trim_to_a_size);
    tcase_add_test(t, leftovers);
    tcase_add_test(t, odd_limits);
    tcase_add_test(t, several_processes);
    tcase_add_loop_test(t, additions_of_others, 0, run_long() ? 2 : 1);
    return kn_run_suite(s);
}
