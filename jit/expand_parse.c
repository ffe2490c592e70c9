/* jit/expand: a source file -> a tree of nodes. Every line is a directive (its first visible character is '#') or text.
 * The grammar is closed: a word behind '#' that is not in the table below is an error. */
#include "jit/expand_internal.h"

#include "base/alloc.h"

#include <string.h>

/* Lines of one file. */
typedef struct reader {
    kn_ex *ex;
    uint32_t file, line; /* of the current line */
    const char *p, *end; /* what follows it */
    const char *at, *to; /* the current line, without its end */
    const char *word;    /* the word behind '#', NULL for a line of text */
    size_t word_len;
    const char *rest; /* what follows the word */
} reader;

typedef kn_status parse_fn(reader *r, kn_ex_node *n);

static kn_status parse_block(reader *r, kn_ex_block *block, bool top);

/* ---- lines --------------------------------------------------------------------------------------------------- */

/* A directive that ends in '\' goes on in the next line: the pieces are joined in the arena. */
static kn_status join_lines(reader *r) {
    kn_buf text;
    kn_buf_init(&text, KN_EX_MAX_TEXT);
    kn_buf_add_n(&text, r->at, (size_t)(r->to - r->at) - 1);
    uint32_t more = 0;
    for (bool again = true; again && r->p < r->end; more++) {
        const char *nl = memchr(r->p, '\n', (size_t)(r->end - r->p));
        const char *to = nl ? nl : r->end;
        again = to > r->p && to[-1] == '\\';
        kn_buf_add_n(&text, r->p, (size_t)(to - r->p) - again);
        r->p = nl ? nl + 1 : r->end;
    }
    kn_status st = text.status == KN_E_ARG ? kn_ex_fail(r->ex, "a directive of more than %d bytes", KN_EX_MAX_TEXT)
                                           : kn_buf_status(&text);
    if (st == KN_OK) st = kn_ex_strndup(r->ex, text.data, text.len, &r->at);
    r->to = r->at + text.len;
    kn_buf_free(&text);
    r->line += more; /* an error in it names its last line */
    return st;
}

static kn_status check_bytes(reader *r) {
    for (const char *p = r->at; p < r->to; p++) {
        if ((*p >= ' ' && *p < 0x7f) || *p == '\t') continue;
        return kn_ex_fail(r->ex, "byte 0x%02x: templates are ASCII", (unsigned char)*p);
    }
    for (const char *p = r->at; p + 1 < r->to; p++) {
        if (p[0] == '/' && p[1] == '/') return KN_OK;
        if (p[0] == '/' && p[1] == '*') return kn_ex_fail(r->ex, "comments are written with //");
    }
    return KN_OK;
}

/* Step to the next line; *more is false at the end. */
static kn_status next_line(reader *r, bool *more) {
    *more = r->p < r->end;
    if (!*more) return KN_OK;
    const char *nl = memchr(r->p, '\n', (size_t)(r->end - r->p));
    r->at = r->p;
    r->to = nl ? nl : r->end;
    r->p = nl ? nl + 1 : r->end;
    if (r->to > r->at && r->to[-1] == '\r') r->to--;
    r->ex->at_line = ++r->line;
    KN_TRY(check_bytes(r));
    const char *s = r->at;
    while (s < r->to && (*s == ' ' || *s == '\t')) s++;
    r->word = NULL;
    if (s == r->to || *s != '#') return KN_OK;
    if (r->to[-1] == '\\') {
        KN_TRY(join_lines(r));
        KN_TRY(check_bytes(r));
        r->ex->at_line = r->line;
        for (s = r->at; *s != '#';) s++;
    }
    r->word = ++s;
    if (r->to - s >= 2 && s[0] == '/' && s[1] == '/') { /* #// is for the reader of the template alone */
        r->word_len = 2;
        return KN_OK;
    }
    while (s < r->to && kn_ex_is_word(*s)) s++;
    r->word_len = (size_t)(s - r->word);
    r->rest = s;
    return KN_OK;
}

static bool is_word(const reader *r, const char *word) {
    return r->word && strlen(word) == r->word_len && memcmp(r->word, word, r->word_len) == 0;
}

