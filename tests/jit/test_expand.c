/* The directives of the template language, each with its errors. */
#include "tests/jit/expand_support.h"

#include "base/alloc.h"

#include <stdlib.h>

/* ---- lines --------------------------------------------------------------------------------------------------- */

START_TEST(lines_are_copied) {
    check_body("", "\tadd.u32 %r1, %r1, 1; // ${1 + 1} #1 $x L @\n", "\tadd.u32 %r1, %r1, 1; // 2 #1 $x L @\n");
    check_body("", "#// not this\na\n\n\n#let x = 1\n\nb ${x}${x}\n", "a\n\nb 11\n");
    check_body("", "a\r\nb\n", "a\nb\n");
}
END_TEST

START_TEST(line_errors) {
    check_error("a\n${1\n", "t.ptxt:2: ", "expected \"}\"");
    check_error("a\n#frobnicate\n", "t.ptxt:2: ", "#frobnicate is no directive: param, let");
    check_error("a\n# comment\n", "t.ptxt:2: ", "no directive");
    check_error("\xc3\xa9\n", "t.ptxt:1: ", "byte 0xc3: templates are ASCII");
    check_error("a\n\x01\n", "t.ptxt:2: ", "byte 0x01");
    check_error("a /* b */\n", "t.ptxt:1: ", "comments are written with //");
    check_error("#let a = 1 2\n", "t.ptxt:1: ", "expected the end of the directive, not \"2\"");
    check_error("#let a = 1 + \\\n  2 + \\\n  x\n", "t.ptxt:3: ", "x is not declared");
    check_error("#end\n", "t.ptxt:1: ", "#end without a block");
    check_error("#else\n", "t.ptxt:1: ", "#else without a block");
    check_error("#if 1\n", "t.ptxt:1: ", "the block of line 1 has no #end");
    check_error("#for i in 0 .. 1\n#else\n#end\n", "t.ptxt:2: ", "#else without an #if");
    check_error("#if 1\n#else\n#elif 1\n#end\n", "t.ptxt:3: ", "#elif behind #else");
    check_error("#let a = \"#\"\n" HEAD "${a}x\n" TAIL, "t.ptxt:8: ", "begins with #");
    check_error("#let a = \"$\"\n" HEAD "${a}{x}\n" TAIL, "t.ptxt:8: ", "\"${\" is left");
}
END_TEST

START_TEST(continuation) {
    check_body("#macro two(a, b)\n${a} ${b}\n#end\n", "#use two(1, \\\n   2)\nx\n", "1 2\nx\n");
}
END_TEST

/* ---- parameters ---------------------------------------------------------------------------------------------- */

static kn_status with_params(const char *top, const kn_params *p) {
    char text[2048];
    kn_expansion x;
    snprintf(text, sizeof text, "%s" HEAD TAIL, top);
    kn_status st = expand_text(text, p, 0, &x);
    if (st == KN_OK) kn_expansion_free(&x);
    return st;
}

START_TEST(params) {
    kn_params p = {0};
    kn_params_set(&p, "BN", 128);
    kn_params_set_name(&p, "T", "bf16");
    const char *top =
        "#param BN in 8 .. 2 * 128 step 8 // columns\n#param T in {f32, bf16} // type\n"
        "#param S in {1, 2, 4} = 2 // stages\n#param U in {a, b} = b // kind\n#param M in 1 .. BN = BN / 2 // x\n";
    char text[1024];
    snprintf(text, sizeof text, "%s" HEAD "${BN} ${T} ${S} ${U} ${M} ${T == bf16 && U == b}\n" TAIL, top);
    kn_expansion x;
    ck_assert_ok(expand_text(text, &p, 0, &x));
    ck_assert_ptr_nonnull(strstr(x.ptx, "128 bf16 2 b 64 1\n"));
    kn_expansion_free(&x);
}
END_TEST

