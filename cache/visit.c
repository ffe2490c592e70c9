/* Looking at all entries of a place, and merging places into a pack: for tools. Owners and modes are not checked here,
 * because nothing that is looked at is run; whoever merges foreign entries vouches for them (SECURITY.md). */
#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "cache/evict.h"
#include "cache/store_pack.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the visits of one place have in common. */
struct tour {
    kn_entry_visit *visit;
    void *user;
};

struct found {
    const char *where;
    kn_status status; /* of parsing `entry`; decides whether it is looked at */
    const kn_entry *entry;
    int64_t last_used;
    uint64_t bytes;
};

/* Decompress and pass on. KN_E_NOMEM stops the tour; every other failure is the visitor's to see. */
static kn_status show(const struct tour *t, const struct found *f) {
    char assembler[KN_ASSEMBLER_MAX + 1] = "";
    const kn_blob *blob = NULL;
    kn_status status = f->status;
    if (status == KN_OK) status = kn_entry_blob(f->entry, &blob);
    if (status == KN_E_NOMEM) return status;
    if (status == KN_OK) memcpy(assembler, f->entry->assembler, f->entry->assembler_len);
    kn_status answer = t->visit(t->user, f->where, status, status == KN_OK ? f->entry->key : NULL,
                                status == KN_OK ? f->entry->key_len : 0, assembler, blob, f->last_used, f->bytes);
    kn_blob_release(blob);
    return answer;
}

static kn_status visit_file(const struct tour *t, const kn_store *s, int root, const kn_listed_file *file) {
    int dir = -1;
    unsigned char *bytes = NULL;
    size_t len = 0;
    struct stat st;
    kn_entry e = {0};
    KN_TRY(kn_store_open_sub(s, root, file->sub, false, &dir));
    if (dir < 0) return KN_OK;
    kn_status status = kn_store_read(s, dir, file->name, &bytes, &len, &st);
    kn_close(dir);
    if (status == KN_OK && !bytes) return KN_OK; /* evicted meanwhile */
    if (status == KN_OK) status = kn_entry_parse(bytes, len, &e);
    if (status == KN_OK) {
        /* Names bind entries to their place, so a renamed one is invalid. */
        kn_lookup q;
        char assembler[KN_ASSEMBLER_MAX + 1] = "", name[33];
        memcpy(assembler, e.assembler, e.assembler_len);
        status = kn_lookup_init(&q, e.key, e.key_len, assembler);
        kn_digest_hex(q.name_digest, name);
        if (status == KN_OK && strcmp(name, file->name) != 0)
            status = kn_fail(KN_E_FORMAT, "the entry's own name would be %s", name);
    }
    const struct found f = {file->name, status, &e, file->used_s, file->bytes};
    status = show(t, &f);
    kn_free(bytes);
    return status;
}

static kn_status visit_dir(const struct tour *t, const char *path) {
    const kn_store s = {.path = path, .read_only = true, .any_owner = true};
    kn_listing l;
    int root = -1;
    KN_TRY(kn_listing_read(&s, &l));
    kn_status st = kn_store_open(&s, false, &root);
    for (size_t i = 0; i < l.count && st == KN_OK && root >= 0; i++)
        if (l.files[i].kind == KN_FILE_ENTRY) st = visit_file(t, &s, root, &l.files[i]);
    kn_close(root);
    kn_listing_free(&l);
    return st;
}

static int by_offset(const void *a, const void *b) {
    uint64_t x = ((const kn_pack_row *)a)->offset, y = ((const kn_pack_row *)b)->offset;
    return (x > y) - (x < y);
}

static kn_status visit_pack(const struct tour *t, const char *path) {
    kn_pack p;
    KN_TRY(kn_pack_open(path, NULL, &p));
    kn_status st = KN_OK;
    if (p.count) qsort(p.rows, p.count, sizeof *p.rows, by_offset);
    for (size_t i = 0; i < p.count && st == KN_OK; i++) {
        char where[24];
        unsigned char *bytes = NULL;
        kn_entry e = {0};
        snprintf(where, sizeof where, "%" PRIu64, p.rows[i].offset);
        kn_status parsed = kn_pack_read(&p, &p.rows[i], &bytes, &e);
        const struct found f = {where, parsed, &e, 0, p.rows[i].len};
        st = show(t, &f);
        kn_free(bytes);
    }
    kn_pack_close(&p);
    return st;
}

kn_status kn_cache_visit(const char *path, kn_entry_visit *visit, void *user) {
    const struct tour t = {visit, user};
    struct stat st;
    int err = kn_lstat(path, &st);
    if (err != 0) return kn_fail(kn_status_from_errno(err), "%s: %s", path, strerror(err));
    return S_ISDIR(st.st_mode) ? visit_dir(&t, path) : visit_pack(&t, path);
}

/* ---- merging ----------------------------------------------------------------------------------------------------- */

struct merge {
    kn_pack_writer *writer;
    const char *path; /* the place being read */
    uint64_t entries;
};

static kn_status merge_entry(void *user, const char *where, kn_status status, const void *key, size_t key_len,
                             const char *assembler, const kn_blob *blob, int64_t last_used, uint64_t bytes_on_disk) {
    struct merge *m = user;
    (void)last_used;
    (void)bytes_on_disk;
    if (status != KN_OK) {
        kn_log(KN_LOG_WARN, "entry left out of the pack: %s: %s: %s", m->path, where, kn_error_message());
        return KN_OK;
    }
    bool added = false;
    KN_TRY(kn_pack_add(m->writer, key, key_len, assembler, blob->payload, blob->payload_len, blob->meta, blob->meta_len,
                       &added));
    m->entries += added;
    return KN_OK;
}

kn_status kn_pack_merge(const char *const *paths, int n, const char *out_path, uint64_t *entries) {
    struct merge m = {0};
    *entries = 0;
    KN_TRY(kn_pack_create(out_path, &m.writer));
    for (int i = 0; i < n; i++) {
        m.path = paths[i];
        kn_status st = kn_cache_visit(paths[i], merge_entry, &m);
        if (st != KN_OK) {
            kn_pack_abandon(m.writer);
            return st;
        }
    }
    KN_TRY(kn_pack_finish(m.writer));
    *entries = m.entries;
    return KN_OK;
}
