/* The cache as the rest of Kiln sees it: memory, then read-only packs and directories, then the cache directory.
 *
 * Thread-safe. The lock guards the memory layer, the counters and the bookkeeping of the directory's size; files are
 * read and written outside of it. Every failure of a place is counted and warned of once, and otherwise a miss. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/file.h"
#include "base/log.h"
#include "base/thread.h"
#include "cache/blob.h"
#include "cache/blob_table.h"
#include "cache/evict.h"
#include "cache/place.h"
#include "cache/store_pack.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MEMORY_BYTES = 64 << 20, RESCAN_S = 10 };
static const int64_t default_max_bytes = (int64_t)1 << 30;

/* One element of the read-only list. */
struct read_only_layer {
    char *path;
    bool is_pack;
    kn_pack pack;
};

struct kn_cache {
    kn_mutex lock;
    kn_blob_table memory;
    struct read_only_layer *read_only;
    size_t read_only_count;
    char *dir_path;
    kn_store dir;
    bool dir_on;   /* it is looked into */
    bool warn_dir; /* it is missing against the user's will, and nobody has been told yet */
    bool warned_entry, warned_publish;
    bool shared;
    uint64_t max_bytes;
    bool counted, trimming; /* stats.bytes_dir has been counted; a thread is evicting */
    int64_t counted_at_s;
    uint64_t added_bytes; /* published since it was counted */
    kn_cache_stats stats;
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static kn_status open_read_only(kn_cache *c, struct read_only_layer *layer) {
    struct stat st;
    int err = kn_lstat(layer->path, &st);
    if (err != 0) return kn_fail(kn_status_from_errno(err), "%s: %s", layer->path, strerror(err));
    const kn_store store = {.path = layer->path, .shared = c->shared, .read_only = true};
    layer->is_pack = !S_ISDIR(st.st_mode);
    if (!layer->is_pack) return kn_store_probe(&store);
    KN_TRY(kn_pack_open(layer->path, &store, &layer->pack));
    if (layer->pack.truncated)
        kn_log(KN_LOG_WARN, "%s has no valid index: using its first %zu kernels", layer->path, layer->pack.count);
    return KN_OK;
}

/* Add one layer. What cannot be used is warned of and left out. */
static kn_status add_read_only(kn_cache *c, const char *path, size_t len) {
    struct read_only_layer *layer = &c->read_only[c->read_only_count];
    kn_status st = kn_place_absolute(path, len, &layer->path);
    if (st == KN_OK) st = open_read_only(c, layer);
    if (st == KN_OK) {
        c->read_only_count++;
        return KN_OK;
    }
    kn_free(layer->path);
    *layer = (struct read_only_layer){0};
    if (st == KN_E_NOMEM) return st;
    kn_log(KN_LOG_WARN, "read-only cache left out: %s", kn_error_message());
    return KN_OK;
}

/* One layer a ':'-separated element. */
static kn_status open_read_only_list(kn_cache *c, const char *list) {
    size_t most = 1;
    for (const char *p = list; *p; p++) most += *p == ':';
    KN_TRY(KN_NEW(&c->read_only, most, "list of read-only caches"));
    for (const char *p = list; *p;) {
        size_t len = strcspn(p, ":");
        if (len) KN_TRY(add_read_only(c, p, len));
        p += len + (p[len] == ':');
    }
    return KN_OK;
}

static void set_reason(kn_cache *c, const char *reason) {
    snprintf(c->stats.dir_reason, sizeof c->stats.dir_reason, "%.255s", reason);
}

static kn_status open_dir_layer(kn_cache *c, const char *option) {
    KN_TRY(kn_place_dir(option, &c->dir_path, c->stats.dir_reason, sizeof c->stats.dir_reason, &c->warn_dir));
    if (!c->dir_path) return KN_OK;
    snprintf(c->stats.dir, sizeof c->stats.dir, "%.511s", c->dir_path);
    c->dir = (kn_store){.path = c->dir_path, .shared = c->shared};
    kn_status st = kn_store_probe(&c->dir);
    if (st == KN_E_NOMEM) return st;
    c->dir_on = st == KN_OK;
    c->warn_dir = !c->dir_on;
    if (!c->dir_on) set_reason(c, kn_error_message());
    if (c->dir_on && c->max_bytes == 0) set_reason(c, "KILN_CACHE_MAX is 0: nothing is written");
    return KN_OK;
}

static kn_status open_layers(kn_cache *c, const kn_cache_options *o) {
    int64_t shared, max_bytes = o->max_bytes;
    KN_TRY(kn_env_i64(KN_ENV_CACHE_SHARED, 0, 0, 1, &shared));
    if (max_bytes <= 0) KN_TRY(kn_env_bytes(KN_ENV_CACHE_MAX, default_max_bytes, &max_bytes));
    c->shared = o->shared || shared == 1;
    c->max_bytes = (uint64_t)max_bytes;
    const char *list = o->read_only ? o->read_only : kn_env(KN_ENV_CACHE_RO);
    if (list && !o->no_read_only) {
        if (kn_place_privileged())
            kn_log(KN_LOG_WARN, "read-only caches are left out: the process runs with raised privileges");
        else
            KN_TRY(open_read_only_list(c, list));
    }
    KN_TRY(open_dir_layer(c, o->dir));
    c->stats.dir_usable = c->dir_on;
    return KN_OK;
}

kn_status kn_cache_open(const kn_cache_options *options, kn_cache **out) {
    static const kn_cache_options defaults;
    *out = NULL;
    kn_cache *c = NULL;
    KN_TRY(KN_NEW(&c, 1, "a kernel cache"));
    kn_mutex_init(&c->lock);
    kn_table_init(&c->memory, MEMORY_BYTES);
    kn_status st = open_layers(c, options ? options : &defaults);
    if (st != KN_OK) {
        kn_cache_close(c);
        return st;
    }
    *out = c;
    return KN_OK;
}

void kn_cache_close(kn_cache *c) {
    if (!c) return;
    kn_table_free(&c->memory);
    for (size_t i = 0; i < c->read_only_count; i++) {
        if (c->read_only[i].is_pack) kn_pack_close(&c->read_only[i].pack);
        kn_free(c->read_only[i].path);
    }
    kn_free(c->read_only);
    kn_free(c->dir_path);
    kn_mutex_destroy(&c->lock);
    kn_free(c);
}

/* ---- finding ----------------------------------------------------------------------------------------------------- */

/* Set *flag under the lock; true for the first caller. */
static bool first_time(kn_cache *c, bool *flag) {
    kn_lock(&c->lock);
    bool first = !*flag;
    *flag = true;
    kn_unlock(&c->lock);
    return first;
}

static void count_events(kn_cache *c, const char *where, const kn_store_events *e) {
    if (!e->reason[0]) return;
    kn_lock(&c->lock);
    c->stats.rejected += e->rejected;
    c->stats.quarantined += e->quarantined;
    kn_unlock(&c->lock);
    if (first_time(c, &c->warned_entry)) kn_log(KN_LOG_WARN, "cached kernel not used: %s: %s", where, e->reason);
}

static const kn_blob *find_memory(kn_cache *c, const kn_lookup *q, uint32_t skip) {
    const kn_blob *b = NULL;
    kn_lock(&c->lock);
    if (skip == 0)
        b = kn_table_get(&c->memory, q);
    else
        kn_table_drop(&c->memory, q); /* what stood there did not load */
    if (b) c->stats.hits_memory++;
    kn_unlock(&c->lock);
    return b;
}

static kn_status find_read_only(kn_cache *c, struct read_only_layer *layer, const kn_lookup *q, const kn_blob **out) {
    kn_store_events events = {0};
    const kn_store store = {.path = layer->path, .shared = c->shared, .read_only = true};
    kn_status st =
        layer->is_pack ? kn_pack_find(&layer->pack, q, out, &events) : kn_store_find(&store, q, out, &events);
    count_events(c, layer->path, &events);
    return st;
}

static kn_status find_dir(kn_cache *c, const kn_lookup *q, const kn_blob **out) {
    if (!c->dir_on) {
        kn_lock(&c->lock);
        bool warn = c->warn_dir;
        c->warn_dir = false;
        kn_unlock(&c->lock);
        if (warn) kn_log(KN_LOG_WARN, "kernels are not cached on disk: %s", c->stats.dir_reason);
        return KN_OK;
    }
    kn_store_events events = {0};
    kn_status st = kn_store_find(&c->dir, q, out, &events);
    count_events(c, c->dir_path, &events);
    return st;
}

/* A hit on disk: counted and remembered. */
static void remember(kn_cache *c, const kn_lookup *q, const kn_blob *b, uint64_t *counter) {
    kn_lock(&c->lock);
    (*counter)++;
    kn_table_put(&c->memory, q, b);
    kn_unlock(&c->lock);
}

kn_status kn_cache_find(kn_cache *c, const kn_key *key, const char *assembler, uint32_t skip, const kn_blob **out) {
    kn_lookup q;
    *out = NULL;
    KN_TRY(kn_key_status(key));
    KN_TRY(kn_lookup_init(&q, key->bytes.data, key->bytes.len, assembler));
    const kn_blob *b = find_memory(c, &q, skip);
    if (b) {
        *out = b;
        return KN_OK;
    }
    uint64_t *counter = &c->stats.hits_read_only;
    for (size_t i = 0; i < c->read_only_count && !b; i++) {
        KN_TRY(find_read_only(c, &c->read_only[i], &q, &b));
        if (b && skip > 0) {
            skip--;
            kn_blob_release(b);
            b = NULL;
        }
    }
    if (!b) {
        counter = &c->stats.hits_dir;
        KN_TRY(find_dir(c, &q, &b));
        if (b && skip > 0) {
            kn_blob_release(b);
            b = NULL;
        }
    }
    if (b) {
        remember(c, &q, b, counter);
    } else {
        kn_lock(&c->lock);
        c->stats.misses++;
        kn_unlock(&c->lock);
    }
    *out = b;
    return KN_OK;
}

/* ---- publishing -------------------------------------------------------------------------------------------------- */

/* Evict if the directory may have outgrown its bound. Its size is counted at the first publish and again when enough
 * has been added, or some time has passed in which others may have added; in between, our own additions are summed. */
static void bound_dir(kn_cache *c, uint64_t added) {
    int64_t now = kn_time_s();
    kn_lock(&c->lock);
    c->stats.bytes_dir += added;
    c->added_bytes += added;
    bool due = !c->counted || c->stats.bytes_dir > c->max_bytes || c->added_bytes > c->max_bytes / 32 ||
               now - c->counted_at_s >= RESCAN_S;
    due = due && added > 0 && !c->trimming;
    if (due) {
        c->trimming = true;
        c->added_bytes = 0; /* what is added from here on may or may not be in the count: counted again, to be safe */
    }
    kn_unlock(&c->lock);
    if (!due) return;
    kn_evicted gone;
    kn_status st = kn_evict(&c->dir, c->max_bytes, c->max_bytes - c->max_bytes / 8, &gone);
    kn_lock(&c->lock);
    c->trimming = false;
    c->counted_at_s = now;
    c->counted = true;
    c->stats.evicted += gone.entries;
    if (st == KN_OK) c->stats.bytes_dir = gone.bytes_left + c->added_bytes;
    kn_unlock(&c->lock);
}

static kn_status publish_bytes(kn_cache *c, const kn_lookup *q, const unsigned char *bytes, size_t len) {
    KN_REQUIRE(len <= c->max_bytes, KN_E_IO,
               "an entry of %zu bytes is larger than the whole cache may be (%" PRIu64 ")", len, c->max_bytes);
    uint64_t on_disk = 0;
    KN_TRY(kn_store_publish(&c->dir, q, bytes, len, &on_disk));
    kn_lock(&c->lock);
    if (on_disk) c->stats.published++;
    kn_unlock(&c->lock);
    bound_dir(c, on_disk);
    return KN_OK;
}

/* Write to the directory. A failure is counted and warned of. */
static void publish(kn_cache *c, const kn_lookup *q, const kn_entry *e) {
    unsigned char *bytes = NULL;
    size_t len = 0;
    kn_status st = kn_entry_encode(e, &bytes, &len);
    if (st == KN_OK) st = publish_bytes(c, q, bytes, len);
    kn_free(bytes);
    if (st == KN_OK) return;
    kn_lock(&c->lock);
    c->stats.publish_failed++;
    set_reason(c, kn_error_message());
    kn_unlock(&c->lock);
    if (first_time(c, &c->warned_publish)) kn_log(KN_LOG_WARN, "kernel not cached on disk: %s", kn_error_message());
}

kn_status kn_cache_publish(kn_cache *c, const kn_key *key, const char *assembler, const void *payload,
                           size_t payload_len, const char *meta, size_t meta_len, const kn_blob **out) {
    kn_lookup q;
    void *copy = NULL;
    *out = NULL;
    KN_TRY(kn_key_status(key));
    KN_TRY(kn_lookup_init(&q, key->bytes.data, key->bytes.len, assembler));
    KN_TRY(kn_blob_new(payload_len, meta, meta_len, &copy, out));
    if (payload_len) memcpy(copy, payload, payload_len);
    kn_lock(&c->lock);
    kn_table_put(&c->memory, &q, *out);
    kn_unlock(&c->lock);
    const kn_entry e = {.key = q.key,
                        .key_len = q.key_len,
                        .assembler = assembler,
                        .assembler_len = strlen(assembler),
                        .meta = meta,
                        .meta_len = meta_len,
                        .payload = payload,
                        .payload_len = payload_len};
    if (c->dir_on && c->max_bytes > 0) publish(c, &q, &e);
    return KN_OK;
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

void kn_cache_get_stats(kn_cache *c, kn_cache_stats *out) {
    kn_lock(&c->lock);
    *out = c->stats;
    kn_unlock(&c->lock);
}

kn_status kn_cache_trim(kn_cache *c, int64_t max_bytes, uint64_t *removed_entries, uint64_t *removed_bytes) {
    *removed_entries = *removed_bytes = 0;
    KN_REQUIRE(max_bytes >= 0, KN_E_ARG, "the cache cannot be trimmed to %" PRId64 " bytes", max_bytes);
    if (!c->dir_on) return KN_OK;
    kn_evicted gone;
    kn_status st = kn_evict(&c->dir, (uint64_t)max_bytes, (uint64_t)max_bytes, &gone);
    *removed_entries = gone.entries;
    *removed_bytes = gone.bytes;
    kn_lock(&c->lock);
    c->stats.evicted += gone.entries;
    if (st == KN_OK) {
        c->stats.bytes_dir = gone.bytes_left;
        c->counted = true;
        c->counted_at_s = kn_time_s();
        c->added_bytes = 0;
    }
    kn_unlock(&c->lock);
    return st;
}
