/* jit/backend_cuda on a real GPU: what only hardware and the real driver can show. Skipped where there is none. */
#define _POSIX_C_SOURCE 200809L
#include "base/alloc.h"
#include "jit/backend.h"
#include "jit/dl.h"
#include "support/suite.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

#define HEAD ".version 8.0\n.target sm_90a\n.address_size 64\n"

/* p[block * 128 + thread] = n + block * 128 + thread */
static char iota_ptx[] = HEAD ".visible .entry iota(.param .u64 p, .param .u32 n)\n.reqntid 128,1,1\n{\n"
                              ".reg .u64 a, b;\n.reg .u32 r<5>;\nld.param.u64 a, [p];\nld.param.u32 r0, [n];\n"
                              "mov.u32 r1, %tid.x;\nmov.u32 r2, %ctaid.x;\nmad.lo.u32 r3, r2, 128, r1;\n"
                              "add.u32 r4, r3, r0;\nmul.wide.u32 b, r3, 4;\nadd.u64 a, a, b;\nst.global.u32 [a], r4;\n"
                              "ret;\n}\n";

/* The same through 128 KiB of dynamic shared memory, in clusters of two, behind griddepcontrol.wait. */
static char cluster_ptx[] = HEAD
    ".extern .shared .align 16 .b8 dyn[];\n.visible .entry paired(.param .u64 p, .param .u32 n)\n.reqntid 128,1,1\n"
    ".reqnctapercluster 2,1,1\n{\n.reg .u64 a, b;\n.reg .u32 r<8>;\ngriddepcontrol.wait;\nld.param.u64 a, [p];\n"
    "ld.param.u32 r0, [n];\nmov.u32 r1, %tid.x;\nmov.u32 r2, %ctaid.x;\nmad.lo.u32 r3, r2, 128, r1;\n"
    "mov.u32 r5, %cluster_ctarank;\nadd.u32 r4, r3, r0;\nadd.u32 r4, r4, r5;\nmov.u32 r6, dyn;\n"
    "shl.b32 r7, r1, 10;\nadd.u32 r6, r6, r7;\nst.shared.u32 [r6], r4;\nld.shared.u32 r4, [r6];\n"
    "mul.wide.u32 b, r3, 4;\nadd.u64 a, a, b;\nst.global.u32 [a], r4;\nret;\n}\n";

/* Loads box (0,0) of a tensor map of 32-bit words, 32 x 4, and stores it at p. */
static char tma_ptx[] =
    HEAD ".visible .entry tma(.param .u64 p, .param .align 64 .b8 tm[128])\n.reqntid 128,1,1\n{\n"
         ".shared .align 128 .b8 tile[512];\n.shared .align 8 .b64 bar;\n.reg .u64 a, b, m;\n.reg .u32 r<6>;\n.reg "
         ".pred q;\n"
         "ld.param.u64 a, [p];\nmov.u64 m, tm;\ncvta.param.u64 m, m;\nmov.u32 r0, %tid.x;\nmov.u32 r1, bar;\nmov.u32 "
         "r2, tile;\n"
         "setp.ne.u32 q, r0, 0;\n@q bra WAIT;\nmbarrier.init.shared::cta.b64 [r1], 1;\n"
         "fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;\n"
         "mbarrier.arrive.expect_tx.shared::cta.b64 _, [r1], 512;\n"
         "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [r2], [m, {0, 0}], [r1];\n"
         "WAIT:\nbar.sync 0;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 q, [r1], 0;\n@!q bra AGAIN;\n"
         "shl.b32 r3, r0, 2;\nadd.u32 r4, r2, r3;\nld.shared.u32 r5, [r4];\nmul.wide.u32 b, r0, 4;\nadd.u64 a, a, b;\n"
         "st.global.u32 [a], r5;\nret;\n}\n";

static kn_expansion expansion_of(char *ptx, const char *entry, uint32_t n_args, const kn_kernel_arg *args) {
    kn_expansion x = {.ptx = ptx, .ptx_len = strlen(ptx)};
    snprintf(x.meta.entry, sizeof x.meta.entry, "%s", entry);
    snprintf(x.meta.target, sizeof x.meta.target, "sm_90a");
    x.meta.threads[0] = 128;
    x.meta.threads[1] = x.meta.threads[2] = 1;
    x.meta.cluster[0] = x.meta.cluster[1] = x.meta.cluster[2] = 1;
    x.meta.n_args = n_args;
    memcpy(x.meta.arg, args, n_args * sizeof *args);
    return x;
}

