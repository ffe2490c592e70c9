/* Whole kernels on the simulator: grids, branches, shared memory, lanes that work together, and the faults that must be
 * reported. Expected values are written out from the PTX manual's definitions of the instructions. */
#include "support/sim_run.h"
#include "support/suite.h"

#include <stdio.h>
#include <string.h>

#define THREAD                                                                                                         \
    ".reg .b16 %h<8>; .reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .pred %p<8>; .reg .f32 %f<8>;\n"                       \
    "mov.u32 %r0, %tid.x;\n"

/* ---- what must work ---------------------------------------------------------------------------------------------- */

START_TEST(grid_and_guard) {
    enum { N = 1000 };
    static uint32_t in[N], out[N];
    for (uint32_t k = 0; k < N; k++) in[k] = k * 3;
    for (int threads = 1; threads <= 2; threads++) {
        memset(out, 0, sizeof out);
        kn_simtest t = {
            .ptx =
                THREAD "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r0, %r1, %r2, %r0;\n"
                       "setp.ge.u32 %p0, %r0, 1000; @%p0 bra DONE;\n"
                       "ld.param.u64 %rd0, [in]; ld.param.u64 %rd1, [out];\n"
                       "mad.wide.u32 %rd2, %r0, 4, %rd0; mad.wide.u32 %rd3, %r0, 4, %rd1;\n"
                       "ld.global.nc.L1::no_allocate.b32 %r3, [%rd2]; add.u32 %r3, %r3, 1; st.global.b32 [%rd3], %r3;\n"
                       "DONE: ret;",
            .grid = 8,
            .block = 128,
            .threads = threads,
            .buffer = {{"in", in, sizeof in, false, false}, {"out", out, sizeof out, true, true}}};
        ck_assert_ok(kn_simtest_run(&t));
        for (uint32_t k = 0; k < N; k++) ck_assert_uint_eq(out[k], k * 3 + 1);
        ck_assert_uint_eq(t.stats.bytes_loaded, 8 * 128 * 16 - 24 * 16 + N * 4);
    }
}
END_TEST

/* Every lane loops tid times; behind the loop the warp is together again. */
static const char *const loop_kernel =
    THREAD "ld.param.u64 %rd1, [out]; mov.u32 %r1, 0; mov.u32 %r2, 0;\n"
           "LOOP: setp.ge.u32 %p0, %r1, %r0; @%p0 bra END; add.u32 %r2, %r2, %r1; add.u32 %r1, %r1, 1; bra LOOP;\n"
           "END: shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;\n"
           "mad.wide.u32 %rd2, %r0, 4, %rd1; st.global.u32 [%rd2], %r3; bar.sync 0; ret;";

START_TEST(divergent_loop) {
    for (uint64_t seed = 0; seed < 12; seed++) {
        uint32_t out[64] = {0};
        kn_simtest t = {
            .ptx = loop_kernel, .block = 64, .seed = seed, .buffer = {{"out", out, sizeof out, true, true}}};
        ck_assert_ok(kn_simtest_run(&t));
        for (uint32_t k = 0; k < 64; k++) ck_assert_uint_eq(out[k], (k ^ 1) * ((k ^ 1) - 1) / 2);
    }
}
END_TEST

/* Lanes of one warp wait for each other through shared memory: the waiting ones must not starve the others. */
START_TEST(lanes_make_progress) {
    uint32_t out[32] = {0};
    kn_simtest t = {.ptx =
                        ".shared .align 4 .b32 flag;\n" THREAD
                        "ld.param.u64 %rd1, [out]; mov.u32 %r5, flag; setp.eq.u32 %p0, %r0, 31;\n"
                        "setp.ne.u32 %p1, %r0, 0; @%p1 bra MEET; mov.u32 %r6, 0; st.shared.b32 [%r5], %r6;\n"
                        "MEET: bar.warp.sync -1; @%p0 bra SET;\n"
                        "SPIN: ld.acquire.cta.shared.b32 %r1, [%r5]; setp.eq.u32 %p2, %r1, 0; @%p2 bra SPIN; bra END;\n"
                        "SET: mov.u32 %r1, 7; st.release.cta.shared.b32 [%r5], %r1;\n"
                        "END: mad.wide.u32 %rd2, %r0, 4, %rd1; st.global.u32 [%rd2], %r1; ret;",
                    .buffer = {{"out", out, sizeof out, true, true}}};
    ck_assert_ok(kn_simtest_run(&t));
    for (int k = 0; k < 32; k++) ck_assert_uint_eq(out[k], 7);
}
END_TEST

