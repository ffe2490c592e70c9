/* PTX -> cubin through nvJitLink: one handle a kernel, one fixed option set, every call's status counts. */
#include "jit/assemble.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "jit/assemble_nvjitlink.h"

#include <stdio.h>
#include <string.h>

enum { LOG_CAP = 1 << 20, MAPPED_CAP = 2048 };

/* One of the two logs, NUL-terminated; *log NULL when it is empty. */
static kn_status read_log(const kn_nvjitlink *l, kn_nvjitlink_h h, bool errors, char **log) {
    size_t n = 0;
    *log = NULL;
    int rc = errors ? l->GetErrorLogSize(h, &n) : l->GetInfoLogSize(h, &n);
    KN_REQUIRE(rc == 0, KN_E_ASSEMBLE, "nvJitLink: reading the size of its log failed with code %d", rc);
    if (n == 0) return KN_OK;
    KN_REQUIRE(n <= LOG_CAP, KN_E_ASSEMBLE, "nvJitLink: a log of %zu bytes; at most %d are read", n, LOG_CAP);
    KN_TRY(KN_NEW(log, n + 1, "nvJitLink's log"));
    rc = errors ? l->GetErrorLog(h, *log) : l->GetInfoLog(h, *log);
    return rc == 0 ? KN_OK : kn_fail(KN_E_ASSEMBLE, "nvJitLink: reading its log failed with code %d", rc);
}

/* The sentence for a failed call: the first error of the log, at its template line, and how many there are. */
static kn_status refused(const kn_nvjitlink *l, kn_nvjitlink_h h, const kn_expansion *x, const char *call, int rc) {
    char *log = NULL, first[MAPPED_CAP] = "";
    int more = 0;
    if (h && read_log(l, h, true, &log) == KN_OK && log) more = kn_asm_first_error(log, x, first, sizeof first) - 1;
    kn_free(log);
    uint32_t version = l->id.version;
    kn_fail(KN_E_ASSEMBLE, "nvJitLink %u.%u refused %s for %s (%s: code %d): %s", version / 1000, version % 1000 / 10,
            x->meta.entry, x->meta.target, call, rc, first[0] ? first : "it gave no reason");
    if (more > 0) {
        char text[KN_ERROR_CAP];
        snprintf(text, sizeof text, "%s", kn_error_message());
        kn_fail(KN_E_ASSEMBLE, "%s (and %d more)", text, more);
    }
    return KN_E_ASSEMBLE;
}

static kn_status link_ptx(const kn_nvjitlink *l, kn_nvjitlink_h *h, const kn_expansion *x) {
    char arch[32];
    snprintf(arch, sizeof arch, "-arch=%s", x->meta.target);
    const char *options[] = {arch, "-O3", "-Xptxas=-v", "-no-cache"};
    int rc = l->Create(h, l->no_cache ? 4 : 3, options);
    if (rc != 0) return refused(l, *h, x, "nvJitLinkCreate", rc);
    rc = l->AddData(*h, KN_NVJITLINK_INPUT_PTX, x->ptx, x->ptx_len, "kiln.ptx");
    if (rc != 0) return refused(l, *h, x, "nvJitLinkAddData", rc);
    rc = l->Complete(*h);
    if (rc != 0) return refused(l, *h, x, "nvJitLinkComplete", rc);
    return KN_OK;
}

static kn_status take_cubin(const kn_nvjitlink *l, kn_nvjitlink_h h, const kn_expansion *x, void **cubin, size_t *len) {
    int rc = l->GetLinkedCubinSize(h, len);
    if (rc != 0) return refused(l, h, x, "nvJitLinkGetLinkedCubinSize", rc);
    KN_REQUIRE(*len > 0, KN_E_ASSEMBLE, "nvJitLink: an empty cubin for %s", x->meta.entry);
    KN_TRY(kn_new(cubin, *len, 1, "a cubin"));
    rc = l->GetLinkedCubin(h, *cubin);
    return rc == 0 ? KN_OK : refused(l, h, x, "nvJitLinkGetLinkedCubin", rc);
}

kn_status kn_nvjitlink_assemble(const kn_expansion *x, void **cubin, size_t *len, kn_asm_report *report) {
    *cubin = NULL;
    *len = 0;
    memset(report, 0, sizeof *report);
    const kn_nvjitlink *l = NULL;
    KN_TRY(kn_nvjitlink_get(&l));
    uint64_t start = kn_clock_ns();
    kn_nvjitlink_h h = NULL;
    char *log = NULL;
    kn_status st;
    KN_TRY_OUT(st, link_ptx(l, &h, x));
    KN_TRY_OUT(st, take_cubin(l, h, x, cubin, len));
    KN_TRY_OUT(st, read_log(l, h, false, &log));
    if (log) kn_asm_parse_log(log, x, report);
    report->assemble_ns = kn_clock_ns() - start;
out:
    if (h) {
        int rc = l->Destroy(&h);
        if (rc != 0 && st == KN_OK) st = kn_fail(KN_E_ASSEMBLE, "nvJitLink: nvJitLinkDestroy failed with code %d", rc);
    }
    kn_free(log);
    if (st != KN_OK) {
        kn_free(*cubin);
        *cubin = NULL;
        *len = 0;
    }
    return st;
}