START_TEST(param_errors) {
    kn_params none = {0}, three = {0}, name = {0};
    kn_params_set(&three, "X", 3);
    kn_params_set_name(&name, "X", "f32");
    ck_assert_fails(with_params("", &three), KN_E_TEMPLATE, "t.ptxt: parameter X is not declared by this template");
    ck_assert_fails(with_params("#param X in 1 .. 9 // m\n", &none), KN_E_TEMPLATE, "t.ptxt:1: parameter X is missing");
    ck_assert_fails(with_params("#param X in 4 .. 9 // m\n", &three), KN_E_TEMPLATE, "X = 3: it must be 4 to 9");
    ck_assert_fails(with_params("#param X in 0 .. 2 // m\n", &three), KN_E_TEMPLATE, "X = 3: it must be 0 to 2");
    ck_assert_fails(with_params("#param X in 1 .. 9 step 4 // m\n", &three), KN_E_TEMPLATE, "1 to 9 in steps of 4");
    ck_assert_fails(with_params("#param X in 1 .. 9 step 0 // m\n", &three), KN_E_TEMPLATE, "step 0 is not positive");
    ck_assert_fails(with_params("#param X in 1 .. 9 // m\n", &name), KN_E_TEMPLATE, "X = f32: it must be a number");
    ck_assert_fails(with_params("#param X in {1, 1 + 1} // m\n", &three), KN_E_TEMPLATE,
                    "X = 3: it must be one of 1, 2");
    ck_assert_fails(with_params("#param X in {b16, b32} // m\n", &name), KN_E_TEMPLATE,
                    "X = f32: it must be one of b16, b32");
    ck_assert_fails(with_params("#param X in {b16, f32} // m\n", &three), KN_E_TEMPLATE,
                    "X = 3: it must be one of b16, f32");
    ck_assert_fails(with_params("#param X in {b16, 1} // m\n", &none), KN_E_TEMPLATE, "all names or all numbers");
    ck_assert_fails(with_params("#param X in 1 .. 2\n", &none), KN_E_TEMPLATE, "meaning is missing");
    ck_assert_fails(with_params("#param X in 1 .. 2 //  \n", &none), KN_E_TEMPLATE, "meaning is missing");
    ck_assert_fails(with_params("#param X 1 .. 2 // m\n", &none), KN_E_TEMPLATE, "expected in");
    ck_assert_fails(with_params("#param X in 1 .. 2 = 3 // m\n", &none), KN_E_TEMPLATE, "X = 3: it must be 1 to 2");
    ck_assert_fails(with_params("#param X in {a, b} = c // m\n", &none), KN_E_TEMPLATE, "c is not declared");
    ck_assert_fails(with_params("#param target in 1 .. 2 = 1 // m\n", &none), KN_E_TEMPLATE, "target is predefined");
    ck_assert_fails(with_params("#for i in 0 .. 1\n#param X in 1 .. 2 // m\n#end\n", &none), KN_E_TEMPLATE,
                    "#param inside");
}
END_TEST

START_TEST(param_sets) {
    kn_params p = {0};
    kn_buf b;
    kn_buf_init(&b, 1000);
    kn_params_set(&p, "Z", -5);
    kn_params_set_name(&p, "T", "bf16");
    kn_params_set(&p, "BM", 128);
    kn_params_set(&p, "B", 1);
    ck_assert_ok(kn_params_write(&p, &b));
    ck_assert_str_eq(b.data, "B=1 BM=128 T=bf16 Z=-5");
    ck_assert_int_eq(kn_params_find(&p, "BM")->value, 128);
    ck_assert_str_eq(kn_params_find(&p, "T")->text, "bf16");
    ck_assert_ptr_null(kn_params_find(&p, "BN"));
    kn_params_set(&p, "BM", 1);
    ck_assert_int_eq(p.status, KN_E_ARG);
    ck_assert_fails(kn_params_write(&p, &b), KN_E_ARG, "collected");
    kn_params_set(&p, "Q", 1); /* sticky */
    ck_assert_int_eq(p.count, 4);
    static const char *const bad[] = {"", "1a", "a b", "a.b", "abcdefghijklmnopqrstuvwxyz123456"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        kn_params q = {0}, r = {0};
        kn_params_set(&q, bad[i], 1);
        ck_assert_int_eq(q.status, KN_E_ARG);
        kn_params_set_name(&r, "T", bad[i]);
        ck_assert_int_eq(r.status, KN_E_ARG);
    }
    kn_params full = {0};
    for (int i = 0; i < KN_MAX_PARAMS; i++)
        kn_params_set(&full, (char[]){(char)('A' + i / 26), (char)('a' + i % 26), 0}, i);
    ck_assert_int_eq(full.status, KN_OK);
    kn_params_set(&full, "zz", 1);
    ck_assert_int_eq(full.status, KN_E_ARG);
    kn_buf_free(&b);
}
END_TEST

