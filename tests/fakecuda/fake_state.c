/* The fake driver's script, log and objects: see fake_cuda.h. */
#define _GNU_SOURCE
#include "fakecuda/fake_state.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOG_BYTES = 1 << 20 };
typedef struct failure {
    char name[64]; /* "" = any call */
    unsigned long left;
    int code;
} failure;

fake_setup fake;
void (*fake_launch_hook)(const char *kernel, const kn_cu_launch_config *, void **params);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static failure failures[16];
static unsigned long calls;
static char log_text[LOG_BYTES];
static size_t log_len;
static long misuses, references;
static char first_misuse[256];
static fake_object *objects;
static pid_t init_pid;
static kn_cu_stream captured[8];
static bool capture_broken;
static _Thread_local kn_cu_enum capture_mode = KN_CU_STREAM_CAPTURE_MODE_GLOBAL;

/* ---- script ------------------------------------------------------------------------------------------------------ */

static void add_failure(const char *text) {
    failure f = {.left = 0};
    if (sscanf(text, "%63[a-zA-Z0-9_]:%lu:%d", f.name, &f.left, &f.code) != 3) {
        f.name[0] = '\0';
        if (sscanf(text, "%lu:%d", &f.left, &f.code) != 2) abort();
    }
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++)
        if (failures[i].left == 0) {
            failures[i] = f;
            return;
        }
    abort();
}

static void reset(void) {
    memset(failures, 0, sizeof failures);
    misuses = 0;
    first_misuse[0] = '\0';
    log_len = 0;
    log_text[0] = '\0';
    capture_broken = false;
}

static void obey(const char *word) {
    int i = 0;
    fake_device d;
    if (sscanf(word, "version=%d", &fake.version) == 1 || sscanf(word, "devices=%d", &fake.devices) == 1 ||
        sscanf(word, "init=%d", &fake.init_code) == 1)
        return;
    if (sscanf(word, "device=%d:%d.%d:%d:%d", &i, &d.major, &d.minor, &d.multiprocessors, &d.smem) == 5 && i >= 0 &&
        i < MAX_DEVICES)
        fake.device[i] = d;
    else if (strcmp(word, "stub") == 0)
        fake.stub = true;
    else if (strcmp(word, "deinit") == 0)
        fake.deinit = true;
    else if (strcmp(word, "nopools") == 0)
        fake.pools = false;
    else if (strcmp(word, "pageable") == 0)
        fake.pageable = true;
    else if (strcmp(word, "nolog") == 0)
        fake.link_log = false;
    else if (strcmp(word, "reset") == 0)
        reset();
    else if (strncmp(word, "fail=", 5) == 0)
        add_failure(word + 5);
    else {
        fprintf(stderr, "fake libcuda: unknown word \"%s\" in its script\n", word);
        abort();
    }
}

EXPORT void fakecuda_script(const char *words);
void fakecuda_script(const char *words) {
    char copy[1024], *save = NULL;
    snprintf(copy, sizeof copy, "%s", words);
    pthread_mutex_lock(&lock);
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save)) obey(w);
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void start(void) {
    fake = (fake_setup){.version = 13000, .devices = 1, .pools = true, .link_log = true};
    for (int i = 0; i < MAX_DEVICES; i++) fake.device[i] = (fake_device){9, 0, 132, 232448};
    const char *words = getenv("FAKECUDA");
    if (words) fakecuda_script(words);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static void vlog(const char *fmt, va_list ap) {
    int n = vsnprintf(log_text + log_len, LOG_BYTES - log_len, fmt, ap);
    if (n > 0 && log_len + (size_t)n + 2 < LOG_BYTES) {
        log_len += (size_t)n;
        log_text[log_len++] = '\n';
    }
    log_text[log_len] = '\0';
}

void fake_logf(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    pthread_mutex_lock(&lock);
    vlog(fmt, ap);
    pthread_mutex_unlock(&lock);
    va_end(ap);
}

int fake_wrong(int rc, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    pthread_mutex_lock(&lock);
    if (misuses++ == 0) vsnprintf(first_misuse, sizeof first_misuse, fmt, ap);
    pthread_mutex_unlock(&lock);
    va_end(ap);
    return rc;
}

bool fake_is_initialised(void) {
    return init_pid == getpid();
}

void fake_set_initialised(void) {
    init_pid = getpid();
}

static int scripted_failure(const char *name) {
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        failure *f = &failures[i];
        if (f->left == 0 || (f->name[0] && strcmp(f->name, name) != 0)) continue;
        if (--f->left == 0) return f->code;
    }
    return OK;
}

static int begin_locked(const char *name) {
    calls++;
    size_t n = strlen(name);
    if (log_len + n + 2 < LOG_BYTES) {
        memcpy(log_text + log_len, name, n);
        log_len += n;
        log_text[log_len++] = '\n';
        log_text[log_len] = '\0';
    }
    if (fake.stub) return KN_CUDA_ERROR_STUB_LIBRARY;
    if (fake.deinit) return KN_CUDA_ERROR_DEINITIALIZED;
    int rc = scripted_failure(name);
    if (rc != OK) return rc;
    bool needs_init = strcmp(name, "cuInit") != 0 && strcmp(name, "cuDriverGetVersion") != 0;
    return needs_init && !fake_is_initialised() ? KN_CUDA_ERROR_NOT_INITIALIZED : OK;
}

