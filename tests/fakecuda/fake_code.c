/* The fake driver's modules, assembler, launches, streams and events. */
#include "fakecuda/fake_state.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KN_DRIVER(symbol, since, required, args) EXPORT kn_cu_result symbol args;
#include "jit/driver.def"
#undef KN_DRIVER

enum { KERNELS = 8, SMEM_DEFAULT = 48 * 1024 };
static const char assembled[] = "\177ELF fake cubin\n"; /* followed by the PTX it was made from */

typedef struct kn_cu_function_st {
    char name[256];
    int smem; /* dynamic shared memory that it may be launched with */
    bool large_clusters;
    struct kn_cu_module_st *module;
} fake_function;

typedef struct kn_cu_module_st {
    fake_function function[KERNELS];
    int n;
    const char *ptx; /* NULL for a foreign image */
} fake_module;

typedef struct kn_cu_link_st {
    char *cubin;
    char *info, *errors;
    size_t info_cap, errors_cap;
} fake_link;

/* ---- modules ----------------------------------------------------------------------------------------------------- */

static void write_log(int n, const kn_cu_enum *options, void **values, kn_cu_enum which, const char *text) {
    char *buffer = NULL;
    size_t cap = 0;
    for (int i = 0; i < n; i++) {
        if (options[i] == which) buffer = values[i];
        if (options[i] == which + 1) cap = (size_t)(uintptr_t)values[i];
    }
    if (buffer && cap) snprintf(buffer, cap, "%s", text);
}

kn_cu_result cuModuleLoadDataEx(kn_cu_module *module, const void *image, unsigned n, kn_cu_enum *options,
                                void **values) {
    BEGIN_UNSAFE("cuModuleLoadDataEx");
    if (!fake_current()) return fake_wrong(INVALID_CONTEXT, "cuModuleLoadDataEx: no current context");
    if (memcmp(image, "\177ELF", 4) != 0) {
        write_log((int)n, options, values, KN_CU_JIT_ERROR_LOG_BUFFER, "error   : not an ELF image");
        return KN_CUDA_ERROR_INVALID_IMAGE;
    }
    const char *ptx =
        strncmp(image, assembled, sizeof assembled - 1) == 0 ? (const char *)image + sizeof assembled - 1 : NULL;
    fake_module *m = fake_new(MODULE, sizeof *m + (ptx ? strlen(ptx) + 1 : 0));
    if (ptx) m->ptx = strcpy((char *)(m + 1), ptx);
    *module = m;
    return OK;
}

kn_cu_result cuModuleUnload(kn_cu_module module) {
    BEGIN_UNSAFE("cuModuleUnload");
    int rc = fake_check(MODULE, module, "cuModuleUnload");
    return rc == OK ? fake_delete(MODULE, module, "cuModuleUnload") : rc;
}

kn_cu_result cuModuleGetFunction(kn_cu_function *function, kn_cu_module module, const char *name) {
    BEGIN_UNSAFE("cuModuleGetFunction");
    int rc = fake_check(MODULE, module, "cuModuleGetFunction");
    if (rc != OK) return rc;
    char entry[300];
    snprintf(entry, sizeof entry, ".entry %s", name);
    if (module->n == KERNELS || (module->ptx && !strstr(module->ptx, entry))) return NOT_FOUND;
    fake_function *f = &module->function[module->n++];
    snprintf(f->name, sizeof f->name, "%s", name);
    f->module = module;
    f->smem = SMEM_DEFAULT;
    *function = f;
    return OK;
}

kn_cu_result cuFuncLoad(kn_cu_function function) {
    BEGIN_UNSAFE("cuFuncLoad");
    return fake_check(MODULE, function->module, "cuFuncLoad");
}

kn_cu_result cuFuncGetAttribute(int *value, kn_cu_enum attribute, kn_cu_function function) {
    BEGIN("cuFuncGetAttribute");
    int rc = fake_check(MODULE, function->module, "cuFuncGetAttribute");
    if (rc != OK) return rc;
    switch (attribute) {
    case KN_CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 21; return OK;
    case KN_CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = 16; return OK;
    case KN_CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = 256; return OK;
    default: return INVALID_VALUE;
    }
}

kn_cu_result cuFuncSetAttribute(kn_cu_function function, kn_cu_enum attribute, int value) {
    BEGIN("cuFuncSetAttribute");
    int rc = fake_check(MODULE, function->module, "cuFuncSetAttribute");
    if (rc != OK) return rc;
    fake_logf("attribute %s %u=%d", function->name, attribute, value);
    if (attribute == KN_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
        if (value > fake.device[fake_current()->device].smem) return INVALID_VALUE;
        if (value < function->smem) return fake_wrong(OK, "cuFuncSetAttribute: a limit was lowered to %d", value);
        function->smem = value;
        return OK;
    }
    if (attribute != KN_CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) return INVALID_VALUE;
    function->large_clusters = value != 0;
    return OK;
}

/* ---- the driver's assembler: PTX with "foo.bar" in it is refused ------------------------------------------------- */

