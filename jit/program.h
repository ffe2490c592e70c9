/* jit/program: what a planner makes of a problem, and what launch.c walks.
 *
 *   kn_problem   everything of a call that a plan may depend on, as a zeroed POD: hashed and compared as bytes
 *   kn_program   kernels (template + parameters) and launches (grid + bindings), made by an operation's planner
 *   kn_plan      a program whose kernels are built and loaded in one context
 *
 * A program is planned for one exact problem, token counts included: planning is plain arithmetic and takes
 * microseconds. Kernels are what is expensive, and a kernel's parameters name token counts only in exact plans; a
 * generic plan passes them as arguments, so that one kernel serves all of them. Pointers and strides are bound per
 * call. */
#ifndef KN_JIT_PROGRAM_H
#define KN_JIT_PROGRAM_H

#include "base/buf.h"
#include "base/status.h"
#include "jit/backend.h"
#include "jit/expand.h"
#include "jit/tuning.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- problem ----------------------------------------------------------------------------------------------------- */

enum {
    KN_MAX_TENSORS = 24, /* of one operation */
    KN_MAX_AXES = 8,
    KN_MAX_OPTIONS = 24,
    KN_MAX_KERNELS = 16, /* of one program */
    KN_MAX_LAUNCHES = 16,
    KN_MAX_BINDINGS = 56, /* of one launch */
    KN_MAX_MAPS = 48,     /* tensor maps of one program */
    KN_MAX_SLICES = 32    /* of one program's workspace */
};

typedef enum kn_dtype {
    KN_DTYPE_NONE = 0, /* the tensor is absent */
    KN_BF16,
    KN_F16,
    KN_F32,
    KN_F64,
    KN_I32,
    KN_I64,
    KN_BOOL,
    KN_U8,
    KN_I8,
    KN_DTYPE_COUNT
} kn_dtype;

uint32_t kn_dtype_size(kn_dtype t);    /* bytes */
const char *kn_dtype_name(kn_dtype t); /* "bf16": the names that templates know */

/* What a plan may depend on. Zeroed before it is filled: padding and unused slots are part of the comparison. */
typedef struct kn_problem {
    uint16_t op;                        /* index into the registry */
    uint8_t generic;                    /* 1: token axes must be run-time arguments */
    uint8_t portable;                   /* 1: KILN_PATH=portable */
    uint32_t sm_limit;                  /* 0 = all */
    int64_t axis[KN_MAX_AXES];          /* by the operation's own axis enumeration; token axes among them */
    uint8_t dtype[KN_MAX_TENSORS];      /* kn_dtype */
    uint8_t align_log2[KN_MAX_TENSORS]; /* largest power of two, up to 2^7 bytes, that divides address and all outer
                                           strides */
    uint8_t layout[KN_MAX_TENSORS];     /* KN_LAYOUT_* */
    uint64_t accumulate;                /* bit per output */
    int64_t option[KN_MAX_OPTIONS];     /* by the operation's own enumeration; f64 options as their bits */
    uint64_t source[2];                 /* digest of a user's activation text, zero without */
} kn_problem;

enum {
    KN_LAYOUT_ROWS = 0, /* the last axis is contiguous */
    KN_LAYOUT_COLS = 1, /* the last but one is (gemm operands) */
    KN_LAYOUT_ANY = 2   /* neither */
};

/* ---- program ----------------------------------------------------------------------------------------------------- */

typedef struct kn_kernel_spec {
    char template_name[64];
    kn_params params;
} kn_kernel_spec;

/* What goes into one slot of a kernel's parameter block, in the order of the .entry's .param list. */
typedef enum kn_bind_kind {
    KN_BIND_TENSOR,    /* .u64: address of tensor `arg` + `value` bytes; 0 if the tensor is absent */
    KN_BIND_WORKSPACE, /* .u64: workspace + `value` bytes */
    KN_BIND_STRIDE,    /* .u64/.s64: stride of tensor `arg` along axis `dim`, in elements */
    KN_BIND_I64,       /* .u64/.s64: value */
    KN_BIND_I32,       /* .u32/.s32: value */
    KN_BIND_F32,       /* .f32: the low 32 bits of value */
    KN_BIND_F64,       /* .f64: the bits of value */
    KN_BIND_MAP,       /* .align 64 .b8 [128]: tensor map `arg` of the program */
    KN_BIND_FAULTS     /* .u64: the context's fault counter (u64, device address) */
} kn_bind_kind;

typedef struct kn_binding {
    uint8_t kind, arg, dim;
    int64_t value;
} kn_binding;

/* A tensor map over a tensor argument or over workspace, encoded at the call. */
typedef struct kn_map_spec {
    uint8_t from_workspace;
    uint8_t arg;          /* tensor index, when not from workspace */
    int64_t offset_bytes; /* into the tensor or the workspace */
    kn_tensor_map map;    /* base is filled in at the call */
    int8_t stride_dim[4]; /* map.stride[i] = stride of the tensor along this axis (bytes); -1: as given in map.stride */
} kn_map_spec;

typedef struct kn_launch_spec {
    uint8_t kernel;     /* index into kn_program.kernel */
    bool dependent;     /* programmatic dependent launch on the launch before */
    uint32_t grid[3];   /* a zero anywhere: nothing to do, the launch is skipped */
    double floor_bytes; /* what this launch must move at least, for reports; 0: not said */
    uint32_t n_bind;
    kn_binding bind[KN_MAX_BINDINGS];
} kn_launch_spec;

