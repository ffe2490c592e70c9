/* Templates in memory for the expander's tests. */
#ifndef KN_TESTS_JIT_EXPAND_SUPPORT_H
#define KN_TESTS_JIT_EXPAND_SUPPORT_H

#include "jit/expand_internal.h"
#include "support/suite.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* NAME, text, NAME, text, ..., NULL */
static inline kn_status load_memory(void *user, const char *name, const char **text, size_t *len, char **owned) {
    *owned = NULL;
    for (const char *const *f = user; *f; f += 2) {
        if (strcmp(f[0], name) != 0) continue;
        *text = f[1];
        *len = strlen(f[1]);
        return KN_OK;
    }
    return kn_fail(KN_E_TEMPLATE, "there is no template %s", name);
}

/* A kernel around lines that need one. */
#define HEAD ".version 8.0\n.target ${target}\n.address_size 64\n.visible .entry k(.param .u64 p)\n.reqntid 32\n{\n"
#define TAIL "    ret;\n}\n"

/* Expand files[0] on sm_90a. */
static inline kn_status expand_files(const char *const *files, const kn_params *params, uint32_t flags,
                                     kn_expansion *x) {
    const kn_ex_source source = {load_memory, (void *)(uintptr_t)files};
    return kn_ex_expand(&source, files[0], params, "sm_90a", flags, x);
}

static inline kn_status expand_text(const char *text, const kn_params *params, uint32_t flags, kn_expansion *x) {
    const char *files[] = {"t.ptxt", text, NULL};
    return expand_files(files, params, flags, x);
}

/* What `body` becomes between HEAD and TAIL; the head's lines are cut off. The caller frees *x. */
static inline const char *body_of(const char *top, const char *body, const kn_params *params, kn_expansion *x) {
    static char text[1 << 16];
    snprintf(text, sizeof text, "%s" HEAD "%s" TAIL, top, body);
    kn_status st = expand_text(text, params, 0, x);
    ck_assert_msg(st == KN_OK, "%s", kn_error_message());
    static char out[1 << 16];
    const char *from = strstr(x->ptx, "{\n") + 2;
    snprintf(out, sizeof out, "%.*s", (int)(strlen(from) - strlen(TAIL)), from);
    return out;
}

static inline void check_body(const char *top, const char *body, const char *wanted) {
    kn_expansion x;
    ck_assert_str_eq(body_of(top, body, NULL, &x), wanted);
    kn_expansion_free(&x);
}

/* "${expression}" must print as `wanted`. */
static inline void check_value(const char *top, const char *expression, const char *wanted) {
    char body[512];
    kn_expansion x;
    snprintf(body, sizeof body, "// ${%s}\n", expression);
    const char *got = body_of(top, body, NULL, &x);
    char want[512];
    snprintf(want, sizeof want, "// %s\n", wanted);
    ck_assert_msg(strcmp(got, want) == 0, "${%s} is %s, wanted %s", expression, got + 3, wanted);
    kn_expansion_free(&x);
}

/* A template that must fail with a sentence that begins with `prefix` and contains `part`. */
static inline void check_error(const char *text, const char *prefix, const char *part) {
    kn_expansion x;
    kn_status st = expand_text(text, NULL, 0, &x);
    ck_assert_msg(st == KN_E_TEMPLATE, "%s\nstatus %d, %s", text, st, st ? kn_error_message() : "");
    ck_assert_msg(strncmp(kn_error_message(), prefix, strlen(prefix)) == 0 && strstr(kn_error_message(), part),
                  "%s\nsentence: %s\nwanted: %s ... %s", text, kn_error_message(), prefix, part);
    ck_assert_ptr_null(x.ptx);
    ck_assert_ptr_null(x.lines);
}

#endif
