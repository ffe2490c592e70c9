/* Lint: each kind of finding, and what must not be one. */
#include "tests/jit/expand_support.h"

static kn_status lint_files(const char *const *files) {
    kn_expansion x;
    kn_status st = expand_files(files, NULL, KN_EXPAND_LINT, &x);
    if (st == KN_OK) kn_expansion_free(&x);
    return st;
}

static kn_status lint(const char *top, const char *body) {
    static char text[8192];
    snprintf(text, sizeof text, "%s" HEAD "%s" TAIL, top, body);
    const char *files[] = {"t.ptxt", text, "lib/a.ptxi", "#let offered = 1\n#macro also(x)\n${x}\n#end\n", NULL};
    return lint_files(files);
}

#define CLEAN(top, body) ck_assert_ok(lint(top, body))
#define FOUND(top, body, part) ck_assert_fails(lint(top, body), KN_E_TEMPLATE, part)

START_TEST(unused) {
    FOUND("#param A in 1 .. 2 = 1 // a\n", "", "t.ptxt:1: unused #param A\n");
    CLEAN("#param A in 1 .. 2 = 1 // a\n", "#if 0\n${A}\n#end\n");
    CLEAN("#param A in 1 .. 2 = 1 // a\n#assert A \"a\"\n", "");
    CLEAN("#param A in 1 .. 2 = 1 // a\n#param B in A .. 2 = 1 // b\n#assert 1 \"${B}\"\n", "");
    FOUND("#let a = 1\n", "", "t.ptxt:1: unused #let a\n");
    FOUND("#if 1\n#let a = 1\n#else\n#let a = 2\n#end\n", "", "t.ptxt:4: unused #let a\n");
    FOUND("", "#regs .b32 a, b[2]\n${a}\n", "t.ptxt:7: unused register b\n");
    FOUND("#macro m()\n#end\n", "", "t.ptxt:1: unused #macro m\n");
    FOUND("#macro m(a, b)\n${a}\n#end\n", "#use m(1, 2)\n", "t.ptxt:1: unused argument b\n");
    FOUND("#macro m()\n#regs .b32 x\n#end\n", "#use m()\n", "t.ptxt:2: unused register x\n");
    FOUND("#macro m(a)\n#let x = a\n#end\n", "#use m(1)\n", "t.ptxt:2: unused #let x\n");
    CLEAN("#macro m()\n#if 1\n#let x = 1\n#else\n#let x = 2\n#end\n${x}\n#end\n", "#use m()\n");
    /* A macro's local must not keep a top-level name of the same spelling alive. */
    FOUND("#let x = 1\n#macro m(x)\n${x}\n#end\n", "#use m(2)\n", "t.ptxt:1: unused #let x\n");
    CLEAN("", "#for i in 0 .. 2\nnop;\n#end\n");
    CLEAN("#include \"lib/a.ptxi\"\n", "");
    CLEAN("#smem a 16\n", "");
}
END_TEST

START_TEST(undeclared) {
    FOUND("", "#if 0\n${nothing}\n#end\n", "t.ptxt:8: undeclared name nothing\n");
    FOUND("#macro m()\n#if 0\n${i}\n#end\n#end\n", "#for i in 0 .. 2\n#use m()\n#end\n",
          "t.ptxt:3: undeclared name i\n");
    FOUND("#macro never(a)\n${a} ${b}\n#end\n", "#if 0\n#use never(1)\n#end\n", "t.ptxt:2: undeclared name b\n");
    CLEAN("#param T in {one, f32} = one // t\n",
          "#if T == f32 && target == sm_80\n${smem_total} ${target_ptx} ${b16}\n#end\n");
}
END_TEST

