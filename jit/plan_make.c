/* Making a plan: see plan_make.h. Here a program's bindings meet the arguments that the kernels really have: what does
 * not fit is a bug in planner or template, and an error before anything runs. */
#include "jit/plan_make.h"

#include "base/alloc.h"
#include "jit/launch.h"

#include <string.h>

/* ---- the program ------------------------------------------------------------------------------------------------- */

static kn_status check_launch(const kn_op *op, const kn_program *program, const kn_launch_spec *l) {
    KN_REQUIRE(l->kernel < program->n_kernels, KN_E_INTERNAL, "a launch names kernel %d of %u", l->kernel,
               program->n_kernels);
    const char *name = program->kernel[l->kernel].template_name;
    KN_REQUIRE(l->n_bind <= KN_MAX_BINDINGS, KN_E_INTERNAL, "%s: more than %d bindings", name, KN_MAX_BINDINGS);
    KN_REQUIRE(l->grid[0] <= INT32_MAX && l->grid[1] <= 65535 && l->grid[2] <= 65535, KN_E_INTERNAL,
               "%s: a grid of %u x %u x %u is larger than a device takes", name, l->grid[0], l->grid[1], l->grid[2]);
    for (uint32_t i = 0; i < l->n_bind; i++) {
        const kn_binding *b = &l->bind[i];
        bool tensor = b->kind == KN_BIND_TENSOR || b->kind == KN_BIND_STRIDE;
        KN_REQUIRE(!tensor || b->arg < op->n_args, KN_E_INTERNAL, "%s: binding %u names tensor %d of %d", name, i,
                   b->arg, op->n_args);
        KN_REQUIRE(b->kind != KN_BIND_STRIDE || b->dim < 5, KN_E_INTERNAL, "%s: binding %u names axis %d", name, i,
                   b->dim);
        KN_REQUIRE(b->kind != KN_BIND_MAP || b->arg < program->n_maps, KN_E_INTERNAL,
                   "%s: binding %u names map %d of %u", name, i, b->arg, program->n_maps);
        KN_REQUIRE(b->kind != KN_BIND_WORKSPACE || (uint64_t)b->value < program->workspace_bytes, KN_E_INTERNAL,
                   "%s: binding %u lies outside of the workspace", name, i);
    }
    return KN_OK;
}

kn_status kn_plan_explain(const kn_engine *e, const kn_op *op, const kn_problem *p, kn_program *out, kn_buf *explain) {
    memset(out, 0, sizeof *out);
    out->explain = explain;
    KN_TRY(op->plan(p, &e->facts, e->backend->target, out));
    for (uint32_t i = 0; i < out->n_kernels; i++) KN_TRY(out->kernel[i].params.status);
    for (uint32_t i = 0; i < out->n_launches; i++) KN_TRY(check_launch(op, out, &out->launch[i]));
    for (uint32_t i = 0; i < out->n_maps; i++) {
        const kn_map_spec *m = &out->map[i];
        KN_REQUIRE(m->from_workspace ? (uint64_t)m->offset_bytes < out->workspace_bytes : m->arg < op->n_args,
                   KN_E_INTERNAL, "tensor map %u lies outside of the workspace or the arguments", i);
    }
    return KN_OK;
}

kn_status kn_plan_program(const kn_engine *e, const kn_op *op, const kn_problem *p, kn_program *out) {
    return kn_plan_explain(e, op, p, out, NULL);
}

/* ---- parameter blocks -------------------------------------------------------------------------------------------- */

static uint32_t size_of(uint8_t kind) {
    switch (kind) {
    case KN_BIND_I32:
    case KN_BIND_F32: return 4;
    case KN_BIND_MAP: return 128;
    default: return 8;
    }
}

static bool is_constant(uint8_t kind) {
    return kind == KN_BIND_I64 || kind == KN_BIND_I32 || kind == KN_BIND_F32 || kind == KN_BIND_F64;
}

/* Does the kernel have the arguments that the launch binds? */
static kn_status check_kernel(const kn_launch_spec *spec, const kn_kernel_meta *meta) {
    KN_REQUIRE(meta->n_args == spec->n_bind, KN_E_INTERNAL, "%s has %u arguments; the planner binds %u", meta->entry,
               meta->n_args, spec->n_bind);
    for (uint32_t i = 0; i < meta->n_args; i++) {
        const kn_kernel_arg *a = &meta->arg[i];
        uint32_t size = size_of(spec->bind[i].kind);
        KN_REQUIRE(a->size == size, KN_E_INTERNAL, "%s: argument %u (%s) has %u bytes; the planner binds %u",
                   meta->entry, i, a->name, a->size, size);
        KN_REQUIRE(a->offset + a->size <= KN_PARAM_BYTES, KN_E_INTERNAL, "%s: more than %d bytes of arguments",
                   meta->entry, KN_PARAM_BYTES);
    }
    KN_REQUIRE(!spec->dependent || meta->grid_dependency, KN_E_INTERNAL,
               "%s is launched as a dependent, but never waits for the launch before it", meta->entry);
    for (int d = 0; d < 3; d++)
        KN_REQUIRE(spec->grid[d] % (meta->cluster[d] ? meta->cluster[d] : 1) == 0, KN_E_INTERNAL,
                   "%s: grid axis %d is %u, not a multiple of the cluster's %u", meta->entry, d, spec->grid[d],
                   meta->cluster[d]);
    return KN_OK;
}

