/* jit/expand: what is wrong with a template although it expands. Two halves: the trees (names that nothing uses or that
 * nothing declares, whatever the parameters), and the finished text (arithmetic without its rounding, labels nobody
 * branches to, barrier numbers in registers). All findings come back in one error. */
#include "jit/expand_internal.h"

#include <string.h>

/* ---- findings ------------------------------------------------------------------------------------------------ */

typedef struct lint {
    kn_ex *ex;
    kn_buf text; /* one finding a line */
    uint32_t count;
    struct local *local; /* names of the macro being walked, innermost first */
    struct ref *undeclared;
    struct ref *labels;     /* that the finished text defines */
    bool open, open_branch; /* the statement before goes on in this line; it is a branch */
} lint;

/* A name declared inside a #macro, or by a #for at the top level. */
typedef struct local {
    struct local *next;
    const kn_ex_sym *sym;
    const kn_ex_node *where;
    const char *what; /* "argument"; NULL: never reported (a loop may just repeat) */
    bool used;
} local;

/* A name that was read where no local declaration is in sight, or a label. */
typedef struct ref {
    struct ref *next;
    const kn_ex_sym *sym;
    const kn_ex_node *where;
    const kn_line_origin *origin; /* of a label in the finished text */
} ref;

static void add_finding(lint *l, const char *file, uint32_t line, const char *what, const char *name, size_t len) {
    kn_buf one;
    kn_buf_init(&one, 1024);
    kn_buf_addf(&one, "%s:%u: ", file, line);
    kn_buf_add(&one, what);
    kn_buf_add_n(&one, name, len > 100 ? 100 : len);
    kn_buf_add_char(&one, '\n');
    /* A loop or a second use of a macro would say it again. */
    if (kn_buf_status(&one) != KN_OK) {
        l->text.status = KN_E_NOMEM;
    } else if (!strstr(l->text.data, one.data)) {
        if (l->text.len < 3000) kn_buf_add(&l->text, one.data);
        l->count++;
    }
    kn_buf_free(&one);
}

static void find_at_node(lint *l, const kn_ex_node *n, const char *what, const kn_ex_sym *sym) {
    add_finding(l, l->ex->file[n->file].name, n->line, what, sym->text, sym->len);
}

/* ---- the trees ----------------------------------------------------------------------------------------------- */

static kn_status walk_text(lint *l, const kn_ex_node *n, const kn_ex_text *t);

static kn_status see_name(lint *l, const kn_ex_node *n, kn_ex_sym *sym) {
    bool found = false;
    for (local *x = l->local; x; x = x->next) {
        if (x->sym == sym) found = x->used = true; /* all of that name: the branches of an #if declare it in turn */
    }
    if (found) return KN_OK;
    if (!sym->referenced) {
        ref *r = NULL;
        KN_TRY(KN_EX_NEW(l->ex, &r));
        *r = (ref){.next = l->undeclared, .sym = sym, .where = n};
        l->undeclared = r;
    }
    sym->referenced = true;
    return KN_OK;
}

static kn_status walk_expr(lint *l, const kn_ex_node *n, const kn_ex_expr *e) {
    for (; e; e = e->next) {
        if (e->op == KN_EX_NAME) KN_TRY(see_name(l, n, e->sym));
        if (e->text) KN_TRY(walk_text(l, n, e->text));
        KN_TRY(walk_expr(l, n, e->a));
        KN_TRY(walk_expr(l, n, e->b));
        KN_TRY(walk_expr(l, n, e->c));
        KN_TRY(walk_expr(l, n, e->d));
    }
    return KN_OK;
}

static kn_status walk_text(lint *l, const kn_ex_node *n, const kn_ex_text *t) {
    for (uint32_t i = 0; t && i < t->n; i++) KN_TRY(walk_expr(l, n, t->seg[i].expr));
    return KN_OK;
}

static kn_status add_local(lint *l, const kn_ex_node *n, const kn_ex_sym *sym, const char *what) {
    local *x = NULL;
    KN_TRY(KN_EX_NEW(l->ex, &x));
    *x = (local){.next = l->local, .sym = sym, .where = n, .what = what};
    l->local = x;
    return KN_OK;
}

