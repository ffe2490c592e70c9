/* jit/backend_cuda on the fake driver: every call fails once, contexts, captures, several devices, ends of processes.
 */
#define _GNU_SOURCE
#include "jit/backend.h"

#include "base/alloc.h"
#include "base/log.h"
#include "fakecuda/fake_user.h"
#include "support/suite.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static char ptx[] = ".version 8.0\n.target sm_90a\n.visible .entry probe(.param .u64 p)\n{ ret; }\n";
static const char foreign_cubin[] = "\177ELF somebody's";

static kn_expansion probe_kernel(void) {
    kn_expansion x = {.ptx = ptx, .ptx_len = strlen(ptx)};
    strcpy(x.meta.entry, "probe");
    strcpy(x.meta.target, "sm_90a");
    x.meta.threads[0] = 128;
    x.meta.threads[1] = x.meta.threads[2] = 1;
    x.meta.n_args = 2;
    x.meta.arg[0] = (kn_kernel_arg){"p", 0, 8, 8};
    x.meta.arg[1] = (kn_kernel_arg){"n", 8, 4, 4};
    return x;
}

typedef struct probe_params {
    void *p;
    uint32_t n;
} probe_params;

static kn_status launch(kn_backend *b, kn_module *m, uint32_t blocks, bool dependent, void *stream) {
    probe_params params = {NULL, 7};
    kn_launch_args a = {.module = m,
                        .grid = {blocks, 1, 1},
                        .dependent = dependent,
                        .params = &params,
                        .params_len = 12,
                        .stream = stream};
    return b->ops->launch(b, &a);
}

static kn_module *load(kn_backend *b, const kn_kernel_meta *meta) {
    kn_module *m = NULL;
    ck_assert_ok(b->ops->module_load(b, foreign_cubin, sizeof foreign_cubin, meta, &m));
    return m;
}

/* ---- facts ------------------------------------------------------------------------------------------------------- */

START_TEST(facts_of_two_devices) {
    kn_backend *a = NULL, *b = NULL;
    fake_start("devices=2 device=1:8.6:84:101376 version=12040");
    ck_assert_ok(kn_backend_cuda_create(0, &a));
    ck_assert_ok(kn_backend_cuda_create(1, &b));
    ck_assert_str_eq(a->ops->kind, "cuda");
    ck_assert_str_eq(a->target->name, "sm_90a");
    ck_assert_uint_eq(a->facts.multiprocessors, 132);
    ck_assert_uint_eq(a->facts.smem_per_block, 232448);
    ck_assert_uint_eq(a->facts.driver_version, 12040);
    ck_assert_int_eq(a->dl_device_type, 2);
    ck_assert(!a->runs_ptx);
    ck_assert_uint_eq(b->target->cc / 10, 8);
    ck_assert_uint_eq(b->facts.cc_minor, 6);
    ck_assert_uint_eq(b->facts.multiprocessors, 84);
    ck_assert_uint_eq(b->facts.smem_per_block, 101376);
    ck_assert_int_eq(b->dl_device_id, 1);
    ck_assert_str_eq(b->facts.name, "Fake GPU 8.6");
    ck_assert(a->facts.hbm_bytes_per_s > 1.7e12 && a->facts.hbm_bytes_per_s < 1.8e12);
    /* The small device refuses what the large one takes, before the driver is asked. */
    kn_expansion x = probe_kernel();
    x.meta.smem_dynamic = 200000;
    kn_module *m = load(a, &x.meta), *n = NULL;
    unsigned long before = fake_driver.fakecuda_calls();
    ck_assert_fails(b->ops->module_load(b, foreign_cubin, sizeof foreign_cubin, &x.meta, &n), KN_E_UNSUPPORTED,
                    "200000 bytes of shared memory a block; cuda:1 (Fake GPU 8.6) has 101376");
    ck_assert_uint_eq(fake_driver.fakecuda_calls(), before);
    a->ops->module_unload(a, m);
    a->ops->destroy(a);
    b->ops->destroy(b);
    ck_assert_int_eq(fake_driver.fakecuda_live(), 0);
    fake_assert_clean();
}
END_TEST

START_TEST(unknown_architecture) {
    kn_backend *b = NULL;
    fake_start("device=0:13.0:99:200000");
    ck_assert_int_eq(kn_backend_cuda_create(0, &b), KN_E_UNSUPPORTED);
    ck_assert_ptr_null(b);
    ck_assert_int_eq(fake_driver.fakecuda_live(), 0);
}
END_TEST