static const kn_kernel_arg pn_args[] = {{"p", 0, 8, 8}, {"n", 8, 4, 4}};
typedef struct pn_params {
    void *p;
    uint32_t n;
} pn_params;
enum { PN_LEN = 12 };

/* ---- fixture ----------------------------------------------------------------------------------------------------- */

static kn_backend *gpu(void) {
    kn_backend *b = NULL;
    int count = 0;
    kn_status st = kn_backend_cuda_count(&count);
    if (st != KN_OK || count == 0) {
        printf("skipped: %s\n", st != KN_OK ? kn_error_message() : "no CUDA device");
        return NULL;
    }
    ck_assert_ok(kn_backend_cuda_create(0, &b));
    if (b->facts.cc_major == 9 && b->facts.cc_minor == 0) return b;
    printf("skipped: %s is not of compute capability 9.0\n", b->facts.name);
    b->ops->destroy(b);
    return NULL;
}

/* A function of the driver that Kiln itself does not use; `out` points to a function pointer. */
static void driver_call(const char *name, void *out) {
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    ck_assert_ptr_nonnull(handle);
    ck_assert_msg(kn_dl_symbol(handle, name, out), "%s", name);
}

static kn_module *load(kn_backend *b, const kn_expansion *x) {
    void *cubin = NULL;
    size_t len = 0;
    kn_asm_report r;
    kn_module *m = NULL;
    ck_assert_ok(b->ops->link(b, x, &cubin, &len, &r));
    ck_assert_ok(b->ops->module_load(b, cubin, len, &x->meta, &m));
    kn_free(cubin);
    return m;
}

static kn_status launch(kn_backend *b, kn_module *m, uint32_t blocks, bool dependent, void *p, uint32_t n,
                        void *stream) {
    pn_params params = {p, n};
    kn_launch_args a = {.module = m,
                        .grid = {blocks, 1, 1},
                        .dependent = dependent,
                        .params = &params,
                        .params_len = PN_LEN,
                        .stream = stream};
    return b->ops->launch(b, &a);
}

