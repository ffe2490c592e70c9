/* jit/engine: what a context consists of below the operations: a device, a cache, the kernels and plans made so far,
 * workspaces, counters. One engine belongs to one kiln_context; all functions on it may be called from any thread. */
#ifndef KN_JIT_ENGINE_H
#define KN_JIT_ENGINE_H

#include "base/status.h"
#include "cache/cache.h"
#include "jit/backend.h"
#include "jit/program.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { KN_ON_MISS_BUILD, KN_ON_MISS_ERROR };
enum { KN_SHAPES_AUTO, KN_SHAPES_EXACT, KN_SHAPES_GENERIC };

/* How an engine behaves. Zero or NULL: as the environment says. */
typedef struct kn_engine_options {
    int on_miss; /* 1 + KN_ON_MISS_* */
    int shapes;  /* 1 + KN_SHAPES_* */
    int path;    /* 1 auto, 2 portable */
    uint32_t sm_limit;
    int max_modules;
    const char *cache_dir, *cache_read_only;
    int64_t cache_max_bytes;
    const char *record;
    const char *tuning;
} kn_engine_options;

/* Counters since creation; relaxed atomics, each right by itself. */
typedef struct kn_engine_counters {
    atomic_uint_fast64_t calls, launches, plan_hits, plans, kernels_built, kernels_loaded, kernels_unloaded;
    atomic_uint_fast64_t expand_ns, assemble_ns, load_ns;
} kn_engine_counters;

typedef struct kn_engine {
    kn_backend *backend; /* owned */
    kn_cache *cache;
    kn_device_facts facts; /* the backend's; planners choose tiles for the whole device and bound only grids by
                              kn_problem.sm_limit */
    int on_miss, shapes;
    bool portable;
    bool extents; /* the backend wants to know what a launch may touch */
    uint32_t sm_limit, expand_flags;
    uint32_t max_modules, max_plans;
    char *record, *dump;      /* NULL: off */
    char *bad_assemblers;     /* "nvjitlink-12.3,driver-12.4"; NULL: none */
    struct kn_tuning *tuning; /* what facts.tuning shows; NULL: none */
    struct kn_kernel_table *kernels;
    struct kn_plan_table *plans;
    struct kn_workspaces *workspaces;
    uint64_t *faults_host; /* written by kernels */
    void *faults_device;
    atomic_bool captured; /* some call was captured: what it used must outlive the engine */
    kn_engine_counters count;
} kn_engine;

static inline void kn_count(atomic_uint_fast64_t *counter, uint64_t n) {
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/** Takes `backend` over, also on failure. Reads the environment, once. */
kn_status kn_engine_create(kn_backend *backend, const kn_engine_options *options, kn_engine **out);
/** No call may be running. What a captured graph may still use stays loaded. NULL is fine. */
void kn_engine_destroy(kn_engine *e);

#endif
