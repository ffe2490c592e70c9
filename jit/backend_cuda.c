/* The CUDA backend's life: device facts, choice of context, scopes. The functions of the table are in
 * backend_cuda_memory.c, backend_cuda_code.c and backend_cuda_stream.c. */
#include "jit/backend_cuda.h"

#include "base/alloc.h"
#include "base/log.h"

#include <ctype.h>
#include <string.h>

/* ---- scopes ------------------------------------------------------------------------------------------------------ */

kn_status kn_cuda_enter(kn_cuda *b, int relaxed, kn_cuda_scope *s) {
    *s = (kn_cuda_scope){.b = b};
    KN_TRY(kn_driver_check_process());
    /* Pushing a context that its owner has destroyed corrupts the driver's memory; asking for its id does not. */
    KN_REQUIRE(kn_cuda_context_alive(b), KN_E_DEVICE,
               "cuda:%d: the CUDA context that this Kiln context was created on has been destroyed or reset",
               b->base.dl_device_id);
    kn_cu_context current = NULL;
    kn_cu_result rc = b->cu->cuCtxGetCurrent(&current);
    if (rc != KN_CUDA_SUCCESS) return kn_driver_fail(b->cu, KN_E_DEVICE, "cuCtxGetCurrent", rc, "%s", "");
    if (current != b->context) {
        rc = b->cu->cuCtxPushCurrent_v2(b->context);
        if (rc != KN_CUDA_SUCCESS)
            return kn_driver_fail(b->cu, KN_E_DEVICE, "cuCtxPushCurrent", rc,
                                  "the context of device %d that Kiln was created on", b->base.dl_device_id);
        s->pushed = true;
    }
    if (relaxed) {
        s->mode = KN_CU_STREAM_CAPTURE_MODE_RELAXED;
        rc = b->cu->cuThreadExchangeStreamCaptureMode(&s->mode);
        if (rc != KN_CUDA_SUCCESS) {
            kn_cuda_leave(s);
            return kn_driver_fail(b->cu, KN_E_DEVICE, "cuThreadExchangeStreamCaptureMode", rc, "%s", "");
        }
        s->relaxed = true;
    }
    return KN_OK;
}

/* A failure here comes after the call's own work is done and its result is valid: it is told, not returned. */
void kn_cuda_leave(kn_cuda_scope *s) {
    const kn_driver *cu = s->b->cu;
    if (s->relaxed) {
        kn_cu_result rc = cu->cuThreadExchangeStreamCaptureMode(&s->mode);
        if (rc != KN_CUDA_SUCCESS) kn_log(KN_LOG_WARN, "cuThreadExchangeStreamCaptureMode failed with code %d", rc);
    }
    if (s->pushed) {
        kn_cu_context popped = NULL;
        kn_cu_result rc = cu->cuCtxPopCurrent_v2(&popped);
        if (rc != KN_CUDA_SUCCESS) kn_log(KN_LOG_WARN, "cuCtxPopCurrent failed with code %d", rc);
    }
    s->pushed = s->relaxed = false;
}

/* A primary context that was reset and retained again has its old address and a new id. */
bool kn_cuda_context_alive(const kn_cuda *b) {
    unsigned long long id = 0;
    return b->cu->cuCtxGetId(b->context, &id) == KN_CUDA_SUCCESS && id == b->context_id;
}

/* ---- device facts ------------------------------------------------------------------------------------------------ */

static kn_status attribute(const kn_cuda *b, kn_cu_enum which, const char *what, int *out) {
    kn_cu_result rc = b->cu->cuDeviceGetAttribute(out, which, b->device);
    if (rc == KN_CUDA_SUCCESS) return KN_OK;
    return kn_driver_fail(b->cu, KN_E_UNAVAILABLE, "cuDeviceGetAttribute", rc, "%s of device %d", what,
                          b->base.dl_device_id);
}

/* "NVIDIA H100 PCIe" -> "h100-pcie": the form of the names in the table of reference devices. */
static void short_name(const char *name, char out[64]) {
    static const char maker[] = "NVIDIA ";
    if (strncmp(name, maker, sizeof maker - 1) == 0) name += sizeof maker - 1;
    size_t n = 0;
    for (; *name && n < 63; name++) out[n++] = *name == ' ' ? '-' : (char)tolower((unsigned char)*name);
    out[n] = '\0';
}

