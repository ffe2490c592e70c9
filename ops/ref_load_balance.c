/* ops/ref_load_balance: float64 reference of load_balance_backward. */
#include "ops/ref_common.h"

#include <math.h>

enum { GRAD_TOKENS, GRAD_MASK, GRAD_LOSS, TOPK_IDX, EXPERT_MASK, TOKENS_PER_EXPERT, TRAINING, OUT };

kn_status kn_load_balance_reference(const kn_call *call, double *const *exact, double *const *magnitude) {
    const kiln_load_balance_backward_options *options = call->options;
    const kn_tensor *t = call->tensor;
    const kn_tensor *tokens = &t[GRAD_TOKENS], *mask = &t[GRAD_MASK];
    int64_t rows = mask->shape[0], cols = mask->shape[1];
    int64_t k = kn_ref_present(&t[TOPK_IDX]) ? t[TOPK_IDX].shape[1] : options->top_k;
    if (!kn_ref_wanted(exact, magnitude, 0) || rows == 0) return KN_OK;

    kn_arena arena = {0};
    kn_ref out;
    kn_status st = KN_OK;
    KN_TRY_OUT(st, kn_ref_zero(&arena, rows, cols, &out));
    bool training = kn_ref_load(&t[TRAINING], 0) != 0;
    double loss = training ? kn_ref_load(&t[GRAD_LOSS], 0) / ((double)rows * (double)k) : 0;
    for (int64_t b = 0; b < rows; b++) {
        for (int64_t e = 0; e < cols; e++) {
            double m = kn_ref_load(mask, kn_ref_at(mask, b, e)), c = kn_ref_load(tokens, kn_ref_at(tokens, e, 0));
            out.x[b * cols + e] = m + c + loss;
            out.m[b * cols + e] = fabs(m) + fabs(c) + fabs(loss);
        }
    }
    st = kn_ref_output(call, 0, 0, &out, exact, magnitude);
out:
    kn_arena_free(&arena);
    return st;
}