kn_cu_result cuLinkCreate_v2(unsigned n, kn_cu_enum *options, void **values, kn_cu_link *link) {
    BEGIN_UNSAFE("cuLinkCreate_v2");
    if (!fake_current()) return fake_wrong(INVALID_CONTEXT, "cuLinkCreate: no current context");
    fake_link *l = fake_new(LINK, sizeof *l);
    for (unsigned i = 0; i < n; i++) {
        size_t size = (size_t)(uintptr_t)values[i];
        if (options[i] == KN_CU_JIT_INFO_LOG_BUFFER) l->info = values[i];
        if (options[i] == KN_CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) l->info_cap = size;
        if (options[i] == KN_CU_JIT_ERROR_LOG_BUFFER) l->errors = values[i];
        if (options[i] == KN_CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) l->errors_cap = size;
    }
    *link = l;
    return OK;
}

static int line_of(const char *text, const char *at) {
    int line = 1;
    for (; text < at; text++) line += *text == '\n';
    return line;
}

kn_cu_result cuLinkAddData_v2(kn_cu_link link, kn_cu_enum type, void *data, size_t size, const char *name, unsigned n,
                              kn_cu_enum *options, void **values) {
    (void)name, (void)options, (void)values;
    BEGIN_UNSAFE("cuLinkAddData_v2");
    int rc = fake_check(LINK, link, "cuLinkAddData");
    if (rc != OK) return rc;
    const char *ptx = data, *bad = strstr(ptx, "foo.bar");
    if (type != KN_CU_JIT_INPUT_PTX || size != strlen(ptx) + 1 || n != 0) return INVALID_VALUE;
    if (bad) {
        snprintf(link->errors, link->errors_cap,
                 "ptxas application ptx input, line %d; error   : Not a name of any known instruction: 'foo'\n"
                 "ptxas fatal   : Ptx assembly aborted due to errors\n",
                 line_of(ptx, bad));
        return INVALID_PTX;
    }
    link->cubin = malloc(sizeof assembled + size);
    if (!link->cubin) return KN_CUDA_ERROR_OUT_OF_MEMORY;
    sprintf(link->cubin, "%s%s", assembled, ptx);
    fake_find(LINK, link)->extra = link->cubin;
    return OK;
}

kn_cu_result cuLinkComplete(kn_cu_link link, void **cubin, size_t *size) {
    BEGIN_UNSAFE("cuLinkComplete");
    int rc = fake_check(LINK, link, "cuLinkComplete");
    if (rc != OK) return rc;
    if (!link->cubin) return NOT_FOUND;
    if (fake.link_log)
        snprintf(link->info, link->info_cap, "ptxas info    : Used 17 registers, used 1 barriers, 128 bytes smem\n");
    *cubin = link->cubin;
    *size = strlen(link->cubin) + 1;
    return OK;
}

kn_cu_result cuLinkDestroy(kn_cu_link link) {
    BEGIN_UNSAFE("cuLinkDestroy");
    int rc = fake_check(LINK, link, "cuLinkDestroy");
    if (rc != OK) return rc;
    return fake_delete(LINK, link, "cuLinkDestroy");
}

/* ---- tensor maps and launches ------------------------------------------------------------------------------------ */

#ifndef FAKECUDA_WITHOUT_TENSOR_MAPS
kn_cu_result cuTensorMapEncodeTiled(kn_cu_tensor_map *map, kn_cu_enum dtype, uint32_t rank, void *base,
                                    const uint64_t *dim, const uint64_t *stride, const uint32_t *box,
                                    const uint32_t *element_stride, kn_cu_enum interleave, kn_cu_enum swizzle,
                                    kn_cu_enum l2_promotion, kn_cu_enum oob_fill) {
    BEGIN("cuTensorMapEncodeTiled");
    if ((uintptr_t)map % 64 != 0) return fake_wrong(INVALID_VALUE, "cuTensorMapEncodeTiled: map at %p", (void *)map);
    if ((uintptr_t)base % 16 != 0 || rank < 1 || rank > 5 || interleave != 0 || oob_fill != 0) return INVALID_VALUE;
    for (uint32_t i = 0; i < rank; i++)
        if (dim[i] == 0 || box[i] == 0 || box[i] > 256 || element_stride[i] != 1 || (i > 0 && stride[i - 1] % 16 != 0))
            return INVALID_VALUE;
    *map = (kn_cu_tensor_map){.opaque = {(uint64_t)(uintptr_t)base, dtype, rank, swizzle, l2_promotion}};
    return OK;
}
#endif

static int check_stream(kn_cu_stream stream, const char *name) {
    if (stream) return fake_check(STREAM, stream, name);
    return fake_current() ? OK : fake_wrong(INVALID_CONTEXT, "%s: no current context", name);
}

/* The device's clock: a quarter of a millisecond an event and a kernel. */
static atomic_ullong tick = 1;

