/* jit/tuning.c: what a tuning file says, and what is wrong with one that is none. */
#include "jit/tuning.h"

#include "support/suite.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define HEAD "kiln-tuning 1\ngpu NVIDIA H200\n"

static char path[64];

static void begin(void) {
    snprintf(path, sizeof path, "/tmp/kn_test_tuning_%d", (int)getpid());
}
static void end(void) {
    unlink(path);
}

static kn_status read_bytes(const char *text, size_t n, kn_tuning **out) {
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(text, 1, n, f), n);
    ck_assert_int_eq(fclose(f), 0);
    return kn_tuning_read(path, "NVIDIA H200", out);
}

static kn_status read_text(const char *text, kn_tuning **out) {
    return read_bytes(text, strlen(text), out);
}

START_TEST(finds_the_choice_of_a_product) {
    kn_tuning *t;
    char where[128], wanted[128];
    ck_assert_ok(
        read_text(HEAD "driver 580.1\ndate 2026-11-29\n\n# a comment\nproduct b two # 1.5 us\r\nproduct  a  one", &t));
    ck_assert_str_eq(kn_tuning_find(t, "a"), "one");
    ck_assert_str_eq(kn_tuning_find(t, "b"), "two");
    ck_assert_ptr_null(kn_tuning_find(t, "c"));
    ck_assert_ptr_null(kn_tuning_find(NULL, "a"));
    kn_tuning_where(t, "b", where, sizeof where);
    snprintf(wanted, sizeof wanted, "%s:7", path);
    ck_assert_str_eq(where, wanted);
    kn_tuning_free(t);
    ck_assert_ok(read_text(HEAD, &t)); /* nothing was tuned */
    ck_assert_ptr_null(kn_tuning_find(t, "a"));
    kn_tuning_free(t);
}
END_TEST

static const struct {
    const char *text, *part;
    kn_status code;
} bad[] = {
    {"", "wanted \"kiln-tuning 1\"", KN_E_FORMAT},
    {"kiln-tuning 2\ngpu NVIDIA H200\n", ":1: wanted \"kiln-tuning 1\", saw \"kiln-tuning 2\"", KN_E_FORMAT},
    {"{\"v\":1}\n", "this is no tuning file", KN_E_FORMAT},
    {"kiln-tuning 1\nproduct a one\n", "no line \"gpu NAME\"", KN_E_FORMAT},
    {"kiln-tuning 1\ngpu NVIDIA H100\n", ":2 was measured on NVIDIA H100; the context's device is NVIDIA H200",
     KN_E_DEVICE},
    {HEAD "product a\n", ":3: wanted \"product KEY CANDIDATE\"", KN_E_FORMAT},
    {HEAD "product a one two\n", ":3: wanted \"product KEY CANDIDATE\"", KN_E_FORMAT},
    {HEAD "\nproducts a one\n", ":4: wanted gpu, driver, date or product, saw \"products a one\"", KN_E_FORMAT},
    {HEAD "product a one\nproduct b one\nproduct a two\n", "lines 3 and 5 choose for the same product, a", KN_E_FORMAT},
};

START_TEST(says_what_is_wrong_with_a_file) {
    kn_tuning *t;
    ck_assert_fails(read_text(bad[_i].text, &t), bad[_i].code, bad[_i].part);
    ck_assert_msg(strstr(kn_error_message(), path) != NULL, "%s", kn_error_message());
    ck_assert_ptr_null(t);
}
END_TEST

START_TEST(refuses_files_that_are_not_text_or_not_there) {
    kn_tuning *t;
    ck_assert_fails(read_bytes(HEAD "\0product a one\n", sizeof HEAD + 10, &t), KN_E_FORMAT, "byte of zero");
    unlink(path);
    ck_assert_fails(kn_tuning_read(path, "NVIDIA H200", &t), KN_E_IO, path);
}
END_TEST

int main(void) {
    Suite *s = suite_create("jit/tuning");
    TCase *t = tcase_create("tuning");
    tcase_add_checked_fixture(t, begin, end);
    tcase_add_test(t, finds_the_choice_of_a_product);
    tcase_add_loop_test(t, says_what_is_wrong_with_a_file, 0, sizeof bad / sizeof *bad);
    tcase_add_test(t, refuses_files_that_are_not_text_or_not_there);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
