/* Logging: see log.h. */
#include "base/log.h"

#include "base/env.h"
#include "base/thread.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_int level_now = -1;
static kn_mutex lock = KN_MUTEX_INIT; /* guards the callback and whole lines */
static kn_log_fn *callback;
static void *callback_user;

int kn_log_level(void) {
    int level = atomic_load_explicit(&level_now, memory_order_relaxed);
    if (level >= 0) return level;
    int64_t v;
    if (kn_env_i64(KN_ENV_LOG, 1, 0, 4, &v) != KN_OK) v = 1;
    atomic_store(&level_now, (int)v);
    return (int)v;
}

void kn_log_set_level(int level) {
    atomic_store(&level_now, level);
}

void kn_log_set_callback(kn_log_fn *fn, void *user) {
    kn_lock(&lock);
    callback = fn;
    callback_user = user;
    kn_unlock(&lock);
}

void kn_log_write(int level, const char *fmt, ...) {
    char line[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    kn_lock(&lock);
    if (callback) {
        callback(callback_user, level, line);
    } else {
        const char *path = kn_env(KN_ENV_LOG_FILE);
        FILE *file = path ? fopen(path, "a") : NULL;
        fprintf(file ? file : stderr, "kiln[%d] %s\n", level, line);
        if (file) fclose(file);
    }
    kn_unlock(&lock);
}
