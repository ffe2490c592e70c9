/* Kiln: backward passes of mixture-of-experts layers, generated for the shapes it sees.
 *
 *     kiln_context *ctx;
 *     if (kiln_context_create("auto", NULL, &ctx)) puts(kiln_error_message());
 *     kiln_load_balance_backward(ctx, &gt, &gm, &gl, NULL, NULL, NULL, &training, &out, NULL, stream);
 *
 * Rules that hold everywhere
 * - Every function returns an int32_t status: KILN_OK (0) or a KILN_E_* code; kiln_error_message() then gives one
 *   sentence that names the argument, what was seen and what was wanted. The sentence belongs to the calling thread.
 * - Tensors are borrowed DLPack `DLTensor`s: address = data + byte_offset, strides in elements, NULL strides = compact
 *   row-major. An optional tensor or an unwanted output is NULL. The last axis is contiguous and row strides are free,
 *   unless the operation says otherwise. A tensor with no elements may have NULL data.
 * - Work is asynchronous on `stream` (a CUstream; NULL = the legacy default stream) and can be captured into CUDA
 *   graphs once its plan exists. On the simulator calls are synchronous and tensors are host memory.
 * - Outputs must not overlap other tensors, unless the operation says so.
 * - Contexts may be used from several threads at once. All functions are thread-safe unless they say otherwise.
 * - Structs that may grow start with `uint32_t struct_size`: set it to sizeof of the struct and zero the rest.
 *
 * include/kiln/kiln_abi.def lists all functions, arguments and options as a table for callers in other languages. */
#ifndef KILN_KILN_H
#define KILN_KILN_H

#include <stdint.h>

/* KILN_NO_DLPACK_HEADER: use the declaration below even where DLPack's own header is found. */
#if defined(__has_include) && !defined(KILN_NO_DLPACK_HEADER)
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#define KILN_HAS_DLPACK 1
#endif
#endif
#ifndef KILN_HAS_DLPACK
/* The layout of DLPack's DLTensor (all versions since 0.6); the real header is used where there is one. */
typedef struct {
    int32_t device_type; /* 1 CPU, 2 CUDA, 3 CUDA host, 13 CUDA managed */
    int32_t device_id;
} DLDevice;
typedef struct {
    uint8_t code; /* 0 int, 1 uint, 2 float, 4 bfloat, 6 bool */
    uint8_t bits;
    uint16_t lanes; /* 1 */
} DLDataType;
typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} DLTensor;
#endif

#if defined(__GNUC__)
#define KILN_API __attribute__((visibility("default")))
#else
#define KILN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- versions and errors --------------------------------------------------------------------------------------- */

#define KILN_ABI_VERSION 1

#define KILN_OK 0
#define KILN_E_ARG 1          /* an argument's value is not allowed */
#define KILN_E_SHAPE 2        /* a tensor's rank or shape does not fit the others */
#define KILN_E_DTYPE 3        /* a tensor's element type is not supported there */
#define KILN_E_ALIGN 4        /* a pointer or stride is not a multiple of its element */
#define KILN_E_DEVICE 5       /* a tensor lives on another device than the context */
#define KILN_E_OVERLAP 6      /* an output shares memory with another tensor that it may not share with */
#define KILN_E_WORKSPACE 7    /* the caller's workspace is missing or too small */
#define KILN_E_UNAVAILABLE 10 /* a driver, library, function or device is not there */
#define KILN_E_NOT_CACHED 11  /* KILN_ON_MISS=error and a kernel is in no cache layer */
#define KILN_E_CAPTURE 12     /* not possible while the stream is being captured */
#define KILN_E_UNSUPPORTED 13 /* a legal request that this device or version cannot serve */
#define KILN_E_TEMPLATE 20    /* a template does not expand */
#define KILN_E_ASSEMBLE 21    /* the assembler refused the PTX */
#define KILN_E_LOAD 22        /* the driver refused the machine code */
#define KILN_E_LAUNCH 23      /* the driver refused the launch, or the device reported a fault */
#define KILN_E_SIM 24         /* the simulator found a fault in a kernel */
#define KILN_E_IO 30          /* a file operation failed */
#define KILN_E_FORMAT 31      /* a file's contents are not valid */
#define KILN_E_NOMEM 32       /* an allocation failed */
#define KILN_E_ABI 40         /* the caller was built against another version of the interface */
#define KILN_E_HANDLE 41      /* a handle is NULL, freed, or not a handle */
#define KILN_E_FORK 42        /* the process was forked after the driver had been initialised */
#define KILN_E_INTERNAL 99    /* a bug in Kiln */

