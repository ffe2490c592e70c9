/* Bounded string builder: see buf.h. */
#include "base/buf.h"

#include "base/alloc.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static char empty_text[1] = "";

void kn_buf_init(kn_buf *b, size_t cap) {
    *b = (kn_buf){.data = empty_text, .cap = cap};
}

void kn_buf_free(kn_buf *b) {
    if (b->room) kn_free(b->data);
    kn_buf_init(b, b->cap);
}

void kn_buf_clear(kn_buf *b) {
    b->len = 0;
    b->status = KN_OK;
    if (b->room) b->data[0] = '\0';
}

/* Room for n more bytes and the NUL, or a sticky failure. */
static bool reserve(kn_buf *b, size_t n) {
    if (b->status != KN_OK) return false;
    if (n > b->cap || b->len > b->cap - n) {
        b->status = kn_fail(KN_E_ARG, "text longer than its limit of %zu bytes", b->cap);
        return false;
    }
    size_t need = b->len + n + 1;
    if (need <= b->room) return true;
    size_t room = b->room ? b->room * 2 : 256;
    if (room < need) room = need;
    char *data = kn_realloc(b->room ? b->data : NULL, room);
    if (!data) {
        b->status = kn_fail(KN_E_NOMEM, "out of memory: %zu bytes for text", room);
        return false;
    }
    b->data = data;
    b->room = room;
    return true;
}

void kn_buf_add_n(kn_buf *b, const void *bytes, size_t n) {
    if (!reserve(b, n)) return;
    if (n) memcpy(b->data + b->len, bytes, n);
    b->len += n;
    b->data[b->len] = '\0';
}

void kn_buf_add(kn_buf *b, const char *s) {
    kn_buf_add_n(b, s, strlen(s));
}

void kn_buf_add_char(kn_buf *b, char c) {
    kn_buf_add_n(b, &c, 1);
}

void kn_buf_add_u64(kn_buf *b, uint64_t v) {
    char digits[24];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    kn_buf_add_n(b, digits + at, sizeof digits - at);
}

void kn_buf_add_i64(kn_buf *b, int64_t v) {
    if (v < 0) kn_buf_add_char(b, '-');
    kn_buf_add_u64(b, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

void kn_buf_add_hex(kn_buf *b, uint64_t v, int digits) {
    char text[16];
    int n = 0;
    do {
        text[15 - n++] = "0123456789abcdef"[v & 15];
        v >>= 4;
    } while (v);
    while (n < digits && n < 16) text[15 - n++] = '0';
    kn_buf_add_n(b, text + 16 - n, (size_t)n);
}

void kn_buf_addf(kn_buf *b, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) {
        if (b->status == KN_OK) b->status = kn_fail(KN_E_INTERNAL, "bad format \"%s\"", fmt);
    } else if (reserve(b, (size_t)n)) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

/* Length of the well-formed UTF-8 sequence at s, 0 if there is none. */
static size_t utf8_len(const unsigned char *s) {
    if (s[0] < 0x80) return 1;
    if (s[0] >= 0xc2 && s[0] < 0xe0) return (s[1] & 0xc0) == 0x80 ? 2 : 0;
    if (s[0] >= 0xe0 && s[0] < 0xf0) {
        if ((s[1] & 0xc0) != 0x80 || (s[2] & 0xc0) != 0x80) return 0;
        if (s[0] == 0xe0 && s[1] < 0xa0) return 0;
        if (s[0] == 0xed && s[1] > 0x9f) return 0;
        return 3;
    }
    if (s[0] >= 0xf0 && s[0] < 0xf5) {
        if ((s[1] & 0xc0) != 0x80 || (s[2] & 0xc0) != 0x80 || (s[3] & 0xc0) != 0x80) return 0;
        if (s[0] == 0xf0 && s[1] < 0x90) return 0;
        if (s[0] == 0xf4 && s[1] > 0x8f) return 0;
        return 4;
    }
    return 0;
}

void kn_buf_add_json(kn_buf *b, const char *s) {
    kn_buf_add_char(b, '"');
    for (const unsigned char *p = (const unsigned char *)s; *p;) {
        size_t n = utf8_len(p);
        if (n == 0) {
            kn_buf_add(b, "\xef\xbf\xbd");
            p++;
        } else if (n > 1) {
            kn_buf_add_n(b, p, n);
            p += n;
        } else {
            if (*p == '"' || *p == '\\') {
                kn_buf_add_char(b, '\\');
                kn_buf_add_char(b, (char)*p);
            } else if (*p < 0x20 || *p == 0x7f) {
                kn_buf_add(b, "\\u");
                kn_buf_add_hex(b, *p, 4);
            } else {
                kn_buf_add_char(b, (char)*p);
            }
            p++;
        }
    }
    kn_buf_add_char(b, '"');
}

kn_status kn_buf_status(const kn_buf *b) {
    if (b->status == KN_E_NOMEM) return kn_fail(KN_E_NOMEM, "out of memory while building text");
    if (b->status != KN_OK) return kn_fail(b->status, "text longer than its limit of %zu bytes", b->cap);
    return KN_OK;
}

char *kn_buf_take(kn_buf *b, size_t *len) {
    if (b->status != KN_OK || !reserve(b, 0)) return NULL;
    char *data = b->data;
    data[b->len] = '\0';
    if (len) *len = b->len;
    kn_buf_init(b, b->cap);
    return data;
}