static kn_status lay_out(const kn_launch_spec *spec, kn_kernel *kernel, kn_plan_launch *out) {
    const kn_kernel_meta *meta = &kernel->info.meta;
    KN_TRY(check_kernel(spec, meta));
    out->kernel = kernel;
    memcpy(out->grid, spec->grid, sizeof out->grid);
    out->dependent = spec->dependent;
    for (uint32_t i = 0; i < meta->n_args; i++) {
        uint32_t end = meta->arg[i].offset + meta->arg[i].size;
        if (end > out->params_len) out->params_len = end;
    }
    KN_TRY(KN_NEW(&out->params, out->params_len, "a kernel's arguments"));
    KN_TRY(KN_NEW(&out->patches, spec->n_bind, "a kernel's arguments"));
    for (uint32_t i = 0; i < spec->n_bind; i++) {
        const kn_binding *b = &spec->bind[i];
        uint32_t offset = meta->arg[i].offset;
        if (is_constant(b->kind))
            memcpy(out->params + offset, &b->value, size_of(b->kind)); /* little-endian: the low bytes */
        else
            out->patches[out->n_patches++] = (kn_patch){(uint16_t)offset, b->kind, b->arg, b->dim, b->value};
    }
    return KN_OK;
}

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

void kn_plan_free(kn_engine *e, kn_plan *plan) {
    if (!plan) return;
    for (uint32_t i = 0; i < plan->n_kernels; i++)
        if (plan->kernels[i]) kn_kernel_release(e, plan->kernels[i]);
    for (uint32_t i = 0; i < plan->n_launches; i++) {
        kn_free(plan->launches[i].params);
        kn_free(plan->launches[i].patches);
    }
    kn_free(plan->launches);
    kn_free(plan->maps);
    kn_free(plan->slices);
    kn_free(plan->kernels);
    kn_map_cache_free(plan->cache);
    kn_free(plan);
}

static kn_status copy(void *out, const void *items, size_t n, size_t size, const char *what) {
    void *p = NULL;
    KN_TRY(kn_new(&p, n, size, what));
    memcpy(p, items, n * size);
    memcpy(out, &p, sizeof p);
    return KN_OK;
}

static kn_status fill(kn_engine *e, const kn_program *program, kn_want want, kn_plan *plan, bool *complete) {
    *complete = false;
    KN_TRY(KN_NEW(&plan->kernels, program->n_kernels, "a plan's kernels"));
    plan->n_kernels = program->n_kernels;
    for (uint32_t i = 0; i < program->n_kernels; i++) {
        KN_TRY(kn_kernel_acquire(e, &program->kernel[i], want, &plan->kernels[i]));
        if (!plan->kernels[i]) return KN_OK;
    }
    KN_TRY(KN_NEW(&plan->launches, program->n_launches, "a plan's launches"));
    plan->n_launches = program->n_launches;
    for (uint32_t i = 0; i < program->n_launches; i++)
        KN_TRY(lay_out(&program->launch[i], plan->kernels[program->launch[i].kernel], &plan->launches[i]));
    KN_TRY(copy(&plan->maps, program->map, program->n_maps, sizeof *program->map, "a plan's tensor maps"));
    KN_TRY(copy(&plan->slices, program->slice, program->n_slices, sizeof *program->slice, "a plan's workspace"));
    plan->n_maps = program->n_maps;
    plan->n_slices = program->n_slices;
    plan->workspace_bytes = program->workspace_bytes;
    if (plan->n_maps) KN_TRY(kn_map_cache_new(plan->n_maps, &plan->cache));
    *complete = true;
    return KN_OK;
}

kn_status kn_plan_make(kn_engine *e, const kn_op *op, const kn_problem *p, kn_want want, kn_plan **out) {
    kn_program *program = NULL;
    kn_plan *plan = NULL;
    bool complete = false;
    *out = NULL;
    kn_status st;
    KN_TRY_OUT(st, KN_NEW(&program, 1, "a program"));
    KN_TRY_OUT(st, kn_plan_program(e, op, p, program));
    KN_TRY_OUT(st, KN_NEW(&plan, 1, "a plan"));
    plan->op = op;
    plan->problem = *p;
    plan->generic = p->generic;
    KN_TRY_OUT(st, fill(e, program, want, plan, &complete));
out:
    kn_free(program);
    if (complete)
        *out = plan;
    else
        kn_plan_free(e, plan);
    return st;
}
