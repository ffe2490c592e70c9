/* The pack format, version 1, and its reader. Little-endian; every record and the index begin at a multiple of 8, the
 * bytes between are 0.
 *
 *   header, 64 bytes   0  8  magic "KILNPK\x1a\n"     8  4  format 1     12  52  zero
 *   records            entries as in entry.c, one after the other
 *   index              32 bytes a record, ascending by key hash, no two equal:
 *                      0  8  key hash, high half      8  8  low half     16  8  offset     24  8  length
 *   footer, 64 bytes   0  8  magic "KILNPX\x1a\n"     8  4  format 1     12   4  zero
 *                      16 8  offset of the index     24  8  records      32  16  zero
 *                      48 16 XXH3-128 (low half first) over bytes 0..47 of the footer and then over the index
 *
 * The footer is the end of the file, and index offset + 32 * records + 64 is its length.
 *
 * Truncation rule: in a file without a valid footer and index the records are read one after the other from byte 64;
 * the pack is all of them up to the first that is incomplete or not valid, the first of equal keys counts. A damaged
 * record in a pack with a valid index is a miss for its key alone.
 *
 * Records are read with pread, never mapped: a file that shrinks while in use is a read error, not a SIGBUS. */
#define _GNU_SOURCE
#include "cache/store_pack.h"

#include "base/alloc.h"
#include "base/file.h"
#include "cache/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const unsigned char kn_pack_magic[8] = {'K', 'I', 'L', 'N', 'P', 'K', 0x1a, '\n'};
const unsigned char kn_pack_footer_magic[8] = {'K', 'I', 'L', 'N', 'P', 'X', 0x1a, '\n'};

static uint64_t align8(uint64_t v) {
    return (v + 7) & ~(uint64_t)7;
}

static bool all_zero(const unsigned char *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i]) return false;
    return true;
}

int kn_pack_row_compare(const void *a, const void *b) {
    const kn_digest x = ((const kn_pack_row *)a)->key_digest, y = ((const kn_pack_row *)b)->key_digest;
    if (x.hi != y.hi) return x.hi < y.hi ? -1 : 1;
    return (x.lo > y.lo) - (x.lo < y.lo);
}

/* Exactly n bytes at `offset`; KN_E_FORMAT if the file ends before. */
static kn_status read_at(const kn_pack *p, uint64_t offset, void *data, size_t n) {
    size_t got;
    int err = kn_pread_all(p->fd, data, n, offset, &got);
    if (err != 0) return kn_fail(kn_status_from_errno(err), "cannot read: %s", strerror(err));
    KN_REQUIRE(got == n, KN_E_FORMAT, "the file ends within the %zu bytes at offset %llu", n,
               (unsigned long long)offset);
    return KN_OK;
}

/* ---- the index --------------------------------------------------------------------------------------------------- */

static kn_status check_index(const kn_pack *p, const unsigned char *footer, const unsigned char *index, size_t len) {
    kn_hasher *h = NULL;
    KN_TRY(kn_hasher_new(&h));
    kn_hasher_add(h, footer, 48);
    kn_hasher_add(h, index, len);
    kn_digest sum = kn_hasher_end(h);
    KN_REQUIRE(sum.lo == kn_get_u64(footer + 48) && sum.hi == kn_get_u64(footer + 56), KN_E_FORMAT,
               "the pack's index has a wrong checksum");
    uint64_t end = p->size - KN_PACK_FOOTER_BYTES - len;
    for (size_t i = 0; i < p->count; i++) {
        const kn_pack_row *r = &p->rows[i];
        bool ascending = i == 0 || kn_pack_row_compare(r - 1, r) < 0;
        bool inside = r->offset >= KN_PACK_HEADER_BYTES && r->offset % 8 == 0 && r->offset <= end &&
                      r->len >= KN_ENTRY_HEADER_BYTES && r->len <= KN_ENTRY_MAX && r->len <= end - r->offset;
        KN_REQUIRE(ascending && inside, KN_E_FORMAT, "row %zu of the pack's index is not valid", i);
    }
    return KN_OK;
}

