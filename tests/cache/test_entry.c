/* cache/entry.c: what goes in comes out; no damaged entry is accepted, wherever the damage is. */
#include "base/alloc.h"
#include "cache/bytes.h"
#include "cache/cache_support.h"
#include "cache/entry.h"

#include <stdlib.h>
#include <string.h>

static unsigned char payload[5000];

static kn_entry sample(size_t payload_len) {
    fill_payload(payload, sizeof payload, 7);
    memset(payload + 100, 'x', 2000); /* something to compress */
    return (kn_entry){.key = "\x01\0\0\0key",
                      .key_len = 7,
                      .assembler = "nvjitlink 13.0",
                      .assembler_len = 14,
                      .meta = "regs=32\nsmem=1000\n",
                      .meta_len = 18,
                      .payload = payload,
                      .payload_len = payload_len};
}

static unsigned char *encode(const kn_entry *e, size_t *len) {
    unsigned char *bytes = NULL;
    ck_assert_ok(kn_entry_encode(e, &bytes, len));
    return bytes;
}

/* Parse and decompress a copy of exactly `len` bytes, so that a sanitizer sees any read past it. */
static kn_status decode(const unsigned char *bytes, size_t len, const kn_blob **blob) {
    unsigned char *copy = malloc(len ? len : 1);
    memcpy(copy, bytes, len);
    kn_entry e;
    *blob = NULL;
    kn_status st = kn_entry_parse(copy, len, &e);
    if (st == KN_OK) st = kn_entry_blob(&e, blob);
    free(copy);
    return st;
}

START_TEST(round_trip) {
    const size_t lens[] = {1, 2, 63, 64, 1000, sizeof payload};
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        kn_entry in = sample(lens[i]), e;
        size_t len, header_says;
        unsigned char *bytes = encode(&in, &len);
        ck_assert_ok(kn_entry_length(bytes, &header_says));
        ck_assert_uint_eq(header_says, len);
        ck_assert_ok(kn_entry_parse(bytes, len, &e));
        ck_assert_uint_eq(e.key_len, in.key_len);
        ck_assert_mem_eq(e.key, in.key, in.key_len);
        ck_assert_uint_eq(e.assembler_len, in.assembler_len);
        ck_assert_mem_eq(e.assembler, in.assembler, in.assembler_len);
        const kn_blob *b;
        ck_assert_ok(kn_entry_blob(&e, &b));
        ck_assert_uint_eq(b->payload_len, lens[i]);
        ck_assert_mem_eq(b->payload, payload, lens[i]);
        ck_assert_int_eq(((const char *)b->payload)[lens[i]], '\0');
        ck_assert_str_eq(b->meta, in.meta);
        ck_assert_uint_eq((uintptr_t)b->payload % 16, 0);
        kn_blob_release(b);
        size_t again_len;
        unsigned char *again = encode(&in, &again_len);
        ck_assert_uint_eq(len, again_len);
        ck_assert_mem_eq(bytes, again, len);
        kn_free(again);
        kn_free(bytes);
    }
}
END_TEST

/* The bytes are a format: this entry reads the same for ever. */
START_TEST(layout) {
    kn_entry in = sample(64);
    size_t len;
    unsigned char *b = encode(&in, &len);
    ck_assert_mem_eq(b, "KILNCU\x1a\n", 8);
    ck_assert_uint_eq(kn_get_u32(b + 8), 1);
    ck_assert_uint_eq(kn_get_u32(b + 12), 7);
    ck_assert_uint_eq(kn_get_u32(b + 16), 14);
    ck_assert_uint_eq(kn_get_u32(b + 20), 18);
    ck_assert_uint_eq(kn_get_u64(b + 24), len - 64 - 7 - 14 - 18);
    ck_assert_uint_eq(kn_get_u64(b + 32), 64);
    ck_assert_uint_eq(kn_get_u64(b + 40), 0);
    ck_assert_mem_eq(b + 64, "\x01\0\0\0keynvjitlink 13.0regs=32\nsmem=1000\n", 39);
    ck_assert_uint_eq(kn_get_u32(b + 64 + 39), 0xfd2fb528); /* zstd */
    kn_free(b);
}
END_TEST

