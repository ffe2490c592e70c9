/* The contexts of a test that runs its problems on both paths in turn. */
#ifndef KN_TESTS_SUPPORT_BOTH_PATHS_H
#define KN_TESTS_SUPPORT_BOTH_PATHS_H

#include "support/problem_case.h"

static kiln_context *fast, *portable;

static inline void open_both(void) {
    fast = open_context(KILN_SHAPES_DEFAULT, KILN_PATH_DEFAULT);
    portable = open_context(KILN_SHAPES_DEFAULT, KILN_PATH_PORTABLE);
}

static inline void close_both(void) {
    ck_assert_ok(kiln_context_destroy(fast));
    ck_assert_ok(kiln_context_destroy(portable));
}

#endif
