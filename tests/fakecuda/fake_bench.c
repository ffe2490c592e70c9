/* The fake driver's functions that `kiln bench` alone calls (tools/kiln/gpu/tool_driver.def): PTX modules, plain
 * launches, graphs, copies within the device. The tool's own scan kernel is computed for real. */
#include "fakecuda/fake_state.h"

#include <stdio.h>
#include <string.h>

#define KN_DRIVER(symbol, since, required, args) kn_cu_result symbol args;
#include "jit/driver.def"
#undef KN_DRIVER
EXPORT void fakecuda_capture(kn_cu_stream stream, int on);
EXPORT const char *fakecuda_log(void);

/* A graph is the launches that its capture logged. */
typedef struct fake_graph {
    size_t start;
    char text[8192];
} fake_graph;

EXPORT kn_cu_result cuCtxSetCurrent(kn_cu_context context) {
    kn_cu_context old;
    if (fake_current()) cuCtxPopCurrent_v2(&old);
    return cuCtxPushCurrent_v2(context);
}

EXPORT kn_cu_result cuCtxSynchronize(void) {
    BEGIN_UNSAFE("cuCtxSynchronize");
    return fake_current() ? OK : fake_wrong(INVALID_CONTEXT, "cuCtxSynchronize: no current context");
}

/* The driver's own assembler stands behind it. */
EXPORT kn_cu_result cuModuleLoadData(kn_cu_module *module, const void *image) {
    kn_cu_link link;
    void *cubin;
    size_t size;
    int rc = cuLinkCreate_v2(0, NULL, NULL, &link);
    if (rc != OK) return rc;
    rc = cuLinkAddData_v2(link, KN_CU_JIT_INPUT_PTX, (void *)(uintptr_t)image, strlen(image) + 1, "image", 0, NULL,
                          NULL);
    if (rc == OK) rc = cuLinkComplete(link, &cubin, &size);
    if (rc == OK) rc = cuModuleLoadDataEx(module, cubin, 0, NULL, NULL);
    cuLinkDestroy(link);
    return rc;
}

EXPORT kn_cu_result cuMemcpyDtoDAsync_v2(kn_cu_ptr to, kn_cu_ptr from, size_t bytes, kn_cu_stream stream) {
    BEGIN("cuMemcpyDtoDAsync_v2");
    if (stream && fake_check(STREAM, stream, "cuMemcpyDtoDAsync") != OK) return INVALID_HANDLE;
    const kn_cu_ptr ends[] = {to, from};
    for (int i = 0; i < 2; i++) {
        const char *p = (const char *)(uintptr_t)ends[i];
        const fake_object *o = fake_find(MEMORY, p);
        if (!o || (size_t)(p - o->address) + bytes > o->bytes)
            return fake_wrong(INVALID_VALUE, "cuMemcpyDtoDAsync: %zu bytes at %p are not allocated", bytes,
                              (const void *)p);
    }
    if (from < to + bytes && to < from + bytes) return fake_wrong(INVALID_VALUE, "cuMemcpyDtoDAsync: overlap");
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    return OK;
}

/* As the PTX in tools/kiln/gpu/tool_gpu.c. */
static void scan(void **params) {
    const uint32_t *words = (const uint32_t *)(uintptr_t) * (uint64_t *)params[0];
    uint64_t n = *(uint64_t *)params[1], *found = (uint64_t *)(uintptr_t) * (uint64_t *)params[4];
    uint32_t high = *(uint32_t *)params[2], low = *(uint32_t *)params[3];
    for (uint64_t i = 0; i < n; i++) {
        uint64_t h = words[i] * ((2 * i + 1) * UINT64_C(0x9E3779B97F4A7C15));
        found[0] += (words[i] & high) == high || (words[i] & low) == low;
        found[1] += h ^ h >> 29;
    }
}

EXPORT kn_cu_result cuLaunchKernel(kn_cu_function f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                   unsigned bz, unsigned shared, kn_cu_stream stream, void **params, void **extra) {
    const kn_cu_launch_config c = {gx, gy, gz, bx, by, bz, shared, stream, NULL, 0};
    int rc = cuLaunchKernelEx(&c, f, params, extra);
    if (rc == OK && strcmp((const char *)f, "kiln_bench_scan") == 0) scan(params); /* its name is its first field */
    return rc;
}

EXPORT kn_cu_result cuStreamBeginCapture_v2(kn_cu_stream stream, kn_cu_enum mode) {
    BEGIN("cuStreamBeginCapture_v2");
    if (!stream || mode > 2) return INVALID_VALUE;
    fakecuda_capture(stream, 1);
    fake_logf("begin capture");
    return OK;
}

EXPORT kn_cu_result cuStreamEndCapture(kn_cu_stream stream, void **graph) {
    BEGIN("cuStreamEndCapture");
    fakecuda_capture(stream, 0);
    fake_graph *g = fake_new(MODULE, sizeof *g);
    const char *log = fakecuda_log(), *from = NULL;
    for (const char *at = strstr(log, "begin capture"); at; at = strstr(at + 1, "begin capture")) from = at;
    for (const char *at = from ? strstr(from, "\nlaunch ") : NULL; at; at = strstr(at + 1, "\nlaunch ")) {
        size_t have = strlen(g->text), more = strcspn(at + 1, "\n");
        if (have + more + 2 < sizeof g->text)
            snprintf(g->text + have, sizeof g->text - have, "%.*s\n", (int)more, at + 1);
    }
    *graph = g;
    return OK;
}

EXPORT kn_cu_result cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags) {
    BEGIN("cuGraphInstantiateWithFlags");
    if (flags) return INVALID_VALUE;
    fake_graph *g = fake_new(MODULE, sizeof *g);
    memcpy(g, graph, sizeof *g);
    *executable = g;
    return OK;
}

EXPORT kn_cu_result cuGraphLaunch(void *executable, kn_cu_stream stream) {
    BEGIN("cuGraphLaunch");
    int rc = fake_check(STREAM, stream, "cuGraphLaunch");
    if (rc != OK) return rc;
    for (const char *at = ((fake_graph *)executable)->text; *at; at += strcspn(at, "\n") + 1)
        fake_logf("%.*s", (int)strcspn(at, "\n"), at);
    return OK;
}

EXPORT kn_cu_result cuGraphExecDestroy(void *executable) {
    BEGIN("cuGraphExecDestroy");
    return fake_delete(MODULE, executable, "cuGraphExecDestroy");
}

EXPORT kn_cu_result cuGraphDestroy(void *graph) {
    BEGIN("cuGraphDestroy");
    return fake_delete(MODULE, graph, "cuGraphDestroy");
}