static kn_status read_index(kn_pack *p) {
    unsigned char footer[KN_PACK_FOOTER_BYTES];
    KN_REQUIRE(p->size >= KN_PACK_HEADER_BYTES + KN_PACK_FOOTER_BYTES, KN_E_FORMAT, "a pack without a footer");
    KN_TRY(read_at(p, p->size - sizeof footer, footer, sizeof footer));
    uint64_t offset = kn_get_u64(footer + 16), count = kn_get_u64(footer + 24);
    KN_REQUIRE(memcmp(footer, kn_pack_footer_magic, 8) == 0 && kn_get_u32(footer + 8) == KN_PACK_FORMAT &&
                   all_zero(footer + 12, 4) && all_zero(footer + 32, 16) && count <= KN_PACK_ENTRIES_MAX &&
                   offset >= KN_PACK_HEADER_BYTES && offset % 8 == 0 && offset <= p->size &&
                   count * KN_PACK_INDEX_BYTES + KN_PACK_FOOTER_BYTES == p->size - offset,
               KN_E_FORMAT, "a pack without a valid footer");
    kn_status st = KN_OK;
    size_t len = (size_t)count * KN_PACK_INDEX_BYTES;
    unsigned char *index = kn_malloc(len);
    if (!index) return kn_fail(KN_E_NOMEM, "out of memory: a pack's index of %zu bytes", len);
    KN_TRY_OUT(st, read_at(p, offset, index, len));
    KN_TRY_OUT(st, KN_NEW(&p->rows, count, "a pack's index"));
    p->count = (size_t)count;
    for (size_t i = 0; i < p->count; i++) {
        const unsigned char *row = index + i * KN_PACK_INDEX_BYTES;
        p->rows[i] = (kn_pack_row){.key_digest = {.hi = kn_get_u64(row), .lo = kn_get_u64(row + 8)},
                                   .offset = kn_get_u64(row + 16),
                                   .len = kn_get_u64(row + 24)};
    }
    KN_TRY_OUT(st, check_index(p, footer, index, len));
out:
    kn_free(index);
    return st;
}

/* ---- the truncation rule ----------------------------------------------------------------------------------------- */

static kn_status add_row(kn_pack *p, size_t *room, kn_pack_row row) {
    if (p->count == *room) {
        size_t more = *room ? 2 * *room : 64;
        kn_pack_row *rows = kn_realloc(p->rows, more * sizeof *rows);
        if (!rows) return kn_fail(KN_E_NOMEM, "out of memory: a pack's index of %zu rows", more);
        p->rows = rows;
        *room = more;
    }
    p->rows[p->count++] = row;
    return KN_OK;
}

/* By digest, then by offset, so that the first of equal keys comes first. */
static int compare_then_offset(const void *a, const void *b) {
    int c = kn_pack_row_compare(a, b);
    if (c != 0) return c;
    uint64_t x = ((const kn_pack_row *)a)->offset, y = ((const kn_pack_row *)b)->offset;
    return (x > y) - (x < y);
}

/* The record at `offset`, checked whole; KN_E_FORMAT ends the scan. */
static kn_status scan_record(const kn_pack *p, uint64_t offset, kn_pack_row *row) {
    unsigned char header[KN_ENTRY_HEADER_BYTES];
    unsigned char *bytes = NULL;
    size_t len;
    kn_entry e;
    KN_TRY(read_at(p, offset, header, sizeof header));
    KN_TRY(kn_entry_length(header, &len));
    *row = (kn_pack_row){.offset = offset, .len = len};
    KN_TRY(kn_pack_read(p, row, &bytes, &e));
    row->key_digest = kn_hash(e.key, e.key_len);
    kn_free(bytes);
    return KN_OK;
}

static kn_status scan_records(kn_pack *p) {
    size_t room = 0;
    uint64_t offset = KN_PACK_HEADER_BYTES;
    while (offset < p->size && p->count < KN_PACK_ENTRIES_MAX) {
        kn_pack_row row;
        kn_status st = scan_record(p, offset, &row);
        if (st == KN_E_FORMAT) break;
        KN_TRY(st);
        KN_TRY(add_row(p, &room, row));
        offset = align8(offset + row.len);
    }
    if (p->count) qsort(p->rows, p->count, sizeof *p->rows, compare_then_offset);
    size_t kept = 0;
    for (size_t i = 0; i < p->count; i++)
        if (kept == 0 || kn_pack_row_compare(&p->rows[kept - 1], &p->rows[i]) != 0) p->rows[kept++] = p->rows[i];
    p->count = kept;
    p->truncated = true;
    return KN_OK;
}

/* ---- opening and finding ----------------------------------------------------------------------------------------- */