/* ---- let, assert, registers ---------------------------------------------------------------------------------- */

START_TEST(lets) {
    check_body("#let a = 3\n#let T = a > 2 ? f32 : b16 // type\n", "${a * 2} .${T}\n", "6 .f32\n");
    check_error("#let a = 1\n#let a = 2\n", "t.ptxt:2: ", "a is declared already, at t.ptxt:1");
    check_error("#let f32 = 1\n", "t.ptxt:1: ", "f32 is a type");
    check_error("#let smem_total = 1\n", "t.ptxt:1: ", "predefined");
    check_error("#param A in {x, y} = x // m\n#let y = 1\n", "t.ptxt:2: ", "y is a choice of #param A");
    check_error("#let a\n", "t.ptxt:1: ", "expected \"=\"");
    check_error("#let = 1\n", "t.ptxt:1: ", "expected a name");
}
END_TEST

START_TEST(asserts) {
    check_body("#assert 1 + 1 == 2 \"no\"\n", "", "");
    check_error("#let a = 5\n#assert a < 4 \"a is ${a}, not < 4\"\n", "t.ptxt:2: ", "a is 5, not < 4");
    check_error("#assert 1\n", "t.ptxt:1: ", "expected a \"sentence\"");
    check_error("#assert f32 \"x\"\n", "t.ptxt:1: ", "an assertion must be a whole number, not \"f32\"");
}
END_TEST

START_TEST(registers) {
    check_body(
        "",
        "  #regs .f32 acc[2 * 4], x // comment\n#regs .pred p\n#regs .b32 none[0]\n"
        "${acc[3]} ${x} @!${p} ${acc[0 .. 2]} ${acc[6 .. 8]} ${acc[0..8 step 3]}\n{${acc[1..3]}, 1} ${len(acc)}\n",
        "  .reg .f32 %acc<8>, %x;\n.reg .pred %p;\n"
        "%acc3 %x @!%p %acc0, %acc1 %acc6, %acc7 %acc0, %acc3, %acc6\n{%acc1, %acc2, 1} 8\n");
    check_body("", "#regs .b32 a[3]\n${a[*]}\n", ".reg .b32 %a<3>;\n{%a0, %a1, %a2}\n");
    check_body("#let T = 1 ? b64 : b32\n", "#regs .${T} a\n${a}\n", ".reg .b64 %a;\n%a\n");
    check_body("#let c = 1\n",
               "#regs .b32 a[8]\n${c ? a[0] : a[*]} ${a[2..8][1..3][1]} ${a[0..8 step 2][1..3 step 2]}\n",
               ".reg .b32 %a<8>;\n%a0 %a4 %a2\n");
}
END_TEST

