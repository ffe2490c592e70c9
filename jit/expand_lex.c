/* jit/expand: the tokens of directives and of ${...} expressions. Bytes are classified here by hand: ctype.h follows
 * the locale. */
#include "jit/expand_internal.h"

#include <string.h>

bool kn_ex_is_word_start(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

bool kn_ex_is_word(char c) {
    return kn_ex_is_word_start(c) || is_digit(c);
}

/* Value of a hexadecimal digit, -1 if it is none. */
static int hex_digit(char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static kn_status fail_number(kn_ex_lex *lx, const char *from) {
    const char *p = from;
    while (p < lx->end && (kn_ex_is_word(*p) || *p == '.')) p++;
    return kn_ex_fail(lx->ex, "\"%.*s\" is not a number that fits", (int)(p - from > 60 ? 60 : p - from), from);
}

/* 0x1F, and the float forms that PTX has: 0f and 8, 0d and 16 hexadecimal digits. */
static kn_status lex_prefixed(kn_ex_lex *lx, char kind) {
    const char *p = lx->at + 2;
    uint64_t v = 0;
    int n = 0;
    for (int d; p < lx->end && (d = hex_digit(*p)) >= 0; p++, n++) v = v << 4 | (uint64_t)d;
    bool good = kind == 'x' ? n >= 1 && n <= 16 && v <= INT64_MAX : n == (kind == 'f' ? 8 : 16);
    if (!good || (p < lx->end && kn_ex_is_word(*p))) return fail_number(lx, lx->at);
    lx->tok = kind == 'x' ? KN_TOK_INT : KN_TOK_FLOAT;
    lx->i = (int64_t)v;
    lx->p = p;
    return KN_OK;
}

/* Digits into *v; false when there are more than 36. */
static bool lex_digits(const char **p, const char *end, __int128 *v, int *count) {
    for (; *p < end && is_digit(**p); (*p)++) {
        if (*count >= 36) return false;
        *v = *v * 10 + (**p - '0');
        if (*v) ++*count;
    }
    return true;
}

static bool scale10(int exponent, __int128 v, kn_ex_rat *out) {
    __int128 ten = 1;
    int n = exponent < 0 ? -exponent : exponent;
    if (n > 37) return false;
    for (int i = 0; i < n; i++) ten *= 10;
    kn_ex_rat a, b;
    return kn_ex_rat_make(v, 1, &a) && (exponent < 0 ? kn_ex_rat_make(1, ten, &b) : kn_ex_rat_make(ten, 1, &b)) &&
           kn_ex_rat_op('*', &a, &b, out);
}

/* 42, 0.5, 1e-20. "0..4" is the integer 0 before "..": a point counts only with a digit behind it. */
static kn_status lex_decimal(kn_ex_lex *lx) {
    const char *p = lx->at;
    __int128 v = 0;
    int count = 0, exponent = 0;
    bool rational = false;
    if (!lex_digits(&p, lx->end, &v, &count)) return fail_number(lx, lx->at);
    if (p + 1 < lx->end && *p == '.' && is_digit(p[1])) {
        rational = true;
        const char *point = ++p;
        if (!lex_digits(&p, lx->end, &v, &count)) return fail_number(lx, lx->at);
        if (p - point > 60) return fail_number(lx, lx->at);
        exponent = -(int)(p - point);
    }
    if (p < lx->end && (*p == 'e' || *p == 'E')) {
        rational = true;
        bool minus = ++p < lx->end && *p == '-';
        if (p < lx->end && (*p == '-' || *p == '+')) p++;
        const char *digits = p;
        int e = 0;
        for (; p < lx->end && is_digit(*p) && e < 1000; p++) e = e * 10 + (*p - '0');
        if (p == digits) return fail_number(lx, lx->at);
        exponent += minus ? -e : e;
    }
    if (p < lx->end && kn_ex_is_word(*p)) return fail_number(lx, lx->at);
    lx->p = p;
    lx->tok = rational ? KN_TOK_RAT : KN_TOK_INT;
    if (rational) return scale10(exponent, v, &lx->rat) ? KN_OK : fail_number(lx, lx->at);
    if (v > INT64_MAX) return fail_number(lx, lx->at);
    lx->i = (int64_t)v;
    return KN_OK;
}

static kn_status lex_number(kn_ex_lex *lx) {
    if (*lx->at == '0' && lx->at + 1 < lx->end) {
        char kind = lx->at[1];
        if (kind == 'x' || kind == 'f' || kind == 'd') return lex_prefixed(lx, kind);
    }
    return lex_decimal(lx);
}

/* A string ends at the next quote: there are no escapes. */
static kn_status lex_string(kn_ex_lex *lx) {
    const char *from = lx->at + 1;
    const char *quote = memchr(from, '"', (size_t)(lx->end - from));
    if (!quote) return kn_ex_fail(lx->ex, "a string without its closing quote");
    lx->tok = KN_TOK_STRING;
    lx->at = from;
    lx->len = (size_t)(quote - from);
    lx->p = quote + 1;
    return KN_OK;
}

static const struct {
    char text[3];
    int tok;
} pairs[] = {{"..", KN_TOK_DOTS}, {"==", KN_TOK_EQ},  {"!=", KN_TOK_NE},  {"<=", KN_TOK_LE}, {">=", KN_TOK_GE},
             {"<<", KN_TOK_SHL},  {">>", KN_TOK_SHR}, {"&&", KN_TOK_AND}, {"||", KN_TOK_OR}};

kn_status kn_ex_lex_next(kn_ex_lex *lx) {
    while (lx->p < lx->end && (*lx->p == ' ' || *lx->p == '\t')) lx->p++;
    lx->at = lx->p;
    lx->len = 0;
    if (lx->p == lx->end || (lx->end - lx->p >= 2 && lx->p[0] == '/' && lx->p[1] == '/')) {
        lx->tok = KN_TOK_END;
        return KN_OK;
    }
    char c = *lx->p;
    if (c == '"') return lex_string(lx);
    if (is_digit(c)) {
        kn_status st = lex_number(lx);
        lx->len = (size_t)(lx->p - lx->at);
        return st;
    }
    if (kn_ex_is_word_start(c)) {
        bool label = c == 'L' && lx->end - lx->p >= 3 && lx->p[1] == '@' && kn_ex_is_word_start(lx->p[2]);
        if (label) lx->at = lx->p += 2;
        while (lx->p < lx->end && kn_ex_is_word(*lx->p)) lx->p++;
        lx->tok = label ? KN_TOK_LABEL : KN_TOK_WORD;
        lx->len = (size_t)(lx->p - lx->at);
        return KN_OK;
    }
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        if (lx->end - lx->p >= 2 && lx->p[0] == pairs[i].text[0] && lx->p[1] == pairs[i].text[1]) {
            lx->tok = pairs[i].tok;
            lx->len = 2;
            lx->p += 2;
            return KN_OK;
        }
    }
    if (!strchr("+-*/%<>!~&|^?:()[]{},=", c)) return kn_ex_fail(lx->ex, "unexpected character '%c'", c);
    lx->tok = c;
    lx->len = 1;
    lx->p++;
    return KN_OK;
}

kn_status kn_ex_lex_begin(kn_ex_lex *lx, kn_ex *ex, const char *p, const char *end) {
    *lx = (kn_ex_lex){.ex = ex, .p = p, .end = end};
    return kn_ex_lex_next(lx);
}

kn_status kn_ex_lex_expect(kn_ex_lex *lx, int tok, const char *what) {
    if (lx->tok == tok) return tok == KN_TOK_END ? KN_OK : kn_ex_lex_next(lx);
    if (lx->tok == KN_TOK_END) return kn_ex_fail(lx->ex, "expected %s at the end of the line", what);
    int n = lx->len > 60 ? 60 : (int)lx->len;
    return kn_ex_fail(lx->ex, "expected %s, not \"%.*s\"", what, n, lx->at);
}

bool kn_ex_lex_is(const kn_ex_lex *lx, const char *word) {
    return lx->tok == KN_TOK_WORD && lx->len == strlen(word) && memcmp(lx->at, word, lx->len) == 0;
}
