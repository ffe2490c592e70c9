/* The size of a cache directory, and what has to go when it is too large. */
#ifndef KN_CACHE_EVICT_H
#define KN_CACHE_EVICT_H

#include "cache/store_dir.h"

typedef struct kn_listed_file {
    int64_t used_s, used_ns; /* last use */
    uint64_t bytes;
    unsigned sub;
    kn_store_file kind;
    char name[64];
} kn_listed_file;

typedef struct kn_listing {
    kn_listed_file *files;
    size_t count, room;
    uint64_t bytes; /* of all of them */
} kn_listing;

/** All files of the directory, in order of (sub, name). */
kn_status kn_listing_read(const kn_store *s, kn_listing *out);
void kn_listing_free(kn_listing *l);

typedef struct kn_evicted {
    uint64_t entries, bytes; /* removed */
    uint64_t bytes_left;
} kn_evicted;

/** If the directory takes more than `max_bytes`: remove entries, the longest unused first, until it takes at most
 *  `target_bytes`. Temporaries of processes that died and old quarantined files go in any case. */
kn_status kn_evict(const kn_store *s, uint64_t max_bytes, uint64_t target_bytes, kn_evicted *out);

#endif