static kn_status new_node(reader *r, int what, kn_ex_node **out) {
    KN_TRY(KN_EX_NEW(r->ex, out));
    (*out)->what = (uint8_t)what;
    (*out)->file = r->file;
    (*out)->line = r->line;
    (*out)->indent = r->at;
    while ((*out)->indent + (*out)->indent_len < r->to && r->at[(*out)->indent_len] <= ' ') (*out)->indent_len++;
    return KN_OK;
}

/* Remember that the #for, #macro or file around this line owns the label. */
static kn_status own_label(kn_ex *ex, kn_ex_sym *sym) {
    kn_ex_block *b = ex->owner;
    for (uint32_t i = 0; i < b->n_labels; i++) {
        if (b->label[i] == sym) return KN_OK; /* in another branch of an #if, or the assembler will object */
    }
    if (b->n_labels == b->room) {
        uint32_t room = b->room ? b->room * 2 : 8;
        kn_ex_sym **label = NULL;
        KN_TRY(kn_ex_new(ex, (void **)&label, room * sizeof *label));
        if (b->n_labels) memcpy(label, b->label, b->n_labels * sizeof *label);
        b->label = label;
        b->room = room;
    }
    b->label[b->n_labels++] = sym;
    return KN_OK;
}

/* A line of text: text; label if it begins with "L@name:". */
static kn_status parse_line(reader *r, kn_ex_node *n) {
    const char *p = n->indent + n->indent_len, *q;
    n->blank = p == r->to;
    if (r->to - p >= 4 && p[0] == 'L' && p[1] == '@' && kn_ex_is_word_start(p[2])) {
        for (q = p + 2; q < r->to && kn_ex_is_word(*q);) q++;
        size_t len = (size_t)(q - p) - 2;
        while (q < r->to && *q == ' ') q++;
        if (q < r->to && *q == ':') {
            KN_TRY(kn_ex_intern(r->ex, p + 2, len, &n->label));
            KN_TRY(own_label(r->ex, n->label));
        }
    }
    return kn_ex_parse_text(r->ex, r->at, r->to, &n->text);
}

/* ---- directives ---------------------------------------------------------------------------------------------- */

static kn_status begin(reader *r, kn_ex_lex *lx) {
    return kn_ex_lex_begin(lx, r->ex, r->rest, r->to);
}

static kn_status finish(kn_ex_lex *lx) {
    return kn_ex_lex_expect(lx, KN_TOK_END, "the end of the directive");
}

static kn_status parse_word(kn_ex_lex *lx, const char *what, kn_ex_sym **out) {
    if (lx->tok == KN_TOK_WORD) KN_TRY(kn_ex_intern(lx->ex, lx->at, lx->len, out));
    return kn_ex_lex_expect(lx, KN_TOK_WORD, what);
}

static kn_status new_item(kn_ex *ex, kn_ex_node *n, kn_ex_item ***tail, kn_ex_item **out) {
    KN_TRY(KN_EX_NEW(ex, out));
    **tail = *out;
    *tail = &(*out)->next;
    n->n_items++;
    return KN_OK;
}

/* "word" if the current token is that word: then `*out` is the expression behind it. */
static kn_status optional_clause(kn_ex_lex *lx, const char *word, kn_ex_expr **out) {
    if (!kn_ex_lex_is(lx, word)) return KN_OK;
    KN_TRY(kn_ex_lex_next(lx));
    return kn_ex_parse_expr(lx, out);
}

static kn_status parse_choices(kn_ex_lex *lx, kn_ex_node *n) {
    kn_ex_item **tail = &n->item, *item;
    n->is_set = true;
    do {
        KN_TRY(kn_ex_lex_next(lx)); /* { or , */
        KN_TRY(new_item(lx->ex, n, &tail, &item));
        if (lx->tok == KN_TOK_WORD) {
            KN_TRY(parse_word(lx, "a name", &item->sym));
            if (!item->sym->choice) item->sym->choice = n;
        } else {
            KN_TRY(kn_ex_parse_expr(lx, &item->expr));
        }
        if (!item->sym != !n->item->sym)
            return kn_ex_fail(lx->ex, "the choices of %s must be all names or all numbers", n->sym->text);
    } while (lx->tok == ',');
    return kn_ex_lex_expect(lx, '}', "\"}\"");
}

/* #param NAME in LO .. HI [step S] [= DEFAULT] // meaning      lo, hi, step, dflt
 * #param NAME in { A, B, C } [= DEFAULT] // meaning             item, dflt */
