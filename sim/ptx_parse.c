/* Module level of PTX: version, target, variables, kernels with their directives. */
#include "sim/ptx_parse.h"

#include "base/alloc.h"

static kn_status version(kn_ptx *p) {
    uint64_t major, minor;
    kn_ptx_skip(p);
    const char *dot = p->at;
    while (dot < p->end && *dot != '.' && *dot != '\n') dot++;
    const char *end = p->end;
    p->end = dot; /* "8.1" is two integers here, no fraction */
    kn_status st = kn_ptx_count(p, 99, ".version", &major);
    p->end = end;
    KN_TRY(st);
    KN_TRY(kn_ptx_expect(p, '.'));
    KN_TRY(kn_ptx_count(p, 9, ".version", &minor));
    p->module->ptx_version = (uint32_t)(major * 10 + minor);
    return KN_OK;
}

static kn_status target(kn_ptx *p) {
    const char *text;
    uint32_t len;
    do {
        if (!kn_ptx_word(p, false, &text, &len)) return kn_ptx_error(p, ".target needs a name");
        if (len > 3 && memcmp(text, "sm_", 3) == 0 && len < sizeof p->module->target) {
            memcpy(p->module->target, text, len);
            p->module->target[len] = 0;
        }
    } while (kn_ptx_take(p, ','));
    return KN_OK;
}

/* "128, 1, 1": one to three numbers. */
static kn_status extents(kn_ptx *p, const char *what, uint32_t out[3]) {
    out[0] = out[1] = out[2] = 1;
    int k = 0;
    do {
        uint64_t v;
        if (k == 3) return kn_ptx_error(p, "%s has at most three numbers", what);
        KN_TRY(kn_ptx_count(p, 1 << 20, what, &v));
        if (v == 0) return kn_ptx_error(p, "%s must be positive", what);
        out[k++] = (uint32_t)v;
    } while (kn_ptx_take(p, ','));
    return KN_OK;
}

static kn_status performance(kn_ptx *p, const char *text, uint32_t len) {
    kn_entry *e = p->entry;
    uint32_t ignored[3];
    if (kn_ptx_word_is(text, len, "reqntid")) return extents(p, ".reqntid", e->reqntid);
    if (kn_ptx_word_is(text, len, "maxntid")) return extents(p, ".maxntid", e->maxntid);
    if (kn_ptx_word_is(text, len, "reqnctapercluster")) return extents(p, ".reqnctapercluster", e->cluster);
    if (kn_ptx_word_is(text, len, "maxclusterrank") || kn_ptx_word_is(text, len, "maxnreg") ||
        kn_ptx_word_is(text, len, "minnctapersm"))
        return extents(p, "a performance directive", ignored);
    if (kn_ptx_word_is(text, len, "explicitcluster") || kn_ptx_word_is(text, len, "noreturn")) return KN_OK;
    return kn_ptx_error(p, "unknown directive .%.*s of a kernel", (int)len, text);
}

static kn_status entry(kn_ptx *p) {
    const char *text;
    uint32_t len;
    kn_sim_module *m = p->module;
    KN_TRY(kn_ptx_grow((void **)&m->entry, &p->room_entries, m->n_entries, sizeof *m->entry, "kernels"));
    kn_entry *e = p->entry = &m->entry[m->n_entries++];
    memset(e, 0, sizeof *e);
    for (int k = 0; k < KN_S_COUNT; k++) e->special_slot[k] = KN_NO_SLOT;
    e->smem_static = p->smem_module;
    p->room_code = 0;
    if (!kn_ptx_word(p, false, &text, &len)) return kn_ptx_error(p, ".entry needs a name");
    e->name = kn_ptx_copy(p, text, len);
    if (!e->name) return kn_fail(KN_E_NOMEM, "out of memory for a kernel's name");
    p->depth = 1;
    if (kn_ptx_take(p, '(')) KN_TRY(kn_ptx_parameters(p));
    while (kn_ptx_directive(p, &text, &len)) KN_TRY(performance(p, text, len));
    KN_TRY(kn_ptx_expect(p, '{'));
    KN_TRY(kn_ptx_body(p));
    p->entry = NULL;
    return KN_OK;
}

