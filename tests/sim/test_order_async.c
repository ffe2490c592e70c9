/* The ordering checks on the asynchronous units: mbarriers, TMA, proxies, wgmma, clusters, the register pool. Each rule
 * with a smallest kernel that breaks it and must be reported, and a corrected twin that must pass. */
#include "order_run.h"

/* One thread initialises mbarrier 0 (and 1) for `count` arrivals; everybody waits for it. */
#define INIT(count)                                                                                                    \
    "setp.ne.u32 %p0, %r0, 0;\n@%p0 bra READY;\n"                                                                      \
    "mbarrier.init.shared::cta.b64 [%r9], " count ";\nmbarrier.init.shared::cta.b64 [%r9+8], " count ";\n"             \
    "fence.mbarrier_init.release.cluster;\nREADY:\nbar.sync 0;\n"
/* Thread 0 loads `bytes` from in to shared memory at `at`, announcing `announced`. */
#define LOAD(at, bytes, announced)                                                                                     \
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r9], " announced ";\nadd.u32 %r20, %r1, " at ";\n"                 \
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r20], [%d1], " bytes ", [%r9];\n"
#define WAIT(label, parity)                                                                                            \
    label ":\nmbarrier.try_wait.parity.shared::cta.b64 %p7, [%r9], " parity ";\n@!%p7 bra " label ";\n"

#define STAGE LOAD("0", "128", "128")
#define WAIT_EMPTY "EMPTY:\nmbarrier.try_wait.parity.shared::cta.b64 %p6, [%r9+8], 0;\n@!%p6 bra EMPTY;\n"
#define TO_CONSUMER "setp.ne.u32 %p1, %r2, 0;\n@%p1 bra CONSUMER;\n@%p0 bra END;\n"
#define READ_ELEMENT "shl.b32 %r4, %r3, 2;\nadd.u32 %r4, %r1, %r4;\nld.shared.u32 %r5, [%r4];\n"
/* Lane 0 of warp 0 loads a stage, waits for the empty mbarrier and loads it again; warp 1 waits for the first load and
 * reads its elements. Between the two halves stands what releases the stage. */
#define LOAD_TWICE_AND_READ TO_CONSUMER STAGE WAIT_EMPTY STAGE "bra END;\nCONSUMER:\n" WAIT("W", "0") READ_ELEMENT
#define RELEASE "@!%p2 mbarrier.arrive.shared::cta.b64 _, [%r9+8];\n"
#define READ_AGAIN WAIT("V", "1") "ld.shared.u32 %r6, [%r4];\nEND:\n"

