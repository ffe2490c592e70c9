/* The driver for `kiln bench`: see tool_gpu.h. */
#include "gpu/tool_gpu.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* The driver's types as far as a caller's machine code sees them. */
typedef int kt_cu_result, kt_cu_device, kt_cu_capture_mode;
typedef uint64_t kt_cu_ptr;
typedef void *kt_cu_context, *kt_cu_module, *kt_cu_function, *kt_cu_stream, *kt_cu_graph, *kt_cu_graph_exec;

typedef struct driver {
#define KT_DRIVER(symbol, arguments) kt_cu_result(*symbol) arguments;
#include "gpu/tool_driver.def"
#undef KT_DRIVER
} driver;

struct kt_gpu {
    void *library;
    driver cu;
    int device;
    bool retained;
    void *module, *mark, *scan;
    uint64_t found; /* two words of device memory: what scan counts */
    char version[64];
};

struct kt_gpu_graph {
    void *graph, *executable;
};

/* The mark waits by the clock of the device; the scan's threads stride over the words and add up what they saw. */
const char kt_bench_mark_name[] = "kiln_bench_mark";
const char kt_bench_ptx[] =
    ".version 7.0\n"
    ".target sm_80\n"
    ".address_size 64\n"
    ".visible .entry kiln_bench_mark(.param .u64 ns)\n"
    "{\n"
    "  .reg .u64 %t<4>;\n"
    "  .reg .pred %p;\n"
    "  ld.param.u64 %t0, [ns];\n"
    "  mov.u64 %t1, %globaltimer;\n"
    "  add.u64 %t1, %t1, %t0;\n"
    "wait:\n"
    "  mov.u64 %t2, %globaltimer;\n"
    "  setp.lt.u64 %p, %t2, %t1;\n"
    "  @%p bra wait;\n"
    "  ret;\n"
    "}\n"
    ".visible .entry kiln_bench_scan(.param .u64 words, .param .u64 n, .param .u32 high, .param .u32 low,\n"
    "                                .param .u64 found)\n"
    "{\n"
    "  .reg .u32 %r<12>;\n"
    "  .reg .u64 %d<16>;\n"
    "  .reg .pred %p<4>;\n"
    "  ld.param.u64 %d0, [words];\n"
    "  ld.param.u64 %d1, [n];\n"
    "  ld.param.u32 %r0, [high];\n"
    "  ld.param.u32 %r1, [low];\n"
    "  ld.param.u64 %d2, [found];\n"
    "  cvta.to.global.u64 %d0, %d0;\n"
    "  cvta.to.global.u64 %d2, %d2;\n"
    "  mov.u32 %r2, %ctaid.x;\n"
    "  mov.u32 %r3, %ntid.x;\n"
    "  mov.u32 %r4, %tid.x;\n"
    "  mov.u32 %r5, %nctaid.x;\n"
    "  mul.wide.u32 %d3, %r2, %r3;\n"
    "  cvt.u64.u32 %d4, %r4;\n"
    "  add.u64 %d3, %d3, %d4;\n" /* i: the word */
    "  mul.wide.u32 %d4, %r5, %r3;\n"
    "  mov.u64 %d5, 0;\n" /* bad words */
    "  mov.u64 %d6, 0;\n" /* digest */
    "  setp.ge.u64 %p0, %d3, %d1;\n"
    "  @%p0 bra done;\n"
    "next:\n"
    "  shl.b64 %d7, %d3, 2;\n"
    "  add.u64 %d7, %d0, %d7;\n"
    "  ld.global.u32 %r6, [%d7];\n"
    "  and.b32 %r7, %r6, %r0;\n"
    "  and.b32 %r8, %r6, %r1;\n"
    "  setp.eq.u32 %p1, %r7, %r0;\n"
    "  setp.eq.or.u32 %p1, %r8, %r1, %p1;\n"
    "  selp.u64 %d8, 1, 0, %p1;\n"
    "  add.u64 %d5, %d5, %d8;\n"
    "  shl.b64 %d9, %d3, 1;\n"
    "  or.b64 %d9, %d9, 1;\n"
    "  mul.lo.u64 %d9, %d9, 0x9E3779B97F4A7C15;\n" /* odd, and another one for every place */
    "  cvt.u64.u32 %d10, %r6;\n"
    "  mul.lo.u64 %d10, %d10, %d9;\n"
    "  shr.u64 %d11, %d10, 29;\n"
    "  xor.b64 %d10, %d10, %d11;\n"
    "  add.u64 %d6, %d6, %d10;\n"
    "  add.u64 %d3, %d3, %d4;\n"
    "  setp.lt.u64 %p2, %d3, %d1;\n"
    "  @%p2 bra next;\n"
    "done:\n"
    "  red.global.add.u64 [%d2], %d5;\n"
    "  red.global.add.u64 [%d2+8], %d6;\n"
    "  ret;\n"
    "}\n";

