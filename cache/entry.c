/* The entry format, version 1. All integers are little-endian. An entry is valid only if every rule holds.
 *
 *  offset  size  field          rule
 *       0     8  magic          "KILNCU\x1a\n"
 *       8     4  format         1
 *      12     4  key_len        1 .. 65535
 *      16     4  assembler_len  0 .. 4095
 *      20     4  meta_len       0 .. 1 MiB
 *      24     8  stored_len     1 .. KN_STORED_MAX: bytes of the compressed payload
 *      32     8  raw_len        1 .. 64 MiB: bytes of the payload; equals the content size that the frame declares
 *      40     8  reserved       0
 *      48    16  checksum       XXH3-128 (low half first) over bytes 0..47 and then over everything from byte 64 on
 *      64        key, assembler, metadata (no NUL in these two), payload as one zstd frame; nothing behind it
 *
 * The checksum is verified before any byte behind the header is looked at, and all sizes before anything is allocated
 * or decompressed. It detects accidents, not attackers: who may write entries is decided by store_dir.c. */
#include "cache/entry.h"

#include "base/alloc.h"
#include "cache/blob.h"
#include "cache/bytes.h"

#include <string.h>

/* For contexts that allocate through base/alloc.h. */
#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>

enum { COMPRESSION_LEVEL = 3, CHECKED_HEADER_BYTES = 48 };
static const unsigned char magic[8] = {'K', 'I', 'L', 'N', 'C', 'U', 0x1a, '\n'};

static void *zstd_alloc(void *opaque, size_t size) {
    (void)opaque;
    return kn_malloc(size);
}

static void zstd_free(void *opaque, void *p) {
    (void)opaque;
    kn_free(p);
}

static const ZSTD_customMem zstd_memory = {zstd_alloc, zstd_free, NULL};

kn_status kn_entry_check(const kn_entry *e) {
    KN_REQUIRE(e->key_len >= 1 && e->key_len <= KN_KEY_MAX, KN_E_ARG, "a cache key of %zu bytes; wanted 1 to %d",
               e->key_len, KN_KEY_MAX);
    KN_REQUIRE(e->assembler_len <= KN_ASSEMBLER_MAX, KN_E_ARG, "an assembler text of %zu bytes; wanted at most %d",
               e->assembler_len, KN_ASSEMBLER_MAX);
    KN_REQUIRE(e->meta_len <= KN_META_MAX, KN_E_ARG, "metadata of %zu bytes; wanted at most %d", e->meta_len,
               KN_META_MAX);
    KN_REQUIRE(!memchr(e->assembler, 0, e->assembler_len) && !memchr(e->meta, 0, e->meta_len), KN_E_ARG,
               "a NUL in the assembler text or the metadata of a cache entry");
    KN_REQUIRE(e->payload_len >= 1 && e->payload_len <= KN_PAYLOAD_MAX, KN_E_ARG,
               "a kernel of %zu bytes; the cache takes 1 to %d", e->payload_len, KN_PAYLOAD_MAX);
    return KN_OK;
}

static kn_status checksum(const unsigned char *bytes, size_t len, kn_digest *out) {
    kn_hasher *h = NULL;
    KN_TRY(kn_hasher_new(&h));
    kn_hasher_add(h, bytes, CHECKED_HEADER_BYTES);
    kn_hasher_add(h, bytes + KN_ENTRY_HEADER_BYTES, len - KN_ENTRY_HEADER_BYTES);
    *out = kn_hasher_end(h);
    return KN_OK;
}

static void put_header(unsigned char *h, const kn_entry *e, size_t stored_len) {
    memset(h, 0, KN_ENTRY_HEADER_BYTES);
    memcpy(h, magic, sizeof magic);
    kn_put_u32(h + 8, KN_ENTRY_FORMAT);
    kn_put_u32(h + 12, (uint32_t)e->key_len);
    kn_put_u32(h + 16, (uint32_t)e->assembler_len);
    kn_put_u32(h + 20, (uint32_t)e->meta_len);
    kn_put_u64(h + 24, stored_len);
    kn_put_u64(h + 32, e->payload_len);
}

static unsigned char *append(unsigned char *at, const void *data, size_t len) {
    if (len) memcpy(at, data, len);
    return at + len;
}

kn_status kn_entry_encode(const kn_entry *e, unsigned char **out, size_t *len) {
    *out = NULL;
    *len = 0;
    KN_TRY(kn_entry_check(e));
    kn_status st = KN_OK;
    unsigned char *bytes = NULL;
    ZSTD_CCtx *zstd = NULL;
    size_t front = KN_ENTRY_HEADER_BYTES + e->key_len + e->assembler_len + e->meta_len;
    size_t room = ZSTD_compressBound(e->payload_len);
    bytes = kn_malloc(front + room);
    if (!bytes || !(zstd = ZSTD_createCCtx_advanced(zstd_memory))) {
        st = kn_fail(KN_E_NOMEM, "out of memory: %zu bytes for a cache entry", front + room);
        goto out;
    }
    unsigned char *at = bytes + KN_ENTRY_HEADER_BYTES;
    at = append(at, e->key, e->key_len);
    at = append(at, e->assembler, e->assembler_len);
    at = append(at, e->meta, e->meta_len);
    size_t stored = ZSTD_compressCCtx(zstd, at, room, e->payload, e->payload_len, COMPRESSION_LEVEL);
    if (ZSTD_isError(stored)) {
        /* The output has room for anything, so memory is all that can be missing. */
        st = kn_fail(KN_E_NOMEM, "cannot compress %zu bytes: %s", e->payload_len, ZSTD_getErrorName(stored));
        goto out;
    }
    put_header(bytes, e, stored);
    kn_digest sum;
    KN_TRY_OUT(st, checksum(bytes, front + stored, &sum));
    kn_put_u64(bytes + 48, sum.lo);
    kn_put_u64(bytes + 56, sum.hi);
    *out = bytes;
    *len = front + stored;
    bytes = NULL;
out:
    ZSTD_freeCCtx(zstd);
    kn_free(bytes);
    return st;
}