START_TEST(register_errors) {
    check_error("#regs .f31 a\n", "t.ptxt:1: ", ".f31 is no register type");
    check_error("#regs f32 a\n", "t.ptxt:1: ", "expected a register type");
    check_error("#regs .${1} a\n", "t.ptxt:1: ", "not a register type");
    check_error("#regs .f32\n", "t.ptxt:1: ", "expected a register's name");
    check_error("#regs .f32 a[-1]\n", "t.ptxt:1: ", "a has -1 registers");
    check_error("#regs .f32 a[65537]\n", "t.ptxt:1: ", "a has 65537 registers");
    check_error("#regs .f32 a[4]\n${a}\n", "t.ptxt:2: ", "%a is an array of 4 registers");
    check_error("#regs .f32 a[4]\n${a[4]}\n", "t.ptxt:2: ", "index 4 of %a, which has 4");
    check_error("#regs .f32 a[4]\n${a[-1]}\n", "t.ptxt:2: ", "index -1");
    check_error("#regs .f32 a[4]\n${a[2..5]}\n", "t.ptxt:2: ", "slice 2 .. 5 step 1 of %a");
    check_error("#regs .f32 a[4]\n${a[0..4 step 0]}\n", "t.ptxt:2: ", "step 0");
    check_error("#regs .f32 a[4]\n${a[2..2]}\n", "t.ptxt:2: ", "an empty list");
    check_error("#regs .f32 a\n${a[0]}\n", "t.ptxt:2: ", "only a register array has [...]");
    check_error("#regs .f32 a[12]\n#regs .b32 a3\n", "t.ptxt:2: ", "a3 has the same name as an element of the array a");
    check_error("#regs .b32 a3\n#regs .f32 a[12]\n", "t.ptxt:2: ", "a3 has the same name as an element of the array a");
}
END_TEST

START_TEST(shared_memory) {
    kn_expansion x;
    ck_assert_ok(expand_text(
        "#smem a 100\n#smem b 8 * 4 align 1024\n#smem c 1\n#smem d 2000 align 8 at b\n#smem e 64 at a\n" HEAD
        "${a} ${b} ${c} ${d} ${smem_total} ${smem_align}\n" TAIL,
        NULL, 0, &x));
    ck_assert_ptr_nonnull(strstr(x.ptx, "\n0 1024 1056 1024 3024 1024\n"));
    ck_assert_uint_eq(x.meta.smem_dynamic, 3024);
    kn_expansion_free(&x);
    check_error("#smem a 1\n${smem_total}\n#smem b 1\n", "t.ptxt:3: ", "behind line 2, which used smem_total");
    check_error("#smem a 1 align 3\n", "t.ptxt:1: ", "align 3: a power of two");
    check_error("#smem a -1\n", "t.ptxt:1: ", "a has -1 bytes");
    check_error("#smem a 1 at 8\n", "t.ptxt:1: ", "a at 8: not a multiple of its alignment 16");
    check_error("#for i in 0 .. 1\n#smem a 1\n#end\n", "t.ptxt:2: ", "#smem inside #for or #macro");
}
END_TEST

/* ---- loops, conditions --------------------------------------------------------------------------------------- */

START_TEST(loops) {
    check_body("", "#for i in 0 .. 3\n${i}\n#end\n", "0\n1\n2\n");
    check_body("", "#for i in 3 .. 0 step -1\n${i}\n#end\n", "3\n2\n1\n");
    check_body("", "#for i in 0 .. 5 step 2\n  #for j in i .. i + 2\n${i}.${j}\n  #end\n#end\n",
               "0.0\n0.1\n2.2\n2.3\n4.4\n4.5\n");
    check_body("", "#for i in 5 .. 5\nx\n#end\n", "");
    check_body("", "#for i in 0 .. 2\n#let a = i * 2\n#regs .b32 r, s[2]\n${a} ${r} ${s[1]}\n#end\n",
               ".reg .b32 %r$1, %s$1_<2>;\n0 %r$1 %s$1_1\n.reg .b32 %r$2, %s$2_<2>;\n2 %r$2 %s$2_1\n");
    check_body("", "#for i in 9223372036854775806 .. 9223372036854775807 step 5\n${i}\n#end\n",
               "9223372036854775806\n");
    check_error("#for i in 0 .. 2\n#for i in 0 .. 2\n#end\n#end\n", "t.ptxt:2 [i=0 i=0]: ", "i is declared already");
    check_error("#let i = 1\n#for i in 0 .. 2\n#end\n", "t.ptxt:2 [i=0]: ", "i is declared already");
    check_error("#for i in 0 .. 2 step 0\n#end\n", "t.ptxt:1: ", "a step of 0");
    check_error("#for i in 0 .. 3\n#for j in 0 .. 3\n#assert i * j != 2 \"two\"\n#end\n#end\n",
                "t.ptxt:3 [i=1 j=2]: ", "two");
    check_error("#for i in 0 .. 2\n#end\n${i}\n", "t.ptxt:3: ", "i is not declared");
    check_error("#for i in 0 .. 99999999\n#end\n", "t.ptxt:1", "more than 1048576 steps");
    check_error("#for i in 0 .. 2000\n#for j in 0 .. 2000\nx\n#end\n#end\n", "t.ptxt:", "more than 1048576 steps");
}
END_TEST

