/* jit/expand: where template text comes from (KILN_TEMPLATE_DIR, else the library itself), what a template includes,
 * and the examples it carries. */
#include "jit/expand_source.h"

#include "base/alloc.h"
#include "base/env.h"
#include "base/file.h"
#include "jit/expand_internal.h"

#include <errno.h>
#include <string.h>

kn_status kn_ex_check_name(const char *name) {
    size_t n = strlen(name);
    bool good = n > 0 && n < sizeof((kn_ex_file *)0)->name && name[0] != '/' && name[0] != '.' && !strstr(name, "/.");
    for (size_t i = 0; good && i < n; i++) good = kn_ex_is_word(name[i]) || strchr("./-+", name[i]);
    return good ? KN_OK
                : kn_fail(KN_E_TEMPLATE, "template name \"%.80s\": 1 to 63 letters, digits and _-+./ without ..", name);
}

static const kn_embedded_template *find_embedded(const char *name) {
    for (size_t lo = 0, hi = kn_embedded_count; lo < hi;) {
        size_t mid = lo + (hi - lo) / 2;
        int order = strcmp(name, kn_embedded_templates[mid].name);
        if (order == 0) return &kn_embedded_templates[mid];
        if (order < 0) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return NULL;
}

/* From the directory, or *owned stays NULL when it has no such file (the built-in one serves then). A directory that is
 * not there is an error: it is a typing mistake. */
static kn_status load_override(const char *dir, const char *name, size_t *len, char **owned) {
    struct stat st;
    int err = kn_lstat(dir, &st);
    if (err) return kn_fail(KN_E_TEMPLATE, "KILN_TEMPLATE_DIR %s: %s", dir, strerror(err));
    kn_buf path;
    kn_buf_init(&path, 4096);
    kn_buf_add(&path, dir);
    kn_buf_add_char(&path, '/');
    kn_buf_add(&path, name);
    kn_status status = kn_buf_status(&path);
    if (status == KN_OK) {
        err = kn_lstat(path.data, &st);
        if (!err) {
            status = kn_file_read(path.data, KN_EX_MAX_SOURCE, owned, len);
        } else if (err != ENOENT && err != ENOTDIR) {
            status = kn_fail(KN_E_TEMPLATE, "%s: %s", path.data, strerror(err));
        }
    }
    kn_buf_free(&path);
    return status;
}

kn_status kn_template_source(const char *name, const char **text, size_t *len, char **owned) {
    *owned = NULL;
    KN_TRY(kn_ex_check_name(name));
    const char *dir = kn_env(KN_ENV_TEMPLATE_DIR);
    if (dir) KN_TRY(load_override(dir, name, len, owned));
    *text = *owned;
    if (*owned) return KN_OK;
    const kn_embedded_template *t = find_embedded(name);
    if (!t) return kn_fail(KN_E_TEMPLATE, "there is no template %s", name);
    *text = t->text;
    *len = t->len;
    return KN_OK;
}

static kn_status load_default(void *user, const char *name, const char **text, size_t *len, char **owned) {
    (void)user;
    return kn_template_source(name, text, len, owned);
}

const kn_ex_source kn_ex_default_source = {.load = load_default};

const char *const *kn_template_names(void) {
    return kn_embedded_names;
}

const char *kn_expander_digest(void) {
    return kn_embedded_digest;
}

/* ---- closure ------------------------------------------------------------------------------------------------- */

static kn_status load_includes(kn_ex *ex, const kn_ex_block *block);

/* The #param of that name in the files loaded so far. */
static const kn_ex_node *find_param(const kn_ex_node *n, const kn_ex_sym *sym) {
    for (; n; n = n->next) {
        if (n->what == KN_EX_PARAM && n->sym == sym) return n;
        for (const kn_ex_node *branch = n; n->what == KN_EX_IF && branch; branch = branch->other) {
            const kn_ex_node *found = find_param(branch->body.first, sym);
            if (found) return found;
        }
    }
    return NULL;
}

/* Every file that an #include can name: its ${NAME} may be parameters with declared choices, and all are visited. */
static kn_status load_choices(kn_ex *ex, const kn_ex_text *t, uint32_t at, const char *name, size_t len) {
    char text[64];
    if (at == t->n) {
        uint32_t file = 0;
        bool fresh = false;
        memcpy(text, name, len);
        text[len] = '\0';
        KN_TRY(kn_ex_load(ex, text, &file, &fresh));
        uint32_t at_file = ex->at_file, at_line = ex->at_line;
        if (fresh) KN_TRY(load_includes(ex, &ex->file[file].block));
        ex->at_file = at_file;
        ex->at_line = at_line;
        return KN_OK;
    }
    const kn_ex_seg *s = &t->seg[at];
    memcpy(text, name, len);
    if (!s->expr) {
        if (len + s->len >= sizeof text) return kn_ex_fail(ex, "#include: the file's name is too long");
        memcpy(text + len, s->lit, s->len);
        return load_choices(ex, t, at + 1, text, len + s->len);
    }
    const kn_ex_node *param = NULL;
    for (uint32_t f = 0; f < ex->n_files && !param && s->expr->op == KN_EX_NAME; f++)
        param = find_param(ex->file[f].block.first, s->expr->sym);
    if (!param || !param->is_set || !param->item->sym)
        return kn_ex_fail(ex, "#include: only a #param with names to choose from may stand in a file's name");
    for (const kn_ex_item *i = param->item; i; i = i->next) {
        if (len + i->sym->len >= sizeof text) return kn_ex_fail(ex, "#include: the file's name is too long");
        memcpy(text + len, i->sym->text, i->sym->len);
        KN_TRY(load_choices(ex, t, at + 1, text, len + i->sym->len));
    }
    return KN_OK;
}

static kn_status load_includes(kn_ex *ex, const kn_ex_block *block) {
    for (const kn_ex_node *n = block->first; n; n = n->next) {
        for (const kn_ex_node *branch = n; n->what == KN_EX_IF && branch; branch = branch->other)
            KN_TRY(load_includes(ex, &branch->body));
        if (n->what != KN_EX_INCLUDE) continue;
        ex->at_file = n->file;
        ex->at_line = n->line;
        KN_TRY(load_choices(ex, n->text, 0, "", 0));
    }
    return KN_OK;
}

kn_status kn_ex_load_closure(kn_ex *ex, const char *name) {
    uint32_t file = 0;
    bool fresh = false;
    KN_TRY(kn_ex_load(ex, name, &file, &fresh));
    for (uint32_t f = 0; f < ex->n_files; f++) KN_TRY(load_includes(ex, &ex->file[f].block));
    return KN_OK;
}

kn_status kn_ex_closure(const kn_ex_source *source, const char *name, kn_template_visit *visit, void *user) {
    kn_ex *ex = NULL;
    KN_TRY(KN_NEW(&ex, 1, "template closure"));
    kn_status st = kn_ex_begin(ex, source, NULL, NULL);
    if (st == KN_OK) st = kn_ex_load_closure(ex, name);
    for (uint32_t f = 0; f < ex->n_files && st == KN_OK; f++)
        st = visit(user, ex->file[f].name, ex->file[f].text, ex->file[f].len);
    kn_ex_end(ex);
    kn_free(ex);
    return st;
}

kn_status kn_template_closure(const char *name, kn_template_visit *visit, void *user) {
    return kn_ex_closure(&kn_ex_default_source, name, visit, user);
}

/* ---- examples ------------------------------------------------------------------------------------------------ */

static kn_status visit_example(kn_ex *ex, const kn_ex_node *n, kn_example_visit *visit, void *user) {
    kn_params params = {0};
    char target[16] = "";
    ex->at_file = n->file;
    ex->at_line = n->line;
    for (const kn_ex_item *i = n->item; i; i = i->next) {
        const kn_ex_val *v = &i->expr->val;
        char name[KN_NAME_CAP] = "";
        if (v->kind == KN_EX_TEXT && v->len < sizeof name) memcpy(name, v->text, v->len);
        if (strcmp(i->sym->text, "target") != 0) {
            if (v->kind == KN_EX_TEXT) {
                kn_params_set_name(&params, i->sym->text, name);
            } else {
                kn_params_set(&params, i->sym->text, v->i);
            }
        } else if (v->kind == KN_EX_TEXT && v->len < sizeof target) {
            memcpy(target, v->text, v->len);
        }
    }
    if (!target[0]) return kn_ex_fail(ex, "#example names no target (target=sm_90a)");
    if (params.status != KN_OK) return kn_ex_fail(ex, "#example: a parameter is set twice or has no legal name");
    return visit(user, n->line, &params, target);
}

kn_status kn_template_examples(const char *name, kn_example_visit *visit, void *user) {
    kn_ex *ex = NULL;
    uint32_t file = 0;
    bool fresh = false;
    KN_TRY(KN_NEW(&ex, 1, "template examples"));
    kn_status st = kn_ex_begin(ex, &kn_ex_default_source, NULL, NULL);
    if (st == KN_OK) st = kn_ex_load(ex, name, &file, &fresh);
    for (const kn_ex_node *n = st == KN_OK ? ex->file[0].block.first : NULL; n && st == KN_OK; n = n->next) {
        if (n->what == KN_EX_EXAMPLE) st = visit_example(ex, n, visit, user);
    }
    kn_ex_end(ex);
    kn_free(ex);
    return st;
}