kn_status kn_entry_length(const unsigned char *h, size_t *len) {
    *len = 0;
    KN_REQUIRE(memcmp(h, magic, sizeof magic) == 0, KN_E_FORMAT, "not a cache entry: other magic bytes");
    uint32_t format = kn_get_u32(h + 8), key_len = kn_get_u32(h + 12);
    uint32_t assembler_len = kn_get_u32(h + 16), meta_len = kn_get_u32(h + 20);
    uint64_t stored_len = kn_get_u64(h + 24), raw_len = kn_get_u64(h + 32), reserved = kn_get_u64(h + 40);
    KN_REQUIRE(format == KN_ENTRY_FORMAT, KN_E_FORMAT, "cache entry of format %u; this is format %d", format,
               KN_ENTRY_FORMAT);
    KN_REQUIRE(key_len >= 1 && key_len <= KN_KEY_MAX && assembler_len <= KN_ASSEMBLER_MAX && meta_len <= KN_META_MAX &&
                   stored_len >= 1 && stored_len <= KN_STORED_MAX && raw_len >= 1 && raw_len <= KN_PAYLOAD_MAX &&
                   reserved == 0,
               KN_E_FORMAT, "cache entry with a header field out of range");
    *len = KN_ENTRY_HEADER_BYTES + (size_t)key_len + assembler_len + meta_len + (size_t)stored_len;
    return KN_OK;
}

kn_status kn_entry_parse(const unsigned char *bytes, size_t len, kn_entry *out) {
    *out = (kn_entry){0};
    KN_REQUIRE(len >= KN_ENTRY_HEADER_BYTES, KN_E_FORMAT, "cache entry of %zu bytes: shorter than its header", len);
    size_t wanted;
    KN_TRY(kn_entry_length(bytes, &wanted));
    KN_REQUIRE(wanted == len, KN_E_FORMAT, "cache entry of %zu bytes; its header says %zu", len, wanted);
    kn_digest sum;
    KN_TRY(checksum(bytes, len, &sum));
    KN_REQUIRE(sum.lo == kn_get_u64(bytes + 48) && sum.hi == kn_get_u64(bytes + 56), KN_E_FORMAT,
               "cache entry with a wrong checksum");
    kn_entry e = {.key_len = kn_get_u32(bytes + 12),
                  .assembler_len = kn_get_u32(bytes + 16),
                  .meta_len = kn_get_u32(bytes + 20),
                  .payload_len = (size_t)kn_get_u64(bytes + 24),
                  .raw_len = (size_t)kn_get_u64(bytes + 32)};
    const unsigned char *at = bytes + KN_ENTRY_HEADER_BYTES;
    e.key = at;
    e.assembler = (const char *)(at + e.key_len);
    e.meta = e.assembler + e.assembler_len;
    e.payload = e.meta + e.meta_len;
    KN_REQUIRE(!memchr(e.assembler, 0, e.assembler_len) && !memchr(e.meta, 0, e.meta_len), KN_E_FORMAT,
               "cache entry with a NUL in its assembler text or metadata");
    /* The magic number first: older zstd formats, whose decoders are another matter, never get further. */
    KN_REQUIRE(e.payload_len >= 4 && kn_get_u32(e.payload) == ZSTD_MAGICNUMBER &&
                   ZSTD_getFrameContentSize(e.payload, e.payload_len) == e.raw_len &&
                   ZSTD_findFrameCompressedSize(e.payload, e.payload_len) == e.payload_len,
               KN_E_FORMAT, "cache entry whose payload is not one zstd frame of %zu bytes", e.raw_len);
    *out = e;
    return KN_OK;
}

kn_status kn_entry_blob(const kn_entry *e, const kn_blob **out) {
    *out = NULL;
    void *payload = NULL;
    const kn_blob *blob = NULL;
    ZSTD_DCtx *zstd = ZSTD_createDCtx_advanced(zstd_memory);
    if (!zstd) return kn_fail(KN_E_NOMEM, "out of memory for decompression");
    kn_status st = kn_blob_new(e->raw_len, e->meta, e->meta_len, &payload, &blob);
    if (st == KN_OK) {
        size_t n = ZSTD_decompressDCtx(zstd, payload, e->raw_len, e->payload, e->payload_len);
        /* The frame declares raw_len bytes (kn_entry_parse), and the decoder holds it to that. */
        if (ZSTD_isError(n))
            st = kn_fail(KN_E_FORMAT, "cache entry that does not decompress: %s", ZSTD_getErrorName(n));
    }
    ZSTD_freeDCtx(zstd);
    if (st != KN_OK) {
        kn_blob_release(blob);
        return st;
    }
    *out = blob;
    return KN_OK;
}