/** KILN_ABI_VERSION of the library. Works before anything else. */
KILN_API int32_t kiln_abi_version(void);
/** "0.1.0"; static storage. */
KILN_API const char *kiln_version(void);
/** "KILN_E_SHAPE" and so on; static storage. */
KILN_API const char *kiln_status_name(int32_t status);
/** The calling thread's last error sentence, "" if none; valid until that thread's next failure. */
KILN_API const char *kiln_error_message(void);
/** Copy the sentence into buf (NUL-terminated, cut to cap bytes). */
KILN_API int32_t kiln_error_copy(char *buf, uint64_t cap);

/* ---- contexts -------------------------------------------------------------------------------------------------- */

/* An opaque handle: a number, not an address. A freed or made-up one is KILN_E_HANDLE, never a crash. */
typedef struct kiln_context kiln_context;

#define KILN_ON_MISS_DEFAULT 0 /* as KILN_ON_MISS says */
#define KILN_ON_MISS_BUILD 1
#define KILN_ON_MISS_ERROR 2
#define KILN_SHAPES_DEFAULT 0 /* as KILN_SHAPES says */
#define KILN_SHAPES_AUTO 1    /* exact for the first 16 token counts of a set of feature axes, generic beyond */
#define KILN_SHAPES_EXACT 2
#define KILN_SHAPES_GENERIC 3
#define KILN_PATH_DEFAULT 0 /* as KILN_PATH says */
#define KILN_PATH_AUTO 1
#define KILN_PATH_PORTABLE 2 /* the mma.sync kernels everywhere */

typedef struct kiln_context_options {
    uint32_t struct_size;
    int32_t on_miss;             /* KILN_ON_MISS_* */
    int32_t shapes;              /* KILN_SHAPES_* */
    int32_t path;                /* KILN_PATH_* */
    int32_t sm_limit;            /* multiprocessors that a launch may fill; 0 = all. Changes grids, never bits */
    int32_t max_modules;         /* loaded kernels kept; 0 = KILN_MAX_MODULES */
    const char *cache_dir;       /* NULL = KILN_CACHE_DIR; "off" = none */
    const char *cache_read_only; /* ':'-separated packs and directories; NULL = KILN_CACHE_RO */
    int64_t cache_max_bytes;     /* 0 = KILN_CACHE_MAX */
    const char *record;          /* file for new problems; NULL = KILN_RECORD */
    const char *tuning;          /* file of `kiln tune` to follow; NULL = KILN_TUNING; "" = none */
} kiln_context_options;

/** device: "auto" (the GPU if there is one, else the simulator), "cuda:N", "sim" (= "sim:sm_90a"), "sim:sm_80", "null"
 *  (launches return at once, for measuring host cost), "offline:h200" (or another machine's name, or an architecture:
 *  builds its machine code without it, for filling caches; launches return at once); NULL = KILN_DEVICE. options may be
 *  NULL. */
KILN_API int32_t kiln_context_create(const char *device, const kiln_context_options *options, kiln_context **out);
/** Waits for no work: the caller makes sure that none is running. A second destroy is KILN_E_HANDLE. */
KILN_API int32_t kiln_context_destroy(kiln_context *ctx);
/** DLPack device type and number that tensors must have (1, 0 on the simulator). */
KILN_API int32_t kiln_context_device(kiln_context *ctx, int32_t *device_type, int32_t *device_id);
/** Ids outside [0, E) other than -1 that kernels have skipped since the last reset; read without synchronising. */
KILN_API int32_t kiln_context_device_faults(kiln_context *ctx, uint64_t *count);
KILN_API int32_t kiln_context_device_faults_reset(kiln_context *ctx);

