/* Eviction by our own time stamps: see evict.h.
 *
 * Last use is the modification time of an entry, set when it is published and renewed by a hit at most once an hour
 * (store_dir.c); access times are off or wrong on many mounts. Two processes may evict at once: both start from the
 * oldest, and a file that is already gone is simply gone. A reader that has an entry open keeps it. Temporaries that
 * are being written are younger than STALE_S and stay. */
#include "cache/evict.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { STALE_S = 3600, BAD_KEPT_S = 7 * 24 * 3600 };

static kn_status add_file(void *user, int dir, unsigned sub, const char *name, kn_store_file kind) {
    kn_listing *l = user;
    struct stat st;
    if (kn_fstatat(dir, name, &st) != 0) return KN_OK; /* gone since, or unreadable: not ours to count */
    if (l->count == l->room) {
        size_t room = l->room ? 2 * l->room : 64;
        kn_listed_file *files = kn_realloc(l->files, room * sizeof *files);
        if (!files) return kn_fail(KN_E_NOMEM, "out of memory: list of %zu cache files", room);
        l->files = files;
        l->room = room;
    }
    size_t name_len = strlen(name);
    kn_listed_file *f = &l->files[l->count];
    if (name_len >= sizeof f->name) return KN_OK; /* not a name that this library gives */
    *f = (kn_listed_file){.used_s = (int64_t)st.st_mtim.tv_sec,
                          .used_ns = (int64_t)st.st_mtim.tv_nsec,
                          .bytes = kn_store_bytes(&st),
                          .sub = sub,
                          .kind = kind};
    memcpy(f->name, name, name_len + 1);
    l->bytes += f->bytes;
    l->count++;
    return KN_OK;
}

static int by_name(const void *a, const void *b) {
    const kn_listed_file *x = a, *y = b;
    if (x->sub != y->sub) return x->sub < y->sub ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int compare(int64_t a, int64_t b) {
    return (a > b) - (a < b);
}

/* Quarantined files first, then the longest unused. */
static int by_use(const void *a, const void *b) {
    const kn_listed_file *x = a, *y = b;
    bool x_bad = x->kind == KN_FILE_BAD, y_bad = y->kind == KN_FILE_BAD;
    if (x_bad != y_bad) return x_bad ? -1 : 1;
    if (x->used_s != y->used_s) return compare(x->used_s, y->used_s);
    if (x->used_ns != y->used_ns) return compare(x->used_ns, y->used_ns);
    return by_name(a, b);
}

kn_status kn_listing_read(const kn_store *s, kn_listing *out) {
    *out = (kn_listing){0};
    kn_status st = kn_store_walk(s, add_file, out);
    if (st != KN_OK)
        kn_listing_free(out);
    else if (out->count)
        qsort(out->files, out->count, sizeof *out->files, by_name);
    return st;
}

void kn_listing_free(kn_listing *l) {
    kn_free(l->files);
    *l = (kn_listing){0};
}

/* Remove the file unless it has been used since it was listed. True if it is gone. */
static bool remove_file(const kn_store *s, int root, const kn_listed_file *f) {
    int dir = -1;
    struct stat st;
    if (kn_store_open_sub(s, root, f->sub, false, &dir) != KN_OK || dir < 0) return false;
    int err = kn_fstatat(dir, f->name, &st);
    if (err == 0 && ((int64_t)st.st_mtim.tv_sec != f->used_s || (int64_t)st.st_mtim.tv_nsec != f->used_ns)) err = EBUSY;
    if (err == 0) err = kn_unlinkat(dir, f->name);
    kn_close(dir);
    return err == 0 || err == ENOENT;
}

kn_status kn_evict(const kn_store *s, uint64_t max_bytes, uint64_t target_bytes, kn_evicted *out) {
    kn_listing l;
    int root = -1;
    *out = (kn_evicted){0};
    KN_TRY(kn_listing_read(s, &l));
    out->bytes_left = l.bytes;
    kn_status st = kn_store_open(s, false, &root);
    if (st != KN_OK || root < 0) goto out;
    if (l.count) qsort(l.files, l.count, sizeof *l.files, by_use);
    bool over = l.bytes > max_bytes;
    int64_t now = kn_time_s();
    for (size_t i = 0; i < l.count; i++) {
        const kn_listed_file *f = &l.files[i];
        int64_t age = now - f->used_s;
        bool stale = (f->kind == KN_FILE_TEMPORARY && age > STALE_S) || (f->kind == KN_FILE_BAD && age > BAD_KEPT_S);
        bool excess = over && out->bytes_left > target_bytes && f->kind != KN_FILE_TEMPORARY;
        if (!(stale || excess) || !remove_file(s, root, f)) continue;
        out->bytes_left -= f->bytes;
        out->bytes += f->bytes;
        if (f->kind == KN_FILE_ENTRY) out->entries++;
    }
out:
    kn_close(root);
    kn_listing_free(&l);
    return st;
}
