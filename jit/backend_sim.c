/* backend_sim: kernels run on the simulator, device memory is host memory. A module is its parsed PTX. */
#include "jit/backend_host.h"
#include "jit/backend_planted.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/thread.h"
#include "sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct sim_backend {
    kn_backend base;
    int64_t budget;
    int threads;
    kn_mutex lock; /* guards what follows */
    uint64_t seed;
    kn_sim_counters counters;
} sim_backend;

struct kn_module {
    kn_sim_module *sim;
    kn_kernel_meta meta;
    const char *map; /* text of the line map, borrowed; may be NULL */
};

static sim_backend *self(kn_backend *b) {
    return (sim_backend *)b;
}

static void destroy(kn_backend *b) {
    kn_mutex_destroy(&self(b)->lock);
    kn_free(b);
}

/* ---- modules ----------------------------------------------------------------------------------------------------- */

/* The map has rows "ptx_line file:line [loops]", one for each change; the last one at or before the line counts. */
static void look_up(const char *map, uint32_t line, char *out, size_t cap) {
    const char *best = NULL;
    for (const char *row = map; row && *row >= '0' && *row <= '9';) {
        uint64_t n = 0;
        const char *at = row;
        for (; *at >= '0' && *at <= '9' && n <= UINT32_MAX; at++) n = n * 10 + (uint64_t)(*at - '0');
        if (n > line) break;
        if (*at == ' ') best = at + 1;
        row = strchr(at, '\n');
        row = row ? row + 1 : NULL;
    }
    if (best)
        snprintf(out, cap, "%.*s", (int)strcspn(best, "\n"), best);
    else
        snprintf(out, cap, "PTX line %u", line);
}

static void origin(void *user, uint32_t line, char *out, size_t cap) {
    const kn_module *m = user;
    look_up(m->map, line, out, cap);
}

kn_status kn_backend_sim_map_error(kn_status st, const char *map) {
    static const char mark[] = "PTX line ";
    char sentence[KN_ERROR_CAP], where[256];
    snprintf(sentence, sizeof sentence, "%s", kn_error_message());
    char *at = strstr(sentence, mark), *end = NULL;
    unsigned long line = at ? strtoul(at + sizeof mark - 1, &end, 10) : 0;
    if (!map || line == 0 || line > UINT32_MAX) return st;
    look_up(map, (uint32_t)line, where, sizeof where);
    return kn_fail(st, "%.*s%s%s", (int)(at - sentence), sentence, where, end);
}

static kn_status module_load(kn_backend *b, const void *image, size_t len, const kn_kernel_meta *meta,
                             kn_module **out) {
    kn_module *m = NULL;
    (void)b;
    KN_TRY(KN_NEW(&m, 1, "a module"));
    m->meta = *meta;
    kn_status st = kn_sim_parse(image, len, NULL, NULL, &m->sim);
    if (st != KN_OK) {
        kn_free(m);
        return kn_error_prefix(st, "%s: ", meta->entry);
    }
    *out = m;
    return KN_OK;
}

static void module_unload(kn_backend *b, kn_module *m) {
    (void)b;
    if (!m) return;
    kn_sim_free(m->sim);
    kn_free(m);
}

static void module_line_map(kn_backend *b, kn_module *m, const char *map) {
    (void)b;
    m->map = map;
}

