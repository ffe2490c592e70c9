/* Fuzz target of the expander: any text expands or fails with a sentence, and what comes out is consistent.
 * The input is one file, or several: a line "=== NAME" begins the next. */
#include "jit/expand_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct part {
    char name[64];
    const char *text;
    size_t len;
} part;

typedef struct input {
    part file[8];
    int n;
} input;

static kn_status load(void *user, const char *name, const char **text, size_t *len, char **owned) {
    const input *in = user;
    *owned = NULL;
    for (int i = 0; i < in->n; i++) {
        if (strcmp(in->file[i].name, name) != 0) continue;
        *text = in->file[i].text;
        *len = in->file[i].len;
        return KN_OK;
    }
    return kn_fail(KN_E_TEMPLATE, "there is no template %s", name);
}

static void split(const char *p, const char *end, input *in) {
    in->n = 1;
    in->file[0] = (part){.name = "t.ptxt", .text = p};
    const char *begin = p;
    while (p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        const char *next = nl ? nl + 1 : end;
        if (end - p > 4 && memcmp(p, "=== ", 4) == 0 && in->n < 8 && p > begin) {
            in->file[in->n - 1].len = (size_t)(p - in->file[in->n - 1].text);
            part *f = &in->file[in->n++];
            size_t n = (size_t)((nl ? nl : end) - p) - 4;
            if (n >= sizeof f->name) n = sizeof f->name - 1;
            memcpy(f->name, p + 4, n);
            f->name[n] = '\0';
            f->text = next;
        }
        p = next;
    }
    in->file[in->n - 1].len = (size_t)(end - in->file[in->n - 1].text);
}

static void require(bool good, const char *what) {
    if (good) return;
    fprintf(stderr, "the expansion is inconsistent: %s\n", what);
    abort();
}

static void check(const kn_expansion *x) {
    uint32_t lines = 0;
    require(strlen(x->ptx) == x->ptx_len, "length");
    require(!strstr(x->ptx, "${"), "leftover");
    for (const char *p = x->ptx; (p = strchr(p, '\n')); p++) lines++;
    require(lines == x->n_lines && lines == x->meta.ptx_lines, "number of lines");
    for (uint32_t i = 0; i < x->n_lines; i++) {
        char place[256];
        require(x->lines[i].file < x->n_files && x->lines[i].line > 0, "line map");
        kn_expansion_origin(x, i + 1, place, sizeof place);
        require(strncmp(place, x->files[x->lines[i].file], strlen(x->files[x->lines[i].file])) == 0, "origin");
    }
    require(x->meta.entry[0] && x->meta.ptx_version && x->meta.threads[0], "metadata");
    for (uint32_t i = 0; i < x->meta.n_args; i++)
        require(x->meta.arg[i].size && x->meta.arg[i].offset % x->meta.arg[i].align == 0, "arguments");
}

static kn_status ignore_file(void *user, const char *name, const char *text, size_t len) {
    (void)user, (void)name, (void)text, (void)len;
    return KN_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input in = {0};
    kn_params params = {0};
    kn_expansion x, y;
    split((const char *)data, (const char *)data + size, &in);
    const kn_ex_source source = {load, &in};
    for (uint32_t flags = 0; flags < 4; flags++) {
        kn_error_clear();
        kn_status st = kn_ex_expand(&source, "t.ptxt", &params, "sm_90a", flags, &x);
        if (st != KN_OK) {
            require(st == KN_E_TEMPLATE && kn_error_message()[0], "an error without its sentence");
            require(!x.ptx && !x.lines && !x.files && !x.loop_text, "an error leaves memory behind");
            if (flags == 0) break;
            continue;
        }
        if (x.ptx_len > 1 << 18) { /* right but slow under a sanitizer: once is enough */
            kn_expansion_free(&x);
            break;
        }
        check(&x);
        require(kn_ex_expand(&source, "t.ptxt", &params, "sm_90a", flags, &y) == KN_OK, "the second time fails");
        require(x.ptx_len == y.ptx_len && memcmp(x.ptx, y.ptx, x.ptx_len) == 0, "the second time differs");
        kn_expansion_free(&x);
        kn_expansion_free(&y);
    }
    (void)kn_ex_closure(&source, "t.ptxt", ignore_file, NULL);
    return 0;
}
