/* ops/routed, inside: what the files of routed_experts_backward's planner share. */
#ifndef KN_OPS_ROUTED_INTERNAL_H
#define KN_OPS_ROUTED_INTERNAL_H

#include "ops/gemm.h"
#include "ops/routed.h"

/* The tensors, in the order of the arguments. */
enum {
    KN_ROUTED_GRAD_OUTPUT,
    KN_ROUTED_HIDDEN,
    KN_ROUTED_IDS,
    KN_ROUTED_OFFSETS,
    KN_ROUTED_WEIGHTS,
    KN_ROUTED_GATE,
    KN_ROUTED_UP,
    KN_ROUTED_DOWN,
    KN_ROUTED_SAVED_GATE,
    KN_ROUTED_SAVED_UP,
    KN_ROUTED_GRAD_HIDDEN, /* the first output */
    KN_ROUTED_GRAD_WEIGHTS,
    KN_ROUTED_GRAD_GATE,
    KN_ROUTED_GRAD_UP,
    KN_ROUTED_GRAD_DOWN
};

/* kn_problem.option[]. */
enum {
    KN_ROUTED_MATH,
    KN_ROUTED_WEIGHT_ON,
    KN_ROUTED_EXPERT_LO,
    KN_ROUTED_EXPERTS, /* of the whole layer */
    KN_ROUTED_ALPHA,   /* bits of floats */
    KN_ROUTED_LIMIT,
    KN_ROUTED_ACT_OFFSET
};

/* One rounded representation of a row: its type, and in how many bf16 parts a product takes it. */
typedef struct kn_routed_precision {
    kn_dtype rows;      /* dy and x, sorted by expert */
    kn_dtype gate_up;   /* recomputed g and u */
    kn_dtype act;       /* dg, du, w h */
    kn_dtype dx;        /* dx of each row */
    int forward_split;  /* parts of the operands that make g, u and a */
    int gradient_split; /* of those that make the gradients */
    bool promote;
    int scaled_parts; /* dy and x are kept a second time, as f16 scaled row by row, for the first products: in one part,
                         or as hi + lo; 0: they are not */
} kn_routed_precision;

/* The plan in the making: sizes, choices, and where everything lies in the workspace. */
typedef struct kn_routed {
    const kn_problem *p;
    const kn_device_facts *facts;
    const kn_target *target;
    kn_program_builder *b;
    int64_t tokens, hidden, inner, local, top_k;
    int64_t pairs; /* T * K */
    int64_t rows;  /* bound on all rows that are sorted by expert, with their padding */
    int64_t pad;   /* an expert's rows are a multiple of this */
    kn_dtype in;   /* of hidden states and weights */
    bool sorted;   /* the permuted form */
    bool on_input;
    bool gate_saved, up_saved;
    bool want_hidden, want_weights, want_gate, want_up, want_down;
    bool fast;           /* the Hopper kernel of g, u and a: gemm_rs */
    bool fast_gradients; /* those of the gradients, too: gemm_rs, gemm_dw */
    bool scaled_dx;      /* or that of dx alone, from f16 scaled row by row */
    kn_routed_precision precision;
    int64_t chunks, chunk_pairs; /* of the sort */
    int64_t partials;            /* partial sums of a row */
    int64_t tile, dx_tile;       /* rows of a tile of the first products, and of dx */
    int64_t tail;                /* rows behind the last expert's that its tiles reach into */
    int64_t scaled_skip;         /* from dy and x to their scaled numbers */
    int64_t low_skip;            /* from these to their lo parts */
    struct {
        int64_t counts, offsets, pair_row, row_pair, row_weight; /* the sort's */
        int64_t x, dy, x_scales, dy_scales, gate, up, partials, dx;
        int64_t act_scaled, act_scales; /* dg and du as f16, for scaled_dx */
        int64_t act, dgate, dup, hw;    /* rows of dg, du and w h side by side */
        int64_t inner_map, hidden_map;  /* tile maps of the products with I and with H columns */
    } at;
} kn_routed;

/* routed_sort.c: rows to experts and back. */
void kn_routed_emit_sort(const kn_routed *r);
void kn_routed_emit_gather(const kn_routed *r);
void kn_routed_emit_scale(const kn_routed *r);
void kn_routed_emit_combine(const kn_routed *r);

/* routed_products.c: the products of the three phases. */
bool kn_routed_can_be_fast(const kn_routed *r);
bool kn_routed_can_have_fast_gradients(const kn_routed *r);
bool kn_routed_can_scale_dx(const kn_routed *r);
void kn_routed_reserve_products(kn_routed *r);
void kn_routed_emit_gate_up(const kn_routed *r);
void kn_routed_emit_activation_gradient(const kn_routed *r);
void kn_routed_emit_weight_gradients(const kn_routed *r);
void kn_routed_emit_dx(const kn_routed *r);

static inline bool kn_routed_has(const kn_routed *r, int arg) {
    return r->p->dtype[arg] != KN_DTYPE_NONE;
}
/** Workspace; without tokens too a slice has an address. */
static inline int64_t kn_routed_reserve(kn_routed *r, uint64_t bytes) {
    return kn_add_workspace(r->b, bytes ? bytes : 4);
}
/* Bit of kn_problem.accumulate. */
static inline bool kn_routed_accumulates(const kn_routed *r, int arg) {
    return r->p->accumulate >> (arg - KN_ROUTED_GRAD_HIDDEN) & 1;
}

#endif