static const order_case copies[] = {
    {"poison-until-waited",
     INIT("1") "@%p0 bra LOADED;\n" LOAD(
         "0", "128", "128") "LOADED:\n"
                            "+"
                            "W:\n+mbarrier.try_wait.parity.shared::cta.b64 %p7, [%r9], 0;\n+@!%p7 bra W;\n"
                            "shl.b32 %r4, %r3, 2;\nadd.u32 %r4, %r1, %r4;\nld.shared.u32 %r5, [%r4];\n",
     "asynchronous", 32, 0, 0, "never written"},
    {"wait-by-one-lane-only",
     INIT("1") "@%p0 bra LOADED;\n" LOAD("0", "128", "128")
         WAIT("W", "0") "LOADED:\n"
                        "+bar.warp.sync 0xffffffff;\n"
                        "shl.b32 %r4, %r3, 2;\nadd.u32 %r4, %r1, %r4;\nld.shared.u32 %r5, [%r4];\n",
     "without synchronisation", 32, 0, 0, "asynchronous"},
    {"wrong-parity",
     INIT("1") "@%p0 bra LOADED;\n" LOAD(
         "0", "128", "128") "LOADED:\n"
                            "+mov.u32 %r6, 0;\n-mov.u32 %r6, 1;\n" WAIT(
                                "W", "%r6") "shl.b32 %r4, %r3, 2;\nadd.u32 %r4, %r1, %r4;\nld.shared.u32 %r5, [%r4];\n",
     "asynchronous", 32, 0, 0, "deadlock"},
    {"count-too-short",
     INIT("1") "@%p0 bra LOADED;\n+mov.u32 %r21, 256;\n-mov.u32 %r21, 128;\n" LOAD(
         "0", "128",
         "%r21") "add.u32 %r20, %r20, 128;\ncp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r20], "
                 "[%d1], 128, [%r9];\n"
                 "LOADED:\n" WAIT("W", "0") "shl.b32 %r4, %r3, 3;\nadd.u32 %r4, %r1, %r4;\nld.shared.u64 %d5, [%r4];\n",
     "asynchronous", 32, 0, 0, "deadlock"},
    {"count-too-long",
     INIT("1") "@%p0 bra LOADED;\n+mov.u32 %r21, 128;\n-mov.u32 %r21, 144;\n" LOAD("0", "128",
                                                                                   "%r21") "LOADED:\n" WAIT("W", "0"),
     "deadlock", 32, 0, 0, NULL},
    {"init-without-fence",
     "setp.ne.u32 %p0, %r0, 0;\n@%p0 bra READY;\nmbarrier.init.shared::cta.b64 [%r9], 1;\n"
     "+fence.mbarrier_init.release.cluster;\n"
     "READY:\nbar.sync 0;\n@%p0 bra LOADED;\n" LOAD("0", "128", "128") "LOADED:\n" WAIT("W", "0"),
     "neither a fence.mbarrier_init nor", 32, 0, 0, NULL},
    {"init-without-barrier",
     "setp.ne.u32 %p0, %r0, 0;\n@%p0 bra READY;\nmbarrier.init.shared::cta.b64 [%r9], 64;\nREADY:\n"
     "+bar.sync 0;\n"
     "mbarrier.arrive.shared::cta.b64 %d5, [%r9];\n",
     "mbarrier", 64, 0, 0, NULL},
    {"too-many-arrivals",
     INIT("1") "+@%p0 bra ARRIVED;\n-setp.gt.u32 %p1, %r0, 2;\n-@%p1 bra ARRIVED;\n"
               "-mbarrier.arrive.noComplete.shared::cta.b64 %d5, [%r9+8], 1;\n"
               "+mbarrier.arrive.shared::cta.b64 %d5, [%r9+8];\n"
               "ARRIVED:\n",
     "noComplete", 32, 0, 0, NULL},
    {"store-without-proxy-fence",
     "shl.b32 %r4, %r0, 2;\nadd.u32 %r4, %r1, %r4;\nst.shared.u32 [%r4], %r0;\n"
     "+fence.proxy.async.shared::cta;\n"
     "bar.sync 0;\nsetp.ne.u32 %p0, %r0, 0;\n@%p0 bra END;\n"
     "cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r1], 128;\ncp.async.bulk.commit_group;\n"
     "cp.async.bulk.wait_group.read 0;\nEND:\n",
     "without a fence.proxy.async", 64, 0, 0, NULL},
    {"store-fenced-by-one-lane",
     /* the fence of lane 0 alone covers what the others wrote only behind a warp sync */
     "shl.b32 %r4, %r0, 2;\nadd.u32 %r4, %r1, %r4;\nst.shared.u32 [%r4], %r0;\n"
     "+bar.warp.sync 0xffffffff;\n"
     "setp.ne.u32 %p0, %r0, 0;\n@%p0 bra END;\nfence.proxy.async.shared::cta;\n"
     "cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r1], 128;\ncp.async.bulk.commit_group;\n"
     "cp.async.bulk.wait_group.read 0;\nEND:\n",
     "shared address", 32, 0, 0, NULL},
    {"store-without-barrier",
     "shl.b32 %r4, %r0, 2;\nadd.u32 %r4, %r1, %r4;\nst.shared.u32 [%r4], %r0;\nfence.proxy.async.shared::cta;\n"
     "+bar.sync 0;\n"
     "setp.ne.u32 %p0, %r0, 0;\n@%p0 bra END;\n"
     "cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r1], 256;\ncp.async.bulk.commit_group;\n"
     "cp.async.bulk.wait_group.read 0;\nEND:\n",
     "shared", 64, 0, 0, "never written"},
    {"staging-reused-too-early",
     "setp.ne.u32 %p0, %r0, 0;\n@%p0 bra END;\nst.shared.v4.u32 [%r1], {%r0, %r0, %r0, "
     "%r0};\nfence.proxy.async.shared::cta;\n"
     "cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r1], 16;\ncp.async.bulk.commit_group;\n"
     "+cp.async.bulk.wait_group.read 0;\n"
     "st.shared.v4.u32 [%r1], {%r1, %r0, %r0, %r0};\nfence.proxy.async.shared::cta;\n"
     "cp.async.bulk.global.shared::cta.bulk_group [%d0+16], [%r1], 16;\ncp.async.bulk.commit_group;\n"
     "cp.async.bulk.wait_group 0;\nEND:\n",
     "a bulk copy of warp 0", 32, 0, 0, NULL},
    {"staging-rewritten-by-another-lane",
     /* each lane has waited for its own copy alone */
     "shl.b32 %r4, %r0, 4;\nadd.u32 %r5, %r1, %r4;\ncvt.u64.u32 %d2, %r4;\nadd.u64 %d2, %d0, %d2;\n"
     "st.shared.v4.u32 [%r5], {%r0, %r0, %r0, %r0};\nfence.proxy.async.shared::cta;\nbar.warp.sync 0xffffffff;\n"
     "cp.async.bulk.global.shared::cta.bulk_group [%d2], [%r5], 16;\ncp.async.bulk.commit_group;\n"
     "cp.async.bulk.wait_group.read 0;\n"
     "+bar.warp.sync 0xffffffff;\n"
     "xor.b32 %r6, %r5, 16;\nst.shared.v4.u32 [%r6], {%r1, %r0, %r0, %r0};\ncp.async.bulk.wait_group 0;\n",
     "a bulk copy of warp 0", 32, 0, 0, NULL},
    {"exit-under-a-store",
     "setp.ne.u32 %p0, %r0, 0;\n@%p0 bra END;\nst.shared.v4.u32 [%r1], {%r0, %r0, %r0, "
     "%r0};\nfence.proxy.async.shared::cta;\n"
     "cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r1], 16;\ncp.async.bulk.commit_group;\n"
     "+cp.async.bulk.wait_group.read 0;\n"
     "END:\n",
     "exits without waiting for its bulk copies", 64, 0, 0, "has exited while"},
    {"group-not-committed",
     "setp.ne.u32 %p0, %r0, 0;\n@%p0 bra END;\nst.shared.v4.u32 [%r1], {%r0, %r0, %r0, "
     "%r0};\nfence.proxy.async.shared::cta;\n"
     "cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r1], 16;\n"
     "+cp.async.bulk.commit_group;\n"
     "cp.async.bulk.wait_group.read 0;\nst.shared.v4.u32 [%r1], {%r1, %r0, %r0, %r0};\n"
     "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nEND:\n",
     "a bulk copy of warp 0", 32, 0, 0, NULL},
    {"store-read-back-too-early",
     /* .read waits for the source alone */
     "setp.ne.u32 %p0, %r0, 0;\n@%p0 bra END;\nst.shared.v4.u32 [%r1], {%r0, %r0, %r0, "
     "%r0};\nfence.proxy.async.shared::cta;\n"
     "cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r1], 16;\ncp.async.bulk.commit_group;\n"
     "-cp.async.bulk.wait_group.read 0;\n+cp.async.bulk.wait_group 0;\n"
     "ld.global.u32 %r5, [%d0];\nEND:\n",
     "a bulk store of warp 0", 32, 0, 0, NULL},
    {"refill-without-proxy-fence",
     /* a tile is read by ordinary loads, released, and loaded again */
     INIT("1") "@%p0 bra LOADED;\n" LOAD("0", "128", "128") "LOADED:\n" WAIT(
         "W", "0") "shl.b32 %r4, %r3, 2;\nadd.u32 %r4, %r1, %r4;\nld.shared.u32 %r5, [%r4];\n"
                   "+fence.proxy.async.shared::cta;\n"
                   "bar.sync 0;\n@%p0 bra AGAIN;\n" LOAD("0", "128",
                                                         "128") "AGAIN:\n" WAIT("V", "1") "ld.shared.u32 %r6, [%r4];\n",
     "read through ordinary accesses", 32, 0, 0, NULL},
    {"release-without-proxy-fence",
     /* a consumer's ordinary loads, its arrival at the empty mbarrier, the producer's wait: that orders the loads
        before the refill, but not across the proxies */
     INIT("1") LOAD_TWICE_AND_READ "+fence.proxy.async.shared::cta;\n"
                                   "bar.warp.sync 0xffffffff;\n"
                                   "setp.ne.u32 %p2, %r3, 0;\n" RELEASE READ_AGAIN,
     "read through ordinary accesses", 64, 0, 0, NULL},
    {"release-fenced-by-one-lane",
     /* the fence of the lane that arrives covers the other lanes' loads only if it comes behind their meeting */
     INIT("1") LOAD_TWICE_AND_READ "setp.ne.u32 %p2, %r3, 0;\n"
                                   "-@!%p2 fence.proxy.async.shared::cta;\n"
                                   "bar.warp.sync 0xffffffff;\n"
                                   "+@!%p2 fence.proxy.async.shared::cta;\n" RELEASE READ_AGAIN,
     "read through ordinary accesses", 64, 0, 0, NULL},
    {"stage-reused-before-empty",
     /* warp 0 loads the stage twice; warp 1 reads it in between and releases it through the second mbarrier */
     "setp.ne.u32 %p0, %r0, 0;\n@%p0 bra READY;\nmbarrier.init.shared::cta.b64 [%r9], 1;\n"
     "mbarrier.init.shared::cta.b64 [%r9+8], 32;\nfence.mbarrier_init.release.cluster;\nREADY:\nbar.sync 0;\n"
     "setp.ne.u32 %p1, %r2, 0;\n@%p1 bra CONSUMER;\n@%p0 bra END;\n" LOAD(
         "0", "128", "128") "EMPTY:\n"
                            "+mbarrier.try_wait.parity.shared::cta.b64 %p6, [%r9+8], 0;\n"
                            "-mbarrier.try_wait.parity.shared::cta.b64 %p6, [%r9+8], 1;\n"
                            "@!%p6 bra EMPTY;\n" WAIT("FIRST", "0")
                                LOAD("0", "128", "128") "bra END;\nCONSUMER:\n" WAIT(
                                    "W", "0") "shl.b32 %r4, %r3, 2;\nadd.u32 %r4, %r1, %r4;\nld.shared.u32 %r5, "
                                              "[%r4];\nfence.proxy.async.shared::cta;\n"
                                              "mbarrier.arrive.shared::cta.b64 %d5, [%r9+8];\n" WAIT(
                                                  "V", "1") "ld.shared.u32 %r6, [%r4];\nEND:\n",
     "shared", 64, 0, 0, NULL},
    {"release-by-one-lane",
     /* lane 0 releases for its warp: the others' reads must be ordered before */
     "setp.ne.u32 %p0, %r0, 0;\n@%p0 bra READY;\nmbarrier.init.shared::cta.b64 [%r9+8], 1;\nREADY:\nbar.sync 0;\n"
     "shl.b32 %r4, %r3, 2;\nadd.u32 %r4, %r1, %r4;\nsetp.ne.u32 %p1, %r2, 0;\n@%p1 bra SECOND;\nst.shared.u32 [%r4], "
     "%r0;\n"
     "+bar.warp.sync 0xffffffff;\n"
     "@!%p0 mbarrier.arrive.shared::cta.b64 %d5, [%r9+8];\nbra END;\n"
     "SECOND:\nmbarrier.try_wait.parity.shared::cta.b64 %p7, [%r9+8], 0;\n@!%p7 bra SECOND;\nld.shared.u32 %r6, "
     "[%r4];\nEND:\n",
     "race: reads shared address", 64, 0, 0, NULL},
    {"relaxed-arrival",
     "setp.ne.u32 %p0, %r0, 0;\n@%p0 bra READY;\nmbarrier.init.shared::cta.b64 [%r9+8], 32;\nREADY:\nbar.sync 0;\n"
     "shl.b32 %r4, %r3, 2;\nadd.u32 %r4, %r1, %r4;\nsetp.ne.u32 %p1, %r2, 0;\n@%p1 bra SECOND;\nst.shared.u32 [%r4], "
     "%r0;\n"
     "+mbarrier.arrive.release.cta.shared::cta.b64 %d5, [%r9+8];\n"
     "-mbarrier.arrive.release.cta.shared::cta.b64 %d5, [%r9+8];\n-st.shared.u32 [%r4], %r0;\n"
     "bra END;\n"
     "SECOND:\nmbarrier.try_wait.parity.shared::cta.b64 %p7, [%r9+8], 0;\n@!%p7 bra SECOND;\nld.shared.u32 %r6, "
     "[%r4];\nEND:\n",
     "race:", 64, 0, 0, NULL},
    {"copies-arrive",
     /* cp.async that arrive on an mbarrier when they land */
     "setp.ne.u32 %p0, %r0, 0;\n@%p0 bra READY;\nmbarrier.init.shared::cta.b64 [%r9], 32;\nREADY:\nbar.sync 0;\n"
     "shl.b32 %r4, %r3, 4;\ncvt.u64.u32 %d2, %r4;\nadd.u64 %d2, %d1, %d2;\nadd.u32 %r4, %r1, %r4;\n"
     "setp.ne.u32 %p1, %r2, 0;\n@%p1 bra SECOND;\ncp.async.cg.shared.global [%r4], [%d2], 16;\n"
     "+cp.async.mbarrier.arrive.noinc.shared.b64 [%r9];\n"
     "-mbarrier.arrive.shared::cta.b64 %d5, [%r9];\n"
     "bra END;\nSECOND:\n" WAIT("W", "0") "ld.shared.u32 %r6, [%r4];\nEND:\n",
     "asynchronous", 64, 0, 0, NULL},
};

