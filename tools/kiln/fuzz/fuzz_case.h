/* One case of `kiln fuzz`: everything that decides a call, as a description from which memory and values are made again
 * and again. Cases are drawn from a seed (fuzz_draw.c), made smaller (fuzz_shrink.c), and kept as JSON (fuzz_case.c).
 */
#ifndef KILN_TOOL_FUZZ_CASE_H
#define KILN_TOOL_FUZZ_CASE_H

#include "problems/problem_fill.h"
#include "tensors/tensors.h"

/* How a tensor lies in memory; all zero: compact, at an address of 256 bytes. */
typedef struct kt_fuzz_layout {
    bool swapped;        /* the last axis but one is the contiguous one */
    bool turned;         /* of three axes or more: the first lies inside the second */
    bool expanded;       /* the first axis has stride 0: all rows are one */
    bool at_end;         /* the last element ends where the guard page begins, as far as alignment lets it */
    int64_t spread;      /* elements skipped between neighbours along the contiguous axis */
    int64_t gap;         /* elements skipped behind each row */
    int64_t shift;       /* elements between a multiple of 256 bytes and the first element */
    int64_t byte_offset; /* the part of `shift` that is given as byte_offset, in elements */
} kt_fuzz_layout;

/** No gaps, no other order of axes, at an address of 256 bytes; wherever it ends. */
bool kt_fuzz_is_compact(const kt_fuzz_layout *l);

typedef enum kt_fuzz_path {
    KT_FUZZ_PATH_AUTO,
    KT_FUZZ_PATH_PORTABLE, /* the portable kernels */
    KT_FUZZ_N_PATHS
} kt_fuzz_path;

typedef enum kt_fuzz_poison { KT_FUZZ_FINITE, KT_FUZZ_NAN, KT_FUZZ_INFINITE, KT_FUZZ_N_POISONS } kt_fuzz_poison;

typedef struct kt_fuzz_case {
    const kt_op *op;
    uint64_t seed; /* of the values */
    int64_t size[26];
    const kt_dtype *dtype[KT_MAX_ARGS]; /* NULL: absent */
    kt_fuzz_layout layout[KT_MAX_ARGS];
    json_t *settings; /* the operation's options */
    double scale;
    kt_values values;
    kt_ids ids;
    int skip_percent, wild_percent;
    kt_fuzz_poison poison; /* what one token's row of gradients holds */
    bool training;
    bool in_place; /* load_balance_backward: the output is grad_expert_mask */
    kt_fuzz_path path;
} kt_fuzz_case;

/** A copy, with settings of its own. */
kt_fuzz_case kt_fuzz_case_copy(const kt_fuzz_case *c);
void kt_fuzz_case_free(kt_fuzz_case *c);

json_t *kt_fuzz_case_to_json(const kt_fuzz_case *c);
int kt_fuzz_case_from_json(const json_t *json, kt_fuzz_case *out);

/** Make sizes, optional tensors and options fit each other again after one of them has changed. */
void kt_fuzz_case_mend(kt_fuzz_case *c);
/** Place of an argument that is there; -1 otherwise. */
int kt_fuzz_case_arg(const kt_fuzz_case *c, const char *name);

/** Multiply-adds of the case, more or less, and the elements that it touches. */
double kt_fuzz_case_work(const kt_fuzz_case *c);
/** "T=24 H=64 ..., bf16, sigmoid": in a line, for people; free it. */
char *kt_fuzz_case_text(const kt_fuzz_case *c);

extern const char *const kt_fuzz_values_names[KT_N_VALUES];
extern const char *const kt_fuzz_ids_names[KT_N_IDS];
extern const char *const kt_fuzz_poison_names[KT_FUZZ_N_POISONS];
extern const char *const kt_fuzz_path_names[KT_FUZZ_N_PATHS];

/* What draws are held to. */
typedef struct kt_fuzz_limits {
    double work;       /* the most multiply-adds */
    double large_work; /* of one case in ten, whose sizes go further; 0: of none */
    int64_t fixed[26]; /* sizes that are not drawn; -1: drawn */
    double scale;      /* 0: drawn */
} kt_fuzz_limits;

/** Case `number` of `seed`: the same one whatever other operations are fuzzed. */
kt_fuzz_case kt_fuzz_draw(const kt_op *op, uint64_t seed, uint64_t number, const kt_fuzz_limits *limits);

#endif
