/* jit/backend_host: what backend_sim and backend_null share: device memory is host memory, calls are synchronous, there
 * is one stream (NULL), events are clock readings. */
#ifndef KN_JIT_BACKEND_HOST_H
#define KN_JIT_BACKEND_HOST_H

#include "jit/backend.h"

kn_status kn_host_alloc(kn_backend *b, size_t bytes, void **out);
kn_status kn_host_free(kn_backend *b, void *p);
kn_status kn_host_alloc_async(kn_backend *b, size_t bytes, void *stream, void **out);
kn_status kn_host_free_async(kn_backend *b, void *p, void *stream);
kn_status kn_host_copy(kn_backend *b, void *dst, const void *src, size_t bytes);
kn_status kn_host_fill(kn_backend *b, void *dst, uint8_t value, size_t bytes, void *stream);
kn_status kn_host_alloc_mapped(kn_backend *b, size_t bytes, void **host, void **device);
kn_status kn_host_check_pointer(kn_backend *b, const void *p);
kn_status kn_host_check_stream(void *stream);
kn_status kn_host_stream_create(kn_backend *b, void **out);
kn_status kn_host_stream_destroy(kn_backend *b, void *stream);
kn_status kn_host_stream_id(kn_backend *b, void *stream, uint64_t *id);
kn_status kn_host_stream_capturing(kn_backend *b, void *stream, bool *capturing);
kn_status kn_host_stream_synchronize(kn_backend *b, void *stream);
kn_status kn_host_event_create(kn_backend *b, void **out);
kn_status kn_host_event_destroy(kn_backend *b, void *event);
kn_status kn_host_event_record(kn_backend *b, void *event, void *stream);
kn_status kn_host_event_elapsed_us(kn_backend *b, void *start, void *stop, double *us);

/* Rows of a kn_backend_ops table. */
#define KN_HOST_BACKEND_OPS                                                                                            \
    .alloc = kn_host_alloc, .free = kn_host_free, .alloc_async = kn_host_alloc_async,                                  \
    .free_async = kn_host_free_async, .copy_in = kn_host_copy, .copy_out = kn_host_copy, .fill = kn_host_fill,         \
    .alloc_mapped = kn_host_alloc_mapped, .free_mapped = kn_host_free, .check_pointer = kn_host_check_pointer,         \
    .stream_create = kn_host_stream_create, .stream_destroy = kn_host_stream_destroy, .stream_id = kn_host_stream_id,  \
    .stream_capturing = kn_host_stream_capturing, .stream_synchronize = kn_host_stream_synchronize,                    \
    .event_create = kn_host_event_create, .event_destroy = kn_host_event_destroy,                                      \
    .event_record = kn_host_event_record, .event_elapsed_us = kn_host_event_elapsed_us

#endif
