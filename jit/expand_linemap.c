/* jit/expand: which template line each output line comes from. The loop text of a line is innermost first: the turns of
 * the #for around it, then the #use that brought it in with the loops around that:
 *   lib/wgmma.ptxi:12 [i=0, used at gemm_sm90.ptxt:141 ks=3] */
#include "jit/expand_internal.h"

#include "base/alloc.h"

#include <string.h>

/* The loops of one frame, outermost first: recursion is as deep as the #for blocks nest. */
static void write_loops(kn_buf *b, const kn_ex_scope *s, size_t start) {
    if (!s || !s->loop) return;
    write_loops(b, s->up, start);
    if (b->len > start) kn_buf_add_char(b, ' ');
    kn_buf_add_n(b, s->loop->text, s->loop->len);
    kn_buf_add_char(b, '=');
    kn_buf_add_i64(b, s->loop_value);
}

uint32_t kn_ex_context(kn_ex *ex, kn_ex_scope *scope) {
    if (!scope || scope == &ex->global) return 0;
    if (scope->context) return scope->context;
    kn_ex_scope *root = scope; /* of the frame: the macro's scope, or the top level */
    while (root->up) root = root->up;
    uint32_t outer = root->caller ? kn_ex_context(ex, root->caller) : 0;
    kn_buf *b = &ex->loop_text;
    size_t start = b->len;
    write_loops(b, scope, start);
    if (root->use) {
        kn_buf_add(b, b->len > start ? ", used at " : "used at ");
        kn_buf_add(b, ex->file[root->use->file].name);
        kn_buf_add_char(b, ':');
        kn_buf_add_u64(b, root->use->line);
        if (outer && b->status == KN_OK) {
            char text[512]; /* a copy: the buffer may move while it grows */
            size_t n = 0;
            while (n < sizeof text - 1 && b->data[outer + n]) n++;
            text[0] = ' ';
            memcpy(text + 1, b->data + outer, n);
            kn_buf_add_n(b, text, n + 1);
        }
    }
    kn_buf_add_char(b, '\0');
    if (b->status != KN_OK) return 0;
    return scope->context = (uint32_t)start;
}

static kn_status push_origin(kn_ex *ex, kn_line_origin o) {
    if (ex->n_lines == ex->lines_room) {
        size_t room = ex->lines_room ? ex->lines_room * 2 : 1024;
        kn_line_origin *lines = kn_realloc(ex->lines, room * sizeof *lines);
        if (!lines) return kn_fail(KN_E_NOMEM, "out of memory: %zu lines of PTX", room);
        ex->lines = lines;
        ex->lines_room = room;
    }
    ex->lines[ex->n_lines++] = o;
    return KN_OK;
}

kn_status kn_ex_add_line(kn_ex *ex) {
    kn_buf_add_char(&ex->out, '\n');
    ex->last_blank = false;
    if (ex->out.status == KN_E_ARG) return kn_ex_fail(ex, "more than %d bytes of PTX", KN_EX_MAX_OUTPUT);
    KN_TRY(kn_buf_status(&ex->out));
    kn_line_origin o = {.file = ex->at->file, .line = ex->at->line, .loops = kn_ex_context(ex, ex->scope)};
    if (ex->loop_text.status == KN_E_ARG) return kn_ex_fail(ex, "more than %d bytes of line map", KN_EX_MAX_OUTPUT);
    KN_TRY(kn_buf_status(&ex->loop_text));
    return push_origin(ex, o);
}

/* ---- .file and .loc ------------------------------------------------------------------------------------------ */

/* [*from, *to) without the space around it and without its comment. */
static void trim(const char **from, const char **to) {
    for (const char *p = *from; p + 1 < *to; p++) {
        if (p[0] == '/' && p[1] == '/') {
            *to = p;
            break;
        }
    }
    while (*from < *to && (**from == ' ' || **from == '\t')) ++*from;
    while (*to > *from && ((*to)[-1] == ' ' || (*to)[-1] == '\t')) --*to;
}

kn_status kn_ex_add_lineinfo(kn_ex *ex) {
    kn_buf old = ex->out;
    kn_line_origin *from = ex->lines;
    size_t n = ex->n_lines;
    kn_buf_init(&ex->out, KN_EX_MAX_OUTPUT);
    ex->lines = NULL;
    ex->n_lines = ex->lines_room = 0;
    kn_status st = KN_OK;
    bool fresh = false, inside = false; /* a statement may begin here; behind the entry's '{' */
    const char *p = old.data;
    for (size_t i = 0; i < n && st == KN_OK; i++) {
        const char *end = strchr(p, '\n'), *a = p, *b = end;
        trim(&a, &b);
        bool statement = a < b && (kn_ex_is_word_start(*a) || *a == '@');
        if (inside && fresh && statement) {
            kn_buf_addf(&ex->out, "    .loc %u %u 0\n", from[i].file + 1, from[i].line);
            st = push_origin(ex, from[i]);
        }
        if (b - a == 1 && *a == '{') inside = true;
        if (a < b) fresh = b[-1] == ';' || b[-1] == ':' || (b - a == 1 && (*a == '{' || *a == '}'));
        kn_buf_add_n(&ex->out, p, (size_t)(end - p) + 1);
        if (st == KN_OK) st = push_origin(ex, from[i]);
        p = end + 1;
    }
    for (uint32_t f = 0; f < ex->n_files && st == KN_OK; f++) {
        kn_buf_addf(&ex->out, ".file %u \"%s\"\n", f + 1, ex->file[f].name);
        st = push_origin(ex, (kn_line_origin){.file = f, .line = 1});
    }
    kn_free(from);
    kn_buf_free(&old);
    return st == KN_OK ? kn_buf_status(&ex->out) : st;
}

/* ---- reading the map ----------------------------------------------------------------------------------------- */

static void write_origin(const kn_expansion *x, uint32_t i, kn_buf *out) {
    const kn_line_origin *o = &x->lines[i];
    kn_buf_addf(out, "%s:%u", x->files[o->file], o->line);
    if (o->loops) kn_buf_addf(out, " [%s]", x->loop_text + o->loops);
}

void kn_expansion_origin(const kn_expansion *x, uint32_t ptx_line, char *out, size_t cap) {
    if (cap == 0) return;
    kn_buf b;
    kn_buf_init(&b, 4096);
    if (x && ptx_line >= 1 && ptx_line <= x->n_lines) {
        write_origin(x, ptx_line - 1, &b);
    } else {
        kn_buf_addf(&b, "PTX line %u", ptx_line);
    }
    size_t n = b.len < cap - 1 ? b.len : cap - 1;
    memcpy(out, b.data, n);
    out[n] = '\0';
    kn_buf_free(&b);
}

kn_status kn_expansion_write_map(const kn_expansion *x, kn_buf *out) {
    for (uint32_t i = 0; i < x->n_lines; i++) {
        if (i && memcmp(&x->lines[i], &x->lines[i - 1], sizeof x->lines[i]) == 0) continue;
        kn_buf_addf(out, "%u ", i + 1);
        write_origin(x, i, out);
        kn_buf_add_char(out, '\n');
    }
    return kn_buf_status(out);
}
