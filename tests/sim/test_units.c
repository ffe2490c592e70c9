/* The asynchronous instructions one by one, each form at least once, in small kernels whose results are written out
 * here from the PTX manual: mbarriers, bulk and tensor copies, reductions, wgmma forms, clusters. Also the refusals. */
#include "sim/tensorcore.h"

#include "base/buf.h"
#include "module_run.h"

#include <unistd.h>

/* in: 4096 words k * 3 + 1; out: 4096 words, zero at the start. */
typedef struct bench {
    uint32_t in[4096] __attribute__((aligned(128)));
    uint32_t out[4096] __attribute__((aligned(128)));
    uint8_t params[3 * 128];
    uint32_t threads, cluster;
} bench;
static bench t;

static void reset(uint32_t threads, uint32_t cluster) {
    memset(&t, 0, sizeof t);
    for (uint32_t k = 0; k < 4096; k++) t.in[k] = k * 3 + 1;
    t.threads = threads;
    t.cluster = cluster;
}

/* %r0 thread, %r1 shared memory, %r2 warp, %r3 lane, %r9 the mbarriers at 32768, %p0 = not thread 0; %d0 out, %d1 in;
 * maps map_in and map_out. */
static kn_status run(const char *body, uint64_t seed) {
    kn_buf b;
    kn_buf_init(&b, 1 << 20);
    kn_buf_addf(&b,
                ".version 8.1\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 smem[];\n"
                ".visible .entry k(.param .align 64 .b8 map_in[128], .param .align 64 .b8 map_out[128], .param .u64 "
                "out, .param .u64 in)\n"
                ".reqntid %u, 1, 1\n.minnctapersm 1\n{\n.reg .pred %%p<8>;\n.reg .b16 %%h<4>;\n.reg .b32 "
                "%%r<64>;\n.reg .b64 %%d<24>;\n.reg .f32 %%f<132>;\n"
                "mov.u32 %%r0, %%tid.x;\nmov.u32 %%r1, smem;\nshr.u32 %%r2, %%r0, 5;\nand.b32 %%r3, %%r0, 31;\nadd.u32 "
                "%%r9, %%r1, 32768;\n"
                "setp.ne.u32 %%p0, %%r0, 0;\nld.param.u64 %%d0, [out];\nld.param.u64 %%d1, [in];\n",
                t.threads);
    kn_buf_add(&b, body);
    kn_buf_add(&b, "\nret;\n}\n");
    ck_assert_ok(kn_buf_status(&b));
    const char *dump = getenv("KN_DUMP_PTX");
    if (dump) {
        static int number;
        char path[512];
        snprintf(path, sizeof path, "%s/units-%d-%d.ptx", dump, (int)getpid(), number++);
        ck_assert_ok(kn_file_write(path, b.data, b.len));
    }
    void *pointers[2] = {t.out, t.in};
    memcpy(t.params + 256, pointers, sizeof pointers);
    kn_sim_extent x[2] = {run_matrix("out", t.out, 4, 1, 4096, true), run_matrix("in", t.in, 4, 1, 4096, false)};
    x[0].poison = false;
    kn_sim_launch l = {.grid = {t.cluster, 1, 1},
                       .block = {t.threads, 1, 1},
                       .cluster = {t.cluster, 1, 1},
                       .smem_dynamic = 65536,
                       .params = t.params,
                       .params_len = 272,
                       .extents = x,
                       .n_extents = 2,
                       .seed = seed,
                       .budget = 1000000,
                       .threads = 1,
                       .multiprocessors = 132};
    kn_sim_module *m = NULL;
    kn_status st = kn_sim_parse(b.data, b.len, NULL, NULL, &m);
    if (st == KN_OK) st = kn_sim_run(m, NULL, &l, NULL);
    if (m) kn_sim_free(m);
    kn_buf_free(&b);
    return st;
}

