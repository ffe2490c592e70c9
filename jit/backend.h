/* jit/backend: everything Kiln asks of a device, as one table of functions with three providers: backend_cuda (driver
 * API), backend_sim (the PTX simulator; device memory is host memory) and backend_null (launches return at once).
 *
 * Thread rules: all functions may be called from any thread. Each makes the right CUDA context current for its own
 * duration and restores what was there. None synchronises the device unless it says so. */
#ifndef KN_JIT_BACKEND_H
#define KN_JIT_BACKEND_H

#include "base/status.h"
#include "jit/assemble.h"
#include "jit/expand.h"
#include "jit/target.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kn_device_facts {
    char name[128];
    uint32_t cc_major, cc_minor;
    uint32_t multiprocessors;
    uint32_t smem_per_block; /* opt-in limit, bytes */
    uint32_t smem_per_sm;
    uint64_t l2_bytes;
    uint64_t memory_bytes;
    double hbm_bytes_per_s;         /* copy rate to plan with; 0 = unknown */
    double bf16_flops;              /* sustained tensor rate to plan with; 0 = unknown */
    uint32_t driver_version;        /* 13000; 0 without a driver */
    const struct kn_tuning *tuning; /* measured choices (jit/tuning.h) that planners follow; NULL: none. A context's,
                                       not a machine's: backends leave it NULL */
} kn_device_facts;

typedef struct kn_module kn_module; /* one loaded kernel */

/* A memory range that a launch may touch: [shape] elements of `item` bytes at `data`, strides in elements. The
 * simulator refuses every access outside; the gaps of a strided view are outside. */
typedef struct kn_extent {
    const char *name; /* argument name for fault messages */
    void *data;
    uint32_t item;
    uint32_t ndim; /* 0..5 */
    int64_t shape[5];
    int64_t stride[5]; /* elements */
    bool writable;
    bool poison; /* contents are undefined before this program (workspace, outputs with beta 0) */
} kn_extent;

/* A TMA tensor map: dimension 0 is the contiguous one. */
typedef struct kn_tensor_map {
    uint8_t dtype;        /* kn_dtype of ops: bf16, f16, f32, ... as CUtensorMapDataType numbers */
    uint8_t rank;         /* 1..5 */
    uint8_t swizzle;      /* 0 none, 1 32 B, 2 64 B, 3 128 B (CUtensorMapSwizzle) */
    uint8_t l2_promotion; /* 0 none, 1 64 B, 2 128 B, 3 256 B */
    void *base;           /* 16-byte aligned */
    uint64_t dim[5];      /* elements */
    uint64_t stride[4];   /* bytes of dimensions 1.., multiples of 16 */
    uint32_t box[5];      /* elements, 1..256 */
} kn_tensor_map;

typedef struct kn_launch_args {
    kn_module *module;
    uint32_t grid[3];
    bool dependent;     /* programmatic dependent launch; refused unless the kernel's meta has grid_dependency */
    const void *params; /* the parameter block, laid out as meta.arg says */
    size_t params_len;
    void *stream;             /* CUstream */
    const kn_extent *extents; /* used by the simulator alone */
    uint32_t n_extents;
    void *program; /* from program_begin; NULL: a program of this one launch */
} kn_launch_args;

typedef struct kn_backend kn_backend;