/* A warpgroup: A (64 x 16, K-major, 32-byte swizzle: 2048 B) at 0, B (8 x 16: 256 B) at 4096, both written here as
 * zeros by all threads; descriptors in %d2, %d3. */
#define OPERANDS                                                                                                       \
    "mov.u32 %r10, 0;\nshl.b32 %r4, %r0, 4;\nadd.u32 %r4, %r1, %r4;\n"                                                 \
    "st.shared.v4.u32 [%r4], {%r10, %r10, %r10, %r10};\nst.shared.v4.u32 [%r4+4096], {%r10, %r10, %r10, %r10};\n"
#define DESCRIPTORS                                                                                                    \
    "shr.u32 %r5, %r1, 4;\nand.b32 %r5, %r5, 0x3fff;\ncvt.u64.u32 %d2, %r5;\nor.b64 %d2, %d2, 0xc000001000010000;\n"   \
    "add.u64 %d3, %d2, 256;\nsetp.eq.u32 %p1, %r0, %r0;\n"                                                             \
    "mov.f32 %f0, 0f00000000;\nmov.f32 %f1, %f0;\nmov.f32 %f2, %f0;\nmov.f32 %f3, %f0;\n"
#define MMA "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %d2, %d3, %p1, 1, 1, 0, 0;\n"
#define VISIBLE "fence.proxy.async.shared::cta;\nbar.sync 0;\n"
#define COMMIT "wgmma.commit_group.sync.aligned;\n"
#define FENCE "wgmma.fence.sync.aligned;\n"