static void run_ok(const char *body) {
    uint32_t out[4096];
    memcpy(out, t.out, sizeof out);
    for (uint64_t seed = 0; seed < 4; seed++) {
        memcpy(t.out, out, sizeof out);
        ck_assert_ok(run(body, seed));
    }
}

#define INIT(count)                                                                                                    \
    "@%p0 bra READY;\nmbarrier.init.shared::cta.b64 [%r9], " count ";\nmbarrier.init.shared::cta.b64 [%r9+8], " count  \
    ";\n"                                                                                                              \
    "fence.mbarrier_init.release.cluster;\nREADY:\nbarrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait."     \
    "acquire.aligned;\n"
#define WAIT(label, bar, parity)                                                                                       \
    label ":\nmbarrier.try_wait.parity.shared::cta.b64 %p7, [" bar "], " parity ";\n@!%p7 bra " label ";\n"
/* Each thread: word %r0 of shared memory to out. */
#define TO_OUT                                                                                                         \
    "shl.b32 %r40, %r0, 2;\nadd.u32 %r41, %r1, %r40;\nld.shared.u32 %r42, [%r41];\ncvt.u64.u32 %d20, %r40;\n"          \
    "add.u64 %d20, %d0, %d20;\nst.global.u32 [%d20], %r42;\n"

static void out_is(uint32_t from, uint32_t n, uint32_t in_from) {
    for (uint32_t k = 0; k < n; k++)
        ck_assert_msg(t.out[from + k] == t.in[in_from + k], "out[%u] is %u, wanted %u", from + k, t.out[from + k],
                      t.in[in_from + k]);
}

START_TEST(mbarrier_states) {
    /* arrivals of a count, a state waited for, the pending count, arrive_drop */
    reset(32, 1);
    run_ok("@%p0 bra END;\nmbarrier.init.shared.b64 [%r9], 4;\n"
           "mbarrier.arrive.shared.b64 %d2, [%r9];\nmbarrier.pending_count.b64 %r10, %d2;\nst.global.u32 [%d0], %r10;\n"
           "mbarrier.test_wait.shared.b64 %p1, [%r9], %d2;\nselp.u32 %r11, 1, 0, %p1;\nst.global.u32 [%d0+4], %r11;\n"
           "mbarrier.arrive.noComplete.release.cta.shared.b64 %d3, [%r9], 2;\nmbarrier.pending_count.b64 %r10, "
           "%d3;\nst.global.u32 [%d0+8], %r10;\n"
           "mbarrier.arrive_drop.shared.b64 %d4, [%r9];\nmbarrier.test_wait.shared.b64 %p1, [%r9], %d2;\nselp.u32 "
           "%r11, 1, 0, %p1;\nst.global.u32 [%d0+12], %r11;\n"
           "mbarrier.arrive.shared.b64 %d5, [%r9], 2;\nmbarrier.pending_count.b64 %r10, %d5;\nst.global.u32 [%d0+16], "
           "%r10;\n"
           "mbarrier.expect_tx.relaxed.cta.shared.b64 [%r9], 64;\nmbarrier.arrive.release.cta.shared::cta.b64 %d6, "
           "[%r9];\n"
           "mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 %p1, [%r9], 1;\nselp.u32 %r11, 1, 0, "
           "%p1;\nst.global.u32 [%d0+20], %r11;\n"
           "mbarrier.complete_tx.relaxed.cta.shared.b64 [%r9], 64;\n"
           "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p1, [%r9], 1, 100;\nselp.u32 %r11, 1, 0, "
           "%p1;\nst.global.u32 [%d0+24], %r11;\n"
           "mbarrier.inval.shared.b64 [%r9];\nst.shared.u32 [%r9], %r11;\nEND:\n");
    const uint32_t want[7] = {4, 0, 3, 1, 3, 0, 1};
    for (int k = 0; k < 7; k++) ck_assert_msg(t.out[k] == want[k], "out[%d] is %u, wanted %u", k, t.out[k], want[k]);
}
END_TEST

