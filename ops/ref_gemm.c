/* ops/ref_gemm: float64 references of gemm and grouped_gemm. */
#include "ops/ref_common.h"

enum { GEMM_A, GEMM_B };
enum { GROUPED_A, GROUPED_B, GROUPED_OFFSETS };

kn_status kn_gemm_reference(const kn_call *call, double *const *exact, double *const *magnitude) {
    kn_arena arena = {0};
    kn_ref a, b, d;
    kn_status st = KN_OK;
    KN_TRY_OUT(st, kn_ref_read(&arena, &call->tensor[GEMM_A], 0, &a));
    KN_TRY_OUT(st, kn_ref_read(&arena, &call->tensor[GEMM_B], 0, &b));
    KN_TRY_OUT(st, kn_ref_zero(&arena, a.rows, b.cols, &d));
    KN_TRY_OUT(st, kn_ref_product(&a, false, &b, false, &d));
    st = kn_ref_output(call, 0, 0, &d, exact, magnitude);
out:
    kn_arena_free(&arena);
    return st;
}

/* Rows [from, to) of a matrix, without a copy. */
static kn_ref rows_of(const kn_ref *a, int64_t from, int64_t to) {
    return (kn_ref){to - from, a->cols, a->x + from * a->cols, a->m + from * a->cols};
}

/* The range of group g, held within [0, limit]. */
static void group_range(const kn_tensor *offsets, int64_t g, int64_t limit, int64_t *from, int64_t *to) {
    *from = kn_ref_id(offsets, kn_ref_at(offsets, g, 0));
    *to = kn_ref_id(offsets, kn_ref_at(offsets, g + 1, 0));
    if (*from < 0) *from = 0;
    if (*to > limit) *to = limit;
    if (*from > *to) *from = *to;
}

/* Rows of a and d sorted by group, one b a group. Rows in no group are zero. */
static kn_status ragged_rows(const kn_call *call, kn_arena *arena, double *const *exact, double *const *magnitude) {
    const kn_tensor *t = call->tensor;
    int64_t groups = t[GROUPED_OFFSETS].shape[0] - 1, from, to;
    kn_ref a, d;
    KN_TRY(kn_ref_read(arena, &t[GROUPED_A], 0, &a));
    KN_TRY(kn_ref_zero(arena, a.rows, t[GROUPED_B].shape[2], &d));
    for (int64_t g = 0; g < groups; g++) {
        kn_ref b;
        group_range(&t[GROUPED_OFFSETS], g, a.rows, &from, &to);
        KN_TRY(kn_ref_read(arena, &t[GROUPED_B], g, &b));
        kn_ref a_rows = rows_of(&a, from, to), d_rows = rows_of(&d, from, to);
        KN_TRY(kn_ref_product(&a_rows, false, &b, false, &d_rows));
    }
    return kn_ref_output(call, 0, 0, &d, exact, magnitude);
}

/* Both operands sorted by group along the depth, one d a group. */
static kn_status ragged_depth(const kn_call *call, kn_arena *arena, double *const *exact, double *const *magnitude) {
    const kn_tensor *t = call->tensor;
    int64_t groups = t[GROUPED_OFFSETS].shape[0] - 1, from, to;
    kn_ref a, b, turned;
    KN_TRY(kn_ref_read(arena, &t[GROUPED_A], 0, &a));
    KN_TRY(kn_ref_read(arena, &t[GROUPED_B], 0, &b));
    KN_TRY(kn_ref_zero(arena, a.cols, a.rows, &turned)); /* so that a group is a range of rows */
    for (int64_t i = 0; i < a.rows * a.cols; i++) {
        int64_t at = i % a.cols * a.rows + i / a.cols;
        turned.x[at] = a.x[i];
        turned.m[at] = a.m[i];
    }
    for (int64_t g = 0; g < groups; g++) {
        kn_ref d;
        group_range(&t[GROUPED_OFFSETS], g, b.rows, &from, &to);
        KN_TRY(kn_ref_zero(arena, a.rows, b.cols, &d));
        kn_ref a_part = rows_of(&turned, from, to), b_part = rows_of(&b, from, to);
        KN_TRY(kn_ref_product(&a_part, true, &b_part, false, &d));
        KN_TRY(kn_ref_output(call, 0, g * d.rows * d.cols, &d, exact, magnitude));
    }
    return KN_OK;
}

kn_status kn_grouped_gemm_reference(const kn_call *call, double *const *exact, double *const *magnitude) {
    const kiln_grouped_gemm_options *options = call->options;
    kn_arena arena = {0};
    kn_status st = options->ragged == KILN_RAGGED_M ? ragged_rows(call, &arena, exact, magnitude)
                                                    : ragged_depth(call, &arena, exact, magnitude);
    kn_arena_free(&arena);
    return st;
}
