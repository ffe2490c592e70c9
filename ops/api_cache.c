/* The cache as tools see it: listing, verifying, trimming, merging. */
#include "base/alloc.h"
#include "base/file.h"
#include "cache/cache.h"
#include "cache/place.h"
#include "jit/kernel.h"
#include "kiln/kiln_tools.h"
#include "ops/api_call.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* `path`, or the default directory; *own is what to free. */
static kn_status find_place(const char *path, const char **out, char **own) {
    char reason[256] = "";
    bool wanted;
    *own = NULL;
    *out = path;
    if (path) return KN_OK;
    KN_TRY(kn_place_dir(NULL, own, reason, sizeof reason, &wanted));
    KN_REQUIRE(*own, KN_E_UNAVAILABLE, "there is no cache directory: %s", reason);
    *out = *own;
    return KN_OK;
}

/* ---- listing ----------------------------------------------------------------------------------------------------- */

typedef struct listing {
    kn_buf *out;
    bool first;
} listing;

/* "name=value" lines as an object's fields; the line map behind "map=" is left out. */
static void add_lines(kn_buf *b, const char *text, size_t len) {
    const char *end = text + len;
    kn_buf value;
    kn_buf_init(&value, 1 << 20);
    bool first = true;
    kn_buf_add_char(b, '{');
    for (const char *line = text; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop) stop = end;
        const char *equals = memchr(line, '=', (size_t)(stop - line));
        if (!equals || (equals - line == 3 && memcmp(line, "map", 3) == 0)) break;
        if (!first) kn_buf_add_char(b, ',');
        first = false;
        kn_buf_clear(&value);
        kn_buf_add_n(&value, line, (size_t)(equals - line));
        kn_buf_add_json(b, value.data);
        kn_buf_add_char(b, ':');
        kn_buf_clear(&value);
        kn_buf_add_n(&value, equals + 1, (size_t)(stop - equals - 1));
        kn_buf_add_json(b, value.data);
        line = stop + 1;
    }
    kn_buf_add_char(b, '}');
    kn_buf_free(&value);
}

static void add_text(kn_buf *b, const char *name, const char *value) {
    kn_buf_addf(b, ",\"%s\":", name);
    kn_buf_add_json(b, value);
}

static kn_status list_entry(void *user, const char *where, kn_status status, const void *key, size_t key_len,
                            const char *assembler, const kn_blob *blob, int64_t last_used, uint64_t bytes_on_disk) {
    listing *l = user;
    kn_buf *b = l->out;
    kn_buf_addf(b, "%s{\"name\":", l->first ? "" : ",");
    l->first = false;
    kn_buf_add_json(b, where);
    kn_buf_addf(b, ",\"bytes\":%" PRIu64 ",\"last_used\":%" PRId64, bytes_on_disk, last_used);
    if (status != KN_OK) {
        add_text(b, "error", kn_error_message());
    } else {
        char entry[160] = "";
        kn_buf text;
        kn_buf_init(&text, 1 << 20);
        kn_blob_meta(blob, "entry", entry, sizeof entry);
        kn_buf_addf(b, ",\"payload_bytes\":%zu", blob->payload_len);
        add_text(b, "assembler", assembler);
        add_text(b, "kernel", entry);
        kn_buf_add(b, ",\"key\":");
        if (kn_key_describe(key, key_len, &text) != KN_OK) kn_buf_clear(&text);
        add_lines(b, text.data, text.len);
        kn_buf_add(b, ",\"meta\":");
        add_lines(b, blob->meta, blob->meta_len);
        kn_buf_free(&text);
    }
    kn_buf_add_char(b, '}');
    return kn_buf_status(b);
}

int32_t kiln_cache_json(const char *path, char *buf, uint64_t cap, uint64_t *needed) {
    char *own;
    kn_buf b;
    kn_buf_init(&b, (size_t)1 << 30);
    listing l = {&b, true};
    kn_status st = find_place(path, &path, &own);
    if (st == KN_OK) {
        kn_buf_add(&b, "{\"path\":");
        kn_buf_add_json(&b, path);
        kn_buf_add(&b, ",\"entries\":[");
        st = kn_cache_visit(path, list_entry, &l);
        kn_buf_add(&b, "]}");
    }
    kn_free(own);
    if (st == KN_OK) return kn_api_give_text(&b, buf, cap, needed);
    kn_buf_free(&b);
    return st;
}

/* ---- verifying --------------------------------------------------------------------------------------------------- */

typedef struct verification {
    uint64_t checked, bad, other;
    kn_buf report;
} verification;

