/* Blobs: what a lookup or a build hands out. One allocation holds the reference count, the payload and the metadata,
 * each followed by a NUL, so that PTX and metadata may be read as text. */
#ifndef KN_CACHE_BLOB_H
#define KN_CACHE_BLOB_H

#include "cache/cache.h"

/** A blob with one reference, its payload (`payload_len` bytes, aligned to 16) still to be filled in through
 *  *payload. `meta` is copied. */
kn_status kn_blob_new(size_t payload_len, const char *meta, size_t meta_len, void **payload, const kn_blob **out);
/** Bytes of memory that the blob takes. */
size_t kn_blob_bytes(const kn_blob *b);

#endif
