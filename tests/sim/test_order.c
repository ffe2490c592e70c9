/* The ordering checks on ordinary accesses: each rule with a smallest kernel that breaks it and must be reported, and a
 * corrected twin that must pass. */
#include "order_run.h"

static const order_case cases[] = {
    {"race-between-warps",
     "setp.ne.u32 %p0, %r0, 0;\n"
     "shl.b32 %r4, %r0, 2;\nadd.u32 %r4, %r1, %r4;\nst.shared.u32 [%r4], %r0;\n"
     "+bar.sync 0;\n"
     "xor.b32 %r5, %r0, 32;\nshl.b32 %r5, %r5, 2;\nadd.u32 %r5, %r1, %r5;\n"
     "ld.shared.u32 %r6, [%r5];\n",
     "race: reads shared address", 64, 0, 0, "never written"},
    {"write-after-read",
     "shl.b32 %r4, %r0, 2;\nadd.u32 %r4, %r1, %r4;\nst.shared.u32 [%r4], %r0;\nbar.sync 0;\n"
     "xor.b32 %r5, %r0, 32;\nshl.b32 %r5, %r5, 2;\nadd.u32 %r5, %r1, %r5;\nld.shared.u32 %r6, [%r5];\n"
     "+bar.sync 0;\n"
     "st.shared.u32 [%r4], %r6;\n",
     "race: writes shared address", 64, 0, 0, "race: reads shared address"},
    {"halves-of-a-word",
     "setp.ne.u32 %p0, %r3, 0;\n@%p0 bra END;\n"
     "+shl.b32 %r4, %r2, 1;\n"
     "-mov.u32 %r4, 0;\n"
     "add.u32 %r4, %r1, %r4;\ncvt.u16.u32 %h0, %r0;\nst.shared.u16 [%r4], %h0;\nEND:\n",
     "race: writes shared address", 64, 0, 0, NULL},
    {"a-byte-beside-another",
     /* a word is written, then one of its bytes, while another warp reads another byte; then all of it is read */
     "setp.ne.u32 %p0, %r0, 0;\n@!%p0 st.shared.u32 [%r1], %r0;\nbar.sync 0;\n"
     "setp.ne.u32 %p1, %r3, 0;\n@%p1 bra MEET;\nsetp.ne.u32 %p2, %r2, 0;\n@%p2 bra READ;\n"
     "cvt.u16.u32 %h0, %r3;\nst.shared.u8 [%r1+3], %h0;\nbra MEET;\nREAD:\n"
     "+ld.shared.u8 %h1, [%r1+1];\n"
     "-ld.shared.u8 %h1, [%r1+3];\n"
     "MEET:\nbar.sync 0;\nld.shared.u32 %r6, [%r1];\n",
     "race: reads shared address", 64, 0, 0, "race: writes shared address"},
    {"a-word-over-its-bytes",
     "setp.gt.u32 %p0, %r0, 3;\n@%p0 bra NEXT;\nadd.u32 %r4, %r1, %r0;\ncvt.u16.u32 %h0, %r0;\n"
     "st.shared.u8 [%r4], %h0;\nNEXT:\n"
     "+bar.sync 0;\n"
     "setp.ne.u32 %p1, %r0, 32;\n@%p1 bra END;\nst.shared.u32 [%r1], %r0;\nEND:\n",
     "race: writes shared address", 64, 0, 0, NULL},
    {"race-inside-a-warp",
     "shl.b32 %r4, %r0, 2;\nadd.u32 %r4, %r1, %r4;\nst.shared.u32 [%r4], %r0;\n"
     "+bar.warp.sync 0xffffffff;\n"
     "xor.b32 %r5, %r0, 1;\nshl.b32 %r5, %r5, 2;\nadd.u32 %r5, %r1, %r5;\nld.shared.u32 %r6, [%r5];\n",
     "race: reads shared address", 32, 0, 0, NULL},
    {"named-barriers",
     /* warp 0 produces for warp 1 through barrier 1; the broken one uses another barrier */
     "setp.ne.u32 %p0, %r2, 0;\n@%p0 bra CONSUME;\nshl.b32 %r4, %r3, 2;\nadd.u32 %r4, %r1, %r4;\nst.shared.u32 [%r4], "
     "%r0;\n"
     "+bar.arrive 1, 64;\n"
     "-bar.arrive 2, 64;\n-bar.arrive 1, 64;\n"
     "bra END;\nCONSUME:\nbar.sync 1, 64;\nshl.b32 %r4, %r3, 2;\nadd.u32 %r4, %r1, %r4;\n"
     "+ld.shared.u32 %r6, [%r4];\n"
     "-ld.shared.u32 %r6, [%r4+256];\n"
     "END:\n",
     "never written", 64, 0, 0, NULL},
    {"barrier-count",
     "setp.gt.u32 %p0, %r2, 1;\n@%p0 bra END;\nsetp.ne.u32 %p0, %r2, 0;\n@%p0 bra ONE;\nbar.sync 1, 64;\nbra "
     "END;\nONE:\n"
     "+bar.sync 1, 64;\n"
     "-bar.sync 1, 96;\n"
     "END:\n",
     "others wait at it with", 96, 0, 0, NULL},
    {"barrier-missing-warps", "+bar.sync 1, 64;\n-bar.sync 1, 96;\n", "deadlock", 64, 0, 0, "the CTA has 64"},
    {"divergent-aligned",
     "setp.lt.u32 %p0, %r3, 16;\n"
     "-@!%p0 bra SKIP;\n"
     "bar.sync 0;\n"
     "-SKIP:\n-bar.sync 0;\n",
     "aligned instruction", 32, 0, 0, "waits for its warp's other lanes"},
    {"deadlock",
     "setp.ne.u32 %p0, %r2, 0;\n@%p0 bra ONE;\nbar.sync 1, 64;\n"
     "+bar.sync 2, 64;\n+bra END;\n"
     "-bar.sync 3, 64;\n-bra END;\n"
     "ONE:\nbar.sync 1, 64;\nbar.sync 2, 64;\nEND:\n",
     "warp 1 lanes ffffffff at PTX line", 64, 0, 0, NULL},
    {"atomics-order-through-release",
     /* warp 0 writes and raises a flag; warp 1 polls it and reads */
     "setp.ne.u32 %p0, %r0, 0;\nmov.u32 %r4, 0;\n@!%p0 st.shared.u32 [%r1], %r4;\nbar.sync 0;\n"
     "setp.ne.u32 %p0, %r2, 0;\n@%p0 bra READER;\nsetp.ne.u32 %p1, %r3, 0;\n@%p1 bra END;\n"
     "mov.u32 %r4, 7;\nst.shared.u32 [%r1+64], %r4;\n"
     "+st.release.cta.shared.u32 [%r1], %r4;\n"
     "-st.relaxed.cta.shared.u32 [%r1], %r4;\n"
     "bra END;\nREADER:\n"
     "POLL:\nld.acquire.cta.shared.u32 %r5, [%r1];\nsetp.ne.u32 %p2, %r5, 7;\n@%p2 bra POLL;\nld.shared.u32 %r6, "
     "[%r1+64];\nEND:\n",
     "race: reads shared address", 64, 0, 0, "never written"},
    {"global-in-a-launch",
     /* CTA 0 writes and raises a flag; CTA 1 polls it and reads */
     "setp.ne.u32 %p1, %r0, 0;\n@%p1 bra END;\nmov.u32 %r7, %ctaid.x;\nsetp.ne.u32 %p0, %r7, 0;\n@%p0 bra READER;\n"
     "mov.u32 %r4, 7;\nst.global.u32 [%d0+64], %r4;\n"
     "+fence.acq_rel.gpu;\n"
     "atom.relaxed.gpu.global.exch.b32 %r5, [%d0], %r4;\nbra END;\n"
     "READER:\natom.acquire.gpu.global.cas.b32 %r5, [%d0], 7, 7;\nsetp.ne.u32 %p2, %r5, 7;\n@%p2 bra READER;\n"
     "ld.global.u32 %r6, [%d0+64];\nEND:\n",
     "race: reads global address", 32, 0, 2, NULL},
    {"global-needs-gpu-scope",
     "setp.ne.u32 %p1, %r0, 0;\n@%p1 bra END;\nmov.u32 %r7, %ctaid.x;\nsetp.ne.u32 %p0, %r7, 0;\n@%p0 bra READER;\n"
     "mov.u32 %r4, 7;\nst.global.u32 [%d0+64], %r4;\n"
     "+atom.release.gpu.global.exch.b32 %r5, [%d0], %r4;\n"
     "-atom.release.cta.global.exch.b32 %r5, [%d0], %r4;\n"
     "bra END;\n"
     "READER:\natom.acquire.gpu.global.cas.b32 %r5, [%d0], 7, 7;\nsetp.ne.u32 %p2, %r5, 7;\n@%p2 bra READER;\n"
     "ld.global.u32 %r6, [%d0+64];\nEND:\n",
     "race: reads global address", 32, 0, 2, NULL},
    {"global-between-warps",
     "shl.b32 %r4, %r0, 2;\ncvt.u64.u32 %d2, %r4;\nadd.u64 %d2, %d0, %d2;\nst.global.u32 [%d2], %r0;\n"
     "+bar.sync 0;\n"
     "xor.b32 %r4, %r4, 128;\ncvt.u64.u32 %d3, %r4;\nadd.u64 %d3, %d0, %d3;\nld.global.u32 %r6, [%d3];\n",
     "race: reads global address", 64, 0, 0, "race: writes global address"},
    {"two-ctas-write-one-place",
     "mov.u32 %r7, %ctaid.x;\n"
     "+mul.lo.u32 %r4, %r7, 128;\n"
     "-mov.u32 %r4, 0;\n"
     "shl.b32 %r5, %r0, 2;\nadd.u32 %r4, %r4, %r5;\ncvt.u64.u32 %d2, %r4;\nadd.u64 %d2, %d0, %d2;\nst.global.u32 "
     "[%d2], %r7;\n",
     "race: writes global address", 32, 0, 2, NULL},
    {"cp-async",
     "shl.b32 %r4, %r0, 4;\nadd.u32 %r5, %r1, %r4;\ncvt.u64.u32 %d2, %r4;\nadd.u64 %d2, %d1, %d2;\n"
     "cp.async.cg.shared.global [%r5], [%d2], 16;\ncp.async.commit_group;\n"
     "+cp.async.wait_group 0;\n"
     "ld.shared.u32 %r6, [%r5];\n",
     "asynchronous write", 32, 0, 0, NULL},
    {"cp-async-other-threads",
     "shl.b32 %r4, %r0, 4;\nadd.u32 %r5, %r1, %r4;\ncvt.u64.u32 %d2, %r4;\nadd.u64 %d2, %d1, %d2;\n"
     "cp.async.cg.shared.global [%r5], [%d2], 16;\ncp.async.commit_group;\ncp.async.wait_group 0;\n"
     "+bar.sync 0;\n"
     "xor.b32 %r5, %r5, 512;\nld.shared.u32 %r6, [%r5];\n",
     "shared", 64, 0, 0, NULL},
    {"cp-async-over-a-read",
     "shl.b32 %r4, %r0, 4;\nadd.u32 %r5, %r1, %r4;\ncvt.u64.u32 %d2, %r4;\nadd.u64 %d2, %d1, %d2;\n"
     "st.shared.u32 [%r5], %r0;\nbar.sync 0;\nxor.b32 %r6, %r5, 512;\nld.shared.u32 %r7, [%r6];\n"
     "+bar.sync 0;\n"
     "cp.async.cg.shared.global [%r5], [%d2], 16;\ncp.async.commit_group;\n"
     "-bar.sync 0;\n"
     "cp.async.wait_group 0;\n",
     "race: writes shared address", 64, 0, 0, "asynchronous write"},
};

START_TEST(rule) {
    order_check(&cases[_i]);
}
END_TEST

int main(void) {
    Suite *s = suite_create("sim/order");
    TCase *t = tcase_create("order");
    tcase_add_loop_test(t, rule, 0, (int)(sizeof cases / sizeof cases[0]));
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
