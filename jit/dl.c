/* Opening optional libraries: see dl.h. */
#define _GNU_SOURCE
#include "jit/dl.h"

#include "base/buf.h"
#include "base/log.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Where toolkits install libraries, and where the wheels `package` (CUDA 12) and cu13 put theirs: active environment
 * first, then the user's, then the system's. */
#define TOOLKIT_FOLDERS                                                                                                \
    "$CUDA_HOME/lib64", "$CUDA_HOME/lib", "$CUDA_PATH/lib64", "$CUDA_PATH/lib", "/usr/local/cuda/lib64",               \
        "/usr/local/cuda/lib", "/usr/local/cuda-[0-9]*/lib64", "/usr/local/cuda-[0-9]*/lib", "/opt/cuda/lib64"
#define WHEEL_FOLDERS(package)                                                                                         \
    "$VIRTUAL_ENV/lib/python3*/site-packages/nvidia/cu13/lib",                                                         \
        "$VIRTUAL_ENV/lib/python3*/site-packages/nvidia/" package "/lib", "$CONDA_PREFIX/lib",                         \
        "$CONDA_PREFIX/lib/python3*/site-packages/nvidia/cu13/lib",                                                    \
        "$CONDA_PREFIX/lib/python3*/site-packages/nvidia/" package "/lib",                                             \
        "$HOME/.local/lib/python3*/site-packages/nvidia/cu13/lib",                                                     \
        "$HOME/.local/lib/python3*/site-packages/nvidia/" package "/lib",                                              \
        "$HOME/.pyenv/versions/*/lib/python3*/site-packages/nvidia/cu13/lib",                                          \
        "$HOME/.pyenv/versions/*/lib/python3*/site-packages/nvidia/" package "/lib",                                   \
        "/usr/local/lib/python3*/*-packages/nvidia/cu13/lib",                                                          \
        "/usr/local/lib/python3*/*-packages/nvidia/" package "/lib", "/usr/lib/python3*/*-packages/nvidia/cu13/lib",   \
        "/usr/lib/python3*/*-packages/nvidia/" package "/lib"

const char *const kn_dl_nvjitlink_folders[] = {TOOLKIT_FOLDERS, WHEEL_FOLDERS("nvjitlink"), NULL};
const char *const kn_dl_nvrtc_folders[] = {TOOLKIT_FOLDERS, WHEEL_FOLDERS("cuda_nvrtc"), NULL};

/* The file behind a handle; a library that was already in the process may come from anywhere. */
static void path_of(void *handle, const char *asked, char path[KN_DL_PATH_CAP]) {
    struct link_map *map = NULL;
    const char *name = asked;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name[0]) name = map->l_name;
    snprintf(path, KN_DL_PATH_CAP, "%s", name);
}

/* Open `name`; a file that exists but does not load adds the loader's words to `refused`. */
static void *try_open(const char *name, char path[KN_DL_PATH_CAP], kn_buf *refused) {
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle) {
        path_of(handle, name, path);
        return handle;
    }
    const char *why = dlerror();
    size_t n = strlen(name);
    int absent = why && strncmp(why, name, n) == 0 && strstr(why + n, "cannot open shared object file");
    if (why && !absent) kn_buf_addf(refused, "; %s", why);
    return NULL;
}

/* "$NAME/rest" with the variable's value in its place; 0 if it is unset or does not fit. */
static int expand_folder(const char *folder, char *out, size_t cap) {
    const char *rest = folder, *value = "";
    if (*folder == '$') {
        char name[32];
        rest = strchr(folder, '/');
        if (!rest || (size_t)(rest - folder) > sizeof name) return 0;
        memcpy(name, folder + 1, (size_t)(rest - folder - 1));
        name[rest - folder - 1] = '\0';
        value = kn_env_system(name);
        if (!value || *value != '/') return 0; /* a relative path would load code from wherever we happen to be */
    }
    int n = snprintf(out, cap, "%s%s", value, rest);
    return n > 0 && (size_t)n < cap;
}