int fake_begin(const char *name) {
    pthread_mutex_lock(&lock);
    int rc = begin_locked(name);
    pthread_mutex_unlock(&lock);
    return rc;
}

int fake_begin_unsafe(const char *name) {
    pthread_mutex_lock(&lock);
    int rc = begin_locked(name);
    if (rc == OK && capture_mode != KN_CU_STREAM_CAPTURE_MODE_RELAXED)
        for (size_t i = 0; i < sizeof captured / sizeof *captured; i++)
            if (captured[i]) {
                capture_broken = true;
                rc = KN_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
            }
    pthread_mutex_unlock(&lock);
    return rc;
}

kn_cu_enum *fake_capture_mode(void) {
    return &capture_mode;
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

enum { ALIGNMENT = 256 }; /* as the driver's allocations */

void *fake_new(fake_kind kind, size_t bytes) {
    fake_object *o = calloc(1, sizeof *o);
    if (!o) abort();
    fake_context *c = fake_current();
    if (bytes == 0) bytes = 1;
    char *block = calloc(1, bytes + ALIGNMENT - 1); /* what is large comes from the kernel, zeroed when it is touched */
    if (!block) abort();
    size_t shift = (ALIGNMENT - (uintptr_t)block % ALIGNMENT) % ALIGNMENT;
    *o = (fake_object){kind, block + shift, bytes, c, c ? c->id : 0, block, NULL, NULL};
    pthread_mutex_lock(&lock);
    o->next = objects;
    objects = o;
    pthread_mutex_unlock(&lock);
    return o->address;
}

static fake_object **slot_of(fake_kind kind, const char *address) {
    for (fake_object **o = &objects; *o; o = &(*o)->next)
        if ((*o)->kind == kind && address >= (*o)->address && address < (*o)->address + (*o)->bytes) return o;
    return NULL;
}

fake_object *fake_find(fake_kind kind, const void *address) {
    pthread_mutex_lock(&lock);
    fake_object **slot = slot_of(kind, address);
    fake_object *o = slot ? *slot : NULL;
    pthread_mutex_unlock(&lock);
    return o;
}

int fake_check(fake_kind kind, const void *address, const char *what) {
    const fake_object *o = fake_find(kind, address);
    if (!o || o->address != address) return fake_wrong(INVALID_HANDLE, "%s: stale handle %p", what, address);
    if (!fake_current()) return fake_wrong(INVALID_CONTEXT, "%s: no current context", what);
    if (o->context != fake_current() || o->context_id != fake_current()->id)
        return fake_wrong(INVALID_HANDLE, "%s: handle %p of another context", what, address);
    return OK;
}

int fake_delete(fake_kind kind, void *address, const char *what) {
    pthread_mutex_lock(&lock);
    fake_object **slot = slot_of(kind, address), *o = slot ? *slot : NULL;
    if (o && o->address == address)
        *slot = o->next;
    else
        o = NULL;
    pthread_mutex_unlock(&lock);
    if (!o) return fake_wrong(INVALID_HANDLE, "%s: stale handle %p", what, address);
    free(o->extra);
    free(o->block);
    free(o);
    return OK;
}

void fake_delete_context(fake_context *c) {
    pthread_mutex_lock(&lock);
    for (fake_object **o = &objects; *o;) {
        fake_object *gone = *o;
        if (gone->context != c || gone->kind == CONTEXT) {
            o = &gone->next;
            continue;
        }
        *o = gone->next;
        free(gone->extra);
        free(gone->block);
        free(gone);
    }
    pthread_mutex_unlock(&lock);
}

void fake_note_reference(long delta) {
    pthread_mutex_lock(&lock);
    references += delta;
    pthread_mutex_unlock(&lock);
}

bool fake_stream_capturing(kn_cu_stream stream) {
    bool yes = false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof captured / sizeof *captured; i++) yes |= stream && captured[i] == stream;
    pthread_mutex_unlock(&lock);
    return yes;
}

/* ---- control ----------------------------------------------------------------------------------------------------- */

#define X(type, name, args) EXPORT type name args;
FAKECUDA_CONTROL(X)
#undef X

unsigned long fakecuda_calls(void) {
    return calls;
}

unsigned long fakecuda_count(const char *name) {
    unsigned long n = 0;
    size_t len = strlen(name);
    pthread_mutex_lock(&lock);
    for (const char *line = log_text; line && *line;) {
        n += strncmp(line, name, len) == 0;
        line = strchr(line, '\n');
        if (line) line++;
    }
    pthread_mutex_unlock(&lock);
    return n;
}

const char *fakecuda_log(void) {
    return log_text;
}

long fakecuda_live(void) {
    pthread_mutex_lock(&lock);
    long n = references;
    for (const fake_object *o = objects; o; o = o->next) n++;
    pthread_mutex_unlock(&lock);
    return n;
}

long fakecuda_misuses(void) {
    return misuses;
}

const char *fakecuda_misuse(void) {
    return first_misuse;
}

void fakecuda_capture(kn_cu_stream stream, int on) {
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof captured / sizeof *captured; i++)
        if (captured[i] == (on ? NULL : stream)) {
            captured[i] = on ? stream : NULL;
            break;
        }
    pthread_mutex_unlock(&lock);
}

int fakecuda_capture_intact(void) {
    return !capture_broken;
}

void fakecuda_on_launch(void (*hook)(const char *kernel, const kn_cu_launch_config *, void **params)) {
    fake_launch_hook = hook;
}
