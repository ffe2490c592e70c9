/* base/buf.c: contents, the limit, the sticky error, JSON strings, out of memory. */
#include "base/alloc.h"
#include "base/buf.h"
#include "support/suite.h"

#include <locale.h>
#include <stdint.h>
#include <string.h>

START_TEST(appends) {
    kn_buf b;
    kn_buf_init(&b, 1000);
    ck_assert_str_eq(b.data, "");
    kn_buf_add(&b, "a=");
    kn_buf_add_i64(&b, INT64_MIN);
    kn_buf_add_char(&b, ' ');
    kn_buf_add_u64(&b, UINT64_MAX);
    kn_buf_addf(&b, " %s %03d ", "x", 7);
    kn_buf_add_hex(&b, 0x3f800000, 8);
    kn_buf_add_hex(&b, 0xf, 4);
    ck_assert_ok(kn_buf_status(&b));
    ck_assert_str_eq(b.data, "a=-9223372036854775808 18446744073709551615 x 007 3f800000000f");
    kn_buf_free(&b);
}
END_TEST

START_TEST(limit_is_sticky) {
    kn_buf b;
    kn_buf_init(&b, 4);
    kn_buf_add(&b, "abcd");
    ck_assert_ok(kn_buf_status(&b));
    kn_buf_add(&b, "e");
    kn_buf_add(&b, "");
    ck_assert_fails(kn_buf_status(&b), KN_E_ARG, "limit of 4 bytes");
    ck_assert_str_eq(b.data, "abcd");
    ck_assert_ptr_null(kn_buf_take(&b, NULL));
    kn_buf_clear(&b);
    kn_buf_add(&b, "ok");
    ck_assert_ok(kn_buf_status(&b));
    kn_buf_free(&b);
}
END_TEST

START_TEST(json_strings) {
    kn_buf b;
    kn_buf_init(&b, 1000);
    kn_buf_add_json(&b, "a\"\\\n\xc3\xa9\xff\xed\xa0\x80z");
    ck_assert_str_eq(b.data, "\"a\\\"\\\\\\u000a\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz\"");
    /* The ends of what UTF-8 can say, and what lies behind them: overlong forms, surrogates, more than U+10FFFF. */
    static const char *const good[] = {"\xc2\x80",     "\xe0\xa0\x80",     "\xed\x9f\xbf",
                                       "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        kn_buf_clear(&b);
        kn_buf_add_json(&b, good[i]);
        ck_assert_uint_eq(b.len, strlen(good[i]) + 2);
        ck_assert_int_eq(strncmp(b.data + 1, good[i], strlen(good[i])), 0);
    }
    static const char *const bad[] = {"\xc1\xbf",         "\xe0\x9f\xbf",     "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe2\x82",     "\xf0\x90\x80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        kn_buf_clear(&b);
        kn_buf_add_json(&b, bad[i]);
        ck_assert_uint_eq(b.len, 3 * strlen(bad[i]) + 2); /* each byte a U+FFFD */
    }
    kn_buf_free(&b);
}
END_TEST

#ifdef KN_FAULT_INJECTION
START_TEST(out_of_memory) {
    kn_buf b;
    kn_buf_init(&b, 1000);
    kn_fault_arm(1);
    kn_buf_add(&b, "x");
    kn_buf_add(&b, "y");
    kn_fault_arm(0);
    ck_assert_fails(kn_buf_status(&b), KN_E_NOMEM, "out of memory");
    ck_assert_uint_eq(b.len, 0);
    kn_buf_free(&b);
}
END_TEST
#endif

int main(void) {
    Suite *s = suite_create("base/buf");
    TCase *t = tcase_create("all");
    tcase_add_test(t, appends);
    tcase_add_test(t, limit_is_sticky);
    tcase_add_test(t, json_strings);
#ifdef KN_FAULT_INJECTION
    tcase_add_test(t, out_of_memory);
#endif
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
