/* Values: operators, overflow, names, float constants. */
#include "tests/jit/expand_support.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>

START_TEST(integers) {
    static const char *const row[][2] = {
        {"1 + 2 * 3", "7"},
        {"(1 + 2) * 3", "9"},
        {"7 / 2", "3"},
        {"-7 / 2", "-3"},
        {"-7 % 4", "-3"},
        {"10 - 3 - 4", "3"},
        {"0x7fffffffffffffff", "9223372036854775807"},
        {"-9223372036854775807 - 1", "-9223372036854775808"},
        {"1 << 62", "4611686018427387904"},
        {"-8 >> 1", "-4"},
        {"~5 & 0xf", "10"},
        {"6 ^ 3 | 8", "13"},
        {"1 == 1 && 2 < 3", "1"},
        {"3 <= 2 || 2 >= 3", "0"},
        {"!5 + !0", "1"},
        {"- -3", "3"},
        {"1 ? 2 : 1 / 0", "2"},
        {"0 && 1 / 0", "0"},
        {"7 || 1 / 0", "1"},
        {"0 ? 1 : 0 ? 2 : 3", "3"},
        {"1 + 2 == 3 ? 4 : 5", "4"},
        {"min(3, -2, 8)", "-2"},
        {"max(3, -2, 8)", "8"},
        {"abs(-4)", "4"},
        {"ceil_div(10, 4)", "3"},
        {"ceil_div(9223372036854775807, 2)", "4611686018427387904"},
        {"align(10, 8)", "16"},
        {"align(16, 8)", "16"},
        {"log2(1)", "0"},
        {"log2(4096)", "12"},
        {"hex(255)", "0xFF"},
        {"hex(-1)", "0xFFFFFFFFFFFFFFFF"},
        {"hex(0)", "0x0"},
        {"bytes(bf16) + bytes(f64) + bytes(u8)", "11"},
        {"is(f32, bf16, f32)", "1"},
        {"is(f32, bf16)", "0"},
        {"f32 == bf16", "0"},
        {"f32 != bf16", "1"},
        {"\"a${1 + 1}b\"", "a2b"},
        {"\"b16\" == b16", "1"},
        {"target", "sm_90a"},
        {"target == sm_90a ? target_cc : 0", "90"},
        {"target_ptx", "80"},
        {"smem_total", "0"},
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) check_value("", row[i][0], row[i][1]);
}
END_TEST

START_TEST(errors) {
    static const char *const row[][2] = {
        {"9223372036854775807 + 1", "does not fit"},
        {"-9223372036854775807 - 2", "does not fit"},
        {"4611686018427387904 * 2", "does not fit"},
        {"1 << 63", "does not fit"},
        {"(-9223372036854775807 - 1) / -1", "does not fit"},
        {"-(-9223372036854775807 - 1)", "does not fit"},
        {"abs(-9223372036854775807 - 1)", "does not fit"},
        {"align(9223372036854775807, 2)", "does not fit"},
        {"9223372036854775808", "not a number that fits"},
        {"0x8000000000000000", "not a number that fits"},
        {"12ab", "not a number that fits"},
        {"1e99", "not a number that fits"},
        {"0f123", "not a number that fits"},
        {"1 / 0", "division by zero"},
        {"1 % 0", "division by zero"},
        {"1 / (0.5 - 0.5)", "division by zero"},
        {"1 << 64", "must be 0 to 63"},
        {"1 >> -1", "must be 0 to 63"},
        {"log2(12)", "not a power of two"},
        {"log2(0)", "not a power of two"},
        {"ceil_div(1, 0)", "at least 1"},
        {"nothing", "nothing is not declared here"},
        {"max()", "max() takes at least 1 argument, not 0"},
        {"log2(1, 2)", "log2() takes 1 argument, not 2"},
        {"sin(1)", "no function sin()"},
        {"f32 < bf16", "cannot be compared so"},
        {"f32 == 1", "cannot be compared so"},
        {"f32 + 1", "do not go with this operator"},
        {"f32 ? 1 : 2", "the condition of ?: must be a whole number"},
        {"0.5", "f32()"},
        {"1e37 * 100", "does not fit"},
        {"f16(65520)", "too large"},
        {"f32bits(0x100000000)", "not 32 bits"},
        {"bytes(sm_90a)", "is no dtype"},
        {"5[1]", "only a register array"},
        {"1 +", "expected a value"},
        {"(1", "expected \")\""},
        {"1 2", "expected \"}\""},
        {"1 ? 2", "expected \":\""},
        {"\"abc", "closing quote"},
        {"1 ; 2", "unexpected character"},
        {"((((((((((((((((((((((((((((((((1))))))))))))))))))))))))))))))))", "nested too deeply"},
        {"- - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - 1", "nested too deeply"},
    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        char text[1024];
        snprintf(text, sizeof text, "%s// ${%s}\n" TAIL, HEAD, row[i][0]);
        check_error(text, "t.ptxt:7: ", row[i][1]);
    }
}
END_TEST

