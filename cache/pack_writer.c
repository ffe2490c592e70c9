/* Writing packs: records go to a temporary beside the pack as they come, index and footer at the end, and one rename
 * makes it appear. Format: store_pack.c. Nothing in the bytes depends on time, path or host: equal entries in equal
 * order give equal packs. */
#define _GNU_SOURCE
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "cache/bytes.h"
#include "cache/store_pack.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct kn_pack_writer {
    char *path, *temporary;
    int fd;
    uint64_t offset;   /* bytes written */
    kn_pack_row *rows; /* in the order of the records */
    size_t count, room;
    uint32_t *slots;  /* open addressing by digest: index into rows + 1, 0 = free; 2 * room of them */
    kn_status failed; /* the first failure; nothing is written after it */
};

static void writer_free(kn_pack_writer *w) {
    kn_free(w->path);
    kn_free(w->temporary);
    kn_free(w->rows);
    kn_free(w->slots);
    kn_free(w);
}

static kn_status put(kn_pack_writer *w, const void *data, size_t len) {
    int err = kn_check_file_size(w->offset + len);
    if (err == 0) err = kn_write_all(w->fd, data, len);
    if (err != 0) return kn_fail(kn_status_from_errno(err), "%s: %s", w->temporary, strerror(err));
    w->offset += len;
    return KN_OK;
}

/* "<directory>/.t-<pid>-<time>": beside the pack, so that the rename stays within one file system. */
static kn_status name_temporary(kn_pack_writer *w) {
    const char *slash = strrchr(w->path, '/');
    kn_buf b;
    kn_buf_init(&b, 1 << 16);
    if (slash) kn_buf_add_n(&b, w->path, (size_t)(slash - w->path) + 1);
    kn_buf_addf(&b, ".t-%ld-%" PRIx64, (long)getpid(), kn_clock_ns());
    w->temporary = kn_buf_take(&b, NULL);
    kn_status st = w->temporary ? KN_OK : kn_buf_status(&b);
    if (!w->temporary && st == KN_OK) st = kn_fail(KN_E_NOMEM, "out of memory for a file name");
    kn_buf_free(&b);
    return st;
}

kn_status kn_pack_create(const char *path, kn_pack_writer **out) {
    *out = NULL;
    kn_pack_writer *w = NULL;
    kn_status st = KN_OK;
    KN_TRY(KN_NEW(&w, 1, "a pack writer"));
    w->fd = -1;
    w->path = kn_strdup(path);
    if (!w->path) KN_TRY_OUT(st, kn_fail(KN_E_NOMEM, "out of memory for a file name"));
    KN_TRY_OUT(st, name_temporary(w));
    int err = kn_open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0644, &w->fd);
    if (err != 0) KN_TRY_OUT(st, kn_fail(kn_status_from_errno(err), "%s: %s", w->temporary, strerror(err)));
    unsigned char header[KN_PACK_HEADER_BYTES] = {0};
    memcpy(header, kn_pack_magic, 8);
    kn_put_u32(header + 8, KN_PACK_FORMAT);
    KN_TRY_OUT(st, put(w, header, sizeof header));
    *out = w;
    w = NULL;
out:
    if (w && w->fd >= 0)
        kn_pack_abandon(w);
    else if (w)
        writer_free(w);
    return st;
}

/* The slot of `digest`: the one that holds it, or a free one. */
static uint32_t *slot_of(const kn_pack_writer *w, const kn_pack_row *row) {
    size_t mask = 2 * w->room - 1; /* room is a power of 2 */
    for (size_t i = (size_t)row->key_digest.lo & mask;; i = (i + 1) & mask) {
        uint32_t *slot = &w->slots[i];
        if (*slot == 0 || kn_pack_row_compare(&w->rows[*slot - 1], row) == 0) return slot;
    }
}

static kn_status grow(kn_pack_writer *w) {
    size_t room = w->room ? 2 * w->room : 64;
    kn_pack_row *rows = kn_realloc(w->rows, room * sizeof *rows);
    if (rows) w->rows = rows;
    uint32_t *slots = rows ? kn_calloc(2 * room, sizeof *slots) : NULL;
    if (!slots) return kn_fail(KN_E_NOMEM, "out of memory: a pack's index of %zu rows", room);
    kn_free(w->slots);
    w->slots = slots;
    w->room = room;
    for (size_t i = 0; i < w->count; i++) *slot_of(w, &w->rows[i]) = (uint32_t)i + 1;
    return KN_OK;
}