/* Leave a scope: report its unused names down to `keep`. */
static void drop_locals(lint *l, local *keep) {
    for (; l->local != keep; l->local = l->local->next) {
        local *x = l->local;
        if (!x->used && x->what) find_at_node(l, x->where, x->what, x->sym);
    }
}

static kn_status declare_static(lint *l, const kn_ex_node *n, kn_ex_sym *sym, uint32_t locals, const char *what) {
    if (locals) return add_local(l, n, sym, what);
    sym->declared = true;
    return KN_OK;
}

static kn_status walk_block(lint *l, const kn_ex_block *block, uint32_t locals);

static kn_status walk_scope(lint *l, const kn_ex_node *n, uint32_t locals) {
    local *outer = l->local;
    if (n->what == KN_EX_MACRO) {
        for (const kn_ex_item *i = n->item; i; i = i->next) KN_TRY(add_local(l, n, i->sym, "unused argument "));
    } else {
        KN_TRY(add_local(l, n, n->sym, NULL));
    }
    KN_TRY(walk_block(l, &n->body, locals + 1));
    drop_locals(l, outer);
    return KN_OK;
}

static kn_status walk_node(lint *l, const kn_ex_node *n, uint32_t locals) {
    KN_TRY(walk_expr(l, n, n->expr));
    KN_TRY(walk_expr(l, n, n->lo));
    KN_TRY(walk_expr(l, n, n->hi));
    KN_TRY(walk_expr(l, n, n->step));
    KN_TRY(walk_expr(l, n, n->dflt));
    KN_TRY(walk_text(l, n, n->text));
    for (const kn_ex_item *i = n->item; i && n->what != KN_EX_MACRO; i = i->next) KN_TRY(walk_expr(l, n, i->expr));
    switch (n->what) {
    case KN_EX_PARAM:
    case KN_EX_SMEM: return declare_static(l, n, n->sym, locals, "");
    case KN_EX_LET: return declare_static(l, n, n->sym, locals, "unused #let ");
    case KN_EX_REGS_DECL:
        for (const kn_ex_item *i = n->item; i; i = i->next)
            KN_TRY(declare_static(l, n, i->sym, locals, "unused register "));
        return KN_OK;
    case KN_EX_USE: n->sym->used_macro = true; return KN_OK;
    case KN_EX_FOR:
    case KN_EX_MACRO: return walk_scope(l, n, locals);
    default: return KN_OK;
    }
}

static kn_status walk_block(lint *l, const kn_ex_block *block, uint32_t locals) {
    for (const kn_ex_node *n = block->first; n; n = n->next) {
        KN_TRY(walk_node(l, n, locals));
        for (const kn_ex_node *b = n; n->what == KN_EX_IF && b; b = b->other) {
            if (b != n) KN_TRY(walk_expr(l, b, b->expr));
            KN_TRY(walk_block(l, &b->body, locals));
        }
    }
    return KN_OK;
}

/* Top-level declarations that nothing in the whole closure reads. A library file offers names and macros: only its
 * parameters must be used. */
static void report_unused(lint *l, const kn_ex_block *block, bool library) {
    for (const kn_ex_node *n = block->first; n; n = n->next) {
        for (const kn_ex_node *b = n; n->what == KN_EX_IF && b; b = b->other) report_unused(l, &b->body, library);
        if (n->what == KN_EX_PARAM && !n->sym->referenced) find_at_node(l, n, "unused #param ", n->sym);
        if (library) continue;
        if (n->what == KN_EX_LET && !n->sym->referenced) find_at_node(l, n, "unused #let ", n->sym);
        if (n->what == KN_EX_MACRO && !n->sym->used_macro) find_at_node(l, n, "unused #macro ", n->sym);
        for (const kn_ex_item *i = n->what == KN_EX_REGS_DECL ? n->item : NULL; i; i = i->next) {
            if (!i->sym->referenced) find_at_node(l, n, "unused register ", i->sym);
        }
    }
}

