/* CUDA C text -> PTX through NVRTC, for user activations and the float64 oracle. */
#include "base/alloc.h"
#include "jit/assemble.h"
#include "jit/dl.h"
#include "jit/nvrtc_api.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static const char *const sonames[] = {"libnvrtc.so.13", "libnvrtc.so.12", NULL};
static const kn_dl_search search = {
    "NVRTC", KN_ENV_LIBNVRTC, sonames, kn_dl_nvrtc_folders,
    "install the CUDA toolkit or the wheel nvidia-cuda-nvrtc (pip install nvidia-cuda-nvrtc)"};

typedef struct nvrtc {
    uint32_t version;
    char path[KN_DL_PATH_CAP];
#define X(type, name, args) type(*name) args;
    KN_NVRTC_FUNCTIONS(X)
#undef X
} nvrtc;

static nvrtc library;
static _Atomic(const nvrtc *) ready;
static kn_fork_lock load_lock = KN_FORK_LOCK_INIT;

static kn_status load(void) {
    void *handle = NULL;
    KN_TRY(kn_dl_open(&search, &handle, library.path));
#define X(type, name, args)                                                                                            \
    KN_REQUIRE(kn_dl_symbol(handle, "nvrtc" #name, &library.name), KN_E_UNAVAILABLE,                                   \
               "NVRTC: %s has no function nvrtc" #name, library.path);
    KN_NVRTC_FUNCTIONS(X)
#undef X
    int major = 0, minor = 0;
    int rc = library.Version(&major, &minor);
    KN_REQUIRE(rc == 0 && major > 0, KN_E_UNAVAILABLE, "NVRTC: nvrtcVersion of %s failed with code %d", library.path,
               rc);
    library.version = (uint32_t)(major * 1000 + minor * 10);
    return KN_OK;
}

static kn_status get(const nvrtc **out) {
    *out = atomic_load_explicit(&ready, memory_order_acquire);
    if (*out) return KN_OK;
    kn_fork_lock_take(&load_lock);
    kn_status st = KN_OK;
    *out = atomic_load_explicit(&ready, memory_order_acquire);
    if (!*out && (st = load()) == KN_OK) {
        *out = &library;
        atomic_store_explicit(&ready, &library, memory_order_release);
    }
    kn_fork_lock_release(&load_lock);
    return st;
}

kn_status kn_nvrtc_id(uint32_t *version, const char **path) {
    const nvrtc *l = NULL;
    *version = 0;
    *path = NULL;
    KN_TRY(get(&l));
    *version = l->version;
    *path = l->path;
    return KN_OK;
}

static kn_status call_failed(const nvrtc *l, const char *name, const char *call, int rc) {
    return kn_fail(KN_E_ASSEMBLE, "NVRTC %u.%u, %s: %s failed: %s", l->version / 1000, l->version % 1000 / 10, name,
                   call, l->GetErrorString(rc));
}

/* NVRTC's log is the error sentence: it names file and line of the caller's text. */
static kn_status compile_failed(const nvrtc *l, kn_nvrtc_p program, const char *name, int rc) {
    size_t n = 0;
    char *log = NULL;
    kn_status st = KN_OK;
    if (l->GetProgramLogSize(program, &n) == 0 && n > 1) {
        st = KN_NEW(&log, n + 1, "NVRTC's log");
        if (st == KN_OK && l->GetProgramLog(program, log) != 0) log[0] = '\0';
    }
    if (st == KN_OK && log && log[0])
        st = kn_fail(KN_E_ASSEMBLE, "NVRTC %u.%u refused %s: %s", l->version / 1000, l->version % 1000 / 10, name, log);
    else if (st == KN_OK)
        st = call_failed(l, name, "nvrtcCompileProgram", rc);
    kn_free(log);
    return st;
}

static kn_status take_ptx(const nvrtc *l, kn_nvrtc_p program, const char *name, char **ptx, size_t *len) {
    size_t n = 0;
    int rc = l->GetPTXSize(program, &n); /* the NUL counted */
    if (rc != 0 || n == 0) return call_failed(l, name, "nvrtcGetPTXSize", rc);
    KN_TRY(KN_NEW(ptx, n + 1, "PTX of NVRTC"));
    rc = l->GetPTX(program, *ptx);
    if (rc != 0) return call_failed(l, name, "nvrtcGetPTX", rc);
    *len = strlen(*ptx);
    return KN_OK;
}

kn_status kn_nvrtc_compile(const char *source, const char *name, const char *target, char **ptx, size_t *len) {
    *ptx = NULL;
    *len = 0;
    const nvrtc *l = NULL;
    KN_TRY(get(&l));
    KN_REQUIRE(strncmp(target, "sm_", 3) == 0 && strlen(target) < 16, KN_E_ARG,
               "target is \"%s\"; wanted sm_ and a number, such as sm_90a", target);
    char arch[48];
    snprintf(arch, sizeof arch, "--gpu-architecture=compute_%s", target + 3);
    /* No contraction: the text means what it says, as in Kiln's own templates. */
    const char *options[] = {arch, "--fmad=false", "--std=c++17", "--device-as-default-execution-space"};
    kn_nvrtc_p program = NULL;
    kn_status st = KN_OK;
    int rc = l->CreateProgram(&program, source, name, 0, NULL, NULL);
    if (rc != 0) return call_failed(l, name, "nvrtcCreateProgram", rc);
    rc = l->CompileProgram(program, 4, options);
    st = rc != 0 ? compile_failed(l, program, name, rc) : take_ptx(l, program, name, ptx, len);
    l->DestroyProgram(&program);
    if (st != KN_OK) {
        kn_free(*ptx);
        *ptx = NULL;
        *len = 0;
    }
    return st;
}
