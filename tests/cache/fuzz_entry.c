/* Fuzz target: kn_entry_parse, kn_entry_blob and kn_key_describe over any bytes, as they are and with a right checksum
 * put in, so that the fuzzer gets past it. What is accepted must survive a round trip. */
#include "base/alloc.h"
#include "cache/bytes.h"
#include "cache/entry.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void reseal(unsigned char *bytes, size_t len) {
    kn_hasher *h = NULL;
    if (kn_hasher_new(&h) != KN_OK) return;
    kn_hasher_add(h, bytes, 48);
    kn_hasher_add(h, bytes + KN_ENTRY_HEADER_BYTES, len - KN_ENTRY_HEADER_BYTES);
    kn_digest sum = kn_hasher_end(h);
    kn_put_u64(bytes + 48, sum.lo);
    kn_put_u64(bytes + 56, sum.hi);
}

static void round_trip(const kn_entry *e, const kn_blob *b) {
    kn_entry again = *e;
    again.payload = b->payload;
    again.payload_len = b->payload_len;
    unsigned char *bytes = NULL;
    size_t len;
    if (kn_entry_encode(&again, &bytes, &len) != KN_OK) abort();
    kn_entry parsed;
    const kn_blob *same = NULL;
    if (kn_entry_parse(bytes, len, &parsed) != KN_OK || kn_entry_blob(&parsed, &same) != KN_OK) abort();
    if (same->payload_len != b->payload_len || memcmp(same->payload, b->payload, b->payload_len) != 0) abort();
    kn_blob_release(same);
    kn_free(bytes);
}

static void decode(const unsigned char *bytes, size_t len) {
    kn_entry e;
    const kn_blob *b = NULL;
    if (kn_entry_parse(bytes, len, &e) != KN_OK) return;
    kn_buf text;
    kn_buf_init(&text, 1 << 20);
    kn_key_describe(e.key, e.key_len, &text);
    kn_buf_free(&text);
    if (kn_entry_blob(&e, &b) != KN_OK) return;
    char value[16];
    kn_blob_meta(b, "regs", value, sizeof value);
    round_trip(&e, b);
    kn_blob_release(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    decode(data, size);
    if (size >= KN_ENTRY_HEADER_BYTES) {
        unsigned char *copy = malloc(size);
        if (!copy) return 0;
        memcpy(copy, data, size);
        reseal(copy, size);
        decode(copy, size);
        free(copy);
    }
    return 0;
}
