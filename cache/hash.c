/* XXH3-128, the one hash of the cache: names of keys and checksums of entries. It detects accidents, not attackers
 * (SECURITY.md). */
#include "base/alloc.h"
#include "cache/cache.h"

/* For the state's size: the streaming state then lives in our own allocation. */
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

struct kn_hasher {
    void *memory; /* what was allocated; the state needs an alignment that the heap does not promise */
    XXH3_state_t *state;
};

static kn_digest from_xxh(XXH128_hash_t h) {
    return (kn_digest){.hi = h.high64, .lo = h.low64};
}

kn_digest kn_hash(const void *data, size_t len) {
    return from_xxh(XXH3_128bits(data, len));
}

kn_status kn_hasher_new(kn_hasher **out) {
    enum { ALIGN = 64 };
    *out = NULL;
    char *memory = kn_malloc(sizeof(kn_hasher) + sizeof(XXH3_state_t) + ALIGN);
    if (!memory) return kn_fail(KN_E_NOMEM, "out of memory for a hash");
    kn_hasher *h = (kn_hasher *)(void *)memory;
    uintptr_t at = ((uintptr_t)memory + sizeof(kn_hasher) + ALIGN - 1) & ~(uintptr_t)(ALIGN - 1);
    h->memory = memory;
    h->state = (XXH3_state_t *)at;
    XXH3_128bits_reset(h->state);
    *out = h;
    return KN_OK;
}

void kn_hasher_add(kn_hasher *h, const void *data, size_t len) {
    XXH3_128bits_update(h->state, data, len);
}

kn_digest kn_hasher_end(kn_hasher *h) {
    kn_digest d = from_xxh(XXH3_128bits_digest(h->state));
    kn_free(h->memory);
    return d;
}

void kn_digest_hex(kn_digest d, char out[33]) {
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < 16; i++) {
        out[i] = digits[d.hi >> (60 - 4 * i) & 15];
        out[16 + i] = digits[d.lo >> (60 - 4 * i) & 15];
    }
    out[32] = '\0';
}
