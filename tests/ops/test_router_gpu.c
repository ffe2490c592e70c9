/* router_backward on a real GPU: the same bits a hundred times over, called and replayed from a CUDA graph, and rows
 * that know nothing of other tokens. Skipped where there is none. */
#include "test_router_support.h"

#include "support/gpu.h"

static kn_gpu gpu;
static bool there;

static void setup(void) {
    there = kn_gpu_open(&gpu);
}

/* One launch and two, narrow slices of columns and wide ones, with and without sums of grad_gate_bias; the engine's
 * products. */
static const struct {
    int64_t t, h, e, k;
    uint64_t without;
    kn_dtype dtype;
} shapes[] = {{190, 2048, 128, 8, 1 << OUT_BIAS | 1 << OUT_LOGITS, KN_BF16},
              {150, 640, 72, 8, 0, KN_F16},
              {1163, 2048, 128, 8, 1 << OUT_BIAS | 1 << OUT_LOGITS, KN_BF16},
              {2048, 512, 128, 8, 0, KN_BF16},
              {300, 7168, 256, 8, 0, KN_BF16},
              {3557, 512, 128, 8, 0, KN_F16},
              {300, 200, 60, 4, 0, KN_F32}};
enum { SHAPES = sizeof shapes / sizeof *shapes, REPEATS = 100 };

static kn_gen_config config_at(int i) {
    kn_gen_config c = config_of(shapes[i].t, shapes[i].h, shapes[i].e, shapes[i].k);
    c.absent |= shapes[i].without;
    c.dtype = shapes[i].dtype;
    c.out_dtype = c.dtype;
    return c;
}

START_TEST(bits_repeat) {
    if (!there) return;
    void *stream = NULL, *graph = NULL, *exec = NULL;
    kiln_context *ctx = open_context(KILN_SHAPES_DEFAULT, KILN_PATH_DEFAULT);
    kn_gen_config c = config_at(_i);
    kn_placed p;
    kn_place(&p, ctx, &c);
    ck_assert_ok(kiln_stream_create(ctx, &stream));
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        if (repeat % 10 == 0) kn_placed_poison(&p, repeat % 20 ? 0xff : 0x3f);
        ck_assert_ok(kn_placed_call(&p, stream));
        ck_assert_ok(kiln_stream_synchronize(ctx, stream));
        kn_placed_same(&p, repeat == 0, "calls", repeat);
    }
    ck_assert_int_eq(gpu.begin_capture(stream, 0), 0);
    ck_assert_ok(kn_placed_call(&p, stream));
    ck_assert_int_eq(gpu.end_capture(stream, &graph), 0);
    ck_assert_int_eq(gpu.instantiate(&exec, graph, 0), 0);
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        if (repeat % 10 == 0) kn_placed_poison(&p, 0xff);
        ck_assert_int_eq(gpu.graph_launch(exec, stream), 0);
        ck_assert_ok(kiln_stream_synchronize(ctx, stream));
        kn_placed_same(&p, false, "replays", repeat);
    }
    ck_assert_ok(kiln_stream_destroy(ctx, stream));
    kn_take_away(&p);
    ck_assert_ok(kiln_context_destroy(ctx));
}
END_TEST

/* Every other token becomes another one's twin, and the rest keep their rows of the outputs to the bit. */
START_TEST(rows_know_no_other_token) {
    if (!there) return;
    static const int rows[] = {HIDDEN, PROBS, SELECTED, WEIGHTS_SUM, GRAD_WEIGHTS, GRAD_LOGITS};
    kiln_context *ctx = open_context(KILN_SHAPES_DEFAULT, KILN_PATH_DEFAULT);
    kn_gen_config c = config_at(_i);
    kn_gen *before = make(&c), *after = make(&c);
    int64_t t = c.tokens;
    for (int64_t i = 0; i + 1 < t; i += 2) {
        for (size_t a = 0; a < sizeof rows / sizeof *rows; a++) {
            int64_t n = kn_gen_elements(after, rows[a]) / t;
            for (int64_t j = 0; j < n; j++)
                kn_gen_put(after, rows[a], i * n + j, kn_gen_get(before, rows[a], (t - 1 - i) * n + j));
        }
    }
    ck_assert_ok(kn_gen_run(before, ctx));
    ck_assert_ok(kn_gen_run(after, ctx));
    for (int64_t i = 1; i < t; i += 2) {
        same_row(after, i, before, i, OUT_HIDDEN);
        if (after->args[OUT_LOGITS]) same_row(after, i, before, i, OUT_LOGITS);
    }
    kn_gen_free(before);
    kn_gen_free(after);
    ck_assert_ok(kiln_context_destroy(ctx));
}
END_TEST

int main(void) {
    Suite *s = suite_create("ops/router_gpu");
    TCase *t = tcase_create("gpu");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_loop_test(t, bits_repeat, 0, SHAPES);
    tcase_add_loop_test(t, rows_know_no_other_token, 0, SHAPES);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
