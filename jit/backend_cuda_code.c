/* The CUDA backend's code: modules, tensor maps, launches. */
#include "jit/backend_cuda.h"

#include "base/alloc.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What one launch needs of a kernel's metadata. */
typedef struct cuda_module {
    kn_cu_module module;
    kn_cu_function function;
    uint32_t threads[3], cluster[3];
    uint32_t smem_dynamic;
    uint32_t params_len;
    uint32_t n_args, arg_offset[KN_MAX_KERNEL_ARGS];
    bool grid_dependency;
    char entry[160];
} cuda_module;

enum {
    SMEM_DEFAULT = 48 * 1024, /* what a block gets without asking */
    PORTABLE_CLUSTER = 8,     /* blocks of a cluster that every device with clusters can place */
    LOG_CAP = 8192
};

/* ---- modules ----------------------------------------------------------------------------------------------------- */

/* Refused here rather than by the driver, whose "invalid argument" would name nothing. */
static kn_status check_fits(const kn_cuda *b, const kn_kernel_meta *meta) {
    const kn_device_facts *f = &b->base.facts;
    uint64_t smem = (uint64_t)meta->smem_dynamic + meta->smem_static;
    KN_REQUIRE(smem <= f->smem_per_block, KN_E_UNSUPPORTED,
               "%s needs %" PRIu64 " bytes of shared memory a block; cuda:%d (%s) has %u", meta->entry, smem,
               b->base.dl_device_id, f->name, f->smem_per_block);
    uint64_t threads = (uint64_t)meta->threads[0] * meta->threads[1] * meta->threads[2];
    KN_REQUIRE(threads >= 1 && threads <= 1024, KN_E_UNSUPPORTED,
               "%s has %" PRIu64 " threads a block; wanted 1 to 1024", meta->entry, threads);
    return KN_OK;
}

static kn_status load_failed(const kn_cuda *b, const kn_kernel_meta *meta, kn_cu_result rc, char *log) {
    for (char *c = log; *c; c++)
        if (*c == '\n') *c = ' ';
    uint32_t v = b->base.facts.driver_version;
    return kn_driver_fail(b->cu, KN_E_LOAD, "cuModuleLoadDataEx", rc,
                          "%s for %s on cuda:%d (%s, driver for CUDA %u.%u)%s%s", meta->entry, meta->target,
                          b->base.dl_device_id, b->base.facts.name, v / 1000, v % 1000 / 10, *log ? ": " : "", log);
}

static kn_status load_image(const kn_cuda *b, const void *image, const kn_kernel_meta *meta, cuda_module *m) {
    char log[LOG_CAP] = "";
    kn_cu_enum options[] = {KN_CU_JIT_ERROR_LOG_BUFFER, KN_CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)(sizeof log - 1)};
    kn_cu_result rc = b->cu->cuModuleLoadDataEx(&m->module, image, 2, options, values);
    if (rc != KN_CUDA_SUCCESS) {
        m->module = NULL;
        return load_failed(b, meta, rc, log);
    }
    rc = b->cu->cuModuleGetFunction(&m->function, m->module, meta->entry);
    if (rc != KN_CUDA_SUCCESS) return kn_driver_fail(b->cu, KN_E_LOAD, "cuModuleGetFunction", rc, "%s", meta->entry);
    /* Drivers load lazily: make it happen now, not inside a capture or a measured launch. */
    rc = b->cu->cuFuncLoad ? b->cu->cuFuncLoad(m->function) : KN_CUDA_SUCCESS;
    if (rc != KN_CUDA_SUCCESS) return kn_driver_fail(b->cu, KN_E_LOAD, "cuFuncLoad", rc, "%s", meta->entry);
    return KN_OK;
}

