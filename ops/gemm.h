/* ops/gemm: the one place where matrix products are planned. An operation describes a product with its fusion as a
 * kn_gemm; kn_gemm_emit chooses path, tile and split, and adds the kernels and launches to the operation's program.
 *
 *     D[M,N] (+)= sum over s of A_s[M,K_s] * B_s[K_s,N]        accumulated in fp32
 *
 * Two paths make the same sums with the same epilogues:
 *   gemm_sm80.ptxt  mma.sync, any shape, stride and alignment, any GPU from sm_80 up (ops/gemm_portable.c)
 *   gemm_sm90.ptxt  TMA + wgmma, aligned shapes on sm_90a (ops/gemm_sm90.c)
 *
 * An epilogue is a macro file ptx_templates/lib/epi_<name>.ptxi that both templates include: it receives pairs of
 * neighbouring accumulators with their row and column. See docs/gemm.md for its contract. */
#ifndef KN_OPS_GEMM_H
#define KN_OPS_GEMM_H

#include "jit/program.h"

enum { KN_GEMM_MAX_SEGMENTS = 3, KN_GEMM_MAX_EPI_BINDINGS = 16, KN_GEMM_MAX_EPI_PARAMS = 12 };

/* Where a matrix lies: a tensor argument, or a slice of the workspace. */
typedef struct kn_place {
    bool in_workspace;
    int arg;              /* tensor index */
    int64_t offset_bytes; /* added to the tensor's address, or the workspace slice */
} kn_place;

static inline kn_place kn_place_arg(int arg) {
    return (kn_place){.arg = arg};
}
static inline kn_place kn_place_workspace(int64_t offset_bytes) {
    return (kn_place){.in_workspace = true, .arg = -1, .offset_bytes = offset_bytes};
}

/* One operand. For A the rows are M and the depth is K; for B the rows are N and the depth is K. */
typedef struct kn_gemm_operand {
    kn_place place;
    kn_dtype dtype;        /* bf16, f16 or f32 */
    bool depth_contiguous; /* true: K is the contiguous axis ("K-major"); false: M or N is ("MN-major") */
    int stride_dim; /* tensor argument: the axis whose run-time stride leads from row to row (K-major) or from k to k
                       (MN-major); -1: use stride_elems */
    int64_t stride_elems;
    int group_dim; /* tensor argument: axis whose stride leads from group to group; -1: use group_elems */
    int64_t group_elems;
    int align_log2; /* address and strides are multiples of 1 << align_log2 bytes */
} kn_gemm_operand;

typedef enum kn_group_kind {
    KN_GROUP_NONE,
    KN_GROUP_M,    /* rows of A and D are sorted by group, B has one matrix a group; needs offsets and a tile map */
    KN_GROUP_K,    /* both operands are sorted by group along K, D has one matrix a group; needs offsets */
    KN_GROUP_BATCH /* every group has the same M, N, K: one matrix a group in A, B and D */
} kn_group_kind;

/* The tensor core cuts off about 2^-25 of a sum at each step of 16. Sums that must be precise leave it now and then;
 * those of three chained products of hi + lo parts so often that they stay below 2e-6 even where all terms have one
 * sign. */
enum { KN_GEMM_PROMOTE = 256, KN_GEMM_PROMOTE_CHAIN = 64 };