static kn_status lint_trees(lint *l) {
    kn_ex *ex = l->ex;
    KN_TRY(kn_ex_load_closure(ex, ex->file[0].name));
    for (uint32_t f = 0; f < ex->n_files; f++) KN_TRY(walk_block(l, &ex->file[f].block, 0));
    for (uint32_t f = 0; f < ex->n_files; f++)
        report_unused(l, &ex->file[f].block, strncmp(ex->file[f].name, "lib/", 4) == 0);
    for (const ref *r = l->undeclared; r; r = r->next) {
        const kn_ex_sym *s = r->sym;
        bool known = s->declared || s->dtype || s->choice || s == ex->smem_total || s == ex->smem_align ||
                     (s->global && !s->global->where);
        if (!known) find_at_node(l, r->where, "undeclared name ", s);
    }
    return KN_OK;
}

/* ---- the finished text --------------------------------------------------------------------------------------- */

static bool is_text_char(char c) {
    return kn_ex_is_word(c) || c == '$' || c == '.' || c == '%';
}

/* Does the opcode "add.rn.f32" have that part? */
static bool has_part(const char *op, size_t len, const char *part) {
    size_t n = strlen(part);
    for (size_t i = 0; i + n <= len; i++) {
        bool begins = i == 0 || op[i - 1] == '.', ends = i + n == len || op[i + n] == '.';
        if (begins && ends && memcmp(op + i, part, n) == 0) return true;
    }
    return false;
}

static bool has_any(const char *op, size_t len, const char *const *parts) {
    for (; *parts; parts++) {
        if (has_part(op, len, *parts)) return true;
    }
    return false;
}

static bool begins_with(const char *op, size_t len, const char *const *names) {
    for (; *names; names++) {
        size_t n = strlen(*names);
        if (len >= n && memcmp(op, *names, n) == 0 && (len == n || op[n] == '.')) return true;
    }
    return false;
}

/* The names among a branch's operands. */
static kn_status see_targets(lint *l, const char *p, const char *end) {
    while (p < end) {
        const char *from = p;
        while (p < end && is_text_char(*p)) p++;
        if (p > from && *from != '%') {
            kn_ex_sym *sym = NULL;
            KN_TRY(kn_ex_intern(l->ex, from, (size_t)(p - from), &sym));
            sym->branched = true;
        }
        if (p == from) p++;
    }
    return KN_OK;
}

static bool is_branch(const char *op, size_t len) {
    static const char *const branches[] = {"bra", "brx", "call", ".branchtargets", NULL};
    return begins_with(op, len, branches);
}

/* One statement: the opcode [op, op + len) and its operands up to `end`. */
static void lint_statement(lint *l, const kn_line_origin *o, const char *op, size_t len, const char *end) {
    static const char *const arithmetic[] = {"add", "sub", "mul", "fma", "mad", NULL};
    static const char *const floats[] = {"f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64", NULL};
    static const char *const roundings[] = {"rn", "rz", "rm", "rp", NULL};
    static const char *const barriers[] = {"bar", "barrier", NULL};
    static const char *const no_number[] = {"warp", "cluster", NULL};
    const char *file = l->ex->file[o->file].name;
    if (begins_with(op, len, arithmetic) && has_any(op, len, floats) && !has_any(op, len, roundings))
        add_finding(l, file, o->line, "write the rounding (.rn) of ", op, len);
    if (!begins_with(op, len, barriers) || has_any(op, len, no_number)) return;
    const char *p = op + len;
    if (has_part(op, len, "red")) {
        while (p < end && *p != ',') p++; /* its result comes first */
        if (p < end) p++;
    }
    while (p < end && (*p == ' ' || *p == '\t')) p++;
    if (p == end || *p < '0' || *p > '9')
        add_finding(l, file, o->line, "the barrier's number is no constant: ", op, len);
}

static kn_status add_label(lint *l, const kn_line_origin *o, const char *word, size_t len) {
    ref *r = NULL;
    kn_ex_sym *sym = NULL;
    KN_TRY(kn_ex_intern(l->ex, word, len, &sym));
    KN_TRY(KN_EX_NEW(l->ex, &r));
    *r = (ref){.next = l->labels, .sym = sym, .origin = o};
    l->labels = r;
    return KN_OK;
}

