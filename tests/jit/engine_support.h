/* A device of the tests' own, whose every answer can be scripted, an engine on it, and made-up operations whose kernels
 * are templates written to a temporary directory. */
#ifndef KN_TESTS_JIT_ENGINE_SUPPORT_H
#define KN_TESTS_JIT_ENGINE_SUPPORT_H

#include "base/alloc.h"
#include "base/file.h"
#include "jit/engine.h"
#include "jit/kernel.h"
#include "jit/launch.h"
#include "jit/plan.h"
#include "support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the device -------------------------------------------------------------------------------------------------- */

enum { MAX_SEEN = 64 };

typedef struct seen_launch {
    char entry[64];
    uint32_t grid[3];
    bool dependent;
    void *stream, *program;
    unsigned char params[KN_PARAM_BYTES];
    size_t params_len;
    uint32_t n_extents;
    kn_extent extents[KN_MAX_BINDINGS];
} seen_launch;

static struct {
    kn_backend base;
    bool capturing;
    atomic_int loads, unloads, allocs, frees, encodes, alive;
    int fail_loads;   /* that many module_load calls fail */
    atomic_bool hold; /* module_load waits while it is set */
    atomic_int waiting;
    kn_status launch_status;
    int n_launches, programs, ended;
    seen_launch launch[MAX_SEEN];
} device;

typedef struct fake_module {
    char entry[64];
} fake_module;

static inline void fake_destroy(kn_backend *b) {
    (void)b;
    atomic_fetch_sub(&device.alive, 1);
}
static inline kn_status fake_alloc(kn_backend *b, size_t bytes, void **out) {
    (void)b;
    *out = aligned_alloc(256, (bytes + 255) / 256 * 256);
    atomic_fetch_add(&device.allocs, 1);
    return *out ? KN_OK : kn_fail(KN_E_NOMEM, "no memory");
}
static inline kn_status fake_free(kn_backend *b, void *p) {
    (void)b;
    free(p);
    atomic_fetch_add(&device.frees, 1);
    return KN_OK;
}
static inline kn_status fake_alloc_async(kn_backend *b, size_t bytes, void *stream, void **out) {
    (void)stream;
    return fake_alloc(b, bytes, out);
}
static inline kn_status fake_free_async(kn_backend *b, void *p, void *stream) {
    (void)stream;
    return fake_free(b, p);
}
static inline kn_status fake_alloc_mapped(kn_backend *b, size_t bytes, void **host, void **dev) {
    (void)b;
    *host = *dev = calloc(1, bytes);
    return KN_OK;
}
static inline kn_status fake_free_mapped(kn_backend *b, void *host) {
    (void)b;
    free(host);
    return KN_OK;
}
static inline kn_status fake_load(kn_backend *b, const void *image, size_t len, const kn_kernel_meta *meta,
                                  kn_module **out) {
    (void)b, (void)image, (void)len;
    atomic_fetch_add(&device.waiting, 1);
    while (atomic_load(&device.hold)) usleep(100);
    atomic_fetch_sub(&device.waiting, 1);
    if (device.fail_loads > 0) {
        device.fail_loads--;
        return kn_fail(KN_E_LOAD, "the device does not like %s", meta->entry);
    }
    fake_module *m = calloc(1, sizeof *m);
    snprintf(m->entry, sizeof m->entry, "%.63s", meta->entry);
    atomic_fetch_add(&device.loads, 1);
    *out = (kn_module *)m;
    return KN_OK;
}
static inline void fake_unload(kn_backend *b, kn_module *m) {
    (void)b;
    free(m);
    atomic_fetch_add(&device.unloads, 1);
}
static inline kn_status fake_encode(kn_backend *b, const kn_tensor_map *map, uint8_t out[128]) {
    (void)b;
    memset(out, 0, 128);
    memcpy(out, &map->base, sizeof map->base);
    memcpy(out + 8, map->stride, sizeof map->stride);
    atomic_fetch_add(&device.encodes, 1);
    return KN_OK;
}
static inline kn_status fake_launch(kn_backend *b, const kn_launch_args *a) {
    (void)b;
    if (device.launch_status != KN_OK) return kn_fail(device.launch_status, "the device is unwell");
    seen_launch *l = &device.launch[device.n_launches++ % MAX_SEEN];
    snprintf(l->entry, sizeof l->entry, "%s", ((fake_module *)a->module)->entry);
    memcpy(l->grid, a->grid, sizeof l->grid);
    l->dependent = a->dependent;
    l->stream = a->stream;
    l->program = a->program;
    l->params_len = a->params_len;
    memcpy(l->params, a->params, a->params_len);
    l->n_extents = a->n_extents;
    if (a->n_extents) memcpy(l->extents, a->extents, a->n_extents * sizeof *a->extents);
    return KN_OK;
}
static inline kn_status fake_program_begin(kn_backend *b, void **program) {
    (void)b;
    device.programs++;
    *program = &device.programs;
    return KN_OK;
}
static inline void fake_program_end(kn_backend *b, void *program) {
    (void)b;
    device.ended += program == &device.programs;
}
static inline kn_status fake_stream_id(kn_backend *b, void *stream, uint64_t *id) {
    (void)b;
    *id = (uint64_t)(uintptr_t)stream;
    return KN_OK;
}
static inline kn_status fake_capturing(kn_backend *b, void *stream, bool *capturing) {
    (void)b, (void)stream;
    *capturing = device.capturing;
    return KN_OK;
}

