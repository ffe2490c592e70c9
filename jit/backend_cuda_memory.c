/* The CUDA backend's memory: allocation, copies, mapped host memory, whose pointer is whose. */
#include "jit/backend_cuda.h"

static kn_cu_ptr address(const void *p) {
    return (kn_cu_ptr)(uintptr_t)p;
}

static void *pointer(kn_cu_ptr p) {
    return (void *)(uintptr_t)p;
}

kn_status kn_cuda_alloc(kn_backend *base, size_t bytes, void **out) {
    kn_cuda *b = (kn_cuda *)base;
    kn_cu_ptr p = 0;
    kn_status st;
    *out = NULL;
    KN_CUDA_CALL(st, b, KN_CUDA_RELAXED, KN_E_DEVICE, "cuMemAlloc", b->cu->cuMemAlloc_v2(&p, bytes ? bytes : 1),
                 "%zu bytes on device %d", bytes, base->dl_device_id);
    if (st == KN_OK) *out = pointer(p);
    return st;
}

/* Freeing what a vanished context took along is no failure, and must not reach the driver with a stale handle. */
static kn_status free_inside(kn_cuda *b, const char *name, kn_cu_result (*call)(kn_cuda *, void *, void *), void *p,
                             void *stream) {
    if (!p) return KN_OK;
    KN_TRY(kn_driver_check_process());
    if (!kn_cuda_context_alive(b)) return KN_OK;
    kn_cuda_scope s;
    KN_TRY(kn_cuda_enter(b, KN_CUDA_RELAXED, &s));
    kn_cu_result rc = call(b, p, stream);
    kn_cuda_leave(&s);
    if (kn_driver_gone(rc)) return KN_OK;
    return kn_driver_fail(b->cu, KN_E_DEVICE, name, rc, "address %p on device %d", p, b->base.dl_device_id);
}

static kn_cu_result free_now(kn_cuda *b, void *p, void *stream) {
    (void)stream;
    return b->cu->cuMemFree_v2(address(p));
}

kn_status kn_cuda_free(kn_backend *base, void *p) {
    return free_inside((kn_cuda *)base, "cuMemFree", free_now, p, NULL);
}

/* Devices without memory pools (some virtual GPUs) get plain allocations: cuMemAlloc is ready at once, and the free
 * waits for the stream. */
kn_status kn_cuda_alloc_async(kn_backend *base, size_t bytes, void *stream, void **out) {
    kn_cuda *b = (kn_cuda *)base;
    if (!b->pools) return kn_cuda_alloc(base, bytes, out);
    kn_cu_ptr p = 0;
    kn_status st;
    *out = NULL;
    KN_CUDA_CALL(st, b, KN_CUDA_RELAXED, KN_E_DEVICE, "cuMemAllocAsync",
                 b->cu->cuMemAllocAsync(&p, bytes ? bytes : 1, (kn_cu_stream)stream), "%zu bytes on device %d", bytes,
                 base->dl_device_id);
    if (st == KN_OK) *out = pointer(p);
    return st;
}

static kn_cu_result free_ordered(kn_cuda *b, void *p, void *stream) {
    if (b->pools) return b->cu->cuMemFreeAsync(address(p), (kn_cu_stream)stream);
    kn_cu_result rc = b->cu->cuStreamSynchronize((kn_cu_stream)stream);
    return rc == KN_CUDA_SUCCESS ? b->cu->cuMemFree_v2(address(p)) : rc;
}

kn_status kn_cuda_free_async(kn_backend *base, void *p, void *stream) {
    return free_inside((kn_cuda *)base, "cuMemFreeAsync", free_ordered, p, stream);
}

/* Copies go through the legacy default stream: they come after everything that blocking streams hold. From pageable
 * memory the driver may return once the data is staged, so the stream is waited for. */
static kn_cu_result copy_in_now(kn_cuda *b, void *dst, const void *src, size_t bytes) {
    kn_cu_result rc = b->cu->cuMemcpyHtoD_v2(address(dst), src, bytes);
    return rc == KN_CUDA_SUCCESS ? b->cu->cuStreamSynchronize(NULL) : rc;
}

kn_status kn_cuda_copy_in(kn_backend *base, void *dst, const void *src, size_t bytes) {
    kn_cuda *b = (kn_cuda *)base;
    kn_status st = KN_OK;
    if (bytes == 0) return kn_driver_check_process();
    KN_CUDA_CALL(st, b, KN_CUDA_RELAXED, KN_E_DEVICE, "cuMemcpyHtoD", copy_in_now(b, dst, src, bytes),
                 "%zu bytes to %p on device %d", bytes, dst, base->dl_device_id);
    return st;
}