/* Options whose default is true: a zeroed struct holds the defaults. */
#define KILN_TRUE 0
#define KILN_FALSE 1

/* ---- options that all operations share -------------------------------------------------------------------------- */

#define KILN_PREPARE_ONLY 1u /* build, load and size everything for these tensors, run nothing; data may be NULL */

typedef struct kiln_common_options {
    uint32_t struct_size; /* of the whole options struct */
    uint32_t flags;       /* KILN_PREPARE_ONLY */
    uint64_t accumulate;  /* bit i: output i (in the order of the arguments) is added to (beta 1), else overwritten */
    void *workspace;      /* NULL: the context's own buffer for this stream (refused under capture) */
    uint64_t workspace_bytes;
} kiln_common_options;

/** Bytes of workspace that operation `op` needs for these tensors (data is not looked at). `args` are the operation's
 *  tensors in order, NULL where absent. A workspace is aligned to 256 bytes. */
KILN_API int32_t kiln_workspace_size(kiln_context *ctx, const char *op, const DLTensor *const *args, int32_t n_args,
                                     const void *options, uint64_t *bytes);

/* ---- load_balance_backward --------------------------------------------------------------------------------------
 * out[b,e] = grad_expert_mask[b,e] + grad_tokens_per_expert[e] + (training ? grad_load_balance_loss / (B*K) : 0)
 * May run in place (grad_expert_mask_out = grad_expert_mask). */

typedef struct kiln_load_balance_backward_options {
    kiln_common_options common;
    int32_t top_k; /* K, when topk_idx is NULL */
    int32_t reserved;
} kiln_load_balance_backward_options;

KILN_API int32_t kiln_load_balance_backward(kiln_context *ctx, const DLTensor *grad_tokens_per_expert, /* f32 [E] */
                                            const DLTensor *grad_expert_mask,                          /* f32 [B,E] */
                                            const DLTensor *grad_load_balance_loss,                    /* f32 [1] */
                                            const DLTensor *topk_idx,          /* int [B,K] or NULL: K alone is used */
                                            const DLTensor *expert_mask,       /* [B,E] or NULL: not read */
                                            const DLTensor *tokens_per_expert, /* [E] or NULL: not read */
                                            const DLTensor *training,          /* bool [1], on the device */
                                            const DLTensor *grad_expert_mask_out, /* f32 [B,E] */
                                            const kiln_load_balance_backward_options *options, void *stream);

/* ---- router_backward ---------------------------------------------------------------------------------------------
 * From the gradient of the K routing weights a token to the gradients of the router's input and weight. */

/* What routing_probs are of the logits. */
#define KILN_SCORE_SOFTMAX 0
#define KILN_SCORE_SIGMOID 1
#define KILN_SCORE_SQRTSOFTPLUS 2     /* sqrt(log(1 + exp(logit))) */
#define KILN_SCORE_SOFTMAX_SELECTED 3 /* softmax over the selected experts alone */
/* What the K selected scores were divided by to be routing weights; D is their sum. */
#define KILN_NORMALISE_SUM 0
#define KILN_NORMALISE_NONE 1
#define KILN_NORMALISE_SUM_EPS 2   /* D + eps */
#define KILN_NORMALISE_SUM_CLAMP 3 /* max(D, eps) */
/* What grad_router_logits is added to. */
#define KILN_LOGITS_GRADIENT_BEFORE_SOFTMAX 0 /* the gradient of the scores */
#define KILN_LOGITS_GRADIENT_AFTER_SOFTMAX 1  /* the gradient of the logits, which it truly is */
/* What the logits' gradient is rounded to before it enters both products. */
#define KILN_ROUND_DLOGITS_INPUT 0 /* the products' input type */
#define KILN_ROUND_DLOGITS_F32 1   /* nothing: it enters as hi + lo */

