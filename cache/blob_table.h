/* The memory layer: blobs by (key, assembler), bounded, least recently used out first. Not thread-safe: its owner
 * locks. Forgetting is always allowed, so nothing here fails. */
#ifndef KN_CACHE_BLOB_TABLE_H
#define KN_CACHE_BLOB_TABLE_H

#include "cache/store_dir.h"

enum { KN_TABLE_BUCKETS = 256 };

typedef struct kn_blob_table {
    struct kn_table_row *buckets[KN_TABLE_BUCKETS];
    struct kn_table_row *newest, *oldest;
    size_t bytes, max_bytes;
} kn_blob_table;

void kn_table_init(kn_blob_table *t, size_t max_bytes);
void kn_table_free(kn_blob_table *t);
/** A new reference, or NULL. */
const kn_blob *kn_table_get(kn_blob_table *t, const kn_lookup *q);
/** Remember `b` (its own reference), in place of what stood there. */
void kn_table_put(kn_blob_table *t, const kn_lookup *q, const kn_blob *b);
void kn_table_drop(kn_blob_table *t, const kn_lookup *q);

#endif
