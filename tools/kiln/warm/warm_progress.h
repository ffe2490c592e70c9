/* How far `kiln warm` is, on the standard error: a bar on a terminal, elsewhere a line now and then. */
#ifndef KILN_TOOL_WARM_PROGRESS_H
#define KILN_TOOL_WARM_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

typedef struct kt_warm_progress {
    uint64_t kernels, built, cached, failed_calls;
    /* The rest belongs to warm_progress.c. */
    bool bar, drawn;
    double start, last;
} kt_warm_progress;

void kt_warm_progress_begin(kt_warm_progress *p, bool on_terminal);
/** Draw if it is time to; when to come again (CLOCK_MONOTONIC). */
struct timespec kt_warm_progress_draw(kt_warm_progress *p);
/** Wipe the bar, or say how it ended if lines were printed. */
void kt_warm_progress_end(kt_warm_progress *p);
double kt_warm_progress_seconds(const kt_warm_progress *p);
/** "[####......]  40%  412 of 1030 kernels (2 built), 1 call failed, 2 min left"; `seconds`: spent so far. */
void kt_warm_progress_text(const kt_warm_progress *p, double seconds, char *buf, uint64_t cap);

#endif