START_TEST(bulk_copies) {
    /* in -> shared -> out, a generic address of the mbarrier */
    reset(64, 1);
    run_ok(INIT("1") "@%p0 bra LOADED;\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [%r9], 256;\n"
                     "mov.u64 %d5, 0x12F0000000000000;\n"
                     "cp.async.bulk.prefetch.L2.global [%d1], 256;\n"
                     "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r1], "
                     "[%d1+64], 256, [%r9], %d5;\nLOADED:\n" WAIT("W", "%r9", "0") TO_OUT);
    out_is(0, 64, 16);
    reset(64, 1);
    run_ok(
        INIT("1") "@%p0 bra END;\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [%r9], 512;\n"
                  "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d1], 512, [%r9];\n" WAIT(
                      "W", "%r9", "0") "cp.async.bulk.global.shared::cta.bulk_group [%d0+1024], [%r1+16], "
                                       "496;\ncp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\n"
                                       "ld.global.u32 %r20, [%d0+1024];\nst.global.u32 [%d0], %r20;\nEND:\n");
    out_is(256, 124, 4);
    ck_assert_uint_eq(t.out[0], t.in[4]);
}
END_TEST

START_TEST(bulk_reductions) {
    reset(32, 1);
    for (uint32_t k = 0; k < 32; k++) t.out[k] = 1000 + k, t.out[64 + k] = 50;
    float f = 2.5f;
    memcpy(&t.out[128], &f, 4);
    run_ok("shl.b32 %r10, %r3, 2;\nadd.u32 %r11, %r1, %r10;\nst.shared.u32 [%r11], %r3;\nmov.u32 %r12, "
           "0x40200000;\nst.shared.u32 [%r11+128], %r12;\n"
           "fence.proxy.async;\nbar.sync 0;\n@%p0 bra END;\n"
           "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d0], [%r1], 128;\n"
           "cp.reduce.async.bulk.global.shared::cta.bulk_group.min.s32 [%d0+256], [%r1], 128;\n"
           "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%d0+512], [%r1+128], 16;\n"
           "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;\nEND:\n");
    memcpy(&f, &t.out[128], 4);
    ck_assert(f == 5.0f);
    for (uint32_t k = 0; k < 32; k++) ck_assert(t.out[k] == 1000 + 2 * k && t.out[64 + k] == k);
}
END_TEST

/* A map over `data` as [d2][d1][d0] words without swizzle. */
static void map_3d(uint8_t out[128], void *data, uint32_t d0, uint32_t d1, uint32_t d2, uint32_t b0, uint32_t b1,
                   uint32_t b2) {
    kn_sim_tensor_map m = {
        .dtype = 2, .rank = 3, .base = data, .dim = {d0, d1, d2}, .stride = {d0 * 4, d0 * d1 * 4}, .box = {b0, b1, b2}};
    ck_assert_ok(kn_sim_encode_tensor_map(&m, out));
}

START_TEST(tensor_copies) {
    /* a 3-d box that leaves the tensor on two sides; then reduced into another tensor, clipped there too */
    reset(128, 1);
    map_3d(t.params, t.in, 12, 5, 3, 8, 4, 2);
    map_3d(t.params + 128, t.out + 512, 12, 5, 3, 8, 4, 2);
    run_ok(
        INIT("1") "@%p0 bra LOADED;\nmov.u64 %d2, map_in;\ncvta.param.u64 %d2, %d2;\nprefetch.tensormap "
                  "[%d2];\nmov.u32 %r20, 7;\nmov.u32 %r21, -1;\n"
                  "cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%d2, {%r20, %r21, 2}];\n"
                  "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r9], 256;\n"
                  "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%d2, "
                  "{%r20, %r21, 2}], [%r9];\nLOADED:\n" WAIT(
                      "W", "%r9",
                      "0") "setp.ge.u32 %p1, %r0, 64;\n@%p1 bra COPIED;\n" TO_OUT
                           "COPIED:\nbar.sync 0;\n@%p0 bra END;\nmov.u64 %d3, map_out;\ncvta.param.u64 %d3, %d3;\n"
                           "mov.u32 %r22, -2;\ncp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group "
                           "[%d3, {%r22, 3, 0}], [%r1];\n"
                           "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nEND:\n");
    uint32_t want[180] = {0};
    for (int z = 0; z < 2; z++) {
        for (int y = 0; y < 4; y++) {
            for (int x = 0; x < 8; x++) {
                int sx = 7 + x, sy = -1 + y, sz = 2 + z, dx = -2 + x, dy = 3 + y;
                uint32_t v = sx < 12 && sy >= 0 && sz < 3 ? t.in[sx + 12 * sy + 60 * sz] : 0;
                ck_assert_uint_eq(t.out[x + 8 * y + 32 * z], v);
                if (dx >= 0 && dy < 5) want[dx + 12 * dy + 60 * z] += v;
            }
        }
    }
    for (int k = 0; k < 180; k++)
        ck_assert_msg(t.out[512 + k] == want[k], "element %d is %u, wanted %u", k, t.out[512 + k], want[k]);
}
END_TEST