static void check_iota(kn_backend *b, void *p, uint32_t count, uint32_t n, uint32_t per_block) {
    uint32_t host[1024];
    ck_assert_ok(b->ops->copy_out(b, host, p, count * 4));
    for (uint32_t i = 0; i < count; i++) ck_assert_uint_eq(host[i], n + i + (i / 128 % 2) * per_block);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

START_TEST(facts_and_version) {
    kn_backend *b = gpu();
    if (!b) return;
    const kn_device_facts *f = &b->facts;
    printf("%s: %u multiprocessors, %u bytes smem, %.0f GB/s, %.0f TFLOP/s, driver %u\n", f->name, f->multiprocessors,
           f->smem_per_block, f->hbm_bytes_per_s / 1e9, f->bf16_flops / 1e12, f->driver_version);
    ck_assert_str_eq(b->target->name, "sm_90a");
    ck_assert_uint_ge(f->multiprocessors, 1);
    ck_assert_uint_eq(f->smem_per_block, 232448);
    ck_assert(f->hbm_bytes_per_s > 1e12 && f->hbm_bytes_per_s < 1e13);
    b->ops->destroy(b);
}
END_TEST

START_TEST(both_assemblers_run) {
    kn_backend *b = gpu();
    if (!b) return;
    kn_expansion x = expansion_of(iota_ptx, "iota", 2, pn_args);
    void *p = NULL;
    ck_assert_ok(b->ops->alloc(b, 4096, &p));
    for (int round = 0; round < 2; round++) {
        void *cubin = NULL;
        size_t len = 0;
        kn_asm_report r;
        kn_status st = round == 0 ? b->ops->link(b, &x, &cubin, &len, &r) : kn_nvjitlink_assemble(&x, &cubin, &len, &r);
        if (round == 1 && st == KN_E_UNAVAILABLE) break;
        ck_assert_ok(st);
        printf("%s: %zu bytes, %u registers, %.1f ms\n", round ? "nvJitLink" : "driver", len, r.registers,
               (double)r.assemble_ns / 1e6);
        ck_assert_uint_gt(r.registers, 0);
        kn_module *m = NULL;
        ck_assert_ok(b->ops->module_load(b, cubin, len, &x.meta, &m));
        kn_free(cubin);
        ck_assert_ok(b->ops->fill(b, p, 0xff, 4096, NULL));
        ck_assert_ok(launch(b, m, 8, false, p, 1000, NULL));
        check_iota(b, p, 1024, 1000, 0);
        ck_assert_fails(launch(b, m, 0, false, p, 0, NULL), KN_E_LAUNCH, "grid is 0 x 1 x 1");
        ck_assert_fails(launch(b, m, 8, true, p, 0, NULL), KN_E_LAUNCH, "griddepcontrol.wait");
        b->ops->module_unload(b, m);
    }
    ck_assert_ok(b->ops->free(b, p));
    b->ops->destroy(b);
}
END_TEST

START_TEST(clusters_smem_and_dependent_launch) {
    kn_backend *b = gpu();
    if (!b) return;
    kn_expansion x = expansion_of(cluster_ptx, "paired", 2, pn_args);
    x.meta.cluster[0] = 2;
    x.meta.smem_dynamic = 128 * 1024;
    x.meta.grid_dependency = 1;
    kn_module *m = load(b, &x);
    void *p = NULL, *stream = NULL, *start = NULL, *stop = NULL;
    ck_assert_ok(b->ops->stream_create(b, &stream));
    ck_assert_ok(b->ops->event_create(b, &start));
    ck_assert_ok(b->ops->event_create(b, &stop));
    ck_assert_ok(b->ops->alloc_async(b, 4096, stream, &p));
    ck_assert_ok(b->ops->event_record(b, start, stream));
    for (uint32_t i = 0; i < 10; i++) ck_assert_ok(launch(b, m, 8, true, p, i, stream));
    ck_assert_ok(b->ops->event_record(b, stop, stream));
    double us = 0;
    ck_assert_ok(b->ops->event_elapsed_us(b, start, stop, &us));
    ck_assert(us > 0 && us < 1e6);
    check_iota(b, p, 1024, 9, 1);
    ck_assert_fails(launch(b, m, 7, true, p, 0, stream), KN_E_LAUNCH, "multiples of its cluster");
    uint64_t id = 0, null_id = 0;
    ck_assert_ok(b->ops->stream_id(b, stream, &id));
    ck_assert_ok(b->ops->stream_id(b, NULL, &null_id));
    ck_assert_uint_ne(id, null_id);
    ck_assert_ok(b->ops->free_async(b, p, stream));
    ck_assert_ok(b->ops->stream_synchronize(b, stream));
    ck_assert_ok(b->ops->event_destroy(b, start));
    ck_assert_ok(b->ops->event_destroy(b, stop));
    ck_assert_ok(b->ops->stream_destroy(b, stream));
    b->ops->module_unload(b, m);
    b->ops->destroy(b);
}
END_TEST

START_TEST(tensor_maps) {
    kn_backend *b = gpu();
    if (!b) return;
    static const kn_kernel_arg args[] = {{"p", 0, 8, 8}, {"tm", 64, 128, 64}};
    kn_expansion x = expansion_of(tma_ptx, "tma", 2, args);
    kn_module *m = load(b, &x);
    uint32_t host[64 * 4], seen[128];
    for (uint32_t i = 0; i < 256; i++) host[i] = 7 * i;
    void *p = NULL, *q = NULL;
    ck_assert_ok(b->ops->alloc(b, sizeof host, &p));
    ck_assert_ok(b->ops->alloc(b, sizeof seen, &q));
    ck_assert_ok(b->ops->copy_in(b, p, host, sizeof host));
    kn_tensor_map map = {
        .dtype = 2 /* 32-bit words */, .rank = 2, .base = p, .dim = {64, 4}, .stride = {256}, .box = {32, 4}};
    struct {
        void *p;
        char gap[56];
        uint8_t tm[128];
    } params = {.p = q};
    ck_assert_ok(b->ops->encode_tensor_map(b, &map, params.tm));
    kn_launch_args a = {.module = m, .grid = {1, 1, 1}, .params = &params, .params_len = sizeof params};
    ck_assert_ok(b->ops->launch(b, &a));
    ck_assert_ok(b->ops->copy_out(b, seen, q, sizeof seen));
    for (uint32_t i = 0; i < 128; i++) ck_assert_uint_eq(seen[i], host[i / 32 * 64 + i % 32]);
    map.stride[0] = 250;
    ck_assert_fails(b->ops->encode_tensor_map(b, &map, params.tm), KN_E_LAUNCH, "stride 250 bytes");
    b->ops->module_unload(b, m);
    ck_assert_ok(b->ops->free(b, p));
    ck_assert_ok(b->ops->free(b, q));
    b->ops->destroy(b);
}
END_TEST

/* While another thread captures in the strictest mode, loads and allocations must not break its capture. */
typedef struct capture_job {
    kn_backend *b;
    kn_module *m;
    void *p, *stream, *graph;
    pthread_barrier_t begun, done;
    int rc;
} capture_job;

static void *capture_thread(void *arg) {
    capture_job *j = arg;
    int (*ctx_set)(void *), (*begin)(void *, int), (*end)(void *, void **), (*get_ctx)(void **, int);
    driver_call("cuDevicePrimaryCtxRetain", &get_ctx);
    driver_call("cuCtxSetCurrent", &ctx_set);
    driver_call("cuStreamBeginCapture_v2", &begin);
    driver_call("cuStreamEndCapture", &end);
    void *ctx = NULL;
    int rc = get_ctx(&ctx, 0);
    if (rc == 0) rc = ctx_set(ctx);
    if (rc == 0) rc = begin(j->stream, 0);
    pthread_barrier_wait(&j->begun);
    pthread_barrier_wait(&j->done);
    if (rc == 0 && launch(j->b, j->m, 8, false, j->p, 77, j->stream) != KN_OK) rc = -1;
    int end_rc = end(j->stream, &j->graph);
    j->rc = rc ? rc : end_rc;
    return NULL;
}

START_TEST(captures_survive_loads_and_allocations) {
    kn_backend *b = gpu();
    if (!b) return;
    kn_expansion x = expansion_of(iota_ptx, "iota", 2, pn_args);
    capture_job j = {.b = b, .m = load(b, &x), .rc = -2};
    ck_assert_ok(b->ops->stream_create(b, &j.stream));
    ck_assert_ok(b->ops->alloc(b, 4096, &j.p));
    pthread_barrier_init(&j.begun, NULL, 2);
    pthread_barrier_init(&j.done, NULL, 2);
    pthread_t t;
    ck_assert_int_eq(pthread_create(&t, NULL, capture_thread, &j), 0);
    pthread_barrier_wait(&j.begun);
    bool capturing = false;
    ck_assert_ok(b->ops->stream_capturing(b, j.stream, &capturing));
    ck_assert(capturing);
    kn_module *other = load(b, &x);
    void *q = NULL, *host = NULL, *device = NULL, *event = NULL;
    ck_assert_ok(b->ops->alloc(b, 1 << 20, &q));
    ck_assert_ok(b->ops->alloc_mapped(b, 4096, &host, &device));
    ck_assert_ok(b->ops->event_create(b, &event));
    ck_assert_ok(b->ops->event_destroy(b, event));
    ck_assert_ok(b->ops->free_mapped(b, host));
    ck_assert_ok(b->ops->free(b, q));
    b->ops->module_unload(b, other);
    pthread_barrier_wait(&j.done);
    pthread_join(t, NULL);
    ck_assert_int_eq(j.rc, 0);
    int (*instantiate)(void **, void *, unsigned long long), (*graph_launch)(void *, void *);
    int (*retain)(void **, int), (*ctx_set)(void *);
    driver_call("cuDevicePrimaryCtxRetain", &retain);
    driver_call("cuCtxSetCurrent", &ctx_set);
    void *ctx = NULL;
    ck_assert_int_eq(retain(&ctx, 0), 0);
    ck_assert_int_eq(ctx_set(ctx), 0);
    driver_call("cuGraphInstantiateWithFlags", &instantiate);
    driver_call("cuGraphLaunch", &graph_launch);
    void *exec = NULL;
    ck_assert_int_eq(instantiate(&exec, j.graph, 0), 0);
    ck_assert_int_eq(graph_launch(exec, j.stream), 0);
    ck_assert_ok(b->ops->stream_synchronize(b, j.stream));
    check_iota(b, j.p, 1024, 77, 0);
    b->ops->destroy(b);
}
END_TEST

START_TEST(contexts) {
    kn_backend *b = gpu();
    if (!b) return;
    int (*get)(void **), (*create)(void **, unsigned, int), (*destroy)(void *), (*pop)(void **);
    driver_call("cuCtxGetCurrent", &get);
    driver_call("cuCtxCreate_v2", &create);
    driver_call("cuCtxDestroy_v2", &destroy);
    driver_call("cuCtxPopCurrent_v2", &pop);
    void *now = (void *)1, *custom = NULL, *p = NULL;
    ck_assert_ok(b->ops->alloc(b, 64, &p));
    ck_assert_int_eq(get(&now), 0);
    ck_assert_ptr_null(now); /* the thread had no context and has none again */
    ck_assert_int_eq(create(&custom, 0, 0), 0);
    kn_backend *c = NULL;
    ck_assert_ok(kn_backend_cuda_create(0, &c));
    kn_expansion x = expansion_of(iota_ptx, "iota", 2, pn_args);
    kn_module *m = load(c, &x);
    void *q = NULL;
    ck_assert_ok(c->ops->alloc(c, 4096, &q));
    ck_assert_ok(launch(c, m, 8, false, q, 5, NULL));
    check_iota(c, q, 1024, 5, 0);
    ck_assert_ok(b->ops->free(b, p)); /* of the other context, while the custom one is current */
    ck_assert_int_eq(get(&now), 0);
    ck_assert_ptr_eq(now, custom);
    ck_assert_int_eq(pop(&now), 0);
    ck_assert_ok(launch(c, m, 8, false, q, 6, NULL)); /* pushed */
    check_iota(c, q, 1024, 6, 0);
    /* The caller destroys its context: what lived in it is gone, and nothing of ours touches it again. */
    ck_assert_int_eq(destroy(custom), 0);
    ck_assert_fails(launch(c, m, 8, false, q, 6, NULL), KN_E_DEVICE, "destroyed or reset");
    c->ops->module_unload(c, m);
    ck_assert_ok(c->ops->free(c, q));
    c->ops->destroy(c);
    b->ops->destroy(b);
}
END_TEST

START_TEST(primary_context_reset) {
    kn_backend *b = gpu();
    if (!b) return;
    kn_expansion x = expansion_of(iota_ptx, "iota", 2, pn_args);
    kn_module *m = load(b, &x);
    void *p = NULL, *stream = NULL, *event = NULL, *host = NULL, *device = NULL;
    ck_assert_ok(b->ops->alloc(b, 4096, &p));
    ck_assert_ok(b->ops->stream_create(b, &stream));
    ck_assert_ok(b->ops->event_create(b, &event));
    ck_assert_ok(b->ops->alloc_mapped(b, 64, &host, &device));
    ck_assert_ok(launch(b, m, 8, false, p, 6, stream));
    int (*reset)(int);
    driver_call("cuDevicePrimaryCtxReset_v2", &reset);
    ck_assert_int_eq(reset(0), 0);
    ck_assert_fails(launch(b, m, 8, false, p, 6, NULL), KN_E_DEVICE, "destroyed or reset");
    b->ops->module_unload(b, m);
    ck_assert_ok(b->ops->free(b, p));
    ck_assert_ok(b->ops->free_mapped(b, host));
    ck_assert_ok(b->ops->event_destroy(b, event));
    ck_assert_ok(b->ops->stream_destroy(b, stream));
    b->ops->destroy(b);
    /* A fresh backend works. */
    ck_assert_ok(kn_backend_cuda_create(0, &b));
    m = load(b, &x);
    ck_assert_ok(b->ops->alloc(b, 4096, &p));
    ck_assert_ok(launch(b, m, 8, false, p, 9, NULL));
    check_iota(b, p, 1024, 9, 0);
    b->ops->destroy(b);
}
END_TEST

START_TEST(fork_after_use) {
    kn_backend *b = gpu();
    if (!b) return;
    pid_t child = fork();
    if (child == 0) {
        void *p;
        int count;
        bool right = b->ops->alloc(b, 64, &p) == KN_E_FORK && kn_backend_cuda_count(&count) == KN_E_FORK;
        b->ops->destroy(b);
        _exit(right ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    ck_assert_int_eq(status, 0);
    void *p = NULL;
    ck_assert_ok(b->ops->alloc(b, 64, &p)); /* the parent goes on */
    b->ops->destroy(b);
}
END_TEST

START_TEST(exit_right_after_a_launch) {
    pid_t child = fork(); /* before any use of the driver */
    if (child == 0) {
        kn_backend *b = gpu();
        if (b) {
            kn_expansion x = expansion_of(iota_ptx, "iota", 2, pn_args);
            void *p = NULL;
            if (b->ops->alloc(b, 4096, &p) != KN_OK || launch(b, load(b, &x), 8, false, p, 1, NULL) != KN_OK) _exit(2);
        }
        exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(pointers) {
    kn_backend *b = gpu();
    if (!b) return;
    void *p = NULL, *host = NULL, *device = NULL, *plain = kn_malloc(64);
    ck_assert_ok(b->ops->alloc(b, 64, &p));
    ck_assert_ok(b->ops->alloc_mapped(b, 64, &host, &device));
    ck_assert_ok(b->ops->check_pointer(b, p));
    ck_assert_ok(b->ops->check_pointer(b, (char *)p + 60));
    ck_assert_ok(b->ops->check_pointer(b, host));
    kn_status st = b->ops->check_pointer(b, plain);
    printf("ordinary memory: %s %s\n", kn_status_name(st), st ? kn_error_message() : "");
    kn_free(plain);
    b->ops->destroy(b);
}
END_TEST

START_TEST(faults_are_reported) {
    kn_backend *b = gpu();
    if (!b) return;
    kn_expansion x = expansion_of(iota_ptx, "iota", 2, pn_args);
    kn_module *m = load(b, &x);
    ck_assert_ok(launch(b, m, 1, false, (void *)0x10000, 0, NULL));
    ck_assert_fails(b->ops->stream_synchronize(b, NULL), KN_E_LAUNCH, "CUDA_ERROR_");
    printf("%s\n", kn_error_message());
    void *p = NULL;
    ck_assert_int_ne(b->ops->alloc(b, 64, &p), KN_OK);
    b->ops->module_unload(b, m);
    b->ops->destroy(b);
}
END_TEST

START_TEST(refused_code) {
    kn_backend *b = gpu();
    if (!b) return;
    kn_expansion x = expansion_of(iota_ptx, "iota", 2, pn_args);
    kn_module *m = NULL;
    char junk[4096] = "\177ELF junk";
    ck_assert_fails(b->ops->module_load(b, junk, sizeof junk, &x.meta, &m), KN_E_LOAD, "cuModuleLoadDataEx");
    printf("%s\n", kn_error_message());
    char ptx[sizeof iota_ptx];
    memcpy(ptx, iota_ptx, sizeof ptx);
    memcpy(strstr(ptx, "8.0"), "9.9", 3);
    kn_expansion newer = expansion_of(ptx, "iota", 2, pn_args);
    void *cubin = NULL;
    size_t len = 0;
    kn_asm_report r;
    ck_assert_fails(b->ops->link(b, &newer, &cubin, &len, &r), KN_E_ASSEMBLE, "9.9");
    printf("%s\n", kn_error_message());
    memcpy(ptx, iota_ptx, sizeof ptx);
    memcpy(strstr(ptx, "mad.lo"), "mud.lo", 6);
    ck_assert_fails(b->ops->link(b, &newer, &cubin, &len, &r), KN_E_ASSEMBLE, "PTX line 13");
    printf("%s\n", kn_error_message());
    x.meta.smem_dynamic = 300000;
    ck_assert_fails(b->ops->module_load(b, junk, 100, &x.meta, &m), KN_E_UNSUPPORTED, "300000 bytes");
    b->ops->destroy(b);
}
END_TEST

int main(void) {
    Suite *s = suite_create("jit/backend_cuda_gpu");
    TCase *t = tcase_create("all");
    tcase_add_test(t, facts_and_version);
    tcase_add_test(t, both_assemblers_run);
    tcase_add_test(t, clusters_smem_and_dependent_launch);
    tcase_add_test(t, tensor_maps);
    tcase_add_test(t, captures_survive_loads_and_allocations);
    tcase_add_test(t, contexts);
    tcase_add_test(t, primary_context_reset);
    tcase_add_test(t, fork_after_use);
    tcase_add_test(t, exit_right_after_a_launch);
    tcase_add_test(t, pointers);
    tcase_add_test(t, faults_are_reported);
    tcase_add_test(t, refused_code);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