START_TEST(every_flipped_bit_is_seen) {
    kn_entry in = sample(1500);
    size_t len;
    unsigned char *bytes = encode(&in, &len);
    const kn_blob *b;
    for (size_t i = 0; i < len; i++) {
        for (int bit = 0; bit < 8; bit++) {
            bytes[i] ^= (unsigned char)(1 << bit);
            kn_status st = decode(bytes, len, &b);
            ck_assert_msg(st == KN_E_FORMAT && !b, "byte %zu, bit %d: %s", i, bit, kn_status_name(st));
            bytes[i] ^= (unsigned char)(1 << bit);
        }
    }
    ck_assert_ok(decode(bytes, len, &b));
    kn_blob_release(b);
    kn_free(bytes);
}
END_TEST

START_TEST(every_length_but_one_is_refused) {
    kn_entry in = sample(900);
    size_t len;
    unsigned char *bytes = encode(&in, &len);
    unsigned char *longer = calloc(1, len + 1024);
    memcpy(longer, bytes, len);
    const kn_blob *b;
    for (size_t n = 0; n <= len + 1024; n++) {
        kn_status st = decode(longer, n, &b);
        ck_assert_msg(st == (n == len ? KN_OK : KN_E_FORMAT), "%zu of %zu bytes: %s", n, len, kn_status_name(st));
        kn_blob_release(b);
    }
    free(longer);
    kn_free(bytes);
}
END_TEST

/* Give edited bytes a right checksum again: what an attacker, or a future writer with a bug, could produce. */
static void reseal(unsigned char *bytes, size_t len) {
    unsigned char *sealed = malloc(len - 16);
    memcpy(sealed, bytes, 48);
    memcpy(sealed + 48, bytes + 64, len - 64);
    kn_digest sum = kn_hash(sealed, len - 16);
    kn_put_u64(bytes + 48, sum.lo);
    kn_put_u64(bytes + 56, sum.hi);
    free(sealed);
}

START_TEST(lies_under_a_right_checksum) {
    kn_entry in = sample(1500);
    size_t len;
    const kn_blob *b;
    struct {
        size_t at;
        uint64_t value;
        int bytes;
    } lies[] = {
        {8, 2, 4},           {8, 0, 4},           {32, 1499, 8},
        {32, 1501, 8},       {32, 0, 8},          {32, UINT64_MAX, 8},
        {32, 64u << 20, 8},  {40, 1, 8},          {12, 0, 4},
        {12, 65536, 4},      {16, 4096, 4},       {20, 1 << 21, 4},
        {24, UINT64_MAX, 8}, {12, 8, 4},          {16, 13, 4},
        {64 + 39, 0, 4},     {64 + 39 + 4, 0, 1}, {64 + 39 + 4, 255, 1},
        {64 + 8, 0, 1},      {64 + 25, 0, 1},     {64 + 39, 0xfd2fb527, 4}, /* an older zstd format */

    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        unsigned char *bytes = encode(&in, &len);
        for (int k = 0; k < lies[i].bytes; k++) bytes[lies[i].at + (size_t)k] = (unsigned char)(lies[i].value >> 8 * k);
        reseal(bytes, len);
        kn_status st = decode(bytes, len, &b);
        ck_assert_msg(st == KN_E_FORMAT, "lie %zu: %s", i, kn_status_name(st));
        kn_free(bytes);
    }
    unsigned char *bytes = encode(&in, &len);
    reseal(bytes, len);
    ck_assert_ok(decode(bytes, len, &b)); /* reseal itself is right */
    kn_blob_release(b);
    unsigned char *longer = calloc(1, len + 1);
    memcpy(longer, bytes, len);
    reseal(longer, len + 1);
    ck_assert_fails(decode(longer, len + 1, &b), KN_E_FORMAT, "its header says");
    free(longer);
    kn_free(bytes);
}
END_TEST

/* A whole frame of zstd 0.7, which the library may still decode: not an entry, so that old decoders are out of reach.
 */
