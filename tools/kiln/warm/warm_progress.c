/* The progress of `kiln warm`: see warm_progress.h. */
#include "warm/warm_progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { BAR_CELLS = 30 };
static const double BAR_SECONDS = 0.2, LINE_SECONDS = 10;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void kt_warm_progress_begin(kt_warm_progress *p, bool on_terminal) {
    *p = (kt_warm_progress){.bar = on_terminal, .start = now()};
    p->last = p->start;
}

double kt_warm_progress_seconds(const kt_warm_progress *p) {
    return now() - p->start;
}

static void add_time(char *buf, uint64_t cap, double seconds) {
    size_t used = strlen(buf);
    if (seconds < 100)
        snprintf(buf + used, cap - used, ", %.0f s left", seconds);
    else
        snprintf(buf + used, cap - used, ", %.0f min left", seconds / 60);
}

void kt_warm_progress_text(const kt_warm_progress *p, double seconds, char *buf, uint64_t cap) {
    uint64_t done = p->built + p->cached, left = p->kernels > done ? p->kernels - done : 0;
    double share = p->kernels ? (double)done / (double)p->kernels : 0;
    size_t used = 0;
    buf[0] = '\0';
    if (p->bar) {
        char cells[BAR_CELLS + 1] = "";
        memset(cells, '.', BAR_CELLS);
        memset(cells, '#', (size_t)(share * BAR_CELLS));
        used = (size_t)snprintf(buf, cap, "[%s] ", cells);
    }
    used += (size_t)snprintf(buf + used, cap - used, "%3.0f%%  %" PRIu64 " of %" PRIu64 " kernels, %" PRIu64 " built",
                             100 * share, done, p->kernels, p->built);
    if (p->failed_calls)
        snprintf(buf + used, cap - used, ", %" PRIu64 " call%s failed", p->failed_calls,
                 p->failed_calls == 1 ? "" : "s");
    /* Cached kernels take no time: what was built tells the pace. */
    if (p->built > 0 && left > 0) add_time(buf, cap, seconds / (double)p->built * (double)left);
}

struct timespec kt_warm_progress_draw(kt_warm_progress *p) {
    double at = now(), pause = p->bar ? BAR_SECONDS : LINE_SECONDS;
    char text[256];
    if (at - p->last >= pause) {
        kt_warm_progress_text(p, at - p->start, text, sizeof text);
        fprintf(stderr, p->bar ? "\r%-100s" : "%s\n", text);
        fflush(stderr);
        p->last = at;
        p->drawn = true;
    }
    double next = p->last + pause;
    return (struct timespec){.tv_sec = (time_t)next, .tv_nsec = (long)(1e9 * (next - (double)(time_t)next))};
}

void kt_warm_progress_end(kt_warm_progress *p) {
    if (p->bar && p->drawn) fprintf(stderr, "\r%100s\r", "");
}
