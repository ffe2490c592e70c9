/* The driver's own assembler: PTX -> cubin through cuLink, for machines without nvJitLink. */
#include "jit/backend_cuda.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <string.h>

enum { LOG_CAP = 64 * 1024 };

typedef struct link_logs {
    char info[LOG_CAP], errors[LOG_CAP];
} link_logs;

static kn_status link_failed(const kn_cuda *b, const kn_expansion *x, const char *call, kn_cu_result rc,
                             const link_logs *logs) {
    char first[2048] = "";
    kn_asm_first_error(logs->errors, x, first, sizeof first);
    return kn_driver_fail(b->cu, KN_E_ASSEMBLE, call, rc, "%s for %s%s%s", x->meta.entry, x->meta.target,
                          first[0] ? ": " : "", first);
}

/* The cubin belongs to the link state: it is copied before that is destroyed. */
static kn_status link_ptx(const kn_cuda *b, const kn_expansion *x, kn_cu_link link, const link_logs *logs, void **cubin,
                          size_t *len) {
    void *bytes = NULL;
    kn_cu_result rc =
        b->cu->cuLinkAddData_v2(link, KN_CU_JIT_INPUT_PTX, x->ptx, x->ptx_len + 1, "kiln.ptx", 0, NULL, NULL);
    if (rc != KN_CUDA_SUCCESS) return link_failed(b, x, "cuLinkAddData", rc, logs);
    rc = b->cu->cuLinkComplete(link, &bytes, len);
    if (rc != KN_CUDA_SUCCESS) return link_failed(b, x, "cuLinkComplete", rc, logs);
    KN_REQUIRE(bytes && *len > 0, KN_E_ASSEMBLE, "cuLinkComplete: an empty cubin for %s", x->meta.entry);
    KN_TRY(kn_new(cubin, *len, 1, "a cubin"));
    memcpy(*cubin, bytes, *len);
    return KN_OK;
}

static kn_status link_inside(const kn_cuda *b, const kn_expansion *x, link_logs *logs, void **cubin, size_t *len) {
    kn_cu_enum options[] = {KN_CU_JIT_INFO_LOG_BUFFER, KN_CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, KN_CU_JIT_ERROR_LOG_BUFFER,
                            KN_CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, KN_CU_JIT_LOG_VERBOSE};
    void *size = (void *)(uintptr_t)(LOG_CAP - 1);
    void *values[] = {logs->info, size, logs->errors, size, (void *)(uintptr_t)1};
    kn_cu_link link = NULL;
    kn_cu_result rc = b->cu->cuLinkCreate_v2(5, options, values, &link);
    if (rc != KN_CUDA_SUCCESS) return link_failed(b, x, "cuLinkCreate", rc, logs);
    kn_status st = link_ptx(b, x, link, logs, cubin, len);
    rc = b->cu->cuLinkDestroy(link);
    if (st == KN_OK && rc != KN_CUDA_SUCCESS) st = link_failed(b, x, "cuLinkDestroy", rc, logs);
    return st;
}

/* The driver keeps a cache of its own, and a hit writes no log: what can be asked is then asked of the loaded code. */
static kn_status report_from_code(const kn_cuda *b, const kn_expansion *x, const void *cubin, kn_asm_report *r) {
    kn_cu_module module = NULL;
    kn_cu_function f = NULL;
    int registers = 0, local = 0, shared = 0;
    kn_cu_result rc = b->cu->cuModuleLoadDataEx(&module, cubin, 0, NULL, NULL);
    if (rc != KN_CUDA_SUCCESS)
        return kn_driver_fail(b->cu, KN_E_ASSEMBLE, "cuModuleLoadDataEx", rc, "%s", x->meta.entry);
    const char *call = "cuModuleGetFunction";
    rc = b->cu->cuModuleGetFunction(&f, module, x->meta.entry);
    if (rc == KN_CUDA_SUCCESS) {
        call = "cuFuncGetAttribute";
        rc = b->cu->cuFuncGetAttribute(&registers, KN_CU_FUNC_ATTRIBUTE_NUM_REGS, f);
    }
    if (rc == KN_CUDA_SUCCESS) rc = b->cu->cuFuncGetAttribute(&local, KN_CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, f);
    if (rc == KN_CUDA_SUCCESS) rc = b->cu->cuFuncGetAttribute(&shared, KN_CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, f);
    kn_status st = rc == KN_CUDA_SUCCESS ? KN_OK : kn_driver_fail(b->cu, KN_E_ASSEMBLE, call, rc, "%s", x->meta.entry);
    rc = b->cu->cuModuleUnload(module);
    if (st == KN_OK && rc != KN_CUDA_SUCCESS)
        st = kn_driver_fail(b->cu, KN_E_ASSEMBLE, "cuModuleUnload", rc, "%s", x->meta.entry);
    r->registers = (uint32_t)registers;
    r->stack = (uint32_t)local;
    r->smem_static = (uint32_t)shared;
    return st;
}

kn_status kn_cuda_link(kn_backend *base, const kn_expansion *x, void **cubin, size_t *len, kn_asm_report *report) {
    kn_cuda *b = (kn_cuda *)base;
    *cubin = NULL;
    *len = 0;
    memset(report, 0, sizeof *report);
    link_logs *logs = NULL;
    KN_TRY(KN_NEW(&logs, 1, "the driver's logs"));
    uint64_t start = kn_clock_ns();
    kn_cuda_scope s;
    kn_status st = kn_cuda_enter(b, KN_CUDA_RELAXED, &s);
    if (st == KN_OK) {
        st = link_inside(b, x, logs, cubin, len);
        if (st == KN_OK) kn_asm_parse_log(logs->info, x, report);
        if (st == KN_OK && report->registers == 0) st = report_from_code(b, x, *cubin, report);
        kn_cuda_leave(&s);
    }
    report->assemble_ns = kn_clock_ns() - start;
    if (st != KN_OK) {
        kn_free(*cubin);
        *cubin = NULL;
        *len = 0;
    }
    kn_free(logs);
    return st;
}
