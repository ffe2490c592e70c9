/* Names of a module: registers and ranges of them, variables, labels; nested scopes hide outer names. */
#include "sim/ptx_parse.h"

/* The innermost name; `range`: only ranges, otherwise anything but ranges. */
static const kn_name *find(kn_ptx *p, const char *text, uint32_t len, bool range) {
    uint32_t hash = kn_ptx_hash(text, len);
    for (uint32_t at = p->bucket[hash % KN_NAME_BUCKETS]; at; at = p->name[at - 1].next) {
        const kn_name *n = &p->name[at - 1];
        if (n->hash == hash && n->len == len && (n->kind == KN_N_REG_RANGE) == range && memcmp(n->text, text, len) == 0)
            return n;
    }
    return NULL;
}

kn_status kn_ptx_declare(kn_ptx *p, const kn_name *name) {
    /* A range %r<10> and a register %r are different names. */
    const kn_name *old = find(p, name->text, name->len, name->kind == KN_N_REG_RANGE);
    if (old && old->depth == p->depth) return kn_ptx_error(p, "%.*s is declared twice", (int)name->len, name->text);
    KN_TRY(kn_ptx_grow((void **)&p->name, &p->room_names, p->n_names, sizeof *p->name, "names"));
    kn_name *n = &p->name[p->n_names++];
    *n = *name;
    n->hash = kn_ptx_hash(name->text, name->len);
    n->depth = p->depth;
    uint32_t *bucket = &p->bucket[n->hash % KN_NAME_BUCKETS];
    n->next = *bucket;
    *bucket = p->n_names;
    return KN_OK;
}

const kn_name *kn_ptx_find(kn_ptx *p, const char *text, uint32_t len) {
    const kn_name *n = find(p, text, len, false);
    return n ? n : find(p, text, len, true);
}

bool kn_ptx_register(kn_ptx *p, const char *text, uint32_t len, uint32_t *slot, uint8_t *bytes) {
    const kn_name *n = find(p, text, len, false);
    uint32_t index = 0, weight = 1;
    for (uint32_t cut = 1; !n && cut < len && cut < 8; cut++) {
        char c = text[len - cut];
        if (c < '0' || c > '9') return false;
        index += (uint32_t)(c - '0') * weight;
        weight *= 10;
        if (c == '0' && cut > 1) continue; /* %r007 is not %r7 */
        n = find(p, text, len - cut, true);
        if (n && index >= n->count) n = NULL;
    }
    if (!n || (n->kind != KN_N_REG && n->kind != KN_N_REG_RANGE)) return false;
    *slot = n->slot + index * (n->bytes == 8 ? 2 : 1);
    *bytes = n->bytes;
    return true;
}

void kn_ptx_close_scope(kn_ptx *p, uint8_t depth) {
    while (p->n_names > 0 && p->name[p->n_names - 1].depth > depth) {
        kn_name *n = &p->name[--p->n_names];
        p->bucket[n->hash % KN_NAME_BUCKETS] = n->next;
    }
    p->depth = depth;
}
