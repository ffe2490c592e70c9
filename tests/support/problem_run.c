/* Runs a random problem: host tensors as they are, or copies of them on a device. */
#include "support/problem_run.h"

#include "kiln/kiln_tools.h"
#include "ops/api_call.h"

#include <string.h>

enum { HOST = 1 };

/* The argument before `arg` that lies at the same address, or `arg` itself. */
static int first_of(const kn_gen *g, int arg) {
    for (int i = 0; i < arg; i++) {
        if (g->args[i] && g->args[i]->data == g->args[arg]->data) return i;
    }
    return arg;
}

/* The owner of argument i's memory, whole, with its gaps. */
static int owner_of(const kn_gen *g, int arg) {
    for (int i = 0; i < g->op.n_args; i++) {
        const char *from = g->memory[i], *data = g->args[arg]->data;
        if (from && data >= from && data < from + g->memory_bytes[i]) return i;
    }
    return arg;
}

static kn_status copy_to(kiln_context *ctx, const kn_gen *g, void **memory) {
    for (int i = 0; i < g->op.n_args; i++) {
        if (!g->args[i] || first_of(g, i) != i) continue;
        int owner = owner_of(g, i);
        KN_TRY(kiln_device_alloc(ctx, g->memory_bytes[owner], &memory[i]));
        KN_TRY(kiln_device_copy_in(ctx, memory[i], g->memory[owner], g->memory_bytes[owner]));
    }
    return KN_OK;
}

static kn_status run_copies(kiln_context *ctx, kn_gen *g, const kn_op *op, void **memory, int32_t type, int32_t id) {
    DLTensor there[KN_MAX_TENSORS];
    const DLTensor *args[KN_MAX_TENSORS] = {0};
    KN_TRY(copy_to(ctx, g, memory));
    for (int i = 0; i < op->n_args; i++) {
        if (!g->args[i]) continue;
        int owner = owner_of(g, i);
        there[i] = *g->args[i];
        there[i].data = (char *)memory[first_of(g, i)] + ((char *)g->args[i]->data - (char *)g->memory[owner]);
        memcpy(&there[i].device.device_type, &type, sizeof type);
        there[i].device.device_id = id;
        args[i] = &there[i];
    }
    KN_TRY(kn_api_run(ctx, op->index, args, op->n_args, g->call.options, NULL));
    KN_TRY(kiln_stream_synchronize(ctx, NULL));
    for (int i = 0; i < op->n_args; i++) {
        int owner = g->args[i] ? owner_of(g, i) : 0;
        if (memory[i]) KN_TRY(kiln_device_copy_out(ctx, g->memory[owner], memory[i], g->memory_bytes[owner]));
    }
    return KN_OK;
}

kn_status kn_gen_run(kn_gen *g, kiln_context *ctx) {
    const kn_op *op = kn_op_find(g->op.name);
    void *memory[KN_MAX_TENSORS] = {0};
    int32_t type, id;
    KN_REQUIRE(op, KN_E_ARG, "the library has no operation %s", g->op.name);
    KN_TRY(kiln_context_device(ctx, &type, &id));
    if (type == HOST) return kn_api_run(ctx, op->index, g->args, op->n_args, g->call.options, NULL);
    kn_status st = run_copies(ctx, g, op, memory, type, id);
    for (int i = 0; i < KN_MAX_TENSORS; i++) {
        if (memory[i]) kiln_device_free(ctx, memory[i]);
    }
    return st;
}

kn_status kn_gen_plan(const kn_gen *g, kiln_context *ctx, uint32_t flags, char *json, uint64_t capacity) {
    DLTensor there[KN_MAX_TENSORS];
    const DLTensor *args[KN_MAX_TENSORS] = {0};
    int32_t type, id;
    KN_TRY(kiln_context_device(ctx, &type, &id));
    for (int i = 0; i < g->op.n_args; i++) {
        if (!g->args[i]) continue;
        there[i] = *g->args[i];
        memcpy(&there[i].device.device_type, &type, sizeof type);
        there[i].device.device_id = id;
        args[i] = &there[i];
    }
    return kiln_plan_json(ctx, g->op.name, args, g->op.n_args, g->call.options, flags, json, capacity, NULL);
}