typedef struct kiln_router_backward_options {
    kiln_common_options common;
    int32_t score;           /* KILN_SCORE_* */
    int32_t normalise;       /* KILN_NORMALISE_* */
    int32_t logits_gradient; /* KILN_LOGITS_GRADIENT_* */
    int32_t round_dlogits;   /* KILN_ROUND_DLOGITS_* */
    double eps;              /* of SUM_EPS and SUM_CLAMP; 0 = 1e-20 */
    double scaling;          /* factor of the routing weights; 0 = 1 */
} kiln_router_backward_options;

KILN_API int32_t kiln_router_backward(kiln_context *ctx, const DLTensor *hidden_states, /* bf16/f16/f32 [T,H] */
                                      const DLTensor *gate_weight,                      /* as hidden [E,H] */
                                      const DLTensor *router_logits,    /* bf16/f16/f32 [T,E] or NULL: z-loss alone */
                                      const DLTensor *routing_probs,    /* f32 [T,E]: the saved scores */
                                      const DLTensor *selected_experts, /* int [T,K], distinct in a row, or -1 */
                                      const DLTensor *routing_weights_sum,  /* f32 [T,1] or NULL: recomputed */
                                      const DLTensor *grad_routing_weights, /* bf16/f16/f32 [T,K] */
                                      const DLTensor *grad_expert_mask, /* bf16/f16/f32 [E,K,T], any strides, or NULL */
                                      const DLTensor *grad_router_logits,      /* bf16/f16/f32 [T,E] or NULL */
                                      const DLTensor *aux_expert_coefficients, /* f32 [S,E] or NULL */
                                      const DLTensor *aux_row,                 /* int32 [T] or NULL */
                                      const DLTensor *z_loss_coefficient,      /* f32 [1] or NULL */
                                      const DLTensor *token_mask,              /* bool [T] or NULL */
                                      const DLTensor *grad_hidden_states,      /* bf16/f16/f32 [T,H] */
                                      const DLTensor *grad_gate_weight,        /* bf16/f16/f32 [E,H] */
                                      const DLTensor *grad_gate_bias,          /* f32 [E] */
                                      const DLTensor *grad_logits,             /* bf16/f16/f32 [T,E] */
                                      const kiln_router_backward_options *options, void *stream);

/* ---- expert_mlp_backward ----------------------------------------------------------------------------------------
 * One SwiGLU expert, w2 (silu(w1 x) * w3 x), on the T of B tokens that token_indices selects. Rows of the outputs [B,H]
 * and [B] that were not selected become zero (or stay, where accumulate adds to them). */

/* h = g' * sigmoid(alpha*g') * (u' + offset), g' = min(g, limit), u' = clamp(u, -limit, limit) */
typedef struct kiln_activation {
    double alpha; /* 0 = 1 */
    double limit; /* 0 = none */
    double offset;
    const char
        *source; /* NULL, or CUDA C: __device__ void f(float g, float u, float dh, float *h, float *dg, float *du) */
} kiln_activation;

typedef struct kiln_expert_mlp_backward_options {
    kiln_common_options common;
    kiln_activation activation;
    int32_t unique_indices; /* KILN_TRUE, or KILN_FALSE: token_indices may repeat; such rows add up in row order */
    int32_t reserved;
} kiln_expert_mlp_backward_options;