/* The same constant through strtod, which rounds correctly in the C locale. */
static void check_float(const char *literal) {
    char e[128], want[64];
    float f = strtof(literal, NULL);
    double d = strtod(literal, NULL);
    uint32_t bits32;
    uint64_t bits64;
    memcpy(&bits32, &f, 4);
    memcpy(&bits64, &d, 8);
    snprintf(e, sizeof e, "f32(%s)", literal);
    snprintf(want, sizeof want, "0f%08X", bits32);
    check_value("", e, want);
    snprintf(e, sizeof e, "f64(%s)", literal);
    snprintf(want, sizeof want, "0d%016llX", (unsigned long long)bits64);
    check_value("", e, want);
}

START_TEST(floats) {
    static const char *const literal[] = {
        "0",
        "1",
        "0.5",
        "0.1",
        "3.14159265358979323846",
        "1e-20",
        "1e20",
        "1.4426950408889634074",
        "16777217",
        "16777219",
        "3.5e37",
        "1e-37",
        "123456789.5",
        "0.3333333333333333",
        "2.5e-7",
        "4194303.9999999999",
        "1e-30",
        "9007199254740993",
        "33554431.5",
        "33554434.9999",
    };
    for (size_t i = 0; i < sizeof literal / sizeof literal[0]; i++) {
        char negative[64];
        check_float(literal[i]);
        snprintf(negative, sizeof negative, "-%s", literal[i]);
        if (i) check_float(negative); /* -0 is the fraction 0 */
    }
    check_value("", "f32(1.0 / 3)", "0f3EAAAAAB");
    check_value("", "f32(1 / 3)", "0f00000000");
    check_value("", "f32(0.5 * 4 + 1 - 0.25)", "0f40300000");
    check_value("", "0.1 + 0.2 == 0.3", "1");
    check_value("", "1.5 > 1", "1");
    check_value("", "f32(1e30 * 1e-30)", "0f3F800000");
    check_value("", "hex(f16(1e-7))", "0x2"); /* subnormal */
    check_value("", "hex(f16(1e-9))", "0x0");
    check_value("", "bf16(1) * 0x10001", "1065369472");
    check_value("", "hex(bf16(1.00390625))", "0x3F80"); /* a tie goes to even */
    check_value("", "hex(bf16(1.01171875))", "0x3F82");
    check_value("", "hex(bf16(1.0039062500001))", "0x3F81");
    check_value("", "hex(f16(65504))", "0x7BFF");
    check_value("", "hex(f16(-1.0 / 16777216))", "0x8001");
    check_value("", "f32bits(0x3F800000)", "0f3F800000");
    check_value("", "f64bits(-1)", "0dFFFFFFFFFFFFFFFF");
    check_value("", "0f3F800000", "0f3F800000");
}
END_TEST

/* Every finite float must come back from its exact decimal-free fraction: n * 2^e. */
START_TEST(rounding) {
    uint64_t seed = 88172645463325252u;
    for (int i = 0; i < 200000; i++) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        /* a fraction p / q of moderate size, against long double division */
        int64_t p = (int64_t)(seed >> 20) - ((int64_t)1 << 43);
        int64_t q = (int64_t)(seed & 0xfffff) + 1;
        kn_ex_rat r;
        ck_assert(kn_ex_rat_make(p, q, &r));
        uint64_t bits = 0;
        ck_assert(kn_ex_rat_round(&r, 11, 52, &bits));
        double want = (double)p / (double)q; /* both exact: one rounding */
        uint64_t want_bits;
        memcpy(&want_bits, &want, 8);
        ck_assert_msg(bits == want_bits || p == 0, "%lld / %lld", (long long)p, (long long)q);
        if (p > -(1 << 24) && p < 1 << 24) {
            ck_assert(kn_ex_rat_round(&r, 8, 23, &bits));
            float f = (float)p / (float)q;
            uint32_t b32;
            memcpy(&b32, &f, 4);
            ck_assert_uint_eq(bits, b32);
        }
    }
}
END_TEST

/* A locale whose decimal point is a comma changes nothing. */
START_TEST(locale) {
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "de_DE", "fr_FR.UTF-8"};
    const char *set = NULL;
    for (size_t i = 0; i < 4 && !set; i++) set = setlocale(LC_ALL, names[i]);
    if (!set) {
        /* No such locale here: at least no function of the expander may ask the C library about one. */
        const char *build = getenv("KN_BUILD_DIR");
        char command[1024];
        ck_assert_ptr_nonnull(build);
        snprintf(
            command, sizeof command,
            "cd '%s/jit/CMakeFiles/kn_jit.dir' && nm -u expand_eval.c.o | grep -q kn_ex_fail && ! nm -u expand_*.c.o | "
            "grep -E ' (isalpha|isdigit|isspace|isalnum|toupper|"
            "tolower|__ctype_b_loc|strtod|strtof|atof|atoi|strtol|sscanf|__isoc99_sscanf|strcoll|printf|sprintf)$'",
            build);
        ck_assert_int_eq(system(command), 0);
    }
    check_value("", "f32(0.5)", "0f3F000000");
    check_value("", "1000000", "1000000");
    setlocale(LC_ALL, "C");
}
END_TEST

int main(void) {
    Suite *s = suite_create("expand_eval");
    TCase *t = tcase_create("eval");
    tcase_add_test(t, integers);
    tcase_add_test(t, errors);
    tcase_add_test(t, floats);
    tcase_add_test(t, rounding);
    tcase_add_test(t, locale);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
