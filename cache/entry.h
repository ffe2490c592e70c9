/* Entries: the bytes of one kernel on disk, in a file of its own or as a record of a pack. Pure functions over bytes;
 * the format stands on top of entry.c and in docs/cache-format.md. */
#ifndef KN_CACHE_ENTRY_H
#define KN_CACHE_ENTRY_H

#include "cache/cache.h"

enum {
    KN_ENTRY_FORMAT = 1,
    KN_ENTRY_HEADER_BYTES = 64,
    KN_KEY_MAX = 65535,
    KN_ASSEMBLER_MAX = 4095,
    KN_META_MAX = 1 << 20,
    KN_PAYLOAD_MAX = 64 << 20, /* before compression */
    KN_STORED_MAX = KN_PAYLOAD_MAX + (KN_PAYLOAD_MAX >> 8) + 1024
};
/* No entry is longer than this. */
#define KN_ENTRY_MAX                                                                                                   \
    ((size_t)KN_ENTRY_HEADER_BYTES + KN_KEY_MAX + KN_ASSEMBLER_MAX + KN_META_MAX + (size_t)KN_STORED_MAX)

/* The parts of an entry. In a parsed one they point into the entry's bytes, and `payload` is the compressed frame. */
typedef struct kn_entry {
    const void *key;
    size_t key_len;
    const char *assembler; /* not NUL-terminated in a parsed entry */
    size_t assembler_len;
    const char *meta;
    size_t meta_len;
    const void *payload;
    size_t payload_len;
    size_t raw_len; /* bytes after decompression; only in a parsed entry */
} kn_entry;

/** KN_E_ARG if a part is longer than the format allows, or the payload or key empty. */
kn_status kn_entry_check(const kn_entry *e);
/** Bytes of the entry (kn_free). */
kn_status kn_entry_encode(const kn_entry *e, unsigned char **out, size_t *len);
/** Length of the whole entry that begins with these KN_ENTRY_HEADER_BYTES; KN_E_FORMAT if they are no header. */
kn_status kn_entry_length(const unsigned char *header, size_t *len);
/** Check everything except the compressed frame itself; `len` must be the entry's exact length. */
kn_status kn_entry_parse(const unsigned char *bytes, size_t len, kn_entry *out);
/** Decompress a parsed entry. KN_E_FORMAT if the frame is not valid. */
kn_status kn_entry_blob(const kn_entry *e, const kn_blob **out);

#endif
