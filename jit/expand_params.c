/* jit/expand: the sorted set of a kernel's parameters. */
#include "jit/expand.h"

#include <stdlib.h>
#include <string.h>

/* [A-Za-z_][A-Za-z0-9_]*, shorter than KN_NAME_CAP */
static bool is_name(const char *s) {
    size_t n = 0;
    for (; s[n]; n++) {
        bool letter = (s[n] >= 'a' && s[n] <= 'z') || (s[n] >= 'A' && s[n] <= 'Z') || s[n] == '_';
        if (!letter && (n == 0 || s[n] < '0' || s[n] > '9')) return false;
        if (n + 1 >= KN_NAME_CAP) return false;
    }
    return n > 0;
}

static int by_name(const void *key, const void *item) {
    return strcmp(key, ((const kn_param *)item)->name);
}

const kn_param *kn_params_find(const kn_params *p, const char *name) {
    if (p->count == 0) return NULL;
    return bsearch(name, p->item, (size_t)p->count, sizeof p->item[0], by_name);
}

/* The place for a new parameter of that name, or NULL with p->status set. */
static kn_param *insert(kn_params *p, const char *name) {
    if (p->status != KN_OK) return NULL;
    if (!is_name(name)) {
        p->status =
            kn_fail(KN_E_ARG, "parameter \"%.40s\": a name has 1 to %d letters, digits and _", name, KN_NAME_CAP - 1);
    } else if (kn_params_find(p, name)) {
        p->status = kn_fail(KN_E_ARG, "parameter %s is set twice", name);
    } else if (p->count == KN_MAX_PARAMS) {
        p->status = kn_fail(KN_E_ARG, "parameter %s: there are %d already", name, KN_MAX_PARAMS);
    }
    if (p->status != KN_OK) return NULL;
    int at = 0;
    while (at < p->count && strcmp(p->item[at].name, name) < 0) at++;
    memmove(&p->item[at + 1], &p->item[at], (size_t)(p->count - at) * sizeof p->item[0]);
    p->count++;
    p->item[at] = (kn_param){0};
    memcpy(p->item[at].name, name, strlen(name));
    return &p->item[at];
}

void kn_params_set(kn_params *p, const char *name, int64_t value) {
    kn_param *item = insert(p, name);
    if (item) item->value = value;
}

void kn_params_set_name(kn_params *p, const char *name, const char *text) {
    if (p->status == KN_OK && !is_name(text)) {
        p->status =
            kn_fail(KN_E_ARG, "parameter %.40s: its value \"%.40s\" is not a name of 1 to %d letters, digits and _",
                    name, text, KN_NAME_CAP - 1);
    }
    kn_param *item = insert(p, name);
    if (!item) return;
    item->is_name = true;
    memcpy(item->text, text, strlen(text));
}

kn_status kn_params_write(const kn_params *p, kn_buf *out) {
    KN_REQUIRE(p->status == KN_OK, p->status, "the parameters could not be collected");
    for (int i = 0; i < p->count; i++) {
        if (i) kn_buf_add_char(out, ' ');
        kn_buf_add(out, p->item[i].name);
        kn_buf_add_char(out, '=');
        if (p->item[i].is_name) {
            kn_buf_add(out, p->item[i].text);
        } else {
            kn_buf_add_i64(out, p->item[i].value);
        }
    }
    return kn_buf_status(out);
}