/* ---- every call fails once --------------------------------------------------------------------------------------- */

/* All of the backend in a row; stops at the first failure and frees what it has. */
static kn_status everything(kn_backend **keep) {
    kn_backend *b = NULL;
    kn_status st = kn_backend_cuda_create(0, &b);
    if (st != KN_OK) return st;
    void *p = NULL, *q = NULL, *host = NULL, *device = NULL, *stream = NULL, *start = NULL, *stop = NULL, *cubin = NULL;
    size_t len = 0;
    uint64_t id = 0;
    bool capturing = true;
    double us = 0;
    uint32_t word = 42, back = 0;
    kn_module *m = NULL;
    kn_asm_report report;
    kn_expansion x = probe_kernel();
    x.meta.smem_dynamic = 100000;
    x.meta.cluster[0] = 16;
    kn_tensor_map map = {.dtype = 9, .rank = 2, .base = (void *)4096, .dim = {64, 4}, .stride = {256}, .box = {32, 4}};
    uint8_t encoded[128];
    KN_TRY_OUT(st, b->ops->stream_create(b, &stream));
    KN_TRY_OUT(st, b->ops->stream_id(b, stream, &id));
    KN_TRY_OUT(st, b->ops->stream_capturing(b, stream, &capturing));
    KN_TRY_OUT(st, b->ops->event_create(b, &start));
    KN_TRY_OUT(st, b->ops->event_create(b, &stop));
    KN_TRY_OUT(st, b->ops->alloc(b, 256, &p));
    KN_TRY_OUT(st, b->ops->alloc_async(b, 512, stream, &q));
    KN_TRY_OUT(st, b->ops->alloc_mapped(b, 64, &host, &device));
    KN_TRY_OUT(st, b->ops->copy_in(b, p, &word, 4));
    KN_TRY_OUT(st, b->ops->copy_out(b, &back, p, 4));
    KN_TRY_OUT(st, b->ops->fill(b, p, 1, 256, stream));
    KN_TRY_OUT(st, b->ops->check_pointer(b, p));
    KN_TRY_OUT(st, b->ops->link(b, &x, &cubin, &len, &report));
    KN_TRY_OUT(st, b->ops->module_load(b, cubin, len, &x.meta, &m));
    KN_TRY_OUT(st, b->ops->encode_tensor_map(b, &map, encoded));
    KN_TRY_OUT(st, b->ops->event_record(b, start, stream));
    KN_TRY_OUT(st, launch(b, m, 16, false, stream));
    KN_TRY_OUT(st, b->ops->event_record(b, stop, stream));
    KN_TRY_OUT(st, b->ops->event_elapsed_us(b, start, stop, &us));
    KN_TRY_OUT(st, b->ops->stream_synchronize(b, stream));
    if (back != 42 || id == 0 || capturing || us <= 0 || report.registers == 0) st = KN_E_INTERNAL;
out:
    kn_free(cubin);
    if (m) b->ops->module_unload(b, m);
    /* What cannot be freed stays allocated in the driver; the caller hears of it. */
    kn_status freed[] = {b->ops->free_async(b, q, stream), b->ops->free(b, p),
                         b->ops->free_mapped(b, host),     b->ops->event_destroy(b, start),
                         b->ops->event_destroy(b, stop),   b->ops->stream_destroy(b, stream)};
    for (size_t i = 0; i < sizeof freed / sizeof *freed; i++)
        if (st == KN_OK) st = freed[i];
    *keep = b;
    return st;
}

static kn_status run_and_destroy(void) {
    kn_backend *b = NULL;
    kn_status st = everything(&b);
    if (b) b->ops->destroy(b);
    return st;
}

static void *run_here(void *arg) {
    *(kn_status *)arg = run_and_destroy();
    return NULL;
}

/* On a thread of its own: a failed pop leaves a context on the thread that it happened on. */
static kn_status run_on_a_thread(void) {
    kn_status st = KN_E_INTERNAL;
    pthread_t t;
    ck_assert_int_eq(pthread_create(&t, NULL, run_here, &st), 0);
    pthread_join(t, NULL);
    return st;
}

static void mute(void *user, int level, const char *line) {
    (void)level, (void)line;
    ++*(int *)user;
}

static bool frees_something(const char *call) {
    return strstr(call, "Free") || strstr(call, "Destroy") || strstr(call, "Unload") || strstr(call, "Release");
}

