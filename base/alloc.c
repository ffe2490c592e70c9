/* Heap access and fault injection: see alloc.h. */
#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

#ifdef KN_FAULT_INJECTION
#include <stdatomic.h>
static atomic_uint_fast64_t visits, fail_at;

void kn_fault_arm(uint64_t n) {
    atomic_store(&visits, 0);
    atomic_store(&fail_at, n);
}

uint64_t kn_fault_visits(void) {
    return atomic_load(&visits);
}

bool kn_fault_now(void) {
    uint64_t now = atomic_fetch_add(&visits, 1) + 1;
    uint64_t at = atomic_load(&fail_at);
    return at != 0 && now == at;
}
#endif

void *kn_malloc(size_t size) {
    return kn_fault_now() ? NULL : malloc(size ? size : 1);
}

void *kn_calloc(size_t count, size_t size) {
    return kn_fault_now() ? NULL : calloc(count ? count : 1, size ? size : 1);
}

void *kn_realloc(void *p, size_t size) {
    return kn_fault_now() ? NULL : realloc(p, size ? size : 1);
}

char *kn_strdup(const char *s) {
    size_t n = strlen(s) + 1;
    char *copy = kn_malloc(n);
    if (copy) memcpy(copy, s, n);
    return copy;
}

void kn_free(void *p) {
    free(p);
}

kn_status kn_new(void **out, size_t count, size_t size, const char *what) {
    *out = kn_calloc(count, size);
    if (!*out) return kn_fail(KN_E_NOMEM, "out of memory: %zu x %zu bytes for %s", count, size, what);
    return KN_OK;
}
