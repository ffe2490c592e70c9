/* Fuzz target: opening, searching and reading a pack of any bytes, as they are and with a right checksum put into the
 * footer, so that the fuzzer gets past it. */
#define _GNU_SOURCE
#include "base/alloc.h"
#include "cache/bytes.h"
#include "cache/store_pack.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void reseal(unsigned char *bytes, size_t len) {
    unsigned char *footer = bytes + len - KN_PACK_FOOTER_BYTES;
    uint64_t offset = kn_get_u64(footer + 16);
    if (offset > len - KN_PACK_FOOTER_BYTES) return;
    kn_hasher *h = NULL;
    if (kn_hasher_new(&h) != KN_OK) return;
    kn_hasher_add(h, footer, 48);
    kn_hasher_add(h, bytes + offset, len - KN_PACK_FOOTER_BYTES - (size_t)offset);
    kn_digest sum = kn_hasher_end(h);
    kn_put_u64(footer + 48, sum.lo);
    kn_put_u64(footer + 56, sum.hi);
}

static void search(const unsigned char *bytes, size_t len) {
    kn_pack p;
    int fd = memfd_create("pack", MFD_CLOEXEC);
    if (fd < 0 || write(fd, bytes, len) != (ssize_t)len) abort();
    if (kn_pack_open_fd(fd, &p) != KN_OK) return;
    for (size_t i = 0; i < p.count; i++) {
        unsigned char *record = NULL;
        kn_entry e;
        if (i > 0 && kn_pack_row_compare(&p.rows[i - 1], &p.rows[i]) >= 0) abort();
        if (kn_pack_read(&p, &p.rows[i], &record, &e) != KN_OK) continue;
        kn_lookup q;
        kn_store_events events = {0};
        const kn_blob *b = NULL;
        if (kn_lookup_init(&q, e.key, e.key_len, "") != KN_OK) abort();
        if (kn_pack_find(&p, &q, &b, &events) != KN_OK) abort();
        kn_blob_release(b);
        kn_free(record);
    }
    kn_pack_close(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    search(data, size);
    if (size >= KN_PACK_HEADER_BYTES + KN_PACK_FOOTER_BYTES) {
        unsigned char *copy = malloc(size);
        if (!copy) return 0;
        memcpy(copy, data, size);
        reseal(copy, size);
        search(copy, size);
        free(copy);
    }
    return 0;
}
