/* routed_experts_backward on a real GPU: bits that repeat however many tokens there are, and a CUDA graph whose
 * assignment of tokens to experts changes from replay to replay. Skipped where there is none. */
#include "routed_support.h"

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
    void *memory[N_ARGS]; /* the tensors' memory, with what surrounds their elements */
    void *workspace;
} placed;

static void place(placed *p, kiln_context *ctx, const kn_gen_config *c) {
    uint64_t bytes;
    *p = (placed){.ctx = ctx, .op = kn_op_find("routed_experts_backward")};
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
    common->struct_size = sizeof p->g->config.options.routed;
    ck_assert_ok(kiln_workspace_size(ctx, p->op->name, p->args, N_ARGS, common, &bytes));
    ck_assert_ok(kiln_device_alloc(ctx, bytes, &p->workspace));
    common->workspace = p->workspace;
    common->workspace_bytes = bytes;
}

static void take_away(placed *p) {
    for (int i = 0; i < N_ARGS; i++)
        if (p->args[i]) ck_assert_ok(kiln_device_free(p->ctx, p->memory[i]));
    ck_assert_ok(kiln_device_free(p->ctx, p->workspace));
    kn_gen_free(p->g);
}

static kn_status call(placed *p, void *stream) {
    return kn_api_run(p->ctx, p->op->index, p->args, N_ARGS, &p->g->config.options, stream);
}

/* What was in the outputs and the workspace before has no part in the result; what surrounds the outputs' elements
 * stays as the checks want to find it. */
static void poison(placed *p, int byte) {
    for (int i = OUT_HIDDEN; i < N_ARGS; i++) {
        uint64_t bytes = (uint64_t)kn_gen_elements(p->g, i) * kn_dtype_size(p->g->call.tensor[i].dtype);
        ck_assert_ok(kiln_device_fill(p->ctx, p->there[i].data, byte, bytes, NULL));
    }
    ck_assert_ok(kiln_device_fill(p->ctx, p->workspace, byte, p->g->config.options.common.workspace_bytes, NULL));
    ck_assert_ok(kiln_stream_synchronize(p->ctx, NULL));
}

static void fetch(placed *p, int i, void *to) {
    ck_assert_ok(kiln_device_copy_out(p->ctx, to, p->memory[i], p->g->memory_bytes[i]));
}

/* Balanced fp32 takes other kernels than bf16. */
START_TEST(bits_repeat) {
    if (skipped) return;
    kiln_context *ctx = open_context(KILN_SHAPES_DEFAULT, KILN_PATH_DEFAULT);
    kn_gen_config c = routed_config(_i ? 6144 : 4096, 128, 128, 16, 8);
    c.dtype = c.out_dtype = _i ? KN_BF16 : KN_F32;
    placed p;
    place(&p, ctx, &c);
    for (int repeat = 0; repeat < 8; repeat++) {
        poison(&p, repeat % 2 ? 0xff : 0x3f);
        ck_assert_ok(call(&p, NULL));
        ck_assert_ok(kiln_stream_synchronize(ctx, NULL));
        for (int i = OUT_HIDDEN; i < N_ARGS; i++) {
            void *now = malloc(p.g->memory_bytes[i]);
            fetch(&p, i, repeat ? now : p.g->memory[i]);
            ck_assert_msg(!repeat || memcmp(now, p.g->memory[i], p.g->memory_bytes[i]) == 0, "repeat %d: %s differs",
                          repeat, p.op->args[i].name);
            free(now);
        }
    }
    take_away(&p);
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
    if (skipped) return;
    enum { EXPERTS = 7 };
    void *stream = NULL, *graph = NULL, *exec = NULL;
    kiln_context *ctx = open_context(KILN_SHAPES_DEFAULT, KILN_PATH_DEFAULT);
    kn_gen_config c = routed_config(90, 128, 72, EXPERTS, 2);
    if (_i) c.dtype = KN_BF16;
    placed p;
    place(&p, ctx, &c);
    ck_assert_ok(kiln_stream_create(ctx, &stream));
    p.g->config.options.common.flags = KILN_PREPARE_ONLY;
    ck_assert_ok(call(&p, stream));
    p.g->config.options.common.flags = 0;
    ck_assert_int_eq(begin_capture(stream, 0), 0);
    ck_assert_ok(call(&p, stream));
    ck_assert_int_eq(end_capture(stream, &graph), 0);
    ck_assert_int_eq(instantiate(&exec, graph, 0), 0);
    for (int kind = 0; kind < 10; kind++) {
        for (int64_t s = 0; s < 90 * 2; s++) kn_gen_put(p.g, IDS, s, (double)assigned(kind % 5, s, EXPERTS));
        ck_assert_ok(kn_gen_reference(p.g));
        ck_assert_ok(kiln_device_copy_in(ctx, p.memory[IDS], p.g->memory[IDS], p.g->memory_bytes[IDS]));
        poison(&p, 0xff);
        ck_assert_int_eq(graph_launch(exec, stream), 0);
        ck_assert_ok(kiln_stream_synchronize(ctx, stream));
        for (int i = OUT_HIDDEN; i < N_ARGS; i++) fetch(&p, i, p.g->memory[i]);
        kn_status st = kn_gen_check(p.g);
        ck_assert_msg(st == KN_OK, "replay %d: %s", kind, kn_error_message());
    }
    ck_assert_ok(kiln_stream_destroy(ctx, stream));
    take_away(&p);
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
