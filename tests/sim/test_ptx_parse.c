/* The PTX parser: what it takes, and the sentences with which it refuses. */
#include "sim/isa.h"
#include "sim/ptx_module.h"
#include "support/suite.h"

#include <stdio.h>
#include <string.h>

#define HEAD ".version 8.0\n.target sm_90a\n.address_size 64\n"
#define BODY(text)                                                                                                     \
    HEAD ".entry k(.param .u64 a) {\n.reg .pred %p<2>; .reg .b16 %h<2>; .reg .b32 %r<4>; .reg .b64 %rd<4>;\n" text     \
         "\n}\n"

static kn_status parse(const char *text, kn_sim_module **m) {
    return kn_sim_parse(text, strlen(text), NULL, NULL, m);
}

START_TEST(modules) {
    kn_sim_module *m = NULL;
    ck_assert_ok(parse(
        "// a comment\n.version 8.3\n.target sm_90a, texmode_independent\n.address_size 64\n.file 1 \"x\"\n"
        ".const .align 16 .b8 c[3] = {1, 2, 0x3};\n.extern .shared .align 1024 .b8 dyn[];\n.shared .b8 s0[100];\n"
        ".visible .entry first(.param .u32 n, .param .u64 .ptr .global .align 16 p, .param .align 64 .b8 tm[128])\n"
        ".reqntid 128, 2 .reqnctapercluster 2 .maxnreg 32\n{\n.shared .align 8 .b64 bar[2];\n.reg .b32 %r<3>;\n"
        ".loc 1 2 3\nmov.u32 %r0, dyn;\nmov.u32 %r1, bar+8;\nL: bra L;\n}\n.entry second() { .reg .f64 d; exit; }\n",
        &m));
    ck_assert_str_eq(m->target, "sm_90a");
    ck_assert_uint_eq(m->ptx_version, 83);
    ck_assert_uint_eq(m->n_entries, 2);
    const kn_entry *e = &m->entry[0];
    ck_assert_str_eq(e->name, "first");
    ck_assert_uint_eq(e->n_params, 3);
    ck_assert_uint_eq(e->param[1].offset, 8);
    ck_assert_uint_eq(e->param[2].offset, 64);
    ck_assert_uint_eq(e->params_bytes, 192);
    ck_assert_uint_eq(e->reqntid[0] * e->reqntid[1] * e->reqntid[2], 256);
    ck_assert_uint_eq(e->cluster[0], 2);
    ck_assert_uint_eq(e->smem_static, 120);   /* 100, a hole of 4, 16 */
    ck_assert_uint_eq(e->smem_dynamic, 2048); /* 1024 reserved + 120, rounded up to 1024 */
    ck_assert_uint_eq(e->n_code, 4);
    ck_assert_int_eq(e->code[0].op[1].imm, 2048);
    ck_assert_int_eq(e->code[1].op[1].imm, 1024 + 104 + 8);
    ck_assert_uint_eq(e->code[2].op[0].slot, 2);
    ck_assert_uint_eq(e->code[2].line, 17);
    kn_sim_free(m);
}
END_TEST

/* Labels and registers of a scope hide those outside; a branch finds the label of its own scope first. */
START_TEST(scopes) {
    kn_sim_module *m = NULL;
    ck_assert_ok(parse(BODY("mov.u32 %r0, 1;\n{ .reg .b64 %r0; bra L; mov.u64 %r0, 1; L: }\n{ bra L; L: bra OUT; }\n"
                            "OUT: mov.u32 %r0, 2; L: bra L; { { bra L; } L: ret; }"),
                       &m));
    const kn_entry *e = &m->entry[0];
    ck_assert_uint_eq(e->code[1].op[0].slot, 3);
    ck_assert_uint_eq(e->code[2].op[0].bytes, 8);
    ck_assert_uint_eq(e->code[3].op[0].slot, 4);
    ck_assert_uint_eq(e->code[4].op[0].slot, 5);
    ck_assert_uint_eq(e->code[6].op[0].slot, 6);
    ck_assert_uint_eq(e->code[7].op[0].slot, 8);
    kn_sim_free(m);
}
END_TEST