START_TEST(conditions) {
    check_body("#let a = 2\n", "#if a == 1\none\n#elif a == 2\ntwo\n#elif a / 0\nx\n#else\nother\n#end\n", "two\n");
    check_body("#let a = 3\n", "#if a == 1\none\n#elif a == 2\ntwo\n#else\nother\n#end\n", "other\n");
    check_body("", "#if 0\n${nothing}\n#end\n#if 1\n#let b = 7\n#end\n${b}\n", "7\n");
    check_error("#if f32\n#end\n", "t.ptxt:1: ", "the condition of #if must be a whole number");
}
END_TEST

/* ---- macros, labels ------------------------------------------------------------------------------------------ */

START_TEST(macros) {
    check_body("#macro add(d, a, n)\n    add.u32 ${d}, ${a}, ${n * 2};\n#end\n",
               "#regs .b32 x\n#use add(x, [%r1 + 4], 1 + 2)\n#use add({%a, %b}, \"\", 0x10) // why\n",
               ".reg .b32 %x;\n    add.u32 %x, [%r1 + 4], 6;\n    add.u32 {%a, %b}, , 32;\n");
    check_body("#macro m(v)\n${v[1]} ${v[*]} ${len(v)}\n#end\n#regs .b32 top[1]\n",
               "#regs .f32 a[6]\n#use m(a)\n#use m(a[2 .. 4])\n#use m(a[*])\n",
               ".reg .f32 %a<6>;\n%a1 {%a0, %a1, %a2, %a3, %a4, %a5} 6\n%a3 {%a2, %a3} 2\n"
               "%a1 {%a0, %a1, %a2, %a3, %a4, %a5} 6\n");
    /* Hygiene: own registers, own lets, a global of the same name, arguments evaluated by the caller. */
    check_body(
        "#let g = 5\n#macro inner(a)\n#regs .b32 t\n#let g = a + 1\n${t} ${g}\n#end\n"
        "#macro outer(a)\n#regs .b32 t\n#use inner(a * 10 + g)\n${t} ${a}\n#end\n",
        "#use outer(1)\n#use outer(2)\n",
        ".reg .b32 %t$1;\n.reg .b32 %t$2;\n%t$2 16\n%t$1 1\n.reg .b32 %t$3;\n.reg .b32 %t$4;\n%t$4 26\n%t$3 2\n");
    check_body("#macro m(p)\n@${p} x\n#end\n", "#for i in 0 .. 2\n#use m(!%q${i})\n#end\n", "@!%q0 x\n@!%q1 x\n");
    check_body("#macro m(a, b)\n${a} ${b}\n#end\n", "#use m(max(1, 2), \"a, b)\")\n#use m(0f3F800000, \"${1 + 1}\")\n",
               "2 a, b)\n0f3F800000 2\n");
    check_body("#macro m()\nx\n#end\n", "#use m()\n#use m( )\n", "x\nx\n");
}
END_TEST

