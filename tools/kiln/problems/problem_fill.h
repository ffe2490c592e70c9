/* Values for the tensors of one call that fit together: saved tensors follow from each other, ids are distinct within a
 * row, offsets rise. Shared by `kiln fuzz` and the tests, which compile this file too: it needs libc and the public
 * headers alone.
 *
 * Gradients, hidden states and weights grow with `scale`; logits, scores and pre-activations do not, so that no score
 * saturates. */
#ifndef KILN_PROBLEM_FILL_H
#define KILN_PROBLEM_FILL_H

#include "common/host_numbers.h"
#include "kiln/kiln.h"

#include <stdbool.h>
#include <stdint.h>

enum { KT_PROBLEM_TENSORS = 24 };

/* What stands in tensors of free values. */
typedef enum kt_values {
    KT_VALUES_NORMAL,
    KT_VALUES_TIES,     /* of a few numbers that every type holds exactly, zero among them */
    KT_VALUES_SPARSE,   /* two in three are zero */
    KT_VALUES_POSITIVE, /* of one sign: rounding errors add up */
    KT_VALUES_OUTLIERS, /* one in 64 is 256 times as large */
    KT_N_VALUES
} kt_values;

/* How tokens choose experts (or rows, where ids are rows). */
typedef enum kt_ids {
    KT_IDS_UNIFORM,
    KT_IDS_SKEWED, /* the first eighth of the experts is chosen far more often */
    KT_IDS_LAST,   /* all tokens choose the same, the last ones */
    KT_IDS_REPEAT, /* a token may choose an expert more than once; where ids must be distinct: uniform */
    KT_N_IDS
} kt_ids;

typedef struct kt_problem {
    const char *op;
    const DLTensor *tensor[KT_PROBLEM_TENSORS]; /* in host memory; NULL where absent */
    void *options;    /* the operation's option struct; sizes that no tensor gives are written into it */
    int64_t size[26]; /* by axis letter */
    kt_random random;
    double scale;
    kt_values values;
    kt_ids ids;
    int skip_percent; /* of the ids that become -1 */
    int wild_percent; /* of the ids that become numbers outside of all experts */
    bool training;    /* load_balance_backward */
} kt_problem;

/** Write all inputs. NULL, or a sentence that says what does not fit. */
const char *kt_problem_fill(kt_problem *p);
/** Normal numbers of standard deviation `sd` into every element of `t`: what an output that is added to holds before.
 */
void kt_problem_fill_output(kt_problem *p, const DLTensor *t, double sd);
/** Place of an operation's argument; -1 if it has none of that name. */
int kt_problem_arg(const char *op, const char *name);

/** Elements of a tensor by their place in compact row-major order. Stores round to nearest even. */
double kt_problem_get(const DLTensor *t, int64_t linear);
void kt_problem_put(const DLTensor *t, int64_t linear, double value);
int64_t kt_problem_elements(const DLTensor *t);
void *kt_problem_element(const DLTensor *t, int64_t linear);

#endif
