/* Elements of host tensors: the ground of problem_fill.c. */
#include "problems/problem_fill.h"

void *kt_problem_element(const DLTensor *t, int64_t linear) {
    int64_t offset = 0, inner = 1;
    for (int d = t->ndim - 1; d >= 0; d--) {
        offset += linear % t->shape[d] * (t->strides ? t->strides[d] : inner);
        linear /= t->shape[d];
        inner *= t->shape[d];
    }
    return (char *)t->data + t->byte_offset + offset * (t->dtype.bits / 8);
}

double kt_problem_get(const DLTensor *t, int64_t linear) {
    return kt_number_load(t->dtype.code, t->dtype.bits, kt_problem_element(t, linear));
}

void kt_problem_put(const DLTensor *t, int64_t linear, double v) {
    kt_number_store(t->dtype.code, t->dtype.bits, kt_problem_element(t, linear), v);
}

int64_t kt_problem_elements(const DLTensor *t) {
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++) n *= t->shape[d];
    return n;
}
