/* jit/expand: walks the tree with the parameters' values. Also the life of an expansion: memory, names, scopes, errors.
 */
#include "jit/expand_internal.h"

#include "base/alloc.h"

#include <string.h>

static kn_status run_block(kn_ex *ex, const kn_ex_block *block);

/* ---- memory and names ---------------------------------------------------------------------------------------- */

kn_status kn_ex_new(kn_ex *ex, void **out, size_t size) {
    if (size > KN_EX_MAX_ARENA - ex->arena_bytes) return kn_ex_fail(ex, "the expansion needs too much memory");
    ex->arena_bytes += size;
    *out = kn_arena_alloc(&ex->arena, size);
    return *out ? KN_OK : kn_fail(KN_E_NOMEM, "out of memory: template tree");
}

kn_status kn_ex_strndup(kn_ex *ex, const char *s, size_t n, const char **out) {
    char *copy = NULL;
    KN_TRY(kn_ex_new(ex, (void **)&copy, n + 1));
    memcpy(copy, s, n);
    *out = copy;
    return KN_OK;
}

kn_status kn_ex_intern(kn_ex *ex, const char *s, size_t n, kn_ex_sym **out) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < n; i++) hash = (hash ^ (unsigned char)s[i]) * 16777619u;
    kn_ex_sym **slot = &ex->table[hash % (sizeof ex->table / sizeof ex->table[0])];
    for (kn_ex_sym *y = *slot; y; y = y->chain) {
        if (y->hash == hash && y->len == n && memcmp(y->text, s, n) == 0) {
            *out = y;
            return KN_OK;
        }
    }
    kn_ex_sym *sym = NULL;
    KN_TRY(kn_ex_new(ex, (void **)&sym, sizeof *sym + n + 1));
    memcpy(sym->text, s, n);
    sym->len = (uint32_t)n;
    sym->hash = hash;
    sym->dtype =
        kn_ex_is_type(s, n) || (n == 4 && (!memcmp(s, "tf32", 4) || !memcmp(s, "e4m3", 4) || !memcmp(s, "e5m2", 4)));
    sym->chain = *slot;
    *out = *slot = sym;
    return KN_OK;
}

/* ---- errors -------------------------------------------------------------------------------------------------- */

kn_status kn_ex_fail(kn_ex *ex, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    kn_status st = kn_vfail(KN_E_TEMPLATE, fmt, ap);
    va_end(ap);
    if (ex->at_line == 0 || ex->n_files == 0)
        return kn_error_prefix(st, "%s: ", ex->n_files ? ex->file[ex->at_file].name : "template");
    uint32_t context = ex->scope ? kn_ex_context(ex, ex->scope) : 0;
    if (context && ex->loop_text.status == KN_OK)
        return kn_error_prefix(st, "%s:%u [%s]: ", ex->file[ex->at_file].name, ex->at_line,
                               ex->loop_text.data + context);
    return kn_error_prefix(st, "%s:%u: ", ex->file[ex->at_file].name, ex->at_line);
}

/* ---- scopes -------------------------------------------------------------------------------------------------- */

const kn_ex_var *kn_ex_lookup(const kn_ex *ex, const kn_ex_sym *sym) {
    for (const kn_ex_scope *s = ex->scope; s && s != &ex->global; s = s->up) {
        for (const kn_ex_var *v = s->vars; v; v = v->next) {
            if (v->sym == sym) return v;
        }
    }
    return sym->global;
}

uint32_t kn_ex_scope_id(kn_ex *ex, kn_ex_scope *scope) {
    if (!scope->id && scope != &ex->global) scope->id = ++ex->last_id;
    return scope->id;
}

/* A name may be declared once in a scope and in what lies around it, up to the macro: a macro knows nothing of the
 * template that uses it, so its own names may equal the template's. */
