/* Arena: many small objects with one lifetime. Allocation is a bump; everything is freed at once.
 * Memory is zeroed. Not thread-safe: one arena belongs to one thread at a time. */
#ifndef KN_BASE_ARENA_H
#define KN_BASE_ARENA_H

#include <stddef.h>

typedef struct kn_arena {
    struct kn_arena_block *head;
} kn_arena; /* a zeroed one is empty and ready */

/** `size` zeroed bytes aligned to 16, or NULL when out of memory. */
void *kn_arena_alloc(kn_arena *a, size_t size);
char *kn_arena_strndup(kn_arena *a, const char *s, size_t n);
void kn_arena_free(kn_arena *a);

#endif