static kn_status encode_tensor_map(kn_backend *b, const kn_tensor_map *map, uint8_t out[128]) {
    (void)b;
    kn_sim_tensor_map sim = {.dtype = map->dtype,
                             .rank = map->rank,
                             .swizzle = map->swizzle,
                             .l2_promotion = map->l2_promotion,
                             .base = map->base};
    memcpy(sim.dim, map->dim, sizeof sim.dim);
    memcpy(sim.stride, map->stride, sizeof sim.stride);
    memcpy(sim.box, map->box, sizeof sim.box);
    return kn_sim_encode_tensor_map(&sim, out);
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

static kn_status copy_extents(const kn_launch_args *args, kn_sim_extent **out) {
    KN_TRY(KN_NEW(out, args->n_extents + 1, "a launch's extents"));
    for (uint32_t k = 0; k < args->n_extents; k++) {
        const kn_extent *x = &args->extents[k];
        kn_sim_extent *s = &(*out)[k];
        *s = (kn_sim_extent){.name = x->name,
                             .data = x->data,
                             .item = x->item,
                             .ndim = x->ndim,
                             .writable = x->writable,
                             .poison = x->poison};
        memcpy(s->shape, x->shape, sizeof s->shape);
        memcpy(s->stride, x->stride, sizeof s->stride);
    }
    return KN_OK;
}

static void count(sim_backend *s, const kn_sim_stats *stats, uint64_t start) {
    kn_lock(&s->lock);
    s->counters.launches++;
    s->counters.warp_instructions += stats->warp_instructions;
    s->counters.ns += kn_clock_ns() - start;
    kn_unlock(&s->lock);
}

static kn_status launch(kn_backend *b, const kn_launch_args *args) {
    sim_backend *s = self(b);
    const kn_kernel_meta *meta = &args->module->meta;
    uint64_t start = kn_clock_ns();
    kn_sim_stats stats = {0};
    kn_sim_extent *extents = NULL;
    KN_TRY(kn_host_check_stream(args->stream));
    KN_REQUIRE(!args->dependent || meta->grid_dependency, KN_E_LAUNCH,
               "%s: a dependent launch of a kernel without griddepcontrol.wait", meta->entry);
    KN_TRY(copy_extents(args, &extents));
    kn_sim_launch l = {.smem_dynamic = meta->smem_dynamic,
                       .params = args->params,
                       .params_len = args->params_len,
                       .extents = extents,
                       .n_extents = args->n_extents,
                       .budget = (uint64_t)s->budget,
                       .threads = s->threads,
                       .memory = args->program,
                       .multiprocessors = b->facts.multiprocessors,
                       .smem_per_block = b->facts.smem_per_block,
                       .origin = origin,
                       .origin_user = args->module};
    memcpy(l.grid, args->grid, sizeof l.grid);
    memcpy(l.block, meta->threads, sizeof l.block);
    memcpy(l.cluster, meta->cluster, sizeof l.cluster);
    kn_lock(&s->lock);
    l.seed = s->seed;
    kn_unlock(&s->lock);
    kn_status st = kn_sim_run(args->module->sim, meta->entry, &l, &stats);
    count(s, &stats, start);
    kn_free(extents);
    return st;
}

static kn_status program_begin(kn_backend *b, void **program) {
    kn_sim_memory *memory = NULL;
    (void)b;
    KN_TRY(kn_sim_memory_create(&memory));
    *program = memory;
    return KN_OK;
}

static void program_end(kn_backend *b, void *program) {
    (void)b;
    kn_sim_memory_free(program);
}

void kn_backend_sim_counters(kn_backend *b, kn_sim_counters *out) {
    sim_backend *s = self(b);
    kn_lock(&s->lock);
    *out = s->counters;
    kn_unlock(&s->lock);
}

void kn_backend_sim_seed(kn_backend *b, uint64_t seed) {
    sim_backend *s = self(b);
    kn_lock(&s->lock);
    s->seed = seed;
    kn_unlock(&s->lock);
}

/* ---- the backend ------------------------------------------------------------------------------------------------- */

static const kn_backend_ops ops = {.kind = "sim",
                                   .destroy = destroy,
                                   KN_HOST_BACKEND_OPS,
                                   .module_load = module_load,
                                   .module_unload = module_unload,
                                   .module_line_map = module_line_map,
                                   .encode_tensor_map = encode_tensor_map,
                                   .launch = launch,
                                   .program_begin = program_begin,
                                   .program_end = program_end};

static kn_status configure(sim_backend *s, const char *target) {
    int64_t seed, threads;
    KN_TRY(kn_device_facts_by_name(target, &s->base.facts, &s->base.target));
    KN_TRY(kn_env_i64(KN_ENV_SIM_SEED, 1, 0, INT64_MAX, &seed));
    KN_TRY(kn_env_i64(KN_ENV_SIM_THREADS, kn_cpu_count(), 1, 1024, &threads));
    KN_TRY(kn_env_i64(KN_ENV_SIM_BUDGET, INT64_C(20000000000), 1, INT64_MAX, &s->budget));
    s->seed = (uint64_t)seed;
    s->threads = (int)threads;
    return KN_OK;
}

kn_status kn_backend_sim_create(const char *target, kn_backend **out) {
    sim_backend *s = NULL;
    KN_TRY(KN_NEW(&s, 1, "the simulator"));
    kn_status st = configure(s, target);
    if (st != KN_OK) {
        kn_free(s);
        return st;
    }
    kn_mutex_init(&s->lock);
    s->base.ops = &ops;
    s->base.dl_device_type = 1;
    s->base.runs_ptx = true;
    *out = &s->base;
    return kn_planted_install(&s->base);
}