START_TEST(older_zstd_frames) {
    enum { N = 1000, FRONT = 64 + 3 };
    unsigned char bytes[FRONT + 4 + 3 + 3 + N + 3] = {0};
    kn_entry in = sample(N);
    size_t len;
    unsigned char *other = encode(&in, &len);
    memcpy(bytes, other, 64);
    kn_free(other);
    kn_put_u32(bytes + 12, 3); /* key */
    kn_put_u32(bytes + 16, 0);
    kn_put_u32(bytes + 20, 0);
    kn_put_u64(bytes + 24, sizeof bytes - FRONT);
    memcpy(bytes + 64, "key", 3);
    unsigned char *f = bytes + FRONT;
    kn_put_u32(f, 0xfd2fb527);
    f[4] = 0x60; /* one segment, two bytes of content size less 256 */
    f[5] = (N - 256) & 255, f[6] = (N - 256) >> 8;
    f[7] = 0x40, f[8] = N >> 8, f[9] = N & 255; /* a raw block */
    memcpy(f + 10, payload, N);
    f[10 + N] = 0xc0; /* the end */
    reseal(bytes, sizeof bytes);
    const kn_blob *b;
    ck_assert_fails(decode(bytes, sizeof bytes, &b), KN_E_FORMAT, "not one zstd frame");
}
END_TEST

START_TEST(parts_have_limits) {
    unsigned char *bytes = NULL;
    size_t len;
    static const char zeros[8];
    kn_entry e = sample(10);
    e.key_len = 0;
    ck_assert_fails(kn_entry_encode(&e, &bytes, &len), KN_E_ARG, "key");
    e = sample(10), e.key_len = KN_KEY_MAX + 1;
    ck_assert_fails(kn_entry_encode(&e, &bytes, &len), KN_E_ARG, "key");
    e = sample(10), e.assembler_len = KN_ASSEMBLER_MAX + 1;
    ck_assert_fails(kn_entry_encode(&e, &bytes, &len), KN_E_ARG, "assembler");
    e = sample(10), e.meta_len = KN_META_MAX + 1;
    ck_assert_fails(kn_entry_encode(&e, &bytes, &len), KN_E_ARG, "metadata");
    e = sample(10), e.meta = zeros, e.meta_len = 3;
    ck_assert_fails(kn_entry_encode(&e, &bytes, &len), KN_E_ARG, "NUL");
    e = sample(0);
    ck_assert_fails(kn_entry_encode(&e, &bytes, &len), KN_E_ARG, "0 bytes");
    e = sample(10), e.payload_len = (size_t)KN_PAYLOAD_MAX + 1;
    ck_assert_fails(kn_entry_encode(&e, &bytes, &len), KN_E_ARG, "67108865 bytes");
    ck_assert_ptr_null(bytes);
}
END_TEST

START_TEST(meta_values) {
    kn_entry in = sample(10);
    in.meta = "regs=32\nempty=\nregs2=7\nname=a=b\nlast=9";
    in.meta_len = strlen(in.meta);
    size_t len;
    unsigned char *bytes = encode(&in, &len);
    const kn_blob *b;
    char v[8];
    ck_assert_ok(decode(bytes, len, &b));
    ck_assert(kn_blob_meta(b, "regs", v, sizeof v));
    ck_assert_str_eq(v, "32");
    ck_assert(kn_blob_meta(b, "empty", v, sizeof v));
    ck_assert_str_eq(v, "");
    ck_assert(kn_blob_meta(b, "name", v, sizeof v));
    ck_assert_str_eq(v, "a=b");
    ck_assert(kn_blob_meta(b, "last", v, sizeof v));
    ck_assert_str_eq(v, "9");
    ck_assert(!kn_blob_meta(b, "reg", v, sizeof v));
    ck_assert(!kn_blob_meta(b, "s2", v, sizeof v));
    ck_assert(!kn_blob_meta(b, "regs", v, 2)); /* no room: never a cut value */
    kn_blob_release(b);
    kn_free(bytes);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cache/entry");
    TCase *t = tcase_create("all");
    tcase_add_test(t, round_trip);
    tcase_add_test(t, layout);
    tcase_add_test(t, every_flipped_bit_is_seen);
    tcase_add_test(t, every_length_but_one_is_refused);
    tcase_add_test(t, lies_under_a_right_checksum);
    tcase_add_test(t, older_zstd_frames);
    tcase_add_test(t, parts_have_limits);
    tcase_add_test(t, meta_values);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
