/* jit/expand: launch metadata, read back from the finished PTX, so that the text is the single source for the launch.
 */
#include "jit/expand_internal.h"

#include <string.h>

/* A place in the output. Tokens are words ([A-Za-z0-9_$.%]), or single characters; comments are space. */
typedef struct scan {
    kn_ex *ex;
    const char *p, *end;
    const char *at; /* the current token, len 0 at the end */
    size_t len;
} scan;

static bool is_token_char(char c) {
    return kn_ex_is_word(c) || c == '$' || c == '.' || c == '%';
}

static void next(scan *s) {
    while (s->p < s->end) {
        if (*s->p == ' ' || *s->p == '\t' || *s->p == '\n') {
            s->p++;
        } else if (s->end - s->p >= 2 && s->p[0] == '/' && s->p[1] == '/') {
            const char *nl = memchr(s->p, '\n', (size_t)(s->end - s->p));
            s->p = nl ? nl : s->end;
        } else {
            break;
        }
    }
    s->at = s->p;
    if (s->p < s->end && !is_token_char(*s->p)) {
        s->p++;
    } else {
        while (s->p < s->end && is_token_char(*s->p)) s->p++;
    }
    s->len = (size_t)(s->p - s->at);
}

static bool is(const scan *s, const char *text) {
    return s->len == strlen(text) && memcmp(s->at, text, s->len) == 0;
}

kn_status kn_ex_fail_at(kn_ex *ex, const char *at, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    kn_status st = kn_vfail(KN_E_TEMPLATE, fmt, ap);
    va_end(ap);
    size_t line = 0;
    for (const char *p = ex->out.data; p < at && (p = memchr(p, '\n', (size_t)(at - p))); p++) line++;
    if (line >= ex->n_lines) return kn_error_prefix(st, "%s: ", ex->file[0].name);
    const kn_line_origin *o = &ex->lines[line];
    if (o->loops)
        return kn_error_prefix(st, "%s:%u [%s]: ", ex->file[o->file].name, o->line, ex->loop_text.data + o->loops);
    return kn_error_prefix(st, "%s:%u: ", ex->file[o->file].name, o->line);
}

static kn_status wanted(const scan *s, const char *what) {
    int n = s->len > 40 ? 40 : (int)s->len;
    return kn_ex_fail_at(s->ex, s->at, "expected %s, not \"%.*s\"", what, n, s->at);
}

/* A decimal number up to 2^31. */
static kn_status number(scan *s, uint32_t *out) {
    uint64_t v = 0;
    size_t i = 0;
    for (; i < s->len && s->at[i] >= '0' && s->at[i] <= '9' && v < 1u << 31; i++)
        v = v * 10 + (uint64_t)(s->at[i] - '0');
    if (i == 0 || i < s->len || v > 1u << 31) return wanted(s, "a whole number");
    *out = (uint32_t)v;
    next(s);
    return KN_OK;
}

/* "x", "x, y" or "x, y, z" into out[3], missing ones 1. */
static kn_status triple(scan *s, uint32_t out[3]) {
    out[0] = out[1] = out[2] = 1;
    for (int i = 0; i < 3; i++) {
        KN_TRY(number(s, &out[i]));
        if (!is(s, ",")) break;
        next(s);
    }
    return KN_OK;
}

/* Bytes of ".u64" and its like; 0: no such type. */
static uint32_t type_bytes(const scan *s) {
    if (s->len < 3 || s->at[0] != '.' || !strchr("busf", s->at[1])) return 0;
    static const struct {
        const char *digits;
        uint32_t bytes;
    } size[] = {{"8", 1}, {"16", 2}, {"32", 4}, {"64", 8}, {"128", 16}};
    for (size_t i = 0; i < sizeof size / sizeof size[0]; i++) {
        if (strlen(size[i].digits) == s->len - 2 && memcmp(size[i].digits, s->at + 2, s->len - 2) == 0)
            return size[i].bytes;
    }
    return 0;
}

/* What follows .param or .shared: attributes, type, name, dimensions. */
typedef struct variable {
    const char *name;
    size_t name_len;
    uint32_t align, bytes;
    bool sized; /* false: "name[]" */
} variable;

static kn_status dimensions(scan *s, uint32_t element, variable *v) {
    uint64_t bytes = element;
    v->name = s->at;
    v->name_len = s->len;
    v->sized = true;
    next(s);
    while (is(s, "[")) {
        uint32_t n = 0;
        next(s);
        if (is(s, "]")) {
            v->sized = false;
        } else {
            KN_TRY(number(s, &n));
            bytes *= n;
        }
        if (bytes > 1u << 30) return kn_ex_fail_at(s->ex, v->name, "%.*s is too large", (int)v->name_len, v->name);
        if (!is(s, "]")) return wanted(s, "\"]\"");
        next(s);
    }
    v->bytes = (uint32_t)bytes;
    return KN_OK;
}

