/* The work of `kiln warm`: which kernels the calls need on which machines, and building them on several threads. */
#ifndef KILN_TOOL_WARM_RUN_H
#define KILN_TOOL_WARM_RUN_H

#include "warm/warm_list.h"

/* Where kernels go and how they are made. */
typedef struct kt_warm_job {
    kt_library *lib;
    kt_list devices;       /* device strings of kiln_context_create */
    const char *cache_dir; /* NULL: the default one */
    const char *read_only; /* a pack that is looked into first; "" for none */
    bool exact;            /* kernels of the very token counts, beside those for all */
    bool plan_only;        /* name the kernels and build none */
    int64_t threads;
    bool on_terminal; /* progress as a bar that is drawn over, else as lines now and then */
} kt_warm_job;

/* What came of it. */
typedef struct kt_warm_result {
    uint64_t calls, kernels; /* different ones; a kernel counts for each machine */
    uint64_t built, cached, failed;
    double seconds;
    json_t *groups;   /* [{"group", "op", "device", "kernels"}]: a model's operation, or a file's */
    json_t *failures; /* [{"what", "op", "device", "line", "error"}]: calls whose kernels are not all there */
} kt_warm_result;

/** KT_CHECK if a call failed; the result is filled in then, too. */
int kt_warm_run(const kt_warm_job *job, const kt_warm_list *list, kt_warm_result *out);
void kt_warm_result_free(kt_warm_result *result);

#endif
