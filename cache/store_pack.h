/* Packs: many entries in one read-only, relocatable file, indexed by key alone. Format: top of store_pack.c and
 * docs/cache-format.md. */
#ifndef KN_CACHE_STORE_PACK_H
#define KN_CACHE_STORE_PACK_H

#include "cache/store_dir.h"

enum {
    KN_PACK_FORMAT = 1,
    KN_PACK_HEADER_BYTES = 64,
    KN_PACK_FOOTER_BYTES = 64,
    KN_PACK_INDEX_BYTES = 32, /* a record */
    KN_PACK_ENTRIES_MAX = 1 << 20
};
extern const unsigned char kn_pack_magic[8], kn_pack_footer_magic[8];

typedef struct kn_pack_row {
    kn_digest key_digest;
    uint64_t offset, len;
} kn_pack_row;

typedef struct kn_pack {
    int fd;
    uint64_t size;     /* of the file */
    kn_pack_row *rows; /* by key digest, no two equal */
    size_t count;
    bool truncated; /* no valid index: rows come from scanning the records */
} kn_pack;

/** Order of rows in an index. */
int kn_pack_row_compare(const void *a, const void *b);

/** Open and check a pack. `trust` NULL: owner and mode are not checked. KN_E_FORMAT, KN_E_IO, KN_E_NOMEM. */
kn_status kn_pack_open(const char *path, const kn_store *trust, kn_pack *out);
/** The same of an open descriptor, which it takes. */
kn_status kn_pack_open_fd(int fd, kn_pack *out);
void kn_pack_close(kn_pack *p);
/** *out NULL on a miss; a record that is not valid is a miss and an event. Fails only for KN_E_NOMEM. */
kn_status kn_pack_find(const kn_pack *p, const kn_lookup *q, const kn_blob **out, kn_store_events *events);
/** The entry of one row: its bytes (kn_free) and what they say. */
kn_status kn_pack_read(const kn_pack *p, const kn_pack_row *row, unsigned char **bytes, kn_entry *out);

#endif
