/* A directory of entries: <path>/v1/<2 hex>/<32 hex>, one file an entry.
 *
 * <2 hex> is the first byte of the key's hash, <32 hex> the hash of (entry format, key, assembler). Nothing stays open
 * between calls: the directory may be deleted, replaced or remounted at any time, and a process may fork. Every
 * component from <path> down is opened without following symbolic links and its owner and mode are checked on the open
 * descriptor, because entries are code. */
#ifndef KN_CACHE_STORE_DIR_H
#define KN_CACHE_STORE_DIR_H

#include "cache/entry.h"

#include <sys/stat.h>

typedef struct kn_store {
    const char *path; /* absolute; borrowed */
    bool shared;      /* places that root owns are trusted too */
    bool read_only;   /* never written: no quarantine, no time stamps; a lookup falls back to any assembler */
    bool any_owner;   /* for tools that look without running anything: owners and modes are not checked */
} kn_store;

/* What is looked for, with its hashes. */
typedef struct kn_lookup {
    const void *key;
    size_t key_len;
    const char *assembler;
    kn_digest key_digest, name_digest;
} kn_lookup;

/* Things that a caller counts and warns of. */
typedef struct kn_store_events {
    unsigned rejected, quarantined;
    char reason[256]; /* of the last rejection or failed call */
} kn_store_events;

kn_status kn_lookup_init(kn_lookup *q, const void *key, size_t key_len, const char *assembler);

/** KN_OK if the directory can be used or created, as far as can be told without writing; else a sentence. */
kn_status kn_store_probe(const kn_store *s);
/** *out NULL on a miss. A file that is there but not valid is a miss, an event, and moved out of the way. Fails only
 *  for KN_E_NOMEM. */
kn_status kn_store_find(const kn_store *s, const kn_lookup *q, const kn_blob **out, kn_store_events *events);
/** Put `bytes` in place unless something is there already (that is success, *bytes_on_disk is 0 then). */
kn_status kn_store_publish(const kn_store *s, const kn_lookup *q, const void *bytes, size_t len,
                           uint64_t *bytes_on_disk);

/* ---- for eviction and visits ------------------------------------------------------------------------------------- */

typedef enum kn_store_file {
    KN_FILE_OTHER,
    KN_FILE_ENTRY,
    KN_FILE_BAD,      /* quarantined */
    KN_FILE_TEMPORARY /* being written, or left by a process that died */
} kn_store_file;

/** KN_E_FORMAT naming the reason if an object of this owner and mode must not be trusted. */
kn_status kn_store_trust(const kn_store *s, const struct stat *st);
/** Descriptor of <path>/v1, *fd -1 if there is none. `create` makes what is missing. */
kn_status kn_store_open(const kn_store *s, bool create, int *fd);
/** Call `visit` for every file in the subdirectories, in no order; directory `dir` of number `sub`. Stops at a failure.
 */
typedef kn_status kn_store_file_visit(void *user, int dir, unsigned sub, const char *name, kn_store_file kind);
kn_status kn_store_walk(const kn_store *s, kn_store_file_visit *visit, void *user);
/** Subdirectory number `sub` of `root`; *fd -1 if there is none. */
kn_status kn_store_open_sub(const kn_store *s, int root, unsigned sub, bool create, int *fd);
/** The bytes of a file that must be a trusted regular file; *bytes NULL if there is none. KN_E_FORMAT: it must be put
 *  aside. */
kn_status kn_store_read(const kn_store *s, int dir, const char *name, unsigned char **bytes, size_t *len,
                        struct stat *st);
/** Bytes that a file takes on the disk: allocated blocks, but never less than its length. */
uint64_t kn_store_bytes(const struct stat *st);

#endif
