/* jit/assemble: nvJitLink on real PTX, its report and its errors. Without an nvJitLink the tests that need one are
 * skipped, and fail under CI=true. */
#define _POSIX_C_SOURCE 200809L
#include "base/alloc.h"
#include "base/thread.h"
#include "jit/assemble.h"
#include "support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- small expansions by hand: template line = PTX line + 100, loop text on odd lines -------------------------- */

static char files[1][64] = {"probe.ptxt"};
static char loops[] = "\0ks=3";
static kn_line_origin origins[2000];

static kn_expansion expansion_of(char *ptx, const char *entry, const char *target) {
    for (uint32_t i = 0; i < 2000; i++) origins[i] = (kn_line_origin){.file = 0, .line = i + 101, .loops = (i + 1) % 2};
    kn_expansion x = {.ptx = ptx,
                      .ptx_len = strlen(ptx),
                      .n_lines = 2000,
                      .lines = origins,
                      .n_files = 1,
                      .files = files,
                      .loop_text = loops};
    snprintf(x.meta.entry, sizeof x.meta.entry, "%s", entry);
    snprintf(x.meta.target, sizeof x.meta.target, "%s", target);
    return x;
}

static char good_ptx[] = ".version 8.0\n.target sm_90a\n.address_size 64\n"
                         ".visible .entry probe(.param .u64 p)\n.reqntid 128,1,1\n{\n"
                         ".shared .align 16 .b8 tile[1024];\n.reg .u64 a;\n.reg .u32 r<3>;\n"
                         "ld.param.u64 a, [p];\nmov.u32 r0, %tid.x;\nst.shared.u32 [tile], r0;\nbar.sync 0;\n"
                         "ld.shared.u32 r1, [tile+4];\nst.global.u32 [a], r1;\nret;\n}\n";

static char bad_ptx[] = ".version 8.0\n.target sm_90a\n.address_size 64\n"
                        ".visible .entry probe(.param .u64 p)\n{\n"
                        ".reg .u32 r<3>;\n.reg .f32 f;\nadd.u32 r0, r1, f;\nfoo.bar r0;\nret;\n}\n";

/* A kernel of 1024 threads that keeps 200 values alive: 64 registers cannot hold them. */
static char *spilling_ptx(void) {
    static char text[65536];
    size_t n = (size_t)snprintf(text, sizeof text,
                                ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry spill(.param .u64 p)\n"
                                ".reqntid 1024,1,1\n{\n.reg .f32 f<200>;\n.reg .u64 a;\nld.param.u64 a, [p];\n");
    for (int i = 0; i < 200; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "ld.global.f32 f%d, [a+%d];\n", i, 4 * i);
    n += (size_t)snprintf(text + n, sizeof text - n, "bar.sync 0;\n");
    for (int i = 0; i < 200; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "fma.rn.f32 f%d, f%d, f%d, f%d;\n", i, (i * 7 + 3) % 200, i,
                              (i + 1) % 200);
    for (int i = 0; i < 200; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "st.global.f32 [a+%d], f%d;\n", 4 * (200 - i), i);
    snprintf(text + n, sizeof text - n, "ret;\n}\n");
    return text;
}

/* An accumulator is touched between two wgmma of one batch: the assembler serialises or injects waits, and says so. */
static char *remarked_ptx(void) {
    static char text[4096];
    char regs[512] = "";
    for (int i = 0; i < 32; i++) {
        size_t used = strlen(regs);
        snprintf(regs + used, sizeof regs - used, "%sf%d", i ? "," : "", i);
    }
    char mma[1024];
    snprintf(mma, sizeof mma, "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%s}, d0, d0, 1, 1, 1, 0, 0;\n",
             regs);
    size_t n = (size_t)snprintf(text, sizeof text,
                                ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry wg(.param .u64 p)\n"
                                ".reqntid 128,1,1\n{\n.reg .f32 f<32>;\n.reg .u64 a, d0;\nld.param.u64 a, [p];\n"
                                "mov.u64 d0, 0x4000004000010000;\n");
    for (int i = 0; i < 32; i++) n += (size_t)snprintf(text + n, sizeof text - n, "mov.f32 f%d, 0f00000000;\n", i);
    n += (size_t)snprintf(text + n, sizeof text - n,
                          "wgmma.fence.sync.aligned;\n%sadd.rn.f32 f3, f3, f4;\n%swgmma.commit_group.sync.aligned;\n"
                          "wgmma.wait_group.sync.aligned 0;\n",
                          mma, mma);
    for (int i = 0; i < 32; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "st.global.f32 [a+%d], f%d;\n", 4 * i, i);
    snprintf(text + n, sizeof text - n, "ret;\n}\n");
    return text;
}