/* Attributes belong to this very function handle, which nobody else has yet: no lock is needed to only ever raise. */
static kn_status set_attributes(const kn_cuda *b, const kn_kernel_meta *meta, const cuda_module *m) {
    kn_cu_result rc = KN_CUDA_SUCCESS;
    if (meta->smem_dynamic + meta->smem_static > SMEM_DEFAULT)
        rc = b->cu->cuFuncSetAttribute(m->function, KN_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                       (int)meta->smem_dynamic);
    if (rc != KN_CUDA_SUCCESS)
        return kn_driver_fail(b->cu, KN_E_LOAD, "cuFuncSetAttribute", rc, "%s: %u bytes of dynamic shared memory",
                              meta->entry, meta->smem_dynamic);
    uint32_t blocks = m->cluster[0] * m->cluster[1] * m->cluster[2];
    if (blocks > PORTABLE_CLUSTER)
        rc = b->cu->cuFuncSetAttribute(m->function, KN_CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
    if (rc != KN_CUDA_SUCCESS)
        return kn_driver_fail(b->cu, KN_E_LOAD, "cuFuncSetAttribute", rc, "%s: clusters of %u blocks", meta->entry,
                              blocks);
    return KN_OK;
}

static void unload(const kn_cuda *b, const cuda_module *m) {
    kn_cu_result rc = b->cu->cuModuleUnload(m->module);
    if (!kn_driver_gone(rc)) kn_log(KN_LOG_WARN, "cuModuleUnload of %s failed with code %d", m->entry, rc);
}

static void describe(cuda_module *m, const kn_kernel_meta *meta) {
    for (int i = 0; i < 3; i++) {
        m->threads[i] = meta->threads[i];
        m->cluster[i] = meta->cluster[i] ? meta->cluster[i] : 1;
    }
    m->smem_dynamic = meta->smem_dynamic;
    m->grid_dependency = meta->grid_dependency != 0;
    m->n_args = meta->n_args;
    for (uint32_t i = 0; i < meta->n_args; i++) {
        uint32_t end = meta->arg[i].offset + meta->arg[i].size;
        m->arg_offset[i] = meta->arg[i].offset;
        if (end > m->params_len) m->params_len = end;
    }
    snprintf(m->entry, sizeof m->entry, "%s", meta->entry);
}

kn_status kn_cuda_module_load(kn_backend *base, const void *image, size_t len, const kn_kernel_meta *meta,
                              kn_module **out) {
    kn_cuda *b = (kn_cuda *)base;
    *out = NULL;
    KN_REQUIRE(len > 0, KN_E_LOAD, "%s: an empty image", meta->entry);
    KN_TRY(check_fits(b, meta));
    cuda_module *m = NULL;
    KN_TRY(KN_NEW(&m, 1, "a module"));
    describe(m, meta);
    kn_cuda_scope s;
    kn_status st = kn_cuda_enter(b, KN_CUDA_RELAXED, &s);
    if (st == KN_OK) {
        st = load_image(b, image, meta, m);
        if (st == KN_OK) st = set_attributes(b, meta, m);
        if (st != KN_OK && m->module) unload(b, m);
        kn_cuda_leave(&s);
    }
    if (st == KN_OK)
        *out = (kn_module *)m;
    else
        kn_free(m);
    return st;
}

void kn_cuda_module_unload(kn_backend *base, kn_module *module) {
    kn_cuda *b = (kn_cuda *)base;
    cuda_module *m = (cuda_module *)module;
    if (!m) return;
    if (kn_driver_check_process() == KN_OK && kn_cuda_context_alive(b)) {
        kn_cuda_scope s;
        if (kn_cuda_enter(b, KN_CUDA_RELAXED, &s) == KN_OK) {
            unload(b, m);
            kn_cuda_leave(&s);
        } else {
            kn_log(KN_LOG_WARN, "%s stays loaded: %s", m->entry, kn_error_message());
        }
    }
    kn_free(m);
}

/* ---- tensor maps ------------------------------------------------------------------------------------------------- */

static kn_status encode_failed(const kn_cuda *b, const kn_tensor_map *map, kn_cu_result rc) {
    char text[512] = "";
    size_t n = 0;
    for (uint32_t i = 0; i < map->rank && i < 5; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%" PRIu64 " (box %u", i ? " x " : "", map->dim[i],
                              map->box[i]);
        if (i > 0) n += (size_t)snprintf(text + n, sizeof text - n, ", stride %" PRIu64 " bytes", map->stride[i - 1]);
        n += (size_t)snprintf(text + n, sizeof text - n, ")");
    }
    return kn_driver_fail(b->cu, KN_E_LAUNCH, "cuTensorMapEncodeTiled", rc, "type %u, swizzle %u, base %p, %s",
                          map->dtype, map->swizzle, map->base, text);
}

kn_status kn_cuda_encode_tensor_map(kn_backend *base, const kn_tensor_map *map, uint8_t out[128]) {
    static const uint32_t dense[5] = {1, 1, 1, 1, 1};
    kn_cuda *b = (kn_cuda *)base;
    kn_cu_tensor_map aligned;
    kn_cuda_scope s;
    KN_TRY(kn_cuda_enter(b, KN_CUDA_PLAIN, &s));
    kn_cu_result rc = b->cu->cuTensorMapEncodeTiled(&aligned, map->dtype, map->rank, map->base, map->dim, map->stride,
                                                    map->box, dense, KN_CU_TENSOR_MAP_INTERLEAVE_NONE, map->swizzle,
                                                    map->l2_promotion, KN_CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    kn_cuda_leave(&s);
    if (rc != KN_CUDA_SUCCESS) return encode_failed(b, map, rc);
    memcpy(out, &aligned, 128);
    return KN_OK;
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

static kn_status check_launch(const kn_cuda *b, const kn_launch_args *a, const cuda_module *m) {
    const uint32_t *g = a->grid, *c = m->cluster;
    KN_REQUIRE(g[0] >= 1 && g[0] <= INT32_MAX && g[1] >= 1 && g[1] <= 65535 && g[2] >= 1 && g[2] <= 65535, KN_E_LAUNCH,
               "%s: grid is %u x %u x %u; wanted 1..2147483647 x 1..65535 x 1..65535", m->entry, g[0], g[1], g[2]);
    KN_REQUIRE(g[0] % c[0] == 0 && g[1] % c[1] == 0 && g[2] % c[2] == 0, KN_E_LAUNCH,
               "%s: grid is %u x %u x %u; wanted multiples of its cluster, %u x %u x %u", m->entry, g[0], g[1], g[2],
               c[0], c[1], c[2]);
    KN_REQUIRE(a->params_len == m->params_len, KN_E_INTERNAL, "%s: %zu bytes of parameters; wanted %u", m->entry,
               a->params_len, m->params_len);
    KN_REQUIRE(!a->dependent || m->grid_dependency, KN_E_LAUNCH,
               "%s: a programmatic dependent launch of a kernel without griddepcontrol.wait", m->entry);
    KN_REQUIRE(!a->dependent || b->base.facts.cc_major >= 9, KN_E_LAUNCH,
               "%s: a programmatic dependent launch needs compute capability 9.0; cuda:%d has %u.%u", m->entry,
               b->base.dl_device_id, b->base.facts.cc_major, b->base.facts.cc_minor);
    return KN_OK;
}

static unsigned fill_attributes(const kn_launch_args *a, const cuda_module *m, kn_cu_launch_attribute out[2]) {
    unsigned n = 0;
    if (m->cluster[0] * m->cluster[1] * m->cluster[2] > 1) {
        out[n] = (kn_cu_launch_attribute){.id = KN_CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
        out[n].value.clusterDim.x = m->cluster[0];
        out[n].value.clusterDim.y = m->cluster[1];
        out[n].value.clusterDim.z = m->cluster[2];
        n++;
    }
    if (a->dependent) {
        out[n] = (kn_cu_launch_attribute){.id = KN_CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
        out[n].value.programmaticStreamSerializationAllowed = 1;
        n++;
    }
    return n;
}

kn_status kn_cuda_launch(kn_backend *base, const kn_launch_args *a) {
    kn_cuda *b = (kn_cuda *)base;
    const cuda_module *m = (const cuda_module *)a->module;
    KN_TRY(check_launch(b, a, m));
    kn_cu_launch_attribute attributes[2];
    kn_cu_launch_config config = {
        .gridDimX = a->grid[0],
        .gridDimY = a->grid[1],
        .gridDimZ = a->grid[2],
        .blockDimX = m->threads[0],
        .blockDimY = m->threads[1],
        .blockDimZ = m->threads[2],
        .sharedMemBytes = m->smem_dynamic,
        .hStream = (kn_cu_stream)a->stream,
        .attrs = attributes,
        .numAttrs = fill_attributes(a, m, attributes),
    };
    /* Parameter by parameter, not as one block: the assembler aligns parameters to their address in the constant bank,
     * so with a tensor map among them the block of the machine code is laid out differently from the PTX's. */
    void *params[KN_MAX_KERNEL_ARGS];
    for (uint32_t i = 0; i < m->n_args; i++) params[i] = (char *)(uintptr_t)a->params + m->arg_offset[i];
    kn_status st;
    KN_CUDA_CALL(st, b, KN_CUDA_PLAIN, KN_E_LAUNCH, "cuLaunchKernelEx",
                 b->cu->cuLaunchKernelEx(&config, m->function, params, NULL),
                 "%s, grid %u x %u x %u, %u threads, %u bytes of dynamic shared memory", m->entry, a->grid[0],
                 a->grid[1], a->grid[2], m->threads[0] * m->threads[1] * m->threads[2], m->smem_dynamic);
    return st;
}