static kn_status compare_entry(const void *key, size_t key_len, const kn_blob *blob) {
    kn_expansion x;
    kn_kernel_info *info = NULL;
    kn_status st;
    memset(&x, 0, sizeof x);
    KN_TRY_OUT(st, KN_NEW(&info, 1, "a kernel's metadata"));
    KN_TRY_OUT(st, kn_kernel_info_read(blob, info));
    KN_TRY_OUT(st, kn_kernel_reexpand(key, key_len, &x));
    kn_digest now = kn_hash(x.ptx, x.ptx_len);
    if (now.hi != info->ptx.hi || now.lo != info->ptx.lo)
        st = kn_fail(KN_E_FORMAT, "%s expands to other text than it was built from", info->meta.entry);
out:
    kn_expansion_free(&x);
    kn_free(info);
    return st;
}

static kn_status verify_entry(void *user, const char *where, kn_status status, const void *key, size_t key_len,
                              const char *assembler, const kn_blob *blob, int64_t last_used, uint64_t bytes_on_disk) {
    verification *v = user;
    (void)assembler, (void)last_used, (void)bytes_on_disk;
    if (status == KN_OK) status = compare_entry(key, key_len, blob);
    if (status == KN_E_NOMEM) return status;
    if (status == KN_E_UNSUPPORTED) {
        v->other++;
        return KN_OK;
    }
    v->checked++;
    if (status == KN_OK) return KN_OK;
    v->bad++;
    kn_buf_addf(&v->report, "%s: %s\n", where, kn_error_message());
    return KN_OK;
}

int32_t kiln_cache_verify(const char *path, uint64_t *checked, uint64_t *bad, char *report, uint64_t cap) {
    char *own;
    verification v = {0};
    kn_buf_init(&v.report, 1 << 20);
    kn_status st = find_place(path, &path, &own);
    if (st == KN_OK) st = kn_cache_visit(path, verify_entry, &v);
    kn_free(own);
    if (st == KN_OK) {
        if (v.other)
            kn_buf_addf(&v.report, "%" PRIu64 " entries were made by another version and not compared\n", v.other);
        if (checked) *checked = v.checked;
        if (bad) *bad = v.bad;
        if (report && cap) snprintf(report, (size_t)cap, "%s", v.report.data);
    }
    kn_buf_free(&v.report);
    return st;
}

/* ---- trimming and merging ---------------------------------------------------------------------------------------- */

int32_t kiln_cache_trim(const char *path, int64_t max_bytes, uint64_t *removed, uint64_t *removed_bytes) {
    KN_REQUIRE(max_bytes >= 0, KN_E_ARG, "kiln_cache_trim: max_bytes is %" PRId64 "; wanted 0 or more", max_bytes);
    char *own;
    kn_cache *cache = NULL;
    kn_cache_stats stats;
    uint64_t entries = 0, bytes = 0;
    struct stat st;
    bool given = path != NULL;
    KN_TRY(find_place(path, &path, &own));
    const kn_cache_options options = {.dir = path, .no_read_only = true};
    kn_status status = kn_cache_open(&options, &cache);
    if (status != KN_OK) goto out;
    kn_cache_get_stats(cache, &stats);
    int err = kn_lstat(path, &st);
    if (given && err != 0) /* the default directory is made when it is first needed */
        KN_TRY_OUT(status, kn_fail(kn_status_from_errno(err), "%s: %s", path, strerror(err)));
    if (!stats.dir_usable)
        KN_TRY_OUT(status, kn_fail(KN_E_UNAVAILABLE, "the cache cannot be trimmed: %s", stats.dir_reason));
    KN_TRY_OUT(status, kn_cache_trim(cache, max_bytes, &entries, &bytes));
    if (removed) *removed = entries;
    if (removed_bytes) *removed_bytes = bytes;
out:
    kn_cache_close(cache);
    kn_free(own);
    return status;
}

int32_t kiln_cache_merge(const char *const *paths, int32_t n, const char *out_path, uint64_t *entries) {
    KN_REQUIRE(paths && n > 0, KN_E_ARG, "kiln_cache_merge: there are no paths");
    KN_REQUIRE(out_path, KN_E_ARG, "kiln_cache_merge: out_path is NULL");
    for (int32_t i = 0; i < n; i++) KN_REQUIRE(paths[i], KN_E_ARG, "kiln_cache_merge: path %d is NULL", i);
    uint64_t written = 0;
    KN_TRY(kn_pack_merge(paths, n, out_path, &written));
    if (entries) *entries = written;
    return KN_OK;
}
