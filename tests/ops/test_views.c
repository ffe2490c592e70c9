/* Tensors as programs have them, for every operation, on the simulator: anywhere in memory, after an aligned call of
 * the same shape, and with one row expanded over all (a stride of 0, as frameworks give for gradients of sums). The
 * simulator refuses what touches memory outside a tensor. */
#include "support/problem_gen.h"
#include "support/problem_run.h"
#include "support/suite.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 256 };

static kiln_context *ctx;

static kn_gen *make(const char *op, uint64_t seed) {
    kn_gen_config c = kn_gen_defaults(op);
    c.seed = seed;
    c.tokens = c.m = 33;
    c.batch = 40;
    c.hidden = c.n = 64;
    c.inner = c.k = 32;
    kn_gen *g;
    ck_assert_ok(kn_gen_make(&c, &g));
    return g;
}

static const char *op_name(int i) {
    return kn_op_at(i)->name;
}

static int n_ops(void) {
    int n = 0;
    while (kn_op_at(n)) n++;
    return n;
}

/* ---- anywhere in memory ------------------------------------------------------------------------------------------ */

/* Run with argument `arg` moved by `elements` from an aligned address, and its bytes brought back afterwards. */
static void run_shifted(kn_gen *g, int arg, int elements) {
    kn_tensor *t = &g->call.tensor[arg];
    size_t shift = (size_t)elements * kn_dtype_size(t->dtype), room = PAGE + shift + (size_t)t->bytes;
    char *elsewhere = aligned_alloc(PAGE, (room + PAGE - 1) / PAGE * PAGE);
    ck_assert_ptr_nonnull(elsewhere);
    memcpy(elsewhere + shift, t->data, t->bytes);
    DLTensor moved = g->tensor[arg];
    const DLTensor *kept = g->args[arg];
    moved.data = elsewhere + shift;
    moved.byte_offset = 0;
    g->args[arg] = &moved;
    kn_status st = kn_gen_run(g, ctx);
    ck_assert_msg(st == KN_OK, "%s: %s shifted by %d: %s", g->op.name, g->op.args[arg].name, elements,
                  kn_error_message());
    memcpy(t->data, elsewhere + shift, t->bytes);
    g->args[arg] = kept;
    free(elsewhere);
}

START_TEST(tensors_lie_anywhere) {
    static const int shifts[] = {1, 2, 3, 4, 7};
    const char *op = op_name(_i);
    kn_gen *aligned = make(op, 7);
    ck_assert_ok(kn_gen_reference(aligned));
    ck_assert_ok(kn_gen_run(aligned, ctx));
    ck_assert_ok(kn_gen_check(aligned));
    for (int i = 0; i < aligned->op.n_args; i++) {
        if (!aligned->args[i] || aligned->call.tensor[i].bytes == 0) continue;
        kn_gen *g = make(op, 7);
        ck_assert_ok(kn_gen_reference(g));
        run_shifted(g, i, shifts[i % 5]);
        kn_status st = kn_gen_check(g);
        ck_assert_msg(st == KN_OK, "%s: %s shifted by %d: %s", op, g->op.args[i].name, shifts[i % 5],
                      kn_error_message());
        kn_gen_free(g);
    }
    kn_gen_free(aligned);
}
END_TEST

/* Fresh id tensors are aligned and views of them are not: that must not cost a kernel in the middle of a run. */
START_TEST(where_ids_lie_chooses_no_kernel) {
    kiln_counters before = {.struct_size = sizeof before}, after = before;
    kn_gen *g = make(op_name(_i), 7);
    ck_assert_ok(kn_gen_run(g, ctx));
    ck_assert_ok(kiln_context_counters(ctx, &before));
    ck_assert_uint_gt(before.kernels_built, 0);
    for (int i = 0; i < g->op.n_args - g->op.n_outputs; i++) {
        kn_dtype type = g->call.tensor[i].dtype;
        for (int shift = 1; g->args[i] && (type == KN_I32 || type == KN_I64) && shift < 4; shift++) {
            run_shifted(g, i, shift);
            ck_assert_ok(kiln_context_counters(ctx, &after));
            ck_assert_msg(after.kernels_built == before.kernels_built, "%s: kernels were built for %s shifted by %d",
                          g->op.name, g->op.args[i].name, shift);
        }
    }
    kn_gen_free(g);
}
END_TEST

/* ---- one row for all --------------------------------------------------------------------------------------------- */

static bool is_float(kn_dtype t) {
    return t == KN_BF16 || t == KN_F16 || t == KN_F32;
}

/* Every row of the matrix becomes its first. */
static void repeat_first_row(kn_gen *g, int arg) {
    const kn_tensor *t = &g->call.tensor[arg];
    size_t row = (size_t)t->stride[0] * kn_dtype_size(t->dtype), bytes = (size_t)t->shape[1] * kn_dtype_size(t->dtype);
    for (int64_t i = 1; i < t->shape[0]; i++) memcpy((char *)t->data + (size_t)i * row, t->data, bytes);
}

static void same_outputs(const kn_gen *a, const kn_gen *b, const char *what) {
    for (int i = a->op.n_args - a->op.n_outputs; i < a->op.n_args; i++) {
        if (!a->args[i]) continue;
        const kn_tensor *x = &a->call.tensor[i], *y = &b->call.tensor[i];
        ck_assert_msg(memcmp(x->data, y->data, x->bytes) == 0, "%s: %s differs when %s is expanded", a->op.name,
                      a->op.args[i].name, what);
    }
}

START_TEST(one_row_may_stand_for_all) {
    const char *op = op_name(_i);
    int tried = 0, n_inputs = kn_op_at(_i)->n_args - kn_op_at(_i)->n_outputs;
    for (int i = 0; i < n_inputs; i++) {
        kn_gen *copied = make(op, 9), *expanded = make(op, 9);
        const kn_tensor *t = &copied->call.tensor[i];
        if (copied->args[i] && t->ndim == 2 && t->shape[0] > 1 && t->stride[1] == 1 && is_float(t->dtype)) {
            const char *name = copied->op.args[i].name;
            tried++;
            repeat_first_row(copied, i);
            expanded->stride[i][0] = 0;
            expanded->tensor[i].strides = expanded->stride[i];
            expanded->stride[i][1] = 1;
            ck_assert_ok(kn_gen_run(copied, ctx));
            kn_status st = kn_gen_run(expanded, ctx);
            ck_assert_msg(st == KN_OK, "%s: %s expanded: %s", op, name, kn_error_message());
            same_outputs(copied, expanded, name);
        }
        kn_gen_free(copied);
        kn_gen_free(expanded);
    }
    ck_assert_int_gt(tried, 0);
}
END_TEST

static void open_context(void) {
    const kiln_context_options o = {.struct_size = sizeof o, .cache_dir = "off"};
    ck_assert_ok(kiln_context_create("sim", &o, &ctx));
}

static void close_context(void) {
    ck_assert_ok(kiln_context_destroy(ctx));
}

int main(void) {
    Suite *suite = suite_create("ops/views");
    TCase *t = tcase_create("views");
    tcase_add_checked_fixture(t, open_context, close_context);
    tcase_add_loop_test(t, tensors_lie_anywhere, 0, n_ops());
    tcase_add_loop_test(t, where_ids_lie_chooses_no_kernel, 0, n_ops());
    tcase_add_loop_test(t, one_row_may_stand_for_all, 0, n_ops());
    suite_add_tcase(suite, t);
    return kn_run_suite(suite);
}