typedef struct kn_backend_ops {
    const char *kind; /* "cuda", "sim", "null" */
    void (*destroy)(kn_backend *b);

    /* Memory. alloc may synchronise; alloc_async / free_async are ordered on the stream. */
    kn_status (*alloc)(kn_backend *b, size_t bytes, void **out);
    kn_status (*free)(kn_backend *b, void *p);
    kn_status (*alloc_async)(kn_backend *b, size_t bytes, void *stream, void **out);
    kn_status (*free_async)(kn_backend *b, void *p, void *stream);
    kn_status (*copy_in)(kn_backend *b, void *dst, const void *src, size_t bytes);  /* host -> device, synchronous */
    kn_status (*copy_out)(kn_backend *b, void *dst, const void *src, size_t bytes); /* device -> host, synchronous */
    kn_status (*fill)(kn_backend *b, void *dst, uint8_t value, size_t bytes, void *stream);
    /* Host memory that the device can write: the fault counter. host and device may be the same address. */
    kn_status (*alloc_mapped)(kn_backend *b, size_t bytes, void **host, void **device);
    kn_status (*free_mapped)(kn_backend *b, void *host);
    /* KN_OK if this device may use memory at `p`; KN_E_DEVICE with what it is otherwise. NULL where nothing is known.
     */
    kn_status (*check_pointer)(kn_backend *b, const void *p);

    /* Code. `image` is a cubin (cuda) or PTX text (sim, null). */
    kn_status (*module_load)(kn_backend *b, const void *image, size_t len, const kn_kernel_meta *meta, kn_module **out);
    void (*module_unload)(kn_backend *b, kn_module *m);
    /* Give a loaded kernel the line map (text of kn_expansion_write_map) that its faults are reported with; borrowed
     * until the module is unloaded. NULL where nothing is reported by line. */
    void (*module_line_map)(kn_backend *b, kn_module *m, const char *map);
    /* The driver's assembler (cuLink): PTX -> cubin. NULL where there is none. */
    kn_status (*link)(kn_backend *b, const kn_expansion *x, void **cubin, size_t *len, kn_asm_report *report);
    kn_status (*encode_tensor_map)(kn_backend *b, const kn_tensor_map *map, uint8_t out[128]);
    kn_status (*launch)(kn_backend *b, const kn_launch_args *args);
    /* The launches of one program, on one thread: a poisoned extent stays so in later launches except for what earlier
     * ones wrote. NULL where memory is not watched. */
    kn_status (*program_begin)(kn_backend *b, void **program);
    void (*program_end)(kn_backend *b, void *program);

    /* Streams and events. A stream is a CUstream, NULL = the legacy default stream. */
    kn_status (*stream_create)(kn_backend *b, void **out);
    kn_status (*stream_destroy)(kn_backend *b, void *stream);
    kn_status (*stream_id)(kn_backend *b, void *stream, uint64_t *id); /* unique for the life of the process */
    kn_status (*stream_capturing)(kn_backend *b, void *stream, bool *capturing);
    kn_status (*stream_synchronize)(kn_backend *b, void *stream);
    kn_status (*event_create)(kn_backend *b, void **out);
    kn_status (*event_destroy)(kn_backend *b, void *event);
    kn_status (*event_record)(kn_backend *b, void *event, void *stream);
    kn_status (*event_elapsed_us)(kn_backend *b, void *start, void *stop, double *us); /* waits for stop */
} kn_backend_ops;

struct kn_backend {
    const kn_backend_ops *ops;
    kn_device_facts facts;
    const kn_target *target;
    int32_t dl_device_type; /* DLPack: 2 CUDA, 1 CPU (sim, null) */
    int32_t dl_device_id;
    bool runs_ptx; /* payload kind: PTX text instead of a cubin */
};

/** Device N of the CUDA driver. Uses the current context if it belongs to device N, else N's primary context. */
kn_status kn_backend_cuda_create(int device, kn_backend **out);
/** Number of CUDA devices; KN_E_UNAVAILABLE (paths tried, stub detected) without a driver. */
kn_status kn_backend_cuda_count(int *count);
/** Version of the driver and the path it was loaded from. */
kn_status kn_backend_cuda_version(int *version, const char **path);
/** The simulator as `target` ("sm_90a" = an H200, "sm_80" = an A100). */
kn_status kn_backend_sim_create(const char *target, kn_backend **out);
kn_status kn_backend_null_create(const char *target, kn_backend **out);
/** Reference facts of a machine that is not there: "h200", "h100-pcie", "h20", "a100"; by target: its reference device.
 */
kn_status kn_device_facts_by_name(const char *name, kn_device_facts *facts, const kn_target **target);

/* Counters of the simulator since creation, for `kiln run`. */
typedef struct kn_sim_counters {
    uint64_t launches, warp_instructions, ns;
} kn_sim_counters;
void kn_backend_sim_counters(kn_backend *b, kn_sim_counters *out);
/** Seed of the next launches' schedules. */
void kn_backend_sim_seed(kn_backend *b, uint64_t seed);
/** For a failed module_load: puts the template line of `map` (may be NULL) in the place of "PTX line N" in the standing
 *  sentence. Returns `st`. */
kn_status kn_backend_sim_map_error(kn_status st, const char *map);

#endif
