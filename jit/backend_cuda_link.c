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
    int options[] = {KN_CU_JIT_INFO_LOG_BUFFER, KN_CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, KN_CU_JIT_ERROR_LOG_BUFFER,
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
        kn_cuda_leave(&s);
    }
    if (st == KN_OK) {
        kn_asm_parse_log(logs->info, x, report);
        report->assemble_ns = kn_clock_ns() - start;
    } else {
        kn_free(*cubin);
        *cubin = NULL;
        *len = 0;
    }
    kn_free(logs);
    return st;
}