START_TEST(shared_memory_and_barrier) {
    static uint32_t out[256];
    for (uint64_t seed = 0; seed < 12; seed++) {
        memset(out, 0, sizeof out);
        kn_simtest t = {.ptx = ".version 8.0\n.target sm_80\n.address_size 64\n.extern .shared .align 16 .b8 dyn[];\n"
                               ".shared .align 4 .b8 stat[12];\n"
                               ".visible .entry k(.param .u64 out) .reqntid 256, 1, 1 {\n" THREAD
                               "ld.param.u64 %rd1, [out]; mov.u32 %r1, dyn; mad.lo.u32 %r2, %r0, 4, %r1;\n"
                               "st.shared.u32 [%r2], %r0; barrier.sync.aligned 3, 256;\n"
                               "sub.u32 %r3, 255, %r0; mad.lo.u32 %r3, %r3, 4, %r1; ld.shared.u32 %r4, [%r3];\n"
                               "mad.wide.u32 %rd2, %r0, 4, %rd1; st.global.u32 [%rd2], %r4; ret; }",
                        .block = 256,
                        .smem = 1024,
                        .seed = seed,
                        .buffer = {{"out", out, sizeof out, true, true}}};
        ck_assert_ok(kn_simtest_run(&t));
        for (uint32_t k = 0; k < 256; k++) ck_assert_uint_eq(out[k], 255 - k);
    }
}
END_TEST

START_TEST(barriers_reduce_and_arrive) {
    uint32_t out[128] = {0};
    /* Threads with an odd number vote; warp 0 only arrives at barrier 1, the others wait there. */
    kn_simtest t = {
        .ptx = THREAD
        "ld.param.u64 %rd1, [out]; and.b32 %r1, %r0, 1; setp.ne.u32 %p0, %r1, 0;\n"
        "bar.red.popc.u32 %r2, 0, %p0; bar.red.and.pred %p1, 0, 128, %p0; bar.red.or.pred %p2, 0, %p0;\n"
        "selp.u32 %r3, 1000, 0, %p1; selp.u32 %r4, 100, 0, %p2; add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r4;\n"
        "setp.lt.u32 %p3, %r0, 32; @%p3 bra A; bar.sync 1, 128; bra B;\nA: bar.arrive 1, 128;\n"
        "B: mad.wide.u32 %rd2, %r0, 4, %rd1; st.global.u32 [%rd2], %r2; ret;",
        .block = 128,
        .buffer = {{"out", out, sizeof out, true, true}}};
    ck_assert_ok(kn_simtest_run(&t));
    for (int k = 0; k < 128; k++) ck_assert_uint_eq(out[k], 164);
}
END_TEST

START_TEST(lanes_together) {
    uint32_t out[32 * 12] = {0};
    kn_simtest t = {
        .ptx = THREAD
        "ld.param.u64 %rd1, [out]; mad.wide.u32 %rd1, %r0, 48, %rd1; and.b32 %r20, %r0, 3;\n"
        "shfl.sync.up.b32 %r1|%p1, %r0, 1, 0, -1; @!%p1 mov.u32 %r1, 99;\n"
        "shfl.sync.down.b32 %r2, %r0, 3, 0x1807, -1;\n" /* segments of 8: mask 0x18 */
        "shfl.sync.idx.b32 %r3, %r0, 5, 31, -1;\n"
        "setp.lt.u32 %p2, %r0, 5; vote.sync.ballot.b32 %r4, %p2, -1;\n"
        "vote.sync.any.pred %p3, %p2, -1; vote.sync.all.pred %p4, %p2, -1; selp.u32 %r5, 1, 0, %p3; @%p4 add.u32 %r5, "
        "%r5, 2;\n"
        "match.any.sync.b32 %r6, %r20, -1; match.all.sync.b32 %r7|%p5, %r20, -1; selp.u32 %r7, 1, %r7, %p5;\n"
        "redux.sync.add.u32 %r8, %r0, -1; redux.sync.max.s32 %r9, %r0, -1; redux.sync.xor.b32 %r10, %r0, -1;\n"
        "elect.sync %r11|%p6, -1; @%p6 add.u32 %r11, %r11, 100; activemask.b32 %r12;\n"
        "st.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4}; st.global.v4.u32 [%rd1+16], {%r5, %r6, %r7, %r8};\n"
        "st.global.v4.u32 [%rd1+32], {%r9, %r10, %r11, %r12}; ret;",
        .buffer = {{"out", out, sizeof out, true, true}}};
    ck_assert_ok(kn_simtest_run(&t));
    for (uint32_t l = 0; l < 32; l++) {
        const uint32_t *o = out + 12 * l;
        ck_assert_uint_eq(o[0], l ? l - 1 : 99);
        ck_assert_uint_eq(o[1], l % 8 + 3 < 8 ? l + 3 : l);
        ck_assert_uint_eq(o[2], 5);
        ck_assert_uint_eq(o[3], 0x1f);
        ck_assert_uint_eq(o[4], 1);
        ck_assert_uint_eq(o[5], 0x11111111u << l % 4);
        ck_assert_uint_eq(o[6], 0);
        ck_assert_uint_eq(o[7], 496);
        ck_assert_uint_eq(o[8], 31);
        ck_assert_uint_eq(o[9], 0);
        ck_assert_uint_eq(o[10], l == 0 ? 100 : 0);
        ck_assert_uint_eq(o[11], 0xffffffff);
    }
}
END_TEST