/* Files that these parameters do not include are looked at too. */
START_TEST(closure) {
    const char *top =
        "#param E in {one, two} = one // which\n#let for_two = 1\n#include \"lib/${E}.ptxi\"\n" HEAD "#use e()\n" TAIL;
    const char *files[] = {
        "t.ptxt", top, "lib/one.ptxi", "#macro e()\n#end\n", "lib/two.ptxi", "#macro e()\n${for_two}\n#end\n", NULL};
    ck_assert_ok(lint_files(files));
    files[5] = "#macro e()\n${for_twos}\n#end\n";
    ck_assert_fails(lint_files(files), KN_E_TEMPLATE, "lib/two.ptxi:2: undeclared name for_twos\n");
    files[4] = NULL;
    ck_assert_fails(lint_files(files), KN_E_TEMPLATE, "t.ptxt:3: there is no template lib/two.ptxi");
}
END_TEST

START_TEST(labels) {
    FOUND("", "L@a:\n", "t.ptxt:7: nothing branches to L$a\n");
    FOUND("", "{ plain: ret; }\n", "t.ptxt:7: nothing branches to plain\n");
    CLEAN("", "L@a:\n@%p bra L@a;\n");
    CLEAN("", "{ plain: ret; @!%p bra.uni plain; }\n");
    CLEAN("", "L@a:\nL@b:\n.branchtargets L@a,\n L@b;\n");
    FOUND("", "L@a: // bra L@a;\n", "nothing branches to");
    CLEAN("", "mbarrier.init.shared::cta.b64 [%a], 1;\n");
}
END_TEST

START_TEST(rounding) {
    static const char *const bad[] = {"add.f32",    "sub.f32", "mul.ftz.f32", "add.f64",
                                      "mul.bf16x2", "fma.f32", "mad.f32",     "add.f32x2"};
    static const char *const good[] = {"add.rn.f32", "mul.rz.ftz.f32", "fma.rn.bf16x2",      "add.u32", "mul.lo.s32",
                                       "min.f32",    "mad.lo.u32",     "red.global.add.f32", "neg.f32", "addc.u32"};
    char body[200];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(body, sizeof body, "#for i in 0 .. 3\n  @%%p %s %%a, %%b, ${i}; // x\n#end\n", bad[i]);
        FOUND("", body, "1 finding:\nt.ptxt:8: write the rounding (.rn) of ");
    }
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        snprintf(body, sizeof body, "  %s %%a, %%b, 1;\n", good[i]);
        CLEAN("", body);
    }
    CLEAN("", "  mov.b32 %a, %b; // add.f32\n  // add.f32 %a, %b, %c;\n");
    FOUND("", "  mov.b32 %a,\n   %b; add.f32 %a, %b, %c;\n", "t.ptxt:8: write the rounding (.rn) of add.f32\n");
    FOUND("", "L@x: @%p bra L@x; { add.f32 %a, %b, %c; }\n", "of add.f32\n");
}
END_TEST

START_TEST(barriers) {
    FOUND("", "bar.sync %r1;\n", "t.ptxt:7: the barrier's number is no constant: bar.sync\n");
    FOUND("", "barrier.cta.arrive %r1, 64;\n", "no constant: barrier.cta.arrive\n");
    FOUND("", "bar.red.popc.u32 %r1, %r2, %p;\n", "no constant");
    CLEAN("", "bar.sync 0;\nbarrier.cta.sync 1, %r2;\nbar.warp.sync %r1;\nbarrier.cluster.arrive;\nbar.red.popc.u32 "
              "%r1, 0, %p;\n");
}
END_TEST

START_TEST(many) {
    kn_status st = lint("#let a = 1\n#let b = 1\n", "add.f32 %a, %b, %c;\nL@l:\n");
    ck_assert_int_eq(st, KN_E_TEMPLATE);
    ck_assert_ptr_eq(strstr(kn_error_message(), "4 findings:\n"), kn_error_message());
}
END_TEST

int main(void) {
    Suite *s = suite_create("expand_lint");
    TCase *t = tcase_create("lint");
    tcase_add_test(t, unused);
    tcase_add_test(t, undeclared);
    tcase_add_test(t, closure);
    tcase_add_test(t, labels);
    tcase_add_test(t, rounding);
    tcase_add_test(t, barriers);
    tcase_add_test(t, many);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
