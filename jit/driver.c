/* Opening libcuda.so.1, resolving driver.def, cuInit once a process, fork rules: see driver.h. */
#define _POSIX_C_SOURCE 200809L
#include "jit/driver.h"

#include "jit/dl.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

/* Never "libcuda.so": that is the stub that toolkits ship for linking. */
static const char *const sonames[] = {"libcuda.so.1", NULL};
static const char *const folders[] = {"/usr/lib/wsl/lib", "/run/opengl-driver/lib", NULL};
static const kn_dl_search search = {"the CUDA driver", KN_ENV_LIBCUDA, sonames, folders,
                                    "install NVIDIA's driver (in a container: start it with access to the GPUs)"};

enum { NOT_INITIALISED, INITIALISED, FORKED };

static struct {
    kn_fork_lock lock;
    void *handle;
    int version;
    char path[KN_DL_PATH_CAP];
    kn_driver table;
    bool resolved, watches_forks;
    atomic_int state; /* of cuInit in this process */
} driver = {.lock = KN_FORK_LOCK_INIT};

static kn_status stub(void) {
    return kn_fail(
        KN_E_UNAVAILABLE,
        "the CUDA driver: %s is the toolkit's link-time stub, not a driver; let the loader find the driver's "
        "own libcuda.so.1, or name it in KILN_LIBCUDA",
        driver.path);
}

/* Open the library and ask its version, which works without cuInit. Caller holds the lock. */
static kn_status open_library(void) {
    if (driver.version) return KN_OK;
    if (!driver.handle) KN_TRY(kn_dl_open(&search, &driver.handle, driver.path));
    kn_cu_result (*get_version)(int *) = NULL;
    if (!kn_dl_symbol(driver.handle, "cuDriverGetVersion", &get_version))
        return kn_fail(KN_E_UNAVAILABLE, "the CUDA driver: %s has no function cuDriverGetVersion", driver.path);
    int version = 0;
    kn_cu_result rc = get_version(&version);
    if (rc == KN_CUDA_ERROR_STUB_LIBRARY) return stub();
    if (rc != KN_CUDA_SUCCESS || version <= 0)
        return kn_fail(KN_E_UNAVAILABLE, "the CUDA driver: cuDriverGetVersion of %s failed with code %d", driver.path,
                       rc);
    driver.version = version;
    return KN_OK;
}