kn_cu_result cuLaunchKernelEx(const kn_cu_launch_config *c, kn_cu_function f, void **params, void **extra) {
    BEGIN("cuLaunchKernelEx");
    int rc = fake_check(MODULE, f->module, "cuLaunchKernelEx");
    if (rc == OK) rc = check_stream(c->hStream, "cuLaunchKernelEx");
    if (rc != OK) return rc;
    unsigned cluster[3] = {1, 1, 1};
    int dependent = 0;
    for (unsigned i = 0; i < c->numAttrs; i++) {
        const kn_cu_launch_attribute *a = &c->attrs[i];
        if (a->id == KN_CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
            cluster[0] = a->value.clusterDim.x;
            cluster[1] = a->value.clusterDim.y;
            cluster[2] = a->value.clusterDim.z;
        } else if (a->id == KN_CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) {
            dependent = a->value.programmaticStreamSerializationAllowed;
        } else {
            return INVALID_VALUE;
        }
    }
    unsigned blocks = cluster[0] * cluster[1] * cluster[2];
    if ((int)c->sharedMemBytes > f->smem || extra || (blocks > 8 && !f->large_clusters)) return INVALID_VALUE;
    fake_logf("launch %s device=%d grid=%u,%u,%u block=%u,%u,%u smem=%u cluster=%u,%u,%u dependent=%d stream=%p",
              f->name, fake_current()->device, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY,
              c->blockDimZ, c->sharedMemBytes, cluster[0], cluster[1], cluster[2], dependent, (void *)c->hStream);
    atomic_fetch_add(&tick, 1);
    if (fake_launch_hook) fake_launch_hook(f->name, c, params);
    return OK;
}

/* ---- streams and events ------------------------------------------------------------------------------------------ */

struct kn_cu_stream_st {
    unsigned long long id;
};
struct kn_cu_event_st {
    unsigned long long tick; /* 0 = not recorded */
};
static atomic_ullong next_stream_id = 10;

kn_cu_result cuStreamCreate(kn_cu_stream *stream, unsigned flags) {
    BEGIN_UNSAFE("cuStreamCreate");
    if (!fake_current()) return fake_wrong(INVALID_CONTEXT, "cuStreamCreate: no current context");
    if (flags > 1) return INVALID_VALUE;
    *stream = fake_new(STREAM, sizeof **stream);
    (*stream)->id = atomic_fetch_add(&next_stream_id, 1);
    return OK;
}

kn_cu_result cuStreamDestroy_v2(kn_cu_stream stream) {
    BEGIN("cuStreamDestroy_v2");
    int rc = fake_check(STREAM, stream, "cuStreamDestroy");
    return rc == OK ? fake_delete(STREAM, stream, "cuStreamDestroy") : rc;
}

kn_cu_result cuStreamGetId(kn_cu_stream stream, unsigned long long *id) {
    BEGIN("cuStreamGetId");
    int rc = check_stream(stream, "cuStreamGetId");
    if (rc == OK) *id = stream ? stream->id : 1;
    return rc;
}

kn_cu_result cuStreamIsCapturing(kn_cu_stream stream, kn_cu_enum *status) {
    BEGIN("cuStreamIsCapturing");
    int rc = check_stream(stream, "cuStreamIsCapturing");
    if (rc == OK) *status = fake_stream_capturing(stream);
    return rc;
}

kn_cu_result cuStreamSynchronize(kn_cu_stream stream) {
    BEGIN_UNSAFE("cuStreamSynchronize");
    return check_stream(stream, "cuStreamSynchronize");
}

kn_cu_result cuEventCreate(kn_cu_event *event, unsigned flags) {
    BEGIN_UNSAFE("cuEventCreate");
    if (!fake_current()) return fake_wrong(INVALID_CONTEXT, "cuEventCreate: no current context");
    if (flags != 0) return INVALID_VALUE;
    *event = fake_new(EVENT, sizeof **event);
    return OK;
}

kn_cu_result cuEventDestroy_v2(kn_cu_event event) {
    BEGIN("cuEventDestroy_v2");
    int rc = fake_check(EVENT, event, "cuEventDestroy");
    return rc == OK ? fake_delete(EVENT, event, "cuEventDestroy") : rc;
}

kn_cu_result cuEventRecord(kn_cu_event event, kn_cu_stream stream) {
    BEGIN("cuEventRecord");
    int rc = fake_check(EVENT, event, "cuEventRecord");
    if (rc == OK) rc = check_stream(stream, "cuEventRecord");
    if (rc == OK) event->tick = atomic_fetch_add(&tick, 1);
    return rc;
}

kn_cu_result cuEventSynchronize(kn_cu_event event) {
    BEGIN_UNSAFE("cuEventSynchronize");
    return fake_check(EVENT, event, "cuEventSynchronize");
}

kn_cu_result cuEventElapsedTime(float *ms, kn_cu_event start, kn_cu_event stop) {
    BEGIN("cuEventElapsedTime");
    if (fake_check(EVENT, start, "cuEventElapsedTime") != OK || fake_check(EVENT, stop, "cuEventElapsedTime") != OK ||
        start->tick == 0 || stop->tick == 0)
        return INVALID_HANDLE;
    *ms = 0.25f * (float)(stop->tick - start->tick);
    return OK;
}
