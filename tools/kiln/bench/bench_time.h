/* The timer of `kiln bench`. On a GPU several subjects (Kiln's call, the same in a graph, peers) take turns in random
 * order without idle gaps; before each call the L2 is written over (cold) or not (hot), then a kernel marks the place.
 * Time is the span from the start of the call's first kernel to the end of its last, as CUPTI records them, and between
 * two events around the call. Elsewhere it is the host's clock around the call. */
#ifndef KILN_TOOL_BENCH_TIME_H
#define KILN_TOOL_BENCH_TIME_H

#include "bench/bench_cupti.h"
#include "bench/bench_memory.h"

typedef struct kt_bench_stats {
    size_t n;
    double median, q1, q3, min;
} kt_bench_stats;

/** Sorts `values`. */
kt_bench_stats kt_bench_stats_of(double *values, size_t n);

enum { KT_BENCH_MAX_STEPS = 64 };

typedef struct kt_bench_times {
    kt_bench_stats span;   /* us, by CUPTI; n = 0 without it */
    kt_bench_stats events; /* us, by events, or by the host's clock where there is no GPU */
    kt_bench_stats host;   /* us of the calling thread until the call returns */
    double kernels;        /* a call, as CUPTI saw them */
    /* What each kernel of a call added to the span: medians of the time from the end of the one before (the first: from
     * its start) to its own. None without CUPTI, or if calls differ in their kernels. */
    size_t n_steps;
    double step[KT_BENCH_MAX_STEPS];
} kt_bench_times;

/** What stands for a call: the span where there is one. */
const kt_bench_stats *kt_bench_best(const kt_bench_times *times);

typedef struct kt_bench_subject {
    const char *name;
    int (*enqueue)(void *user, void *stream);
    void *user;
    kt_bench_times cold, hot;
} kt_bench_subject;

typedef struct kt_bench_timer {
    kt_bench_memory *memory;
    void *stream;
    void **events;
    size_t n_events;
    uint64_t flush_bytes; /* 0: there is no L2 to write over */
    size_t iterations, warm_up;
    bool cold, hot;
    bool events_only; /* although CUPTI is there */
} kt_bench_timer;

int kt_bench_timer_begin(kt_bench_timer *t, kt_bench_memory *memory, uint64_t l2_bytes);
void kt_bench_timer_end(kt_bench_timer *t);
/** Fill cold and hot of all subjects. */
int kt_bench_time(kt_bench_timer *t, kt_bench_subject *subjects, size_t n);
/** A few cold calls of one subject by events: to choose between candidates. */
int kt_bench_time_quickly(kt_bench_timer *t, kt_bench_subject *subject);
/** Bytes per second (read and written) of a large copy within the device. */
int kt_bench_copy_rate(kt_bench_timer *t, double *bytes_per_s);

/** Cut a recording into calls: kernels between a mark and the next one. spans[i] and counts[i]: call i's span in us and
 * its kernels. KT_ENVIRONMENT when there are not exactly n calls or one of them is empty. */
int kt_bench_cut(const kt_bench_kernel *kernels, size_t n_kernels, double *spans, size_t *counts, size_t n);

/** steps[i]: what the i-th record adds to its call's span, in us; 0 for marks and what ends before an earlier one. */
void kt_bench_steps(const kt_bench_kernel *kernels, size_t n_kernels, double *steps);

#endif