static kn_status parse_param(reader *r, kn_ex_node *n) {
    kn_ex_lex lx;
    KN_TRY(begin(r, &lx));
    KN_TRY(parse_word(&lx, "the parameter's name", &n->sym));
    if (n->sym->len >= KN_NAME_CAP)
        return kn_ex_fail(r->ex, "a parameter's name has at most %d letters", KN_NAME_CAP - 1);
    if (!kn_ex_lex_is(&lx, "in"))
        return kn_ex_fail(r->ex, "#param %s: expected in and a range or { choices }", n->sym->text);
    KN_TRY(kn_ex_lex_next(&lx));
    if (lx.tok == '{') {
        KN_TRY(parse_choices(&lx, n));
    } else {
        KN_TRY(kn_ex_parse_expr(&lx, &n->lo));
        KN_TRY(kn_ex_lex_expect(&lx, KN_TOK_DOTS, "\"..\""));
        KN_TRY(kn_ex_parse_expr(&lx, &n->hi));
        KN_TRY(optional_clause(&lx, "step", &n->step));
    }
    if (lx.tok == '=') {
        KN_TRY(kn_ex_lex_next(&lx));
        KN_TRY(kn_ex_parse_expr(&lx, &n->dflt));
    }
    KN_TRY(finish(&lx));
    const char *meaning = lx.at;
    while (meaning < r->to && (*meaning == '/' || *meaning == ' ')) meaning++;
    if (meaning == r->to) return kn_ex_fail(r->ex, "#param %s: its meaning is missing (// ...)", n->sym->text);
    return KN_OK;
}

/* #let NAME = EXPR      expr */
static kn_status parse_let(reader *r, kn_ex_node *n) {
    kn_ex_lex lx;
    KN_TRY(begin(r, &lx));
    KN_TRY(parse_word(&lx, "a name", &n->sym));
    KN_TRY(kn_ex_lex_expect(&lx, '=', "\"=\""));
    KN_TRY(kn_ex_parse_expr(&lx, &n->expr));
    return finish(&lx);
}

/* #assert EXPR "sentence"      expr, text */
static kn_status parse_assert(reader *r, kn_ex_node *n) {
    kn_ex_lex lx;
    KN_TRY(begin(r, &lx));
    KN_TRY(kn_ex_parse_expr(&lx, &n->expr));
    if (lx.tok == KN_TOK_STRING) KN_TRY(kn_ex_parse_text(r->ex, lx.at, lx.at + lx.len, &n->text));
    KN_TRY(kn_ex_lex_expect(&lx, KN_TOK_STRING, "a \"sentence\""));
    return finish(&lx);
}

/* #regs .f32 acc[N], x      type, item (expr: the size)
 * #regs .${EXPR} ...        expr computes the type */
static kn_status parse_regs(reader *r, kn_ex_node *n) {
    kn_ex_lex lx;
    const char *p = r->rest;
    while (p < r->to && *p == ' ') p++;
    if (p == r->to || *p++ != '.') return kn_ex_fail(r->ex, "#regs: expected a register type such as .f32");
    if (r->to - p >= 2 && p[0] == '$' && p[1] == '{') {
        KN_TRY(kn_ex_lex_begin(&lx, r->ex, p + 2, r->to));
        KN_TRY(kn_ex_parse_expr(&lx, &n->expr));
        KN_TRY(kn_ex_lex_expect(&lx, '}', "\"}\""));
    } else {
        n->type = p;
        while (p < r->to && kn_ex_is_word(*p)) p++;
        n->type_len = (uint32_t)(p - n->type);
        if (!kn_ex_is_type(n->type, n->type_len))
            return kn_ex_fail(r->ex, "#regs: .%.*s is no register type", (int)(n->type_len > 60 ? 60 : n->type_len),
                              n->type);
        KN_TRY(kn_ex_lex_begin(&lx, r->ex, p, r->to));
    }
    kn_ex_item **tail = &n->item, *item;
    for (;;) {
        KN_TRY(new_item(r->ex, n, &tail, &item));
        KN_TRY(parse_word(&lx, "a register's name", &item->sym));
        if (lx.tok == '[') {
            KN_TRY(kn_ex_lex_next(&lx));
            KN_TRY(kn_ex_parse_expr(&lx, &item->expr));
            KN_TRY(kn_ex_lex_expect(&lx, ']', "\"]\""));
        }
        if (lx.tok != ',') return finish(&lx);
        KN_TRY(kn_ex_lex_next(&lx));
    }
}