/* An integer of the launch: a constant, which exact kernels bake in. */
typedef struct kn_gemm {
    const char *symbol; /* goes into the kernel's name: "expert_mlp_da" */
    int64_t m, n;       /* m: with KN_GROUP_M the bound on all rows together */
    bool m_is_tokens;   /* m must be a run-time argument in generic programs */
    bool k_is_tokens;   /* so must k */
    bool one_tile;      /* generic: one portable kernel for all numbers of tokens */
    int n_segments;     /* 1..3, concatenated along K into one accumulator */
    struct {
        kn_gemm_operand a, b;
        int64_t k; /* with KN_GROUP_K the bound on all rows together */
    } segment[KN_GEMM_MAX_SEGMENTS];
    bool b_switch; /* the device chooses: where b_flag (i32) is not 0, B of segment s is b_instead[s] */
    kn_place b_flag;
    kn_gemm_operand b_instead[KN_GEMM_MAX_SEGMENTS];
    int a_split, b_split; /* bf16 parts that an operand is taken as: 1; 2 (16 bits, products hi*hi, hi*mid, mid*hi); 3
                             (24 bits, six products) */
    int32_t promote;      /* k after which partial sums move to fp32 registers, KN_GEMM_PROMOTE...; 0: never */

    bool has_counters; /* an earlier launch of the program sets `counters` to 0: kn_gemm_counters of them */
    kn_place counters; /* u32 */

    kn_group_kind group;
    int64_t n_groups;
    kn_place offsets; /* i32 or i64 [n_groups + 1] on the device */
    kn_dtype offsets_dtype;
    kn_place tile_map; /* KN_GROUP_M: i32 [kn_gemm_tile_map_entries][2]: (group, first row), group -1 = nothing; made by
                          kn_gemm_emit_tile_map for this product's row tile */

    kn_place gather;       /* A's rows are gathered: row r of A is row gather[r] of the tensor; -1 reads zeros */
    kn_dtype gather_dtype; /* KN_I32, KN_I64; KN_DTYPE_NONE: no gather */

    /* The destination of epilogue "store"; other epilogues bind their own. */
    kn_gemm_operand d; /* dtype bf16, f16, f32; depth_contiguous unused */
    bool accumulate;   /* D += (beta 1) */

    const char *epilogue;  /* "store" and so on */
    uint32_t n_epi_params; /* further template parameters of the epilogue */
    kn_param epi_param[KN_GEMM_MAX_EPI_PARAMS];
    int epi_align_log2;         /* not "store": addresses and rows of its tensors are multiples of 1 << this */
    int most_accumulators[2];   /* not "store": how many a thread may hold beside what the epilogue needs, without and
                                   with the operands swapped; 0: 128 */
    kn_gemm_operand epi_box[4]; /* "row_swiglu_backward": g, u, dg, du, if TMA may move them: no h, sums or weights are
                                   wanted; KN_DTYPE_NONE: it may not */
    uint32_t n_epi_bind;        /* its kernel arguments, in the order of its epi_params macro */
    kn_binding epi_bind[KN_GEMM_MAX_EPI_BINDINGS];
} kn_gemm;

/** Rows of the tile that the chosen plan uses along M (for tile maps and for partials along M). */
int64_t kn_gemm_tile_m(const kn_gemm *g, const kn_problem *p, const kn_target *target);
/** Entries of the tile map for at most `rows` rows in `n_groups` groups. */
int64_t kn_gemm_tile_map_entries(int64_t rows, int64_t n_groups, int64_t tile_m);

/** Add the kernel that turns group offsets into the row tile map of a KN_GROUP_M product. */
void kn_gemm_emit_tile_map(kn_program_builder *b, const kn_gemm *g, const kn_problem *p, const kn_target *target);
/** Add up to four products of equal majorness, types and depth as one launch where the path allows it (weight gradients
 * of one operation), else one launch each. Only the last may have more than one segment. */
void kn_gemm_emit_group(kn_program_builder *b, const kn_gemm *const *g, int n, const kn_problem *p,
                        const kn_device_facts *facts, const kn_target *target);
/** Whether the product's kernel has warps to spare for FILL of epilogue "row_swiglu_backward". */
bool kn_gemm_may_fill(const kn_gemm *g, const kn_problem *p, const kn_target *target);
/** Above so many rows no product counts. */
enum { KN_GEMM_MOST_COUNTED = 256 };
/** How many counters the product needs that are 0 before its launch; it adds a launch that clears some of its own
 * unless it is told where there are some (has_counters). */
int64_t kn_gemm_counters(const kn_gemm *g, const kn_problem *p, const kn_target *target);
/** Add the product. */
void kn_gemm_emit(kn_program_builder *b, const kn_gemm *g, const kn_problem *p, const kn_device_facts *facts,
                  const kn_target *target);

#endif
