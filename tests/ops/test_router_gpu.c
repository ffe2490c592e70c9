/* router_backward on a real GPU: the same bits a hundred times over, called and replayed from a CUDA graph, and rows
 * that know nothing of other tokens. Skipped where there is none. */
#include "test_router_support.h"

#include "ops/api_call.h"

#include <dlfcn.h>
#include <stdlib.h>

/* The driver's functions that Kiln itself has no use for. */
static int (*begin_capture)(void *stream, int mode);
static int (*end_capture)(void *stream, void **graph);
static int (*instantiate)(void **exec, void *graph, unsigned long long flags);
static int (*graph_launch)(void *exec, void *stream);
static int (*set_context)(void *context);
static int (*retain_primary)(void **context, int device);

static void find(void *driver, const char *name, void *out) {
    void *address = dlsym(driver, name);
    ck_assert_msg(address != NULL, "the driver has no %s", name);
    memcpy(out, &address, sizeof address);
}

static bool skipped;

/* In each test's own process: a driver does not survive a fork. */
static void setup(void) {
    int32_t count = 0;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL;
    skipped = !driver || kiln_device_count(&count) != KILN_OK || count == 0;
    if (skipped) {
        printf("skipped: no GPU (%s)\n", kiln_error_message());
        return;
    }
    find(driver, "cuStreamBeginCapture_v2", &begin_capture);
    find(driver, "cuStreamEndCapture", &end_capture);
    find(driver, "cuGraphInstantiateWithFlags", &instantiate);
    find(driver, "cuGraphLaunch", &graph_launch);
    find(driver, "cuCtxSetCurrent", &set_context);
    find(driver, "cuDevicePrimaryCtxRetain", &retain_primary);
    ck_assert_int_eq(retain_primary(&context, 0), 0);
    ck_assert_int_eq(set_context(context), 0);
}

/* A problem with all of its tensors on the device, and a workspace. */
typedef struct placed {
    kiln_context *ctx;
    kn_gen *g;
    const kn_op *op;
    DLTensor there[N_ARGS];
    const DLTensor *args[N_ARGS];
    void *memory[N_ARGS];
    void *workspace; /* NULL: the plan needs none */
} placed;

static void place(placed *p, kiln_context *ctx, const kn_gen_config *c) {
    uint64_t bytes;
    *p = (placed){.ctx = ctx, .op = kn_op_find("router_backward")};
    ck_assert_ok(kn_gen_make(c, &p->g));
    for (int i = 0; i < N_ARGS; i++) {
        if (!p->g->args[i]) continue;
        p->there[i] = *p->g->args[i];
        ck_assert_ok(kiln_device_alloc(ctx, p->g->memory_bytes[i], &p->memory[i]));
        ck_assert_ok(kiln_device_copy_in(ctx, p->memory[i], p->g->memory[i], p->g->memory_bytes[i]));
        p->there[i].data = (char *)p->memory[i] + ((char *)p->g->args[i]->data - (char *)p->g->memory[i]);
        p->there[i].device.device_type = 2;
        p->args[i] = &p->there[i];
    }
    kiln_common_options *common = &p->g->config.options.common;
    common->struct_size = sizeof p->g->config.options.router;
    ck_assert_ok(kiln_workspace_size(ctx, p->op->name, p->args, N_ARGS, common, &bytes));
    if (bytes == 0) return;
    ck_assert_ok(kiln_device_alloc(ctx, bytes, &p->workspace));
    common->workspace = p->workspace;
    common->workspace_bytes = bytes;
}

static void take_away(placed *p) {
    for (int i = 0; i < N_ARGS; i++)
        if (p->args[i]) ck_assert_ok(kiln_device_free(p->ctx, p->memory[i]));
    if (p->workspace) ck_assert_ok(kiln_device_free(p->ctx, p->workspace));
    kn_gen_free(p->g);
}

static kn_status call(placed *p, void *stream) {
    return kn_api_run(p->ctx, p->op->index, p->args, N_ARGS, &p->g->config.options, stream);
}

/* What was in the outputs and the workspace before has no part in the result. */
static void poison(placed *p, int byte) {
    for (int i = OUT_HIDDEN; i < N_ARGS; i++) {
        if (!p->args[i]) continue;
        uint64_t bytes = (uint64_t)kn_gen_elements(p->g, i) * kn_dtype_size(p->g->call.tensor[i].dtype);
        ck_assert_ok(kiln_device_fill(p->ctx, p->there[i].data, byte, bytes, NULL));
    }
    if (p->workspace)
        ck_assert_ok(kiln_device_fill(p->ctx, p->workspace, byte, p->g->config.options.common.workspace_bytes, NULL));
    ck_assert_ok(kiln_stream_synchronize(p->ctx, NULL));
}

/* The outputs as they are now are what g holds; `first`: let it hold them. */
static void same_outputs(placed *p, bool first, const char *what, int repeat) {
    for (int i = OUT_HIDDEN; i < N_ARGS; i++) {
        if (!p->args[i]) continue;
        void *now = malloc(p->g->memory_bytes[i]);
        ck_assert_ok(kiln_device_copy_out(p->ctx, now, p->memory[i], p->g->memory_bytes[i]));
        if (first) memcpy(p->g->memory[i], now, p->g->memory_bytes[i]);
        ck_assert_msg(memcmp(now, p->g->memory[i], p->g->memory_bytes[i]) == 0, "%s, repeat %d: %s differs", what,
                      repeat, p->op->args[i].name);
        free(now);
    }
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
    if (skipped) return;
    void *stream = NULL, *graph = NULL, *exec = NULL;
    kiln_context *ctx = open_context(KILN_SHAPES_DEFAULT, KILN_PATH_DEFAULT);
    kn_gen_config c = config_at(_i);
    placed p;
    place(&p, ctx, &c);
    ck_assert_ok(kiln_stream_create(ctx, &stream));
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        if (repeat % 10 == 0) poison(&p, repeat % 20 ? 0xff : 0x3f);
        ck_assert_ok(call(&p, stream));
        ck_assert_ok(kiln_stream_synchronize(ctx, stream));
        same_outputs(&p, repeat == 0, "calls", repeat);
    }
    ck_assert_int_eq(begin_capture(stream, 0), 0);
    ck_assert_ok(call(&p, stream));
    ck_assert_int_eq(end_capture(stream, &graph), 0);
    ck_assert_int_eq(instantiate(&exec, graph, 0), 0);
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        if (repeat % 10 == 0) poison(&p, 0xff);
        ck_assert_int_eq(graph_launch(exec, stream), 0);
        ck_assert_ok(kiln_stream_synchronize(ctx, stream));
        same_outputs(&p, false, "replays", repeat);
    }
    ck_assert_ok(kiln_stream_destroy(ctx, stream));
    take_away(&p);
    ck_assert_ok(kiln_context_destroy(ctx));
}
END_TEST

/* Every other token becomes another one's twin, and the rest keep their rows of the outputs to the bit. */
START_TEST(rows_know_no_other_token) {
    if (skipped) return;
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
