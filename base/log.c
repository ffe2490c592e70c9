/* Logging: see log.h. */
#include "base/log.h"

#include "base/env.h"
#include "base/thread.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

static atomic_int level_now = -1;
static kn_mutex lock = KN_MUTEX_INIT; /* guards the callback and whole lines */
static kn_log_fn *callback;
static void *callback_user;

int kn_log_level(void) {
    int level = atomic_load_explicit(&level_now, memory_order_relaxed);
    if (level >= 0) return level;
    /* Not by kn_env_i64: lines are written while an error sentence is on its way to the caller, and must not replace
     * it. */
    const char *v = kn_env(KN_ENV_LOG);
    bool good = !v || (v[0] >= '0' && v[0] <= '4' && v[1] == '\0');
    level = v && good ? v[0] - '0' : KN_LOG_WARN;
    int seen = atomic_exchange(&level_now, level);
    if (seen < 0 && !good) kn_log_write(KN_LOG_WARN, "KILN_LOG is \"%.100s\"; wanted 0 to 4: taken for 1", v);
    return level;
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