/* Name of the n-th call in the log. */
static void nth_call(unsigned long n, char out[64]) {
    const char *line = fake_driver.fakecuda_log();
    while (line && n > 1) {
        line = strchr(line, '\n');
        if (line) line++;
        if (line && strncmp(line, "cu", 2) == 0) n--;
    }
    snprintf(out, 64, "%.*s", line ? (int)strcspn(line, "\n") : 0, line ? line : "");
}

/* A reference of the test's own: the context outlives the backend, and what the backend leaks in it can be seen. */
static void keep_primary_context(void) {
    int (*init)(unsigned) = NULL, (*retain)(kn_cu_context *, int) = NULL;
    kn_cu_context c = NULL;
    fake_call("cuInit", &init);
    fake_call("cuDevicePrimaryCtxRetain", &retain);
    ck_assert_int_eq(init(0), 0);
    ck_assert_int_eq(retain(&c, 0), 0);
    ck_assert_int_eq(fake_driver.fakecuda_live(), 1);
}

START_TEST(each_call_fails_once) {
    int warnings = 0;
    kn_log_set_callback(mute, &warnings);
    fake_start("");
    keep_primary_context();
    ck_assert_ok(run_and_destroy());
    fake_driver.fakecuda_script("reset");
    unsigned long first = fake_driver.fakecuda_calls();
    ck_assert_ok(run_and_destroy());
    unsigned long total = fake_driver.fakecuda_calls() - first;
    ck_assert_uint_gt(total, 60);
    ck_assert_int_eq(fake_driver.fakecuda_live(), 1);
    unsigned long returned = 0;
    for (unsigned long n = 1; n <= total; n++) {
        char script[64], call[64];
        long live = fake_driver.fakecuda_live();
        warnings = 0;
        snprintf(script, sizeof script, "reset fail=%lu:999", n);
        fake_driver.fakecuda_script(script);
        unsigned long before = fake_driver.fakecuda_calls();
        kn_status st = run_on_a_thread();
        ck_assert_uint_ge(fake_driver.fakecuda_calls() - before, n);
        nth_call(n, call);
        if (st != KN_OK) {
            returned++;
            ck_assert_msg(st != KN_E_INTERNAL, "call %lu, %s", n, call);
        } else {
            /* The work was done and valid, so it was not returned: then it was told, or it was the question whether the
             * context still exists, whose failure means no. */
            ck_assert_msg(warnings > 0 || strcmp(call, "cuCtxGetId") == 0, "call %lu, %s", n, call);
        }
        long leaked = fake_driver.fakecuda_live() - live;
        /* What the driver refuses to free stays; so does what was being freed when the way there failed. */
        bool may_leak = frees_something(call) || strncmp(call, "cuCtx", 5) == 0 || strstr(call, "CaptureMode") ||
                        strcmp(call, "cuStreamSynchronize") == 0;
        ck_assert_msg(leaked == 0 || may_leak, "call %lu, %s: %ld objects leaked", n, call, leaked);
        /* Whatever failed, the next use works. */
        fake_driver.fakecuda_script("reset");
        ck_assert_msg(run_on_a_thread() == KN_OK, "after call %lu, %s", n, call);
    }
    ck_assert_uint_gt(returned, total / 2);
}
END_TEST

START_TEST(the_code_comes_back) {
    static const struct {
        const char *script;
        kn_status status;
        const char *text;
    } rows[] = {
        {"fail=cuMemAlloc_v2:1:2", KN_E_NOMEM, "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2: out of memory); 256 bytes"},
        {"fail=cuMemcpyHtoD_v2:1:700", KN_E_LAUNCH, "cuMemcpyHtoD: CUDA_ERROR_ILLEGAL_ADDRESS"},
        {"fail=cuModuleLoadDataEx:1:200", KN_E_LOAD, "probe for sm_90a on cuda:0 (Fake GPU 9.0, driver for CUDA 13.0)"},
        {"fail=cuLinkComplete:1:218", KN_E_ASSEMBLE, "cuLinkComplete: CUDA_ERROR_INVALID_PTX"},
        {"fail=cuLaunchKernelEx:1:1", KN_E_LAUNCH, "probe, grid 16 x 1 x 1, 128 threads, 100000 bytes"},
        {"fail=cuStreamSynchronize:2:700", KN_E_LAUNCH, "cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS"},
        {"fail=cuMemAllocAsync:1:900", KN_E_CAPTURE, "cuMemAllocAsync: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
        {"fail=cuDevicePrimaryCtxRetain:1:2", KN_E_NOMEM, "cuDevicePrimaryCtxRetain"},
        {"fail=cuTensorMapEncodeTiled:1:1", KN_E_LAUNCH, "64 (box 32) x 4 (box 4, stride 256 bytes)"},
        {"fail=cuEventElapsedTime:1:400", KN_E_LAUNCH, "cuEventElapsedTime: CUDA_ERROR_INVALID_HANDLE"}};
    fake_start("");
    keep_primary_context();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fake_driver.fakecuda_script(rows[i].script);
        ck_assert_fails(run_and_destroy(), rows[i].status, rows[i].text);
        ck_assert_ok(run_and_destroy());
        ck_assert_int_eq(fake_driver.fakecuda_live(), 1);
    }
    fake_assert_clean();
}
END_TEST