static const struct {
    const char *text, *part;
} refused[] = {
    {"", "PTX line 1: the text has no .entry"},
    {".version 8.0\n.entry k() { ret; }", "the text has no .target"},
    {HEAD "hello", "a directive was expected before 'h'"},
    {HEAD ".func f() {}", "PTX line 4: unknown directive .func"},
    {HEAD ".address_size 32\n", ".address_size must be 64"},
    {HEAD ".entry k() { ret;", "the text ends inside a kernel"},
    {BODY("foo.bar %r0;"), "PTX line 6: unknown instruction foo.bar"},
    {BODY("add.u31 %r0, %r1, %r2;"), "unknown form add.u31: no row of sim/isa.def"},
    {BODY("ld.global.v3.u32 {%r0, %r1, %r2}, [%rd0];"), "unknown form ld.global.v3.u32"},
    {BODY("add.u32 %r0, %r1;"), "too few operands (2)"},
    {BODY("add.u32 %r0, %r1, %r2, %r3;"), "too many operands (4, 3 are wanted)"},
    {BODY("add.u32 %r0, %r1, %rd2;"), "a 64-bit register where .u32 is wanted"},
    {BODY("add.u32 %r0, %r1, %r4;"), "%r4 is no declared register and no known special register"},
    {BODY("add.u32 %r0, %r1, x;"), "unknown name x"},
    {BODY("add.u32 %r0, %r1, 0x100000000;"), "4294967296 does not fit .u32"},
    {BODY("add.s16 %h0, %h1, -32769;"), "-32769 does not fit .s16"},
    {BODY("add.u32 %r0, %r1, 0f3f800000;"), "a floating literal where .u32 wants an integer"},
    {BODY("add.rn.f32 %r0, %r1, 1;"), "an integer where .f32 wants a floating literal"},
    {BODY("mov.f32 %r0, 0f3f80;"), "a hexadecimal float needs 8 digits"},
    {BODY("add.u32 %tid.x, %r1, 1;"), "a special register cannot be written"},
    {BODY("add.u32 5, %r1, 1;"), "an operand must be a register of .u32"},
    {BODY("setp.eq.u32 %r0, %r1, %r2;"), "a predicate is wanted"},
    {BODY("@%r0 bra L; L: ret;"), "%r0 is no predicate"},
    {BODY("bra L;"), "the label L is not declared"},
    {BODY("{ L: ret; }\nbra L;"), "PTX line 7: the label L is not declared"},
    {BODY("L: ret; L: ret;"), "L is declared twice"},
    {BODY(".reg .b32 %q; .reg .b32 %q;"), "%q is declared twice"},
    {BODY(".reg .b32 %q<70000>;"), "the number of registers must be an integer in [0, 65536]"},
    {BODY(".reg .b64 %q<60000>;"), "more than 65536 registers"},
    {BODY("ld.global.u32 %r0, %rd0;"), "an [address] is wanted"},
    {BODY("ld.global.u32 %r0, [%h0];"), "an address must be"},
    {BODY("ld.global.v2.u32 %r0, [%rd0];"), "a list of 2 is wanted"},
    {BODY("ld.global.u32 %r0, [%rd0"), "']' was expected"},
    {BODY("mov.b64 %rd0, {%r0, %h0};"), "do not fill .b64"},
    {BODY("lop3.b32 %r0, %r1, %r2, %r3, 256;"), "the truth table must be in [0, 255]"},
    {BODY("cvt.s32.f32 %r0, %r1;"), "needs .rni, .rzi, .rmi or .rpi"},
    {BODY("cvt.bf16.f32 %h0, %r1;"), "needs .rn, .rz"},
    {BODY("cp.async.cg.shared.global [%r0], [%rd0], 8;"), "cp-size must be 16"},
    {BODY("mma.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 "
          "{%r0,%r0,%r0,%r0},{%r0,%r0,%r0,%r0},{%r0,%r0},{%r0,%r0,%r0,%r0};"),
     "there is no such shape"},
    {BODY("setp.lo.s32 %p0, %r0, %r1;"), "for unsigned types"},
    {BODY("st.const.u32 [%rd0], %r0;"), "cannot store there"},
    {BODY(".shared .b8 s[2000000];"), "static shared memory of over 1 MiB"},
    {BODY(".local .b8 s[65537];"), "local memory of over 64 KiB a thread"},
    {BODY(".pragma \"x\""), "';' was expected"},
    {BODY(".align 4;"), "unknown directive .align in a kernel"},
    {HEAD ".extern .global .b32 g;\n", "external variables cannot be linked"},
    {HEAD ".const .b32 c = {1, 2};\n", "more initial values than elements"},
    {HEAD ".entry k(.param .b8 a[40000]) { ret; }", "parameters of over 32764 bytes"},
};

START_TEST(refusals) {
    kn_sim_module *m = NULL;
    ck_assert_fails(parse(refused[_i].text, &m), KN_E_SIM, refused[_i].part);
    ck_assert_ptr_null(m);
}
END_TEST

/* Every word of every pattern means something, and every signature names types that exist. */
static void check_pattern(const kn_isa_row *row) {
    char word[64];
    for (const char *at = row->pattern; *at;) {
        size_t n = strcspn(at, " |?");
        kn_space space;
        snprintf(word, sizeof word, "%.*s", (int)n, at);
        bool known = strcmp(word, "SHAPE") == 0 || kn_isa_set(at, n) || kn_type_find(at, n) ||
                     kn_space_find(at, n, &space) || kn_token_find(at, n);
        ck_assert_msg(known, "isa.def: %s \"%s\": unknown word \"%s\"", row->op, row->pattern, word);
        at += n + strspn(at + n, " |?");
    }
}
static void check_signature(const kn_isa_row *row) {
    for (const char *at = row->operands; *at;) {
        at += *at == '=';
        size_t n = strcspn(at, " ?|");
        bool known = (n == 1 && strchr("0123VDpmthil", at[0])) || (n == 2 && at[0] == 'v') || kn_type_find(at, n);
        ck_assert_msg(known, "isa.def: %s \"%s\": signature \"%s\"", row->op, row->pattern, row->operands);
        at += n + strspn(at + n, " ?|p");
    }
}
START_TEST(table) {
    ck_assert_uint_gt(kn_isa_count(), 150);
    for (uint32_t k = 0; k < kn_isa_count(); k++) {
        check_pattern(kn_isa_at(k));
        check_signature(kn_isa_at(k));
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("sim/ptx_parse");
    TCase *t = tcase_create("ptx_parse");
    tcase_add_test(t, modules);
    tcase_add_test(t, scopes);
    tcase_add_loop_test(t, refusals, 0, (int)(sizeof refused / sizeof refused[0]));
    tcase_add_test(t, table);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
