/* base/status.c: sentences, prefixes, names; one thread never sees another's sentence. */
#include "base/status.h"
#include "support/suite.h"

#include <pthread.h>
#include <string.h>

START_TEST(sentences) {
    ck_assert_int_eq(kn_fail(KN_E_SHAPE, "h is [%d]", 3), KN_E_SHAPE);
    ck_assert_str_eq(kn_error_message(), "h is [3]");
    kn_error_prefix(KN_E_SHAPE, "%s: ", "op");
    ck_assert_str_eq(kn_error_message(), "op: h is [3]");
    kn_fail(KN_E_ARG, "<%s>", kn_error_message());
    ck_assert_str_eq(kn_error_message(), "<op: h is [3]>");
    ck_assert_str_eq(kn_status_name(KN_E_SHAPE), "KILN_E_SHAPE");
    ck_assert_str_eq(kn_status_name(12345), "KILN_E_?");
}
END_TEST

START_TEST(long_sentences_are_cut) {
    char big[2 * KN_ERROR_CAP];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    kn_fail(KN_E_ARG, "%s", big);
    ck_assert_uint_eq(strlen(kn_error_message()), KN_ERROR_CAP - 1);
    kn_error_prefix(KN_E_ARG, "y");
    ck_assert_uint_eq(strlen(kn_error_message()), KN_ERROR_CAP - 1);
    ck_assert_int_eq(kn_error_message()[0], 'y');
}
END_TEST

static void *other_thread(void *arg) {
    (void)arg;
    return (void *)(uintptr_t)(kn_error_message()[0] == '\0');
}

START_TEST(thread_local_sentence) {
    kn_fail(KN_E_ARG, "mine");
    pthread_t id;
    void *empty = NULL;
    ck_assert_int_eq(pthread_create(&id, NULL, other_thread, NULL), 0);
    pthread_join(id, &empty);
    ck_assert_ptr_nonnull(empty);
}
END_TEST

int main(void) {
    Suite *s = suite_create("base/status");
    TCase *t = tcase_create("all");
    tcase_add_test(t, sentences);
    tcase_add_test(t, long_sentences_are_cut);
    tcase_add_test(t, thread_local_sentence);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
