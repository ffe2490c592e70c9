/* Making and freeing an engine: see engine.h. All of the environment that an engine depends on is read here, once. */
#include "jit/engine.h"

#include "base/alloc.h"
#include "base/env.h"
#include "jit/kernel.h"
#include "jit/launch.h"
#include "jit/plan.h"
#include "jit/tuning.h"

#include <string.h>

enum { MAX_PLANS = 1024 };

static kn_status copy_text(char **out, const char *option, kn_env_id env, const char *what) {
    const char *text = option ? option : kn_env(env);
    if (!text || !*text) return KN_OK;
    *out = kn_strdup(text);
    return *out ? KN_OK : kn_fail(KN_E_NOMEM, "out of memory for %s", what);
}

static kn_status read_choice(int option, kn_env_id env, const char *const *choices, int *out) {
    if (option == 0) return kn_env_choice(env, choices, 0, out);
    *out = option - 1;
    return KN_OK;
}

static kn_status read_settings(kn_engine *e, const kn_engine_options *o) {
    static const char *const on_miss[] = {"build", "error", NULL};
    static const char *const shapes[] = {"auto", "exact", "generic", NULL};
    static const char *const paths[] = {"auto", "portable", NULL};
    int path;
    int64_t max_modules = o->max_modules, line_info;
    KN_TRY(read_choice(o->on_miss, KN_ENV_ON_MISS, on_miss, &e->on_miss));
    KN_TRY(read_choice(o->shapes, KN_ENV_SHAPES, shapes, &e->shapes));
    KN_TRY(read_choice(o->path, KN_ENV_PATH_, paths, &path));
    KN_TRY(kn_env_i64(KN_ENV_LINEINFO, 0, 0, 1, &line_info));
    if (max_modules == 0) KN_TRY(kn_env_i64(KN_ENV_MAX_MODULES, 256, 1, 1 << 20, &max_modules));
    e->portable = path == 1;
    e->sm_limit = o->sm_limit;
    e->max_modules = (uint32_t)max_modules;
    e->max_plans = MAX_PLANS;
    e->expand_flags = line_info ? KN_EXPAND_LINEINFO : 0;
    KN_TRY(copy_text(&e->record, o->record, KN_ENV_RECORD, "KILN_RECORD"));
    KN_TRY(copy_text(&e->bad_assemblers, NULL, KN_ENV_BAD_ASSEMBLERS, "KILN_BAD_ASSEMBLERS"));
    return copy_text(&e->dump, NULL, KN_ENV_DUMP, "KILN_DUMP");
}

static kn_status create(kn_engine *e, const kn_engine_options *o) {
    kn_backend *b = e->backend;
    KN_TRY(read_settings(e, o));
    e->facts = b->facts;
    const char *tuning = o->tuning ? o->tuning : kn_env(KN_ENV_TUNING);
    if (tuning && *tuning) KN_TRY(kn_tuning_read(tuning, e->facts.name, &e->tuning));
    e->facts.tuning = e->tuning;
    e->extents = strcmp(b->ops->kind, "sim") == 0;
    const kn_cache_options cache = {.dir = o->cache_dir,
                                    .read_only = o->cache_read_only,
                                    .max_bytes = o->cache_max_bytes,
                                    .no_read_only = kn_env(KN_ENV_TEMPLATE_DIR) != NULL};
    KN_TRY(kn_cache_open(&cache, &e->cache));
    KN_TRY(kn_kernel_table_new(&e->kernels));
    KN_TRY(kn_plan_table_new(&e->plans));
    KN_TRY(kn_workspaces_new(&e->workspaces));
    void *host = NULL;
    KN_TRY(b->ops->alloc_mapped(b, sizeof *e->faults_host, &host, &e->faults_device));
    e->faults_host = host;
    *e->faults_host = 0;
    return KN_OK;
}

kn_status kn_engine_create(kn_backend *backend, const kn_engine_options *options, kn_engine **out) {
    *out = NULL;
    kn_engine *e = NULL;
    kn_status st = KN_NEW(&e, 1, "a context");
    if (st != KN_OK) {
        backend->ops->destroy(backend);
        return st;
    }
    e->backend = backend;
    st = create(e, options);
    if (st != KN_OK) {
        kn_engine_destroy(e);
        return st;
    }
    *out = e;
    return KN_OK;
}

void kn_engine_destroy(kn_engine *e) {
    if (!e) return;
    bool captured = atomic_load(&e->captured);
    kn_workspaces_free(e);
    kn_plan_table_free(e);
    kn_kernel_table_free(e);
    /* A captured graph may still count faults. */
    if (e->faults_host && !captured) (void)e->backend->ops->free_mapped(e->backend, e->faults_host);
    kn_cache_close(e->cache);
    e->backend->ops->destroy(e->backend);
    kn_free(e->record);
    kn_free(e->dump);
    kn_free(e->bad_assemblers);
    kn_tuning_free(e->tuning);
    kn_free(e);
}
