/* jit/backend_cuda on the fake driver: device facts, every call fails once, launches, memory. */
#define _GNU_SOURCE
#include "base/alloc.h"
#include "base/log.h"
#include "jit/cuda_probe.h"

#include <pthread.h>

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
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