/* Rates to plan with: measured ones where the very device is in the table, else scaled from its target's reference. */
static void set_rates(kn_device_facts *f, const kn_target *target, int memory_khz, int bus_bits) {
    char name[64];
    short_name(f->name, name);
    kn_device_facts known;
    const kn_target *t = NULL;
    if (kn_device_facts_by_name(name, &known, &t) == KN_OK && t == target) {
        f->hbm_bytes_per_s = known.hbm_bytes_per_s;
        f->bf16_flops = known.bf16_flops;
        return;
    }
    /* Two transfers a clock; a copy reaches about 0.87 of that on every part that was measured. */
    f->hbm_bytes_per_s = 0.87 * 2.0 * 1000.0 * memory_khz * bus_bits / 8.0;
    if (kn_device_facts_by_name(target->name, &known, &t) == KN_OK && known.multiprocessors > 0)
        f->bf16_flops = known.bf16_flops * f->multiprocessors / known.multiprocessors;
}

static kn_status read_facts(kn_cuda *b) {
    kn_device_facts *f = &b->base.facts;
    struct {
        kn_cu_enum which;
        int value;
        const char *what;
    } a[] = {{KN_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0, "compute capability"},
             {KN_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0, "compute capability"},
             {KN_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0, "number of multiprocessors"},
             {KN_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0, "shared memory per block"},
             {KN_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 0, "shared memory per multiprocessor"},
             {KN_CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 0, "size of the L2 cache"},
             {KN_CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 0, "memory clock"},
             {KN_CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 0, "memory bus width"},
             {KN_CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0, "support of memory pools"},
             {KN_CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0, "access to pageable memory"}};
    for (size_t i = 0; i < sizeof a / sizeof *a; i++) KN_TRY(attribute(b, a[i].which, a[i].what, &a[i].value));
    f->cc_major = (uint32_t)a[0].value;
    f->cc_minor = (uint32_t)a[1].value;
    f->multiprocessors = (uint32_t)a[2].value;
    f->smem_per_block = (uint32_t)a[3].value;
    f->smem_per_sm = (uint32_t)a[4].value;
    f->l2_bytes = (uint64_t)a[5].value;
    b->pools = a[8].value != 0;
    b->pageable = a[9].value != 0;
    kn_cu_result rc = b->cu->cuDeviceGetName(f->name, sizeof f->name, b->device);
    if (rc != KN_CUDA_SUCCESS) return kn_driver_fail(b->cu, KN_E_UNAVAILABLE, "cuDeviceGetName", rc, "%s", "");
    size_t bytes = 0;
    rc = b->cu->cuDeviceTotalMem_v2(&bytes, b->device);
    if (rc != KN_CUDA_SUCCESS) return kn_driver_fail(b->cu, KN_E_UNAVAILABLE, "cuDeviceTotalMem", rc, "%s", "");
    f->memory_bytes = bytes;
    int version = 0;
    const char *path = NULL;
    KN_TRY(kn_driver_version(&version, &path));
    f->driver_version = (uint32_t)version;
    KN_TRY(kn_target_for_device(a[0].value, a[1].value, &b->base.target));
    set_rates(f, b->base.target, a[6].value, a[7].value);
    return KN_OK;
}

/* ---- context ----------------------------------------------------------------------------------------------------- */

static kn_status retain_primary(kn_cuda *b) {
    kn_cu_result rc = b->cu->cuDevicePrimaryCtxRetain(&b->context, b->device);
    if (rc != KN_CUDA_SUCCESS)
        return kn_driver_fail(b->cu, KN_E_DEVICE, "cuDevicePrimaryCtxRetain", rc, "device %d", b->base.dl_device_id);
    b->retained = true;
    return KN_OK;
}

static void release_primary(kn_cuda *b) {
    if (!b->retained) return;
    b->retained = false;
    kn_cu_result rc = b->cu->cuDevicePrimaryCtxRelease_v2(b->device);
    if (!kn_driver_gone(rc)) kn_log(KN_LOG_WARN, "cuDevicePrimaryCtxRelease failed with code %d", rc);
}

/* The calling thread's current context into *current if it belongs to our device, NULL otherwise. */
static kn_status current_of_device(kn_cuda *b, kn_cu_context *current) {
    kn_cu_device device = -1;
    kn_cu_result rc = b->cu->cuCtxGetCurrent(current);
    if (rc != KN_CUDA_SUCCESS) return kn_driver_fail(b->cu, KN_E_DEVICE, "cuCtxGetCurrent", rc, "%s", "");
    /* A context may be destroyed while it is some thread's current one; it is no context to work in. */
    unsigned long long id = 0;
    if (*current && b->cu->cuCtxGetId(*current, &id) != KN_CUDA_SUCCESS) *current = NULL;
    if (!*current) return KN_OK;
    rc = b->cu->cuCtxGetDevice(&device);
    if (rc != KN_CUDA_SUCCESS) return kn_driver_fail(b->cu, KN_E_DEVICE, "cuCtxGetDevice", rc, "%s", "");
    if (device != b->device) *current = NULL;
    return KN_OK;
}

/* Ours is the current context if it belongs to the device, else the primary one. If the current one is the primary
 * one it is retained too, so that it outlives its owner's release; no primary context is made beside a custom one. */