static kn_status resolve(void) {
    if (driver.resolved) return KN_OK;
    int v = driver.version;
    KN_REQUIRE(v >= KN_DRIVER_OLDEST, KN_E_UNAVAILABLE,
               "the CUDA driver: %s supports CUDA %d.%d; Kiln needs a driver for CUDA %d.%d or newer", driver.path,
               v / 1000, v % 1000 / 10, KN_DRIVER_OLDEST / 1000, KN_DRIVER_OLDEST % 1000 / 10);
#define KN_DRIVER(symbol, since, required, args)                                                                       \
    if (!kn_dl_symbol(driver.handle, #symbol, &driver.table.symbol) && (required))                                     \
        return kn_fail(KN_E_UNAVAILABLE,                                                                               \
                       "the CUDA driver: %s (CUDA %d.%d) has no function " #symbol ", which CUDA %d.%d brought",       \
                       driver.path, v / 1000, v % 1000 / 10, (since) / 1000, (since) % 1000 / 10);
#include "jit/driver.def"
#undef KN_DRIVER
    driver.resolved = true;
    return KN_OK;
}

/* Runs in every forked child: a store, nothing else is allowed there. Asking getpid() in each call instead would cost a
 * tenth of a launch. */
static void in_child(void) {
    if (atomic_load_explicit(&driver.state, memory_order_relaxed) == INITIALISED)
        atomic_store_explicit(&driver.state, FORKED, memory_order_relaxed);
}

static kn_status initialise(void) {
    if (!driver.watches_forks) {
        int err = pthread_atfork(NULL, NULL, in_child);
        if (err != 0) return kn_fail(kn_status_from_errno(err), "the CUDA driver: pthread_atfork: error %d", err);
        driver.watches_forks = true;
    }
    kn_cu_result rc = driver.table.cuInit(0);
    if (rc == KN_CUDA_SUCCESS) {
        atomic_store_explicit(&driver.state, INITIALISED, memory_order_release);
        return KN_OK;
    }
    if (rc == KN_CUDA_ERROR_STUB_LIBRARY) return stub();
    if (rc == KN_CUDA_ERROR_NOT_INITIALIZED)
        return kn_fail(KN_E_FORK, "cuInit: CUDA_ERROR_NOT_INITIALIZED: this process was forked after its parent had "
                                  "initialised the CUDA driver; start GPU work in a fresh process");
    return kn_driver_fail(&driver.table, KN_E_UNAVAILABLE, "cuInit", rc, "driver %s", driver.path);
}

kn_status kn_driver_version(int *version, const char **path) {
    kn_fork_lock_take(&driver.lock);
    kn_status st = open_library();
    kn_fork_lock_release(&driver.lock);
    *version = st == KN_OK ? driver.version : 0;
    *path = driver.handle ? driver.path : NULL;
    return st;
}

kn_status kn_driver_check_process(void) {
    if (atomic_load_explicit(&driver.state, memory_order_acquire) != FORKED) return KN_OK;
    return kn_fail(KN_E_FORK,
                   "this process was forked after its parent had initialised the CUDA driver; start GPU work "
                   "in a fresh process");
}

kn_status kn_driver_get(const kn_driver **out) {
    *out = NULL;
    KN_TRY(kn_driver_check_process());
    if (atomic_load_explicit(&driver.state, memory_order_acquire) == NOT_INITIALISED) {
        kn_fork_lock_take(&driver.lock);
        kn_status st = open_library();
        if (st == KN_OK) st = resolve();
        if (st == KN_OK && atomic_load_explicit(&driver.state, memory_order_acquire) == NOT_INITIALISED)
            st = initialise();
        kn_fork_lock_release(&driver.lock);
        KN_TRY(st);
    }
    *out = &driver.table;
    return KN_OK;
}

static kn_status status_of(kn_cu_result rc, kn_status code) {
    if (rc == KN_CUDA_ERROR_OUT_OF_MEMORY) return KN_E_NOMEM;
    if (rc == KN_CUDA_ERROR_NOT_INITIALIZED || rc == KN_CUDA_ERROR_DEINITIALIZED || rc == KN_CUDA_ERROR_NO_DEVICE ||
        rc == KN_CUDA_ERROR_INVALID_DEVICE)
        return KN_E_UNAVAILABLE;
    if (rc >= KN_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && rc <= KN_CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
        return KN_E_CAPTURE;
    if (rc == KN_CUDA_ERROR_ILLEGAL_ADDRESS || rc == KN_CUDA_ERROR_LAUNCH_TIMEOUT || rc == KN_CUDA_ERROR_ASSERT ||
        (rc >= KN_CUDA_ERROR_HARDWARE_STACK_ERROR && rc <= KN_CUDA_ERROR_LAUNCH_FAILED))
        return KN_E_LAUNCH;
    return code;
}

kn_status kn_driver_fail(const kn_driver *cu, kn_status code, const char *call, kn_cu_result rc, const char *fmt, ...) {
    const char *name = NULL, *text = NULL;
    if (cu->cuGetErrorName(rc, &name) != KN_CUDA_SUCCESS || !name) name = "an unknown code";
    if (cu->cuGetErrorString(rc, &text) != KN_CUDA_SUCCESS || !text) text = "no description";
    char detail[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(detail, sizeof detail, fmt, ap);
    va_end(ap);
    return kn_fail(status_of(rc, code), "%s: %s (%d: %s)%s%s", call, name, rc, text, detail[0] ? "; " : "", detail);
}

bool kn_driver_gone(kn_cu_result rc) {
    return rc == KN_CUDA_SUCCESS || rc == KN_CUDA_ERROR_DEINITIALIZED || rc == KN_CUDA_ERROR_INVALID_CONTEXT ||
           rc == KN_CUDA_ERROR_CONTEXT_IS_DESTROYED;
}
