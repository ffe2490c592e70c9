/* The only way to the heap. All modules allocate through these five functions, so that fault injection reaches every
 * allocation and a failed one is always a KN_E_NOMEM, never a crash.
 *
 * Fault injection (built with KN_FAULT_INJECTION, never in a release): every allocation and every call of base/file.h
 * is a numbered site visit; kn_fault_arm(n) makes the n-th visit from now fail, kn_fault_visits() counts them. */
#ifndef KN_BASE_ALLOC_H
#define KN_BASE_ALLOC_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/** NULL when out of memory (no sentence is set: use the kn_new forms below for that). size 0 gives a valid pointer. */
void *kn_malloc(size_t size) __attribute__((malloc, warn_unused_result));
void *kn_calloc(size_t count, size_t size) __attribute__((malloc, warn_unused_result));
void *kn_realloc(void *p, size_t size) __attribute__((warn_unused_result));
char *kn_strdup(const char *s) __attribute__((malloc, warn_unused_result));
void kn_free(void *p); /* NULL is fine */

/** Zeroed memory in *out, or KN_E_NOMEM with a sentence that says for what. */
kn_status kn_new(void **out, size_t count, size_t size, const char *what);

/* T *p = NULL; KN_TRY(KN_NEW(&p, count, "plan table")); */
#define KN_NEW(pp, count, what) kn_new((void **)(pp), (size_t)(count), sizeof **(pp), (what))

#ifdef KN_FAULT_INJECTION
/** Make the n-th site visit from now fail (1 = the next one); 0 disarms. All threads share the counter. */
void kn_fault_arm(uint64_t n);
uint64_t kn_fault_visits(void);
/** One visit: true if this one must fail. */
bool kn_fault_now(void);
#else
#define kn_fault_now() false
#endif

#endif
