/* What the files of the CUDA backend share. */
#ifndef KN_JIT_BACKEND_CUDA_H
#define KN_JIT_BACKEND_CUDA_H

#include "jit/backend.h"
#include "jit/driver.h"

typedef struct kn_cuda {
    kn_backend base;
    const kn_driver *cu;
    kn_cu_device device;
    kn_cu_context context;
    unsigned long long context_id; /* tells a context from a later one at the same address */
    bool retained;                 /* context is the primary one and we hold a reference */
    bool pools;                    /* the device has stream-ordered allocation */
    bool pageable;                 /* the device can read any host memory */
} kn_cuda;

/* The calling thread's state for the length of one backend call: our context current, and where the call could break
 * a capture in progress, the relaxed capture mode. */
typedef struct kn_cuda_scope {
    kn_cuda *b;
    bool pushed, relaxed;
    kn_cu_enum mode; /* the thread's own capture mode */
} kn_cuda_scope;

enum { KN_CUDA_PLAIN = 0, KN_CUDA_RELAXED = 1 };

/** KN_E_FORK in a forked child, otherwise nothing but driver failures. On failure the scope needs no leave. */
kn_status kn_cuda_enter(kn_cuda *b, int relaxed, kn_cuda_scope *s);
void kn_cuda_leave(kn_cuda_scope *s);

/** False once the context that the backend was created on is destroyed or reset: its objects are gone with it, and
 *  freeing them is no failure and must not reach the driver. */
bool kn_cuda_context_alive(const kn_cuda *b);

/** One driver call inside a scope, for functions that need no more: CALL(rc) runs with the context current. */
#define KN_CUDA_CALL(st, b, relaxed, code, name, call, ...)                                                            \
    do {                                                                                                               \
        kn_cuda_scope scope_;                                                                                          \
        (st) = kn_cuda_enter((b), (relaxed), &scope_);                                                                 \
        if ((st) != KN_OK) break;                                                                                      \
        kn_cu_result rc_ = (call);                                                                                     \
        kn_cuda_leave(&scope_);                                                                                        \
        if (rc_ != KN_CUDA_SUCCESS) (st) = kn_driver_fail((b)->cu, (code), (name), rc_, __VA_ARGS__);                  \
    } while (0)

/* backend_cuda_memory.c */
kn_status kn_cuda_alloc(kn_backend *b, size_t bytes, void **out);
kn_status kn_cuda_free(kn_backend *b, void *p);
kn_status kn_cuda_alloc_async(kn_backend *b, size_t bytes, void *stream, void **out);
kn_status kn_cuda_free_async(kn_backend *b, void *p, void *stream);
kn_status kn_cuda_copy_in(kn_backend *b, void *dst, const void *src, size_t bytes);
kn_status kn_cuda_copy_out(kn_backend *b, void *dst, const void *src, size_t bytes);
kn_status kn_cuda_fill(kn_backend *b, void *dst, uint8_t value, size_t bytes, void *stream);
kn_status kn_cuda_alloc_mapped(kn_backend *b, size_t bytes, void **host, void **device);
kn_status kn_cuda_free_mapped(kn_backend *b, void *host);
kn_status kn_cuda_check_pointer(kn_backend *b, const void *p);

/* backend_cuda_code.c */
kn_status kn_cuda_module_load(kn_backend *b, const void *image, size_t len, const kn_kernel_meta *meta,
                              kn_module **out);
void kn_cuda_module_unload(kn_backend *b, kn_module *m);
kn_status kn_cuda_encode_tensor_map(kn_backend *b, const kn_tensor_map *map, uint8_t out[128]);
kn_status kn_cuda_launch(kn_backend *b, const kn_launch_args *args);

/* backend_cuda_link.c */
kn_status kn_cuda_link(kn_backend *b, const kn_expansion *x, void **cubin, size_t *len, kn_asm_report *report);

/* backend_cuda_stream.c */
kn_status kn_cuda_stream_create(kn_backend *b, void **out);
kn_status kn_cuda_stream_destroy(kn_backend *b, void *stream);
kn_status kn_cuda_stream_id(kn_backend *b, void *stream, uint64_t *id);
kn_status kn_cuda_stream_capturing(kn_backend *b, void *stream, bool *capturing);
kn_status kn_cuda_stream_synchronize(kn_backend *b, void *stream);
kn_status kn_cuda_event_create(kn_backend *b, void **out);
kn_status kn_cuda_event_destroy(kn_backend *b, void *event);
kn_status kn_cuda_event_record(kn_backend *b, void *event, void *stream);
kn_status kn_cuda_event_elapsed_us(kn_backend *b, void *start, void *stop, double *us);

#endif