static kn_status choose_context(kn_cuda *b) {
    kn_cu_context current = NULL;
    KN_TRY(current_of_device(b, &current));
    unsigned flags = 0;
    int active = 0;
    if (current) {
        kn_cu_result rc = b->cu->cuDevicePrimaryCtxGetState(b->device, &flags, &active);
        if (rc != KN_CUDA_SUCCESS)
            return kn_driver_fail(b->cu, KN_E_DEVICE, "cuDevicePrimaryCtxGetState", rc, "%s", "");
    }
    if (!current || active) KN_TRY(retain_primary(b));
    if (current && current != b->context) {
        release_primary(b);
        b->context = current;
    }
    kn_cu_result rc = b->cu->cuCtxGetId(b->context, &b->context_id);
    if (rc != KN_CUDA_SUCCESS) return kn_driver_fail(b->cu, KN_E_DEVICE, "cuCtxGetId", rc, "%s", "");
    return KN_OK;
}

/* ---- create, destroy --------------------------------------------------------------------------------------------- */

static void destroy(kn_backend *base) {
    kn_cuda *b = (kn_cuda *)base;
    if (!b) return;
    /* A forked child owns the memory of this object and nothing of the driver's. */
    if (kn_driver_check_process() == KN_OK) release_primary(b);
    kn_free(b);
}

static const kn_backend_ops cuda_ops = {
    .kind = "cuda",
    .destroy = destroy,
    .alloc = kn_cuda_alloc,
    .free = kn_cuda_free,
    .alloc_async = kn_cuda_alloc_async,
    .free_async = kn_cuda_free_async,
    .copy_in = kn_cuda_copy_in,
    .copy_out = kn_cuda_copy_out,
    .fill = kn_cuda_fill,
    .alloc_mapped = kn_cuda_alloc_mapped,
    .free_mapped = kn_cuda_free_mapped,
    .check_pointer = kn_cuda_check_pointer,
    .module_load = kn_cuda_module_load,
    .module_unload = kn_cuda_module_unload,
    .link = kn_cuda_link,
    .encode_tensor_map = kn_cuda_encode_tensor_map,
    .launch = kn_cuda_launch,
    .stream_create = kn_cuda_stream_create,
    .stream_destroy = kn_cuda_stream_destroy,
    .stream_id = kn_cuda_stream_id,
    .stream_capturing = kn_cuda_stream_capturing,
    .stream_synchronize = kn_cuda_stream_synchronize,
    .event_create = kn_cuda_event_create,
    .event_destroy = kn_cuda_event_destroy,
    .event_record = kn_cuda_event_record,
    .event_elapsed_us = kn_cuda_event_elapsed_us,
};

static kn_status device_of(kn_cuda *b, int ordinal) {
    int count = 0;
    kn_cu_result rc = b->cu->cuDeviceGetCount(&count);
    if (rc != KN_CUDA_SUCCESS) return kn_driver_fail(b->cu, KN_E_UNAVAILABLE, "cuDeviceGetCount", rc, "%s", "");
    KN_REQUIRE(ordinal >= 0 && ordinal < count, KN_E_UNAVAILABLE, "device cuda:%d: the driver shows %d device%s",
               ordinal, count, count == 1 ? "" : "s");
    rc = b->cu->cuDeviceGet(&b->device, ordinal);
    if (rc != KN_CUDA_SUCCESS) return kn_driver_fail(b->cu, KN_E_UNAVAILABLE, "cuDeviceGet", rc, "device %d", ordinal);
    return KN_OK;
}

kn_status kn_backend_cuda_create(int ordinal, kn_backend **out) {
    *out = NULL;
    const kn_driver *cu = NULL;
    KN_TRY(kn_driver_get(&cu));
    kn_cuda *b = NULL;
    KN_TRY(KN_NEW(&b, 1, "a CUDA backend"));
    b->cu = cu;
    b->base.ops = &cuda_ops;
    b->base.dl_device_type = 2;
    b->base.dl_device_id = ordinal;
    kn_status st;
    KN_TRY_OUT(st, device_of(b, ordinal));
    KN_TRY_OUT(st, read_facts(b));
    KN_TRY_OUT(st, choose_context(b));
    *out = &b->base;
    return KN_OK;
out:
    release_primary(b);
    kn_free(b);
    return st;
}

kn_status kn_backend_cuda_count(int *count) {
    *count = 0;
    const kn_driver *cu = NULL;
    KN_TRY(kn_driver_get(&cu));
    kn_cu_result rc = cu->cuDeviceGetCount(count);
    if (rc != KN_CUDA_SUCCESS) return kn_driver_fail(cu, KN_E_UNAVAILABLE, "cuDeviceGetCount", rc, "%s", "");
    return KN_OK;
}

kn_status kn_backend_cuda_version(int *version, const char **path) {
    return kn_driver_version(version, path);
}
