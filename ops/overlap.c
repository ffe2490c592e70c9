/* Overlap of strided tensors: see overlap.h. */
#include "ops/overlap.h"

#include <string.h>

/* A tensor's axes of more than one index, largest stride first, in bytes. */
typedef struct axes {
    int n;
    int64_t count[5], stride[5];
    int64_t span[6]; /* span[i]: bytes from the first to behind the last element of axes i.. */
} axes;

static axes sort_axes(const kn_tensor *t) {
    axes a = {0};
    int64_t item = (int64_t)kn_dtype_size(t->dtype);
    for (int d = 0; d < t->ndim; d++) {
        if (t->shape[d] == 1) continue;
        int i = a.n++;
        int64_t stride = t->stride[d] * item;
        for (; i > 0 && a.stride[i - 1] < stride; i--) {
            a.stride[i] = a.stride[i - 1];
            a.count[i] = a.count[i - 1];
        }
        a.stride[i] = stride;
        a.count[i] = t->shape[d];
    }
    a.span[a.n] = item;
    for (int i = a.n; i-- > 0;) a.span[i] = a.span[i + 1] + (a.count[i] - 1) * a.stride[i];
    return a;
}

/* Merge neighbouring axes that lie densely in each other, so that views of one parent look alike whatever their
 * number of axes. */
static void merge_dense(axes *a) {
    for (int i = a->n - 2; i >= 0; i--) {
        if (a->stride[i] != a->stride[i + 1] * a->count[i + 1]) continue;
        a->count[i] *= a->count[i + 1];
        a->stride[i] = a->stride[i + 1];
        for (int j = i + 1; j + 1 < a->n; j++) {
            a->count[j] = a->count[j + 1];
            a->stride[j] = a->stride[j + 1];
            a->span[j] = a->span[j + 1];
        }
        a->span[a->n - 1] = a->span[a->n];
        a->n--;
    }
}

static bool meets(const axes *a, int i, const axes *b, int j, int64_t delta);

/* Axes i.. of `x` are one run of bytes. */
static bool is_run(const axes *x, int i) {
    return i == x->n || (i == x->n - 1 && x->stride[i] == x->span[x->n]);
}

/* The outermost axis of one tensor alone (a's axis i, or b's axis j) against all of the other: blocks at k * stride,
 * and the other tensor at `origin`. */
static bool blocks_meet(const axes *a, int i, const axes *b, int j, int64_t delta, bool a_outer) {
    const axes *outer = a_outer ? a : b;
    int at = a_outer ? i : j;
    int64_t stride = outer->stride[at], count = outer->count[at];
    int64_t origin = a_outer ? delta : -delta, length = a_outer ? b->span[j] : a->span[i];
    bool run = a_outer ? is_run(b, j) : is_run(a, i);
    if (stride < outer->span[at + 1] || (stride < length && !run)) return true; /* cannot tell */
    /* Blocks that begin inside of a run meet it with their first element. */
    int64_t first = origin <= 0 ? 0 : (origin + stride - 1) / stride;
    if (run && first < count && first * stride < origin + length) return true;
    for (int64_t k = first - 1; k <= first + (run ? -1 : 1); k++) {
        int64_t block = k < count ? k : count - 1;
        if (block < 0) continue;
        if (meets(a, i + a_outer, b, j + !a_outer, delta + (a_outer ? -block : block) * stride)) return true;
    }
    return false;
}

/* Do axes i.. of `a` at byte 0 and axes j.. of `b` at byte `delta` meet? With a common outer stride S, index p of `a`
 * and q of `b` leave the same question for the inner axes at delta + (q - p)*S: few of these are near enough. */
static bool meets(const axes *a, int i, const axes *b, int j, int64_t delta) {
    if (delta >= a->span[i] || -delta >= b->span[j]) return false;
    if (i == a->n && j == b->n) return true;
    if (i == a->n || j == b->n || a->stride[i] != b->stride[j])
        return blocks_meet(a, i, b, j, delta, j == b->n || (i < a->n && a->stride[i] > b->stride[j]));
    int64_t stride = a->stride[i];
    if (stride < a->span[i + 1] || stride < b->span[j + 1]) return true; /* not nested: cannot tell */
    int64_t near = -delta / stride;
    for (int64_t m = near - 1; m <= near + 1; m++) {
        if (m > b->count[j] - 1 || -m > a->count[i] - 1) continue;
        if (meets(a, i + 1, b, j + 1, delta + m * stride)) return true;
    }
    return false;
}

bool kn_tensors_overlap(const kn_tensor *a, const kn_tensor *b) {
    if (a->bytes == 0 || b->bytes == 0) return false;
    uintptr_t pa = (uintptr_t)a->data, pb = (uintptr_t)b->data;
    if (pa + a->bytes <= pb || pb + b->bytes <= pa) return false;
    axes x = sort_axes(a), y = sort_axes(b);
    int64_t delta = (int64_t)(pb - pa);
    if (!meets(&x, 0, &y, 0, delta)) return false;
    /* Neither form can tell everything: together they see more disjoint pairs. */
    merge_dense(&x);
    merge_dense(&y);
    return meets(&x, 0, &y, 0, delta);
}

bool kn_tensors_identical(const kn_tensor *a, const kn_tensor *b) {
    if (a->data != b->data || a->dtype != b->dtype || a->ndim != b->ndim) return false;
    for (int d = 0; d < a->ndim; d++)
        if (a->shape[d] != b->shape[d] || (a->shape[d] != 1 && a->stride[d] != b->stride[d])) return false;
    return true;
}

bool kn_tensor_overlaps_itself(const kn_tensor *t) {
    if (t->bytes == 0) return false;
    axes a = sort_axes(t);
    for (int i = 0; i < a.n; i++)
        if (a.stride[i] < a.span[i + 1]) return true;
    return false;
}