#ifdef KN_FAULT_INJECTION
START_TEST(out_of_memory_everywhere) {
    int warnings = 0, failures = 0;
    kn_log_set_callback(mute, &warnings);
    fake_start("");
    keep_primary_context();
    ck_assert_ok(run_and_destroy());
    for (uint64_t n = 1; n < 50; n++) {
        kn_fault_arm(n);
        kn_status st = run_and_destroy();
        bool reached = kn_fault_visits() >= n;
        kn_fault_arm(0);
        ck_assert_int_eq(st, reached ? KN_E_NOMEM : KN_OK);
        ck_assert_int_eq(fake_driver.fakecuda_live(), 1);
        if (!reached) break;
        failures++;
    }
    ck_assert_int_ge(failures, 4); /* backend, logs, cubin, module */
    fake_assert_clean();
}
END_TEST
#endif

/* ---- modules and launches ---------------------------------------------------------------------------------------- */

static uint32_t seen_n;

static void note_params(const char *kernel, const kn_cu_launch_config *config, void **params) {
    (void)kernel, (void)config;
    memcpy(&seen_n, params[1], sizeof seen_n);
}

START_TEST(launches) {
    kn_backend *b = NULL;
    fake_start("");
    fake_driver.fakecuda_on_launch(note_params);
    ck_assert_ok(kn_backend_cuda_create(0, &b));
    kn_expansion x = probe_kernel();
    kn_module *m = load(b, &x.meta);
    ck_assert_ok(launch(b, m, 1000, false, NULL));
    ck_assert_uint_eq(seen_n, 7);
    ck_assert_uint_eq(fake_driver.fakecuda_count("launch probe device=0 grid=1000,1,1 block=128,1,1 smem=0 "
                                                 "cluster=1,1,1 dependent=0 stream=(nil)"),
                      1);
    ck_assert_uint_eq(fake_driver.fakecuda_count("cuFuncSetAttribute"), 0); /* nothing to raise */
    ck_assert_uint_eq(fake_driver.fakecuda_count("cuFuncLoad"), 1);         /* loaded for real */
    ck_assert_fails(launch(b, m, 0, false, NULL), KN_E_LAUNCH, "grid is 0 x 1 x 1");
    ck_assert_fails(launch(b, m, 0x80000000u, false, NULL), KN_E_LAUNCH, "2147483648");
    ck_assert_fails(launch(b, m, 1, true, NULL), KN_E_LAUNCH, "without griddepcontrol.wait");
    kn_launch_args a = {.module = m, .grid = {1, 65536, 1}, .params = &x, .params_len = 12};
    ck_assert_fails(b->ops->launch(b, &a), KN_E_LAUNCH, "65536");
    a.grid[1] = 1;
    a.params_len = 16;
    ck_assert_fails(b->ops->launch(b, &a), KN_E_INTERNAL, "16 bytes of parameters; wanted 12");
    x.meta.grid_dependency = 1;
    x.meta.cluster[0] = 2;
    x.meta.smem_dynamic = 100000;
    kn_module *n = load(b, &x.meta);
    ck_assert_uint_eq(fake_driver.fakecuda_count("attribute probe 8=100000"), 1);
    ck_assert_fails(launch(b, n, 3, true, NULL), KN_E_LAUNCH, "multiples of its cluster");
    ck_assert_ok(launch(b, n, 4, true, NULL));
    ck_assert_uint_eq(fake_driver.fakecuda_count("launch probe device=0 grid=4,1,1 block=128,1,1 smem=100000 "
                                                 "cluster=2,1,1 dependent=1"),
                      1);
    b->ops->module_unload(b, m);
    b->ops->module_unload(b, n);
    b->ops->module_unload(b, NULL);
    b->ops->destroy(b);
    ck_assert_int_eq(fake_driver.fakecuda_live(), 0);
    fake_assert_clean();
}
END_TEST