START_TEST(cluster_copies) {
    /* each CTA sends 128 bytes of its own to its peer: bulk copy, and vector st.async; ranks and addresses on the way
     */
    reset(32, 2);
    run_ok(INIT(
        "1") "mov.u32 %r10, %cluster_ctarank;\nxor.b32 %r11, %r10, 1;\nmapa.shared::cluster.u32 %r12, %r1, "
             "%r11;\nmapa.shared::cluster.u32 %r13, %r9, %r11;\n"
             "getctarank.shared::cluster.u32 %r14, %r12;\n"
             "shl.b32 %r15, %r3, 2;\nadd.u32 %r16, %r1, %r15;\nmad.lo.u32 %r17, %r10, 1000, %r3;\nst.shared.u32 "
             "[%r16], %r17;\nfence.proxy.async;\nbar.sync 0;\n"
             "@%p0 bra SENT;\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [%r9], 256;\nadd.u32 %r18, %r12, 1024;\n"
             "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r18], [%r1], 128, "
             "[%r13];\nSENT:\n"
             "setp.ge.u32 %p1, %r3, 8;\n@%p1 bra STORED;\nshl.b32 %r19, %r3, 4;\nadd.u32 %r19, %r12, %r19;\n"
             "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r19+2048], {%r17, %r14, %r3, %r10}, "
             "[%r13];\nSTORED:\n" WAIT(
                 "W", "%r9", "0") "ld.shared.u32 %r20, [%r16+1024];\nld.shared.u32 %r21, [%r16+2048];\n"
                                  "shl.b32 %r22, %r10, 8;\nadd.u32 %r22, %r22, %r15;\ncvt.u64.u32 %d2, %r22;\nadd.u64 "
                                  "%d2, %d0, %d2;\nst.global.u32 [%d2], %r20;\nst.global.u32 [%d2+128], %r21;\n"
                                  "barrier.cluster.arrive;\nbarrier.cluster.wait;\n");
    for (uint32_t cta = 0; cta < 2; cta++) {
        for (uint32_t k = 0; k < 32; k++) {
            const uint32_t sent[4] = {(1 - cta) * 1000 + k / 4, cta, k / 4, 1 - cta};
            ck_assert_uint_eq(t.out[64 * cta + k], (1 - cta) * 1000 + k);
            ck_assert_uint_eq(t.out[64 * cta + 32 + k], sent[k % 4]);
        }
    }
}
END_TEST

