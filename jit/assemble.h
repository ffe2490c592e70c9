/* jit/assemble: PTX -> cubin with nvJitLink, found by dlopen; and NVRTC, CUDA C text -> PTX. No GPU is needed.
 * The driver's own assembler is reached through the backend (kn_backend_ops.link) by jit/kernel.c. */
#ifndef KN_JIT_ASSEMBLE_H
#define KN_JIT_ASSEMBLE_H

#include "base/status.h"
#include "jit/expand.h"

#include <stddef.h>

/* What the assembler's log says of one kernel. */
typedef struct kn_asm_report {
    uint32_t registers;
    uint32_t spill_stores, spill_loads; /* bytes */
    uint32_t stack;                     /* bytes of local memory frame */
    uint32_t smem_static;
    uint32_t barriers;
    uint32_t remarks; /* number of C75xx lines (wgmma serialised, setmaxnreg ignored, ...) */
    char remark[256]; /* the first of them, with its template line */
    uint64_t assemble_ns;
} kn_asm_report;

/* Which assembler, as it enters a cache entry's file name: kind, version, fixed option set. */
typedef struct kn_assembler_id {
    char kind[16];    /* "nvjitlink" or "driver" */
    uint32_t version; /* 13000 = 13.0 */
    char options[64];
    char path[256]; /* for people only: no part of any key */
} kn_assembler_id;

/** The nvJitLink in use; loads it on the first call. KN_E_UNAVAILABLE names the sonames and paths tried and how to get
 *  it. Thread-safe. */
kn_status kn_nvjitlink_id(const kn_assembler_id **out);

/** Assemble `x->ptx` for x->meta.target. *cubin is kn_free'd by the caller. KN_E_ASSEMBLE carries the assembler's first
 *  error with its PTX line replaced by the template line. Thread-safe. */
kn_status kn_nvjitlink_assemble(const kn_expansion *x, void **cubin, size_t *cubin_len, kn_asm_report *report);

/** Parse an assembler log (nvJitLink's or the driver's) into a report; lines are mapped through `x` (may be NULL). */
void kn_asm_parse_log(const char *log, const kn_expansion *x, kn_asm_report *report);
/** The first line of an error log that says what is wrong, with template lines; returns how many such lines there are.
 */
int kn_asm_first_error(const char *log, const kn_expansion *x, char *out, size_t cap);

/** CUDA C text -> PTX through NVRTC for "sm_XX"; *ptx is kn_free'd. KN_E_UNAVAILABLE / KN_E_ASSEMBLE with NVRTC's log.
 */
kn_status kn_nvrtc_compile(const char *source, const char *name, const char *target, char **ptx, size_t *len);
/** Version (13000) and path of the NVRTC in use, loaded on first use. */
kn_status kn_nvrtc_id(uint32_t *version, const char **path);

#endif
