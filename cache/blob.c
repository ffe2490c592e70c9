/* Reference-counted, immutable results: see blob.h. */
#include "cache/blob.h"

#include "base/alloc.h"

#include <stdatomic.h>
#include <string.h>

struct held_blob {
    kn_blob blob; /* first: a kn_blob * is a held_blob * */
    atomic_size_t references;
    _Alignas(16) char data[]; /* payload, NUL, metadata, NUL */
};

kn_status kn_blob_new(size_t payload_len, const char *meta, size_t meta_len, void **payload, const kn_blob **out) {
    *out = NULL;
    *payload = NULL;
    struct held_blob *h = kn_malloc(sizeof *h + payload_len + meta_len + 2);
    if (!h) return kn_fail(KN_E_NOMEM, "out of memory: %zu bytes for a kernel", payload_len + meta_len);
    char *meta_copy = h->data + payload_len + 1;
    if (meta_len) memcpy(meta_copy, meta, meta_len);
    meta_copy[meta_len] = '\0';
    h->data[payload_len] = '\0';
    h->blob = (kn_blob){.payload = h->data, .payload_len = payload_len, .meta = meta_copy, .meta_len = meta_len};
    atomic_init(&h->references, 1);
    *payload = h->data;
    *out = &h->blob;
    return KN_OK;
}

size_t kn_blob_bytes(const kn_blob *b) {
    return sizeof(struct held_blob) + b->payload_len + b->meta_len + 2;
}

void kn_blob_retain(const kn_blob *b) {
    struct held_blob *h = (struct held_blob *)(uintptr_t)b;
    atomic_fetch_add_explicit(&h->references, 1, memory_order_relaxed);
}

void kn_blob_release(const kn_blob *b) {
    if (!b) return;
    struct held_blob *h = (struct held_blob *)(uintptr_t)b;
    if (atomic_fetch_sub_explicit(&h->references, 1, memory_order_acq_rel) == 1) kn_free(h);
}

bool kn_blob_meta(const kn_blob *b, const char *name, char *out, size_t cap) {
    size_t name_len = strlen(name);
    const char *end = b->meta + b->meta_len;
    for (const char *line = b->meta; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop) stop = end;
        size_t len = (size_t)(stop - line);
        if (len > name_len && memcmp(line, name, name_len) == 0 && line[name_len] == '=') {
            size_t value_len = len - name_len - 1;
            if (value_len >= cap) return false;
            memcpy(out, line + name_len + 1, value_len);
            out[value_len] = '\0';
            return true;
        }
        line = stop < end ? stop + 1 : end;
    }
    return false;
}
