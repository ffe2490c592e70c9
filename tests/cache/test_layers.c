/* cache/layers.c: what is published is found again, in memory, on disk, in packs; the order of the layers and `skip`;
 * counters. */
#define _GNU_SOURCE
#include "cache/cache_support.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEN = 30000 };

START_TEST(round_trip) {
    const char *dir = in_scratch("c");
    kn_cache *c = open_cache(dir);
    ck_assert(!has_number(c, 1, LEN));
    publish_number(c, 1, LEN);
    ck_assert(has_number(c, 1, LEN));
    kn_cache_stats s = stats_of(c);
    ck_assert_uint_eq(s.misses, 1);
    ck_assert_uint_eq(s.published, 1);
    ck_assert_uint_eq(s.hits_memory, 1);
    ck_assert_uint_eq(s.hits_dir, 0);
    ck_assert(s.dir_usable);
    ck_assert_str_eq(s.dir, dir);
    kn_cache_close(c);

    c = open_cache(dir);
    ck_assert(has_number(c, 1, LEN));
    ck_assert(has_number(c, 1, LEN));
    ck_assert(!has_number(c, 2, LEN));
    s = stats_of(c);
    ck_assert_uint_eq(s.hits_dir, 1);
    ck_assert_uint_eq(s.hits_memory, 1);
    ck_assert_uint_eq(s.misses, 1);
    ck_assert_uint_eq(s.rejected, 0);
    kn_cache_close(c);
    ck_assert_int_eq(count_files(dir, ""), 1);
    ck_assert_int_eq(warnings(), 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cache/layers");
    TCase *t = tcase_create("all");
    tcase_add_unchecked_fixture(t, watch_log, NULL);
    tcase_add_checked_fixture(t, (SFun)make_scratch, remove_scratch);
    tcase_add_test(t, round_trip);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
