/* The main() of every Check program: runs one suite, in fork mode unless CK_FORK says otherwise. */
#ifndef KN_TESTS_SUPPORT_SUITE_H
#define KN_TESTS_SUPPORT_SUITE_H

#include <check.h>

/** Run `suite`, print what failed, return the exit code of main(). */
int kn_run_suite(Suite *suite);

/** ck_assert that an expression of type kn_status is KN_OK; prints the error sentence. */
#define ck_assert_ok(expr)                                                                                             \
    do {                                                                                                               \
        int32_t ck_status_ = (expr);                                                                                   \
        ck_assert_msg(ck_status_ == 0, "%s: %s: %s", #expr, kn_status_name(ck_status_), kn_error_message());           \
    } while (0)

/** ck_assert that an expression fails with `code` and that the sentence contains `part`. */
#define ck_assert_fails(expr, code, part)                                                                              \
    do {                                                                                                               \
        int32_t ck_status_ = (expr);                                                                                   \
        ck_assert_msg(ck_status_ == (code), "%s: got %s (%s), wanted %s", #expr, kn_status_name(ck_status_),           \
                      kn_error_message(), kn_status_name(code));                                                       \
        ck_assert_msg(strstr(kn_error_message(), (part)) != NULL, "%s: sentence is \"%s\", wanted \"%s\" in it",       \
                      #expr, kn_error_message(), (part));                                                              \
    } while (0)

#endif