START_TEST(loads_and_stores) {
    uint8_t in[64], out[64] = {0};
    for (int k = 0; k < 64; k++) in[k] = (uint8_t)(200 + k);
    kn_simtest t = {.ptx = THREAD "ld.param.u64 %rd0, [in]; ld.param.u64 %rd1, [out];\n"
                                  "ld.global.v4.u8 {%r1, %r2, %r3, %r4}, [%rd0]; ld.global.s8 %r5, [%rd0+1]; "
                                  "ld.global.v2.b64 {%rd3, %rd4}, [%rd0+16];\n"
                                  "ld.global.s16 %rd5, [%rd0+2]; ld.global.u16 %h1, [%rd0+4];\n"
                                  "st.global.v4.b8 [%rd1], {%r4, %r3, %r2, %r1}; st.global.b32 [%rd1+4], %r5; "
                                  "st.global.v2.b64 [%rd1+16], {%rd4, %rd3};\n"
                                  "st.global.b64 [%rd1+8], %rd5; st.global.b16 [%rd1+32], %h1; ret;",
                    .block = 1,
                    .buffer = {{"in", in, 64, false, false}, {"out", out, 64, true, true}}};
    ck_assert_ok(kn_simtest_run(&t));
    for (int k = 0; k < 4; k++) ck_assert_uint_eq(out[k], in[3 - k]);
    int32_t s8;
    int64_t s16;
    memcpy(&s8, out + 4, 4);
    memcpy(&s16, out + 8, 8);
    ck_assert_int_eq(s8, (int8_t)in[1]);
    ck_assert_int_eq(s16, (int16_t)(in[2] | in[3] << 8));
    ck_assert_mem_eq(out + 16, in + 24, 8);
    ck_assert_mem_eq(out + 24, in + 16, 8);
    ck_assert_mem_eq(out + 32, in + 4, 2);
}
END_TEST

/* Generic addresses of shared, local and parameter memory; module variables. */
START_TEST(spaces) {
    uint32_t out[32] = {0};
    kn_simtest t = {
        .ptx = ".version 8.0\n.target sm_80\n.address_size 64\n"
               ".const .align 4 .b32 table[4] = {10, 20, 30, 40};\n.global .align 4 .f32 g = 0f40000000;\n"
               ".entry k(.param .u64 out, .param .align 8 .b8 blob[16]) {\n.local .align 8 .b8 loc[8];\n"
               ".shared .align 4 .b8 sh[128];\n" THREAD
               "ld.param.u64 %rd1, [out]; mov.u32 %r1, sh; cvt.u64.u32 %rd2, %r1; cvta.shared.u64 %rd2, %rd2;\n"
               "mad.wide.u32 %rd3, %r0, 4, %rd2; st.b32 [%rd3], %r0; bar.warp.sync -1; ld.shared.b32 %r2, [%r1]; "
               "ld.b32 %r3, [%rd3];\n"
               "mov.u64 %rd4, loc; cvta.local.u64 %rd5, %rd4; st.local.b32 [loc+4], %r0; ld.b32 %r4, [%rd5+4];\n"
               "mov.u64 %rd6, blob; cvta.param.u64 %rd6, %rd6; ld.b32 %r5, [%rd6+8];\n"
               "mov.u64 %rd7, table; ld.const.b32 %r6, [%rd7+8]; ld.const.b32 %r7, [table+12]; ld.global.f32 %f1, [g]; "
               "cvt.rzi.s32.f32 %r8, %f1;\n"
               "isspacep.shared %p1, %rd2; selp.u32 %r9, 1, 0, %p1; isspacep.global %p1, %rd2; @%p1 mov.u32 %r9, 5;\n"
               "add.u32 %r3, %r3, %r4; add.u32 %r3, %r3, %r5; add.u32 %r3, %r3, %r6; add.u32 %r3, %r3, %r7; add.u32 "
               "%r3, %r3, %r8; add.u32 %r3, %r3, %r9;\n"
               "mad.wide.u32 %rd2, %r0, 4, %rd1; st.global.u32 [%rd2], %r3; ret; }",
        .buffer = {{"out", out, sizeof out, true, true},
                   {"blob", (void *)0x55, 0, false, false},
                   {"n", (void *)1000, 0, false, false}}};
    ck_assert_ok(kn_simtest_run(&t));
    for (uint32_t l = 0; l < 32; l++) ck_assert_uint_eq(out[l], 2 * l + 1000 + 30 + 40 + 2 + 1);
}
END_TEST

