/* What tools need beyond kiln.h: device memory, references, comparison, plans, the cache, counters. Same rules.
 *
 * Functions that give a text (`buf`, `cap`, `needed`) set *needed to its bytes with the NUL and fill buf, unless it is
 * NULL; KILN_E_ARG if cap is too small. So ask twice: with NULL, then with room. */
#ifndef KILN_KILN_TOOLS_H
#define KILN_KILN_TOOLS_H

#include "kiln/kiln.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- device memory, streams, events ---------------------------------------------------------------------------- */

/** Number of CUDA devices; KILN_E_UNAVAILABLE (and what was tried) without a driver. */
KILN_API int32_t kiln_device_count(int32_t *count);
KILN_API int32_t kiln_device_alloc(kiln_context *ctx, uint64_t bytes, void **out);
KILN_API int32_t kiln_device_free(kiln_context *ctx, void *p);
KILN_API int32_t kiln_device_copy_in(kiln_context *ctx, void *dst, const void *src, uint64_t bytes);  /* synchronous */
KILN_API int32_t kiln_device_copy_out(kiln_context *ctx, void *dst, const void *src, uint64_t bytes); /* synchronous */
KILN_API int32_t kiln_device_fill(kiln_context *ctx, void *dst, int32_t byte, uint64_t bytes, void *stream);
KILN_API int32_t kiln_stream_create(kiln_context *ctx, void **out);
KILN_API int32_t kiln_stream_destroy(kiln_context *ctx, void *stream);
KILN_API int32_t kiln_stream_synchronize(kiln_context *ctx, void *stream);
KILN_API int32_t kiln_event_create(kiln_context *ctx, void **out);
KILN_API int32_t kiln_event_destroy(kiln_context *ctx, void *event);
KILN_API int32_t kiln_event_record(kiln_context *ctx, void *event, void *stream);
KILN_API int32_t kiln_event_elapsed_us(kiln_context *ctx, void *start, void *stop, double *us); /* waits for stop */

/* ---- float64 references and comparison ------------------------------------------------------------------------- */

/** Reference of `op` in float64 on host tensors. exact[i] and magnitude[i] (the same expression with every factor's
 *  absolute value) receive output i in the order of the outputs: compact float64 buffers, or NULL to skip. */
KILN_API int32_t kiln_reference(const char *op, const DLTensor *const *args, int32_t n_args, const void *options,
                                double *const *exact, double *const *magnitude);

/** A float64 product: out[i * n + j] += the sum over l < k of a[i * a_row + l * a_col] * b[l * n + j], for i < m, j <
 * n. Returns a kiln_status. */
typedef int32_t (*kiln_product_fn)(void *user, int64_t m, int64_t n, int64_t k, const double *a, int64_t a_row,
                                   int64_t a_col, const double *b, double *out);

/** From now on the large products of references that this thread asks for are made by `product`, by a GPU as it may be;
 *  NULL: by the host's cores, as at first. */
KILN_API int32_t kiln_reference_products(kiln_product_fn product, void *user);

typedef struct kiln_check_result {
    uint32_t struct_size;
    int32_t pass;
    double max_error;      /* largest |err| */
    double max_ratio;      /* largest |err| / bound of the element rule */
    double frobenius;      /* relative, of the whole tensor; -1 where the rule does not apply */
    double worst_slice;    /* largest relative Frobenius error of a row or an expert's slice; -1 as above */
    uint64_t worst_index;  /* element with max_ratio */
    uint64_t bad_elements; /* elements over their bound, non-finite ones among them */
    char message[256];     /* what failed and where; "" when pass */
} kiln_check_result;

/** Compare the host output tensors in `args` with exact / magnitude (as kiln_reference fills them) by the tolerances of
 *  docs/numerics.md. results[i]: output i. Returns KILN_OK also when something does not pass. */
KILN_API int32_t kiln_check(const char *op, const DLTensor *const *args, int32_t n_args, const void *options,
                            const double *const *exact, const double *const *magnitude, kiln_check_result *results);

/* ---- plans ------------------------------------------------------------------------------------------------------ */

