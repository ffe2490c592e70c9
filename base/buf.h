/* kn_buf: a bounded string builder with a sticky error. Append freely, ask once at the end.
 *
 * The contents are always NUL-terminated. After a failure (out of memory, or over `cap`) further appends do nothing
 * and kn_buf_status() says what happened first. Numbers are written with fixed code, never through the locale. */
#ifndef KN_BASE_BUF_H
#define KN_BASE_BUF_H

#include "base/status.h"

#include <stddef.h>

typedef struct kn_buf {
    char *data;  /* NUL-terminated; never NULL after kn_buf_init */
    size_t len;  /* bytes, the NUL not counted */
    size_t room; /* bytes allocated */
    size_t cap;  /* most bytes it may hold */
    kn_status status;
} kn_buf;

/** An empty builder that may grow to `cap` bytes. Does not allocate. */
void kn_buf_init(kn_buf *b, size_t cap);
void kn_buf_free(kn_buf *b);
void kn_buf_clear(kn_buf *b); /* empties and forgets the error; keeps the memory */

void kn_buf_add(kn_buf *b, const char *s);
void kn_buf_add_n(kn_buf *b, const void *bytes, size_t n);
void kn_buf_add_char(kn_buf *b, char c);
void kn_buf_add_i64(kn_buf *b, int64_t v);
void kn_buf_add_u64(kn_buf *b, uint64_t v);
void kn_buf_add_hex(kn_buf *b, uint64_t v, int digits); /* lower case, zero-padded to `digits` */
/** printf without floats: use it for %s %d %u %x %zu and PRI* alone; the result is the same in every locale. */
void kn_buf_addf(kn_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/** A JSON string literal with its quotes; bytes that are not valid UTF-8 become U+FFFD. */
void kn_buf_add_json(kn_buf *b, const char *s);

/** KN_OK, or the first failure (its sentence is set again). */
kn_status kn_buf_status(const kn_buf *b);
/** Hand the memory to the caller (kn_free); the builder becomes empty. NULL after a failure. */
char *kn_buf_take(kn_buf *b, size_t *len);

#endif
