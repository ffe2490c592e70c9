/* Versions, errors, and what a context tells about itself. */
#include "base/alloc.h"
#include "base/status.h"
#include "jit/plan.h"
#include "kiln/kiln.h"
#include "ops/api_call.h"
#include "ops/api_context.h"

#include <stdio.h>
#include <string.h>

/* The public codes are the internal ones. */
#define SAME(name) _Static_assert(KILN_##name == KN_##name, #name)
SAME(OK);
SAME(E_ARG);
SAME(E_SHAPE);
SAME(E_DTYPE);
SAME(E_ALIGN);
SAME(E_DEVICE);
SAME(E_OVERLAP);
SAME(E_WORKSPACE);
SAME(E_UNAVAILABLE);
SAME(E_NOT_CACHED);
SAME(E_CAPTURE);
SAME(E_UNSUPPORTED);
SAME(E_TEMPLATE);
SAME(E_ASSEMBLE);
SAME(E_LOAD);
SAME(E_LAUNCH);
SAME(E_SIM);
SAME(E_IO);
SAME(E_FORMAT);
SAME(E_NOMEM);
SAME(E_ABI);
SAME(E_HANDLE);
SAME(E_FORK);
SAME(E_INTERNAL);

int32_t kiln_abi_version(void) {
    return KILN_ABI_VERSION;
}

const char *kiln_version(void) {
    return KN_VERSION;
}

const char *kiln_status_name(int32_t status) {
    return kn_status_name(status);
}

const char *kiln_error_message(void) {
    return kn_error_message();
}

int32_t kiln_error_copy(char *buf, uint64_t cap) {
    if (!buf || cap == 0) return KN_E_ARG; /* without a sentence: it would replace the one that is asked for */
    snprintf(buf, (size_t)cap, "%s", kn_error_message());
    return KN_OK;
}

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

static kn_status get_device(kn_engine *e, int32_t *type, int32_t *id) {
    if (type) *type = e->backend->dl_device_type;
    if (id) *id = e->backend->dl_device_id;
    return KN_OK;
}

int32_t kiln_context_device(kiln_context *ctx, int32_t *device_type, int32_t *device_id) {
    kn_status st;
    KN_WITH_ENGINE(ctx, e, st, get_device(e, device_type, device_id));
    return st;
}

static kn_status get_faults(kn_engine *e, uint64_t *count) {
    KN_REQUIRE(count, KN_E_ARG, "kiln_context_device_faults: count is NULL");
    *count = __atomic_load_n(e->faults_host, __ATOMIC_RELAXED);
    return KN_OK;
}

int32_t kiln_context_device_faults(kiln_context *ctx, uint64_t *count) {
    kn_status st;
    KN_WITH_ENGINE(ctx, e, st, get_faults(e, count));
    return st;
}

static kn_status reset_faults(kn_engine *e) {
    __atomic_store_n(e->faults_host, 0, __ATOMIC_RELAXED);
    return KN_OK;
}

int32_t kiln_context_device_faults_reset(kiln_context *ctx) {
    kn_status st;
    KN_WITH_ENGINE(ctx, e, st, reset_faults(e));
    return st;
}

/* ---- workspace --------------------------------------------------------------------------------------------------- */

/* The most that any variant which the policy may choose needs. */
static kn_status measure(kn_engine *e, const kn_api_call *c, kn_program *program, uint64_t *bytes) {
    uint32_t variants = kn_plan_variants(e, c->call.op);
    *bytes = 0;
    for (uint8_t generic = 0; generic < 2; generic++) {
        if (!(variants >> generic & 1)) continue;
        kn_problem p = c->problem;
        p.generic = generic;
        KN_TRY(kn_plan_program(e, c->call.op, &p, program));
        if (program->workspace_bytes > *bytes) *bytes = program->workspace_bytes;
    }
    return KN_OK;
}

static kn_status workspace_size(kn_engine *e, const kn_op *op, const DLTensor *const *args, int32_t n_args,
                                const void *options, uint64_t *bytes) {
    kn_api_call c;
    kn_program *program = NULL;
    KN_REQUIRE(bytes, KN_E_ARG, "kiln_workspace_size: bytes is NULL");
    KN_TRY(kn_api_describe(e, op, args, n_args, options, true, &c));
    KN_TRY(KN_NEW(&program, 1, "a program"));
    kn_status st = measure(e, &c, program, bytes);
    kn_free(program);
    return st;
}

int32_t kiln_workspace_size(kiln_context *ctx, const char *op_name, const DLTensor *const *args, int32_t n_args,
                            const void *options, uint64_t *bytes) {
    const kn_op *op = NULL;
    kn_status st;
    KN_TRY(kn_api_find_op(op_name, &op));
    KN_WITH_ENGINE(ctx, e, st, workspace_size(e, op, args, n_args, options, bytes));
    return st == KN_OK ? KN_OK : kn_error_prefix(st, "%s: ", op->name);
}

/* ---- shared by the other entry points ---------------------------------------------------------------------------- */

kn_status kn_api_find_op(const char *name, const kn_op **out) {
    *out = kn_op_find(name);
    KN_REQUIRE(*out, KN_E_ARG, "there is no operation \"%.100s\"", name ? name : "(NULL)");
    return KN_OK;
}

kn_status kn_api_give_text(kn_buf *b, char *buf, uint64_t cap, uint64_t *needed) {
    kn_status st = kn_buf_status(b);
    if (st == KN_OK && needed) *needed = b->len + 1;
    if (st == KN_OK && buf && b->len + 1 > cap)
        st = kn_fail(KN_E_ARG, "the text has %zu bytes, the buffer has %llu", b->len + 1, (unsigned long long)cap);
    if (st == KN_OK && buf) memcpy(buf, b->data, b->len + 1);
    kn_buf_free(b);
    return st;
}
