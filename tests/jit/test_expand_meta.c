/* Metadata read back from the text, the line map, and .loc lines. */
#include "tests/jit/expand_support.h"

#define VERSION ".version 8.1\n.target sm_90a\n.address_size 64\n"

static kn_kernel_meta meta_of(const char *text) {
    kn_expansion x;
    ck_assert_ok(expand_text(text, NULL, 0, &x));
    kn_kernel_meta m = x.meta;
    kn_expansion_free(&x);
    return m;
}

START_TEST(everything) {
    kn_kernel_meta m = meta_of("// .entry in a comment\n" VERSION ".extern .shared .align 1024 .b8 smem[];\n"
                               ".shared .align 8 .b64 bars[4];\n"
                               "#smem tile 4096 align 1024\n"
                               ".visible .entry kiln_x(\n"
                               "    .param .u32 n, // .param .u64 no\n"
                               "    .param .u64 .ptr .shared .align 16 p,\n"
                               "    .param .align 64 .b8 map[128],\n"
                               "    .param .f32 f, .param .b8 c,\n"
                               "    .param .u64 q\n"
                               ")\n"
                               ".reqnctapercluster 2, 1\n.maxntid 512\n.reqntid 128, 2, 1\n.minnctapersm 1\n"
                               "{\n"
                               "    .shared .b8 a[3], b[5][2];\n"
                               "    .shared .align 16 .v4 .f32 v;\n"
                               "    ld.shared.b32 %r1, [a];\n"
                               "    // griddepcontrol.wait;\n"
                               "    ret;\n}\n");
    ck_assert_str_eq(m.entry, "kiln_x");
    ck_assert_str_eq(m.target, "sm_90a");
    ck_assert_uint_eq(m.ptx_version, 81);
    ck_assert_uint_eq(m.threads[0] * 1000 + m.threads[1] * 10 + m.threads[2], 128021);
    ck_assert_uint_eq(m.cluster[0] * 100 + m.cluster[1] * 10 + m.cluster[2], 211);
    ck_assert_uint_eq(m.smem_dynamic, 4096);
    ck_assert_uint_eq(m.smem_static, 64); /* 32 + 3 + 10, then 16 at 48 */
    ck_assert_uint_eq(m.grid_dependency, 0);
    static const kn_kernel_arg arg[] = {{"n", 0, 4, 4},   {"p", 8, 8, 8},   {"map", 64, 128, 64},
                                        {"f", 192, 4, 4}, {"c", 196, 1, 1}, {"q", 200, 8, 8}};
    ck_assert_uint_eq(m.n_args, 6);
    for (int i = 0; i < 6; i++) {
        ck_assert_str_eq(m.arg[i].name, arg[i].name);
        ck_assert_uint_eq(m.arg[i].offset, arg[i].offset);
        ck_assert_uint_eq(m.arg[i].size, arg[i].size);
        ck_assert_uint_eq(m.arg[i].align, arg[i].align);
    }
    ck_assert_uint_eq(m.ptx_lines, 24);
}
END_TEST

START_TEST(small) {
    kn_kernel_meta m = meta_of(VERSION ".entry k\n.maxntid 64\n{\n  griddepcontrol.wait;\n  ret;\n}\n");
    ck_assert_uint_eq(m.threads[0], 64);
    ck_assert_uint_eq(m.threads[1], 1);
    ck_assert_uint_eq(m.cluster[0], 1);
    ck_assert_uint_eq(m.n_args, 0);
    ck_assert_uint_eq(m.grid_dependency, 1);
    m = meta_of(VERSION ".entry k()\n.reqntid 64\n.maxntid 128\n{\n}\n");
    ck_assert_uint_eq(m.threads[0], 64);
    ck_assert_uint_eq(m.n_args, 0);
}
END_TEST

