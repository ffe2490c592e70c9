/* jit/expand: expressions and interpolated text -> trees. Precedence is that of C. */
#include "jit/expand_internal.h"

#include <string.h>

static kn_status new_expr(kn_ex_lex *lx, int op, kn_ex_expr **out) {
    if (++lx->operands > KN_EX_MAX_OPERANDS)
        return kn_ex_fail(lx->ex, "an expression of more than %d parts", KN_EX_MAX_OPERANDS);
    KN_TRY(KN_EX_NEW(lx->ex, out));
    (*out)->op = (uint8_t)op;
    return KN_OK;
}

static kn_status constant(kn_ex_lex *lx, kn_ex_expr **out) {
    KN_TRY(new_expr(lx, KN_EX_CONST, out));
    kn_ex_val *v = &(*out)->val;
    if (lx->tok == KN_TOK_INT) {
        *v = (kn_ex_val){.kind = KN_EX_INT, .i = lx->i};
    } else if (lx->tok == KN_TOK_RAT) {
        kn_ex_rat *rat = NULL;
        KN_TRY(KN_EX_NEW(lx->ex, &rat));
        *rat = lx->rat;
        *v = (kn_ex_val){.kind = KN_EX_RAT, .rat = rat};
    } else {
        *v = (kn_ex_val){.kind = KN_EX_TEXT, .text = lx->at, .len = (uint32_t)lx->len};
    }
    return kn_ex_lex_next(lx);
}

static kn_status call(kn_ex_lex *lx, int fn, kn_ex_expr **out) {
    KN_TRY(new_expr(lx, KN_EX_CALL, out));
    (*out)->fn = (uint8_t)fn;
    KN_TRY(kn_ex_lex_next(lx)); /* ( */
    kn_ex_expr **tail = &(*out)->a;
    int count = 0;
    while (lx->tok != ')') {
        KN_TRY(kn_ex_parse_expr(lx, tail));
        tail = &(*tail)->next;
        count++;
        if (lx->tok != ',') break;
        KN_TRY(kn_ex_lex_next(lx));
    }
    const struct kn_ex_builtin *b = &kn_ex_builtins[fn];
    if (count < b->min_args || count > b->max_args) {
        return kn_ex_fail(lx->ex, "%s() takes %s%d argument%s, not %d", b->name,
                          b->min_args == b->max_args ? "" : "at least ", b->min_args, b->min_args == 1 ? "" : "s",
                          count);
    }
    return kn_ex_lex_expect(lx, ')', "\")\"");
}

static kn_status name_or_call(kn_ex_lex *lx, kn_ex_expr **out) {
    const char *at = lx->at;
    size_t len = lx->len;
    KN_TRY(kn_ex_lex_next(lx));
    if (lx->tok == '(') {
        int fn = kn_ex_builtin_find(at, len);
        if (fn < 0) return kn_ex_fail(lx->ex, "there is no function %.*s()", (int)len, at);
        return call(lx, fn, out);
    }
    KN_TRY(new_expr(lx, KN_EX_NAME, out));
    return kn_ex_intern(lx->ex, at, len, &(*out)->sym);
}

static kn_status primary(kn_ex_lex *lx, kn_ex_expr **out) {
    switch (lx->tok) {
    case KN_TOK_INT:
    case KN_TOK_RAT:
    case KN_TOK_FLOAT: return constant(lx, out);
    case KN_TOK_WORD: return name_or_call(lx, out);
    case KN_TOK_LABEL:
        KN_TRY(new_expr(lx, KN_EX_LABEL, out));
        KN_TRY(kn_ex_intern(lx->ex, lx->at, lx->len, &(*out)->sym));
        return kn_ex_lex_next(lx);
    case KN_TOK_STRING:
        KN_TRY(new_expr(lx, KN_EX_STRING, out));
        KN_TRY(kn_ex_parse_text(lx->ex, lx->at, lx->at + lx->len, &(*out)->text));
        return kn_ex_lex_next(lx);
    case '(':
        KN_TRY(kn_ex_lex_next(lx));
        KN_TRY(kn_ex_parse_expr(lx, out));
        return kn_ex_lex_expect(lx, ')', "\")\"");
    default: break;
    }
    return kn_ex_lex_expect(lx, KN_TOK_WORD, "a value");
}

/* a[i], a[lo .. hi], a[lo .. hi step s], a[*] */
static kn_status postfix(kn_ex_lex *lx, kn_ex_expr **out) {
    KN_TRY(primary(lx, out));
    while (lx->tok == '[') {
        kn_ex_expr *e = NULL;
        KN_TRY(new_expr(lx, KN_EX_INDEX, &e));
        e->a = *out;
        *out = e;
        KN_TRY(kn_ex_lex_next(lx));
        if (lx->tok == '*') {
            e->op = KN_EX_ALL;
            KN_TRY(kn_ex_lex_next(lx));
        } else {
            KN_TRY(kn_ex_parse_expr(lx, &e->b));
            if (lx->tok == KN_TOK_DOTS) {
                e->op = KN_EX_SLICE;
                KN_TRY(kn_ex_lex_next(lx));
                KN_TRY(kn_ex_parse_expr(lx, &e->c));
                if (kn_ex_lex_is(lx, "step")) {
                    KN_TRY(kn_ex_lex_next(lx));
                    KN_TRY(kn_ex_parse_expr(lx, &e->d));
                }
            }
        }
        KN_TRY(kn_ex_lex_expect(lx, ']', "\"]\""));
    }
    return KN_OK;
}