static const order_case products[] = {
    {"accumulator-before-wait",
     OPERANDS VISIBLE DESCRIPTORS FENCE MMA COMMIT "+wgmma.wait_group.sync.aligned 0;\n"
                                                   "add.rn.f32 %f4, %f0, %f1;\n"
                                                   "-wgmma.wait_group.sync.aligned 0;\n",
     "asynchronous operation still owns", 128, 0, 0, NULL},
    {"wait-for-fewer-groups",
     OPERANDS VISIBLE DESCRIPTORS FENCE MMA COMMIT
     "+wgmma.wait_group.sync.aligned 0;\n-wgmma.wait_group.sync.aligned 1;\n"
     "add.rn.f32 %f4, %f0, %f1;\n",
     "asynchronous operation still owns", 128, 0, 0, NULL},
    {"product-not-committed",
     OPERANDS VISIBLE DESCRIPTORS FENCE MMA "+wgmma.commit_group.sync.aligned;\n"
                                            "wgmma.wait_group.sync.aligned 0;\nadd.rn.f32 %f4, %f0, %f1;\n",
     "asynchronous operation still owns", 128, 0, 0, NULL},
    {"operand-overwritten",
     OPERANDS VISIBLE DESCRIPTORS FENCE MMA COMMIT "+wgmma.wait_group.sync.aligned 0;\n+bar.sync 0;\n"
                                                   "st.shared.u32 [%r4], %r10;\n"
                                                   "-wgmma.wait_group.sync.aligned 0;\n",
     "a wgmma of warp", 128, 0, 0, NULL},
    {"operand-overwritten-by-another-warp",
     OPERANDS VISIBLE DESCRIPTORS FENCE MMA COMMIT "wgmma.wait_group.sync.aligned 0;\n"
                                                   "+bar.sync 0;\n"
                                                   "st.shared.u32 [%r4], %r10;\n",
     "shared address", 128, 0, 0, NULL},
    {"operands-without-proxy-fence",
     OPERANDS "+fence.proxy.async.shared::cta;\n"
              "bar.sync 0;\n" DESCRIPTORS FENCE MMA COMMIT "wgmma.wait_group.sync.aligned 0;\n",
     "without a fence.proxy.async", 128, 0, 0, NULL},
    {"operands-without-barrier",
     OPERANDS "fence.proxy.async.shared::cta;\n"
              "+bar.sync 0;\n" DESCRIPTORS FENCE MMA COMMIT "wgmma.wait_group.sync.aligned 0;\n",
     "shared", 128, 0, 0, "never written"},
    {"no-wgmma-fence",
     OPERANDS VISIBLE DESCRIPTORS "+wgmma.fence.sync.aligned;\n" MMA COMMIT "wgmma.wait_group.sync.aligned 0;\n",
     "no wgmma.fence", 128, 0, 0, NULL},
    {"accumulator-read-behind-fence",
     OPERANDS VISIBLE DESCRIPTORS FENCE MMA COMMIT "wgmma.wait_group.sync.aligned 0;\nmul.rn.f32 %f4, %f0, %f0;\n"
                                                   "+wgmma.fence.sync.aligned;\n" MMA COMMIT
                                                   "wgmma.wait_group.sync.aligned 0;\n",
     "without a wgmma.fence in between", 128, 0, 0, NULL},
    {"accumulator-written-behind-fence",
     OPERANDS VISIBLE DESCRIPTORS FENCE MMA COMMIT "wgmma.wait_group.sync.aligned 0;\nmul.rn.f32 %f0, %f0, %f0;\n"
                                                   "+wgmma.fence.sync.aligned;\n" MMA COMMIT
                                                   "wgmma.wait_group.sync.aligned 0;\n",
     "without a wgmma.fence in between", 128, 0, 0, NULL},
    {"half-a-warpgroup",
     OPERANDS VISIBLE DESCRIPTORS "-setp.ge.u32 %p2, %r2, 2;\n-@%p2 bra SKIP;\n" FENCE MMA COMMIT
                                  "wgmma.wait_group.sync.aligned 0;\n"
                                  "-SKIP:\n",
     "deadlock", 128, 0, 0, NULL},
    {"wait-by-one-warp",
     OPERANDS VISIBLE DESCRIPTORS FENCE MMA COMMIT "-setp.ge.u32 %p2, %r2, 1;\n-@%p2 bra SKIP;\n"
                                                   "wgmma.wait_group.sync.aligned 0;\n"
                                                   "-SKIP:\n" FENCE MMA COMMIT "wgmma.wait_group.sync.aligned 0;\n",
     "do not execute the same wgmma instructions", 128, 0, 0, NULL},
    {"descriptors-differ",
     OPERANDS VISIBLE DESCRIPTORS
     "-cvt.u64.u32 %d5, %r2;\n-shl.b64 %d5, %d5, 4;\n-add.u64 %d3, %d3, %d5;\n" FENCE MMA COMMIT
     "wgmma.wait_group.sync.aligned 0;\n",
     "different descriptors", 128, 0, 0, NULL},
    {"register-pool",
     /* 384 threads start with 168 registers; a producer that keeps 40 leaves 64 more for each of the others' threads */
     "setp.ge.u32 %p2, %r2, 4;\n@%p2 bra TAKE;\nsetmaxnreg.dec.sync.aligned.u32 40;\nbra END;\nTAKE:\n"
     "+setmaxnreg.inc.sync.aligned.u32 232;\n"
     "-setmaxnreg.inc.sync.aligned.u32 240;\n"
     "END:\n",
     "registers (setmaxnreg.inc)", 384, 0, 0, NULL},
};