/* ---- with the real library --------------------------------------------------------------------------------------- */

static bool have_nvjitlink(void) {
    const kn_assembler_id *id;
    if (kn_nvjitlink_id(&id) == KN_OK) return true;
    const char *ci = getenv("CI");
    ck_assert_msg(!ci || strcmp(ci, "true") != 0, "no nvJitLink under CI: %s", kn_error_message());
    printf("skipped: %s\n", kn_error_message());
    return false;
}

START_TEST(good_kernel_and_report) {
    if (!have_nvjitlink()) return;
    const kn_assembler_id *id;
    ck_assert_ok(kn_nvjitlink_id(&id));
    ck_assert_str_eq(id->kind, "nvjitlink");
    ck_assert_uint_ge(id->version, 12000);
    ck_assert_int_eq(id->path[0], '/');
    kn_expansion x = expansion_of(good_ptx, "probe", "sm_90a");
    void *cubin = NULL;
    size_t len = 0;
    kn_asm_report r;
    ck_assert_ok(kn_nvjitlink_assemble(&x, &cubin, &len, &r));
    ck_assert_uint_gt(len, 500);
    ck_assert_mem_eq(cubin, "\177ELF", 4);
    ck_assert_uint_ge(r.registers, 4);
    ck_assert_uint_le(r.registers, 32);
    ck_assert_uint_eq(r.smem_static, 1024);
    ck_assert_uint_eq(r.spill_stores + r.spill_loads + r.stack + r.remarks, 0);
    ck_assert_uint_gt(r.assemble_ns, 0);
    /* The same text gives the same bytes. */
    void *again = NULL;
    size_t again_len = 0;
    ck_assert_ok(kn_nvjitlink_assemble(&x, &again, &again_len, &r));
    ck_assert_uint_eq(len, again_len);
    ck_assert_mem_eq(cubin, again, len);
    kn_free(cubin);
    kn_free(again);
}
END_TEST

START_TEST(errors_name_template_lines) {
    if (!have_nvjitlink()) return;
    kn_expansion x = expansion_of(bad_ptx, "probe", "sm_90a");
    void *cubin = (void *)1;
    size_t len = 1;
    kn_asm_report r;
    ck_assert_fails(kn_nvjitlink_assemble(&x, &cubin, &len, &r), KN_E_ASSEMBLE, "refused probe for sm_90a");
    ck_assert_ptr_null(cubin);
    ck_assert_uint_eq(len, 0);
    /* ptxas reports line 9 (foo.bar) or 8 (operand types) first; both maps must be template lines. */
    ck_assert_msg(strstr(kn_error_message(), "probe.ptxt:109 [ks=3]: error:") ||
                      strstr(kn_error_message(), "probe.ptxt:108: error:"),
                  "%s", kn_error_message());
    ck_assert_ptr_nonnull(strstr(kn_error_message(), "(and "));
}
END_TEST

START_TEST(versions_and_targets) {
    if (!have_nvjitlink()) return;
    char ptx[sizeof good_ptx];
    void *cubin;
    size_t len;
    kn_asm_report r;
    memcpy(ptx, good_ptx, sizeof ptx);
    memcpy(strstr(ptx, "8.0"), "9.9", 3);
    kn_expansion x = expansion_of(ptx, "probe", "sm_90a");
    ck_assert_fails(kn_nvjitlink_assemble(&x, &cubin, &len, &r), KN_E_ASSEMBLE,
                    "Unsupported .version 9.9; current version");
    ck_assert_ptr_nonnull(strstr(kn_error_message(), "probe.ptxt:101 [ks=3]"));
    x = expansion_of(good_ptx, "probe", "sm_80"); /* the text says sm_90a */
    ck_assert_fails(kn_nvjitlink_assemble(&x, &cubin, &len, &r), KN_E_ASSEMBLE, "for sm_80");
    x = expansion_of(good_ptx, "probe", "sm_999");
    ck_assert_fails(kn_nvjitlink_assemble(&x, &cubin, &len, &r), KN_E_ASSEMBLE, "sm_999");
}
END_TEST