KILN_API int32_t kiln_expert_mlp_backward(kiln_context *ctx, const DLTensor *grad_output, /* bf16/f16 [B,H] */
                                          const DLTensor *token_indices,                  /* int [T] */
                                          const DLTensor *selected_tokens,                /* as grad_output [T,H] */
                                          const DLTensor *w1_output,                      /* [T,F] */
                                          const DLTensor *gate_output,                    /* [T,F] or NULL */
                                          const DLTensor *up_output,                      /* [T,F] */
                                          const DLTensor *gated_output,                   /* [T,F] or NULL */
                                          const DLTensor *expert_output,                  /* [T,H] or NULL */
                                          const DLTensor *selected_weights,               /* [T] */
                                          const DLTensor *w1_weight,                      /* [F,H] */
                                          const DLTensor *w2_weight,                      /* [H,F] */
                                          const DLTensor *w3_weight,                      /* [F,H] */
                                          const DLTensor *grad_hidden_states,             /* bf16/f16/f32 [B,H] */
                                          const DLTensor *grad_routing_weights,           /* bf16/f16/f32 [B] */
                                          const DLTensor *grad_w1_weight,                 /* bf16/f16/f32 [F,H] */
                                          const DLTensor *grad_w2_weight,                 /* bf16/f16/f32 [H,F] */
                                          const DLTensor *grad_w3_weight,                 /* bf16/f16/f32 [F,H] */
                                          const kiln_expert_mlp_backward_options *options, void *stream);

/* ---- moe_layer_backward ------------------------------------------------------------------------------------------
 * The shared expert and the sigmoid router of one layer. Without grad_topk_weights every slot of a token gets the
 * public benchmark's stand-in, |grad_output|^2 / K. */

/* Of weights c * s / D, s the selected scores, D their sum and c the scaling factor, with c != 1: */
#define KILN_ROUTER_MODE_BENCHMARK 0 /* the public benchmark's formula, which divides by c */
#define KILN_ROUTER_MODE_EXACT 1     /* the derivative, which multiplies */

typedef struct kiln_moe_layer_backward_options {
    kiln_common_options common;
    double routed_scaling_factor; /* 0 = 1 */
    int32_t norm_topk_prob;       /* KILN_TRUE, or KILN_FALSE: the weights were not divided by D */
    int32_t router_mode;          /* KILN_ROUTER_MODE_* */
} kiln_moe_layer_backward_options;

KILN_API int32_t kiln_moe_layer_backward(kiln_context *ctx, const DLTensor *grad_output, /* bf16/f16 [T,H] */
                                         const DLTensor *hidden_states,                  /* as grad_output [T,H] */
                                         const DLTensor *router_weight,                  /* [E,H] */
                                         const DLTensor *e_score_correction_bias,        /* f32 [E] or NULL: not read */
                                         const DLTensor *router_logits,             /* f32 [T,E] or NULL: not read */
                                         const DLTensor *scores,                    /* f32 [T,E] */
                                         const DLTensor *topk_indices,              /* int [T,K] */
                                         const DLTensor *topk_weights,              /* f32 [T,K] */
                                         const DLTensor *score_mask,                /* f32 [T,E] or NULL */
                                         const DLTensor *shared_expert_gate_weight, /* [I,H] */
                                         const DLTensor *shared_expert_up_weight,   /* [I,H] */
                                         const DLTensor *shared_expert_down_weight, /* [H,I] */
                                         const DLTensor *shared_gate_output,        /* [T,I] */
                                         const DLTensor *shared_up_output,          /* [T,I] */
                                         const DLTensor *shared_activated,          /* [T,I] or NULL */
                                         const DLTensor *grad_topk_weights,         /* f32 [T,K] or NULL */
                                         const DLTensor *grad_hidden_states,        /* bf16/f16/f32 [T,H] */
                                         const DLTensor *grad_router_weight,        /* bf16/f16/f32 [E,H] */
                                         const DLTensor *grad_shared_expert_gate_weight, /* bf16/f16/f32 [I,H] */
                                         const DLTensor *grad_shared_expert_up_weight,   /* bf16/f16/f32 [I,H] */
                                         const DLTensor *grad_shared_expert_down_weight, /* bf16/f16/f32 [H,I] */
                                         const kiln_moe_layer_backward_options *options, void *stream);

/* ---- routed_experts_backward -------------------------------------------------------------------------------------
 * All routed experts of one layer; gate and up are recomputed unless saved (and even then for grad_topk_weights with
 * the weight on the input). Either topk_indices is given, or expert_offsets (int [E+1], device) with rows already
 * sorted by expert: then T rows [M,H], topk_weights [M] and K = 1.
 */