/* The other CTA's address of shared memory in %r11, own rank in %r12. */
#define PEER "mov.u32 %r12, %cluster_ctarank;\nxor.b32 %r13, %r12, 1;\nmapa.shared::cluster.u32 %r11, %r1, %r13;\n"
#define MEET "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n"

static const order_case clusters[] = {
    {"peer-exits-early",
     PEER MEET "st.shared::cluster.u32 [%r11], %r0;\n"
               "setp.ne.u32 %p0, %r12, 0;\n-@%p0 bra END;\n"
               "-mov.u32 %r14, 0;\n-SPIN:\n-add.u32 %r14, %r14, 1;\n-setp.lt.u32 %p1, %r14, 3000;\n-@%p1 bra SPIN;\n"
               "-st.shared::cluster.u32 [%r11], %r0;\nEND:\n"
               "+barrier.cluster.arrive.release.aligned;\n+barrier.cluster.wait.acquire.aligned;\n",
     "exited", 1, 2, 0, "the CTA exits while warp"},
    {"exit-without-order",
     /* the last barrier keeps both alive, but a relaxed arrival does not say that the remote access is over */
     PEER MEET "st.shared::cluster.u32 [%r11], %r0;\n"
               "+barrier.cluster.arrive.release;\n-barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait.acquire;\n",
     "the CTA exits while warp", 1, 2, 0, NULL},
    {"remote-read-without-barrier",
     PEER "shl.b32 %r4, %r0, 2;\nadd.u32 %r5, %r1, %r4;\nadd.u32 %r6, %r11, %r4;\nst.shared.u32 [%r5], %r0;\n"
          "+barrier.cluster.arrive.release.aligned;\n+barrier.cluster.wait.acquire.aligned;\n"
          "ld.shared::cluster.u32 %r7, [%r6];\n" MEET,
     "race: reads shared address", 32, 2, 0, "never written"},
    {"relaxed-cluster-arrival",
     PEER "shl.b32 %r4, %r0, 2;\nadd.u32 %r5, %r1, %r4;\nadd.u32 %r6, %r11, %r4;\nst.shared.u32 [%r5], %r0;\n"
          "+barrier.cluster.arrive.release.aligned;\n-barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait."
          "acquire.aligned;\n"
          "ld.shared::cluster.u32 %r7, [%r6];\n" MEET,
     "race: reads shared address", 32, 2, 0, NULL},
    {"cluster-arrive-without-wait",
     PEER "shl.b32 %r4, %r0, 2;\nadd.u32 %r5, %r1, %r4;\nadd.u32 %r6, %r11, %r4;\nst.shared.u32 [%r5], %r0;\n"
          "barrier.cluster.arrive.release.aligned;\n"
          "+barrier.cluster.wait.acquire.aligned;\n"
          "ld.shared::cluster.u32 %r7, [%r6];\n"
          "-barrier.cluster.wait.acquire.aligned;\n" MEET,
     "race: reads shared address", 32, 2, 0, "never written"},
    {"remote-arrival",
     /* each CTA writes to the other and arrives at its mbarrier */
     INIT("32") PEER MEET "mapa.shared::cluster.u32 %r15, %r9, %r13;\nshl.b32 %r4, %r0, 2;\nadd.u32 %r6, %r11, %r4;\n"
                          "-mbarrier.arrive.shared::cluster.b64 _, [%r15];\n"
                          "st.shared::cluster.u32 [%r6], %r0;\n"
                          "+mbarrier.arrive.shared::cluster.b64 _, [%r15];\n" WAIT(
                              "W", "0") "add.u32 %r5, %r1, %r4;\nld.shared.u32 %r7, [%r5];\n" MEET,
     "race:", 32, 2, 0, "never written"},
    {"st-async",
     INIT("1") PEER MEET "mapa.shared::cluster.u32 %r15, %r9, %r13;\nshl.b32 %r4, %r0, 2;\nadd.u32 %r6, %r11, "
                         "%r4;\nadd.u32 %r5, %r1, %r4;\n"
                         "@!%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r9], 128;\n"
                         "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r6], %r0, [%r15];\n"
                         "+W:\n+mbarrier.try_wait.parity.shared::cta.b64 %p7, [%r9], 0;\n+@!%p7 bra W;\n"
                         "ld.shared.u32 %r7, [%r5];\n" MEET,
     "asynchronous", 32, 2, 0, "never written"},
    {"init-not-yet-seen-by-the-peer",
     "setp.ne.u32 %p0, %r0, 0;\n@%p0 bra READY;\nmbarrier.init.shared::cta.b64 [%r9], 32;\n"
     "+fence.mbarrier_init.release.cluster;\n"
     "READY:\nbarrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;\n" PEER
     "mapa.shared::cluster.u32 %r15, %r9, %r13;\nmbarrier.arrive.shared::cluster.b64 _, [%r15];\n"
     "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n",
     "without order behind its mbarrier.init", 32, 2, 0, NULL},
    {"multicast",
     /* rank 0 loads for both; each CTA must have announced and must wait on its own mbarrier */
     INIT("1") PEER MEET "@!%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r9], 128;\n" MEET
                         "setp.ne.u32 %p1, %r12, 0;\nor.pred %p1, %p1, %p0;\n@%p1 bra LOADED;\nmov.u16 %h0, 3;\n"
                         "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], "
                         "[%d1], 128, [%r9], %h0;\n"
                         "LOADED:\n"
                         "+W:\n+mbarrier.try_wait.parity.shared::cta.b64 %p7, [%r9], 0;\n+@!%p7 bra W;\n"
                         "shl.b32 %r4, %r0, 2;\nadd.u32 %r5, %r1, %r4;\nld.shared.u32 %r7, [%r5];\n" MEET,
     "asynchronous", 32, 2, 0, "never written"},
    {"dependent-launch",
     "+griddepcontrol.wait;\n"
     "shl.b32 %r4, %r0, 2;\ncvt.u64.u32 %d2, %r4;\nadd.u64 %d2, %d0, %d2;\nst.global.u32 [%d2], %r0;\n"
     "-griddepcontrol.wait;\n",
     "griddepcontrol.wait", 32, 0, 0, NULL},
};

START_TEST(copy_rule) {
    order_check(&copies[_i]);
}
END_TEST

START_TEST(product_rule) {
    order_check(&products[_i]);
}
END_TEST

START_TEST(cluster_rule) {
    order_check(&clusters[_i]);
}
END_TEST

int main(void) {
    Suite *s = suite_create("sim/order_async");
    TCase *t = tcase_create("order_async");
    tcase_add_loop_test(t, copy_rule, 0, (int)(sizeof copies / sizeof copies[0]));
    tcase_add_loop_test(t, product_rule, 0, (int)(sizeof products / sizeof products[0]));
    tcase_add_loop_test(t, cluster_rule, 0, (int)(sizeof clusters / sizeof clusters[0]));
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
