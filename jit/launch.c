/* The walk over a plan's launches: see launch.h. */
#include "jit/launch.h"

#include "base/alloc.h"
#include "base/log.h"

#include <string.h>

/* ---- tensor maps ------------------------------------------------------------------------------------------------- */

enum { WAYS = 16 }; /* slots a map of the program has: calls for as many layers */

typedef struct map_slot {
    uint64_t base, stride[4]; /* what it was encoded for; base 0: empty */
    unsigned char bytes[128];
} map_slot;

struct kn_map_cache {
    atomic_flag busy; /* whoever finds it set goes without the cache */
    map_slot slot[];
};

kn_status kn_map_cache_new(uint32_t n_maps, kn_map_cache **out) {
    void *p = NULL;
    KN_TRY(kn_new(&p, 1, sizeof **out + (size_t)n_maps * WAYS * sizeof(map_slot), "encoded tensor maps"));
    *out = p;
    atomic_flag_clear(&(*out)->busy);
    return KN_OK;
}

void kn_map_cache_free(kn_map_cache *c) {
    kn_free(c);
}

static map_slot *slot_of(kn_map_cache *c, uint32_t map, uint64_t base) {
    uint64_t h = (base >> 8) * 0x9e3779b97f4a7c15u;
    return &c->slot[map * WAYS + (h >> 32) % WAYS];
}

static kn_status encode_map(kn_engine *e, const kn_plan *plan, uint32_t i, const kn_call *call, char *workspace,
                            unsigned char out[128]) {
    const kn_map_spec *spec = &plan->maps[i];
    kn_tensor_map map = spec->map;
    char *base = spec->from_workspace ? workspace : call->tensor[spec->arg].data;
    map.base = base + spec->offset_bytes;
    for (int d = 0; !spec->from_workspace && d < 4; d++) {
        const kn_tensor *t = &call->tensor[spec->arg];
        if (spec->stride_dim[d] >= 0)
            map.stride[d] = (uint64_t)t->stride[spec->stride_dim[d]] * kn_dtype_size(t->dtype);
    }
    map_slot *slot = slot_of(plan->cache, i, (uint64_t)(uintptr_t)map.base);
    bool mine = !atomic_flag_test_and_set_explicit(&plan->cache->busy, memory_order_acquire);
    kn_status st = KN_OK;
    if (mine && slot->base == (uint64_t)(uintptr_t)map.base &&
        memcmp(slot->stride, map.stride, sizeof slot->stride) == 0) {
        memcpy(out, slot->bytes, 128);
    } else {
        st = e->backend->ops->encode_tensor_map(e->backend, &map, out);
        if (mine && st == KN_OK) {
            slot->base = (uint64_t)(uintptr_t)map.base;
            memcpy(slot->stride, map.stride, sizeof slot->stride);
            memcpy(slot->bytes, out, 128);
        }
    }
    if (mine) atomic_flag_clear_explicit(&plan->cache->busy, memory_order_release);
    return st;
}

/* ---- what a launch may touch ------------------------------------------------------------------------------------- */

typedef struct extents {
    uint32_t n, tensors, slices; /* those of this launch */
    kn_extent item[KN_MAX_BINDINGS];
} extents;

static bool is_output(const kn_op *op, int arg) {
    return arg >= op->n_args - op->n_outputs;
}

/* An output in place of an input has the input's contents. */
static bool is_in_place(const kn_call *call, int arg) {
    for (int i = 0; i < call->op->n_args - call->op->n_outputs; i++)
        if (call->tensor[i].dtype != KN_DTYPE_NONE && call->tensor[i].data == call->tensor[arg].data) return true;
    return false;
}

static void add_tensor(extents *x, const kn_plan *plan, const kn_call *call, int arg) {
    const kn_tensor *t = &call->tensor[arg];
    if (x->tensors >> arg & 1 || t->dtype == KN_DTYPE_NONE || t->bytes == 0) return;
    x->tensors |= 1u << arg;
    kn_extent *e = &x->item[x->n++];
    *e = (kn_extent){.name = call->op->args[arg].name,
                     .data = t->data,
                     .item = kn_dtype_size(t->dtype),
                     .ndim = (uint32_t)t->ndim,
                     .writable = is_output(call->op, arg)};
    memcpy(e->shape, t->shape, sizeof e->shape);
    memcpy(e->stride, t->stride, sizeof e->stride);
    int output = arg - (call->op->n_args - call->op->n_outputs);
    e->poison = e->writable && !(plan->problem.accumulate >> output & 1) && !is_in_place(call, arg);
}

static void add_slice(extents *x, const kn_plan *plan, char *workspace, uint64_t offset) {
    uint32_t i = 0;
    while (i + 1 < plan->n_slices && offset >= plan->slices[i + 1].offset) i++;
    if (x->slices >> i & 1) return;
    x->slices |= 1u << i;
    x->item[x->n++] = (kn_extent){.name = "workspace",
                                  .data = workspace + plan->slices[i].offset,
                                  .item = 1,
                                  .ndim = 1,
                                  .shape = {(int64_t)plan->slices[i].bytes},
                                  .stride = {1},
                                  .writable = true,
                                  .poison = true};
}