START_TEST(spills_are_reported) {
    if (!have_nvjitlink()) return;
    kn_expansion x = expansion_of(spilling_ptx(), "spill", "sm_90a");
    void *cubin;
    size_t len;
    kn_asm_report r;
    ck_assert_ok(kn_nvjitlink_assemble(&x, &cubin, &len, &r));
    ck_assert_uint_eq(r.registers, 64);
    ck_assert_uint_gt(r.spill_stores, 100);
    ck_assert_uint_gt(r.spill_loads, 100);
    ck_assert_uint_gt(r.stack, 100);
    kn_free(cubin);
}
END_TEST

START_TEST(remarks_are_reported) {
    if (!have_nvjitlink()) return;
    kn_expansion x = expansion_of(remarked_ptx(), "wg", "sm_90a");
    void *cubin;
    size_t len;
    kn_asm_report r;
    ck_assert_ok(kn_nvjitlink_assemble(&x, &cubin, &len, &r));
    ck_assert_uint_ge(r.remarks, 1);
    ck_assert_ptr_nonnull(strstr(r.remark, "(C75"));
    kn_free(cubin);
}
END_TEST

static kn_status assemble_one(void *user, int64_t i) {
    (void)user;
    void *cubin;
    size_t len;
    kn_asm_report r;
    char ptx[sizeof good_ptx + 64];
    snprintf(ptx, sizeof ptx, "%s// %lld\n", good_ptx, (long long)i);
    kn_expansion x = {.ptx = ptx,
                      .ptx_len = strlen(ptx),
                      .n_lines = 2000,
                      .lines = origins,
                      .n_files = 1,
                      .files = files,
                      .loop_text = loops};
    snprintf(x.meta.entry, sizeof x.meta.entry, "probe");
    snprintf(x.meta.target, sizeof x.meta.target, "sm_90a");
    KN_TRY(kn_nvjitlink_assemble(&x, &cubin, &len, &r));
    kn_free(cubin);
    return r.smem_static == 1024 ? KN_OK : kn_fail(KN_E_INTERNAL, "smem %u", r.smem_static);
}

START_TEST(many_threads) {
    if (!have_nvjitlink()) return;
    ck_assert_ok(kn_parallel_for(8, 32, assemble_one, NULL));
}
END_TEST

#ifdef KN_FAULT_INJECTION
START_TEST(out_of_memory_everywhere) {
    if (!have_nvjitlink()) return;
    kn_expansion x = expansion_of(good_ptx, "probe", "sm_90a");
    int failed = 0;
    for (uint64_t n = 1; n < 20; n++) {
        void *cubin;
        size_t len;
        kn_asm_report r;
        kn_fault_arm(n);
        kn_status st = kn_nvjitlink_assemble(&x, &cubin, &len, &r);
        kn_fault_arm(0);
        if (st == KN_OK) {
            kn_free(cubin);
            break;
        }
        ck_assert_int_eq(st, KN_E_NOMEM);
        ck_assert_ptr_null(cubin);
        failed++;
    }
    ck_assert_int_ge(failed, 2); /* the cubin and the log */
}
END_TEST
#endif

/* ---- logs alone: no library needed ------------------------------------------------------------------------------- */