START_TEST(errors) {
    check_error("x\n", "t.ptxt:1: ", "no .entry");
    check_error("", "t.ptxt: ", "no .entry");
    check_error(".entry k()\n.reqntid 1\n{\n}\n", "t.ptxt:1: ", "lacks .version or .target");
    check_error(".version 8\n", "t.ptxt:1: ", "expected a version such as 8.1, not \"8\"");
    check_error(".version 8.1\n.target sm_80\n.entry k()\n.reqntid 1\n{\n}\n", "t.ptxt:3: ", ".target is sm_80");
    check_error(VERSION ".entry k()\n{\n}\n", "t.ptxt:5: ", "no .reqntid");
    check_error(VERSION ".entry k()\n.reqntid x\n{\n}\n", "t.ptxt:5: ", "expected a whole number, not \"x\"");
    check_error(VERSION ".entry k()\n.reqntid 1\n", "t.ptxt:", "no body");
    check_error(VERSION ".entry k(.reg .u64 a)\n", "t.ptxt:4: ", "expected .param");
    check_error(VERSION ".entry k(.param a)\n", "t.ptxt:4: ", "expected a type");
    check_error(VERSION ".entry k(.param .u64 a .param .u64 b)\n", "t.ptxt:4: ", "expected \",\" or \")\"");
    check_error(VERSION ".entry k(.param .align 3 .b8 a[8])\n", "t.ptxt:4: ", ".align 3 is not a power of two");
    check_error(VERSION ".entry k(.param .b8 a[])\n", "t.ptxt:4: ", "argument a has no size");
    check_error(VERSION ".entry k(.param .b8 a[99999])\n", "t.ptxt:4: ", "more than 32764 bytes");
    check_error(VERSION ".entry k(\n#for i in 0 .. 65\n.param .u64 a${i},\n#end\n.param .u64 z)\n",
                "t.ptxt:6 [i=64]: ", "more than 64");
    check_error(VERSION ".entry k(.param .u64 abcdefghijklmnopqrstuvwxyz123456)\n", "t.ptxt:4: ", "at most 31 letters");
    check_error(VERSION ".entry k()\n.reqntid 1\n{\n}\n.entry l()\n{\n}\n", "t.ptxt:8: ", "its second .entry");
    check_error(VERSION ".shared .b8 a[];\n.entry k()\n.reqntid 1\n{\n}\n", "t.ptxt:4: ", "must be .extern");
    check_error(VERSION ".shared .b8 a[99999999];\n.entry k()\n.reqntid 1\n{\n}\n", "t.ptxt:4: ", "more than 2^24");
}
END_TEST

START_TEST(line_map) {
    const char *files[] = {"t.ptxt", "#include \"lib/m.ptxi\"\n" HEAD "#for ks in 0 .. 2\n#use two(ks)\n#end\n" TAIL,
                           "lib/m.ptxi", "#macro two(a)\n#for i in 0 .. 2\n${a * 2 + i}\n#end\n#end\n", NULL};
    kn_expansion x;
    ck_assert_ok(expand_files(files, NULL, 0, &x));
    ck_assert_uint_eq(x.n_lines, 12);
    char text[200];
    kn_expansion_origin(&x, 1, text, sizeof text);
    ck_assert_str_eq(text, "t.ptxt:2");
    kn_expansion_origin(&x, 10, text, sizeof text);
    ck_assert_str_eq(text, "lib/m.ptxi:3 [i=1, used at t.ptxt:9 ks=1]");
    kn_expansion_origin(&x, 13, text, sizeof text);
    ck_assert_str_eq(text, "PTX line 13");
    kn_expansion_origin(&x, 0, text, sizeof text);
    ck_assert_str_eq(text, "PTX line 0");
    kn_expansion_origin(NULL, 5, text, sizeof text);
    ck_assert_str_eq(text, "PTX line 5");
    kn_expansion_origin(&x, 10, text, 8);
    ck_assert_str_eq(text, "lib/m.p");
    kn_buf map;
    kn_buf_init(&map, 4096);
    ck_assert_ok(kn_expansion_write_map(&x, &map));
    ck_assert_ptr_nonnull(
        strstr(map.data, "6 t.ptxt:7\n7 lib/m.ptxi:3 [i=0, used at t.ptxt:9 ks=0]\n8 lib/m.ptxi:3 [i=1"));
    kn_buf_free(&map);
    kn_expansion_free(&x);
    kn_expansion_free(&x);
}
END_TEST

START_TEST(line_info) {
    kn_expansion x;
    ck_assert_ok(expand_text(VERSION
                             ".entry k()\n.reqntid 1\n{\n#regs .b32 a\n    mov.b32 %a, 1; // one\n\n    add.u32 %a,\n"
                             "      %a, 2;\n@%p bra L@x;\nL@x:\n    ret;\n}\n",
                             NULL, KN_EXPAND_LINEINFO, &x));
    const char *want = VERSION ".entry k()\n.reqntid 1\n{\n.reg .b32 %a;\n    .loc 1 8 0\n    mov.b32 %a, 1; // one\n\n"
                               "    .loc 1 10 0\n    add.u32 %a,\n      %a, 2;\n    .loc 1 12 0\n@%p bra L$x;\n"
                               "    .loc 1 13 0\nL$x:\n    .loc 1 14 0\n    ret;\n}\n.file 1 \"t.ptxt\"\n";
    ck_assert_str_eq(x.ptx, want);
    ck_assert_uint_eq(x.meta.ptx_lines, x.n_lines);
    char text[64];
    kn_expansion_origin(&x, 9, text, sizeof text);
    ck_assert_str_eq(text, "t.ptxt:8");
    kn_expansion_free(&x);
}
END_TEST

int main(void) {
    Suite *s = suite_create("expand_meta");
    TCase *t = tcase_create("meta");
    tcase_add_test(t, everything);
    tcase_add_test(t, small);
    tcase_add_test(t, errors);
    tcase_add_test(t, line_map);
    tcase_add_test(t, line_info);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