static kn_status add_record(kn_pack_writer *w, const kn_entry *e, bool *added) {
    KN_TRY(kn_entry_check(e));
    if (w->count == w->room) KN_TRY(grow(w));
    kn_pack_row row = {.key_digest = kn_hash(e->key, e->key_len), .offset = w->offset};
    uint32_t *slot = slot_of(w, &row);
    if (*slot != 0) return KN_OK;
    KN_REQUIRE(w->count < KN_PACK_ENTRIES_MAX, KN_E_ARG, "a pack holds at most %d kernels", KN_PACK_ENTRIES_MAX);
    static const unsigned char zeros[8];
    unsigned char *bytes = NULL;
    size_t len;
    KN_TRY(kn_entry_encode(e, &bytes, &len));
    kn_status st = put(w, bytes, len);
    kn_free(bytes);
    if (st == KN_OK) st = put(w, zeros, (8 - len % 8) % 8);
    if (st != KN_OK) {
        w->failed = st; /* a record may stand there by half */
        return st;
    }
    row.len = len;
    w->rows[w->count++] = row;
    *slot = (uint32_t)w->count;
    *added = true;
    return KN_OK;
}

kn_status kn_pack_add(kn_pack_writer *w, const void *key, size_t key_len, const char *assembler, const void *payload,
                      size_t payload_len, const char *meta, size_t meta_len, bool *added) {
    bool ignored;
    if (!added) added = &ignored;
    *added = false;
    if (w->failed != KN_OK) return kn_fail(w->failed, "%s: writing failed before", w->path);
    const kn_entry e = {.key = key,
                        .key_len = key_len,
                        .assembler = assembler,
                        .assembler_len = strlen(assembler),
                        .meta = meta,
                        .meta_len = meta_len,
                        .payload = payload,
                        .payload_len = payload_len};
    return add_record(w, &e, added);
}

/* Index and footer. */
static kn_status put_index(kn_pack_writer *w) {
    unsigned char *bytes = NULL;
    kn_hasher *h = NULL;
    size_t len = w->count * KN_PACK_INDEX_BYTES;
    KN_TRY(KN_NEW(&bytes, len + KN_PACK_FOOTER_BYTES, "a pack's index"));
    kn_status st = KN_OK;
    if (w->count) qsort(w->rows, w->count, sizeof *w->rows, kn_pack_row_compare);
    for (size_t i = 0; i < w->count; i++) {
        unsigned char *row = bytes + i * KN_PACK_INDEX_BYTES;
        kn_put_u64(row, w->rows[i].key_digest.hi);
        kn_put_u64(row + 8, w->rows[i].key_digest.lo);
        kn_put_u64(row + 16, w->rows[i].offset);
        kn_put_u64(row + 24, w->rows[i].len);
    }
    unsigned char *footer = bytes + len;
    memcpy(footer, kn_pack_footer_magic, 8);
    kn_put_u32(footer + 8, KN_PACK_FORMAT);
    kn_put_u64(footer + 16, w->offset);
    kn_put_u64(footer + 24, w->count);
    KN_TRY_OUT(st, kn_hasher_new(&h));
    kn_hasher_add(h, footer, 48);
    kn_hasher_add(h, bytes, len);
    kn_digest sum = kn_hasher_end(h);
    kn_put_u64(footer + 48, sum.lo);
    kn_put_u64(footer + 56, sum.hi);
    st = put(w, bytes, len + KN_PACK_FOOTER_BYTES);
out:
    kn_free(bytes);
    return st;
}

kn_status kn_pack_finish(kn_pack_writer *w) {
    kn_status st = w->failed;
    if (st != KN_OK)
        kn_fail(st, "%s: writing failed before", w->path);
    else
        st = put_index(w);
    if (st == KN_OK) {
        int err = kn_fsync(w->fd);
        int closed = kn_close(w->fd);
        w->fd = -1;
        if (err == 0) err = closed;
        if (err == 0) err = kn_rename(w->temporary, w->path);
        if (err != 0) st = kn_fail(kn_status_from_errno(err), "%s: %s", w->path, strerror(err));
    }
    if (st != KN_OK) {
        kn_pack_abandon(w);
        return st;
    }
    writer_free(w);
    return KN_OK;
}

void kn_pack_abandon(kn_pack_writer *w) {
    if (!w) return;
    if (w->fd >= 0) kn_close(w->fd);
    kn_unlink(w->temporary);
    writer_free(w);
}