START_TEST(macro_errors) {
    check_error("#use m()\n", "t.ptxt:1: ", "there is no macro m");
    check_error("#macro m()\n#end\n#macro m()\n#end\n", "t.ptxt:3: ", "macro m is defined already, at t.ptxt:1");
    check_error("#macro m(a)\n#end\n#use m()\n", "t.ptxt:3: ", "macro m takes 1 argument, not 0");
    check_error("#macro m(a)\n#end\n#use m(1, 2)\n", "t.ptxt:3: ", "macro m takes 1 argument, not 2");
    check_error("#macro m(a)\n#end\n#use m(1,)\n", "t.ptxt:3: ", "an empty argument");
    check_error("#macro m(a)\n#end\n#use m(1\n", "t.ptxt:3: ", "\")\" is missing");
    check_error("#macro m(a)\n#end\n#use m(x)\n", "t.ptxt:3: ", "x is not declared");
    check_error("#macro m(a, a)\n#end\n#use m(1, 2)\n", "t.ptxt:3 [used at t.ptxt:3]: ", "a is declared already");
    check_error("#macro m()\n#use m()\n#end\n#use m()\n", "t.ptxt:2 [used at t.ptxt:4]: ", "macro m uses itself");
    check_error("#macro m()\n#macro n()\n#end\n#end\n", "t.ptxt:2: ", "#macro inside");
    check_error("#macro m(l)\n${l}\n#end\n#for i in 0 .. 1\n#use m(i)\n${x}\n#end\n",
                "t.ptxt:6 [i=0]: ", "x is not declared");
    check_error("#macro m()\n#for j in 0 .. 2\n${i}\n#end\n#end\n#for i in 4 .. 5\n#use m()\n#end\n",
                "t.ptxt:3 [j=0, used at t.ptxt:7 i=4]: ", "i is not declared");
    char text[8192] = "";
    for (int i = 0; i < 40; i++) {
        char one[100];
        snprintf(one, sizeof one, "#macro m%d()\n#use m%d()\n#end\n", i, i + 1);
        strcat(text, one);
    }
    strcat(text, "#use m0()\n");
    check_error(text, "t.ptxt:", "macros nested too deeply");
}
END_TEST

START_TEST(labels) {
    check_body("#macro wait(bar)\nL@again:\n    try %p, ${bar};\n#for i in 0 .. 1\n    @!%p bra L@again;\n    bra "
               "L@exit;\n#end\n#end\n",
               "#use wait(1)\n#use wait(2)\nL@exit:\n",
               "L$again$1:\n    try %p, 1;\n    @!%p bra L$again$1;\n    bra L$exit;\n"
               "L$again$2:\n    try %p, 2;\n    @!%p bra L$again$2;\n    bra L$exit;\nL$exit:\n");
    check_body("#macro go(l)\nbra ${l};\n#end\n", "#for i in 0 .. 2\nL@top:\n#use go(L@top)\n#end\n",
               "L$top$1:\nbra L$top$1;\nL$top$2:\nbra L$top$2;\n");
    check_error(HEAD "bra L@nowhere;\n" TAIL, "t.ptxt:7: ", "label L@nowhere is defined nowhere");
    check_error(HEAD "L@a:\nbra L@a;\nL@a:\n" TAIL, "t.ptxt:9: ", "label L@a is defined already, at t.ptxt:7");
}
END_TEST

/* ---- includes ------------------------------------------------------------------------------------------------ */