/* #smem NAME BYTES [align A] [at OFFSET]      expr, step = A, lo = OFFSET */
static kn_status parse_smem(reader *r, kn_ex_node *n) {
    kn_ex_lex lx;
    if (r->ex->in_local) return kn_ex_fail(r->ex, "#smem inside #for or #macro: buffers are laid out at the top level");
    KN_TRY(begin(r, &lx));
    KN_TRY(parse_word(&lx, "the buffer's name", &n->sym));
    KN_TRY(kn_ex_parse_expr(&lx, &n->expr));
    KN_TRY(optional_clause(&lx, "align", &n->step));
    KN_TRY(optional_clause(&lx, "at", &n->lo));
    return finish(&lx);
}

/* The body of a #for or #macro: a scope of its own, with its own labels. */
static kn_status parse_local_body(reader *r, kn_ex_node *n) {
    kn_ex_block *outer = r->ex->owner;
    r->ex->owner = &n->body;
    r->ex->in_local++;
    KN_TRY(parse_block(r, &n->body, false));
    r->ex->in_local--;
    r->ex->owner = outer;
    if (is_word(r, "end")) return KN_OK;
    return kn_ex_fail(r->ex, "#%.*s without an #if", (int)r->word_len, r->word);
}

/* #for NAME in LO .. HI [step S] ... #end      sym, lo, hi, step, body */
static kn_status parse_for(reader *r, kn_ex_node *n) {
    kn_ex_lex lx;
    KN_TRY(begin(r, &lx));
    KN_TRY(parse_word(&lx, "the loop's variable", &n->sym));
    if (!kn_ex_lex_is(&lx, "in")) return kn_ex_fail(r->ex, "#for %s: expected in and a range", n->sym->text);
    KN_TRY(kn_ex_lex_next(&lx));
    KN_TRY(kn_ex_parse_expr(&lx, &n->lo));
    KN_TRY(kn_ex_lex_expect(&lx, KN_TOK_DOTS, "\"..\""));
    KN_TRY(kn_ex_parse_expr(&lx, &n->hi));
    KN_TRY(optional_clause(&lx, "step", &n->step));
    KN_TRY(finish(&lx));
    return parse_local_body(r, n);
}

/* #if EXPR ... [#elif EXPR ...] [#else ...] #end      expr (NULL: else), body, other */
static kn_status parse_if(reader *r, kn_ex_node *n) {
    bool last = false;
    for (;;) {
        kn_ex_lex lx;
        KN_TRY(begin(r, &lx));
        if (!last) KN_TRY(kn_ex_parse_expr(&lx, &n->expr));
        KN_TRY(finish(&lx));
        KN_TRY(parse_block(r, &n->body, false));
        if (is_word(r, "end")) return KN_OK;
        if (last) return kn_ex_fail(r->ex, "#%.*s behind #else", (int)r->word_len, r->word);
        last = is_word(r, "else");
        KN_TRY(new_node(r, KN_EX_IF, &n->other));
        n = n->other;
    }
}

/* #macro NAME(a, b) ... #end      sym, item, body */
static kn_status parse_macro(reader *r, kn_ex_node *n) {
    kn_ex_lex lx;
    if (r->ex->in_local) return kn_ex_fail(r->ex, "#macro inside #for or #macro");
    KN_TRY(begin(r, &lx));
    KN_TRY(parse_word(&lx, "the macro's name", &n->sym));
    KN_TRY(kn_ex_lex_expect(&lx, '(', "\"(\""));
    kn_ex_item **tail = &n->item, *item;
    while (lx.tok != ')') {
        KN_TRY(new_item(r->ex, n, &tail, &item));
        KN_TRY(parse_word(&lx, "an argument's name", &item->sym));
        if (lx.tok != ',') break;
        KN_TRY(kn_ex_lex_next(&lx));
    }
    if (n->n_items > KN_EX_MAX_ARGS) return kn_ex_fail(r->ex, "more than %d arguments", KN_EX_MAX_ARGS);
    KN_TRY(kn_ex_lex_expect(&lx, ')', "\")\""));
    KN_TRY(finish(&lx));
    return parse_local_body(r, n);
}

