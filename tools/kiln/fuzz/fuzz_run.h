/* Running one fuzz case: the call, everything that must hold after it, and the same call once more elsewhere. */
#ifndef KILN_TOOL_FUZZ_RUN_H
#define KILN_TOOL_FUZZ_RUN_H

#include "fuzz/fuzz_check.h"
#include "fuzz/fuzz_gpu.h"

/* What was found. */
typedef enum kt_fuzz_kind {
    KT_FUZZ_PASSED,
    KT_FUZZ_REFUSED,    /* the library refused a call that is right */
    KT_FUZZ_FAULT,      /* the simulator stopped a kernel, or the device failed */
    KT_FUZZ_WRONG,      /* an output is not what the reference says */
    KT_FUZZ_OUTSIDE,    /* memory beside a tensor was written to */
    KT_FUZZ_INPUT,      /* an input was written to */
    KT_FUZZ_UNREPEATED, /* the same call gave other bits */
    KT_FUZZ_COUNTER,    /* skipped ids were not counted, or ids that were right were */
    KT_FUZZ_N_KINDS
} kt_fuzz_kind;
extern const char *const kt_fuzz_kind_names[KT_FUZZ_N_KINDS];

typedef struct kt_fuzz_finding {
    kt_fuzz_kind kind;
    int arg;      /* the argument that it is about, or -1 */
    double worst; /* the largest error as a part of its bound; of cases that pass */
    char message[512];
} kt_fuzz_finding;

typedef struct kt_fuzz_machine {
    kt_library *lib;
    const char *device;
    bool simulated;
    void *stream, *stream_ctx;
    kt_fuzz_gpu *gpu; /* makes the oracle's large products; NULL: the host does, */
    char *why_host;   /* and why, on a GPU */
    /* By kernels' path; first runs, and repetitions with other grids and with kernels for any token count. */
    void *ctx[KT_FUZZ_N_PATHS][2];
} kt_fuzz_machine;

int kt_fuzz_machine_open(kt_library *lib, const char *device, kt_fuzz_machine *out);
void kt_fuzz_machine_close(kt_fuzz_machine *machine);

/** Run the case. An exit code other than KT_GOOD: it could not be run at all. */
int kt_fuzz_run(kt_fuzz_machine *machine, const kt_fuzz_case *c, kt_fuzz_finding *finding);

#endif
