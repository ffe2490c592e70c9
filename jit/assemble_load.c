/* Finding nvJitLink and resolving its versioned functions, newest to oldest: see assemble_nvjitlink.h. */
#include "jit/assemble_nvjitlink.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static const char *const sonames[] = {"libnvJitLink.so.13", "libnvJitLink.so.12", NULL};
static const kn_dl_search search = {
    "nvJitLink", KN_ENV_LIBNVJITLINK, sonames, kn_dl_nvjitlink_folders,
    "install the CUDA toolkit or the wheel nvidia-nvjitlink (pip install nvidia-nvjitlink)"};

static kn_nvjitlink library;
static _Atomic(const kn_nvjitlink *) ready; /* &library once it is complete */
static kn_fork_lock load_lock = KN_FORK_LOCK_INIT;

/* All functions of version major.minor; false at the first that is missing (named in *missing). */
static bool resolve_version(void *handle, int major, int minor, const char **missing) {
    char symbol[64];
#define X(name, args)                                                                                                  \
    snprintf(symbol, sizeof symbol, "__nvJitLink" #name "_%d_%d", major, minor);                                       \
    if (!kn_dl_symbol(handle, symbol, &library.name)) {                                                                \
        *missing = #name;                                                                                              \
        return false;                                                                                                  \
    }
    KN_NVJITLINK_FUNCTIONS(X)
#undef X
    return true;
}

/* Functions of the newest version that the library has in full, and its version: what it says of itself, else (before
 * 12.3) the version in the names. */
static kn_status resolve(void *handle, const char *path) {
    const char *missing = "Create";
    int major = 15, minor = 9;
    while (major >= 12 && !resolve_version(handle, major, minor, &missing))
        if (--minor < 0) major--, minor = 9;
    KN_REQUIRE(major >= 12, KN_E_UNAVAILABLE,
               "nvJitLink: %s has no complete set of functions __nvJitLink..._12_0 to _15_9 (nvJitLink%s)", path,
               missing);
    unsigned self_major = 0, self_minor = 0;
    int (*version)(unsigned *, unsigned *) = NULL;
    if (kn_dl_symbol(handle, "nvJitLinkVersion", &version) && version(&self_major, &self_minor) == 0 && self_major)
        library.id.version = self_major * 1000 + self_minor * 10;
    else
        library.id.version = (uint32_t)(major * 1000 + minor * 10);
    return KN_OK;
}

/* nvJitLink keeps a cache of its own and loads the CUDA driver for it unless told not to. Kiln's cache is enough, and
 * assembling must not touch a driver; releases that do not know the option are used without it. */
static bool knows_no_cache(void) {
    const char *options[] = {"-arch=sm_80", "-no-cache"};
    kn_nvjitlink_h handle = NULL;
    int rc = library.Create(&handle, 2, options);
    if (handle) library.Destroy(&handle);
    return rc == KN_NVJITLINK_SUCCESS;
}

static kn_status load(void) {
    void *handle = NULL;
    KN_TRY(kn_dl_open(&search, &handle, library.id.path));
    KN_TRY(resolve(handle, library.id.path));
    library.no_cache = knows_no_cache();
    snprintf(library.id.kind, sizeof library.id.kind, "nvjitlink");
    snprintf(library.id.options, sizeof library.id.options, "-O3 -Xptxas=-v%s", library.no_cache ? " -no-cache" : "");
    return KN_OK;
}

kn_status kn_nvjitlink_get(const kn_nvjitlink **out) {
    *out = atomic_load_explicit(&ready, memory_order_acquire);
    if (*out) return KN_OK;
    /* A failure is not remembered: the library may be installed or named while a program runs. */
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

kn_status kn_nvjitlink_id(const kn_assembler_id **out) {
    const kn_nvjitlink *l = NULL;
    *out = NULL;
    KN_TRY(kn_nvjitlink_get(&l));
    *out = &l->id;
    return KN_OK;
}