static kn_status unary(kn_ex_lex *lx, kn_ex_expr **out) {
    if (lx->tok != '-' && lx->tok != '!' && lx->tok != '~') return postfix(lx, out);
    if (++lx->depth > KN_EX_MAX_NEST) return kn_ex_fail(lx->ex, "an expression nested too deeply");
    KN_TRY(new_expr(lx, KN_EX_UNARY, out));
    (*out)->token = lx->tok;
    KN_TRY(kn_ex_lex_next(lx));
    KN_TRY(unary(lx, &(*out)->a));
    lx->depth--;
    return KN_OK;
}

/* Binding strength of a binary operator; 0: it is none. */
static int strength(int tok) {
    switch (tok) {
    case KN_TOK_OR: return 1;
    case KN_TOK_AND: return 2;
    case '|': return 3;
    case '^': return 4;
    case '&': return 5;
    case KN_TOK_EQ:
    case KN_TOK_NE: return 6;
    case '<':
    case '>':
    case KN_TOK_LE:
    case KN_TOK_GE: return 7;
    case KN_TOK_SHL:
    case KN_TOK_SHR: return 8;
    case '+':
    case '-': return 9;
    case '*':
    case '/':
    case '%': return 10;
    default: return 0;
    }
}

/* Operators of at least `least`; recursion is at most as deep as there are strengths. */
static kn_status binary(kn_ex_lex *lx, int least, kn_ex_expr **out) {
    KN_TRY(unary(lx, out));
    for (int s; (s = strength(lx->tok)) >= least;) {
        kn_ex_expr *e = NULL;
        KN_TRY(new_expr(lx, KN_EX_BINARY, &e));
        e->token = lx->tok;
        e->a = *out;
        *out = e;
        KN_TRY(kn_ex_lex_next(lx));
        KN_TRY(binary(lx, s + 1, &e->b));
    }
    return KN_OK;
}

kn_status kn_ex_parse_expr(kn_ex_lex *lx, kn_ex_expr **out) {
    if (++lx->depth > KN_EX_MAX_NEST) return kn_ex_fail(lx->ex, "an expression nested too deeply");
    KN_TRY(binary(lx, 1, out));
    if (lx->tok == '?') {
        kn_ex_expr *e = NULL;
        KN_TRY(new_expr(lx, KN_EX_COND, &e));
        e->a = *out;
        *out = e;
        KN_TRY(kn_ex_lex_next(lx));
        KN_TRY(kn_ex_parse_expr(lx, &e->b));
        KN_TRY(kn_ex_lex_expect(lx, ':', "\":\""));
        KN_TRY(kn_ex_parse_expr(lx, &e->c));
    }
    lx->depth--;
    return KN_OK;
}

/* ---- text ---------------------------------------------------------------------------------------------------- */

/* The next "${" or "L@name" in [p, end), or end. */
static const char *find_special(const char *p, const char *end, const char *begin) {
    for (; p + 1 < end; p++) {
        if (p[0] == '$' && p[1] == '{') return p;
        if (p[0] == 'L' && p[1] == '@' && p + 2 < end && kn_ex_is_word_start(p[2]) &&
            (p == begin || !(kn_ex_is_word(p[-1]) || p[-1] == '$')))
            return p;
    }
    return end;
}

/* ${expr} at p; *p moves behind its brace. A text inside a string inside an expression and so on nests through here. */
static kn_status parse_interpolation(kn_ex *ex, const char **p, const char *end, kn_ex_expr **out) {
    kn_ex_lex lx;
    if (++ex->nest > 2 * KN_EX_MAX_NEST) return kn_ex_fail(ex, "text nested too deeply");
    KN_TRY(kn_ex_lex_begin(&lx, ex, *p + 2, end));
    KN_TRY(kn_ex_parse_expr(&lx, out));
    if (lx.tok != '}') return kn_ex_lex_expect(&lx, '}', "\"}\" behind the expression of ${");
    ex->nest--;
    *p = lx.p;
    return KN_OK;
}

static kn_status parse_label(kn_ex *ex, const char **p, const char *end, kn_ex_expr **out) {
    const char *from = *p + 2, *to = from;
    while (to < end && kn_ex_is_word(*to)) to++;
    *p = to;
    KN_TRY(KN_EX_NEW(ex, out));
    (*out)->op = KN_EX_LABEL;
    return kn_ex_intern(ex, from, (size_t)(to - from), &(*out)->sym);
}

kn_status kn_ex_parse_text(kn_ex *ex, const char *p, const char *end, kn_ex_text **out) {
    /* Every special piece may have literal text before it, and some may follow the last. */
    size_t room = 1;
    for (const char *s = p; (s = find_special(s, end, p)) < end; s += 2) room += 2;
    KN_TRY(kn_ex_new(ex, (void **)out, sizeof **out + room * sizeof(kn_ex_seg)));
    kn_ex_text *t = *out;
    const char *begin = p;
    while (p < end) {
        const char *s = find_special(p, end, begin);
        if (s > p) t->seg[t->n++] = (kn_ex_seg){.lit = p, .len = (uint32_t)(s - p)};
        p = s;
        if (p == end) break;
        kn_ex_expr *e = NULL;
        if (*p == '$') {
            KN_TRY(parse_interpolation(ex, &p, end, &e));
        } else {
            KN_TRY(parse_label(ex, &p, end, &e));
        }
        t->seg[t->n++] = (kn_ex_seg){.expr = e};
    }
    return KN_OK;
}