/* How products of f32 matrices are made on tensor cores; docs/numerics.md has the error bounds. */
#define KILN_MATH_BALANCED 0    /* roundings that the bounds of the outputs allow */
#define KILN_MATH_ACCURATE 1    /* every operand as hi + lo */
#define KILN_MATH_FAST 2        /* every operand rounded to bf16 */
#define KILN_WEIGHT_ON_OUTPUT 0 /* topk_weights multiply the expert's output, or its input */
#define KILN_WEIGHT_ON_INPUT 1

typedef struct kiln_routed_experts_backward_options {
    kiln_common_options common;
    kiln_activation activation;
    int32_t math;        /* KILN_MATH_*: for f32 inputs */
    int32_t weight_on;   /* KILN_WEIGHT_ON_* */
    int64_t expert_lo;   /* the weights hold experts [expert_lo, expert_lo + rows of gate_weights) */
    int64_t num_experts; /* E of the whole layer; 0 = expert_lo + rows of gate_weights */
} kiln_routed_experts_backward_options;

KILN_API int32_t kiln_routed_experts_backward(kiln_context *ctx, const DLTensor *grad_output, /* bf16/f16/f32 [T,H] */
                                              const DLTensor *hidden_states,                  /* as grad_output [T,H] */
                                              const DLTensor *topk_indices,                   /* int [T,K] or NULL */
                                              const DLTensor *expert_offsets,                 /* int [L+1] or NULL */
                                              const DLTensor *topk_weights,                   /* f32 [T,K] */
                                              const DLTensor *gate_weights, /* [L,I,H], any expert and row strides */
                                              const DLTensor *up_weights,   /* [L,I,H] */
                                              const DLTensor *down_weights, /* [L,H,I] */
                                              const DLTensor *saved_gate,   /* [T,K,I] or NULL */
                                              const DLTensor *saved_up,     /* [T,K,I] or NULL */
                                              const DLTensor *grad_hidden_states, /* bf16/f16/f32 [T,H] */
                                              const DLTensor *grad_topk_weights,  /* f32 [T,K] */
                                              const DLTensor *grad_gate_weights,  /* bf16/f16/f32 [L,I,H] */
                                              const DLTensor *grad_up_weights,    /* bf16/f16/f32 [L,I,H] */
                                              const DLTensor *grad_down_weights,  /* bf16/f16/f32 [L,H,I] */
                                              const kiln_routed_experts_backward_options *options, void *stream);

/* ---- matrix products -----------------------------------------------------------------------------------------------
 * The engine that the operations above share. D = A * B (+ D with accumulate bit 0), accumulated in fp32. A and B are
 * views: either axis may be the contiguous one. */

typedef struct kiln_gemm_options {
    kiln_common_options common;
    int32_t math; /* KILN_MATH_*: for f32 inputs */
    int32_t reserved;
} kiln_gemm_options;

KILN_API int32_t kiln_gemm(kiln_context *ctx, const DLTensor *a, /* bf16/f16/f32 [M,K] */
                           const DLTensor *b,                    /* as a [K,N] */
                           const DLTensor *d,                    /* bf16/f16/f32 [M,N] */
                           const kiln_gemm_options *options, void *stream);

#define KILN_RAGGED_M 0 /* a [M,K] rows sorted by group, b [G,K,N], d [M,N] */
#define KILN_RAGGED_K 1 /* a [M,K], b [K,N] sorted by group along K, d [G,M,N] */

typedef struct kiln_grouped_gemm_options {
    kiln_common_options common;
    int32_t math;
    int32_t ragged; /* KILN_RAGGED_* */
} kiln_grouped_gemm_options;

KILN_API int32_t kiln_grouped_gemm(kiln_context *ctx, const DLTensor *a, const DLTensor *b,
                                   const DLTensor *offsets, /* int [G+1] on the device: group g is [offsets[g],
                                                               offsets[g+1]); rows of d in no group stay as they are */
                                   const DLTensor *d, const kiln_grouped_gemm_options *options, void *stream);

#ifdef __cplusplus
}
#endif
#endif