START_TEST(atomics) {
    uint32_t cell[8] = {0, 100, 50, 0xffffffff, 0, 3, 0, 0};
    float sum[4] = {0};
    kn_simtest t = {.ptx = THREAD "ld.param.u64 %rd0, [cell]; ld.param.u64 %rd1, [sum]; mov.u32 %r9, 1;\n"
                                  "atom.global.add.u32 %r1, [%rd0], 1; red.global.max.u32 [%rd0+4], %r0; "
                                  "atom.global.min.u32 %r2, [%rd0+8], %r0;\n"
                                  "red.global.and.b32 [%rd0+12], %r0; red.global.or.b32 [%rd0+16], %r0;\n"
                                  "atom.global.cas.b32 %r3, [%rd0+20], 3, 77; atom.global.inc.u32 %r4, [%rd0+24], 20; "
                                  "atom.global.exch.b32 %r5, [%rd0+28], 9;\n"
                                  "mov.f32 %f1, 0f3f800000; red.global.add.f32 [%rd1], %f1; mov.f32 %f2, 0f40000000; "
                                  "red.global.add.v2.f32 [%rd1+8], {%f1, %f2}; ret;",
                    .grid = 2,
                    .block = 64,
                    .threads = 2,
                    .buffer = {{"cell", cell, sizeof cell, true, false}, {"sum", sum, sizeof sum, true, false}}};
    ck_assert_ok(kn_simtest_run(&t));
    ck_assert_uint_eq(cell[0], 128);
    ck_assert_uint_eq(cell[1], 100);
    ck_assert_uint_eq(cell[2], 0);
    ck_assert_uint_eq(cell[3], 0);
    ck_assert_uint_eq(cell[4], 63);
    ck_assert_uint_eq(cell[5], 77);
    ck_assert_uint_eq(cell[6], 128 % 21);
    ck_assert_uint_eq(cell[7], 9);
    ck_assert(sum[0] == 128 && sum[2] == 128 && sum[3] == 256);
}
END_TEST

/* CTA n waits until CTA n - 1, or (reversed) n + 1, has passed the turn on: only possible if they are interleaved. */
START_TEST(turnstile) {
    for (uint64_t seed = 0; seed < 12; seed++) {
        uint32_t turn[1] = {0}, out[12] = {0};
        kn_simtest t = {
            .ptx = THREAD
            "ld.param.u64 %rd0, [turn]; ld.param.u64 %rd1, [out]; mov.u32 %r1, %ctaid.x; sub.u32 %r1, 11, %r1;\n"
            "setp.ne.u32 %p0, %r0, 0; @%p0 bra END;\n"
            "SPIN: ld.acquire.gpu.global.u32 %r2, [%rd0]; setp.ne.u32 %p1, %r2, %r1; @%p1 bra SPIN;\n"
            "mad.wide.u32 %rd2, %r1, 4, %rd1; add.u32 %r3, %r1, 1; st.global.u32 [%rd2], %r3;\n"
            "st.release.gpu.global.u32 [%rd0], %r3;\nEND: ret;",
            .grid = 12,
            .seed = seed,
            .threads = 2,
            .budget = 10000000,
            .buffer = {{"turn", turn, 4, true, false}, {"out", out, sizeof out, true, true}}};
        ck_assert_ok(kn_simtest_run(&t));
        for (uint32_t k = 0; k < 12; k++) ck_assert_uint_eq(out[k], k + 1);
        ck_assert_uint_eq(turn[0], 12);
    }
}
END_TEST

START_TEST(one_seed_is_one_run) {
    for (uint64_t seed = 0; seed < 12; seed++) {
        uint32_t first[64];
        uint64_t executed = 0;
        for (int again = 0; again < 2; again++) {
            uint32_t out[64] = {0};
            /* The order of the atomics decides who gets which number. */
            kn_simtest t = {
                .ptx = THREAD "ld.param.u64 %rd0, [out]; ld.param.u64 %rd1, [count]; mov.u32 %r1, %ctaid.x;\n"
                              "mad.lo.u32 %r0, %r1, 32, %r0; atom.global.add.u32 %r2, [%rd1], 1;\n"
                              "mad.wide.u32 %rd2, %r0, 4, %rd0; st.global.u32 [%rd2], %r2; ret;",
                .grid = 2,
                .seed = seed,
                .threads = 1 + again,
                .buffer = {{"out", out, sizeof out, true, true}, {"count", &(uint32_t){0}, 4, true, false}}};
            ck_assert_ok(kn_simtest_run(&t));
            if (again) {
                ck_assert_mem_eq(out, first, sizeof out);
                ck_assert_uint_eq(t.stats.warp_instructions, executed);
            }
            memcpy(first, out, sizeof out);
            executed = t.stats.warp_instructions;
        }
    }
}
END_TEST

/* A later launch of the program may read what an earlier one wrote; a launch without that memory may not. */
START_TEST(memory_of_a_program) {
    uint32_t work[32], out[32];
    kn_sim_memory *memory = NULL;
    ck_assert_ok(kn_sim_memory_create(&memory));
    kn_simtest first = {.ptx = THREAD
                        "ld.param.u64 %rd0, [work]; mad.wide.u32 %rd0, %r0, 4, %rd0; st.global.u32 [%rd0], %r0; ret;",
                        .memory = memory,
                        .buffer = {{"work", work, sizeof work, true, true}}};
    kn_simtest second = {.ptx = THREAD
                         "ld.param.u64 %rd0, [work]; ld.param.u64 %rd1, [out]; mad.wide.u32 %rd0, %r0, 4, %rd0;\n"
                         "mad.wide.u32 %rd1, %r0, 4, %rd1; ld.global.u32 %r1, [%rd0]; st.global.u32 [%rd1], %r1; ret;",
                         .memory = memory,
                         .buffer = {{"work", work, sizeof work, false, true}, {"out", out, sizeof out, true, true}}};
    ck_assert_ok(kn_simtest_run(&first));
    ck_assert_ok(kn_simtest_run(&second));
    for (uint32_t k = 0; k < 32; k++) ck_assert_uint_eq(out[k], k);
    second.memory = NULL;
    ck_assert_fails(kn_simtest_run(&second), KN_E_SIM, "uninitialised memory");
    kn_sim_memory_free(memory);
}
END_TEST

