/* What the tests of every operation do with a problem: open a context, make the problem, run it and check it, and say
 * which one it was. A test includes both_paths.h beside it for the two contexts that most of them take turns with. */
#ifndef KN_TESTS_SUPPORT_PROBLEM_CASE_H
#define KN_TESTS_SUPPORT_PROBLEM_CASE_H

#include "support/problem_gen.h"
#include "support/problem_run.h"
#include "support/suite.h"

#include <stdio.h>
#include <string.h>

/* Argument `arg` in config.absent. */
static inline uint64_t bit(int arg) {
    return (uint64_t)1 << arg;
}

/** The call as a line of a warm list, and what such a line leaves out: how its values were drawn. */
const char *kn_case_text(const kn_gen *g, char *text, size_t cap);

static inline kiln_context *open_context(int32_t shapes, int32_t path) {
    kiln_context_options o = {.struct_size = sizeof o, .cache_dir = "off", .shapes = shapes, .path = path};
    kiln_context *ctx;
    ck_assert_ok(kiln_context_create(NULL, &o, &ctx));
    return ctx;
}

static inline kn_gen *make(const kn_gen_config *c) {
    kn_gen *g;
    ck_assert_ok(kn_gen_make(c, &g));
    return g;
}

/* Run on `ctx` and check every output, and the memory between its rows. */
static inline void run_and_check(kn_gen *g, kiln_context *ctx, const char *what) {
    char text[4096];
    kn_status st = kn_gen_reference(g);
    if (st == KN_OK) st = kn_gen_run(g, ctx);
    if (st == KN_OK) st = kn_gen_check(g);
    if (st == KN_OK) return;
    ck_abort_msg("%s: %s: %s", what, kn_error_message(), kn_case_text(g, text, sizeof text));
}

static inline void run_one(const kn_gen_config *c, kiln_context *ctx, const char *what) {
    kn_gen *g = make(c);
    run_and_check(g, ctx, what);
    kn_gen_free(g);
}

/* All outputs of two problems of one layout agree to the bit, the memory between their rows too. */
static inline void same_bits(const kn_gen *a, const kn_gen *b) {
    char text[4096];
    for (int i = a->op.n_args - a->op.n_outputs; i < a->op.n_args; i++) {
        if (!a->args[i]) continue;
        const kn_tensor *t = &a->call.tensor[i], *u = &b->call.tensor[i];
        ck_assert_uint_eq(t->bytes, u->bytes);
        if (t->bytes == 0 || memcmp(t->data, u->data, t->bytes) == 0) continue;
        ck_abort_msg("other bits in %s: %s", a->op.args[i].name, kn_case_text(a, text, sizeof text));
    }
}

#endif
