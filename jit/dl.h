/* jit/dl: finds and opens the shared libraries that Kiln uses only when they are there (the CUDA driver, nvJitLink,
 * NVRTC). Everything goes through dlopen with RTLD_NOW | RTLD_LOCAL; no program is run and no cache of the loader is
 * parsed. Nothing is ever closed again: code of these libraries may be running in other threads. */
#ifndef KN_JIT_DL_H
#define KN_JIT_DL_H

#include "base/env.h"
#include "base/status.h"
#include "base/thread.h"

#include <stddef.h>

typedef struct kn_dl_search {
    const char *what;           /* "nvJitLink", for sentences */
    kn_env_id override;         /* a path or soname that replaces the search; "off" for none */
    const char *const *sonames; /* NULL-ended, preferred first: each is tried by the loader, then in every folder */
    const char *const *folders; /* NULL-ended patterns; "$NAME/..." begins with that variable, skipped when unset */
    const char *advice;         /* how to get it, one clause */
} kn_dl_search;

enum { KN_DL_PATH_CAP = 256 };

/** Open the first library found. *path receives the file that was loaded. KN_E_UNAVAILABLE names what was tried, the
 *  loader's own words for files that exist but do not load, and the advice. */
kn_status kn_dl_open(const kn_dl_search *search, void **handle, char path[KN_DL_PATH_CAP]);

/** Address of a symbol into *out (a pointer to a function pointer); false if the library lacks it. */
int kn_dl_symbol(void *handle, const char *name, void *out);

/* A lock that a forked child can take although another thread of its parent held it at the fork. */
typedef struct kn_fork_lock {
    pthread_mutex_t mutex;
    int owner; /* process that may use `mutex`; 0 before first use, -pid while it is made anew */
} kn_fork_lock;
#define KN_FORK_LOCK_INIT                                                                                              \
    { PTHREAD_MUTEX_INITIALIZER, 0 }
void kn_fork_lock_take(kn_fork_lock *lock);
void kn_fork_lock_release(kn_fork_lock *lock);

/* Folders of toolkits and of Python wheels, for kn_dl_search.folders. */
extern const char *const kn_dl_nvjitlink_folders[];
extern const char *const kn_dl_nvrtc_folders[];

#endif