START_TEST(cluster_multicast) {
    /* CTA 2 of four loads for CTAs 0, 2, 3; generic mapa reads a neighbour's word */
    reset(32, 4);
    run_ok(INIT("1") "mov.u32 %r10, %cluster_ctarank;\nsetp.eq.u32 %p2, %r10, 1;\nor.pred %p3, %p2, %p0;\n"
                     "@!%p3 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r9], 128;\n"
                     "setp.ne.u32 %p1, %r10, 2;\nor.pred %p1, %p1, %p0;\n@%p1 bra SENT;\nmov.u16 %h0, 13;\n"
                     "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], "
                     "[%d1+128], 128, [%r9], %h0;\nSENT:\n"
                     "shl.b32 %r15, %r3, 2;\nadd.u32 %r16, %r1, %r15;\n@%p2 st.shared.u32 [%r16], %r3;\n@%p2 bra "
                     "ARRIVED;\n" WAIT(
                         "W", "%r9",
                         "0") "ARRIVED:\n"
                              "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"
                              "add.u32 %r11, %r10, 1;\nand.b32 %r11, %r11, 3;\ncvt.u64.u32 %d4, %r16;\ncvta.shared.u64 "
                              "%d4, %d4;\nmapa.u64 %d5, %d4, %r11;\ngetctarank.u64 %r12, %d5;\nld.u32 %r20, [%d5];\n"
                              "shl.b32 %r22, %r10, 7;\nadd.u32 %r22, %r22, %r15;\ncvt.u64.u32 %d2, %r22;\nadd.u64 %d2, "
                              "%d0, %d2;\nst.global.u32 [%d2], %r20;\n"
                              "barrier.cluster.arrive;\nbarrier.cluster.wait;\n");
    out_is(32, 32, 32); /* CTA 1 reads 2 */
    out_is(64, 32, 32);
    out_is(96, 32, 32);
    for (uint32_t k = 0; k < 32; k++) ck_assert_uint_eq(t.out[k], k); /* CTA 0 reads 1 */
}
END_TEST

/* Shared memory: in, twice. A in registers: rows 16 w + lane / 4 (+ 8), chunks 0 and 1 of the row. */
static const char before_mma[] =
    INIT("1") "@%p0 bra LOADED;\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [%r9], 32768;\n"
              "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d1], 16384, "
              "[%r9];\nadd.u32 %r10, %r1, 16384;\n"
              "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%d1], 16384, "
              "[%r9];\nLOADED:\n" WAIT(
                  "W", "%r9", "0") "shr.u32 %r11, %r1, 4;\nand.b32 %r11, %r11, 0x3fff;\ncvt.u64.u32 %d2, "
                                   "%r11;\nor.b64 %d2, %d2, 0x4000004000010000;\nadd.u64 %d3, %d2, 2;\n"
                                   /* A in registers: rows 16 w + lane / 4 (+ 8), chunks 0 and 1 of the row, unswizzled
                                      by row & 7 */
                                   "shl.b32 %r20, %r2, 11;\nshr.u32 %r21, %r3, 2;\nshl.b32 %r22, %r21, 7;\nadd.u32 "
                                   "%r20, %r20, %r22;\nadd.u32 %r20, %r20, %r1;\n"
                                   "and.b32 %r23, %r3, 3;\nshl.b32 %r23, %r23, 2;\nadd.u32 %r20, %r20, "
                                   "%r23;\nshl.b32 %r24, %r21, 4;\nxor.b32 %r25, %r24, 16;\n"
                                   "add.u32 %r24, %r20, %r24;\nadd.u32 %r25, %r20, %r25;\n"
                                   "ld.shared.b32 %r30, [%r24];\nld.shared.b32 %r31, [%r24+1024];\nld.shared.b32 "
                                   "%r32, [%r25];\nld.shared.b32 %r33, [%r25+1024];\n"
                                   "setp.ne.u32 %p1, %r0, %r0;\nwgmma.fence.sync.aligned;\n";
static const char behind_mma[] = "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n"
                                 "shl.b32 %r12, %r2, 4;\nadd.u32 %r12, %r12, %r21;\nshl.b32 %r12, %r12, "
                                 "8;\nshl.b32 %r13, %r23, 1;\nadd.u32 %r12, %r12, %r13;\ncvt.u64.u32 %d9, "
                                 "%r12;\nadd.u64 %d9, %d0, %d9;\n";

/* One wgmma of every shape and form: A (16 KB image) and B (16 KB) of random bits that are small numbers, as K-major
 * tiles with 128-byte swizzle; the result must be what the tensor core's rule gives for the mathematical operands. */
