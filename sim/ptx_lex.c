/* Characters of PTX: blanks, comments, words, numbers. */
#include "base/alloc.h"
#include "sim/ptx_parse.h"

#include <stdarg.h>
#include <stdio.h>

kn_status kn_ptx_error(kn_ptx *p, const char *fmt, ...) {
    char where[192], text[1024];
    uint32_t line = p->insn_line ? p->insn_line : p->line;
    if (p->origin)
        p->origin(p->origin_user, line, where, sizeof where);
    else
        snprintf(where, sizeof where, "PTX line %u", line);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return kn_fail(KN_E_SIM, "%s: %s", where, text);
}

static void skip_block_comment(kn_ptx *p) {
    for (p->at += 2; p->at < p->end; p->at++) {
        if (*p->at == '\n') p->line++;
        if (*p->at == '*' && p->at + 1 < p->end && p->at[1] == '/') {
            p->at += 2;
            return;
        }
    }
}

void kn_ptx_skip(kn_ptx *p) {
    while (p->at < p->end) {
        char c = *p->at;
        if (c == '\n') p->line++;
        if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
            p->at++;
        } else if (c == '/' && p->at + 1 < p->end && p->at[1] == '/') {
            while (p->at < p->end && *p->at != '\n') p->at++;
        } else if (c == '/' && p->at + 1 < p->end && p->at[1] == '*') {
            skip_block_comment(p);
        } else {
            return;
        }
    }
}

bool kn_ptx_is(kn_ptx *p, char c) {
    kn_ptx_skip(p);
    return p->at < p->end && *p->at == c;
}

bool kn_ptx_take(kn_ptx *p, char c) {
    if (!kn_ptx_is(p, c)) return false;
    p->at++;
    return true;
}

kn_status kn_ptx_expect(kn_ptx *p, char c) {
    if (kn_ptx_take(p, c)) return KN_OK;
    if (p->at >= p->end) return kn_ptx_error(p, "the text ends where '%c' was expected", c);
    return kn_ptx_error(p, "'%c' was expected before \"%.*s\"", c, (int)(p->end - p->at < 20 ? p->end - p->at : 20),
                        p->at);
}

static bool starts_word(char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' || c == '$' || c == '%';
}
static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
static bool in_word(char c) {
    return (starts_word(c) && c != '%') || is_digit(c);
}

bool kn_ptx_word(kn_ptx *p, bool dots, const char **text, uint32_t *len) {
    kn_ptx_skip(p);
    const char *start = p->at;
    if (p->at >= p->end || !starts_word(*p->at)) return false;
    p->at++;
    for (;;) {
        while (p->at < p->end && in_word(*p->at)) p->at++;
        if (!dots || p->end - p->at < 2) break;
        if (p->at[0] == '.' && in_word(p->at[1]))
            p->at++;
        else if (p->end - p->at > 2 && p->at[0] == ':' && p->at[1] == ':' && in_word(p->at[2]))
            p->at += 2;
        else
            break;
    }
    *text = start;
    *len = (uint32_t)(p->at - start);
    return true;
}

bool kn_ptx_word_is(const char *text, uint32_t len, const char *want) {
    return strlen(want) == len && memcmp(text, want, len) == 0;
}

bool kn_ptx_directive(kn_ptx *p, const char **text, uint32_t *len) {
    kn_ptx_skip(p);
    if (p->end - p->at < 2 || *p->at != '.' || !starts_word(p->at[1])) return false;
    p->at++;
    return kn_ptx_word(p, false, text, len);
}

static int digit_of(char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return 99;
}

/* `digits` hexadecimal digits of 0f / 0d. */
static kn_status hex_float(kn_ptx *p, int digits, uint64_t *bits) {
    uint64_t v = 0;
    for (int k = 0; k < digits; k++, p->at++) {
        if (p->at >= p->end || digit_of(*p->at) > 15)
            return kn_ptx_error(p, "a hexadecimal float needs %d digits", digits);
        v = v << 4 | (uint64_t)digit_of(*p->at);
    }
    if (p->at < p->end && in_word(*p->at)) return kn_ptx_error(p, "a hexadecimal float has %d digits", digits);
    *bits = v;
    return KN_OK;
}

/* 12.5e-3: not through strtod, whose point depends on the locale. Exact for the short literals that PTX text has;
 * generated text uses hexadecimal floats. */
