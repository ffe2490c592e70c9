/* The seam of planted faults: the simulator's back end with three of its functions wrapped. */
#include "planted.h"

#include "base/alloc.h"
#include "base/env.h"
#include "jit/backend_planted.h"

#include <string.h>

static kn_backend_ops wrapped;        /* what the contexts call */
static const kn_backend_ops *genuine; /* the simulator's own */
static const kn_planted_fault *fault;

unsigned char *kn_planted_at(const kn_extent *x, int64_t linear) {
    int64_t offset = 0;
    for (uint32_t d = x->ndim; d-- > 0;) {
        offset += linear % x->shape[d] * x->stride[d];
        linear /= x->shape[d];
    }
    return (unsigned char *)x->data + offset * x->item;
}

int64_t kn_planted_elements(const kn_extent *x) {
    int64_t n = 1;
    for (uint32_t d = 0; d < x->ndim; d++) n *= x->shape[d];
    return n;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

static kn_status module_load(kn_backend *b, const void *image, size_t len, const kn_kernel_meta *meta,
                             kn_module **out) {
    char *text = NULL;
    KN_TRY(KN_NEW(&text, len + 1, "a kernel with a planted fault"));
    memcpy(text, image, len);
    if (fault->text) fault->text(text);
    kn_status st = genuine->module_load(b, text, len, meta, out);
    kn_free(text);
    return st;
}

static kn_status encode_tensor_map(kn_backend *b, const kn_tensor_map *map, uint8_t out[128]) {
    kn_tensor_map changed = *map;
    if (fault->map) fault->map(&changed);
    return genuine->encode_tensor_map(b, &changed, out);
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

static kn_status program_begin(kn_backend *b, void **program) {
    kn_planted_program *p = NULL;
    KN_TRY(KN_NEW(&p, 1, "a program with a planted fault"));
    *program = p;
    return genuine->program_begin(b, &p->inner);
}

static kn_status copy_of(const kn_extent *x, unsigned char **out) {
    int64_t n = kn_planted_elements(x);
    KN_TRY(KN_NEW(out, (size_t)n * x->item + 1, "the copy of a tensor"));
    for (int64_t i = 0; i < n; i++) memcpy(*out + i * x->item, kn_planted_at(x, i), x->item);
    return KN_OK;
}

static kn_status meet(kn_planted_program *p, const kn_extent *x) {
    if (strcmp(x->name, "fault counter") == 0) {
        if (!p->counter) p->counter_before = *(uint64_t *)x->data;
        p->counter = x->data;
        return KN_OK;
    }
    if (strcmp(x->name, "workspace") == 0) return KN_OK;
    for (uint32_t i = 0; i < p->n; i++)
        if (strcmp(p->tensor[i].x.name, x->name) == 0) return KN_OK;
    KN_REQUIRE(p->n < KN_PLANTED_MAX, KN_E_INTERNAL, "a program has too many tensors to plant a fault in");
    kn_planted_tensor *t = &p->tensor[p->n++];
    t->x = *x;
    if (!x->writable || !x->poison) KN_TRY(copy_of(x, &t->before));
    if (!x->writable && fault->input) {
        fault->input(t);
        t->changed = true;
    }
    return KN_OK;
}

static kn_status launch(kn_backend *b, const kn_launch_args *args) {
    kn_planted_program *p = args->program;
    kn_launch_args changed = *args;
    for (uint32_t i = 0; i < args->n_extents; i++) KN_TRY(meet(p, &args->extents[i]));
    changed.program = p->inner;
    bool runs = !fault->launch || fault->launch(p, &changed);
    p->launches++;
    return runs ? genuine->launch(b, &changed) : KN_OK;
}

static void program_end(kn_backend *b, void *program) {
    kn_planted_program *p = program;
    genuine->program_end(b, p->inner);
    for (uint32_t i = 0; i < p->n; i++) {
        kn_planted_tensor *t = &p->tensor[i];
        for (int64_t e = 0, n = kn_planted_elements(&t->x); t->changed && e < n; e++)
            memcpy(kn_planted_at(&t->x, e), t->before + e * t->x.item, t->x.item);
        if (fault->output && kn_planted_elements(&t->x) > 0) fault->output(p, t);
    }
    for (uint32_t i = 0; i < p->n; i++) kn_free(p->tensor[i].before);
    kn_free(p);
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */

kn_status kn_planted_install(kn_backend *b) {
    const char *name = kn_env(KN_ENV_PLANTED_FAULT);
    if (!name) return KN_OK;
    for (fault = kn_planted_faults; fault->name; fault++)
        if (strcmp(fault->name, name) == 0) break;
    KN_REQUIRE(fault->name, KN_E_ARG, "KILN_PLANTED_FAULT is \"%s\", which is none", name);
    if (b->ops != &wrapped) genuine = b->ops;
    wrapped = *genuine;
    wrapped.module_load = module_load;
    wrapped.encode_tensor_map = encode_tensor_map;
    wrapped.launch = launch;
    wrapped.program_begin = program_begin;
    wrapped.program_end = program_end;
    b->ops = &wrapped;
    return KN_OK;
}
