/* base/env.c: numbers, sizes, choices and their refusals. */
#define _POSIX_C_SOURCE 200809L
#include "base/env.h"
#include "support/suite.h"

#include <stdlib.h>

START_TEST(numbers) {
    int64_t v;
    unsetenv("KILN_LOG");
    ck_assert_ok(kn_env_i64(KN_ENV_LOG, 1, 0, 4, &v));
    ck_assert_int_eq(v, 1);
    setenv("KILN_LOG", "3", 1);
    ck_assert_ok(kn_env_i64(KN_ENV_LOG, 1, 0, 4, &v));
    ck_assert_int_eq(v, 3);
    const char *bad[] = {"5", "-1", "x", "3x", "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        setenv("KILN_LOG", bad[i], 1);
        ck_assert_fails(kn_env_i64(KN_ENV_LOG, 1, 0, 4, &v), KN_E_ARG, "KILN_LOG");
    }
}
END_TEST

START_TEST(sizes) {
    int64_t v;
    setenv("KILN_CACHE_MAX", "2G", 1);
    ck_assert_ok(kn_env_bytes(KN_ENV_CACHE_MAX, 0, &v));
    ck_assert_int_eq(v, (int64_t)2 << 30);
    const char *bad[] = {"-1", "1e30", "18446744073709551615", "9999999999T", "G", "1GB"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        setenv("KILN_CACHE_MAX", bad[i], 1);
        ck_assert_fails(kn_env_bytes(KN_ENV_CACHE_MAX, 0, &v), KN_E_ARG, "KILN_CACHE_MAX");
    }
}
END_TEST

START_TEST(choices) {
    const char *const list[] = {"build", "error", NULL};
    int v;
    setenv("KILN_ON_MISS", "error", 1);
    ck_assert_ok(kn_env_choice(KN_ENV_ON_MISS, list, 0, &v));
    ck_assert_int_eq(v, 1);
    setenv("KILN_ON_MISS", "", 1);
    ck_assert_ok(kn_env_choice(KN_ENV_ON_MISS, list, 0, &v));
    ck_assert_int_eq(v, 0);
    setenv("KILN_ON_MISS", "never", 1);
    ck_assert_fails(kn_env_choice(KN_ENV_ON_MISS, list, 0, &v), KN_E_ARG, "build, error");
}
END_TEST

int main(void) {
    Suite *s = suite_create("base/env");
    TCase *t = tcase_create("all");
    tcase_add_test(t, numbers);
    tcase_add_test(t, sizes);
    tcase_add_test(t, choices);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
