/* What the tests of products share: ways of making one, calls of all operations with drawn options, and shares of a
 * test's work for several processes. */
#ifndef KN_TESTS_OPS_GEMM_SUPPORT_H
#define KN_TESTS_OPS_GEMM_SUPPORT_H

#include "support/problem_gen.h"
#include "support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const kn_dtype floats[] = {KN_BF16, KN_F16, KN_F32};

static uint64_t state;
static inline uint64_t draw(uint64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % n;
}
#define DRAW(list) (list)[draw(sizeof(list) / sizeof *(list))]

/* KN_SHARE=2/8: this process takes every eighth piece of the work, from number 2 on. */
static inline bool is_mine(uint64_t i) {
    const char *share = getenv("KN_SHARE");
    unsigned first = 0, of = 1;
    if (share) ck_assert_int_eq(sscanf(share, "%u/%u", &first, &of), 2);
    return i % of == first % of;
}

/* Ways: beta, majorness of both operands, type of the result, type of the operands. */
enum { WAYS_16_BIT = 48, WAYS = 72 };
static inline kn_gen_config product(int way, int64_t m, int64_t n, int64_t k) {
    kn_gen_config c = kn_gen_defaults("gemm");
    c.m = m, c.n = n, c.k = k;
    c.options.common.accumulate = way & 1;
    c.swapped = way >> 1 & 3;
    c.out_dtype = floats[way / 8 % 3];
    c.dtype = floats[way / 24];
    return c;
}

static const char *const operations[] = {"expert_mlp_backward", "moe_layer_backward", "router_backward",
                                         "load_balance_backward", "routed_experts_backward"};
enum { OPERATIONS = sizeof operations / sizeof *operations };

static inline void draw_activation(kiln_activation *a) {
    if (draw(3) == 0) *a = (kiln_activation){.alpha = 1.702, .limit = 7, .offset = 1};
}

/* Options that make other kernels; what an operation lacks is ignored. */
static inline kn_gen_config draw_call(const char *op) {
    kn_gen_config c = kn_gen_defaults(op);
    kn_op table;
    bool aligned = draw(4) != 0;
    ck_assert_int_eq(kn_gen_op(op, &table), 0);
    c.tokens = 16 + 8 * (int64_t)draw(64);
    c.batch = 2 * c.tokens;
    c.hidden = aligned ? 512 : 130;
    c.inner = aligned ? 256 : 75;
    c.experts = aligned ? 64 : 60;
    c.local_experts = c.experts;
    c.top_k = 4;
    c.dtype = floats[draw(strcmp(op, "routed_experts_backward") == 0 ? 3 : 2)];
    c.id_dtype = draw(2) ? KN_I64 : KN_I32;
    c.sorted = draw(4) == 0;
    c.options.common.accumulate = draw(2) ? 0 : draw(1u << table.n_outputs);
    if (strcmp(op, "expert_mlp_backward") == 0) draw_activation(&c.options.expert_mlp.activation);
    if (strcmp(op, "routed_experts_backward") == 0) {
        draw_activation(&c.options.routed.activation);
        c.options.routed.math = (int32_t)draw(3);
        c.options.routed.weight_on = (int32_t)draw(2);
    }
    return c;
}

static inline const char *describe(const kn_gen_config *c) {
    static char text[256];
    snprintf(text, sizeof text,
             "%s m=%lld n=%lld k=%lld groups=%lld tokens=%lld %s -> %s swapped=%llu gap=%d accumulate=%llu seed=%llu",
             c->op, (long long)c->m, (long long)c->n, (long long)c->k, (long long)c->groups, (long long)c->tokens,
             kn_dtype_name(c->dtype), kn_dtype_name(c->out_dtype), (unsigned long long)c->swapped, c->gap,
             (unsigned long long)c->options.common.accumulate, (unsigned long long)c->seed);
    return text;
}

static inline void must(kn_status st, const kn_gen_config *c) {
    ck_assert_msg(st == KN_OK, "%s: %s", describe(c), kn_error_message());
}

/* A tuning file that chooses `name` for the product `key`. */
static inline void write_choice(const char *path, const char *gpu, const char *key, const char *name) {
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fprintf(f, "kiln-tuning 1\ngpu %s\nproduct %s %s\n", gpu, key, name);
    ck_assert_int_eq(fclose(f), 0);
}

#endif
