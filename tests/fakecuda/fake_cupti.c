/* A libcupti.so.13 for tests: its kernel records are the launches in the log of the fake driver that KILN_LIBCUDA
 * names. Marks take 1 us; every other kernel starts 0.5 us after the one before it has ended and takes 3 us. Records
 * are handed out newest first, as nothing promises their order. */
#include "fakecuda/fake_state.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct record { /* CUpti_ActivityKernel9, as far as `name` */
    uint32_t kind;
    char before[12];
    uint64_t start, end;
    char between[72];
    const char *name;
    char after[48];
} record;

static void (*request)(uint8_t **buffer, size_t *size, size_t *max_records);
static void (*complete)(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);
static size_t log_start;
static int enabled;

static const char *driver_log(void) {
    void *driver = dlopen(getenv("KILN_LIBCUDA"), RTLD_NOW | RTLD_NOLOAD);
    const char *(*log)(void);
    void *address = driver ? dlsym(driver, "fakecuda_log") : NULL;
    if (!address) abort();
    memcpy(&log, &address, sizeof log);
    return log();
}

EXPORT int cuptiActivityRegisterCallbacks(void (*r)(uint8_t **, size_t *, size_t *),
                                          void (*c)(void *, uint32_t, uint8_t *, size_t, size_t)) {
    request = r;
    complete = c;
    return 0;
}

EXPORT int cuptiActivityEnable(int kind) {
    const char *mode = getenv("FAKECUPTI");
    if (kind != 10 || (mode && strcmp(mode, "refuses") == 0)) return 1;
    enabled = 1;
    log_start = strlen(driver_log());
    return 0;
}

EXPORT int cuptiActivityDisable(int kind) {
    enabled = 0;
    return kind != 10;
}

static int is_mark(const char *name) {
    return strcmp(name, "kiln_bench_mark") == 0;
}

EXPORT int cuptiActivityFlushAll(uint32_t flags) {
    if (!enabled || flags != 1) return 1;
    static char names[4096][64];
    size_t n = 0;
    for (const char *at = strstr(driver_log() + log_start, "\nlaunch "); at && n < 4096;
         at = strstr(at + 1, "\nlaunch "))
        sscanf(at, "\nlaunch %63s", names[n++]);
    const char *mode = getenv("FAKECUPTI");
    if (n && mode && strcmp(mode, "forgets") == 0) n--;
    uint64_t now = 1000000;
    uint8_t *buffer;
    size_t size, most;
    request(&buffer, &size, &most);
    if (size < n * sizeof(record)) return 1;
    for (size_t i = 0; i < n; i++) {
        record r = {.kind = 10, .start = now + 500, .name = names[i]};
        now = r.end = r.start + (is_mark(names[i]) ? 1000 : 3000);
        memcpy(buffer + (n - 1 - i) * sizeof r, &r, sizeof r);
    }
    complete(NULL, 0, buffer, size, n * sizeof(record));
    return 0;
}

EXPORT int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **out) {
    uint8_t *next = *out ? *out + sizeof(record) : buffer;
    if (next + sizeof(record) > buffer + valid) return 12;
    *out = next;
    return 0;
}

EXPORT int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *n) {
    (void)context, (void)stream;
    *n = 0;
    return 0;
}

EXPORT int cuptiGetResultString(int rc, const char **text) {
    *text = rc ? "a failure of the fake CUPTI" : "success";
    return 0;
}
