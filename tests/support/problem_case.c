/* The sentence that names a problem: see problem_case.h. */
#include "support/problem_case.h"

#include "ops/api_call.h"

#include <stdio.h>

const char *kn_case_text(const kn_gen *g, char *text, size_t cap) {
    const kn_gen_config *c = &g->config;
    kn_api_call call = {.call = g->call};
    call.problem.accumulate = c->options.common.accumulate;
    kn_buf line;
    kn_buf_init(&line, 4096);
    memcpy(call.options.bytes, c->options.bytes, sizeof call.options.bytes);
    kn_status st = kn_api_find_op(g->op.name, &call.call.op);
    if (st == KN_OK) st = kn_api_record_line(&call, &line);
    snprintf(text, cap, "%s; seed %llu, scale %g, skipped %d%%, skew %d", st == KN_OK ? line.data : g->op.name,
             (unsigned long long)c->seed, c->scale, c->skip_percent, c->skew);
    kn_buf_free(&line);
    return text;
}
