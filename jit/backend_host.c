/* See backend_host.h. */
#include "jit/backend_host.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <string.h>

enum { ALIGN = 256 }; /* as cuMemAlloc gives */

/* The pointer that kn_malloc gave stands right before the aligned memory. */
kn_status kn_host_alloc(kn_backend *b, size_t bytes, void **out) {
    (void)b;
    char *raw = bytes < SIZE_MAX - 2 * ALIGN ? kn_malloc(bytes + 2 * ALIGN) : NULL;
    if (!raw) return kn_fail(KN_E_NOMEM, "out of memory: %zu bytes of device memory on the simulator", bytes);
    uintptr_t at = ((uintptr_t)raw + sizeof(void *) + ALIGN - 1) / ALIGN * ALIGN;
    memcpy((char *)at - sizeof raw, &raw, sizeof raw);
    *out = (void *)at;
    return KN_OK;
}

kn_status kn_host_free(kn_backend *b, void *p) {
    (void)b;
    void *raw;
    if (!p) return KN_OK;
    memcpy(&raw, (char *)p - sizeof raw, sizeof raw);
    kn_free(raw);
    return KN_OK;
}

kn_status kn_host_alloc_async(kn_backend *b, size_t bytes, void *stream, void **out) {
    KN_TRY(kn_host_check_stream(stream));
    return kn_host_alloc(b, bytes, out);
}

kn_status kn_host_free_async(kn_backend *b, void *p, void *stream) {
    KN_TRY(kn_host_check_stream(stream));
    return kn_host_free(b, p);
}

kn_status kn_host_copy(kn_backend *b, void *dst, const void *src, size_t bytes) {
    (void)b;
    if (bytes) memmove(dst, src, bytes);
    return KN_OK;
}

kn_status kn_host_fill(kn_backend *b, void *dst, uint8_t value, size_t bytes, void *stream) {
    (void)b;
    KN_TRY(kn_host_check_stream(stream));
    if (bytes) memset(dst, value, bytes);
    return KN_OK;
}

kn_status kn_host_alloc_mapped(kn_backend *b, size_t bytes, void **host, void **device) {
    KN_TRY(kn_host_alloc(b, bytes, host));
    memset(*host, 0, bytes);
    *device = *host;
    return KN_OK;
}

/* Any host pointer may be used; whether memory is there shows when it is touched. */
kn_status kn_host_check_pointer(kn_backend *b, const void *p) {
    KN_REQUIRE(p != NULL, KN_E_DEVICE, "a NULL pointer cannot be used by device %s", b->ops->kind);
    return KN_OK;
}

kn_status kn_host_check_stream(void *stream) {
    KN_REQUIRE(stream == NULL, KN_E_ARG, "the stream is %p, but on the simulator calls are synchronous: pass NULL",
               stream);
    return KN_OK;
}

kn_status kn_host_stream_create(kn_backend *b, void **out) {
    (void)b;
    *out = NULL;
    return KN_OK;
}

kn_status kn_host_stream_destroy(kn_backend *b, void *stream) {
    (void)b;
    return kn_host_check_stream(stream);
}

kn_status kn_host_stream_id(kn_backend *b, void *stream, uint64_t *id) {
    (void)b;
    *id = 1;
    return kn_host_check_stream(stream);
}

kn_status kn_host_stream_capturing(kn_backend *b, void *stream, bool *capturing) {
    (void)b;
    *capturing = false;
    return kn_host_check_stream(stream);
}

kn_status kn_host_stream_synchronize(kn_backend *b, void *stream) {
    (void)b;
    return kn_host_check_stream(stream);
}

kn_status kn_host_event_create(kn_backend *b, void **out) {
    (void)b;
    return kn_new(out, 1, sizeof(uint64_t), "an event");
}

kn_status kn_host_event_destroy(kn_backend *b, void *event) {
    (void)b;
    kn_free(event);
    return KN_OK;
}

kn_status kn_host_event_record(kn_backend *b, void *event, void *stream) {
    (void)b;
    KN_TRY(kn_host_check_stream(stream));
    *(uint64_t *)event = kn_clock_ns();
    return KN_OK;
}

kn_status kn_host_event_elapsed_us(kn_backend *b, void *start, void *stop, double *us) {
    (void)b;
    uint64_t from = *(uint64_t *)start, to = *(uint64_t *)stop;
    KN_REQUIRE(from && to, KN_E_ARG, "an event has not been recorded");
    *us = (double)(int64_t)(to - from) / 1000.0;
    return KN_OK;
}
