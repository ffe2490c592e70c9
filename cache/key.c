/* Keys: canonical bytes of what a kernel is made from.
 *
 *   u32  format number, KEY_FORMAT
 *   then, a field at a time, in the order in which they were added:
 *   u32  length of the name     bytes of the name
 *   u32  length of the value    bytes of the value
 *
 * Integers are little-endian. Lengths stand in front, so that no two lists of fields give the same bytes. The whole key
 * is at most KN_KEY_MAX bytes. Whoever builds a key decides which fields there are and adds them in a fixed order. */
#include "cache/bytes.h"
#include "cache/entry.h"

#include <string.h>

enum { KEY_FORMAT = 1 };

static void add_u32(kn_buf *b, size_t v) {
    unsigned char bytes[4];
    kn_put_u32(bytes, (uint32_t)v);
    kn_buf_add_n(b, bytes, sizeof bytes);
}

void kn_key_begin(kn_key *k) {
    kn_buf_init(&k->bytes, KN_KEY_MAX);
    add_u32(&k->bytes, KEY_FORMAT);
}

void kn_key_add(kn_key *k, const char *field, const void *value, size_t len) {
    size_t field_len = strlen(field);
    add_u32(&k->bytes, field_len);
    kn_buf_add_n(&k->bytes, field, field_len);
    add_u32(&k->bytes, len);
    kn_buf_add_n(&k->bytes, value, len);
}

void kn_key_add_text(kn_key *k, const char *field, const char *value) {
    kn_key_add(k, field, value, strlen(value));
}

kn_status kn_key_status(const kn_key *k) {
    return kn_buf_status(&k->bytes);
}

void kn_key_free(kn_key *k) {
    kn_buf_free(&k->bytes);
}

static bool is_text(const unsigned char *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i] < 0x20 || p[i] > 0x7e) return false;
    return true;
}

static void add_value(kn_buf *out, const unsigned char *p, size_t n) {
    if (is_text(p, n)) {
        kn_buf_add_n(out, p, n);
        return;
    }
    kn_buf_add(out, "0x");
    for (size_t i = 0; i < n; i++) kn_buf_add_hex(out, p[i], 2);
}

/* One length-prefixed string at *at, moved past; false if it does not fit. */
static bool take(const unsigned char *key, size_t len, size_t *at, const unsigned char **p, size_t *n) {
    if (len - *at < 4) return false;
    *n = kn_get_u32(key + *at);
    *at += 4;
    if (len - *at < *n) return false;
    *p = key + *at;
    *at += *n;
    return true;
}

kn_status kn_key_describe(const void *key, size_t len, kn_buf *out) {
    const unsigned char *bytes = key;
    KN_REQUIRE(len >= 4 && kn_get_u32(bytes) == KEY_FORMAT, KN_E_FORMAT,
               "a key of %zu bytes does not begin with format number %d", len, KEY_FORMAT);
    for (size_t at = 4; at < len;) {
        const unsigned char *name, *value;
        size_t name_len, value_len;
        size_t start = at;
        KN_REQUIRE(take(bytes, len, &at, &name, &name_len) && take(bytes, len, &at, &value, &value_len), KN_E_FORMAT,
                   "the field at byte %zu of a key of %zu bytes reaches past its end", start, len);
        add_value(out, name, name_len);
        kn_buf_add_char(out, '=');
        add_value(out, value, value_len);
        kn_buf_add_char(out, '\n');
    }
    return kn_buf_status(out);
}