START_TEST(includes) {
    const char *files[] = {
        "t.ptxt",
        "#param E in {one, two} // which\n#include \"lib/epi_${E}.ptxi\"\n#include \"lib/c.ptxi\"\n" HEAD
        "#use epi()\n${C}\n" TAIL,
        "lib/epi_one.ptxi",
        "#include \"lib/c.ptxi\"\n#macro epi()\n1 ${C + 1}\n#end\n",
        "lib/epi_two.ptxi",
        "#macro epi()\n2\n#assert 0 \"never\"\n#end\n",
        "lib/c.ptxi",
        "#let C = 10\n",
        NULL};
    kn_params p = {0};
    kn_params_set_name(&p, "E", "one");
    kn_expansion x;
    ck_assert_ok(expand_files(files, &p, 0, &x));
    ck_assert_ptr_nonnull(strstr(x.ptx, "1 11\n10\n"));
    ck_assert_uint_eq(x.n_files, 3);
    ck_assert_str_eq(x.files[1], "lib/epi_one.ptxi");
    kn_expansion_free(&x);
    kn_params q = {0};
    kn_params_set_name(&q, "E", "two");
    ck_assert_fails(expand_files(files, &q, 0, &x), KN_E_TEMPLATE, "lib/epi_two.ptxi:3 [used at t.ptxt:10]: never");
    check_error("a\n#include \"x.ptxi\"\n", "t.ptxt:2: ", "there is no template x.ptxi");
    check_error("a\n#include \"../x.ptxi\"\n", "t.ptxt:2: ", "template name \"../x.ptxi\"");
    check_error("a\n#include x\n", "t.ptxt:2: ", "expected a \"file name\"");
    check_error("#for i in 0 .. 1\n#include \"x\"\n#end\n", "t.ptxt:2: ", "#include inside");
}
END_TEST

/* ---- limits -------------------------------------------------------------------------------------------------- */

START_TEST(limits) {
    char *text = kn_calloc(1, 1 << 20);
    for (int i = 0; i < 40; i++) strcat(text, "#if 1\n");
    check_error(text, "t.ptxt:32: ", "nested too deeply");
    strcpy(text, "#let a0 = \"0123456789\"\n");
    for (int i = 0; i < 20; i++) sprintf(text + strlen(text), "#let a%d = \"${a%d}${a%d}\"\n", i + 1, i, i);
    check_error(text, "t.ptxt:12: ", "a text of more than 16384 bytes");
    strcpy(text, "#regs .b32 a[65536]\n#for i in 0 .. 100\n${a[*]}\n#end\n");
    check_error(text, "t.ptxt:3 [i=", "more than 16777216 bytes of PTX");
    strcpy(text, "${0");
    for (int i = 0; i < 600; i++) strcat(text, "+1");
    strcat(text, "}\n");
    check_error(text, "t.ptxt:1: ", "more than 512 parts");
    kn_free(text);
}
END_TEST

/* Every allocation fails once: a status, no leak, no crash (ASan watches). */
START_TEST(out_of_memory) {
#ifdef KN_FAULT_INJECTION
    const char *text = "#param A in 1 .. 4 = 2 // a\n#macro m(x)\nL@l:\n${x[*]} bra L@l;\n#end\n" HEAD
                       "#regs .b32 r[A]\n#for i in 0 .. 3\n#use m(r)\n\"${\"a${i}\"}\"\n#end\n" TAIL;
    kn_expansion x;
    bool failed = false, passed = false;
    for (uint64_t n = 1; n < 1000 && !passed; n++) {
        kn_fault_arm(n);
        kn_status st = expand_text(text, NULL, KN_EXPAND_LINEINFO, &x);
        kn_fault_arm(0);
        passed = st == KN_OK;
        failed |= !passed;
        if (!passed) ck_assert_int_eq(st, KN_E_NOMEM);
        kn_expansion_free(&x);
    }
    ck_assert(failed && passed);
#endif
}
END_TEST

int main(void) {
    Suite *s = suite_create("expand");
    TCase *t = tcase_create("language");
    tcase_add_test(t, lines_are_copied);
    tcase_add_test(t, line_errors);
    tcase_add_test(t, continuation);
    tcase_add_test(t, params);
    tcase_add_test(t, param_errors);
    tcase_add_test(t, param_sets);
    tcase_add_test(t, lets);
    tcase_add_test(t, asserts);
    tcase_add_test(t, registers);
    tcase_add_test(t, register_errors);
    tcase_add_test(t, shared_memory);
    tcase_add_test(t, loops);
    tcase_add_test(t, conditions);
    tcase_add_test(t, macros);
    tcase_add_test(t, macro_errors);
    tcase_add_test(t, labels);
    tcase_add_test(t, includes);
    tcase_add_test(t, limits);
    tcase_add_test(t, out_of_memory);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
