/* The CUDA backend's streams and events. */
#include "jit/backend_cuda.h"

kn_status kn_cuda_stream_create(kn_backend *base, void **out) {
    kn_cuda *b = (kn_cuda *)base;
    kn_cu_stream stream = NULL;
    kn_status st;
    *out = NULL;
    KN_CUDA_CALL(st, b, KN_CUDA_RELAXED, KN_E_DEVICE, "cuStreamCreate",
                 b->cu->cuStreamCreate(&stream, KN_CU_STREAM_DEFAULT), "device %d", base->dl_device_id);
    if (st == KN_OK) *out = stream;
    return st;
}

kn_status kn_cuda_stream_destroy(kn_backend *base, void *stream) {
    kn_cuda *b = (kn_cuda *)base;
    kn_status st = KN_OK;
    if (!stream) return KN_OK;
    KN_TRY(kn_driver_check_process());
    if (!kn_cuda_context_alive(b)) return KN_OK;
    KN_CUDA_CALL(st, b, KN_CUDA_RELAXED, KN_E_DEVICE, "cuStreamDestroy",
                 b->cu->cuStreamDestroy_v2((kn_cu_stream)stream), "stream %p", stream);
    return st;
}

kn_status kn_cuda_stream_id(kn_backend *base, void *stream, uint64_t *id) {
    kn_cuda *b = (kn_cuda *)base;
    unsigned long long value = 0;
    kn_status st;
    *id = 0;
    KN_CUDA_CALL(st, b, KN_CUDA_PLAIN, KN_E_DEVICE, "cuStreamGetId", b->cu->cuStreamGetId((kn_cu_stream)stream, &value),
                 "stream %p", stream);
    if (st == KN_OK) *id = value;
    return st;
}

kn_status kn_cuda_stream_capturing(kn_backend *base, void *stream, bool *capturing) {
    kn_cuda *b = (kn_cuda *)base;
    kn_cu_enum status = KN_CU_STREAM_CAPTURE_STATUS_NONE;
    kn_status st;
    *capturing = false;
    KN_CUDA_CALL(st, b, KN_CUDA_PLAIN, KN_E_DEVICE, "cuStreamIsCapturing",
                 b->cu->cuStreamIsCapturing((kn_cu_stream)stream, &status), "stream %p", stream);
    if (st == KN_OK) *capturing = status != KN_CU_STREAM_CAPTURE_STATUS_NONE;
    return st;
}

kn_status kn_cuda_stream_synchronize(kn_backend *base, void *stream) {
    kn_cuda *b = (kn_cuda *)base;
    kn_status st;
    KN_CUDA_CALL(st, b, KN_CUDA_RELAXED, KN_E_LAUNCH, "cuStreamSynchronize",
                 b->cu->cuStreamSynchronize((kn_cu_stream)stream), "stream %p", stream);
    return st;
}

kn_status kn_cuda_event_create(kn_backend *base, void **out) {
    kn_cuda *b = (kn_cuda *)base;
    kn_cu_event event = NULL;
    kn_status st;
    *out = NULL;
    KN_CUDA_CALL(st, b, KN_CUDA_RELAXED, KN_E_DEVICE, "cuEventCreate",
                 b->cu->cuEventCreate(&event, KN_CU_EVENT_DEFAULT), "device %d", base->dl_device_id);
    if (st == KN_OK) *out = event;
    return st;
}

kn_status kn_cuda_event_destroy(kn_backend *base, void *event) {
    kn_cuda *b = (kn_cuda *)base;
    kn_status st = KN_OK;
    if (!event) return KN_OK;
    KN_TRY(kn_driver_check_process());
    if (!kn_cuda_context_alive(b)) return KN_OK;
    KN_CUDA_CALL(st, b, KN_CUDA_RELAXED, KN_E_DEVICE, "cuEventDestroy", b->cu->cuEventDestroy_v2((kn_cu_event)event),
                 "event %p", event);
    return st;
}

kn_status kn_cuda_event_record(kn_backend *base, void *event, void *stream) {
    kn_cuda *b = (kn_cuda *)base;
    kn_status st;
    KN_CUDA_CALL(st, b, KN_CUDA_PLAIN, KN_E_DEVICE, "cuEventRecord",
                 b->cu->cuEventRecord((kn_cu_event)event, (kn_cu_stream)stream), "stream %p", stream);
    return st;
}

static kn_cu_result elapsed(const kn_driver *cu, kn_cu_event start, kn_cu_event stop, float *ms) {
    kn_cu_result rc = cu->cuEventSynchronize(stop);
    return rc == KN_CUDA_SUCCESS ? cu->cuEventElapsedTime(ms, start, stop) : rc;
}

kn_status kn_cuda_event_elapsed_us(kn_backend *base, void *start, void *stop, double *us) {
    kn_cuda *b = (kn_cuda *)base;
    float ms = 0;
    kn_status st;
    *us = 0;
    KN_CUDA_CALL(st, b, KN_CUDA_RELAXED, KN_E_LAUNCH, "cuEventElapsedTime",
                 elapsed(b->cu, (kn_cu_event)start, (kn_cu_event)stop, &ms), "events %p and %p", start, stop);
    if (st == KN_OK) *us = 1000.0 * (double)ms;
    return st;
}
