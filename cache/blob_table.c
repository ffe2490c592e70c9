/* A chained hash table with a list by last use: see blob_table.h. */
#include "cache/blob_table.h"

#include "base/alloc.h"
#include "cache/blob.h"

#include <string.h>

struct kn_table_row {
    struct kn_table_row *chain;         /* same bucket */
    struct kn_table_row *newer, *older; /* by last use */
    const kn_blob *blob;
    kn_digest digest;
    size_t key_len, assembler_len, bytes; /* bytes: all that the row holds on to */
    char text[];                          /* key, assembler: digests only find, bytes decide */
};

void kn_table_init(kn_blob_table *t, size_t max_bytes) {
    *t = (kn_blob_table){.max_bytes = max_bytes};
}

static struct kn_table_row **bucket_of(kn_blob_table *t, kn_digest d) {
    return &t->buckets[d.lo % KN_TABLE_BUCKETS];
}

static void unlist(kn_blob_table *t, struct kn_table_row *r) {
    *(r->newer ? &r->newer->older : &t->newest) = r->older;
    *(r->older ? &r->older->newer : &t->oldest) = r->newer;
}

static void list_newest(kn_blob_table *t, struct kn_table_row *r) {
    r->newer = NULL;
    r->older = t->newest;
    *(t->newest ? &t->newest->newer : &t->oldest) = r;
    t->newest = r;
}

static struct kn_table_row *find_row(kn_blob_table *t, const kn_lookup *q) {
    size_t assembler_len = strlen(q->assembler);
    for (struct kn_table_row *r = *bucket_of(t, q->name_digest); r; r = r->chain)
        if (r->digest.hi == q->name_digest.hi && r->digest.lo == q->name_digest.lo && r->key_len == q->key_len &&
            r->assembler_len == assembler_len && memcmp(r->text, q->key, q->key_len) == 0 &&
            memcmp(r->text + r->key_len, q->assembler, assembler_len) == 0)
            return r;
    return NULL;
}

static void remove_row(kn_blob_table *t, struct kn_table_row *r) {
    struct kn_table_row **at = bucket_of(t, r->digest);
    while (*at != r) at = &(*at)->chain;
    *at = r->chain;
    unlist(t, r);
    t->bytes -= r->bytes;
    kn_blob_release(r->blob);
    kn_free(r);
}

const kn_blob *kn_table_get(kn_blob_table *t, const kn_lookup *q) {
    struct kn_table_row *r = find_row(t, q);
    if (!r) return NULL;
    unlist(t, r);
    list_newest(t, r);
    kn_blob_retain(r->blob);
    return r->blob;
}

void kn_table_drop(kn_blob_table *t, const kn_lookup *q) {
    struct kn_table_row *r = find_row(t, q);
    if (r) remove_row(t, r);
}

void kn_table_put(kn_blob_table *t, const kn_lookup *q, const kn_blob *b) {
    kn_table_drop(t, q);
    size_t assembler_len = strlen(q->assembler);
    size_t bytes = sizeof(struct kn_table_row) + q->key_len + assembler_len + kn_blob_bytes(b);
    if (bytes > t->max_bytes) return;
    struct kn_table_row *r = kn_malloc(sizeof *r + q->key_len + assembler_len);
    if (!r) return;
    while (t->bytes + bytes > t->max_bytes) remove_row(t, t->oldest);
    *r = (struct kn_table_row){
        .blob = b, .digest = q->name_digest, .key_len = q->key_len, .assembler_len = assembler_len, .bytes = bytes};
    memcpy(r->text, q->key, q->key_len);
    memcpy(r->text + q->key_len, q->assembler, assembler_len);
    kn_blob_retain(b);
    struct kn_table_row **bucket = bucket_of(t, r->digest);
    r->chain = *bucket;
    *bucket = r;
    list_newest(t, r);
    t->bytes += bytes;
}

void kn_table_free(kn_blob_table *t) {
    while (t->newest) remove_row(t, t->newest);
}