static void collect_extents(kn_engine *e, const kn_plan *plan, const kn_plan_launch *l, const kn_call *call,
                            char *workspace, extents *x) {
    x->n = x->tensors = x->slices = 0;
    for (uint32_t i = 0; i < l->n_patches; i++) {
        const kn_patch *p = &l->patches[i];
        if (p->kind == KN_BIND_TENSOR) add_tensor(x, plan, call, p->arg);
        if (p->kind == KN_BIND_WORKSPACE) add_slice(x, plan, workspace, (uint64_t)p->value);
        if (p->kind == KN_BIND_FAULTS)
            x->item[x->n++] =
                (kn_extent){.name = "fault counter", .data = e->faults_device, .item = 8, .writable = true};
        if (p->kind != KN_BIND_MAP) continue;
        const kn_map_spec *m = &plan->maps[p->arg];
        if (m->from_workspace)
            add_slice(x, plan, workspace, (uint64_t)m->offset_bytes);
        else
            add_tensor(x, plan, call, m->arg);
    }
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

static void put_u64(unsigned char *at, uint64_t v) {
    memcpy(at, &v, sizeof v);
}

static kn_status fill_params(kn_engine *e, const kn_plan *plan, const kn_plan_launch *l, const kn_call *call,
                             char *workspace, unsigned char *params) {
    memcpy(params, l->params, l->params_len);
    for (uint32_t i = 0; i < l->n_patches; i++) {
        const kn_patch *p = &l->patches[i];
        unsigned char *at = params + p->offset;
        const kn_tensor *t = &call->tensor[p->kind == KN_BIND_TENSOR || p->kind == KN_BIND_STRIDE ? p->arg : 0];
        switch (p->kind) {
        case KN_BIND_TENSOR:
            put_u64(at, t->dtype == KN_DTYPE_NONE || !t->data ? 0 : (uint64_t)(uintptr_t)t->data + (uint64_t)p->value);
            break;
        case KN_BIND_STRIDE: put_u64(at, t->dtype == KN_DTYPE_NONE ? 0 : (uint64_t)t->stride[p->dim]); break;
        case KN_BIND_WORKSPACE: put_u64(at, (uint64_t)(uintptr_t)workspace + (uint64_t)p->value); break;
        case KN_BIND_FAULTS: put_u64(at, (uint64_t)(uintptr_t)e->faults_device); break;
        default: KN_TRY(encode_map(e, plan, p->arg, call, workspace, at));
        }
    }
    return KN_OK;
}

static kn_status launch_one(kn_engine *e, kn_plan *plan, const kn_plan_launch *l, bool dependent, const kn_call *call,
                            char *workspace, void *stream, void *program) {
    _Alignas(64) unsigned char params[KN_PARAM_BYTES];
    extents x;
    const kn_kernel_meta *meta = &l->kernel->info.meta;
    kn_log(KN_LOG_LAUNCH, "launch %s: grid %u x %u x %u, %u threads, stream %p", meta->entry, l->grid[0], l->grid[1],
           l->grid[2], meta->threads[0] * meta->threads[1] * meta->threads[2], stream);
    KN_TRY(fill_params(e, plan, l, call, workspace, params));
    kn_launch_args args = {.module = l->kernel->module,
                           .grid = {l->grid[0], l->grid[1], l->grid[2]},
                           .dependent = dependent,
                           .params = params,
                           .params_len = l->params_len,
                           .stream = stream,
                           .program = program};
    if (e->extents) {
        collect_extents(e, plan, l, call, workspace, &x);
        args.extents = x.item;
        args.n_extents = x.n;
    }
    kn_status st = e->backend->ops->launch(e->backend, &args);
    return st == KN_OK ? KN_OK : kn_error_prefix(st, "%s: ", meta->entry);
}

static kn_status launch_all(kn_engine *e, kn_plan *plan, const kn_call *call, char *workspace, void *stream,
                            void *program) {
    /* The first launch follows a kernel that is not ours: it begins when that one has ended, as any kernel would. */
    bool first = true;
    for (uint32_t i = 0; i < plan->n_launches; i++) {
        const kn_plan_launch *l = &plan->launches[i];
        if (l->grid[0] == 0 || l->grid[1] == 0 || l->grid[2] == 0) continue;
        KN_TRY(launch_one(e, plan, l, l->dependent && !first, call, workspace, stream, program));
        first = false;
        kn_count(&e->count.launches, 1);
    }
    return KN_OK;
}

kn_status kn_launch_plan(kn_engine *e, kn_plan *plan, const kn_call *call, void *workspace, void *stream) {
    const kn_backend_ops *ops = e->backend->ops;
    void *program = NULL;
    if (ops->program_begin) KN_TRY(ops->program_begin(e->backend, &program));
    kn_status st = launch_all(e, plan, call, workspace, stream, program);
    if (ops->program_end) ops->program_end(e->backend, program);
    return st;
}
