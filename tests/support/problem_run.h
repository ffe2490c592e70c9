/* Run a random problem through the public entry points, on whatever device a context has. */
#ifndef KN_TESTS_SUPPORT_PROBLEM_RUN_H
#define KN_TESTS_SUPPORT_PROBLEM_RUN_H

#include "support/problem_gen.h"

/** Run g's operation and wait for it. On a GPU all tensors are copied there and back, gaps included; tensors at one
 *  address stay one tensor. */
kn_status kn_gen_run(kn_gen *g, kiln_context *ctx);
/** What that would launch, as kiln_plan_json prints it with these flags; nothing is copied. */
kn_status kn_gen_plan(const kn_gen *g, kiln_context *ctx, uint32_t flags, char *json, uint64_t capacity);

#endif