static void wgmma_form(uint32_t n, kn_tc_type type, bool registers, bool negate) {
    static const char *const name[3] = {"bf16", "f16", "tf32"};
    uint32_t k = type == KN_TC_TF32 ? 8 : 16;
    char list[2048] = "", stores[8192] = "", mma[2400], body[16384], tail[32] = "";
    for (uint32_t r = 0; r < n / 2; r++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%%f%u", r ? ", " : "", r);
    /* D row-major, `pitch` 64 columns of it (two warps' worth is enough: rows 0..63, columns 0..min(n, 56)) */
    for (uint32_t j = 0; j < n / 8 && j < 7; j++)
        for (uint32_t h = 0; h < 2; h++)
            snprintf(stores + strlen(stores), sizeof stores - strlen(stores),
                     "st.global.v2.f32 [%%d9+%u], {%%f%u, %%f%u};\n", 32 * j + 2048 * h, 4 * j + 2 * h,
                     4 * j + 2 * h + 1);
    if (type != KN_TC_TF32) snprintf(tail, sizeof tail, registers ? ", 0" : ", 0, 0");
    snprintf(mma, sizeof mma, "wgmma.mma_async.sync.aligned.m64n%uk%u.f32.%s.%s {%s}, %s, %%d3, %%p1, 1, %d%s;\n", n, k,
             name[type], name[type], list, registers ? "{%r30, %r31, %r32, %r33}" : "%d2", negate ? -1 : 1, tail);
    snprintf(body, sizeof body, "%s%s%s%s", before_mma, mma, behind_mma, stores);
    run_ok(body);
    static kn_tc_a a;
    static kn_tc_b b;
    static float d[64][KN_TC_N];
    uint32_t item = type == KN_TC_TF32 ? 4 : 2;
    for (uint32_t row = 0; row < 256; row++) {
        for (uint32_t kk = 0; kk < k; kk++) {
            for (uint32_t op = 0; op < 2; op++) { /* B starts one k16 (k8) step further */
                uint32_t at = row * 128 + op * 32 + kk * item, bits = 0;
                at ^= (row & 7) * 16;
                memcpy(&bits, (const uint8_t *)t.in + at % 16384, item);
                if (op == 0 && row < 64) kn_tc_decode(type, bits, &a.v[row][kk], &a.e[row][kk]);
                if (op == 1 && row < n) kn_tc_decode(type, bits, &b.v[kk][row], &b.e[kk][row]);
                if (op == 1 && row < n && negate) b.v[kk][row] = -b.v[kk][row];
            }
        }
    }
    kn_tc_step(64, (int)n, (int)k, &a, &b, 1, d[0], KN_TC_N);
    for (uint32_t row = 0; row < 64; row++) {
        for (uint32_t col = 0; col < n && col < 56; col++) {
            float got;
            memcpy(&got, &t.out[64 * row + col], 4);
            ck_assert_msg(got == d[row][col], "m64n%u %s%s: (%u, %u) is %a, wanted %a", n, name[type],
                          registers ? " from registers" : "", row, col, (double)got, (double)d[row][col]);
        }
    }
}

START_TEST(wgmma_forms) {
    for (int type = 0; type < 3; type++) {
        for (uint32_t n = 8; n <= 256; n += type == 0 ? 8 : 40) {
            reset(128, 1);
            uint64_t s = n;
            for (uint32_t k = 0; k < 4096; k++) { /* values within 2^-3..2^4 in all three types */
                float f = run_normal(&s);
                uint32_t u;
                memcpy(&u, &f, 4);
                t.in[k] = type == KN_TC_TF32   ? u
                          : type == KN_TC_BF16 ? (uint32_t)run_bf16(f) << 16 | run_bf16(run_normal(&s))
                                               : 0x3c003c00u | (uint32_t)(run_random(&s) & 0x83ff83ffu);
            }
            wgmma_form(n, (kn_tc_type)type, n % 16 == 0, n % 24 == 0);
        }
    }
}
END_TEST

static void refused(const char *body, const char *part) {
    reset(128, 1);
    map_3d(t.params, t.in, 12, 5, 3, 8, 4, 2);
    ck_assert_fails(run(body, 0), KN_E_SIM, part);
}

START_TEST(refusals) {
    refused("setmaxnreg.inc.sync.aligned.u32 100;\n", "multiple of 8");
    refused("setmaxnreg.dec.sync.aligned.u32 16;\n", "multiple of 8");
    refused("setmaxnreg.inc.sync.aligned.u32 24;\n", "a thread of this warp has 256");
    refused("wgmma.mma_async.sync.aligned.m64n12k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3, %f4, %f5}, %d2, %d3, %p0, 1, 1, "
            "0, 0;\n",
            "no wgmma has the shape");
    refused("wgmma.mma_async.sync.aligned.m64n8k8.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %d2, %d3, %p0, 1, 1, 0, 0;\n",
            "no wgmma has the shape");
    refused("wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%f0, %f1, %f2, %f3}, %d2, %d3, %p0, 1, 1, 0, 0;\n",
            "operands");
    refused("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2}, %d2, %d3, %p0, 1, 1, 0, 0;\n",
            "list of 4 registers");
    refused("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %d2, %d3, %p0, 2, 1, 0, 0;\n",
            "1 or -1");
    refused("wgmma.wait_group.sync.aligned 9;\n", "0..7");
    refused("mbarrier.arrive.shared::cta.b64 %d2, [%r9];\n", "no live mbarrier");
    refused("mbarrier.init.shared::cta.b64 [%r9+4], 1;\n", "aligned");
    refused("mbarrier.init.shared::cta.b64 [%r9], 0;\n", "1..1048575");
    refused("@!%p0 mbarrier.init.shared::cta.b64 [%r9], 1;\nbar.sync 0;\nld.shared.u32 %r10, [%r9];\n",
            "belongs to an mbarrier");
    refused(INIT("1") "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d1], 40, [%r9];\n",
            "multiple of 16");
    refused(INIT("1") "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+8], [%d1], 32, [%r9];\n",
            "aligned to 16");
    refused(
        INIT("1") "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d1+16380], 32, [%r9];\n",
        "aligned to 16");
    refused(
        INIT("1") "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d1+16368], 32, [%r9];\n",
        "in");
    refused("mov.u64 %d2, map_in;\ncvta.param.u64 %d2, %d2;\n" INIT(
                "1") "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%d2, "
                     "{0, 0}], [%r9];\n",
            "2 coordinates for a tensor map of rank 3");
    refused("mov.u64 %d2, map_out;\ncvta.param.u64 %d2, %d2;\nprefetch.tensormap [%d2];\n", "no tensor map");
    refused("mapa.shared::cluster.u32 %r10, %r1, 1;\n", "the cluster has 1 CTA");
    refused("barrier.cluster.wait;\n", "without an arrival");
    refused("barrier.cluster.arrive;\nbarrier.cluster.arrive;\n", "a second arrival");
    refused("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.bf16 [%d0], [%r1], 16;\n", ".noftz");
    refused("cp.reduce.async.bulk.global.shared::cta.bulk_group.and.f32 [%d0], [%r1], 16;\n", "no such reduction");
    refused("tcgen05.fence::before_thread_sync;\n", "unknown");
}
END_TEST

int main(void) {
    Suite *s = suite_create("sim/units");
    TCase *c = tcase_create("units");
    tcase_add_test(c, mbarrier_states);
    tcase_add_test(c, bulk_copies);
    tcase_add_test(c, bulk_reductions);
    tcase_add_test(c, tensor_copies);
    tcase_add_test(c, cluster_copies);
    tcase_add_test(c, cluster_multicast);
    tcase_add_test(c, wgmma_forms);
    tcase_add_test(c, refusals);
    suite_add_tcase(s, c);
    return kn_run_suite(s);
}