/* ---- cp.async and matrices --------------------------------------------------------------------------------------- */

#define COPY_BEGIN                                                                                                     \
    ".shared .align 16 .b8 sh[1024];\n" THREAD                                                                         \
    "ld.param.u64 %rd0, [in]; ld.param.u64 %rd1, [out]; mov.u32 %r1, sh; mad.lo.u32 %r2, %r0, 16, %r1;\n"              \
    "mad.wide.u32 %rd2, %r0, 16, %rd0; mad.wide.u32 %rd3, %r0, 16, %rd1;\n"
#define COPY_END "ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r2]; st.global.v4.u32 [%rd3], {%r4, %r5, %r6, %r7}; ret;"

START_TEST(async_copies) {
    uint32_t words[384], *in = words, *out = words + 256; /* what lies behind `in` is no buffer */
    enum { BYTES = 128 * sizeof in[0] };
    for (uint32_t k = 0; k < 128; k++) in[k] = k + 1;
    static const struct {
        const char *ptx, *fault;
    } cases[] = {
        {COPY_BEGIN
         "cp.async.cg.shared.global [%r2], [%rd2], 16, 8; cp.async.commit_group; cp.async.wait_group 0;\n" COPY_END,
         NULL},
        {COPY_BEGIN
         "cp.async.ca.shared.global.L2::128B [%r2], [%rd2], 4; cp.async.ca.shared.global [%r2+4], [%rd2+4], 4;\n"
         "cp.async.ca.shared.global [%r2+8], [%rd2], 8, 0; cp.async.wait_all;\n" COPY_END,
         NULL},
        {COPY_BEGIN "cp.async.cg.shared.global [%r2], [%rd2], 16, 8; cp.async.commit_group; cp.async.commit_group; "
                    "cp.async.wait_group 1;\n" COPY_END,
         NULL},
        {COPY_BEGIN
         "cp.async.cg.shared.global [%r2], [%rd2], 16; cp.async.commit_group; cp.async.wait_group 1;\n" COPY_END,
         "has not been waited for"},
        {COPY_BEGIN "cp.async.cg.shared.global [%r2], [%rd2], 16; cp.async.wait_group 0;\n" COPY_END,
         "has not been waited for"},
        {COPY_BEGIN "cp.async.cg.shared.global [%r2], [%rd2+16], 16; cp.async.wait_all;\n" COPY_END,
         "the nearest is in"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        for (uint64_t seed = 0; seed < 12; seed++) {
            memset(out, 0, BYTES);
            kn_simtest t = {.ptx = cases[k].ptx,
                            .seed = seed,
                            .buffer = {{"in", in, BYTES, false, false}, {"out", out, BYTES, true, true}}};
            if (cases[k].fault) {
                ck_assert_fails(kn_simtest_run(&t), KN_E_SIM, cases[k].fault);
                continue;
            }
            ck_assert_ok(kn_simtest_run(&t));
            for (uint32_t j = 0; j < 128; j++) ck_assert_uint_eq(out[j], j % 4 < 2 ? j + 1 : 0);
        }
    }
}
END_TEST

/* Rows of four 8x8 matrices hold 64 m + 8 r + c; plain and transposed fragments, and back through stmatrix. */
START_TEST(matrix_fragments) {
    uint16_t in[256];
    uint32_t out[32 * 8], back[128];
    for (uint32_t k = 0; k < 256; k++) in[k] = (uint16_t)k;
    kn_simtest t = {
        .ptx = ".shared .align 16 .b8 sh[512];\n.shared .align 16 .b8 to[512];\n" THREAD
               "ld.param.u64 %rd0, [in]; ld.param.u64 %rd1, [out]; ld.param.u64 %rd5, [back]; mov.u32 %r1, sh; "
               "mad.lo.u32 %r2, %r0, 16, %r1;\n"
               "mad.wide.u32 %rd2, %r0, 16, %rd0; mad.wide.u32 %rd3, %r0, 32, %rd1; mad.wide.u32 %rd4, %r0, 16, %rd5;\n"
               "ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd2]; st.shared.v4.b32 [%r2], {%r4, %r5, %r6, %r7}; "
               "bar.warp.sync -1;\n"
               "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r2];\n"
               "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r14, %r15, %r16, %r17}, [%r2];\n"
               "mov.u32 %r3, to; mad.lo.u32 %r3, %r0, 16, %r3; stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%r3], "
               "{%r14, %r15, %r16, %r17};\n"
               "bar.warp.sync -1; ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r3]; st.global.v4.b32 [%rd4], {%r4, %r5, "
               "%r6, %r7};\n"
               "st.global.v4.b32 [%rd3], {%r10, %r11, %r12, %r13}; st.global.v4.b32 [%rd3+16], {%r14, %r15, %r16, "
               "%r17}; ret;",
        .buffer = {{"in", in, sizeof in, false, false},
                   {"out", out, sizeof out, true, true},
                   {"back", back, sizeof back, true, true}}};
    ck_assert_ok(kn_simtest_run(&t));
    for (uint32_t l = 0; l < 32; l++) {
        for (uint32_t m = 0; m < 4; m++) {
            uint32_t row = 64 * m + 8 * (l / 4) + 2 * (l % 4), column = 64 * m + 16 * (l % 4) + l / 4;
            ck_assert_uint_eq(out[8 * l + m], row | (row + 1) << 16);
            ck_assert_uint_eq(out[8 * l + 4 + m], column | (column + 8) << 16);
        }
    }
    ck_assert_mem_eq(back, in, sizeof in);
}
END_TEST

/* D = A B + C with small integers: A[r][k] = r + k, B[k][n] = k - n, C = 1. */
START_TEST(tensor_core) {
    float out[128];
    kn_simtest t = {
        .ptx = THREAD
        ".reg .b32 %a<4>, %b<2>; .reg .f32 %c<4>, %d<4>;\n"
        "ld.param.u64 %rd0, [out]; shr.u32 %r1, %r0, 2; and.b32 %r2, %r0, 3; shl.b32 %r2, %r2, 1;\n" /* row, column */
        /* a0: (row, k) (row, k + 1); a1: row + 8; a2: k + 8; a3: both */
        "add.u32 %r3, %r1, %r2; cvt.rn.f32.u32 %f0, %r3; add.rn.f32 %f1, %f0, 0f3f800000; cvt.rn.bf16x2.f32 %a0, %f1, "
        "%f0;\n"
        "add.rn.f32 %f0, %f0, 0f41000000; add.rn.f32 %f1, %f0, 0f3f800000; cvt.rn.bf16x2.f32 %a1, %f1, %f0; mov.b32 "
        "%a2, %a1;\n"
        "add.rn.f32 %f0, %f0, 0f41000000; add.rn.f32 %f1, %f0, 0f3f800000; cvt.rn.bf16x2.f32 %a3, %f1, %f0;\n"
        /* b0: (k, n = row) (k + 1, n); b1: k + 8 */
        "sub.s32 %r4, %r2, %r1; cvt.rn.f32.s32 %f0, %r4; add.rn.f32 %f1, %f0, 0f3f800000; cvt.rn.bf16x2.f32 %b0, %f1, "
        "%f0;\n"
        "add.rn.f32 %f0, %f0, 0f41000000; add.rn.f32 %f1, %f0, 0f3f800000; cvt.rn.bf16x2.f32 %b1, %f1, %f0;\n"
        "mov.f32 %c0, 0f3f800000;\n"
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%d0, %d1, %d2, %d3}, {%a0, %a1, %a2, %a3}, {%b0, %b1}, "
        "{%c0, %c0, %c0, %c0};\n"
        "mad.lo.u32 %r5, %r1, 8, %r2; mad.wide.u32 %rd1, %r5, 4, %rd0; st.global.v2.f32 [%rd1], {%d0, %d1}; "
        "st.global.v2.f32 [%rd1+256], {%d2, %d3}; ret;",
        .buffer = {{"out", out, sizeof out, true, true}}};
    ck_assert_ok(kn_simtest_run(&t));
    for (int r = 0; r < 16; r++) {
        for (int n = 0; n < 8; n++) {
            int sum = 1;
            for (int k = 0; k < 16; k++) sum += (r + k) * (k - n);
            ck_assert_msg(out[8 * r + n] == (float)sum, "row %d column %d: %g, wanted %d", r, n, (double)out[8 * r + n],
                          sum);
        }
    }
    ck_assert_uint_eq(t.stats.mma_flops, 2 * 16 * 8 * 16);
}
END_TEST

