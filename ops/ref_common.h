/* ops/ref_common: what the float64 references share: matrices that carry their magnitudes, element loads, products. */
#ifndef KN_OPS_REF_COMMON_H
#define KN_OPS_REF_COMMON_H

#include "base/arena.h"
#include "kiln/kiln_tools.h"
#include "ops/reference.h"

/* A compact row-major matrix x and its magnitudes m: m is the expression that made x with every factor replaced by its
 * absolute value. Both live in an arena. */
typedef struct kn_ref {
    int64_t rows, cols;
    double *x, *m;
} kn_ref;

/** Element at `offset` elements of t's data as a double; integers and bools too. */
double kn_ref_load(const kn_tensor *t, int64_t offset);
/** An id: element at `offset` of an int32 or int64 tensor. */
int64_t kn_ref_id(const kn_tensor *t, int64_t offset);
static inline bool kn_ref_present(const kn_tensor *t) {
    return t->dtype != KN_DTYPE_NONE;
}
/** Element [i] or [i, j] of a tensor of rank 1 or 2; a tensor of rank 1 ignores j. */
static inline int64_t kn_ref_at(const kn_tensor *t, int64_t i, int64_t j) {
    return i * t->stride[0] + (t->ndim > 1 ? j * t->stride[1] : 0);
}
/** Offset in the tensor's own strides of element `linear` of the compact row-major order. */
int64_t kn_ref_offset(const kn_tensor *t, int64_t linear);

kn_status kn_ref_zero(kn_arena *arena, int64_t rows, int64_t cols, kn_ref *out);
/** A tensor of rank 1 (one column) or 2, or matrix `index` of a tensor of rank 3; m = |x|. */
kn_status kn_ref_read(kn_arena *arena, const kn_tensor *t, int64_t index, kn_ref *out);
/** out += op(a) * op(b), op the transpose where ta, tb say so. Parallel over the rows of `out`. */
kn_status kn_ref_product(const kn_ref *a, bool ta, const kn_ref *b, bool tb, kn_ref *out);
/** Who makes this thread's large products; NULL: kn_ref_product itself. */
void kn_ref_set_products(kiln_product_fn function, void *user);
/** `a` is rounded to type t on its way into a product: magnitudes other than 0 become at least t's smallest normal
 *  number, below which a rounding is not relative any more. Matters for f16 alone. */
void kn_ref_rounded_to(kn_ref *a, kn_dtype t);
/** Set row i to zero: a row that takes part in no sum. */
void kn_ref_clear_row(kn_ref *a, int64_t i);

/** True if the caller asks for output i. */
static inline bool kn_ref_wanted(double *const *exact, double *const *magnitude, int i) {
    return (exact && exact[i]) || (magnitude && magnitude[i]);
}
/** Hand matrix r out as output i, from element `offset` of it on; adds what the tensor holds if i is accumulated into.
 */
kn_status kn_ref_output(const kn_call *call, int i, int64_t offset, const kn_ref *r, double *const *exact,
                        double *const *magnitude);

/* ---- activations ------------------------------------------------------------------------------------------------ */

/* h = g' * sigmoid(alpha*g') * (u' + offset), g' = min(g, limit), u' = clamp(u, -limit, limit), and its derivatives. */
typedef struct kn_ref_act {
    double alpha, limit, offset;
} kn_ref_act;

/* A value and its magnitude. */
typedef struct kn_ref_num {
    double x, m;
} kn_ref_num;

/* silu = g' sigmoid(alpha g'); h = silu * up; dh/dg = dsilu * up, dh/du = silu where `u` is not clamped. */
typedef struct kn_ref_act_parts {
    kn_ref_num silu, dsilu, up; /* up = u' + offset */
    bool g_clamped, u_clamped;  /* then that derivative is zero */
} kn_ref_act_parts;

/** KN_E_UNSUPPORTED for a user's own function: it has no float64 form. */
kn_status kn_ref_act_init(const kiln_activation *activation, kn_ref_act *out);
/** g and u may be results themselves: m > |x| then says how far they can move under rounding, and it enters the
 *  magnitudes of silu and dsilu by their derivatives. */
kn_ref_act_parts kn_ref_act_eval(const kn_ref_act *act, kn_ref_num g, kn_ref_num u);
double kn_ref_sigmoid(double x);

#endif
