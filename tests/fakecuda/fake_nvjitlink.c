/* An nvJitLink for tests, built in several variants:
 *
 *   SUFFIX   version in the function names, 12_0
 *   MAJOR, MINOR  what nvJitLinkVersion says; without them the library has no such function
 *   NO_CACHE      it knows the option -no-cache
 *   PARTIAL       one function is missing
 *   BROKEN        it needs a symbol that exists nowhere, so that it does not load
 *
 * Its cubin is an ELF header and the version. FAKENVJITLINK=AddData:4 makes a function fail with that code. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define PASTE2(a, b) a##_##b
#define PASTE(a, b) PASTE2(a, b)
#define NAME(f) PASTE(__nvJitLink##f, SUFFIX)
#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)

typedef struct handle {
    char error[256];
    int complete;
} handle;

static const char cubin[] = "\177ELF fake nvJitLink " TEXT(SUFFIX);
#define INFO "ptxas info    : Used 11 registers, 64 bytes smem\n"

static int failing(const char *function) {
    const char *script = getenv("FAKENVJITLINK");
    size_t n = strlen(function);
    return script && strncmp(script, function, n) == 0 && script[n] == ':' ? atoi(script + n + 1) : 0;
}

EXPORT int NAME(Create)(handle **h, uint32_t n, const char **options);
int NAME(Create)(handle **h, uint32_t n, const char **options) {
    *h = NULL;
    for (uint32_t i = 0; i < n; i++) {
        int known = strncmp(options[i], "-arch=sm_", 9) == 0 || strcmp(options[i], "-O3") == 0 ||
                    strcmp(options[i], "-Xptxas=-v") == 0;
#ifdef NO_CACHE
        known |= strcmp(options[i], "-no-cache") == 0;
#endif
        if (!known) return 1;
    }
    if (failing("Create")) return failing("Create");
    *h = calloc(1, sizeof **h);
    return *h ? 0 : 6;
}

EXPORT int NAME(Destroy)(handle **h);
int NAME(Destroy)(handle **h) {
    free(*h);
    *h = NULL;
    return failing("Destroy");
}

EXPORT int NAME(AddData)(handle *h, unsigned type, const void *data, size_t size, const char *name);
int NAME(AddData)(handle *h, unsigned type, const void *data, size_t size, const char *name) {
    (void)data, (void)size, (void)name;
    int rc = type != 2 ? 12 : failing("AddData");
    if (rc) snprintf(h->error, sizeof h->error, "ptxas application ptx input, line 3; error   : planted\n");
    return rc;
}

EXPORT int NAME(Complete)(handle *h);
int NAME(Complete)(handle *h) {
    h->complete = 1;
    return failing("Complete");
}

EXPORT int NAME(GetLinkedCubinSize)(handle *h, size_t *size);
int NAME(GetLinkedCubinSize)(handle *h, size_t *size) {
    *size = h->complete ? sizeof cubin : 0;
    return h->complete ? failing("GetLinkedCubinSize") : 6;
}

EXPORT int NAME(GetLinkedCubin)(handle *h, void *out);
int NAME(GetLinkedCubin)(handle *h, void *out) {
    (void)h;
    memcpy(out, cubin, sizeof cubin);
    return failing("GetLinkedCubin");
}

EXPORT int NAME(GetErrorLogSize)(handle *h, size_t *size);
int NAME(GetErrorLogSize)(handle *h, size_t *size) {
    *size = strlen(h->error) + 1;
    return failing("GetErrorLogSize");
}

EXPORT int NAME(GetErrorLog)(handle *h, char *log);
int NAME(GetErrorLog)(handle *h, char *log) {
    strcpy(log, h->error);
    return failing("GetErrorLog");
}

EXPORT int NAME(GetInfoLogSize)(handle *h, size_t *size);
int NAME(GetInfoLogSize)(handle *h, size_t *size) {
    (void)h;
    *size = sizeof INFO;
    return failing("GetInfoLogSize");
}

#ifndef PARTIAL
EXPORT int NAME(GetInfoLog)(handle *h, char *log);
int NAME(GetInfoLog)(handle *h, char *log) {
    (void)h;
    strcpy(log, INFO);
    return failing("GetInfoLog");
}
#endif

#ifdef MAJOR
EXPORT int nvJitLinkVersion(unsigned *major, unsigned *minor);
int nvJitLinkVersion(unsigned *major, unsigned *minor) {
    *major = MAJOR;
    *minor = MINOR;
    return 0;
}
#endif

#ifdef BROKEN
extern int kiln_symbol_that_exists_nowhere(void);
EXPORT int broken(void);
int broken(void) {
    return kiln_symbol_that_exists_nowhere();
}
#endif
