/* The fake driver's process, devices, contexts and memory. */
#include "fakecuda/fake_state.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define KN_DRIVER(symbol, since, required, args) EXPORT kn_cu_result symbol args;
#include "jit/driver.def"
#undef KN_DRIVER

/* Functions that tests call and Kiln does not. */
EXPORT kn_cu_result cuCtxCreate_v2(kn_cu_context *context, unsigned flags, kn_cu_device device);
EXPORT kn_cu_result cuCtxDestroy_v2(kn_cu_context context);
EXPORT kn_cu_result cuDevicePrimaryCtxReset_v2(kn_cu_device device);

/* ---- process ----------------------------------------------------------------------------------------------------- */

kn_cu_result cuInit(unsigned flags) {
    static atomic_int any_process;
    BEGIN("cuInit");
    if (flags != 0) return INVALID_VALUE;
    if (fake.init_code != OK) return fake.init_code;
    /* A child of an initialised process cannot initialise, as with the real driver. */
    if (atomic_exchange(&any_process, 1) && !fake_is_initialised()) return KN_CUDA_ERROR_NOT_INITIALIZED;
    fake_set_initialised();
    return OK;
}

kn_cu_result cuDriverGetVersion(int *version) {
    BEGIN("cuDriverGetVersion");
    *version = fake.version;
    return OK;
}

