/* Counters, device facts, environment: what tools print. */
#include "base/env.h"
#include "kiln/kiln_tools.h"
#include "ops/api_call.h"
#include "ops/api_context.h"

#include <stdio.h>
#include <string.h>

/* ---- counters ---------------------------------------------------------------------------------------------------- */

static uint64_t read_counter(atomic_uint_fast64_t *counter) {
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void read_cache(kn_engine *e, kiln_counters *out) {
    kn_cache_stats s;
    kn_cache_get_stats(e->cache, &s);
    out->dir_usable = s.dir_usable;
    out->hits_memory = s.hits_memory;
    out->hits_read_only = s.hits_read_only;
    out->hits_dir = s.hits_dir;
    out->misses = s.misses;
    out->published = s.published;
    out->publish_failed = s.publish_failed;
    out->rejected = s.rejected;
    out->evicted = s.evicted;
    snprintf(out->cache_dir, sizeof out->cache_dir, "%.255s", s.dir);
    snprintf(out->cache_reason, sizeof out->cache_reason, "%.255s", s.dir_reason);
}

static kn_status get_counters(kn_engine *e, kiln_counters *out) {
    kn_engine_counters *c = &e->count;
    kiln_counters now = {.struct_size = out->struct_size,
                         .calls = read_counter(&c->calls),
                         .launches = read_counter(&c->launches),
                         .plan_hits = read_counter(&c->plan_hits),
                         .plans = read_counter(&c->plans),
                         .kernels_built = read_counter(&c->kernels_built),
                         .kernels_loaded = read_counter(&c->kernels_loaded),
                         .kernels_unloaded = read_counter(&c->kernels_unloaded),
                         .expand_ns = read_counter(&c->expand_ns),
                         .assemble_ns = read_counter(&c->assemble_ns),
                         .load_ns = read_counter(&c->load_ns)};
    read_cache(e, &now);
    if (strcmp(e->backend->ops->kind, "sim") == 0) {
        kn_sim_counters sim;
        kn_backend_sim_counters(e->backend, &sim);
        now.sim_instructions = sim.warp_instructions;
        now.sim_ns = sim.ns;
    }
    memcpy(out, &now, out->struct_size < sizeof now ? out->struct_size : sizeof now);
    return KN_OK;
}

int32_t kiln_context_counters(kiln_context *ctx, kiln_counters *out) {
    KN_REQUIRE(out, KN_E_ARG, "kiln_context_counters: out is NULL");
    KN_REQUIRE(out->struct_size >= sizeof(uint32_t) && out->struct_size <= 4096, KN_E_ABI,
               "kiln_context_counters: struct_size is %u; wanted sizeof(kiln_counters) = %zu", out->struct_size,
               sizeof *out);
    kn_status st;
    KN_WITH_ENGINE(ctx, e, st, get_counters(e, out));
    return st;
}

/* ---- the device -------------------------------------------------------------------------------------------------- */

static void add_field(kn_buf *b, const char *name, uint64_t v) {
    kn_buf_addf(b, ",\"%s\":", name);
    kn_buf_add_u64(b, v);
}

static kn_status device_json(kn_engine *e, char *buf, uint64_t cap, uint64_t *needed) {
    const kn_device_facts *f = &e->backend->facts;
    kn_buf b;
    kn_buf_init(&b, 1 << 16);
    kn_buf_addf(&b, "{\"kind\":\"%s\",\"name\":", e->backend->ops->kind);
    kn_buf_add_json(&b, f->name);
    kn_buf_addf(&b, ",\"target\":\"%s\",\"compute_capability\":\"%u.%u\"", e->backend->target->name, f->cc_major,
                f->cc_minor);
    add_field(&b, "multiprocessors", f->multiprocessors);
    add_field(&b, "sm_limit", e->sm_limit);
    add_field(&b, "smem_per_block", f->smem_per_block);
    add_field(&b, "smem_per_sm", f->smem_per_sm);
    add_field(&b, "l2_bytes", f->l2_bytes);
    add_field(&b, "memory_bytes", f->memory_bytes);
    add_field(&b, "bytes_per_s", (uint64_t)f->hbm_bytes_per_s);
    add_field(&b, "bf16_flops", (uint64_t)f->bf16_flops);
    add_field(&b, "driver_version", f->driver_version);
    kn_buf_addf(&b, ",\"path\":\"%s\"}", e->portable ? "portable" : "auto");
    return kn_api_give_text(&b, buf, cap, needed);
}

int32_t kiln_context_device_json(kiln_context *ctx, char *buf, uint64_t cap, uint64_t *needed) {
    kn_status st;
    KN_WITH_ENGINE(ctx, e, st, device_json(e, buf, cap, needed));
    return st;
}

static kn_status sim_seed(kn_engine *e, uint64_t seed) {
    KN_REQUIRE(strcmp(e->backend->ops->kind, "sim") == 0, KN_E_UNSUPPORTED,
               "kiln_context_sim_seed: the context's device is %s, not the simulator", e->backend->ops->kind);
    kn_backend_sim_seed(e->backend, seed);
    return KN_OK;
}

int32_t kiln_context_sim_seed(kiln_context *ctx, uint64_t seed) {
    kn_status st;
    KN_WITH_ENGINE(ctx, e, st, sim_seed(e, seed));
    return st;
}

/* ---- the environment --------------------------------------------------------------------------------------------- */

static void add_variables(kn_buf *b) {
    kn_buf_add(b, "{\"variables\":[");
    for (int i = 0; i < KN_ENV_COUNT; i++) {
        const kn_env_row *row = &kn_env_table[i];
        const char *value = kn_env((kn_env_id)i);
        kn_buf_addf(b, "%s{\"name\":\"%s\",\"value\":", i ? "," : "", row->name);
        if (value)
            kn_buf_add_json(b, value);
        else
            kn_buf_add(b, "null");
        kn_buf_add(b, ",\"default\":");
        kn_buf_add_json(b, row->dflt);
        kn_buf_add(b, ",\"meaning\":");
        kn_buf_add_json(b, row->meaning);
        kn_buf_add_char(b, '}');
    }
    kn_buf_add_char(b, ']');
}

/* A library that was found, or, with the status of looking for it, why not. */
static void add_library(kn_buf *b, const char *separator, const char *name, kn_status st, uint32_t version,
                        const char *path) {
    kn_buf_addf(b, "%s{\"name\":\"%s\"", separator, name);
    if (st == KN_OK) {
        kn_buf_addf(b, ",\"version\":\"%u.%u\",\"path\":", version / 1000, version % 1000 / 10);
        kn_buf_add_json(b, path ? path : "");
    } else {
        kn_buf_add(b, ",\"error\":");
        kn_buf_add_json(b, kn_error_message());
    }
    kn_buf_add_char(b, '}');
}

int32_t kiln_env_json(char *buf, uint64_t cap, uint64_t *needed) {
    kn_buf b;
    kn_buf_init(&b, 1 << 20);
    add_variables(&b);
    kn_buf_add(&b, ",\"libraries\":[");
    int driver = 0;
    uint32_t nvrtc = 0;
    const char *path = NULL;
    const kn_assembler_id *id = NULL;
    kn_status st = kn_backend_cuda_version(&driver, &path);
    add_library(&b, "", "CUDA driver", st, (uint32_t)driver, path);
    st = kn_nvjitlink_id(&id);
    add_library(&b, ",", "nvJitLink", st, id ? id->version : 0, id ? id->path : NULL);
    st = kn_nvrtc_id(&nvrtc, &path);
    add_library(&b, ",", "NVRTC", st, nvrtc, path);
    kn_buf_add(&b, "]}");
    return kn_api_give_text(&b, buf, cap, needed);
}