kn_status kn_ex_declare(kn_ex *ex, kn_ex_sym *sym, const kn_ex_val *val) {
    const kn_ex_var *old = NULL;
    for (const kn_ex_scope *s = ex->scope; s && !old; s = s->up) {
        if (s == &ex->global) {
            old = sym->global;
            break;
        }
        for (old = s->vars; old && old->sym != sym;) old = old->next;
    }
    if (old && !old->where) return kn_ex_fail(ex, "%s is predefined", sym->text);
    if (old) {
        return kn_ex_fail(ex, "%s is declared already, at %s:%u", sym->text, ex->file[old->where->file].name,
                          old->where->line);
    }
    if (sym == ex->smem_total || sym == ex->smem_align) return kn_ex_fail(ex, "%s is predefined", sym->text);
    if (sym->dtype) return kn_ex_fail(ex, "%s is a type: choose another name", sym->text);
    if (sym->choice) {
        return kn_ex_fail(ex, "%s is a choice of #param %s: choose another name", sym->text, sym->choice->sym->text);
    }
    kn_ex_var *var = NULL;
    KN_TRY(KN_EX_NEW(ex, &var));
    *var = (kn_ex_var){.sym = sym, .next = ex->scope->vars, .where = ex->at, .val = *val};
    ex->scope->vars = var;
    if (ex->scope == &ex->global) sym->global = var;
    return KN_OK;
}

/* ---- nodes --------------------------------------------------------------------------------------------------- */

static kn_status run_line(kn_ex *ex, const kn_ex_node *n) {
    if (n->blank) { /* runs of blank lines shrink to one: directives leave many */
        if (ex->last_blank) return KN_OK;
        KN_TRY(kn_ex_add_line(ex));
        ex->last_blank = true;
        return KN_OK;
    }
    if (n->label) {
        bool local = false;
        for (const kn_ex_scope *s = ex->scope; s && s != &ex->global && !local; s = s->up) {
            for (uint32_t i = 0; i < s->own->n_labels; i++) local |= s->own->label[i] == n->label;
        }
        if (!local && n->label->label) {
            return kn_ex_fail(ex, "label L@%s is defined already, at %s:%u", n->label->text,
                              ex->file[n->label->label->file].name, n->label->label->line);
        }
        if (!local) n->label->label = n;
    }
    KN_TRY(kn_ex_put_text(ex, n->text, &ex->out));
    return kn_ex_add_line(ex);
}

/* "BM = 100: it must be 64 to 256 in steps of 64" and its like, behind "parameter ". */
static kn_status fail_choice(kn_ex *ex, const kn_ex_node *n, const kn_ex_val *v) {
    kn_buf list;
    kn_buf_init(&list, 1024);
    for (const kn_ex_item *i = n->item; i; i = i->next) {
        kn_ex_val choice = {0};
        if (i != n->item) kn_buf_add(&list, ", ");
        if (i->sym) {
            kn_buf_add(&list, i->sym->text);
        } else if (kn_ex_eval(ex, i->expr, &choice) == KN_OK) {
            kn_buf_add_i64(&list, choice.i);
        }
    }
    kn_status st = v->kind == KN_EX_INT ? kn_ex_fail(ex, "parameter %s = %lld: it must be one of %s", n->sym->text,
                                                     (long long)v->i, list.data)
                                        : kn_ex_fail(ex, "parameter %s = %.*s: it must be one of %s", n->sym->text,
                                                     (int)v->len, v->text, list.data);
    kn_buf_free(&list);
    return st;
}

static kn_status check_choice(kn_ex *ex, const kn_ex_node *n, const kn_ex_val *v) {
    for (const kn_ex_item *i = n->item; i; i = i->next) {
        if (i->sym) {
            if (v->kind == KN_EX_TEXT && v->len == i->sym->len && memcmp(v->text, i->sym->text, v->len) == 0)
                return KN_OK;
        } else {
            int64_t choice = 0;
            KN_TRY(kn_ex_eval_int(ex, i->expr, "a choice", &choice));
            if (v->kind == KN_EX_INT && v->i == choice) return KN_OK;
        }
    }
    return fail_choice(ex, n, v);
}