kn_status kn_cuda_copy_out(kn_backend *base, void *dst, const void *src, size_t bytes) {
    kn_cuda *b = (kn_cuda *)base;
    kn_status st = KN_OK;
    if (bytes == 0) return kn_driver_check_process();
    KN_CUDA_CALL(st, b, KN_CUDA_RELAXED, KN_E_DEVICE, "cuMemcpyDtoH", b->cu->cuMemcpyDtoH_v2(dst, address(src), bytes),
                 "%zu bytes from %p on device %d", bytes, src, base->dl_device_id);
    return st;
}

kn_status kn_cuda_fill(kn_backend *base, void *dst, uint8_t value, size_t bytes, void *stream) {
    kn_cuda *b = (kn_cuda *)base;
    kn_status st = KN_OK;
    if (bytes == 0) return kn_driver_check_process();
    KN_CUDA_CALL(st, b, KN_CUDA_PLAIN, KN_E_DEVICE, "cuMemsetD8Async",
                 b->cu->cuMemsetD8Async(address(dst), value, bytes, (kn_cu_stream)stream),
                 "%zu bytes at %p on device %d", bytes, dst, base->dl_device_id);
    return st;
}

kn_status kn_cuda_alloc_mapped(kn_backend *base, size_t bytes, void **host, void **device) {
    kn_cuda *b = (kn_cuda *)base;
    kn_cuda_scope s;
    *host = *device = NULL;
    KN_TRY(kn_cuda_enter(b, KN_CUDA_RELAXED, &s));
    kn_cu_ptr p = 0;
    const char *call = "cuMemHostAlloc";
    kn_cu_result rc =
        b->cu->cuMemHostAlloc(host, bytes ? bytes : 1, KN_CU_MEMHOSTALLOC_PORTABLE | KN_CU_MEMHOSTALLOC_DEVICEMAP);
    if (rc == KN_CUDA_SUCCESS) {
        call = "cuMemHostGetDevicePointer";
        rc = b->cu->cuMemHostGetDevicePointer_v2(&p, *host, 0);
        if (rc != KN_CUDA_SUCCESS) {
            b->cu->cuMemFreeHost(*host);
            *host = NULL;
        }
    }
    kn_cuda_leave(&s);
    if (rc != KN_CUDA_SUCCESS)
        return kn_driver_fail(b->cu, KN_E_DEVICE, call, rc, "%zu bytes of mapped host memory", bytes);
    *device = pointer(p);
    return KN_OK;
}

static kn_cu_result free_host(kn_cuda *b, void *p, void *stream) {
    (void)stream;
    return b->cu->cuMemFreeHost(p);
}

kn_status kn_cuda_free_mapped(kn_backend *base, void *host) {
    return free_inside((kn_cuda *)base, "cuMemFreeHost", free_host, host, NULL);
}

kn_status kn_cuda_check_pointer(kn_backend *base, const void *p) {
    kn_cuda *b = (kn_cuda *)base;
    kn_cu_enum attributes[] = {KN_CU_POINTER_ATTRIBUTE_MEMORY_TYPE, KN_CU_POINTER_ATTRIBUTE_IS_MANAGED,
                               KN_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    unsigned type = 0, managed = 0;
    int ordinal = -1;
    void *values[] = {&type, &managed, &ordinal};
    kn_status st;
    KN_CUDA_CALL(st, b, KN_CUDA_PLAIN, KN_E_DEVICE, "cuPointerGetAttributes",
                 b->cu->cuPointerGetAttributes(3, attributes, values, address(p)), "address %p", p);
    KN_TRY(st);
    if ((managed & 0xff) || type == KN_CU_MEMORYTYPE_HOST) return KN_OK; /* pinned and managed memory: every device's */
    if (type != KN_CU_MEMORYTYPE_DEVICE)
        return b->pageable ? KN_OK
                           : kn_fail(KN_E_DEVICE, "%p is ordinary host memory; wanted memory of cuda:%d", p,
                                     base->dl_device_id);
    KN_REQUIRE(ordinal == base->dl_device_id, KN_E_DEVICE, "%p is memory of cuda:%d; wanted memory of cuda:%d", p,
               ordinal, base->dl_device_id);
    return KN_OK;
}
