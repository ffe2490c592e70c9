/* Random problems for tests: the tensors of one call of an operation, filled with values that fit together (saved
 * tensors follow from each other, ids are distinct within a row), from a seed. Everything lies in host memory.
 *
 *     kn_gen_config c = kn_gen_defaults("router_backward");
 *     c.tokens = 37;
 *     kn_gen *g;
 *     ck_assert_ok(kn_gen_make(&c, &g));
 *     ck_assert_ok(kn_gen_reference(g));            // g->exact, g->magnitude; before the outputs are written
 *     ... run the operation on g->args ...
 *     ck_assert_ok(kn_gen_check(g));                // every output by the tolerances, and the gaps between rows
 *     kn_gen_free(g);
 *
 * Memory that belongs to no element, and outputs that are not accumulated into, hold NaN patterns (all bits set). */
#ifndef KN_TESTS_SUPPORT_PROBLEM_GEN_H
#define KN_TESTS_SUPPORT_PROBLEM_GEN_H

#include "kiln/kiln_tools.h"
#include "ops/reference.h"

enum { KN_GEN_OPTIONS_CAP = 512 };

typedef struct kn_gen_config {
    const char *op;
    uint64_t seed;
    /* Sizes, by the letters of the argument table; those that the operation lacks are ignored. */
    int64_t batch;         /* B */
    int64_t tokens;        /* T */
    int64_t hidden;        /* H */
    int64_t inner;         /* I and F */
    int64_t experts;       /* E; routed_experts: of the whole layer */
    int64_t local_experts; /* L */
    int64_t top_k;         /* K */
    int64_t aux_rows;      /* S */
    int64_t m, n, k;       /* of products */
    int64_t groups;        /* G */
    kn_dtype dtype;        /* of hidden states and weights, where there is a choice */
    kn_dtype side_dtype;   /* of router_logits, grad_routing_weights, grad_expert_mask, grad_router_logits */
    kn_dtype out_dtype;    /* of outputs, where there is a choice */
    kn_dtype id_dtype;     /* KN_I32 or KN_I64 */
    double scale;          /* of gradients, hidden states and weights */
    int skip_percent;      /* of the ids that become -1 */
    int skew;              /* 1: low expert numbers are chosen far more often */
    int sorted;            /* routed_experts: expert_offsets and sorted rows instead of topk_indices */
    int training;          /* load_balance */
    int gap;               /* elements between the rows of tensors; 0: compact */
    uint64_t absent;       /* bit i: argument i is NULL */
    uint64_t swapped;      /* bit i: the last two axes of argument i are swapped in memory */
    union {                /* the operation's options; zeros are the defaults */
        kiln_common_options common;
        kiln_load_balance_backward_options load_balance;
        kiln_router_backward_options router;
        kiln_expert_mlp_backward_options expert_mlp;
        kiln_moe_layer_backward_options moe_layer;
        kiln_routed_experts_backward_options routed;
        kiln_gemm_options gemm;
        kiln_grouped_gemm_options grouped;
        unsigned char bytes[KN_GEN_OPTIONS_CAP];
    } options;
} kn_gen_config;

typedef struct kn_gen {
    kn_gen_config config;
    kn_op op; /* name, args, n_args, n_outputs alone */
    kn_call call;
    DLTensor tensor[KN_MAX_TENSORS];
    const DLTensor *args[KN_MAX_TENSORS]; /* NULL where absent */
    int64_t stride[KN_MAX_TENSORS][5];
    void *memory[KN_MAX_TENSORS];
    size_t memory_bytes[KN_MAX_TENSORS];
    double *exact[8], *magnitude[8];
    uint64_t random;
} kn_gen;

/** A small problem of `op` with every required tensor; optional ones are absent. */
kn_gen_config kn_gen_defaults(const char *op);
/** Argument of `op` by name, -1 if there is none; and as a bit for config.absent. */
int kn_gen_arg(const char *op, const char *name);
/** What the public table says of an operation, and its reference: name, args, n_args, n_outputs, options_size,
 *  reference. Works for operations that the registry lacks. */
kn_status kn_gen_op(const char *name, kn_op *out);
kn_status kn_gen_make(const kn_gen_config *config, kn_gen **out);
void kn_gen_free(kn_gen *g);

/** The reference's outputs into g->exact and g->magnitude. */
kn_status kn_gen_reference(kn_gen *g);
/** Compare the outputs with them; results[8]. */
kn_status kn_gen_compare(kn_gen *g, kiln_check_result *results);
/** KN_OK, or KN_E_SIM with the first output that is out of tolerance or the first gap that was written to. */
kn_status kn_gen_check(kn_gen *g);
/** Store the exact results, rounded to the outputs' types, into the outputs. */
void kn_gen_store_exact(kn_gen *g);

/** Elements of argument i by their compact index. */
double kn_gen_get(const kn_gen *g, int arg, int64_t linear);
void kn_gen_put(kn_gen *g, int arg, int64_t linear, double value);
int64_t kn_gen_elements(const kn_gen *g, int arg);

/** The generator behind it: 64 random bits, uniform [0, 1), a normal number, [0, n). */
uint64_t kn_gen_bits(kn_gen *g);
double kn_gen_uniform(kn_gen *g);
double kn_gen_normal(kn_gen *g);
int64_t kn_gen_below(kn_gen *g, int64_t n);

#endif