START_TEST(dependent_launch_needs_hopper) {
    kn_backend *b = NULL;
    fake_start("device=0:8.0:108:166912");
    ck_assert_ok(kn_backend_cuda_create(0, &b));
    kn_expansion x = probe_kernel();
    x.meta.grid_dependency = 1;
    kn_module *m = load(b, &x.meta);
    ck_assert_fails(launch(b, m, 1, true, NULL), KN_E_LAUNCH, "compute capability 9.0; cuda:0 has 8.0");
    ck_assert_ok(launch(b, m, 1, false, NULL));
    b->ops->module_unload(b, m);
    b->ops->destroy(b);
}
END_TEST

START_TEST(driver_assembler_without_a_log) {
    kn_backend *b = NULL;
    fake_start("nolog");
    ck_assert_ok(kn_backend_cuda_create(0, &b));
    kn_expansion x = probe_kernel();
    void *cubin = NULL;
    size_t len = 0;
    kn_asm_report r;
    ck_assert_ok(b->ops->link(b, &x, &cubin, &len, &r));
    ck_assert_uint_eq(r.registers, 21); /* asked of the loaded code */
    ck_assert_uint_eq(r.stack, 16);
    ck_assert_uint_eq(r.smem_static, 256);
    kn_free(cubin);
    char bad[] = ".version 8.0\n.target sm_90a\nfoo.bar;\n.entry probe\n";
    x.ptx = bad;
    x.ptx_len = strlen(bad);
    ck_assert_fails(b->ops->link(b, &x, &cubin, &len, &r), KN_E_ASSEMBLE, "PTX line 3: error: Not a name");
    ck_assert_ptr_null(cubin);
    kn_module *m = NULL;
    ck_assert_fails(b->ops->module_load(b, "PTX text", 9, &x.meta, &m), KN_E_LOAD, "not an ELF image");
    ck_assert_fails(b->ops->module_load(b, "", 0, &x.meta, &m), KN_E_LOAD, "empty image");
    b->ops->destroy(b);
    ck_assert_int_eq(fake_driver.fakecuda_live(), 0);
    fake_assert_clean();
}
END_TEST

/* ---- memory ------------------------------------------------------------------------------------------------------ */

START_TEST(memory_and_pointers) {
    kn_backend *a = NULL, *b = NULL;
    fake_start("devices=2");
    ck_assert_ok(kn_backend_cuda_create(0, &a));
    ck_assert_ok(kn_backend_cuda_create(1, &b));
    void *p = NULL, *host = NULL, *device = NULL;
    ck_assert_ok(a->ops->alloc(a, 1000, &p));
    ck_assert_ok(a->ops->check_pointer(a, p));
    ck_assert_ok(a->ops->check_pointer(a, (char *)p + 999));
    ck_assert_fails(b->ops->check_pointer(b, p), KN_E_DEVICE, "memory of cuda:0; wanted memory of cuda:1");
    int local;
    ck_assert_fails(a->ops->check_pointer(a, &local), KN_E_DEVICE, "ordinary host memory");
    ck_assert_ok(a->ops->alloc_mapped(a, 64, &host, &device));
    ck_assert_ok(a->ops->check_pointer(a, host));
    ck_assert_int_eq(((uint32_t *)host)[3], 0);
    ck_assert_ok(a->ops->free_mapped(a, host));
    ck_assert_ok(a->ops->free(a, p));
    ck_assert_ok(a->ops->free(a, NULL));
    ck_assert_ok(a->ops->alloc(a, 0, &p)); /* a valid pointer */
    ck_assert_ok(a->ops->copy_in(a, p, NULL, 0));
    ck_assert_ok(a->ops->free(a, p));
    ck_assert_fails(a->ops->alloc(a, (size_t)1 << 40, &p), KN_E_NOMEM, "1099511627776 bytes on device 0");
    a->ops->destroy(a);
    b->ops->destroy(b);
    ck_assert_int_eq(fake_driver.fakecuda_live(), 0);
    fake_assert_clean();
}
END_TEST

