/* Device memory, streams and events of a context, for tools that have no CUDA binding of their own. */
#include "kiln/kiln_tools.h"
#include "ops/api_context.h"

#include <stddef.h>

int32_t kiln_device_count(int32_t *count) {
    KN_REQUIRE(count, KN_E_ARG, "kiln_device_count: count is NULL");
    int n = 0;
    KN_TRY(kn_backend_cuda_count(&n));
    *count = n;
    return KN_OK;
}

/* The backend function `name` with the context's backend in front. */
#define CALL(ctx, name, ...)                                                                                           \
    kn_status st;                                                                                                      \
    KN_WITH_ENGINE(ctx, e, st, e->backend->ops->name(e->backend, __VA_ARGS__));                                        \
    return st

int32_t kiln_device_alloc(kiln_context *ctx, uint64_t bytes, void **out) {
    KN_REQUIRE(out, KN_E_ARG, "kiln_device_alloc: out is NULL");
    *out = NULL;
    CALL(ctx, alloc, bytes, out);
}

int32_t kiln_device_free(kiln_context *ctx, void *p) {
    CALL(ctx, free, p);
}

int32_t kiln_device_copy_in(kiln_context *ctx, void *dst, const void *src, uint64_t bytes) {
    CALL(ctx, copy_in, dst, src, bytes);
}

int32_t kiln_device_copy_out(kiln_context *ctx, void *dst, const void *src, uint64_t bytes) {
    CALL(ctx, copy_out, dst, src, bytes);
}

int32_t kiln_device_fill(kiln_context *ctx, void *dst, int32_t byte, uint64_t bytes, void *stream) {
    CALL(ctx, fill, dst, (uint8_t)byte, bytes, stream);
}

int32_t kiln_stream_create(kiln_context *ctx, void **out) {
    KN_REQUIRE(out, KN_E_ARG, "kiln_stream_create: out is NULL");
    *out = NULL;
    CALL(ctx, stream_create, out);
}

int32_t kiln_stream_destroy(kiln_context *ctx, void *stream) {
    CALL(ctx, stream_destroy, stream);
}

int32_t kiln_stream_synchronize(kiln_context *ctx, void *stream) {
    CALL(ctx, stream_synchronize, stream);
}

int32_t kiln_event_create(kiln_context *ctx, void **out) {
    KN_REQUIRE(out, KN_E_ARG, "kiln_event_create: out is NULL");
    *out = NULL;
    CALL(ctx, event_create, out);
}

int32_t kiln_event_destroy(kiln_context *ctx, void *event) {
    CALL(ctx, event_destroy, event);
}

int32_t kiln_event_record(kiln_context *ctx, void *event, void *stream) {
    CALL(ctx, event_record, event, stream);
}

int32_t kiln_event_elapsed_us(kiln_context *ctx, void *start, void *stop, double *us) {
    KN_REQUIRE(us, KN_E_ARG, "kiln_event_elapsed_us: us is NULL");
    CALL(ctx, event_elapsed_us, start, stop, us);
}