static bool decimal_float(kn_ptx *p, uint64_t *bits) {
    const char *at = p->at;
    double v = 0, scale = 1;
    bool point = false;
    while (at < p->end && (is_digit(*at) || (*at == '.' && !point))) {
        if (*at == '.') {
            point = true;
        } else {
            v = v * 10 + (*at - '0');
            if (point) scale *= 10;
        }
        at++;
    }
    bool exponent = at < p->end && (*at == 'e' || *at == 'E');
    if (!point && !exponent) return false;
    if (exponent) {
        bool minus = false;
        int e = 0;
        at++;
        if (at < p->end && (*at == '-' || *at == '+')) minus = *at++ == '-';
        for (; at < p->end && is_digit(*at); at++)
            if (e < 400) e = e * 10 + (*at - '0');
        for (; e > 0; e--) {
            if (minus)
                scale *= 10;
            else
                v *= 10;
        }
    }
    v /= scale;
    memcpy(bits, &v, sizeof v);
    p->at = at;
    return true;
}

static kn_status integer(kn_ptx *p, uint64_t *bits) {
    unsigned base = 10;
    if (p->end - p->at > 1 && p->at[0] == '0') {
        char c = p->at[1];
        base = c == 'x' || c == 'X' ? 16 : c == 'b' || c == 'B' ? 2 : is_digit(c) ? 8 : 10;
        p->at += base == 16 || base == 2 ? 2 : 0;
    }
    const char *start = p->at;
    uint64_t v = 0;
    for (; p->at < p->end && digit_of(*p->at) < (int)base; p->at++) {
        unsigned d = (unsigned)digit_of(*p->at);
        if (v > (UINT64_MAX - d) / base) return kn_ptx_error(p, "an integer does not fit 64 bits");
        v = v * base + d;
    }
    if (p->at == start) return kn_ptx_error(p, "a number was expected");
    if (p->at < p->end && *p->at == 'U') p->at++;
    if (p->at < p->end && in_word(*p->at)) return kn_ptx_error(p, "a number ends in letters");
    *bits = v;
    return KN_OK;
}

kn_status kn_ptx_number(kn_ptx *p, kn_literal *kind, uint64_t *bits, bool *negative) {
    *negative = kn_ptx_take(p, '-');
    kn_ptx_skip(p);
    if (p->at >= p->end || (!is_digit(*p->at) && *p->at != '.')) return kn_ptx_error(p, "a number was expected");
    char second = p->end - p->at > 1 ? p->at[1] : 0;
    *kind = KN_LIT_INT;
    if (*p->at == '0' && (second == 'f' || second == 'F')) {
        p->at += 2;
        *kind = KN_LIT_F32;
        KN_TRY(hex_float(p, 8, bits));
        if (*negative) *bits ^= UINT64_C(0x80000000);
        return KN_OK;
    }
    if (*p->at == '0' && (second == 'd' || second == 'D')) {
        p->at += 2;
        *kind = KN_LIT_F64;
        KN_TRY(hex_float(p, 16, bits));
    } else if (second != 'x' && second != 'X' && decimal_float(p, bits)) {
        *kind = KN_LIT_F64;
    } else {
        KN_TRY(integer(p, bits));
        if (*negative && *bits > UINT64_C(1) << 63) return kn_ptx_error(p, "an integer does not fit 64 bits");
        if (*negative) *bits = 0 - *bits;
        return KN_OK;
    }
    if (*negative) *bits ^= UINT64_C(1) << 63;
    return KN_OK;
}

kn_status kn_ptx_count(kn_ptx *p, uint64_t max, const char *what, uint64_t *out) {
    kn_literal kind;
    bool negative;
    KN_TRY(kn_ptx_number(p, &kind, out, &negative));
    if (kind != KN_LIT_INT || negative || *out > max)
        return kn_ptx_error(p, "%s must be an integer in [0, %llu]", what, (unsigned long long)max);
    return KN_OK;
}

char *kn_ptx_copy(kn_ptx *p, const char *text, uint32_t len) {
    return kn_arena_strndup(&p->module->arena, text, len);
}

uint32_t kn_ptx_hash(const char *text, uint32_t len) {
    uint32_t h = 2166136261u;
    for (uint32_t k = 0; k < len; k++) h = (h ^ (uint8_t)text[k]) * 16777619u;
    return h ^ h >> 15;
}

kn_status kn_ptx_grow(void **array, uint32_t *room, uint32_t n, size_t item, const char *what) {
    if (n < *room) return KN_OK;
    uint32_t want = *room ? *room * 2 : 64;
    void *grown = kn_realloc(*array, (size_t)want * item);
    if (!grown) return kn_fail(KN_E_NOMEM, "out of memory for %u %s", want, what);
    *array = grown;
    *room = want;
    return KN_OK;
}