/* ---- what must be reported
 * -------------------------------------------------------------------------------------------- */

typedef struct fault_case {
    const char *ptx, *part;
    uint32_t block;
} fault_case;

static const fault_case faults[] = {
    {"ld.param.u64 %rd0, [out]; mad.wide.u32 %rd0, %r0, 4, %rd0; st.global.u32 [%rd0+4], %r0; ret;",
     "lane 31: st.global.u32: a write of 4 bytes", 32},
    {"ld.param.u64 %rd0, [out]; mad.wide.u32 %rd0, %r0, 4, %rd0; st.global.u32 [%rd0+4], %r0; ret;",
     "the nearest is out (128 bytes), which ends 0 bytes before", 32},
    {"ld.param.u64 %rd0, [in]; st.global.u32 [%rd0], %r0; ret;", "it is byte 0 of in, which is read-only", 1},
    {"ld.param.u64 %rd0, [out]; ld.global.u32 %r1, [%rd0]; ret;", "a read of uninitialised memory", 1},
    {"ld.param.u64 %rd0, [in]; ld.global.v2.u32 {%r1, %r2}, [%rd0+4]; ret;", "not aligned to 8 bytes", 1},
    {"mov.u32 %r1, sh; ld.shared.u32 %r2, [%r1]; ret;", "is read but was never written", 1},
    {"mov.u32 %r1, sh; st.shared.u32 [%r1+64], %r0; ret;", "out of bounds: the CTA has 0x400..0x440 (64 bytes)", 1},
    {"mov.u32 %r1, sh; st.shared.u32 [%r1+2], %r0; ret;", "shared address 0x402 is not aligned to 4 bytes", 1},
    {"mov.u32 %r1, 64; st.shared.u32 [%r1], %r0; ret;", "out of bounds", 1},
    {"add.u32 %r1, %r2, 1; ret;", "operand 2: a register is read that was never written", 1},
    {"setp.eq.u32 %p1, %r0, 5; @%p1 mov.u32 %r1, 1; add.u32 %r2, %r1, 1; ret;",
     "lane 0: add.u32: operand 2: a register", 32},
    {"@%p1 bra END; END: ret;", "the guard is a predicate that was never written", 1},
    {"selp.u32 %r1, 1, 2, %p1; ret;", "operand 4: a predicate is read that was never written", 1},
    {"trap;", "stops itself with trap", 1},
    {"LOOP: bra LOOP;", "budget of 1000000 warp instructions", 1},
    {"setp.eq.u32 %p1, %r0, 5; @%p1 bar.sync 0; ret;", "is guarded so that lanes 00000020 execute it", 32},
    {"setp.eq.u32 %p1, %r0, 5; @%p1 bra A; bar.sync 0; bra B; A: bar.sync 0; B: bar.sync 1; ret;",
     "an aligned instruction is executed by lanes", 32},
    {"bar.sync 0, 48; ret;", "is no positive multiple of 32", 64},
    {"bar.sync 16; ret;", "barrier 16 does not exist", 32},
    {"bar.sync 0, 128; ret;", "waits for 128 threads, the CTA has 64", 64},
    {"setp.lt.u32 %p1, %r0, 32; @%p1 bra A; bar.sync 0, 64; ret; A: bar.sync 0; ret;", "is used with", 64},
    {"setp.lt.u32 %p1, %r0, 32; @%p1 bra A; bar.sync 0; ret; A: bar.sync 1, 64; ret;", "deadlock: every warp", 64},
    {"setp.lt.u32 %p1, %r0, 32; @%p1 bra A; bar.sync 0, 64; ret; A: ret;", "warp 1 lanes ffffffff at PTX line", 64},
    {"setp.lt.u32 %p1, %r0, 16; @%p1 bra A; shfl.sync.idx.b32 %r1, %r0, 16, 31, -1; A: ret;", NULL, 32},
    {"setp.lt.u32 %p1, %r0, 16; @%p1 shfl.sync.idx.b32 %r1, %r0, 0, 31, -1; ret;",
     "its guard or its own mask keeps it out", 32},
    {"shfl.sync.idx.b32 %r1, %r0, 0, 31, 0xffff; ret;", "the lane is not in its own member mask", 32},
    {"setp.lt.u32 %p1, %r0, 16; @%p1 shfl.sync.idx.b32 %r1, %r0, 20, 31, 0xffff; ret;",
     "reads lane 20, which takes no part", 32},
    {"mov.u64 %rd1, 4096; ld.global.u32 %r1, [%rd1]; ret;", "further on", 1},
    {"ld.param.u64 %rd0, [in]; cvta.to.shared.u64 %rd1, %rd0; ret;", "does not lie in that space", 1},
};