START_TEST(devices_without_pools) {
    kn_backend *b = NULL;
    void *p = NULL, *stream = NULL;
    fake_start("nopools pageable");
    ck_assert_ok(kn_backend_cuda_create(0, &b));
    ck_assert_ok(b->ops->stream_create(b, &stream));
    ck_assert_ok(b->ops->alloc_async(b, 100, stream, &p));
    ck_assert_ok(b->ops->free_async(b, p, stream));
    ck_assert_uint_eq(fake_driver.fakecuda_count("cuStreamSynchronize"), 1); /* before the free */
    ck_assert_ok(b->ops->check_pointer(b, &p));                              /* such a device reads host memory */
    ck_assert_ok(b->ops->stream_destroy(b, stream));
    b->ops->destroy(b);
    fake_assert_clean();
}
END_TEST

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

static kn_cu_context current_context(void) {
    int (*get)(kn_cu_context *) = NULL;
    kn_cu_context c = NULL;
    fake_call("cuCtxGetCurrent", &get);
    ck_assert_int_eq(get(&c), 0);
    return c;
}

START_TEST(the_current_context_is_left_alone) {
    kn_backend *a = NULL, *b = NULL;
    int (*retain)(kn_cu_context *, int), (*push)(kn_cu_context);
    fake_start("devices=2");
    ck_assert_ok(kn_backend_cuda_create(1, &b));
    fake_call("cuDevicePrimaryCtxRetain", &retain);
    fake_call("cuCtxPushCurrent_v2", &push);
    kn_cu_context first = NULL;
    ck_assert_int_eq(retain(&first, 0), 0);
    ck_assert_int_eq(push(first), 0);
    ck_assert_ok(kn_backend_cuda_create(0, &a));
    /* Device 0 is current, the work is on device 1: it lands there, and 0 stays current. */
    kn_expansion x = probe_kernel();
    kn_module *m = load(b, &x.meta);
    ck_assert_ok(launch(b, m, 1, false, NULL));
    ck_assert_uint_eq(fake_driver.fakecuda_count("launch probe device=1"), 1);
    ck_assert_ptr_eq(current_context(), first);
    b->ops->module_unload(b, m);
    /* A device's own context is used as it is, without a push. */
    unsigned long pushes = fake_driver.fakecuda_count("cuCtxPushCurrent");
    m = load(a, &x.meta);
    ck_assert_ok(launch(a, m, 1, false, NULL));
    ck_assert_uint_eq(fake_driver.fakecuda_count("cuCtxPushCurrent"), pushes);
    a->ops->module_unload(a, m);
    a->ops->destroy(a);
    b->ops->destroy(b);
    ck_assert_int_eq(fake_driver.fakecuda_live(), 1); /* this test's own reference */
    fake_assert_clean();
}
END_TEST

START_TEST(a_custom_context) {
    kn_backend *b = NULL;
    int (*create)(kn_cu_context *, unsigned, int), (*destroy)(kn_cu_context), (*pop)(kn_cu_context *);
    fake_start("");
    fake_call("cuCtxCreate_v2", &create);
    fake_call("cuCtxDestroy_v2", &destroy);
    fake_call("cuCtxPopCurrent_v2", &pop);
    int (*init)(unsigned) = NULL;
    fake_call("cuInit", &init);
    ck_assert_int_eq(init(0), 0);
    kn_cu_context custom = NULL, popped = NULL;
    ck_assert_int_eq(create(&custom, 0, 0), 0);
    ck_assert_ok(kn_backend_cuda_create(0, &b));
    ck_assert_uint_eq(fake_driver.fakecuda_count("cuDevicePrimaryCtxRetain"), 0); /* no second context beside it */
    kn_expansion x = probe_kernel();
    kn_module *m = load(b, &x.meta);
    void *p = NULL, *stream = NULL;
    ck_assert_ok(b->ops->alloc(b, 64, &p));
    ck_assert_ok(b->ops->stream_create(b, &stream));
    ck_assert_int_eq(pop(&popped), 0);
    ck_assert_ok(launch(b, m, 1, false, stream)); /* pushed and popped */
    ck_assert_ptr_null(current_context());
    ck_assert_int_eq(destroy(custom), 0);
    ck_assert_fails(launch(b, m, 1, false, stream), KN_E_DEVICE, "destroyed or reset");
    /* Freeing what died with the context succeeds and does not touch it. */
    b->ops->module_unload(b, m);
    ck_assert_ok(b->ops->free(b, p));
    ck_assert_ok(b->ops->stream_destroy(b, stream));
    b->ops->destroy(b);
    fake_assert_clean();
}
END_TEST