static const struct {
    int code;
    const char *name, *text;
} errors[] = {{0, "CUDA_SUCCESS", "no error"},
              {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
              {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
              {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
              {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
              {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
              {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
              {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
              {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
              {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
              {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
              {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
              {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
              {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
              {999, "CUDA_ERROR_UNKNOWN", "unknown error"}};

kn_cu_result cuGetErrorName(kn_cu_result rc, const char **text) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == rc) {
            *text = errors[i].name;
            return OK;
        }
    *text = NULL;
    return INVALID_VALUE;
}

kn_cu_result cuGetErrorString(kn_cu_result rc, const char **text) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == rc) {
            *text = errors[i].text;
            return OK;
        }
    *text = NULL;
    return INVALID_VALUE;
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

static bool is_device(kn_cu_device d) {
    return d >= 0 && d < fake.devices && d < MAX_DEVICES;
}

kn_cu_result cuDeviceGetCount(int *count) {
    BEGIN("cuDeviceGetCount");
    *count = fake.devices;
    return OK;
}

kn_cu_result cuDeviceGet(kn_cu_device *device, int ordinal) {
    BEGIN("cuDeviceGet");
    if (!is_device(ordinal)) return KN_CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return OK;
}

kn_cu_result cuDeviceGetName(char *name, int cap, kn_cu_device device) {
    BEGIN("cuDeviceGetName");
    if (!is_device(device)) return KN_CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)cap, "Fake GPU %d.%d", fake.device[device].major, fake.device[device].minor);
    return OK;
}

kn_cu_result cuDeviceGetAttribute(int *value, kn_cu_enum attribute, kn_cu_device device) {
    BEGIN("cuDeviceGetAttribute");
    if (!is_device(device)) return KN_CUDA_ERROR_INVALID_DEVICE;
    const fake_device *d = &fake.device[device];
    switch (attribute) {
    case KN_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = d->multiprocessors; return OK;
    case KN_CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: *value = 2000000; return OK;
    case KN_CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: *value = 4096; return OK;
    case KN_CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 50 << 20; return OK;
    case KN_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = d->major; return OK;
    case KN_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = d->minor; return OK;
    case KN_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = d->smem + 1024; return OK;
    case KN_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = d->smem; return OK;
    case KN_CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS: *value = fake.pageable; return OK;
    case KN_CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: *value = fake.pools; return OK;
    default: return INVALID_VALUE;
    }
}

kn_cu_result cuDeviceTotalMem_v2(size_t *bytes, kn_cu_device device) {
    BEGIN("cuDeviceTotalMem_v2");
    if (!is_device(device)) return KN_CUDA_ERROR_INVALID_DEVICE;
    *bytes = (size_t)80 << 30;
    return OK;
}

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

static fake_context primary[MAX_DEVICES];
static atomic_ullong next_context_id = 1;
static _Thread_local fake_context *stack[16];
static _Thread_local int depth;

fake_context *fake_current(void) {
    return depth > 0 ? stack[depth - 1] : NULL;
}

kn_cu_result cuDevicePrimaryCtxRetain(kn_cu_context *context, kn_cu_device device) {
    BEGIN_UNSAFE("cuDevicePrimaryCtxRetain");
    if (!is_device(device)) return KN_CUDA_ERROR_INVALID_DEVICE;
    fake_context *c = &primary[device];
    if (!c->alive) *c = (fake_context){device, atomic_fetch_add(&next_context_id, 1), c->references, true, true};
    c->references++;
    fake_note_reference(1);
    *context = c;
    return OK;
}

kn_cu_result cuDevicePrimaryCtxRelease_v2(kn_cu_device device) {
    BEGIN("cuDevicePrimaryCtxRelease_v2");
    if (!is_device(device)) return KN_CUDA_ERROR_INVALID_DEVICE;
    fake_context *c = &primary[device];
    if (c->references == 0) return fake_wrong(INVALID_CONTEXT, "cuDevicePrimaryCtxRelease: not retained");
    fake_note_reference(-1);
    if (--c->references == 0) {
        c->alive = false;
        fake_delete_context(c);
    }
    return OK;
}

kn_cu_result cuDevicePrimaryCtxReset_v2(kn_cu_device device) {
    BEGIN("cuDevicePrimaryCtxReset_v2");
    if (!is_device(device)) return KN_CUDA_ERROR_INVALID_DEVICE;
    primary[device].alive = false;
    fake_delete_context(&primary[device]);
    return OK;
}

kn_cu_result cuDevicePrimaryCtxGetState(kn_cu_device device, unsigned *flags, int *active) {
    BEGIN("cuDevicePrimaryCtxGetState");
    if (!is_device(device)) return KN_CUDA_ERROR_INVALID_DEVICE;
    *flags = 0;
    *active = primary[device].alive;
    return OK;
}

kn_cu_result cuCtxGetCurrent(kn_cu_context *context) {
    BEGIN("cuCtxGetCurrent");
    *context = fake_current();
    return OK;
}

kn_cu_result cuCtxGetDevice(kn_cu_device *device) {
    BEGIN("cuCtxGetDevice");
    if (!fake_current()) return INVALID_CONTEXT;
    *device = fake_current()->device;
    return OK;
}

kn_cu_result cuCtxGetId(kn_cu_context context, unsigned long long *id) {
    BEGIN("cuCtxGetId");
    fake_context *c = context ? context : fake_current();
    if (!c) return INVALID_CONTEXT;
    if (!c->alive) return KN_CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *id = c->id;
    return OK;
}

kn_cu_result cuCtxPushCurrent_v2(kn_cu_context context) {
    BEGIN("cuCtxPushCurrent_v2");
    if (!context || depth == 16) return fake_wrong(INVALID_CONTEXT, "cuCtxPushCurrent: no context, or 16 of them");
    /* The real driver takes a destroyed context and corrupts its own memory later. */
    if (!context->alive) return fake_wrong(OK, "cuCtxPushCurrent: a context that is gone");
    stack[depth++] = context;
    return OK;
}

kn_cu_result cuCtxPopCurrent_v2(kn_cu_context *context) {
    BEGIN("cuCtxPopCurrent_v2");
    if (depth == 0) return fake_wrong(INVALID_CONTEXT, "cuCtxPopCurrent: nothing to pop");
    *context = stack[--depth];
    return OK;
}

kn_cu_result cuCtxCreate_v2(kn_cu_context *context, unsigned flags, kn_cu_device device) {
    BEGIN("cuCtxCreate_v2");
    if (flags != 0 || !is_device(device)) return INVALID_VALUE;
    fake_context *c = fake_new(CONTEXT, sizeof *c);
    *c = (fake_context){device, atomic_fetch_add(&next_context_id, 1), 0, false, true};
    if (depth == 16) return INVALID_CONTEXT;
    stack[depth++] = c;
    *context = c;
    return OK;
}

/* The context's memory stays, so that a use after this is seen; it only stops counting as alive. */
kn_cu_result cuCtxDestroy_v2(kn_cu_context context) {
    BEGIN("cuCtxDestroy_v2");
    if (!context || context->primary || !context->alive) return INVALID_CONTEXT;
    context->alive = false;
    fake_delete_context(context);
    if (fake_current() == context) depth--;
    return OK;
}

kn_cu_result cuThreadExchangeStreamCaptureMode(kn_cu_enum *mode) {
    BEGIN("cuThreadExchangeStreamCaptureMode");
    if (*mode > 2) return INVALID_VALUE;
    kn_cu_enum *mine = fake_capture_mode(), old = *mine;
    *mine = *mode;
    *mode = old;
    return OK;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void *host(kn_cu_ptr p) {
    return (void *)(uintptr_t)p;
}

static int needs_context(const char *name) {
    return fake_current() ? OK : fake_wrong(INVALID_CONTEXT, "%s: no current context", name);
}

/* Device memory [p, p + bytes) must lie in one allocation. */
static int check_range(kn_cu_ptr p, size_t bytes, const char *name) {
    const fake_object *o = fake_find(MEMORY, host(p));
    if (!o) o = fake_find(HOST, host(p));
    if (!o || (size_t)((char *)host(p) - o->address) + bytes > o->bytes)
        return fake_wrong(INVALID_VALUE, "%s: %zu bytes at %p are not allocated", name, bytes, host(p));
    return OK;
}

static int allocate(kn_cu_ptr *p, size_t bytes, const char *name) {
    if (needs_context(name) != OK) return INVALID_CONTEXT;
    if (bytes == 0) return INVALID_VALUE;
    if (bytes > (size_t)64 << 30) return KN_CUDA_ERROR_OUT_OF_MEMORY;
    *p = (kn_cu_ptr)(uintptr_t)fake_new(MEMORY, bytes);
    return OK;
}

kn_cu_result cuMemAlloc_v2(kn_cu_ptr *p, size_t bytes) {
    BEGIN_UNSAFE("cuMemAlloc_v2");
    return allocate(p, bytes, "cuMemAlloc");
}

kn_cu_result cuMemFree_v2(kn_cu_ptr p) {
    BEGIN_UNSAFE("cuMemFree_v2");
    if (needs_context("cuMemFree") != OK) return INVALID_CONTEXT;
    return fake_delete(MEMORY, host(p), "cuMemFree");
}

static int check_stream(kn_cu_stream stream, const char *name) {
    return stream ? fake_check(STREAM, stream, name) : needs_context(name);
}

kn_cu_result cuMemAllocAsync(kn_cu_ptr *p, size_t bytes, kn_cu_stream stream) {
    BEGIN("cuMemAllocAsync");
    if (!fake.pools) return fake_wrong(801, "cuMemAllocAsync: the device has no pools");
    int rc = check_stream(stream, "cuMemAllocAsync");
    return rc == OK ? allocate(p, bytes, "cuMemAllocAsync") : rc;
}

kn_cu_result cuMemFreeAsync(kn_cu_ptr p, kn_cu_stream stream) {
    BEGIN("cuMemFreeAsync");
    int rc = check_stream(stream, "cuMemFreeAsync");
    return rc == OK ? fake_delete(MEMORY, host(p), "cuMemFreeAsync") : rc;
}

kn_cu_result cuMemcpyHtoD_v2(kn_cu_ptr to, const void *from, size_t bytes) {
    BEGIN_UNSAFE("cuMemcpyHtoD_v2");
    if (needs_context("cuMemcpyHtoD") != OK) return INVALID_CONTEXT;
    int rc = check_range(to, bytes, "cuMemcpyHtoD");
    if (rc == OK) memcpy(host(to), from, bytes);
    return rc;
}

kn_cu_result cuMemcpyDtoH_v2(void *to, kn_cu_ptr from, size_t bytes) {
    BEGIN_UNSAFE("cuMemcpyDtoH_v2");
    if (needs_context("cuMemcpyDtoH") != OK) return INVALID_CONTEXT;
    int rc = check_range(from, bytes, "cuMemcpyDtoH");
    if (rc == OK) memcpy(to, host(from), bytes);
    return rc;
}

kn_cu_result cuMemsetD8Async(kn_cu_ptr to, unsigned char value, size_t bytes, kn_cu_stream stream) {
    BEGIN("cuMemsetD8Async");
    int rc = check_stream(stream, "cuMemsetD8Async");
    if (rc == OK) rc = check_range(to, bytes, "cuMemsetD8Async");
    if (rc == OK) memset(host(to), value, bytes);
    return rc;
}

kn_cu_result cuMemHostAlloc(void **p, size_t bytes, unsigned flags) {
    BEGIN_UNSAFE("cuMemHostAlloc");
    if (needs_context("cuMemHostAlloc") != OK) return INVALID_CONTEXT;
    if (bytes == 0 || flags != (KN_CU_MEMHOSTALLOC_PORTABLE | KN_CU_MEMHOSTALLOC_DEVICEMAP)) return INVALID_VALUE;
    *p = fake_new(HOST, bytes);
    return OK;
}

kn_cu_result cuMemFreeHost(void *p) {
    BEGIN_UNSAFE("cuMemFreeHost");
    if (needs_context("cuMemFreeHost") != OK) return INVALID_CONTEXT;
    return fake_delete(HOST, p, "cuMemFreeHost");
}

kn_cu_result cuMemHostGetDevicePointer_v2(kn_cu_ptr *device, void *p, unsigned flags) {
    BEGIN("cuMemHostGetDevicePointer_v2");
    if (flags != 0) return INVALID_VALUE;
    int rc = fake_check(HOST, p, "cuMemHostGetDevicePointer");
    if (rc == OK) *device = (kn_cu_ptr)(uintptr_t)p;
    return rc;
}

kn_cu_result cuPointerGetAttributes(unsigned count, kn_cu_enum *attributes, void **values, kn_cu_ptr p) {
    BEGIN("cuPointerGetAttributes");
    const fake_object *o = fake_find(MEMORY, host(p));
    unsigned type = o ? KN_CU_MEMORYTYPE_DEVICE : 0;
    if (!o && (o = fake_find(HOST, host(p)))) type = KN_CU_MEMORYTYPE_HOST;
    for (unsigned i = 0; i < count; i++) {
        switch (attributes[i]) {
        case KN_CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(unsigned *)values[i] = type; break;
        case KN_CU_POINTER_ATTRIBUTE_IS_MANAGED: *(bool *)values[i] = false; break;
        case KN_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)values[i] = o ? o->context->device : -2; break;
        default: return INVALID_VALUE;
        }
    }
    return OK;
}
