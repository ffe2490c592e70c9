/* The path of a call: check, find or make the plan, find workspace, walk. See api_call.h. */
#include "ops/api_call.h"

#include "base/log.h"
#include "jit/launch.h"
#include "ops/api_context.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

kn_status kn_api_describe(kn_engine *e, const kn_op *op, const DLTensor *const *args, int32_t n_args,
                          const void *options, bool without_data, kn_api_call *out) {
    KN_TRY(kn_validate_options(op, options, &out->options));
    const kn_place_rule place = {.device_type = e->backend->dl_device_type,
                                 .device_id = e->backend->dl_device_id,
                                 .without_data = without_data || (out->options.common.flags & KILN_PREPARE_ONLY)};
    out->call.options = out->options.bytes;
    KN_TRY(kn_validate_tensors(op, args, n_args, &place, &out->call));
    KN_TRY(kn_validate_problem(&out->call, &out->problem));
    out->problem.portable = e->portable;
    out->problem.sm_limit = e->sm_limit;
    return KN_OK;
}

/* ---- what only a new plan's first call does ---------------------------------------------------------------------- */

/* Does the device know these addresses? DLPack's word is checked against the driver's once a plan. */
static kn_status check_pointers(kn_engine *e, const kn_api_call *c) {
    kn_backend *b = e->backend;
    for (int i = 0; b->ops->check_pointer && i < c->call.n_tensors; i++) {
        const kn_tensor *t = &c->call.tensor[i];
        if (t->dtype == KN_DTYPE_NONE || t->bytes == 0 || !t->data) continue;
        kn_status st = b->ops->check_pointer(b, t->data);
        if (st != KN_OK) return kn_error_prefix(st, "%s: ", c->call.op->args[i].name);
    }
    if (!b->ops->check_pointer || !c->options.common.workspace) return KN_OK;
    kn_status st = b->ops->check_pointer(b, c->options.common.workspace);
    return st == KN_OK ? KN_OK : kn_error_prefix(st, "options: workspace: ");
}

kn_status kn_api_add_warm_line(const kn_api_call *c, kn_status st) {
    if (st != KN_E_NOT_CACHED) return st;
    char seen[KN_ERROR_CAP];
    kn_buf line;
    snprintf(seen, sizeof seen, "%s", kn_error_message());
    kn_buf_init(&line, 1 << 20);
    /* The line is of use only whole: the sentence before it gives way. 128 bytes are for what callers put in front. */
    static const char lead[] = "; the line to add to the warm list is ";
    size_t taken = 128 + sizeof lead;
    if (kn_api_record_line(c, &line) == KN_OK && taken + line.len < sizeof seen)
        kn_fail(st, "%.*s%s%s", (int)(sizeof seen - taken - line.len), seen, lead, line.data);
    else
        kn_fail(st, "%s", seen);
    kn_buf_free(&line);
    return st;
}

static void record(kn_engine *e, const kn_api_call *c) {
    kn_buf line;
    kn_buf_init(&line, 1 << 20);
    if (kn_api_record_line(c, &line) == KN_OK)
        kn_record_line(e->record, line.data);
    else
        kn_log(KN_LOG_WARN, "KILN_RECORD: %s", kn_error_message());
    kn_buf_free(&line);
}

static kn_status make_plan(kn_engine *e, const kn_api_call *c, bool capturing, kn_plan **out) {
    bool fresh;
    KN_TRY(check_pointers(e, c));
    kn_status st = kn_plan_add(e, c->call.op, &c->problem, capturing, out, &fresh);
    if (st == KN_OK && fresh && e->record) record(e, c);
    return kn_api_add_warm_line(c, st);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static kn_status check_workspace(const kn_plan *plan, const kiln_common_options *o) {
    KN_REQUIRE(o->workspace_bytes >= plan->workspace_bytes, KN_E_WORKSPACE,
               "options: workspace has %" PRIu64 " bytes; wanted %" PRIu64 " (kiln_workspace_size tells)",
               o->workspace_bytes, plan->workspace_bytes);
    KN_REQUIRE((uintptr_t)o->workspace % 256 == 0, KN_E_ALIGN,
               "options: workspace is at %p; wanted a multiple of 256 bytes", o->workspace);
    return KN_OK;
}

/* What failed in the device's hands, with the sizes that were asked for: "(B=5, E=60)". */
static kn_status add_sizes(const kn_call *call, kn_status st) {
    char text[128] = "";
    size_t len = 0;
    for (int i = 0; i < 26 && len < sizeof text - 32; i++) {
        if (call->letter[i] < 0) continue;
        len +=
            (size_t)snprintf(text + len, sizeof text - len, "%s%c=%" PRId64, len ? ", " : "", 'A' + i, call->letter[i]);
    }
    return kn_error_prefix(st, "(%s) ", text);
}

static kn_status launch(kn_engine *e, kn_plan *plan, const kn_api_call *c, bool capturing, void *workspace,
                        void *stream) {
    if (c->options.common.flags & KILN_PREPARE_ONLY) return KN_OK;
    if (capturing) kn_plan_pin(e, plan);
    kn_status st = kn_launch_plan(e, plan, &c->call, workspace, stream);
    return st == KN_OK ? KN_OK : add_sizes(&c->call, st);
}

static kn_status run_plan(kn_engine *e, kn_plan *plan, const kn_api_call *c, bool capturing, void *stream) {
    const kiln_common_options *o = &c->options.common;
    if (plan->workspace_bytes == 0) return launch(e, plan, c, capturing, NULL, stream);
    if (o->workspace) {
        KN_TRY(check_workspace(plan, o));
        return launch(e, plan, c, capturing, o->workspace, stream);
    }
    KN_REQUIRE(!capturing, KN_E_CAPTURE,
               "the stream is being captured, and a captured call must bring its workspace: %" PRIu64
               " bytes in options.common.workspace",
               plan->workspace_bytes);
    kn_workspace *w;
    void *data;
    KN_TRY(kn_workspace_take(e, stream, plan->workspace_bytes, &w, &data));
    kn_status st = launch(e, plan, c, capturing, data, stream);
    kn_workspace_give(w);
    return st;
}

static kn_status run(kn_engine *e, const kn_op *op, const DLTensor *const *args, int32_t n_args, const void *options,
                     void *stream) {
    kn_api_call c;
    bool capturing = false;
    kn_count(&e->count.calls, 1);
    KN_TRY(kn_api_describe(e, op, args, n_args, options, false, &c));
    KN_TRY(e->backend->ops->stream_capturing(e->backend, stream, &capturing));
    kn_plan *plan = kn_plan_find(e, &c.problem);
    if (plan)
        kn_count(&e->count.plan_hits, 1);
    else
        KN_TRY(make_plan(e, &c, capturing, &plan));
    kn_status st = run_plan(e, plan, &c, capturing, stream);
    kn_plan_release(e, plan);
    return st;
}

int32_t kn_api_run(kiln_context *ctx, int op_index, const DLTensor *const *args, int32_t n_args, const void *options,
                   void *stream) {
    const kn_op *op = kn_op_at(op_index);
    kn_status st;
    KN_WITH_ENGINE(ctx, e, st, run(e, op, args, n_args, options, stream));
    if (st == KN_OK) return KN_OK;
    kn_log(KN_LOG_ALL, "%s: %s", op->name, kn_error_message());
    return kn_error_prefix(st, "%s: ", op->name);
}
