/* cache/store_dir.c through the cache: damaged, renamed and strange files are misses that heal themselves (C-03, C-06);
 * two assemblers never share a file (C-07); names of files and time stamps. */
#define _GNU_SOURCE
#include "cache/cache_support.h"
#include "cache/store_dir.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LEN = 2000 };

/* A cache directory with kernel 1 in it; its file. */
static const char *one_entry(const char *dir) {
    kn_cache *c = open_cache(dir);
    publish_number(c, 1, LEN);
    kn_cache_close(c);
    return only_file(dir, "");
}

START_TEST(file_names) {
    const char *dir = in_scratch("c");
    const char *file = one_entry(dir);
    kn_key k = key_of(1);
    kn_lookup q;
    ck_assert_ok(kn_lookup_init(&q, k.bytes.data, k.bytes.len, assembler_a));
    char key_hex[33], name[33], want[600];
    kn_digest_hex(q.key_digest, key_hex);
    kn_digest_hex(q.name_digest, name);
    snprintf(want, sizeof want, "%s/v1/%.2s/%s", dir, key_hex, name);
    ck_assert_str_eq(file, want);
    struct stat st;
    ck_assert_int_eq(stat(file, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    ck_assert_int_eq(stat(dir, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700);
    ck_assert_int_eq(stat(in_scratch("c/v1"), &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700);
    kn_key_free(&k);
}
END_TEST

/* Lookup of kernel 1 after its file has been spoilt: a miss, told once, moved aside, and whole again after a publish.
 */
static void check_heals(const char *dir, const char *what) {
    watch_log();
    kn_cache *c = open_cache(dir);
    ck_assert_msg(!has_number(c, 1, LEN), "%s: a hit", what);
    kn_cache_stats s = stats_of(c);
    ck_assert_msg(s.rejected == 1 && s.quarantined == 1 && s.misses == 1, "%s: rejected %d, quarantined %d", what,
                  (int)s.rejected, (int)s.quarantined);
    ck_assert_msg(warnings() == 1, "%s: %d warnings", what, warnings());
    publish_number(c, 1, LEN);
    s = stats_of(c);
    ck_assert_uint_eq(s.published, 1);
    ck_assert_uint_eq(s.publish_failed, 0);
    kn_cache_close(c);
    c = open_cache(dir);
    ck_assert_msg(has_number(c, 1, LEN), "%s: no hit after a new publish", what);
    ck_assert_uint_eq(stats_of(c).rejected, 0);
    kn_cache_close(c);
    ck_assert_int_eq(count_files(dir, ".t-"), 0);
}

START_TEST(damage_heals) {
    const char *dir = in_scratch("c");
    char file[512];
    snprintf(file, sizeof file, "%s", one_entry(dir));
    size_t len;
    unsigned char *good = slurp(file, &len);
    unsigned char *bad = calloc(1, len + 1024);
    const size_t cuts[] = {0, 1, len / 4, len / 2, len * 99 / 100, len - 1};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        spew(file, good, cuts[i]);
        check_heals(dir, "cut");
    }
    const size_t flips[] = {0, 9, 12, 16, 20, 24, 32, 40, 50, 66, 90, 120, 140, len / 2, len - 1};
    for (size_t i = 0; i < sizeof flips / sizeof *flips; i++) {
        memcpy(bad, good, len);
        bad[flips[i]] ^= 0x10;
        spew(file, bad, len);
        check_heals(dir, "flipped bit");
    }
    memcpy(bad, good, len);
    memset(bad + len, 0x5a, 1024);
    spew(file, bad, len + 1024);
    check_heals(dir, "trailing junk");
    memset(bad, 0, len);
    spew(file, bad, len);
    check_heals(dir, "zeros, as after a power cut");
    ck_assert_int_eq(count_files(dir, ".bad"), 1); /* the last one: they do not pile up */
    free(good);
    free(bad);
}
END_TEST

/* Things under an entry's name that are no regular file. */
START_TEST(strange_files_heal) {
    const char *dir = in_scratch("c"), *victim = in_scratch("victim");
    char file[512];
    struct stat st;
    snprintf(file, sizeof file, "%s", one_entry(dir));
    spew(victim, "precious", 8);
    for (int i = 0; i < 4; i++) {
        unlink(file);
        if (i == 0) ck_assert_int_eq(symlink(victim, file), 0);
        if (i == 1) ck_assert_int_eq(mkfifo(file, 0600), 0);
        if (i == 2) ck_assert_int_eq(mkdir(file, 0700), 0);
        if (i == 3) ck_assert_int_eq(symlink("/nowhere/at/all", file), 0);
        check_heals(dir, i == 0 ? "symbolic link" : i == 1 ? "fifo" : i == 2 ? "directory" : "dangling link");
        /* What was moved aside would be in the way of a directory's rename. */
        char aside[600];
        snprintf(aside, sizeof aside, "%s.bad", file);
        ck_assert_int_eq(lstat(aside, &st), 0);
        remove(aside);
    }
    size_t len;
    unsigned char *text = slurp(victim, &len);
    ck_assert_uint_eq(len, 8);
    ck_assert_mem_eq(text, "precious", 8);
    free(text);
}
END_TEST

/* C-06: an entry that is good, but under the name of another kernel. */
START_TEST(renamed_entry_is_refused) {
    const char *dir = in_scratch("c");
    char file_1[512], file_2[512];
    snprintf(file_1, sizeof file_1, "%s", one_entry(dir));
    ck_assert_int_eq(rename(file_1, in_scratch("moved")), 0);
    kn_cache *c = open_cache(dir);
    publish_number(c, 2, LEN);
    kn_cache_close(c);
    snprintf(file_2, sizeof file_2, "%s", only_file(dir, ""));
    ck_assert_int_eq(rename(in_scratch("moved"), file_2), 0);
    c = open_cache(dir);
    ck_assert(!has_number(c, 2, LEN));
    ck_assert_uint_eq(stats_of(c).rejected, 1);
    kn_cache_close(c);
}
END_TEST

START_TEST(assemblers_do_not_mix) {
    kn_cache *c = open_cache(in_scratch("c"));
    kn_key k = key_of(1);
    const kn_blob *b = NULL;
    ck_assert_ok(kn_cache_publish(c, &k, assembler_a, "from a", 6, "", 0, &b));
    kn_blob_release(b);
    ck_assert_ok(kn_cache_find(c, &k, assembler_b, 0, &b));
    ck_assert_ptr_null(b);
    ck_assert_ok(kn_cache_publish(c, &k, assembler_b, "from b", 6, "", 0, &b));
    kn_blob_release(b);
    kn_cache_close(c);
    ck_assert_int_eq(count_files(in_scratch("c"), ""), 2);
    c = open_cache(in_scratch("c"));
    ck_assert_ok(kn_cache_find(c, &k, assembler_a, 0, &b));
    ck_assert_str_eq(b->payload, "from a");
    kn_blob_release(b);
    ck_assert_ok(kn_cache_find(c, &k, assembler_b, 0, &b));
    ck_assert_str_eq(b->payload, "from b");
    kn_blob_release(b);
    kn_cache_close(c);
    kn_key_free(&k);
}
END_TEST

static void age(const char *file, time_t seconds) {
    struct timespec t[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = time(NULL) - seconds}};
    ck_assert_int_eq(utimensat(AT_FDCWD, file, t, 0), 0);
}

static time_t age_of(const char *file) {
    struct stat st;
    ck_assert_int_eq(stat(file, &st), 0);
    return time(NULL) - st.st_mtime;
}

/* A hit renews the stamp of last use, but not more often than once an hour; a stamp from the future is corrected. */
START_TEST(stamps_at_most_hourly) {
    const char *dir = in_scratch("c");
    const char *file = one_entry(dir);
    const struct { time_t before, at_most; } cases[] = {{3000, 3010}, {4000, 10}, {100000, 10}, {-100000, 10}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        age(file, cases[i].before);
        kn_cache *c = open_cache(dir);
        ck_assert(has_number(c, 1, LEN));
        kn_cache_close(c);
        time_t now = age_of(file);
        ck_assert_msg(now <= cases[i].at_most && now >= 0, "case %zu: %ld", i, (long)now);
        if (i == 0) ck_assert_int_ge(now, 3000);
    }
}
END_TEST

/* The directory may vanish under a running process. */
START_TEST(deleted_directory_comes_back) {
    const char *dir = in_scratch("a/b/c");
    kn_cache *c = open_cache(dir);
    publish_number(c, 1, LEN);
    remove_tree(in_scratch("a"));
    ck_assert(!has_number(c, 2, LEN));
    publish_number(c, 2, LEN);
    ck_assert_uint_eq(stats_of(c).publish_failed, 0);
    kn_cache_close(c);
    c = open_cache(dir);
    ck_assert(has_number(c, 2, LEN));
    kn_cache_close(c);
    ck_assert_int_eq(warnings(), 0);
}
END_TEST

/* A relative directory means the one at the time of opening, wherever the process goes later. */
START_TEST(relative_directory) {
    ck_assert_int_eq(chdir(in_scratch("")), 0);
    kn_cache *c = open_cache("rel/c/");
    ck_assert_int_eq(chdir("/"), 0);
    publish_number(c, 1, LEN);
    ck_assert_str_eq(stats_of(c).dir, in_scratch("rel/c"));
    kn_cache_close(c);
    only_file(in_scratch("rel/c"), "");
}
END_TEST

int main(void) {
    Suite *s = suite_create("cache/store_dir");
    TCase *t = scratch_case(s, "all");
    tcase_add_test(t, file_names);
    tcase_add_test(t, damage_heals);
    tcase_add_test(t, strange_files_heal);
    tcase_add_test(t, renamed_entry_is_refused);
    tcase_add_test(t, assemblers_do_not_mix);
    tcase_add_test(t, stamps_at_most_hourly);
    tcase_add_test(t, deleted_directory_comes_back);
    tcase_add_test(t, relative_directory);
    return kn_run_suite(s);
}
