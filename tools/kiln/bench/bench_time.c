/* The timer of `kiln bench`: see bench_time.h. */
#include "bench/bench_time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COLD_WAIT_NS = 2000, HOT_WAIT_NS = 20000 /* longer than the host needs to enqueue a call */ };

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

/* ---- statistics -------------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Linear between the neighbours. */
static double quantile(const double *sorted, size_t n, double q) {
    double at = q * (double)(n - 1);
    size_t i = (size_t)at;
    return i + 1 < n ? sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]) : sorted[i];
}

kt_bench_stats kt_bench_stats_of(double *values, size_t n) {
    if (n == 0) return (kt_bench_stats){0};
    qsort(values, n, sizeof *values, by_value);
    return (kt_bench_stats){n, quantile(values, n, 0.5), quantile(values, n, 0.25), quantile(values, n, 0.75),
                            values[0]};
}

const kt_bench_stats *kt_bench_best(const kt_bench_times *times) {
    return times->span.n ? &times->span : &times->events;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static int record(kt_bench_timer *t, size_t i) {
    kt_bench_memory *m = t->memory;
    while (t->n_events <= i) {
        void *event = NULL;
        KT_TRY(kt_status(m->lib, KT_CALL(m->lib, "kiln_event_create", KT_PTR(m->ctx), KT_PTR(&event))));
        t->events = kt_grow(t->events, t->n_events + 1, sizeof *t->events);
        t->events[t->n_events++] = event;
    }
    return kt_status(m->lib,
                     KT_CALL(m->lib, "kiln_event_record", KT_PTR(m->ctx), KT_PTR(t->events[i]), KT_PTR(t->stream)));
}

static int elapsed(kt_bench_timer *t, size_t i, double *us) {
    kt_bench_memory *m = t->memory;
    return kt_status(m->lib, KT_CALL(m->lib, "kiln_event_elapsed_us", KT_PTR(m->ctx), KT_PTR(t->events[i]),
                                     KT_PTR(t->events[i + 1]), KT_PTR(us)));
}

static int synchronize(kt_bench_timer *t) {
    kt_bench_memory *m = t->memory;
    return kt_status(m->lib, KT_CALL(m->lib, "kiln_stream_synchronize", KT_PTR(m->ctx), KT_PTR(t->stream)));
}

int kt_bench_timer_begin(kt_bench_timer *t, kt_bench_memory *memory, uint64_t l2_bytes) {
    t->memory = memory;
    if (!memory->gpu) return KT_GOOD;
    uint64_t flush = 256u << 20;
    if (flush < 2 * l2_bytes) flush = 2 * l2_bytes;
    t->flush_bytes = flush;
    KT_TRY(kt_bench_memory_room(memory, &memory->flush, flush));
    return kt_status(memory->lib, KT_CALL(memory->lib, "kiln_stream_create", KT_PTR(memory->ctx), KT_PTR(&t->stream)));
}

void kt_bench_timer_end(kt_bench_timer *t) {
    kt_bench_memory *m = t->memory;
    for (size_t i = 0; i < t->n_events; i++)
        (void)KT_CALL(m->lib, "kiln_event_destroy", KT_PTR(m->ctx), KT_PTR(t->events[i]));
    if (t->stream) (void)KT_CALL(m->lib, "kiln_stream_destroy", KT_PTR(m->ctx), KT_PTR(t->stream));
    free(t->events);
    *t = (kt_bench_timer){0};
}

/* ---- one pass over all subjects ---------------------------------------------------------------------------------- */

/* Who is called when: all subjects once a round, each round in an order of its own. */
static size_t *make_order(size_t rounds, size_t n) {
    size_t *order = kt_alloc(rounds * n, sizeof *order);
    kt_random random = {7};
    for (size_t r = 0; r < rounds; r++) {
        size_t *row = order + r * n;
        for (size_t i = 0; i < n; i++) {
            size_t j = kt_random_bits(&random) % (i + 1);
            row[i] = row[j];
            row[j] = i;
        }
    }
    return order;
}

typedef struct pass {
    const size_t *order;
    size_t calls;
    bool cold, events;
    double *host;  /* us a call */
    double *steps; /* one a record of CUPTI's */
} pass;

static int enqueue_all(kt_bench_timer *t, kt_bench_subject *subjects, const pass *p) {
    kt_bench_memory *m = t->memory;
    for (size_t i = 0; i < p->calls; i++) {
        kt_bench_subject *s = &subjects[p->order[i]];
        if (p->cold)
            KT_TRY(kt_status(m->lib, KT_CALL(m->lib, "kiln_device_fill", KT_PTR(m->ctx), KT_PTR(m->flush.device),
                                             KT_I32((int32_t)(i & 0x7F)), KT_U64(t->flush_bytes), KT_PTR(t->stream))));
        KT_TRY(kt_gpu_mark(m->gpu, t->stream, p->cold ? COLD_WAIT_NS : HOT_WAIT_NS));
        if (p->events) KT_TRY(record(t, 2 * i));
        double start = now_us();
        KT_TRY(s->enqueue(s->user, t->stream));
        p->host[i] = now_us() - start;
        if (p->events) KT_TRY(record(t, 2 * i + 1));
    }
    return synchronize(t);
}

/* The values of one subject, without the rounds of warming up. */
static size_t values_of(const kt_bench_timer *t, const pass *p, size_t n, size_t subject, const double *all,
                        double *values) {
    size_t found = 0;
    for (size_t i = t->warm_up * n; i < p->calls; i++)
        if (p->order[i] == subject) values[found++] = all[i];
    return found;
}

static int pass_by_events(kt_bench_timer *t, kt_bench_subject *subjects, size_t n, pass *p, double *us,
                          double *values) {
    p->events = true;
    KT_TRY(enqueue_all(t, subjects, p));
    for (size_t i = 0; i < p->calls; i++) KT_TRY(elapsed(t, 2 * i, &us[i]));
    for (size_t s = 0; s < n; s++) {
        kt_bench_times *times = p->cold ? &subjects[s].cold : &subjects[s].hot;
        times->events = kt_bench_stats_of(values, values_of(t, p, n, s, us, values));
        times->host = kt_bench_stats_of(values, values_of(t, p, n, s, p->host, values));
    }
    return KT_GOOD;
}

int kt_bench_cut(const kt_bench_kernel *kernels, size_t n_kernels, double *spans, size_t *counts, size_t n) {
    size_t call = 0;
    uint64_t start = 0, end = 0;
    for (size_t i = 0; i < n_kernels; i++) {
        if (kernels[i].mark) {
            if (call == n) return kt_fail(KT_ENVIRONMENT, "CUPTI recorded more than the %zu calls made", n);
            counts[call++] = 0;
            continue;
        }
        if (call == 0) return kt_fail(KT_ENVIRONMENT, "CUPTI recorded a kernel before the first mark");
        if (counts[call - 1]++ == 0) {
            start = kernels[i].start_ns;
            end = 0;
        }
        if (kernels[i].end_ns > end) end = kernels[i].end_ns;
        spans[call - 1] = (double)(end - start) * 1e-3;
    }
    if (call != n) return kt_fail(KT_ENVIRONMENT, "CUPTI recorded %zu of %zu calls", call, n);
    for (size_t i = 0; i < n; i++)
        if (counts[i] == 0) return kt_fail(KT_ENVIRONMENT, "CUPTI recorded no kernel of call %zu", i);
    return KT_GOOD;
}

void kt_bench_steps(const kt_bench_kernel *kernels, size_t n_kernels, double *steps) {
    uint64_t end = 0;
    for (size_t i = 0; i < n_kernels; i++) {
        const kt_bench_kernel *k = &kernels[i];
        if (k->mark || i == 0 || kernels[i - 1].mark) end = k->start_ns;
        steps[i] = !k->mark && k->end_ns > end ? (double)(k->end_ns - end) * 1e-3 : 0;
        if (!k->mark && k->end_ns > end) end = k->end_ns;
    }
}

/* What the whole recording says of one subject's kernels. */
static void find_steps(const kt_bench_timer *t, const pass *p, size_t n, size_t subject, const size_t *counts,
                       kt_bench_times *times) {
    size_t first = t->warm_up * n, kernels = 0, found = 0;
    for (size_t i = first; i < p->calls; i++) {
        if (p->order[i] != subject) continue;
        if (kernels && kernels != counts[i]) return;
        kernels = counts[i];
    }
    if (kernels == 0 || kernels > KT_BENCH_MAX_STEPS) return;
    double *values = kt_alloc(kernels * p->calls, sizeof *values);
    size_t at = 0; /* the record: a mark before each call's kernels */
    for (size_t i = 0; i < p->calls; at += 1 + counts[i], i++) {
        if (i < first || p->order[i] != subject) continue;
        for (size_t k = 0; k < kernels; k++) values[k * p->calls + found] = p->steps[at + 1 + k];
        found++;
    }
    for (size_t k = 0; k < kernels; k++) times->step[k] = kt_bench_stats_of(values + k * p->calls, found).median;
    times->n_steps = kernels;
    free(values);
}

/* Enqueue all under CUPTI. *trouble: what CUPTI could not do; what comes back is what the calls themselves said. */
static int record_all(kt_bench_timer *t, kt_bench_subject *subjects, pass *p, double *us, size_t *counts,
                      int *trouble) {
    kt_bench_kernel *kernels = NULL;
    size_t n = 0;
    p->events = false;
    *trouble = kt_bench_cupti_start();
    if (*trouble != KT_GOOD) return KT_GOOD;
    int code = enqueue_all(t, subjects, p);
    if (code == KT_GOOD) *trouble = kt_bench_cupti_stop(&kernels, &n);
    if (code == KT_GOOD && *trouble == KT_GOOD) *trouble = kt_bench_cut(kernels, n, us, counts, p->calls);
    if (code == KT_GOOD && *trouble == KT_GOOD) {
        p->steps = kt_alloc(n, sizeof *p->steps);
        kt_bench_steps(kernels, n, p->steps);
    }
    free(kernels);
    return code;
}

/* Where CUPTI turns out not to work, that is said, and from there on times are those of events. */
static int pass_by_cupti(kt_bench_timer *t, kt_bench_subject *subjects, size_t n, pass *p, double *us, double *values) {
    size_t *counts = kt_alloc(p->calls, sizeof *counts);
    int trouble, code = record_all(t, subjects, p, us, counts, &trouble);
    bool good = code == KT_GOOD && trouble == KT_GOOD;
    for (size_t s = 0; s < n && good; s++) {
        kt_bench_times *times = p->cold ? &subjects[s].cold : &subjects[s].hot;
        size_t found = values_of(t, p, n, s, us, values), sum = 0;
        times->span = kt_bench_stats_of(values, found);
        for (size_t i = t->warm_up * n; i < p->calls; i++)
            if (p->order[i] == s) sum += counts[i];
        times->kernels = found ? (double)sum / (double)found : 0;
        find_steps(t, p, n, s, counts, times);
    }
    if (code == KT_GOOD && !good) {
        fprintf(stderr, "kiln: %s; from here on times are those of CUDA events\n", kt_message());
        kt_bench_cupti_close();
    }
    free(counts);
    free(p->steps);
    return code;
}

/* Without a GPU: the subjects one after the other, by the host's clock. */
static int time_on_host(kt_bench_timer *t, kt_bench_subject *subjects, size_t n, double *values) {
    for (size_t s = 0; s < n; s++) {
        for (size_t i = 0; i < t->iterations + t->warm_up; i++) {
            double start = now_us();
            KT_TRY(subjects[s].enqueue(subjects[s].user, NULL));
            if (i >= t->warm_up) values[i - t->warm_up] = now_us() - start;
        }
        subjects[s].hot.events = kt_bench_stats_of(values, t->iterations);
        subjects[s].hot.host = subjects[s].hot.events;
    }
    return KT_GOOD;
}

int kt_bench_time(kt_bench_timer *t, kt_bench_subject *subjects, size_t n) {
    size_t rounds = t->iterations + t->warm_up, calls = rounds * n;
    double *us = kt_alloc(3 * calls, sizeof *us), *values = us + calls, *host = values + calls;
    size_t *order = make_order(rounds, n);
    int code = KT_GOOD;
    if (!t->memory->gpu) code = time_on_host(t, subjects, n, values);
    for (int cold = 1; cold >= 0 && t->memory->gpu && code == KT_GOOD; cold--) {
        if (!(cold ? t->cold : t->hot)) continue;
        pass p = {.order = order, .calls = calls, .cold = cold, .host = host};
        code = pass_by_events(t, subjects, n, &p, us, values);
        if (code == KT_GOOD && !t->events_only && kt_bench_cupti_path())
            code = pass_by_cupti(t, subjects, n, &p, us, values);
    }
    free(us);
    free(order);
    return code;
}

int kt_bench_time_quickly(kt_bench_timer *t, kt_bench_subject *subject) {
    const kt_bench_timer before = *t;
    t->iterations = 5;
    t->warm_up = 2;
    t->cold = t->events_only = true;
    t->hot = false;
    int code = kt_bench_time(t, subject, 1);
    t->iterations = before.iterations;
    t->warm_up = before.warm_up;
    t->cold = before.cold;
    t->hot = before.hot;
    t->events_only = before.events_only;
    return code;
}

int kt_bench_copy_rate(kt_bench_timer *t, double *bytes_per_s) {
    enum { RUNS = 5 };
    const uint64_t bytes = UINT64_C(512) << 20;
    kt_bench_buffer from = {0}, to = {0};
    double us[RUNS];
    kt_bench_memory *m = t->memory;
    int code = kt_bench_memory_room(m, &from, bytes);
    if (code == KT_GOOD) code = kt_bench_memory_room(m, &to, bytes);
    if (code == KT_GOOD)
        code = kt_status(m->lib, KT_CALL(m->lib, "kiln_device_fill", KT_PTR(m->ctx), KT_PTR(from.device), KT_I32(0x35),
                                         KT_U64(bytes), KT_PTR(t->stream)));
    for (size_t i = 0; i < RUNS && code == KT_GOOD; i++) {
        code = record(t, 2 * i);
        if (code == KT_GOOD) code = kt_gpu_copy(m->gpu, to.device, from.device, bytes, t->stream);
        if (code == KT_GOOD) code = record(t, 2 * i + 1);
    }
    for (size_t i = 0; i < RUNS && code == KT_GOOD; i++) code = elapsed(t, 2 * i, &us[i]);
    if (code == KT_GOOD) *bytes_per_s = 2e6 * (double)bytes / kt_bench_stats_of(us, RUNS).median;
    kt_bench_buffer *const both[] = {&from, &to};
    for (int i = 0; i < 2; i++)
        if (both[i]->device) (void)KT_CALL(m->lib, "kiln_device_free", KT_PTR(m->ctx), KT_PTR(both[i]->device));
    return code;
}