static const kn_backend_ops fake_ops = {.kind = "fake",
                                        .destroy = fake_destroy,
                                        .alloc = fake_alloc,
                                        .free = fake_free,
                                        .alloc_async = fake_alloc_async,
                                        .free_async = fake_free_async,
                                        .alloc_mapped = fake_alloc_mapped,
                                        .free_mapped = fake_free_mapped,
                                        .module_load = fake_load,
                                        .module_unload = fake_unload,
                                        .encode_tensor_map = fake_encode,
                                        .launch = fake_launch,
                                        .program_begin = fake_program_begin,
                                        .program_end = fake_program_end,
                                        .stream_id = fake_stream_id,
                                        .stream_capturing = fake_capturing};

static inline kn_backend *fake_device(void) {
    memset(&device, 0, sizeof device);
    device.base.ops = &fake_ops;
    device.base.runs_ptx = true;
    device.base.dl_device_type = 1;
    device.base.facts = (kn_device_facts){.name = "fake", .multiprocessors = 132, .smem_per_block = 232448};
    ck_assert_ok(kn_target_by_name("sm_90a", &device.base.target));
    atomic_store(&device.alive, 1);
    return &device.base;
}

static inline kn_engine *fake_engine(const kn_engine_options *options) {
    static const kn_engine_options defaults = {.cache_dir = "off"};
    kn_engine *e = NULL;
    ck_assert_ok(kn_engine_create(fake_device(), options ? options : &defaults, &e));
    return e;
}

/* ---- templates --------------------------------------------------------------------------------------------------- */

static char work_dir[64];

static inline void begin_dir(void) {
    snprintf(work_dir, sizeof work_dir, "/tmp/kiln-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(work_dir));
}

static inline void end_dir(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", work_dir);
    ck_assert_int_eq(system(command), 0);
}

/* Write template `name` into a directory that replaces the built-in ones. `args` is the .param list. */
static inline void write_template(const char *name, const char *args, const char *body) {
    char path[128], text[4096];
    snprintf(path, sizeof path, "%s/templates", work_dir);
    kn_mkdir(path, 0700);
    setenv("KILN_TEMPLATE_DIR", path, 1);
    snprintf(path, sizeof path, "%s/templates/%s", work_dir, name);
    int n = snprintf(text, sizeof text,
                     "#param N in 0 .. 1000000 // a number\n.version 7.8\n.target ${target}\n.address_size 64\n"
                     ".visible .entry kiln_test_${N}(%s)\n.reqntid 32\n{\n%s    ret;\n}\n",
                     args, body);
    ck_assert_ok(kn_file_write(path, text, (size_t)n));
}

#endif