START_TEST(faults_are_reported) {
    const fault_case *f = &faults[_i];
    static uint32_t memory[256]; /* buffers with room between them */
    uint32_t *in = memory + 64, *out = memory + 160;
    char ptx[2048];
    snprintf(ptx, sizeof ptx, "%s%s", ".shared .align 16 .b8 sh[64];\n" THREAD, f->ptx);
    kn_simtest t = {
        .ptx = ptx, .block = f->block, .buffer = {{"in", in, 128, false, false}, {"out", out, 128, true, true}}};
    if (!f->part)
        ck_assert_ok(kn_simtest_run(&t));
    else
        ck_assert_fails(kn_simtest_run(&t), KN_E_SIM, f->part);
}
END_TEST

/* A view of 4 rows of 6 elements with row stride 8, and a view over every second element: the gaps are out of bounds.
 */
START_TEST(strided_views) {
    static uint32_t data[64];
    for (int which = 0; which < 2; which++) {
        for (uint32_t k = 0; k < 34; k++) {
            uint64_t at = (uint64_t)(uintptr_t)&data[k], params[1] = {at};
            static const char ptx[] =
                ".version 8.0\n.target sm_80\n.address_size 64\n.entry k(.param .u64 at) {\n"
                ".reg .b32 %r<4>; .reg .b64 %rd<4>;\nld.param.u64 %rd0, [at]; ld.global.u32 %r0, [%rd0]; ret; }";
            kn_sim_extent x = {"view", data, 4, 2, {4, 6}, {8, 1}, false, false};
            if (which) x = (kn_sim_extent){"view", data, 4, 3, {2, 1, 4}, {16, 99, 2}, false, false};
            kn_sim_launch launch = {.grid = {1, 1, 1},
                                    .block = {1, 1, 1},
                                    .cluster = {1, 1, 1},
                                    .params = params,
                                    .params_len = 8,
                                    .extents = &x,
                                    .n_extents = 1,
                                    .budget = 1000};
            kn_sim_module *m = NULL;
            bool inside = which ? k < 24 && k % 16 < 8 && k % 2 == 0 : k < 32 && k % 8 < 6;
            ck_assert_ok(kn_sim_parse(ptx, strlen(ptx), NULL, NULL, &m));
            kn_status st = kn_sim_run(m, "k", &launch, NULL);
            ck_assert_msg((st == KN_OK) == inside, "element %u: %s", k, kn_error_message());
            if (!inside && k == 6 && !which)
                ck_assert_ptr_nonnull(strstr(kn_error_message(), "in a gap of the strided view view, 24 bytes"));
            kn_sim_free(m);
        }
    }
}
END_TEST