static kn_status check_range(kn_ex *ex, const kn_ex_node *n, const kn_ex_val *v) {
    int64_t lo = 0, hi = 0, step = 1;
    KN_TRY(kn_ex_eval_int(ex, n->lo, "the lower bound", &lo));
    KN_TRY(kn_ex_eval_int(ex, n->hi, "the upper bound", &hi));
    if (n->step) KN_TRY(kn_ex_eval_int(ex, n->step, "the step", &step));
    if (step < 1) return kn_ex_fail(ex, "#param %s: step %lld is not positive", n->sym->text, (long long)step);
    if (v->kind != KN_EX_INT) {
        return kn_ex_fail(ex, "parameter %s = %.*s: it must be a number", n->sym->text,
                          v->kind == KN_EX_TEXT ? (int)v->len : 1, v->kind == KN_EX_TEXT ? v->text : "?");
    }
    if (v->i >= lo && v->i <= hi && ((uint64_t)v->i - (uint64_t)lo) % (uint64_t)step == 0) return KN_OK;
    if (step == 1)
        return kn_ex_fail(ex, "parameter %s = %lld: it must be %lld to %lld", n->sym->text, (long long)v->i,
                          (long long)lo, (long long)hi);
    return kn_ex_fail(ex, "parameter %s = %lld: it must be %lld to %lld in steps of %lld", n->sym->text,
                      (long long)v->i, (long long)lo, (long long)hi, (long long)step);
}

static kn_status run_param(kn_ex *ex, const kn_ex_node *n) {
    kn_ex_val v = {0};
    const kn_param *p = kn_params_find(ex->params, n->sym->text);
    if (p) {
        ex->taken[p - ex->params->item] = true;
        v = p->is_name ? (kn_ex_val){.kind = KN_EX_TEXT, .text = p->text, .len = (uint32_t)strlen(p->text)}
                       : (kn_ex_val){.kind = KN_EX_INT, .i = p->value};
    } else if (n->dflt) {
        KN_TRY(kn_ex_eval(ex, n->dflt, &v));
        if (v.kind != KN_EX_INT && v.kind != KN_EX_TEXT)
            return kn_ex_fail(ex, "#param %s: its default is neither a number nor a name", n->sym->text);
    } else {
        return kn_ex_fail(ex, "parameter %s is missing: it has no default", n->sym->text);
    }
    KN_TRY(n->is_set ? check_choice(ex, n, &v) : check_range(ex, n, &v));
    return kn_ex_declare(ex, n->sym, &v);
}

static kn_status run_assert(kn_ex *ex, const kn_ex_node *n) {
    int64_t holds = 0;
    kn_ex_val text;
    KN_TRY(kn_ex_eval_int(ex, n->expr, "an assertion", &holds));
    if (holds) return KN_OK;
    KN_TRY(kn_ex_eval_text(ex, n->text, &text));
    return kn_ex_fail(ex, "%.*s", (int)text.len, text.text);
}

static kn_status fail_steps(kn_ex *ex) {
    return kn_ex_fail(ex, "more than %d steps: a #for runs too often", KN_EX_MAX_STEPS);
}

