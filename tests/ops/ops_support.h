/* What the tests of ops/ share: tensors on the stack, and one load_balance_backward call with its memory. */
#ifndef KN_TESTS_OPS_SUPPORT_H
#define KN_TESTS_OPS_SUPPORT_H

#include "kiln/kiln_tools.h"
#include "support/suite.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const DLDataType KT_F32 = {2, 32, 1}, KT_F16 = {2, 16, 1}, KT_BF16 = {4, 16, 1}, KT_I32 = {0, 32, 1},
                        KT_I64 = {0, 64, 1}, KT_BOOL = {6, 8, 1};

/* A DLTensor together with the shape and strides that it points to. */
typedef struct test_tensor {
    DLTensor t;
    int64_t shape[6], stride[6];
} test_tensor;

static inline DLTensor *tensor(test_tensor *x, void *data, DLDataType dtype, int ndim, const int64_t *shape) {
    memset(x, 0, sizeof *x);
    memcpy(x->shape, shape, (size_t)ndim * sizeof *shape);
    x->t = (DLTensor){.data = data, .device = {1, 0}, .ndim = ndim, .dtype = dtype, .shape = x->shape};
    return &x->t;
}
#define SHAPE(...)                                                                                                     \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]) {                                                         \
        __VA_ARGS__                                                                                                    \
    }

static inline DLTensor *strided(test_tensor *x, const int64_t *stride) {
    memcpy(x->stride, stride, (size_t)x->t.ndim * sizeof *stride);
    x->t.strides = x->stride;
    return &x->t;
}
#define STRIDE(...) ((int64_t[]){__VA_ARGS__})

/* load_balance_backward of [b, e] on host memory. */
typedef struct lb_call {
    test_tensor tokens, mask, loss, training, out;
    const DLTensor *args[8];
    kiln_load_balance_backward_options options;
    float *grad_tokens, *grad_mask, *result, grad_loss;
    uint8_t is_training;
} lb_call;

static inline void *lb_floats(int64_t n, float scale) {
    float *p = aligned_alloc(128, (size_t)(n * 4 + 128) / 128 * 128 + 128);
    for (int64_t i = 0; i < n; i++) p[i] = scale * (float)((i * 7919) % 101 - 50);
    return p;
}

static inline void lb_begin(lb_call *c, int64_t b, int64_t e) {
    memset(c, 0, sizeof *c);
    c->grad_tokens = lb_floats(e, 0.25f);
    c->grad_mask = lb_floats(b * e, 0.5f);
    c->result = lb_floats(b * e, 0);
    c->grad_loss = 3;
    c->is_training = 1;
    c->args[0] = tensor(&c->tokens, c->grad_tokens, KT_F32, SHAPE(e));
    c->args[1] = tensor(&c->mask, c->grad_mask, KT_F32, SHAPE(b, e));
    c->args[2] = tensor(&c->loss, &c->grad_loss, KT_F32, SHAPE(1));
    c->args[6] = tensor(&c->training, &c->is_training, KT_BOOL, SHAPE(1));
    c->args[7] = tensor(&c->out, c->result, KT_F32, SHAPE(b, e));
    c->options = (kiln_load_balance_backward_options){.common.struct_size = sizeof c->options, .top_k = 4};
}

static inline void lb_end(lb_call *c) {
    free(c->grad_tokens);
    free(c->grad_mask);
    free(c->result);
}

static inline int32_t lb_run(kiln_context *ctx, const lb_call *c, void *stream) {
    const DLTensor *const *a = c->args;
    return kiln_load_balance_backward(ctx, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], &c->options, stream);
}

/* What the operation must have written to row r, column i: one addition after the other, in float. */
static inline float lb_expected(const lb_call *c, int64_t b, int64_t e, int64_t r, int64_t i) {
    float scalar = c->is_training ? c->grad_loss / (float)(b * c->options.top_k) : 0;
    return c->grad_mask[r * e + i] + (c->grad_tokens[i] + scalar);
}

/* grouped_gemm with rows sorted by group: an operation that needs workspace. */
typedef struct gg_call {
    test_tensor a, b, offsets, d;
    const DLTensor *args[4];
    kiln_grouped_gemm_options options;
} gg_call;

/* Memory for it; the caller sets the tensors' data. */
static inline void gg_begin(gg_call *c, void *a, void *b, void *offsets, void *d) {
    memset(c, 0, sizeof *c);
    c->args[0] = tensor(&c->a, a, KT_BF16, SHAPE(40, 64));
    c->args[1] = tensor(&c->b, b, KT_BF16, SHAPE(3, 64, 32));
    c->args[2] = tensor(&c->offsets, offsets, KT_I32, SHAPE(4));
    c->args[3] = tensor(&c->d, d, KT_F32, SHAPE(40, 32));
    c->options = (kiln_grouped_gemm_options){.common.struct_size = sizeof c->options};
}

static inline int32_t gg_run(kiln_context *ctx, const gg_call *c, void *stream) {
    return kiln_grouped_gemm(ctx, c->args[0], c->args[1], c->args[2], c->args[3], &c->options, stream);
}

static inline uint64_t gg_workspace(kiln_context *ctx, const gg_call *c) {
    uint64_t bytes = 0;
    ck_assert_int_eq(kiln_workspace_size(ctx, "grouped_gemm", c->args, 4, &c->options, &bytes), KILN_OK);
    ck_assert_uint_gt(bytes, 0);
    return bytes;
}

static inline kiln_counters counters_of(kiln_context *ctx) {
    kiln_counters n = {.struct_size = sizeof n};
    ck_assert_int_eq(kiln_context_counters(ctx, &n), KILN_OK);
    return n;
}

#endif