/** The plan for these tensors (data is not looked at) as JSON: kernels with parameters, PTX lines, registers, spills,
 * shared memory, grid, cache result; workspace, bytes, FLOP, floor. flags: KILN_PLAN_BUILD builds and loads;
 * KILN_PLAN_LIST only names the kernels [template, key, params]; 0 expands and, where an assembler is at hand,
 * assembles. *needed = bytes of the text with its NUL.
 *
 * Fields: op, device, kind, target, shapes ("exact", "generic"), note, workspace_bytes, floor_bytes, floor_flops,
 * floor_us (0: unknown device), assembler ("" if there is none, and why in assembler_reason), record (the line for warm
 * lists); kernels [name, template, params {name: value}, threads [3], cluster [3], smem_bytes, ptx_lines, ptx_version,
 * ptx_digest, registers, spill_bytes, stack_bytes, remarks, remark, expand_us, assemble_us, cache ("built", "cached" or
 * "not looked for")]; launches [kernel (an index), grid [3], dependent]. What only an assembler knows is null where
 * there is none.
 *
 * products (KILN_PLAN_EXPLAIN) [product, path, sizes, key (what a tuning file calls it), chosen, by ("cost", "tuning",
 * "generic": by the cost for other sizes, "rule": there is one way, for the reason given in reason), candidates [name,
 * frame, tile [2], swap, stages, tiles, waves, and in clocks of one multiprocessor tensor, l2, hbm, epilogues, clocks
 * (together; us of them), refused (why it is not possible)], the cheapest first]. */
#define KILN_PLAN_BUILD 1u
#define KILN_PLAN_EXPLAIN 4u /* beside one of the others: how every product was chosen, as "products" */
#define KILN_PLAN_LIST 2u    /* equal keys are one kernel; fast: some microseconds a kernel */
KILN_API int32_t kiln_plan_json(kiln_context *ctx, const char *op, const DLTensor *const *args, int32_t n_args,
                                const void *options, uint32_t flags, char *buf, uint64_t cap, uint64_t *needed);

/* ---- counters ---------------------------------------------------------------------------------------------------- */

typedef struct kiln_counters {
    uint32_t struct_size;
    uint32_t dir_usable; /* the cache directory is in use */
    uint64_t calls, launches;
    uint64_t plan_hits, plans; /* look-ups that hit; plans made */
    uint64_t kernels_built;    /* expanded and assembled in this process */
    uint64_t kernels_loaded, kernels_unloaded;
    uint64_t hits_memory, hits_read_only, hits_dir, misses;
    uint64_t published, publish_failed, rejected, evicted;
    uint64_t expand_ns, assemble_ns, load_ns;
    uint64_t sim_instructions, sim_ns;
    char cache_dir[256], cache_reason[256];
} kiln_counters;
KILN_API int32_t kiln_context_counters(kiln_context *ctx, kiln_counters *out);
/** Facts of the context's device as JSON: kind ("cuda", "sim", "null"), name, target, multiprocessors, smem_per_block,
 *  smem_per_sm, l2_bytes, memory_bytes, bytes_per_s, bf16_flops, driver_version. */
KILN_API int32_t kiln_context_device_json(kiln_context *ctx, char *buf, uint64_t cap, uint64_t *needed);
/** Seed of the simulator's next launches. */
KILN_API int32_t kiln_context_sim_seed(kiln_context *ctx, uint64_t seed);

/** As JSON: variables [name, value (null: not set), default, meaning]; libraries [name, version, path, or error]. */
KILN_API int32_t kiln_env_json(char *buf, uint64_t cap, uint64_t *needed);

/* ---- the cache --------------------------------------------------------------------------------------------------- */

/** A cache directory or pack (path NULL: the default directory) as JSON: path, entries [name, key {field: value},
 *  assembler, kernel, bytes, payload_bytes, last_used (seconds since 1970), meta {name: value}; or name, bytes, error].
 */
KILN_API int32_t kiln_cache_json(const char *path, char *buf, uint64_t cap, uint64_t *needed);
/** Expand every entry again and compare with its metadata; *bad = entries that differ or are damaged. */
KILN_API int32_t kiln_cache_verify(const char *path, uint64_t *checked, uint64_t *bad, char *report, uint64_t cap);
KILN_API int32_t kiln_cache_trim(const char *path, int64_t max_bytes, uint64_t *removed, uint64_t *removed_bytes);
/** Entries of directories and packs into one pack; the first of equal keys wins. */
KILN_API int32_t kiln_cache_merge(const char *const *paths, int32_t n, const char *out_path, uint64_t *entries);

#ifdef __cplusplus
}
#endif
#endif