/* The end of the argument at p: the comma or parenthesis that no bracket or string encloses. */
static const char *argument_end(const char *p, const char *end) {
    int depth = 0;
    bool quoted = false;
    for (; p < end; p++) {
        if (*p == '"') quoted = !quoted;
        if (quoted) continue;
        if (depth == 0 && (*p == ',' || *p == ')')) return p;
        if (*p == '(' || *p == '[' || *p == '{') depth++;
        if (*p == ')' || *p == ']' || *p == '}') depth--;
    }
    return end;
}

/* Operand text, as opposed to an expression: what no expression can begin with, or what has ${...} in it. */
static bool is_operand(const char *p, const char *end) {
    const char *q = p;
    while (q < end && *q == '!') q++;
    if (q < end && strchr("%[{@.", *q)) return true;
    for (q = p; q + 1 < end; q++) {
        if (q[0] == '"') return false;
        if (q[0] == '$' && q[1] == '{') return true;
    }
    return false;
}

static kn_status parse_argument(reader *r, const char *p, const char *end, kn_ex_item *item) {
    while (end > p && (end[-1] == ' ' || end[-1] == '\t')) end--;
    while (p < end && (*p == ' ' || *p == '\t')) p++;
    if (p == end) return kn_ex_fail(r->ex, "#use: an empty argument (write \"\" for an empty text)");
    if (is_operand(p, end)) {
        KN_TRY(KN_EX_NEW(r->ex, &item->expr));
        item->expr->op = KN_EX_STRING;
        return kn_ex_parse_text(r->ex, p, end, &item->expr->text);
    }
    kn_ex_lex lx;
    KN_TRY(kn_ex_lex_begin(&lx, r->ex, p, end));
    KN_TRY(kn_ex_parse_expr(&lx, &item->expr));
    return kn_ex_lex_expect(&lx, KN_TOK_END, "the end of the argument");
}

/* #use NAME(argument, ...)      sym, item */
static kn_status parse_use(reader *r, kn_ex_node *n) {
    kn_ex_lex lx;
    KN_TRY(begin(r, &lx));
    KN_TRY(parse_word(&lx, "a macro's name", &n->sym));
    if (lx.tok != '(') return kn_ex_lex_expect(&lx, '(', "\"(\"");
    const char *p = lx.p;
    kn_ex_item **tail = &n->item, *item;
    while (p < r->to && (*p == ' ' || *p == '\t')) p++;
    if (p < r->to && *p == ')') {
        p++;
    } else {
        for (bool more = true; more;) {
            const char *end = argument_end(p, r->to);
            if (end == r->to) return kn_ex_fail(r->ex, "#use %s: \")\" is missing", n->sym->text);
            KN_TRY(new_item(r->ex, n, &tail, &item));
            KN_TRY(parse_argument(r, p, end, item));
            more = *end == ',';
            p = end + 1;
        }
    }
    KN_TRY(kn_ex_lex_begin(&lx, r->ex, p, r->to));
    return finish(&lx);
}

/* #include "lib/x.ptxi"      text */
static kn_status parse_include(reader *r, kn_ex_node *n) {
    kn_ex_lex lx;
    if (r->ex->in_local) return kn_ex_fail(r->ex, "#include inside #for or #macro");
    KN_TRY(begin(r, &lx));
    if (lx.tok == KN_TOK_STRING) KN_TRY(kn_ex_parse_text(r->ex, lx.at, lx.at + lx.len, &n->text));
    KN_TRY(kn_ex_lex_expect(&lx, KN_TOK_STRING, "a \"file name\""));
    return finish(&lx);
}