START_TEST(launches_are_checked) {
    static const char ptx[] =
        ".version 8.0\n.target sm_90a\n.address_size 64\n.entry k(.param .u64 at) .reqntid 64 .reqnctapercluster 2 {\n"
        ".shared .b8 s[1000];\nret; }";
    kn_sim_module *m = NULL;
    ck_assert_ok(kn_sim_parse(ptx, strlen(ptx), NULL, NULL, &m));
    uint64_t params[1] = {0};
    kn_sim_launch good = {
        .grid = {4, 1, 1}, .block = {64, 1, 1}, .cluster = {2, 1, 1}, .params = params, .params_len = 8};
    kn_sim_launch l = good;
    ck_assert_ok(kn_sim_run(m, NULL, &l, NULL));
    l.block[0] = 32;
    ck_assert_fails(kn_sim_run(m, NULL, &l, NULL), KN_E_LAUNCH, ".reqntid is 64,1,1");
    l = good;
    l.grid[0] = 3;
    ck_assert_fails(kn_sim_run(m, NULL, &l, NULL), KN_E_LAUNCH, "no multiple of the cluster");
    l = good;
    l.cluster[0] = 1;
    ck_assert_fails(kn_sim_run(m, NULL, &l, NULL), KN_E_LAUNCH, ".reqnctapercluster is 2,1,1");
    l = good;
    l.smem_dynamic = 232448 - 1000;
    ck_assert_fails(kn_sim_run(m, NULL, &l, NULL), KN_E_LAUNCH, "bytes of shared memory");
    l = good;
    l.params_len = 4;
    ck_assert_fails(kn_sim_run(m, NULL, &l, NULL), KN_E_LAUNCH, "the kernel declares 8");
    ck_assert_fails(kn_sim_run(m, "j", &good, NULL), KN_E_ARG, "no kernel j");
    kn_sim_free(m);
}
END_TEST

#ifdef KN_FAULT_INJECTION
#include "base/alloc.h"

START_TEST(out_of_memory) {
    static uint32_t out[128];
    for (uint64_t n = 1;; n++) {
        kn_simtest t = {.ptx = COPY_BEGIN "cp.async.cg.shared.global [%r2], [%rd2], 16; cp.async.wait_all; bar.sync 0; "
                                          "atom.global.add.u32 %r9, [%rd0], 0;\n" COPY_END,
                        .buffer = {{"in", (uint32_t[128]){0}, 512, true, false}, {"out", out, sizeof out, true, true}}};
        kn_fault_arm(n);
        kn_status st = kn_simtest_run(&t);
        kn_fault_arm(0);
        if (st == KN_OK) {
            ck_assert_uint_gt(n, 20);
            break;
        }
        ck_assert_int_eq(st, KN_E_NOMEM);
        ck_assert_uint_lt(n, 2000);
    }
}
END_TEST
#endif

int main(void) {
    Suite *s = suite_create("sim/machine");
    TCase *t = tcase_create("machine");
    tcase_add_test(t, grid_and_guard);
    tcase_add_test(t, divergent_loop);
    tcase_add_test(t, lanes_make_progress);
    tcase_add_test(t, shared_memory_and_barrier);
    tcase_add_test(t, barriers_reduce_and_arrive);
    tcase_add_test(t, lanes_together);
    tcase_add_test(t, loads_and_stores);
    tcase_add_test(t, spaces);
    tcase_add_test(t, atomics);
    tcase_add_test(t, turnstile);
    tcase_add_test(t, one_seed_is_one_run);
    tcase_add_test(t, memory_of_a_program);
    tcase_add_test(t, async_copies);
    tcase_add_test(t, matrix_fragments);
    tcase_add_test(t, tensor_core);
    tcase_add_loop_test(t, faults_are_reported, 0, (int)(sizeof faults / sizeof faults[0]));
    tcase_add_test(t, strided_views);
    tcase_add_test(t, launches_are_checked);
#ifdef KN_FAULT_INJECTION
    tcase_add_test(t, out_of_memory);
#endif
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
