/* tools/kiln/common/args.c: options, operands, numbers. */
#include "common/args.h"
#include "support/suite.h"

#include <string.h>

static bool flag;
static const char *text;
static kt_list list, operands;
static int64_t number, bytes;

static const kt_option options[] = {
    {"json", KT_FLAG, &flag, NULL, ""},     {"device", KT_TEXT, &text, "DEVICE", ""},
    {"dtype", KT_LIST, &list, "TYPE", ""},  {"repeat", KT_NUMBER, &number, "N", ""},
    {"max", KT_BYTES, &bytes, "BYTES", ""}, {"o", KT_TEXT, &text, "FILE", ""},
    {NULL, KT_FLAG, NULL, NULL, NULL},
};
static const kt_command command = {"test", "", "", NULL, ""};

/* Parse words separated by single spaces. */
static int parse(const char *line) {
    static char copy[256];
    char *argv[16];
    int argc = 0;
    strcpy(copy, line);
    for (char *w = strtok(copy, " "); w; w = strtok(NULL, " ")) argv[argc++] = w;
    flag = false;
    text = NULL;
    number = bytes = 0;
    kt_list_free(&list);
    kt_list_free(&operands);
    return kt_args_parse(&command, options, argc, argv, &operands);
}

START_TEST(reads_options_and_operands) {
    ck_assert_int_eq(parse("a --json --device sim b --dtype x=f32 --dtype=y=f16 --repeat 12 --max 3K -- --c"), KT_GOOD);
    ck_assert(flag);
    ck_assert_str_eq(text, "sim");
    ck_assert_uint_eq(list.n, 2);
    ck_assert_str_eq(list.item[1], "y=f16");
    ck_assert_int_eq(number, 12);
    ck_assert_int_eq(bytes, 3072);
    ck_assert_uint_eq(operands.n, 3);
    ck_assert_str_eq(operands.item[2], "--c");
    ck_assert_int_eq(parse("-o x -"), KT_GOOD);
    ck_assert_str_eq(text, "x");
    ck_assert_uint_eq(operands.n, 1);
}
END_TEST

static const struct {
    const char *line, *says;
} bad[] = {
    {"--jsn", "--jsn is not an option of kiln test"},
    {"-json", "-json is not an option"},
    {"--o x", "--o is not an option"},
    {"--json=1", "--json takes no value"},
    {"--device", "--device needs a value: DEVICE"},
    {"--repeat x", "\"x\"; wanted a whole number"},
    {"--repeat -1", "\"-1\"; wanted a whole number"},
    {"--repeat 9223372036854775808", "wanted a whole number"},
    {"--max 3X", "suffix K, M, G or T"},
    {"--max 9000000T", "suffix K, M, G or T"},
};

START_TEST(refuses_and_says_why) {
    ck_assert_int_eq(parse(bad[_i].line), KT_USAGE);
    ck_assert_msg(strstr(kt_message(), bad[_i].says) != NULL, "says \"%s\"", kt_message());
}
END_TEST

START_TEST(choices_are_whole_words) {
    int at = -1;
    ck_assert(kt_choice("bf16,f16,f32", "f16", &at));
    ck_assert_int_eq(at, 1);
    ck_assert(!kt_choice("bf16,f16", "f1", NULL));
    ck_assert(!kt_choice("bf16,f16", "", NULL));
    ck_assert(!kt_choice("", "f16", NULL));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("args");
    TCase *t = tcase_create("args");
    tcase_add_test(t, reads_options_and_operands);
    tcase_add_loop_test(t, refuses_and_says_why, 0, sizeof bad / sizeof *bad);
    tcase_add_test(t, choices_are_whole_words);
    suite_add_tcase(suite, t);
    return kn_run_suite(suite);
}