/* One kn_add_workspace: a launch may touch the slices that it binds and nothing else of the workspace. */
typedef struct kn_slice {
    uint64_t offset, bytes;
} kn_slice;

typedef struct kn_program {
    uint32_t n_kernels, n_launches, n_maps, n_slices;
    kn_kernel_spec kernel[KN_MAX_KERNELS];
    kn_launch_spec launch[KN_MAX_LAUNCHES];
    kn_map_spec map[KN_MAX_MAPS];
    kn_slice slice[KN_MAX_SLICES];
    uint64_t workspace_bytes;
    /* The least the hardware must do, for `kiln plan` and the benchmarks. */
    double floor_bytes, floor_flops;
    char note[256];  /* the planner's choice in words */
    kn_buf *explain; /* receives JSON objects, a comma between them: how every product was chosen; NULL: nobody asks */
} kn_program;

/* Builders for planners. Errors are sticky in kn_program_builder.status. */
typedef struct kn_program_builder {
    kn_program *program;
    kn_status status;
    kn_params lost_params; /* what planners write after a failure goes here */
    kn_launch_spec lost_launch;
} kn_program_builder;

/** Add a kernel; returns its index and a pointer to fill its parameters before kn_add_launch. (Kernels that turn out
 *  equal are built once: plans look kernels up by their bytes.) Never NULL: after a failure the pointer leads to memory
 *  that nobody reads. */
kn_params *kn_add_kernel(kn_program_builder *b, const char *template_name, int *index);
/** Never NULL, as above. */
kn_launch_spec *kn_add_launch(kn_program_builder *b, int kernel, uint32_t grid_x, uint32_t grid_y, uint32_t grid_z);
/** Reserve workspace: offset of `bytes` aligned to 256. */
int64_t kn_add_workspace(kn_program_builder *b, uint64_t bytes);
int kn_add_map(kn_program_builder *b, const kn_map_spec *map);
void kn_bind_tensor(kn_launch_spec *l, int arg, int64_t offset_bytes);
void kn_bind_workspace(kn_launch_spec *l, int64_t offset_bytes);
void kn_bind_stride(kn_launch_spec *l, int arg, int dim);
void kn_bind_i64(kn_launch_spec *l, int64_t v);
void kn_bind_i32(kn_launch_spec *l, int32_t v);
void kn_bind_f32(kn_launch_spec *l, float v);
void kn_bind_map(kn_launch_spec *l, int map);
void kn_bind_faults(kn_launch_spec *l);

/** Keep a caller's function (CUDA C) for kernels that are made with it: its digest, two non-negative numbers, is what
 * they take as parameters USER0 and USER1 and what kn_problem.source holds. KN_E_ARG if it is empty or too long. */
kn_status kn_user_function_keep(const char *text, uint64_t digest[2]);

/* ---- the registry: one row an operation (ops/ops.def) ------------------------------------------------------------ */

/* A tensor argument as the checks and planners see it. */
typedef struct kn_tensor {
    kn_dtype dtype; /* KN_DTYPE_NONE: absent */
    int ndim;
    void *data; /* byte offset applied */
    int64_t shape[5];
    int64_t stride[5]; /* elements, >= 0; compact ones filled in; of an axis of size 1: any legal value */
    uint64_t bytes;    /* from `data` to the end of the last element, gaps included; 0: no elements */
} kn_tensor;

typedef struct kn_arg_info {
    const char *name, *dtypes, *shape, *layout;
    char role; /* 'i' in, 'o' optional in, 'w' out */
} kn_arg_info;

/* A field of the operation's options beyond `common`. */
typedef struct kn_option_info {
    const char *name, *dflt, *choices;
    char type; /* 'i' i32, 'I' i64, 'd' f64, 's' text */
    uint32_t offset;
} kn_option_info;

/* A call whose tensors passed the general checks. */
typedef struct kn_call {
    const struct kn_op *op;
    int n_tensors;
    kn_tensor tensor[KN_MAX_TENSORS];
    int64_t letter[26];  /* sizes by axis letter of the argument table, -1 = not seen */
    const void *options; /* the operation's option struct, never NULL here */
} kn_call;

typedef struct kn_op {
    const char *name;
    int problem_number;
    int index; /* in the registry: kn_problem.op */
    const kn_arg_info *args;
    int n_args, n_outputs;           /* the outputs are the last arguments */
    const struct kn_arg_rule *rules; /* the table's texts, parsed (ops/registry.h) */
    const kn_option_info *option;
    int n_options;
    uint32_t options_size;
    /** Checks beyond the table (value ranges, dtype combinations, aliasing rules) and fills axis[], option[] of `p`;
     *  dtype, align, layout, accumulate are filled by the caller. */
    kn_status (*describe)(const kn_call *call, kn_problem *p);
    /** A pure function of problem, device facts and target. */
    kn_status (*plan)(const kn_problem *p, const kn_device_facts *facts, const kn_target *target, kn_program *out);
    /** Float64 reference on host tensors: exact[i] and magnitude[i] (`Abs` of the tolerance rules) for each wanted
     *  output i in order of the outputs, compact float64. */
    kn_status (*reference)(const kn_call *call, double *const *exact, double *const *magnitude);
    uint32_t token_axes; /* bit mask over axis[]: what `generic` takes out of kernels */
    uint32_t may_alias;  /* bit i: output i may be the same tensor (same address, strides, dtype) as an input */
} kn_op;

const kn_op *kn_op_find(const char *name); /* NULL if there is none */
const kn_op *kn_op_at(int i);              /* NULL past the end */

#endif