/* `soname` in every folder that the pattern matches, the last in sorting order (newest version) first. */
static void *try_folder(const char *folder, const char *soname, char path[KN_DL_PATH_CAP], kn_buf *refused) {
    char dir[PATH_MAX], pattern[PATH_MAX];
    if (!expand_folder(folder, dir, sizeof dir)) return NULL;
    int n = snprintf(pattern, sizeof pattern, "%s/%s", dir, soname);
    if (n < 0 || (size_t)n >= sizeof pattern) return NULL;
    glob_t found;
    void *handle = NULL;
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = found.gl_pathc; i > 0 && !handle; i--) handle = try_open(found.gl_pathv[i - 1], path, refused);
    globfree(&found);
    return handle;
}

static void *search_all(const kn_dl_search *s, char path[KN_DL_PATH_CAP], kn_buf *refused) {
    for (const char *const *soname = s->sonames; *soname; soname++) {
        void *handle = try_open(*soname, path, refused);
        for (const char *const *folder = s->folders; *folder && !handle; folder++)
            handle = try_folder(*folder, *soname, path, refused);
        if (handle) return handle;
    }
    return NULL;
}

/* The sentence of a failed search: names, folders, refusals, advice. */
static kn_status not_found(const kn_dl_search *s, const kn_buf *refused) {
    kn_buf text;
    kn_buf_init(&text, KN_ERROR_CAP);
    for (const char *const *soname = s->sonames; *soname; soname++)
        kn_buf_addf(&text, "%s%s", soname == s->sonames ? "" : ", ", *soname);
    for (const char *const *folder = s->folders; *folder; folder++)
        kn_buf_addf(&text, "%s%s", folder == s->folders ? " (the loader's path, then " : " ", *folder);
    if (*s->folders) kn_buf_add(&text, ")");
    kn_status st = kn_buf_status(&text);
    if (st == KN_OK)
        st = kn_fail(KN_E_UNAVAILABLE, "%s was not found: tried %s%s; %s, or set %s", s->what, text.data,
                     refused->len ? refused->data : "", s->advice, kn_env_table[s->override].name);
    kn_buf_free(&text);
    return st;
}

kn_status kn_dl_open(const kn_dl_search *s, void **handle, char path[KN_DL_PATH_CAP]) {
    *handle = NULL;
    path[0] = '\0';
    kn_status st = KN_OK;
    const char *forced = kn_env(s->override);
    if (forced && strcmp(forced, "off") == 0)
        return kn_fail(KN_E_UNAVAILABLE, "%s is switched off: %s is \"off\"", s->what, kn_env_table[s->override].name);
    if (forced) {
        *handle = dlopen(forced, RTLD_NOW | RTLD_LOCAL);
        if (!*handle)
            return kn_fail(KN_E_UNAVAILABLE, "%s: %s names a library that does not load: %s", s->what,
                           kn_env_table[s->override].name, dlerror());
        path_of(*handle, forced, path);
    } else {
        kn_buf refused;
        kn_buf_init(&refused, 2048);
        *handle = search_all(s, path, &refused);
        if (!*handle) st = not_found(s, &refused);
        kn_buf_free(&refused);
    }
    if (*handle) kn_log(KN_LOG_PLAN, "%s: loaded %s", s->what, path);
    return st;
}

int kn_dl_symbol(void *handle, const char *name, void *out) {
    void *address = dlsym(handle, name);
    memcpy(out, &address, sizeof address); /* ISO C has no cast from object to function pointers */
    return address != NULL;
}

void kn_fork_lock_take(kn_fork_lock *lock) {
    int me = (int)getpid();
    int seen = __atomic_load_n(&lock->owner, __ATOMIC_ACQUIRE);
    while (seen != me) {
        /* A child inherits the mutex in whatever state it had; the first thread that notices makes a new one. */
        if (seen != -me &&
            __atomic_compare_exchange_n(&lock->owner, &seen, -me, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            pthread_mutex_init(&lock->mutex, NULL);
            __atomic_store_n(&lock->owner, me, __ATOMIC_RELEASE);
            break;
        }
        sched_yield();
        seen = __atomic_load_n(&lock->owner, __ATOMIC_ACQUIRE);
    }
    pthread_mutex_lock(&lock->mutex);
}

void kn_fork_lock_release(kn_fork_lock *lock) {
    pthread_mutex_unlock(&lock->mutex);
}
