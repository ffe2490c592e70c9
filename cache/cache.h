/* cache: bytes in, bytes out. Kernels on disk, named by a hash of their key. Knows no CUDA and no PTX.
 *
 * Layers, in the order of a lookup: memory -> read-only packs and directories -> the cache directory. Nothing here is
 * needed for correctness: every failure below is a miss or a publish that did not happen, counted in the statistics
 * and warned of once. The format of entries and packs is docs/cache-format.md. */
#ifndef KN_CACHE_CACHE_H
#define KN_CACHE_CACHE_H

#include "base/buf.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- keys ----------------------------------------------------------------------------------------------------- */

typedef struct kn_digest {
    uint64_t hi, lo;
} kn_digest; /* XXH3-128 */

kn_digest kn_hash(const void *data, size_t len);
typedef struct kn_hasher kn_hasher; /* streaming form */
kn_status kn_hasher_new(kn_hasher **out);
void kn_hasher_add(kn_hasher *h, const void *data, size_t len);
kn_digest kn_hasher_end(kn_hasher *h); /* frees h */
void kn_digest_hex(kn_digest d, char out[33]);

/* Canonical bytes of what a kernel is made from: length-prefixed fields in a fixed order, first the format number.
 * Built with kn_key_begin/add/end; two keys are equal exactly if their bytes are. */
typedef struct kn_key {
    kn_buf bytes;
} kn_key;
void kn_key_begin(kn_key *k);
void kn_key_add(kn_key *k, const char *field, const void *value, size_t len);
void kn_key_add_text(kn_key *k, const char *field, const char *value);
kn_status kn_key_status(const kn_key *k);
void kn_key_free(kn_key *k);
/** Human-readable form, one "field=value" line each (values that are not text as hex). */
kn_status kn_key_describe(const void *key, size_t len, kn_buf *out);

/* ---- the cache ------------------------------------------------------------------------------------------------- */

typedef struct kn_cache kn_cache;

typedef struct kn_cache_options {
    const char *dir;       /* NULL: KILN_CACHE_DIR or its default; "off": no directory */
    const char *read_only; /* ':'-separated packs and directories; NULL: KILN_CACHE_RO */
    int64_t max_bytes;     /* <= 0: KILN_CACHE_MAX */
    bool shared;           /* accept root-owned, world-readable places (KILN_CACHE_SHARED) */
    bool no_read_only;     /* templates are overridden: packs would be stale */
} kn_cache_options;

/* An entry found or built: refcounted, immutable, usable after the cache is closed. A NUL stands behind payload and
 * metadata; the payload is aligned to 16. */
typedef struct kn_blob {
    const void *payload; /* cubin or PTX */
    size_t payload_len;
    const char *meta; /* text, "name=value\n" lines */
    size_t meta_len;
} kn_blob;
void kn_blob_retain(const kn_blob *b);
void kn_blob_release(const kn_blob *b); /* NULL is fine */
/** Value of `name` in meta into out; false if it is absent or longer than out has room for. */
bool kn_blob_meta(const kn_blob *b, const char *name, char *out, size_t cap);

typedef struct kn_cache_stats {
    uint64_t hits_memory, hits_read_only, hits_dir, misses;
    /* published: entries that this cache put into the directory, not those that were there already; rejected: entries
     * that were not valid or not trusted. */
    uint64_t published, publish_failed, rejected, quarantined, evicted;
    uint64_t bytes_dir; /* as of the last publish or trim */
    bool dir_usable;    /* false: running uncached, dir_reason says why; true: dir_reason is the last failed publish */
    char dir[512], dir_reason[256];
} kn_cache_stats;

/** Never fails for an unusable place, only for KN_E_NOMEM or malformed options. Nothing is created before the first
 *  publish; an unusable directory is warned of when it is first needed. Thread-safe from here on. */
kn_status kn_cache_open(const kn_cache_options *options, kn_cache **out);
void kn_cache_close(kn_cache *c);

/** Find `key`. `assembler` (kind, version, options as one text) selects the file in the directory; read-only packs
 * match by key alone. skip = number of hits on disk to pass over: 0 at first, one more each time the blob that was
 * returned did not load; from 1 on the memory layer is passed over too. *out NULL on a miss (KN_OK); KN_E_NOMEM. */
kn_status kn_cache_find(kn_cache *c, const kn_key *key, const char *assembler, uint32_t skip, const kn_blob **out);

/** Publish what was just built and return it as a blob made from these very bytes (never re-read). Failure to write is
 *  not an error. */
kn_status kn_cache_publish(kn_cache *c, const kn_key *key, const char *assembler, const void *payload,
                           size_t payload_len, const char *meta, size_t meta_len, const kn_blob **out);
void kn_cache_get_stats(kn_cache *c, kn_cache_stats *out);

/* ---- entries and packs, for tools ------------------------------------------------------------------------------ */

/** One visit per entry of the directory or pack at `path`, in a fixed order; owners and modes are not checked. `where`
 * is a file name or a pack offset. status is KN_OK, or why the entry is invalid (blob is NULL then). */
typedef kn_status kn_entry_visit(void *user, const char *where, kn_status status, const void *key, size_t key_len,
                                 const char *assembler, const kn_blob *blob, int64_t last_used, uint64_t bytes_on_disk);
kn_status kn_cache_visit(const char *path, kn_entry_visit *visit, void *user);

kn_status kn_cache_trim(kn_cache *c, int64_t max_bytes, uint64_t *removed_entries, uint64_t *removed_bytes);

/** A pack being written: `path` appears complete or not at all. */
typedef struct kn_pack_writer kn_pack_writer;
kn_status kn_pack_create(const char *path, kn_pack_writer **out);
/** An equal key that is already in the pack is skipped (*added false). */
kn_status kn_pack_add(kn_pack_writer *w, const void *key, size_t key_len, const char *assembler, const void *payload,
                      size_t payload_len, const char *meta, size_t meta_len, bool *added);
kn_status kn_pack_finish(kn_pack_writer *w); /* frees w, also on failure */
void kn_pack_abandon(kn_pack_writer *w);
/** Entries of all `paths` (packs or directories) into one pack; the first of equal keys wins. */
kn_status kn_pack_merge(const char *const *paths, int n, const char *out_path, uint64_t *entries);

/* ---- recording -------------------------------------------------------------------------------------------------- */

/** Append one line (no newline in it) to `path` with a single O_APPEND write. Failure warns once and is no error. */
void kn_record_line(const char *path, const char *line);

#endif