/* #example target=sm_90a BM=128 T=bf16      item: sym = expr (a number) or a name constant */
static kn_status parse_example(reader *r, kn_ex_node *n) {
    kn_ex_lex lx;
    kn_ex_item **tail = &n->item, *item;
    KN_TRY(begin(r, &lx));
    while (lx.tok == KN_TOK_WORD) {
        KN_TRY(new_item(r->ex, n, &tail, &item));
        KN_TRY(parse_word(&lx, "a parameter's name", &item->sym));
        KN_TRY(kn_ex_lex_expect(&lx, '=', "\"=\""));
        KN_TRY(KN_EX_NEW(r->ex, &item->expr));
        kn_ex_val *v = &item->expr->val;
        bool minus = lx.tok == '-';
        if (minus) KN_TRY(kn_ex_lex_next(&lx));
        if (lx.tok == KN_TOK_INT) {
            *v = (kn_ex_val){.kind = KN_EX_INT, .i = minus ? -lx.i : lx.i};
        } else if (lx.tok == KN_TOK_WORD && !minus) {
            *v = (kn_ex_val){.kind = KN_EX_TEXT, .text = lx.at, .len = (uint32_t)lx.len};
        } else {
            return kn_ex_fail(r->ex, "#example: the value of %s must be a number or a name", item->sym->text);
        }
        KN_TRY(kn_ex_lex_next(&lx));
    }
    return finish(&lx);
}

static const struct {
    const char *word;
    int what;
    parse_fn *parse;
} directives[] = {
    {"param", KN_EX_PARAM, parse_param},
    {"let", KN_EX_LET, parse_let},
    {"assert", KN_EX_ASSERT, parse_assert},
    {"regs", KN_EX_REGS_DECL, parse_regs},
    {"smem", KN_EX_SMEM, parse_smem},
    {"for", KN_EX_FOR, parse_for},
    {"if", KN_EX_IF, parse_if},
    {"macro", KN_EX_MACRO, parse_macro},
    {"use", KN_EX_USE, parse_use},
    {"include", KN_EX_INCLUDE, parse_include},
    {"example", KN_EX_EXAMPLE, parse_example},
};

static kn_status parse_directive(reader *r, kn_ex_node **out) {
    for (size_t i = 0; i < sizeof directives / sizeof directives[0]; i++) {
        if (!is_word(r, directives[i].word)) continue;
        bool declares = directives[i].what == KN_EX_PARAM || directives[i].what == KN_EX_EXAMPLE;
        if (declares && r->ex->in_local) return kn_ex_fail(r->ex, "#%s inside #for or #macro", directives[i].word);
        KN_TRY(new_node(r, directives[i].what, out));
        return directives[i].parse(r, *out);
    }
    return kn_ex_fail(
        r->ex,
        "#%.*s is no directive: param, let, assert, regs, smem, for, if, elif, else, macro, use, include, "
        "example, end",
        (int)(r->word_len > 60 ? 60 : r->word_len), r->word);
}

/* Nodes up to the #end, #elif or #else that ends the block (it stays the reader's current line), or, at the top, up to
 * the end of the file. */
static kn_status parse_block(reader *r, kn_ex_block *block, bool top) {
    kn_ex_node **tail = &block->first;
    uint32_t opened = r->line;
    if (++r->ex->nest > KN_EX_MAX_NEST) return kn_ex_fail(r->ex, "blocks nested too deeply");
    for (bool more = true;;) {
        KN_TRY(next_line(r, &more));
        if (!more && !top) return kn_ex_fail(r->ex, "the block of line %u has no #end", opened);
        if (!more) break;
        if (is_word(r, "//")) continue;
        if (is_word(r, "end") || is_word(r, "elif") || is_word(r, "else")) {
            if (top) return kn_ex_fail(r->ex, "#%.*s without a block", (int)r->word_len, r->word);
            if (is_word(r, "end")) {
                kn_ex_lex lx;
                KN_TRY(begin(r, &lx));
                KN_TRY(finish(&lx));
            }
            break;
        }
        kn_ex_node *n = NULL;
        if (r->word) {
            KN_TRY(parse_directive(r, &n));
        } else {
            KN_TRY(new_node(r, KN_EX_LINE, &n));
            KN_TRY(parse_line(r, n));
        }
        *tail = n;
        tail = &n->next;
    }
    r->ex->nest--;
    return KN_OK;
}

kn_status kn_ex_parse_file(kn_ex *ex, uint32_t file) {
    kn_ex_file *f = &ex->file[file];
    reader r = {.ex = ex, .file = file, .p = f->text, .end = f->text + f->len};
    ex->at_file = file;
    ex->at_line = 0;
    ex->owner = &f->block;
    ex->nest = ex->in_local = 0;
    if (f->len > KN_EX_MAX_SOURCE) return kn_ex_fail(ex, "a file of more than %d bytes", KN_EX_MAX_SOURCE);
    return parse_block(&r, &f->block, true);
}