/* Attributes and type: *element is the size of one element. */
static kn_status attributes(scan *s, variable *v, uint32_t *element) {
    bool pointer = false;
    uint32_t vector = 1, align = 0;
    *element = 0;
    for (; s->len && s->at[0] == '.'; next(s)) {
        uint32_t bytes = type_bytes(s);
        if (bytes) {
            *element = bytes;
        } else if (is(s, ".ptr")) {
            pointer = true;
        } else if (is(s, ".v2") || is(s, ".v4")) {
            vector = (uint32_t)(s->at[2] - '0');
        } else if (is(s, ".align")) {
            next(s);
            uint32_t n = 0;
            const char *at = s->at;
            KN_TRY(number(s, &n));
            if (n == 0 || (n & (n - 1))) return kn_ex_fail_at(s->ex, at, ".align %u is not a power of two", n);
            if (!pointer) align = n; /* behind .ptr it is about what the pointer points to */
            s->p = s->at;            /* the loop steps again */
        } else if (!is(s, ".global") && !is(s, ".shared") && !is(s, ".const") && !is(s, ".local")) {
            return wanted(s, "a type or .align");
        }
    }
    if (!*element) return wanted(s, "a type such as .u64");
    *element *= vector;
    v->align = align ? align : *element;
    return KN_OK;
}

static kn_status read_param(scan *s, kn_kernel_meta *meta, uint32_t *offset) {
    variable v;
    uint32_t element = 0;
    if (!is(s, ".param")) return wanted(s, ".param");
    const char *at = s->at;
    next(s);
    KN_TRY(attributes(s, &v, &element));
    KN_TRY(dimensions(s, element, &v));
    if (v.name_len >= KN_NAME_CAP)
        return kn_ex_fail_at(s->ex, at, "argument %.*s: a name has at most %d letters", (int)v.name_len, v.name,
                             KN_NAME_CAP - 1);
    if (!v.sized || v.bytes == 0) return kn_ex_fail_at(s->ex, at, "argument %.*s has no size", (int)v.name_len, v.name);
    if (meta->n_args == KN_MAX_KERNEL_ARGS)
        return kn_ex_fail_at(s->ex, at, "more than %d arguments", KN_MAX_KERNEL_ARGS);
    kn_kernel_arg *a = &meta->arg[meta->n_args++];
    memcpy(a->name, v.name, v.name_len);
    a->align = v.align;
    a->size = v.bytes;
    a->offset = (*offset + v.align - 1) / v.align * v.align;
    *offset = a->offset + a->size;
    if (*offset > 32764) return kn_ex_fail_at(s->ex, at, "the arguments need more than 32764 bytes");
    return KN_OK;
}

/* From behind ".entry" to the '{' of the body. */
static kn_status read_entry(scan *s, kn_kernel_meta *meta) {
    uint32_t offset = 0;
    if (s->len == 0 || s->len >= sizeof meta->entry) return wanted(s, "a kernel name of at most 159 letters");
    memcpy(meta->entry, s->at, s->len);
    next(s);
    if (is(s, "(")) {
        next(s);
        while (!is(s, ")")) {
            KN_TRY(read_param(s, meta, &offset));
            if (!is(s, ",") && !is(s, ")")) return wanted(s, "\",\" or \")\"");
            if (is(s, ",")) next(s);
        }
        next(s);
    }
    bool required = false;
    while (!is(s, "{")) {
        if (s->len == 0) return kn_ex_fail_at(s->ex, s->ex->out.data, "the kernel %s has no body", meta->entry);
        bool reqntid = is(s, ".reqntid"), maxntid = is(s, ".maxntid"), cluster = is(s, ".reqnctapercluster");
        next(s);
        if (cluster) KN_TRY(triple(s, meta->cluster));
        uint32_t threads[3];
        if (reqntid || maxntid) KN_TRY(triple(s, threads));
        if (reqntid || (maxntid && !required)) memcpy(meta->threads, threads, sizeof threads);
        required |= reqntid;
    }
    if (!meta->threads[0]) return kn_ex_fail_at(s->ex, s->at, "the kernel %s has no .reqntid", meta->entry);
    return KN_OK;
}

static kn_status read_version(scan *s, kn_kernel_meta *meta) {
    const char *dot = memchr(s->at, '.', s->len);
    bool good = dot && dot > s->at && dot == s->at + s->len - 2 && dot - s->at <= 2;
    uint32_t v = 0;
    for (size_t i = 0; good && i < s->len; i++) {
        if (s->at + i == dot) continue;
        good = s->at[i] >= '0' && s->at[i] <= '9';
        v = v * 10 + (uint32_t)(s->at[i] - '0');
    }
    if (!good) return wanted(s, "a version such as 8.1");
    meta->ptx_version = v;
    next(s);
    return KN_OK;
}