static kn_status run_for(kn_ex *ex, const kn_ex_node *n) {
    int64_t lo = 0, hi = 0, step = 1;
    KN_TRY(kn_ex_eval_int(ex, n->lo, "the start of a #for", &lo));
    KN_TRY(kn_ex_eval_int(ex, n->hi, "the end of a #for", &hi));
    if (n->step) KN_TRY(kn_ex_eval_int(ex, n->step, "the step of a #for", &step));
    if (step == 0) return kn_ex_fail(ex, "#for: a step of 0");
    kn_ex_scope *outer = ex->scope;
    for (int64_t i = lo; step > 0 ? i < hi : i > hi;) {
        kn_ex_scope turn = {.up = outer, .own = &n->body, .loop = n->sym, .loop_value = i};
        kn_ex_val v = {.kind = KN_EX_INT, .i = i};
        ex->scope = &turn;
        ex->at = n;
        ex->at_file = n->file;
        ex->at_line = n->line;
        KN_TRY(kn_ex_declare(ex, n->sym, &v));
        KN_TRY(run_block(ex, &n->body));
        ex->scope = outer;
        if (++ex->steps > KN_EX_MAX_STEPS) return fail_steps(ex);
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    return KN_OK;
}

static kn_status run_if(kn_ex *ex, const kn_ex_node *n) {
    for (; n; n = n->other) {
        int64_t yes = 1;
        ex->at = n;
        ex->at_line = n->line;
        if (n->expr) KN_TRY(kn_ex_eval_int(ex, n->expr, "the condition of #if", &yes));
        if (yes) return run_block(ex, &n->body);
    }
    return KN_OK;
}

static kn_status run_macro(kn_ex *ex, const kn_ex_node *n) {
    if (n->sym->macro) {
        return kn_ex_fail(ex, "macro %s is defined already, at %s:%u", n->sym->text,
                          ex->file[n->sym->macro->node->file].name, n->sym->macro->node->line);
    }
    KN_TRY(KN_EX_NEW(ex, &n->sym->macro));
    n->sym->macro->node = n;
    return KN_OK;
}

static kn_status run_use(kn_ex *ex, const kn_ex_node *n) {
    kn_ex_macro *m = n->sym->macro;
    if (!m) return kn_ex_fail(ex, "there is no macro %s", n->sym->text);
    if (m->active) return kn_ex_fail(ex, "macro %s uses itself", n->sym->text);
    if (ex->uses >= KN_EX_MAX_USES) return kn_ex_fail(ex, "macros nested too deeply");
    if (n->n_items != m->node->n_items) {
        return kn_ex_fail(ex, "macro %s takes %u argument%s, not %u", n->sym->text, m->node->n_items,
                          m->node->n_items == 1 ? "" : "s", n->n_items);
    }
    kn_ex_scope *outer = ex->scope;
    kn_ex_scope inner = {.own = &m->node->body, .caller = outer, .use = n};
    const kn_ex_item *name = m->node->item;
    for (const kn_ex_item *arg = n->item; arg; arg = arg->next, name = name->next) {
        kn_ex_val v;
        KN_TRY(kn_ex_eval(ex, arg->expr, &v));
        ex->scope = &inner;
        KN_TRY(kn_ex_declare(ex, name->sym, &v));
        ex->scope = outer;
    }
    ex->scope = &inner;
    m->active = true;
    ex->uses++;
    KN_TRY(run_block(ex, &m->node->body));
    ex->uses--;
    m->active = false;
    ex->scope = outer;
    return KN_OK;
}

static kn_status run_include(kn_ex *ex, const kn_ex_node *n) {
    kn_ex_val v;
    const char *name = NULL;
    uint32_t file = 0;
    bool fresh = false;
    KN_TRY(kn_ex_eval_text(ex, n->text, &v));
    KN_TRY(kn_ex_strndup(ex, v.text, v.len, &name)); /* a text value need not end in NUL */
    KN_TRY(kn_ex_load(ex, name, &file, &fresh));
    return fresh ? run_block(ex, &ex->file[file].block) : KN_OK; /* a second #include of a file does nothing */
}

static kn_status run_let(kn_ex *ex, const kn_ex_node *n) {
    kn_ex_val v;
    KN_TRY(kn_ex_eval(ex, n->expr, &v));
    return kn_ex_declare(ex, n->sym, &v);
}

static kn_status run_node(kn_ex *ex, const kn_ex_node *n) {
    switch (n->what) {
    case KN_EX_LINE: return run_line(ex, n);
    case KN_EX_PARAM: return run_param(ex, n);
    case KN_EX_LET: return run_let(ex, n);
    case KN_EX_ASSERT: return run_assert(ex, n);
    case KN_EX_REGS_DECL: return kn_ex_run_regs(ex, n);
    case KN_EX_SMEM: return kn_ex_run_smem(ex, n);
    case KN_EX_FOR: return run_for(ex, n);
    case KN_EX_IF: return run_if(ex, n);
    case KN_EX_MACRO: return run_macro(ex, n);
    case KN_EX_USE: return run_use(ex, n);
    case KN_EX_INCLUDE: return run_include(ex, n);
    default: return KN_OK; /* KN_EX_EXAMPLE */
    }
}

/* Recursion is bounded: KN_EX_MAX_NEST blocks in each of KN_EX_MAX_USES macros. */
static kn_status run_block(kn_ex *ex, const kn_ex_block *block) {
    for (const kn_ex_node *n = block->first; n; n = n->next) {
        ex->at = n;
        ex->at_file = n->file;
        ex->at_line = n->line;
        if (++ex->steps > KN_EX_MAX_STEPS) return fail_steps(ex);
        KN_TRY(run_node(ex, n));
    }
    return KN_OK;
}

/* ---- the whole ----------------------------------------------------------------------------------------------- */

kn_status kn_ex_load(kn_ex *ex, const char *name, uint32_t *file, bool *fresh) {
    *fresh = false;
    for (*file = 0; *file < ex->n_files; ++*file) {
        if (strcmp(ex->file[*file].name, name) == 0) return KN_OK;
    }
    if (ex->n_files == KN_EX_MAX_FILES) return kn_ex_fail(ex, "more than %d files", KN_EX_MAX_FILES);
    kn_ex_file *f = &ex->file[*file];
    kn_status st = kn_ex_check_name(name);
    if (st == KN_OK) st = ex->source->load(ex->source->user, name, &f->text, &f->len, &f->owned);
    if (st != KN_OK) {
        if (ex->n_files == 0 || st == KN_E_NOMEM) return st;
        return kn_error_prefix(KN_E_TEMPLATE, "%s:%u: ", ex->file[ex->at_file].name, ex->at_line);
    }
    memcpy(f->name, name, strlen(name) + 1); /* kn_ex_check_name bounds it */
    ex->n_files++;
    *fresh = true;
    const kn_ex_node *at = ex->at;
    uint32_t at_file = ex->at_file, at_line = ex->at_line;
    KN_TRY(kn_ex_parse_file(ex, *file));
    ex->at = at;
    ex->at_file = at_file;
    ex->at_line = at_line;
    return KN_OK;
}

static kn_status predefine(kn_ex *ex, const char *name, const kn_ex_val *v) {
    kn_ex_sym *sym = NULL;
    KN_TRY(kn_ex_intern(ex, name, strlen(name), &sym));
    return kn_ex_declare(ex, sym, v);
}

kn_status kn_ex_begin(kn_ex *ex, const kn_ex_source *source, const kn_params *params, const char *target) {
    static const kn_params none;
    memset(ex, 0, sizeof *ex);
    ex->source = source;
    ex->params = params ? params : &none;
    ex->scope = &ex->global;
    kn_buf_init(&ex->out, KN_EX_MAX_OUTPUT);
    kn_buf_init(&ex->loop_text, KN_EX_MAX_OUTPUT);
    kn_buf_add_char(&ex->loop_text, '\0');
    KN_TRY(ex->params->status);
    KN_TRY(kn_ex_intern(ex, "smem_total", 10, &ex->smem_total));
    KN_TRY(kn_ex_intern(ex, "smem_align", 10, &ex->smem_align));
    ex->smem_max_align = 16;
    ex->last_blank = true; /* no blank line at the top */
    if (!target) return KN_OK;
    KN_TRY(kn_target_by_name(target, &ex->target));
    const kn_target *t = ex->target;
    /* Every target's name stands for itself, so that a template can compare. */
    for (int i = 0; i < kn_target_count(); i++) {
        const char *s = kn_target_at(i)->name;
        kn_ex_sym *sym = NULL;
        KN_TRY(kn_ex_intern(ex, s, strlen(s), &sym));
        sym->dtype = true;
    }
    KN_TRY(
        predefine(ex, "target", &(kn_ex_val){.kind = KN_EX_TEXT, .text = t->name, .len = (uint32_t)strlen(t->name)}));
    KN_TRY(predefine(ex, "target_ptx", &(kn_ex_val){.kind = KN_EX_INT, .i = t->min_ptx}));
    return predefine(ex, "target_cc", &(kn_ex_val){.kind = KN_EX_INT, .i = t->cc});
}

void kn_ex_end(kn_ex *ex) {
    for (uint32_t i = 0; i < ex->n_files; i++) kn_free(ex->file[i].owned);
    kn_buf_free(&ex->out);
    kn_buf_free(&ex->loop_text);
    kn_free(ex->lines);
    kn_arena_free(&ex->arena);
}

/* What can only be known at the end: parameters nobody declared, labels nobody defined. */
static kn_status check_whole(kn_ex *ex) {
    for (int i = 0; i < ex->params->count; i++) {
        if (ex->taken[i]) continue;
        ex->at_file = ex->at_line = 0;
        return kn_ex_fail(ex, "parameter %s is not declared by this template", ex->params->item[i].name);
    }
    for (size_t h = 0; h < sizeof ex->table / sizeof ex->table[0]; h++) {
        for (const kn_ex_sym *s = ex->table[h]; s; s = s->chain) {
            if (!s->bra || s->label) continue;
            ex->at_file = s->bra->file;
            ex->at_line = s->bra->line;
            return kn_ex_fail(ex, "label L@%s is defined nowhere", s->text);
        }
    }
    return KN_OK;
}

static kn_status hand_over(kn_ex *ex, kn_expansion *out) {
    KN_TRY(KN_NEW(&out->files, ex->n_files, "template names"));
    for (uint32_t i = 0; i < ex->n_files; i++) memcpy(out->files[i], ex->file[i].name, sizeof out->files[i]);
    out->n_files = ex->n_files;
    KN_TRY(kn_buf_status(&ex->loop_text));
    KN_TRY(kn_buf_status(&ex->out));
    out->ptx = kn_buf_take(&ex->out, &out->ptx_len);
    out->loop_text = kn_buf_take(&ex->loop_text, NULL);
    if (!out->ptx || !out->loop_text) return kn_fail(KN_E_NOMEM, "out of memory: expanded text");
    out->lines = ex->lines;
    out->n_lines = (uint32_t)ex->n_lines;
    out->meta.ptx_lines = out->n_lines;
    ex->lines = NULL;
    return KN_OK;
}

kn_status kn_ex_expand(const kn_ex_source *source, const char *name, const kn_params *params, const char *target,
                       uint32_t flags, kn_expansion *out) {
    kn_ex *ex = NULL;
    uint32_t file = 0;
    bool fresh = false;
    memset(out, 0, sizeof *out);
    KN_TRY(KN_NEW(&ex, 1, "expansion"));
    kn_status st = kn_ex_begin(ex, source, params, target);
    if (st == KN_OK) st = kn_ex_load(ex, name, &file, &fresh);
    if (st == KN_OK) st = run_block(ex, &ex->file[0].block);
    ex->scope = NULL; /* errors from here on name lines of their own */
    if (st == KN_OK) st = check_whole(ex);
    if (st == KN_OK) st = kn_ex_check_output(ex);
    if (st == KN_OK) st = kn_ex_read_meta(ex, &out->meta);
    if (st == KN_OK && (flags & KN_EXPAND_LINT)) st = kn_ex_lint(ex);
    if (st == KN_OK && (flags & KN_EXPAND_LINEINFO)) st = kn_ex_add_lineinfo(ex);
    if (st == KN_OK) st = hand_over(ex, out);
    kn_ex_end(ex);
    kn_free(ex);
    if (st != KN_OK) kn_expansion_free(out);
    return st;
}

kn_status kn_expand(const char *name, const kn_params *params, const char *target, uint32_t flags, kn_expansion *out) {
    memset(out, 0, sizeof *out);
    KN_REQUIRE(target, KN_E_ARG, "no target architecture was named for template %s", name);
    return kn_ex_expand(&kn_ex_default_source, name, params, target, flags, out);
}

static kn_status load_replaced(void *user, const char *name, const char **text, size_t *len, char **owned) {
    const kn_template_text *instead = user;
    *owned = NULL;
    if (strcmp(name, instead->name) != 0) return kn_template_source(name, text, len, owned);
    *text = instead->text;
    *len = instead->len;
    return KN_OK;
}

kn_status kn_expand_replacing(const char *name, const kn_params *params, const char *target, uint32_t flags,
                              const kn_template_text *instead, kn_expansion *out) {
    kn_template_text copy = *instead;
    const kn_ex_source source = {.load = load_replaced, .user = &copy};
    memset(out, 0, sizeof *out);
    KN_REQUIRE(target, KN_E_ARG, "no target architecture was named for template %s", name);
    return kn_ex_expand(&source, name, params, target, flags, out);
}

void kn_expansion_free(kn_expansion *x) {
    kn_free(x->ptx);
    kn_free(x->lines);
    kn_free(x->files);
    kn_free(x->loop_text);
    memset(x, 0, sizeof *x);
}
