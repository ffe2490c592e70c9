/* Judging a fuzz case's outputs by the float64 reference: the library's tolerances for every element, and a Frobenius
 * rule for tensors, rows and experts that needs no size of 64. */
#ifndef KILN_TOOL_FUZZ_CHECK_H
#define KILN_TOOL_FUZZ_CHECK_H

#include "fuzz/fuzz_memory.h"

#include "kiln/kiln_tools.h"

typedef struct kt_fuzz_oracle {
    int n;                /* outputs of the operation */
    int arg[KT_MAX_ARGS]; /* the argument that output k is */
    double *exact[KT_MAX_ARGS], *magnitude[KT_MAX_ARGS];
} kt_fuzz_oracle;

/** The reference's results; before the call, for outputs may be added to. */
int kt_fuzz_oracle_make(const kt_fuzz_memory *m, kt_fuzz_oracle *out);
void kt_fuzz_oracle_free(kt_fuzz_oracle *o);

/** KT_CHECK and a sentence if an output is wrong; *arg: which. *worst: the largest error as a part of its bound. */
int kt_fuzz_oracle_judge(const kt_fuzz_oracle *o, const kt_fuzz_memory *m, int *arg, double *worst);

#endif