void kt_gpu_scan_host(const void *p, uint64_t bytes, uint32_t high, uint32_t low, uint64_t *bad, uint64_t *digest) {
    *bad = *digest = 0;
    for (uint64_t i = 0; i < bytes / 4; i++) {
        uint32_t w;
        memcpy(&w, (const char *)p + 4 * i, sizeof w);
        *bad += (w & high) == high || (w & low) == low;
        uint64_t h = w * ((2 * i + 1) * UINT64_C(0x9E3779B97F4A7C15));
        *digest += h ^ h >> 29;
    }
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int check(const kt_gpu *gpu, int rc, const char *what) {
    if (rc == 0) return KT_GOOD;
    const char *text = NULL;
    if (gpu->cu.cuGetErrorString(rc, &text) != 0 || !text) text = "an unknown error";
    return kt_fail(KT_ENVIRONMENT, "%s: the driver says %d, %s", what, rc, text);
}
#define CALL(gpu, symbol, ...) KT_TRY(check((gpu), (gpu)->cu.symbol(__VA_ARGS__), #symbol))

static int find_symbols(kt_gpu *gpu) {
    const struct {
        const char *name;
        void *at;
    } symbols[] = {
#define KT_DRIVER(symbol, arguments) {#symbol, &gpu->cu.symbol},
#include "gpu/tool_driver.def"
#undef KT_DRIVER
    };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(gpu->library, symbols[i].name);
        if (!address) return kt_fail(KT_ENVIRONMENT, "the CUDA driver has no function %s", symbols[i].name);
        memcpy(symbols[i].at, &address, sizeof address);
    }
    return KT_GOOD;
}

/* nvidia-smi's version of the driver; cuDriverGetVersion would give CUDA's. */
static void read_version(kt_gpu *gpu) {
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*init)(void), (*version)(char *, unsigned), (*end)(void);
    if (!nvml) return;
    void *addresses[] = {dlsym(nvml, "nvmlInit_v2"), dlsym(nvml, "nvmlSystemGetDriverVersion"),
                         dlsym(nvml, "nvmlShutdown")};
    if (addresses[0] && addresses[1] && addresses[2]) {
        memcpy(&init, &addresses[0], sizeof init);
        memcpy(&version, &addresses[1], sizeof version);
        memcpy(&end, &addresses[2], sizeof end);
        if (init() == 0) {
            if (version(gpu->version, sizeof gpu->version) != 0) gpu->version[0] = '\0';
            end();
        }
    }
    dlclose(nvml);
}

static int open_all(kt_gpu *gpu, int ordinal) {
    const char *name = getenv("KILN_LIBCUDA");
    if (!name || !*name) name = "libcuda.so.1";
    gpu->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!gpu->library) return kt_fail(KT_ENVIRONMENT, "cannot open the CUDA driver: %s", dlerror());
    KT_TRY(find_symbols(gpu));
    void *context;
    CALL(gpu, cuInit, 0);
    CALL(gpu, cuDeviceGet, &gpu->device, ordinal);
    CALL(gpu, cuDevicePrimaryCtxRetain, &context, gpu->device);
    gpu->retained = true;
    CALL(gpu, cuCtxSetCurrent, context);
    CALL(gpu, cuModuleLoadData, &gpu->module, kt_bench_ptx);
    CALL(gpu, cuModuleGetFunction, &gpu->mark, gpu->module, kt_bench_mark_name);
    CALL(gpu, cuModuleGetFunction, &gpu->scan, gpu->module, "kiln_bench_scan");
    CALL(gpu, cuMemAlloc_v2, &gpu->found, 16);
    read_version(gpu);
    return KT_GOOD;
}

