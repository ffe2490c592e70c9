/* Functions of the caller's: what becomes of NVRTC's PTX, what is refused, and that texts are known by their digest. */
#include "jit/program.h"
#include "jit/user_function.h"
#include "support/suite.h"

#include "base/alloc.h"

#include <stdio.h>
#include <string.h>

#define HEAD                                                                                                           \
    ".version 9.0\n.target sm_90a\n.address_size 64\n\n.visible .entry kiln_user(\n"                                   \
    "\t.param .f32 kiln_user_param_0,\n\t.param .f32 kiln_user_param_1,\n\t.param .f32 kiln_user_param_2,\n"           \
    "\t.param .u64 kiln_user_param_3\n)\n{\n\t.reg .pred \t%p<3>;\n\t.reg .f32 \t%f<9>;\n\t.reg .b64 \t%rd<3>;\n\n"
#define TAIL "\tret;\n\n}\n\n"

static char *macro_of(const char *ptx) {
    kn_buf out;
    kn_buf_init(&out, 1 << 20);
    ck_assert_ok(kn_user_function_macro(ptx, &out));
    char *text = NULL;
    ck_assert_ok(KN_NEW(&text, out.len + 1, "text"));
    memcpy(text, out.data, out.len + 1);
    kn_buf_free(&out);
    return text;
}

START_TEST(lines_become_a_macro) {
    char *text = macro_of(HEAD "\tld.param.f32 \t%f1, [kiln_user_param_0];\n"
                               "\tld.param.f32 \t%f2, [kiln_user_param_2];\n"
                               "\tld.param.u64 \t%rd1, [kiln_user_param_3];\n"
                               "\tcvta.to.global.u64 \t%rd2, %rd1;\n"
                               "\tsetp.gt.f32 \t%p1, %f1, 0f3F800000; // a comment\n"
                               "\t@!%p1 bra \t$L__BB0_2;\n"
                               "\tadd.rn.f32 \t%f1, %f1, %f2;\n\n"
                               "$L__BB0_2:\n"
                               "\tst.global.f32 \t[%rd2], %f1;\n"
                               "\tst.global.f32 \t[%rd2+4], 0f3F800000;\n"
                               "\tst.global.u32 \t[%rd1+8], 0;\n" TAIL);
    static const char *const lines[] = {
        "#macro user_function(g, u, dh, h, dg, du)\n",
        "    #regs .pred user_p[3]\n    #regs .f32 user_f[9]\n    #regs .b64 user_rd[3]\n",
        "    mov.b32 ${user_f[1]}, ${g};\n    mov.b32 ${user_f[2]}, ${dh};\n",
        "    setp.gt.f32 \t${user_p[1]}, ${user_f[1]}, 0f3F800000;\n",
        "    @!${user_p[1]} bra \tL@user_L__BB0_2;\n",
        "\nL@user_L__BB0_2:\n",
        "    mov.b32 ${h}, ${user_f[1]};\n    mov.f32 ${dg}, 0f3F800000;\n    mov.b32 ${du}, 0;\n#end\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        ck_assert_msg(strstr(text, lines[i]) != NULL, "\"%s\" is not in \"%s\"", lines[i], text);
    ck_assert(strstr(text, "kiln_user_param") == NULL && strstr(text, "cvta") == NULL && strstr(text, "ret") == NULL);
    kn_free(text);
}
END_TEST

START_TEST(returns_in_the_middle_go_to_the_end) {
    char *text = macro_of(HEAD "\t@%p1 ret;\n\tneg.f32 \t%f1, %f2;\n" TAIL);
    ck_assert(strstr(text, "    @${user_p[1]} bra L@user_done;\n"));
    ck_assert(strstr(text, "L@user_done:\n#end\n"));
    kn_free(text);
}
END_TEST

START_TEST(what_a_macro_cannot_hold_is_refused) {
    static const struct {
        const char *line, *why;
    } rows[] = {
        {"{ // callseq 0, 0", "mark it __forceinline__"},
        {".local .align 4 .b8 \t__local_depot0[28];", "it needs memory of its own"},
        {"mov.u64 \t%rd1, __cudart_i2opi_f;", "it may use neither threads nor memory"},
        {"mov.u32 \t%f1, %tid.x;", "it may use neither threads nor memory"},
        {"ld.global.f32 \t%f1, [%rd1];", "it may use neither threads nor memory"},
        {"st.global.f32 \t[%rd2], %f1;", "it may write nothing but *h, *dg and *du"},
        {"bar.sync \t0;", "it may use neither threads nor memory"},
        {"ld.param.f32 \t%f1, [kiln_user_param_7];", "its parameters are not those of f"},
        {"cvta.to.global.u64 \t%rd2, %rd1;", "it may use neither threads nor memory"},
        {"mul.rn.f32 \t%f1,", "it contains what Kiln cannot take apart"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char whole[2048];
        kn_buf out;
        kn_buf_init(&out, 1 << 20);
        snprintf(whole, sizeof whole, "%s\t%s\n%s", HEAD, rows[i].line, TAIL);
        ck_assert_fails(kn_user_function_macro(whole, &out), KN_E_UNSUPPORTED, rows[i].why);
        kn_buf_free(&out);
    }
    kn_buf out;
    kn_buf_init(&out, 1 << 20);
    ck_assert_fails(kn_user_function_macro("no kernel", &out), KN_E_ASSEMBLE, "has no kernel kiln_user");
    kn_buf_free(&out);
}
END_TEST

START_TEST(texts_are_known_by_their_digest) {
    uint64_t a[2], b[2], c[2];
    ck_assert_ok(kn_user_function_keep("__device__ void f() {}", a));
    ck_assert_ok(kn_user_function_keep("__device__ void f() { }", b));
    ck_assert_ok(kn_user_function_keep("__device__ void f() {}", c));
    ck_assert(memcmp(a, b, sizeof a) != 0 && memcmp(a, c, sizeof a) == 0);
    ck_assert((a[0] | a[1]) >> 63 == 0);
    ck_assert_fails(kn_user_function_keep("", a), KN_E_ARG, "activation.source is empty");
    char *large = NULL;
    ck_assert_ok(KN_NEW(&large, 70000, "text"));
    memset(large, ' ', 69999);
    ck_assert_fails(kn_user_function_keep(large, a), KN_E_ARG, "activation.source is longer than 65536 bytes");
    kn_free(large);
}
END_TEST

/* A key that names a function which this process has not seen. */
START_TEST(unknown_functions_cannot_be_expanded) {
    kn_params params = {0};
    kn_expansion x;
    kn_params_set(&params, "USER0", 5);
    kn_params_set(&params, "USER1", 6);
    const kn_key_inputs in = {.template_name = "gemm_sm90.ptxt", .target = "sm_90a", .params = &params};
    ck_assert_fails(kn_kernel_expand(&in, &x), KN_E_UNSUPPORTED, "an activation.source that is not known here");
}
END_TEST

int main(void) {
    Suite *s = suite_create("jit/user_function");
    TCase *t = tcase_create("functions");
    tcase_add_test(t, lines_become_a_macro);
    tcase_add_test(t, returns_in_the_middle_go_to_the_end);
    tcase_add_test(t, what_a_macro_cannot_hold_is_refused);
    tcase_add_test(t, texts_are_known_by_their_digest);
    tcase_add_test(t, unknown_functions_cannot_be_expanded);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
