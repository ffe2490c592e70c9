/* Bump allocator: see arena.h. */
#include "base/arena.h"

#include "base/alloc.h"

#include <stdint.h>
#include <string.h>

enum { BLOCK_BYTES = 64 * 1024 };

struct kn_arena_block {
    struct kn_arena_block *next;
    size_t used, size; /* bytes of data[] */
    _Alignas(16) unsigned char data[];
};

void *kn_arena_alloc(kn_arena *a, size_t size) {
    if (size > SIZE_MAX / 2) return NULL;
    size = (size + 15) & ~(size_t)15;
    struct kn_arena_block *b = a->head;
    if (!b || b->size - b->used < size) {
        size_t room = size > BLOCK_BYTES ? size : BLOCK_BYTES;
        b = kn_calloc(1, sizeof *b + room);
        if (!b) return NULL;
        b->size = room;
        b->next = a->head;
        a->head = b;
    }
    void *p = b->data + b->used;
    b->used += size;
    return p;
}

char *kn_arena_strndup(kn_arena *a, const char *s, size_t n) {
    char *copy = kn_arena_alloc(a, n + 1);
    if (copy) memcpy(copy, s, n);
    return copy;
}

void kn_arena_free(kn_arena *a) {
    for (struct kn_arena_block *b = a->head, *next; b; b = next) {
        next = b->next;
        kn_free(b);
    }
    a->head = NULL;
}