int kt_gpu_open(int device, kt_gpu **out) {
    kt_gpu *gpu = kt_alloc(1, sizeof *gpu);
    int code = open_all(gpu, device);
    if (code != KT_GOOD) {
        kt_gpu_close(gpu);
        gpu = NULL;
    }
    *out = gpu;
    return code;
}

void kt_gpu_close(kt_gpu *gpu) {
    if (!gpu) return;
    if (gpu->found) (void)gpu->cu.cuMemFree_v2(gpu->found);
    if (gpu->module) (void)gpu->cu.cuModuleUnload(gpu->module);
    if (gpu->retained) (void)gpu->cu.cuDevicePrimaryCtxRelease_v2(gpu->device);
    /* The driver stays loaded: it does not like to be unloaded. */
    free(gpu);
}

const char *kt_gpu_driver(const kt_gpu *gpu) {
    return gpu->version;
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

int kt_gpu_copy(kt_gpu *gpu, void *to, const void *from, uint64_t bytes, void *stream) {
    CALL(gpu, cuMemcpyDtoDAsync_v2, (uint64_t)(uintptr_t)to, (uint64_t)(uintptr_t)from, bytes, stream);
    return KT_GOOD;
}

int kt_gpu_mark(kt_gpu *gpu, void *stream, uint64_t ns) {
    void *params[] = {&ns};
    CALL(gpu, cuLaunchKernel, gpu->mark, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
    return KT_GOOD;
}

int kt_gpu_load(kt_gpu *gpu, const char *ptx, void **module) {
    *module = NULL;
    CALL(gpu, cuModuleLoadData, module, ptx);
    return KT_GOOD;
}

void kt_gpu_unload(kt_gpu *gpu, void *module) {
    if (module) (void)gpu->cu.cuModuleUnload(module);
}

int kt_gpu_function(kt_gpu *gpu, void *module, const char *name, void **function) {
    CALL(gpu, cuModuleGetFunction, function, module, name);
    return KT_GOOD;
}

int kt_gpu_launch(kt_gpu *gpu, void *function, uint32_t blocks, uint32_t threads, void **params, void *stream) {
    CALL(gpu, cuLaunchKernel, function, blocks, 1, 1, threads, 1, 1, 0, stream, params, NULL);
    return KT_GOOD;
}

int kt_gpu_scan(kt_gpu *gpu, const void *p, uint64_t bytes, uint32_t high, uint32_t low, uint64_t *bad,
                uint64_t *digest) {
    uint64_t address = (uint64_t)(uintptr_t)p, n = bytes / 4, found[2];
    void *params[] = {&address, &n, &high, &low, &gpu->found};
    CALL(gpu, cuMemsetD8Async, gpu->found, 0, sizeof found, NULL);
    CALL(gpu, cuLaunchKernel, gpu->scan, 1056, 1, 1, 256, 1, 1, 0, NULL, params, NULL);
    CALL(gpu, cuCtxSynchronize);
    CALL(gpu, cuMemcpyDtoH_v2, found, gpu->found, sizeof found);
    *bad = found[0];
    *digest = found[1];
    return KT_GOOD;
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

int kt_gpu_graph_capture(kt_gpu *gpu, void *stream, int (*enqueue)(void *user, void *stream), void *user,
                         kt_gpu_graph **out) {
    enum { THREAD_LOCAL = 1 };
    kt_gpu_graph *g = kt_alloc(1, sizeof *g);
    *out = g;
    CALL(gpu, cuStreamBeginCapture_v2, stream, THREAD_LOCAL);
    int code = enqueue(user, stream);
    int rc = gpu->cu.cuStreamEndCapture(stream, &g->graph); /* also when enqueue failed: the capture must end */
    KT_TRY(code);
    KT_TRY(check(gpu, rc, "cuStreamEndCapture"));
    CALL(gpu, cuGraphInstantiateWithFlags, &g->executable, g->graph, 0);
    return KT_GOOD;
}

int kt_gpu_graph_launch(kt_gpu *gpu, kt_gpu_graph *graph, void *stream) {
    CALL(gpu, cuGraphLaunch, graph->executable, stream);
    return KT_GOOD;
}

void kt_gpu_graph_free(kt_gpu *gpu, kt_gpu_graph *graph) {
    if (!graph) return;
    if (graph->executable) (void)gpu->cu.cuGraphExecDestroy(graph->executable);
    if (graph->graph) (void)gpu->cu.cuGraphDestroy(graph->graph);
    free(graph);
}