static kn_status open_checked(kn_pack *p) {
    unsigned char header[KN_PACK_HEADER_BYTES];
    struct stat st;
    int err = kn_fstat(p->fd, &st);
    if (err != 0) return kn_fail(kn_status_from_errno(err), "cannot stat: %s", strerror(err));
    KN_REQUIRE(S_ISREG(st.st_mode) && st.st_size >= 0, KN_E_FORMAT, "not a regular file");
    p->size = (uint64_t)st.st_size;
    KN_TRY(read_at(p, 0, header, sizeof header));
    KN_REQUIRE(memcmp(header, kn_pack_magic, 8) == 0, KN_E_FORMAT, "not a pack: other magic bytes");
    KN_REQUIRE(kn_get_u32(header + 8) == KN_PACK_FORMAT && all_zero(header + 12, sizeof header - 12), KN_E_FORMAT,
               "a pack of format %u; this is format %d", kn_get_u32(header + 8), KN_PACK_FORMAT);
    kn_status status = read_index(p);
    if (status != KN_E_FORMAT) return status;
    kn_free(p->rows);
    p->rows = NULL;
    p->count = 0;
    return scan_records(p);
}

kn_status kn_pack_open_fd(int fd, kn_pack *out) {
    *out = (kn_pack){.fd = fd};
    kn_status st = open_checked(out);
    if (st != KN_OK) kn_pack_close(out);
    return st;
}

kn_status kn_pack_open(const char *path, const kn_store *trust, kn_pack *out) {
    *out = (kn_pack){.fd = -1};
    int fd = -1;
    struct stat st;
    int err = kn_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0, &fd);
    KN_REQUIRE(err != ELOOP, KN_E_FORMAT, "%s is a symbolic link: name its target", path);
    if (err == 0 && trust && (err = kn_fstat(fd, &st)) == 0) {
        kn_status trusted = kn_store_trust(trust, &st);
        if (trusted != KN_OK) {
            kn_close(fd);
            return kn_error_prefix(trusted, "%s is not used: ", path);
        }
    }
    if (err != 0) {
        if (fd >= 0) kn_close(fd);
        return kn_fail(kn_status_from_errno(err), "%s: %s", path, strerror(err));
    }
    kn_status status = kn_pack_open_fd(fd, out);
    return status == KN_OK ? KN_OK : kn_error_prefix(status, "%s: ", path);
}

void kn_pack_close(kn_pack *p) {
    if (p->fd >= 0) kn_close(p->fd);
    kn_free(p->rows);
    *p = (kn_pack){.fd = -1};
}

kn_status kn_pack_read(const kn_pack *p, const kn_pack_row *row, unsigned char **bytes, kn_entry *out) {
    *bytes = NULL;
    /* Before the allocation: a header may claim any length. */
    KN_REQUIRE(row->offset <= p->size && row->len <= p->size - row->offset, KN_E_FORMAT,
               "the record at offset %llu reaches past the end of the pack", (unsigned long long)row->offset);
    unsigned char *data = kn_malloc((size_t)row->len);
    if (!data) return kn_fail(KN_E_NOMEM, "out of memory: a pack's record of %zu bytes", (size_t)row->len);
    kn_status st = read_at(p, row->offset, data, (size_t)row->len);
    if (st == KN_OK) st = kn_entry_parse(data, (size_t)row->len, out);
    if (st != KN_OK)
        kn_free(data);
    else
        *bytes = data;
    return st;
}

kn_status kn_pack_find(const kn_pack *p, const kn_lookup *q, const kn_blob **out, kn_store_events *events) {
    *out = NULL;
    kn_pack_row wanted = {.key_digest = q->key_digest};
    const kn_pack_row *row = p->count ? bsearch(&wanted, p->rows, p->count, sizeof wanted, kn_pack_row_compare) : NULL;
    if (!row) return KN_OK;
    unsigned char *bytes = NULL;
    kn_entry e;
    kn_status st = kn_pack_read(p, row, &bytes, &e);
    if (st == KN_OK && (e.key_len != q->key_len || memcmp(e.key, q->key, e.key_len) != 0))
        st = kn_fail(KN_E_FORMAT, "the record at offset %llu belongs to another kernel",
                     (unsigned long long)row->offset);
    if (st == KN_OK) st = kn_entry_blob(&e, out);
    kn_free(bytes);
    if (st == KN_OK || st == KN_E_NOMEM) return st;
    snprintf(events->reason, sizeof events->reason, "%.255s", kn_error_message());
    if (st == KN_E_FORMAT) events->rejected++;
    return KN_OK;
}
