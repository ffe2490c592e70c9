/* Tests on a real GPU: see gpu.h. */
#include "support/gpu.h"

#include "ops/api_call.h"
#include "support/suite.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void find(void *driver, const char *name, void *out) {
    void *address = dlsym(driver, name);
    ck_assert_msg(address != NULL, "the driver has no %s", name);
    memcpy(out, &address, sizeof address);
}

bool kn_gpu_open(kn_gpu *gpu) {
    int32_t count = 0;
    int (*set_context)(void *context), (*retain_primary)(void **context, int device);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL;
    if (!driver || kiln_device_count(&count) != KILN_OK || count == 0) {
        printf("skipped: no GPU (%s)\n", kiln_error_message());
        return false;
    }
    find(driver, "cuStreamBeginCapture_v2", &gpu->begin_capture);
    find(driver, "cuStreamEndCapture", &gpu->end_capture);
    find(driver, "cuGraphInstantiateWithFlags", &gpu->instantiate);
    find(driver, "cuGraphLaunch", &gpu->graph_launch);
    find(driver, "cuMemGetInfo_v2", &gpu->mem_info);
    find(driver, "cuCtxSetCurrent", &set_context);
    find(driver, "cuDevicePrimaryCtxRetain", &retain_primary);
    ck_assert_int_eq(retain_primary(&context, 0), 0);
    ck_assert_int_eq(set_context(context), 0);
    return true;
}

void kn_place(kn_placed *p, kiln_context *ctx, const kn_gen_config *c) {
    uint64_t bytes;
    int32_t type, id;
    *p = (kn_placed){.ctx = ctx};
    ck_assert_ok(kiln_context_device(ctx, &type, &id));
    ck_assert_ok(kn_gen_make(c, &p->g));
    p->op = kn_op_find(p->g->op.name);
    for (int i = 0; i < p->op->n_args; i++) {
        if (!p->g->args[i]) continue;
        p->there[i] = *p->g->args[i];
        ck_assert_ok(kiln_device_alloc(ctx, p->g->memory_bytes[i], &p->memory[i]));
        ck_assert_ok(kiln_device_copy_in(ctx, p->memory[i], p->g->memory[i], p->g->memory_bytes[i]));
        p->there[i].data = (char *)p->memory[i] + ((char *)p->g->args[i]->data - (char *)p->g->memory[i]);
        memcpy(&p->there[i].device.device_type, &type, sizeof type);
        p->there[i].device.device_id = id;
        p->args[i] = &p->there[i];
    }
    kiln_common_options *common = &p->g->config.options.common;
    common->struct_size = p->op->options_size;
    ck_assert_ok(kiln_workspace_size(ctx, p->op->name, p->args, p->op->n_args, common, &bytes));
    if (bytes == 0) return;
    ck_assert_ok(kiln_device_alloc(ctx, bytes, &p->workspace));
    common->workspace = p->workspace;
    common->workspace_bytes = bytes;
}

void kn_take_away(kn_placed *p) {
    for (int i = 0; i < p->op->n_args; i++)
        if (p->args[i]) ck_assert_ok(kiln_device_free(p->ctx, p->memory[i]));
    if (p->workspace) ck_assert_ok(kiln_device_free(p->ctx, p->workspace));
    kn_gen_free(p->g);
}

kn_status kn_placed_call(kn_placed *p, void *stream) {
    return kn_api_run(p->ctx, p->op->index, p->args, p->op->n_args, &p->g->config.options, stream);
}

static int first_output(const kn_placed *p) {
    return p->op->n_args - p->op->n_outputs;
}

void kn_placed_poison(kn_placed *p, int byte) {
    for (int i = first_output(p); i < p->op->n_args; i++) {
        if (!p->args[i]) continue;
        uint64_t bytes = (uint64_t)kn_gen_elements(p->g, i) * kn_dtype_size(p->g->call.tensor[i].dtype);
        ck_assert_ok(kiln_device_fill(p->ctx, p->there[i].data, byte, bytes, NULL));
    }
    if (p->workspace)
        ck_assert_ok(kiln_device_fill(p->ctx, p->workspace, byte, p->g->config.options.common.workspace_bytes, NULL));
    ck_assert_ok(kiln_stream_synchronize(p->ctx, NULL));
}

void kn_placed_fetch(kn_placed *p, int i, void *to) {
    ck_assert_ok(kiln_device_copy_out(p->ctx, to ? to : p->g->memory[i], p->memory[i], p->g->memory_bytes[i]));
}

void kn_placed_same(kn_placed *p, bool first, const char *what, int repeat) {
    for (int i = first_output(p); i < p->op->n_args; i++) {
        if (!p->args[i]) continue;
        if (first) {
            kn_placed_fetch(p, i, NULL);
            continue;
        }
        void *now = malloc(p->g->memory_bytes[i]);
        kn_placed_fetch(p, i, now);
        ck_assert_msg(memcmp(now, p->g->memory[i], p->g->memory_bytes[i]) == 0, "%s, repeat %d: %s differs", what,
                      repeat, p->op->args[i].name);
        free(now);
    }
}