/* The end of the word at p; an opcode may have "::" in it. */
static const char *word_end(const char *p, const char *end) {
    for (;;) {
        while (p < end && is_text_char(*p)) p++;
        if (end - p < 2 || p[0] != ':' || p[1] != ':') return p;
        p += 2;
    }
}

/* One line without its comment. Statements may go on over several lines: l->open. */
static kn_status lint_line(lint *l, const kn_line_origin *o, const char *p, const char *end) {
    while (p < end) {
        const char *semicolon = memchr(p, ';', (size_t)(end - p));
        if (l->open) { /* its opcode was looked at */
            if (l->open_branch) KN_TRY(see_targets(l, p, semicolon ? semicolon : end));
            if (!semicolon) return KN_OK;
            p = semicolon;
            l->open = false;
        }
        while (p < end && (*p == ' ' || *p == '\t' || *p == ';' || *p == '{' || *p == '}')) p++;
        if (p < end && *p == '@') {
            while (p < end && *p != ' ' && *p != '\t') p++;
            continue;
        }
        const char *word = p;
        p = word_end(p, end);
        if (p == word) return KN_OK; /* not the beginning of a statement: a declaration's parentheses and so on */
        size_t len = (size_t)(p - word);
        if (p < end && *p == ':') {
            KN_TRY(add_label(l, o, word, len));
            p++;
            continue;
        }
        semicolon = memchr(p, ';', (size_t)(end - p));
        const char *stop = semicolon ? semicolon : end;
        lint_statement(l, o, word, len, stop);
        l->open = !semicolon;
        l->open_branch = is_branch(word, len);
        if (l->open_branch) KN_TRY(see_targets(l, p, stop));
        p = stop;
    }
    return KN_OK;
}

static kn_status lint_output(lint *l) {
    kn_ex *ex = l->ex;
    bool inside = false;
    const char *p = ex->out.data;
    for (size_t i = 0; i < ex->n_lines; i++) {
        const char *nl = strchr(p, '\n'), *end = p;
        while (end < nl && !(end[0] == '/' && end[1] == '/')) end++;
        if (inside) KN_TRY(lint_line(l, &ex->lines[i], p, end));
        inside |= memchr(p, '{', (size_t)(end - p)) != NULL; /* the kernel's body has begun */
        p = nl + 1;
    }
    for (const ref *r = l->labels; r; r = r->next) {
        if (!r->sym->branched)
            add_finding(l, ex->file[r->origin->file].name, r->origin->line, "nothing branches to ", r->sym->text,
                        r->sym->len);
    }
    return KN_OK;
}

kn_status kn_ex_lint(kn_ex *ex) {
    lint l = {.ex = ex};
    kn_buf_init(&l.text, 8192);
    kn_status st = lint_trees(&l);
    if (st == KN_OK) st = lint_output(&l);
    if (st == KN_OK) st = kn_buf_status(&l.text);
    if (st == KN_OK && l.count) {
        st = kn_fail(KN_E_TEMPLATE, "%u finding%s:\n%s", l.count, l.count == 1 ? "" : "s", l.text.data);
    }
    kn_buf_free(&l.text);
    return st;
}

/* ---- leftovers ----------------------------------------------------------------------------------------------- */

/* Directives and interpolations that came out of texts, where nothing expands them any more. */
kn_status kn_ex_check_output(kn_ex *ex) {
    const char *left = strstr(ex->out.data, "${");
    if (left) return kn_ex_fail_at(ex, left, "\"${\" is left in the expanded text");
    for (const char *p = ex->out.data; (p = strchr(p, '#')); p++) {
        const char *q = p;
        while (q > ex->out.data && (q[-1] == ' ' || q[-1] == '\t')) q--;
        if (q == ex->out.data || q[-1] == '\n')
            return kn_ex_fail_at(ex, p, "a line of the expanded text begins with #");
    }
    return KN_OK;
}