START_TEST(a_reset_of_the_primary_context) {
    kn_backend *b = NULL, *c = NULL;
    int (*reset)(int);
    fake_start("");
    ck_assert_ok(kn_backend_cuda_create(0, &b));
    kn_expansion x = probe_kernel();
    kn_module *m = load(b, &x.meta);
    void *p = NULL, *stream = NULL, *event = NULL, *host = NULL, *device = NULL;
    ck_assert_ok(b->ops->alloc(b, 64, &p));
    ck_assert_ok(b->ops->alloc_mapped(b, 64, &host, &device));
    ck_assert_ok(b->ops->stream_create(b, &stream));
    ck_assert_ok(b->ops->event_create(b, &event));
    fake_call("cuDevicePrimaryCtxReset_v2", &reset);
    ck_assert_int_eq(reset(0), 0);
    ck_assert_ok(kn_backend_cuda_create(0, &c)); /* the same address, another context */
    ck_assert_fails(launch(b, m, 1, false, NULL), KN_E_DEVICE, "destroyed or reset");
    b->ops->module_unload(b, m);
    ck_assert_ok(b->ops->free(b, p));
    ck_assert_ok(b->ops->free_mapped(b, host));
    ck_assert_ok(b->ops->event_destroy(b, event));
    ck_assert_ok(b->ops->stream_destroy(b, stream));
    b->ops->destroy(b);
    m = load(c, &x.meta);
    ck_assert_ok(launch(c, m, 1, false, NULL));
    c->ops->module_unload(c, m);
    c->ops->destroy(c);
    fake_assert_clean();
}
END_TEST

/* ---- captures, threads, ends ------------------------------------------------------------------------------------- */

START_TEST(captures_are_not_broken) {
    kn_backend *b = NULL;
    fake_start("");
    ck_assert_ok(kn_backend_cuda_create(0, &b));
    void *stream = NULL, *p = NULL, *host = NULL, *device = NULL, *event = NULL, *cubin = NULL;
    size_t len = 0;
    kn_asm_report r;
    bool capturing = false;
    ck_assert_ok(b->ops->stream_create(b, &stream));
    fake_driver.fakecuda_capture(stream, 1);
    ck_assert_ok(b->ops->stream_capturing(b, stream, &capturing));
    ck_assert(capturing);
    kn_expansion x = probe_kernel();
    kn_module *m = load(b, &x.meta);
    ck_assert_ok(b->ops->link(b, &x, &cubin, &len, &r));
    kn_free(cubin);
    ck_assert_ok(b->ops->alloc(b, 64, &p));
    ck_assert_ok(b->ops->free(b, p));
    ck_assert_ok(b->ops->alloc_mapped(b, 64, &host, &device));
    ck_assert_ok(b->ops->free_mapped(b, host));
    ck_assert_ok(b->ops->event_create(b, &event));
    ck_assert_ok(b->ops->event_destroy(b, event));
    ck_assert_ok(launch(b, m, 1, false, stream));
    b->ops->module_unload(b, m);
    ck_assert(fake_driver.fakecuda_capture_intact());
    /* The thread's own mode is what it was: a strict call of the program itself is still refused. */
    int (*alloc)(kn_cu_ptr *, size_t) = NULL;
    kn_cu_ptr q = 0;
    fake_call("cuMemAlloc_v2", &alloc);
    ck_assert_int_eq(alloc(&q, 64), 900);
    ck_assert(!fake_driver.fakecuda_capture_intact());
    fake_driver.fakecuda_capture(stream, 0);
    ck_assert_ok(b->ops->stream_destroy(b, stream));
    b->ops->destroy(b);
    fake_assert_clean();
}
END_TEST

typedef struct worker {
    kn_backend *backend[2];
    kn_module *module[2];
    pthread_barrier_t *start;
    bool ok;
} worker;

static void *work(void *arg) {
    worker *w = arg;
    void *p = NULL;
    pthread_barrier_wait(w->start);
    w->ok = true;
    for (int i = 0; i < 200 && w->ok; i++) {
        kn_backend *b = w->backend[i % 2];
        w->ok = launch(b, w->module[i % 2], 1, false, NULL) == KN_OK && b->ops->alloc(b, 64, &p) == KN_OK &&
                b->ops->free(b, p) == KN_OK;
    }
    if (w->ok && current_context() != NULL) w->ok = false;
    return NULL;
}

