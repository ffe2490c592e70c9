/* routed_experts_backward on a real GPU: bits that repeat however many tokens there are, and a CUDA graph whose
 * assignment of tokens to experts changes from replay to replay. Skipped where there is none. */
#include "routed_support.h"

#include "support/gpu.h"

static kn_gpu gpu;
static bool there;

static void setup(void) {
    there = kn_gpu_open(&gpu);
}

/* Balanced fp32 takes other kernels than bf16. */
START_TEST(bits_repeat) {
    if (!there) return;
    kiln_context *ctx = open_context(KILN_SHAPES_DEFAULT, KILN_PATH_DEFAULT);
    kn_gen_config c = routed_config(_i ? 6144 : 4096, 128, 128, 16, 8);
    c.dtype = c.out_dtype = _i ? KN_BF16 : KN_F32;
    kn_placed p;
    kn_place(&p, ctx, &c);
    for (int repeat = 0; repeat < 8; repeat++) {
        kn_placed_poison(&p, repeat % 2 ? 0xff : 0x3f);
        ck_assert_ok(kn_placed_call(&p, NULL));
        ck_assert_ok(kiln_stream_synchronize(ctx, NULL));
        kn_placed_same(&p, repeat == 0, "calls", repeat);
    }
    kn_take_away(&p);
    ck_assert_ok(kiln_context_destroy(ctx));
}
END_TEST

/* Slot s of T * K: by turns, all to the last, in a sawtooth, to one in three with holes, an expert twice in a row. */
static int64_t assigned(int kind, int64_t s, int64_t experts) {
    switch (kind) {
    case 0: return s % experts;
    case 1: return experts - 1;
    case 2: {
        int64_t e = 0;
        for (int64_t left = s % (experts * (experts + 1) / 2); left > e; e++) left -= e + 1;
        return e;
    }
    case 3: return s % 4 == 1 ? -1 : s % experts / 3 * 3;
    default: return s / 3 % experts;
    }
}

START_TEST(a_graph_follows_the_assignment) {
    if (!there) return;
    enum { EXPERTS = 7 };
    void *stream = NULL, *graph = NULL, *exec = NULL;
    kiln_context *ctx = open_context(KILN_SHAPES_DEFAULT, KILN_PATH_DEFAULT);
    kn_gen_config c = routed_config(90, 128, 72, EXPERTS, 2);
    if (_i) c.dtype = KN_BF16;
    kn_placed p;
    kn_place(&p, ctx, &c);
    ck_assert_ok(kiln_stream_create(ctx, &stream));
    p.g->config.options.common.flags = KILN_PREPARE_ONLY;
    ck_assert_ok(kn_placed_call(&p, stream));
    p.g->config.options.common.flags = 0;
    ck_assert_int_eq(gpu.begin_capture(stream, 0), 0);
    ck_assert_ok(kn_placed_call(&p, stream));
    ck_assert_int_eq(gpu.end_capture(stream, &graph), 0);
    ck_assert_int_eq(gpu.instantiate(&exec, graph, 0), 0);
    for (int kind = 0; kind < 10; kind++) {
        for (int64_t s = 0; s < 90 * 2; s++) kn_gen_put(p.g, IDS, s, (double)assigned(kind % 5, s, EXPERTS));
        ck_assert_ok(kn_gen_reference(p.g));
        ck_assert_ok(kiln_device_copy_in(ctx, p.memory[IDS], p.g->memory[IDS], p.g->memory_bytes[IDS]));
        kn_placed_poison(&p, 0xff);
        ck_assert_int_eq(gpu.graph_launch(exec, stream), 0);
        ck_assert_ok(kiln_stream_synchronize(ctx, stream));
        for (int i = OUT_HIDDEN; i < N_ARGS; i++) kn_placed_fetch(&p, i, NULL);
        kn_status st = kn_gen_check(p.g);
        ck_assert_msg(st == KN_OK, "replay %d: %s", kind, kn_error_message());
    }
    ck_assert_ok(kiln_stream_destroy(ctx, stream));
    kn_take_away(&p);
    ck_assert_ok(kiln_context_destroy(ctx));
}
END_TEST

int main(void) {
    Suite *s = suite_create("ops/routed_gpu");
    TCase *t = tcase_create("gpu");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_loop_test(t, a_graph_follows_the_assignment, 0, 2);
    tcase_add_loop_test(t, bits_repeat, 0, 2);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