/* ".section .debug_str { ... }" */
static kn_status section(kn_ptx *p) {
    while (p->at < p->end && *p->at != '{') p->at++;
    while (p->at < p->end && *p->at != '}') {
        if (*p->at == '\n') p->line++;
        p->at++;
    }
    return kn_ptx_expect(p, '}');
}

static kn_status skip_line(kn_ptx *p) {
    while (p->at < p->end && *p->at != '\n') p->at++;
    return KN_OK;
}

static kn_status top_level(kn_ptx *p) {
    const char *text;
    uint32_t len;
    bool external = false;
    if (!kn_ptx_directive(p, &text, &len)) return kn_ptx_error(p, "a directive was expected before '%c'", *p->at);
    while (kn_ptx_word_is(text, len, "visible") || kn_ptx_word_is(text, len, "weak") ||
           kn_ptx_word_is(text, len, "extern")) {
        external = external || text[0] == 'e';
        if (!kn_ptx_directive(p, &text, &len)) return kn_ptx_error(p, "a declaration was expected");
    }
    if (kn_ptx_word_is(text, len, "version")) return version(p);
    if (kn_ptx_word_is(text, len, "target")) return target(p);
    if (kn_ptx_word_is(text, len, "address_size")) {
        uint64_t size;
        KN_TRY(kn_ptx_count(p, 64, ".address_size", &size));
        return size == 64 ? KN_OK : kn_ptx_error(p, ".address_size must be 64");
    }
    if (kn_ptx_word_is(text, len, "entry")) return entry(p);
    if (kn_ptx_word_is(text, len, "shared")) return kn_ptx_variable(p, KN_SPACE_SHARED, external);
    if (kn_ptx_word_is(text, len, "global")) return kn_ptx_variable(p, KN_SPACE_GLOBAL, external);
    if (kn_ptx_word_is(text, len, "const")) return kn_ptx_variable(p, KN_SPACE_CONST, external);
    if (kn_ptx_word_is(text, len, "file")) return skip_line(p);
    if (kn_ptx_word_is(text, len, "section")) return section(p);
    return kn_ptx_error(p, "unknown directive .%.*s", (int)len, text);
}

static kn_status parse(kn_ptx *p) {
    for (;;) {
        kn_ptx_skip(p);
        if (p->at >= p->end) break;
        KN_TRY(top_level(p));
    }
    if (p->module->n_entries == 0) return kn_ptx_error(p, "the text has no .entry");
    if (!p->module->target[0]) return kn_ptx_error(p, "the text has no .target");
    return KN_OK;
}

kn_status kn_sim_parse(const char *ptx, size_t len, kn_sim_origin *origin, void *origin_user, kn_sim_module **out) {
    kn_ptx *p = NULL;
    *out = NULL;
    KN_TRY(KN_NEW(&p, 1, "the PTX parser"));
    kn_status st = KN_NEW(&p->module, 1, "a parsed module");
    if (st == KN_OK) {
        p->at = ptx;
        p->end = ptx + len;
        p->line = 1;
        p->origin = origin;
        p->origin_user = origin_user;
        st = parse(p);
    }
    if (st == KN_OK)
        *out = p->module;
    else
        kn_sim_free(p->module);
    kn_free(p->name);
    kn_free(p->fixup);
    kn_free(p);
    return st;
}

void kn_sim_free(kn_sim_module *m) {
    if (!m) return;
    for (uint32_t k = 0; k < m->n_entries; k++) {
        kn_free(m->entry[k].code);
        kn_free(m->entry[k].param);
    }
    kn_free(m->entry);
    kn_free(m->variable);
    kn_arena_free(&m->arena);
    kn_free(m);
}