START_TEST(log_of_a_wgmma_kernel) {
    static const char log[] =
        "ptxas info    : (C7519) warpgroup.arrive is injected in around line 148 by compiler to allow use of registers "
        "in GMMA in function 'wg'\n"
        "ptxas info    : (C7517) warpgroup.wait is injected in around line 144 by compiler\n"
        "ptxas info    : 0 bytes gmem\nptxas info    : Compiling entry function 'wg' for 'sm_90a'\n"
        "ptxas info    : Function properties for wg\n"
        "ptxas         .     1368 bytes stack frame, 1640 bytes spill stores, 1776 bytes spill loads\n"
        "ptxas info    : Used 90 registers, used 3 barriers, 2048 bytes smem, 540 bytes cmem[0]\n"
        "ptxas info    : Compile time = 16.404 ms\n";
    kn_expansion x = expansion_of(good_ptx, "wg", "sm_90a");
    kn_asm_report r = {0};
    kn_asm_parse_log(log, &x, &r);
    ck_assert_uint_eq(r.remarks, 2);
    ck_assert_ptr_nonnull(strstr(r.remark, "injected in around probe.ptxt:248 by compiler"));
    ck_assert_uint_eq(r.stack, 1368);
    ck_assert_uint_eq(r.spill_stores, 1640);
    ck_assert_uint_eq(r.spill_loads, 1776);
    ck_assert_uint_eq(r.registers, 90);
    ck_assert_uint_eq(r.barriers, 3);
    ck_assert_uint_eq(r.smem_static, 2048);
    kn_asm_report plain = {0};
    kn_asm_parse_log(log, NULL, &plain);
    ck_assert_ptr_nonnull(strstr(plain.remark, "around PTX line 148"));
    kn_asm_report old = {0}; /* releases before 12.4 name no barriers */
    kn_asm_parse_log("ptxas info    : Used 8 registers, 1024 bytes smem", NULL, &old);
    ck_assert_uint_eq(old.registers, 8);
    ck_assert_uint_eq(old.barriers, 0);
    ck_assert_uint_eq(old.smem_static, 1024);
    kn_asm_report none = {0};
    kn_asm_parse_log("", NULL, &none);
    kn_asm_parse_log("(C75x9) Used registers\n99999999999999999999 bytes stack frame", NULL, &none);
    ck_assert_uint_eq(none.remarks, 0);
    ck_assert_uint_eq(none.registers, 0);
    ck_assert_uint_eq(none.stack, UINT32_MAX);
}
END_TEST

START_TEST(errors_are_mapped_whole_and_cut) {
    static const char log[] = "ptxas application ptx input, line 8; error   : Unknown field '.x'\n"
                              "ptxas application ptx input, line 9999; fatal   : Parsing error near '': syntax error\n"
                              "ptxas fatal   : Ptx assembly aborted due to errors\n";
    kn_expansion x = expansion_of(good_ptx, "wg", "sm_90a");
    char out[512];
    ck_assert_int_eq(kn_asm_first_error(log, &x, out, sizeof out), 2);
    ck_assert_str_eq(out, "probe.ptxt:108: error: Unknown field '.x'");
    for (size_t cap = 1; cap < 40; cap++) {
        memset(out, 'z', sizeof out);
        ck_assert_int_eq(kn_asm_first_error(log, &x, out, cap), 2);
        ck_assert_uint_eq(strlen(out), cap - 1);
        ck_assert_int_eq(out[cap], 'z');
    }
    ck_assert_int_eq(kn_asm_first_error(strchr(log, '\n') + 1, &x, out, sizeof out), 1);
    ck_assert_str_eq(out, "PTX line 9999: fatal: Parsing error near '': syntax error");
    ck_assert_int_eq(kn_asm_first_error("something odd\n", NULL, out, sizeof out), 1);
    ck_assert_str_eq(out, "something odd");
    ck_assert_int_eq(kn_asm_first_error("", NULL, out, sizeof out), 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("jit/assemble");
    TCase *t = tcase_create("all");
    tcase_add_test(t, good_kernel_and_report);
    tcase_add_test(t, errors_name_template_lines);
    tcase_add_test(t, versions_and_targets);
    tcase_add_test(t, spills_are_reported);
    tcase_add_test(t, remarks_are_reported);
    tcase_add_test(t, many_threads);
#ifdef KN_FAULT_INJECTION
    tcase_add_test(t, out_of_memory_everywhere);
#endif
    tcase_add_test(t, log_of_a_wgmma_kernel);
    tcase_add_test(t, errors_are_mapped_whole_and_cut);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