START_TEST(threads_on_two_devices) {
    enum { THREADS = 8 };
    worker w[THREADS];
    pthread_t t[THREADS];
    pthread_barrier_t barrier;
    fake_start("devices=2 device=1:8.6:84:101376");
    pthread_barrier_init(&barrier, NULL, THREADS);
    kn_backend *b[2];
    kn_module *m[2];
    kn_expansion x = probe_kernel();
    for (int i = 0; i < 2; i++) {
        ck_assert_ok(kn_backend_cuda_create(i, &b[i]));
        x.meta.smem_dynamic = i ? 70000 : 200000; /* two limits, each on its own device */
        m[i] = load(b[i], &x.meta);
    }
    for (int i = 0; i < THREADS; i++) {
        w[i] = (worker){{b[0], b[1]}, {m[0], m[1]}, &barrier, false};
        ck_assert_int_eq(pthread_create(&t[i], NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(t[i], NULL);
        ck_assert(w[i].ok);
    }
    ck_assert_uint_eq(fake_driver.fakecuda_count("launch probe device=0"), THREADS * 100);
    ck_assert_uint_eq(fake_driver.fakecuda_count("launch probe device=1"), THREADS * 100);
    for (int i = 0; i < 2; i++) {
        b[i]->ops->module_unload(b[i], m[i]);
        b[i]->ops->destroy(b[i]);
    }
    ck_assert_int_eq(fake_driver.fakecuda_live(), 0);
    fake_assert_clean();
}
END_TEST

START_TEST(a_driver_that_has_shut_down) {
    kn_backend *b = NULL;
    int warnings = 0;
    kn_log_set_callback(mute, &warnings);
    fake_start("");
    ck_assert_ok(kn_backend_cuda_create(0, &b));
    kn_expansion x = probe_kernel();
    kn_module *m = load(b, &x.meta);
    void *p = NULL;
    ck_assert_ok(b->ops->alloc(b, 64, &p));
    /* The context may go between the question and the call. */
    fake_driver.fakecuda_script("fail=cuMemFree_v2:1:709");
    ck_assert_ok(b->ops->free(b, p));
    fake_driver.fakecuda_script("deinit");
    b->ops->module_unload(b, m);
    ck_assert_ok(b->ops->free(b, p));
    b->ops->destroy(b);
    ck_assert_int_eq(warnings, 0);
}
END_TEST

/* exit(0) with everything still alive, from the main thread and from another: nothing of ours runs, nothing is said. */
static void *exit_now(void *arg) {
    (void)arg;
    exit(0);
}

static kn_backend *alive;
static kn_module *volatile alive_module; /* for leak checkers: reachable */

START_TEST(exit_with_everything_alive) {
    for (int other_thread = 0; other_thread < 2; other_thread++) {
        int fds[2];
        ck_assert_int_eq(pipe(fds), 0);
        pid_t child = fork();
        if (child == 0) {
            dup2(fds[1], 2);
            fake_start("");
            kn_expansion x = probe_kernel();
            void *p = NULL;
            if (kn_backend_cuda_create(0, &alive) != KN_OK || alive->ops->alloc(alive, 64, &p) != KN_OK) _exit(3);
            alive_module = load(alive, &x.meta);
            if (launch(alive, alive_module, 1, false, NULL) != KN_OK) _exit(4);
            pthread_t t;
            if (other_thread && pthread_create(&t, NULL, exit_now, NULL) == 0) pause();
            exit(0);
        }
        close(fds[1]);
        char text[2048];
        ssize_t n = read(fds[0], text, sizeof text);
        int status = -1;
        waitpid(child, &status, 0);
        ck_assert_msg(status == 0 && n == 0, "status %d, stderr: %.*s", status, (int)n, text);
        close(fds[0]);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("jit/backend_cuda");
    TCase *t = tcase_create("all");
    tcase_add_test(t, facts_of_two_devices);
    tcase_add_test(t, unknown_architecture);
    tcase_add_test(t, each_call_fails_once);
    tcase_add_test(t, the_code_comes_back);
#ifdef KN_FAULT_INJECTION
    tcase_add_test(t, out_of_memory_everywhere);
#endif
    tcase_add_test(t, launches);
    tcase_add_test(t, dependent_launch_needs_hopper);
    tcase_add_test(t, driver_assembler_without_a_log);
    tcase_add_test(t, memory_and_pointers);
    tcase_add_test(t, devices_without_pools);
    tcase_add_test(t, the_current_context_is_left_alone);
    tcase_add_test(t, a_custom_context);
    tcase_add_test(t, a_reset_of_the_primary_context);
    tcase_add_test(t, captures_are_not_broken);
    tcase_add_test(t, threads_on_two_devices);
    tcase_add_test(t, a_driver_that_has_shut_down);
    tcase_add_test(t, exit_with_everything_alive);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
