/* base/thread.c: the parallel loop visits every index once and returns the lowest failure. */
#include "base/thread.h"
#include "support/suite.h"

#include <stdatomic.h>

static atomic_int seen[1000];

static kn_status visit(void *user, int64_t i) {
    (void)user;
    atomic_fetch_add(&seen[i], 1);
    return KN_OK;
}

START_TEST(visits_once) {
    ck_assert_ok(kn_parallel_for(4, 1000, visit, NULL));
    for (int i = 0; i < 1000; i++) ck_assert_int_eq(atomic_load(&seen[i]), 1);
    ck_assert_ok(kn_parallel_for(4, 0, visit, NULL));
}
END_TEST

static kn_status fail_from_7(void *user, int64_t i) {
    (void)user;
    return i >= 7 ? kn_fail(KN_E_ARG, "index %d", (int)i) : KN_OK;
}

START_TEST(lowest_failure) {
    for (int threads = 1; threads <= 8; threads++)
        ck_assert_fails(kn_parallel_for(threads, 100, fail_from_7, NULL), KN_E_ARG, "index 7");
}
END_TEST

int main(void) {
    Suite *s = suite_create("base/thread");
    TCase *t = tcase_create("all");
    tcase_add_test(t, visits_once);
    tcase_add_test(t, lowest_failure);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
