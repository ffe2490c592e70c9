/* Many sets of features and options, each with many token counts, all of them checked in full against the float64
 * reference; and what was drawn, as a table. A test says how a set and its token counts are drawn, and what is counted;
 * its main is kn_sets_main. Such a program takes
 *
 *     [SETS [COUNTS [SEED [DEVICE [SECONDS [FIRST]]]]]]       default: 304 60 1 cuda:0
 *
 * and is skipped where there is no GPU; DEVICE may be sim. With SECONDS no set is begun after that many; how many were
 * finished is said, and too few of them fail. FIRST, the first set that was not begun, goes on from there. */
#ifndef KN_TESTS_SUPPORT_PROBLEM_SETS_H
#define KN_TESTS_SUPPORT_PROBLEM_SETS_H

#include "jit/program.h"
#include "support/problem_gen.h"

enum { KN_SETS_ROWS = 32, KN_SETS_COLUMNS = 12 };

/* A line of the table. */
typedef struct kn_sets_row {
    const char *name, *column[KN_SETS_COLUMNS];
} kn_sets_row;

/* One problem, after it ran. */
typedef struct kn_sets_problem {
    const kn_gen *g;
    int64_t launches;
    bool exact;                /* its kernels were made for its very number of tokens */
    const kn_program *program; /* that it ran */
} kn_sets_problem;

/* `drawn` is the table's numbers, a row each of `rows`. */
typedef void kn_sets_count(const kn_sets_problem *p, int64_t (*drawn)[KN_SETS_COLUMNS]);

typedef struct kn_sets {
    const char *op;
    /** Features and options of set i; draw with kn_draw_below from `state`. */
    kn_gen_config (*draw)(uint64_t *state, int64_t i);
    /** The number of tokens of problem n of set i into `c`, and what goes with it. */
    void (*draw_tokens)(uint64_t *state, int64_t i, int64_t n, kn_gen_config *c);
    /** What a config does not say, or NULL: may change the inputs of a problem that was made. */
    void (*adjust)(kn_gen *g);
    kn_sets_count *count;
    /** Whether problem n of set i is run with kernels of its very shapes, which take long to build; NULL: none is. The
     * others share generic ones. */
    bool (*exact)(int64_t i, int64_t n);
    const kn_sets_row *rows;
    int n_rows;
} kn_sets;

int kn_sets_main(const kn_sets *what, int argc, char **argv);

/** A random number of [0, n). */
int64_t kn_draw_below(uint64_t *state, int64_t n);
/** A number where kernels have their edges, of 1 to `most`. */
int64_t kn_draw_edge(uint64_t *state, int64_t most);
/** One of the types of numbers, bf16, f16 and f32; and its place among them. */
kn_dtype kn_draw_dtype(uint64_t *state);
int kn_sets_dtype_column(kn_dtype t);
/** The first of `n` rising ends that v does not exceed; n: none. */
int kn_sets_class(int64_t v, const int64_t *ends, int n);
/** Kernels of template `name` among the program's launches that have parameter `param` (NULL: any) of `value` (NULL:
 * any). */
int kn_sets_kernels(const kn_program *p, const char *name, const char *param, const char *value);

/* A row of the table for how matrix products were made: launches of each kind, a launch in every column that fits. */
#define KN_SETS_PRODUCTS                                                                                               \
    {                                                                                                                  \
        "products", {                                                                                                  \
            "portable", "pingpong", "coop", "lean", "swapped", "halves", "paired", "quarters", "boxes", "resident",    \
                "dw", "parts"                                                                                          \
        }                                                                                                              \
    }
void kn_sets_count_products(const kn_program *p, int64_t *row);

#endif