static kn_status read_header(scan *s, kn_kernel_meta *meta) {
    for (next(s); s->len; next(s)) {
        if (is(s, ".version")) {
            next(s);
            KN_TRY(read_version(s, meta));
            s->p = s->at;
        } else if (is(s, ".target")) {
            next(s);
            if (s->len == 0 || s->len >= sizeof meta->target) return wanted(s, "a target such as sm_90a");
            memcpy(meta->target, s->at, s->len);
        } else if (is(s, ".entry")) {
            if (!meta->ptx_version || !meta->target[0])
                return kn_ex_fail_at(s->ex, s->at, "the module lacks .version or .target before its kernel");
            if (strcmp(meta->target, s->ex->target->name) != 0)
                return kn_ex_fail_at(s->ex, s->at, ".target is %s, but the kernel is asked for on %s", meta->target,
                                     s->ex->target->name);
            next(s);
            return read_entry(s, meta);
        }
    }
    return kn_ex_fail_at(s->ex, s->ex->out.data, "the expanded text has no .entry");
}

/* Is the n bytes' word at p neither inside a longer word nor in a comment? */
static bool is_alone(const kn_ex *ex, const char *p, size_t n) {
    if ((p > ex->out.data && is_token_char(p[-1])) || is_token_char(p[n])) return false;
    const char *line = p;
    while (line > ex->out.data && line[-1] != '\n') line--;
    for (; line < p; line++) {
        if (line[0] == '/' && line[1] == '/') return false;
    }
    return true;
}

/* The next place of `word`, NULL if there is none. */
static const char *find_word(const kn_ex *ex, const char *p, const char *word) {
    size_t n = strlen(word);
    for (; (p = strstr(p, word)); p += n) {
        if (is_alone(ex, p, n)) return p;
    }
    return NULL;
}

/* Does that word stand before p? */
static bool follows(const kn_ex *ex, const char *p, const char *word) {
    size_t n = strlen(word);
    while (p > ex->out.data && (p[-1] == ' ' || p[-1] == '\t')) p--;
    return (size_t)(p - ex->out.data) >= n && memcmp(p - n, word, n) == 0;
}

/* The variables of the .shared at p. */
static kn_status add_shared(kn_ex *ex, const char *p, uint64_t *total) {
    scan s = {.ex = ex, .p = p + 7, .end = ex->out.data + ex->out.len};
    variable v;
    uint32_t element = 0;
    next(&s);
    KN_TRY(attributes(&s, &v, &element));
    for (;; next(&s)) {
        KN_TRY(dimensions(&s, element, &v));
        if (!v.sized) return kn_ex_fail_at(ex, p, "a .shared variable without a size must be .extern");
        *total = (*total + v.align - 1) / v.align * v.align + v.bytes;
        if (*total > 1u << 24) return kn_ex_fail_at(ex, p, "more than 2^24 bytes of static shared memory");
        if (!is(&s, ",")) break;
    }
    return is(&s, ";") ? KN_OK : wanted(&s, "\";\"");
}

/* The launch gives the size of .extern ones; behind .ptr the word is about a pointer. */
static kn_status read_shared(kn_ex *ex, kn_kernel_meta *meta) {
    uint64_t total = 0;
    const char *end = ex->out.data + ex->out.len;
    for (const char *p = ex->out.data; (p = memchr(p, '.', (size_t)(end - p))); p++) {
        if (end - p < 8 || memcmp(p, ".shared", 7) != 0 || !is_alone(ex, p, 7)) continue;
        if (!follows(ex, p, ".extern") && !follows(ex, p, ".ptr")) KN_TRY(add_shared(ex, p, &total));
    }
    meta->smem_static = (uint32_t)total;
    return KN_OK;
}

kn_status kn_ex_read_meta(kn_ex *ex, kn_kernel_meta *meta) {
    scan s = {.ex = ex, .p = ex->out.data, .end = ex->out.data + ex->out.len};
    memset(meta, 0, sizeof *meta);
    meta->cluster[0] = meta->cluster[1] = meta->cluster[2] = 1;
    KN_TRY(read_header(&s, meta));
    const char *second = find_word(ex, s.p, ".entry");
    if (second) return kn_ex_fail_at(ex, second, "a template makes one kernel: this is its second .entry");
    KN_TRY(read_shared(ex, meta));
    meta->smem_dynamic = (uint32_t)ex->smem_bytes;
    meta->grid_dependency = find_word(ex, s.p, "griddepcontrol.wait") != NULL;
    return KN_OK;
}
