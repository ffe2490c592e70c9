/* Verification of a benchmark case. A case is too large for a whole float64 reference, so slices of it are checked:
 * small problems whose outputs are parts of the large one's, because every output depends on few of the sizes along
 * some axis. (A row of grad_hidden_states depends on one token; a column of a weight's gradient on one feature.) The
 * slice's inputs are gathered from the patterns, its outputs from the device; the library's reference and comparison do
 * the rest. */
#ifndef KILN_TOOL_BENCH_VERIFY_H
#define KILN_TOOL_BENCH_VERIFY_H

#include "bench/bench_memory.h"

/* What was verified. */
typedef struct kt_bench_verdict {
    bool pass;
    uint64_t compared;            /* output elements compared with the reference */
    uint64_t not_finite;          /* words with an element that is not finite, in all outputs */
    uint64_t digest[KT_MAX_ARGS]; /* of every output's bits */
    double max_ratio, frobenius;  /* the worst over all slices: error over bound of an element; relative error */
    char message[512];            /* what failed */
} kt_bench_verdict;

/* Ascending indices along some axes; NULL: all of the axis. */
typedef struct kt_bench_slice {
    int64_t *index[26];
    int64_t n[26];
    uint32_t outputs; /* bits of arguments */
    int32_t top_k;    /* of load_balance_backward, whose slices keep B * K; 0 elsewhere */
} kt_bench_slice;

enum { KT_BENCH_MAX_SLICES = 4 };

/** The slices that verify a case of these sizes: how many, or 0 and a sentence for an operation that is not known here.
 *  seed: which elements are drawn. */
int kt_bench_slices(const kt_tensors *tensors, const kt_bench_patterns *patterns, uint64_t seed,
                    kt_bench_slice slices[KT_BENCH_MAX_SLICES]);
void kt_bench_slice_free(kt_bench_slice *slice);

/** Check the outputs that are on the device. */
int kt_bench_verify(kt_bench_memory *memory, const kt_tensors *tensors, const kt_bench_patterns *patterns,
                    const void *options, uint32_t transposed, uint64_t seed, kt_bench_verdict *verdict);
/** Are the outputs' bits still those of `verdict`? */
int kt_bench_same_bits(kt_bench_memory *memory, const kt_tensors *tensors, const kt_bench_verdict *verdict, bool *same);

#endif
