/* Building for a list of calls: see warm_run.h.
 *
 * First every call is planned on every machine, which names its kernels and builds none. The calls that name a kernel
 * that no call before them named are then built by threads that take one call after the other; kernels that a cache
 * has are only looked up. Where one of them fails, the other calls that share its kernels are tried, too: a kernel
 * that is not built has failed in every call that wants it.
 *
 * Threads must not touch the tool's one error sentence: they keep the library's own, which is theirs. */
#include "warm/warm_run.h"

#include "common/report.h"
#include "warm/warm_progress.h"

#include "kiln/kiln_tools.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { PLAN_BYTES = 1 << 20 };
enum { PENDING, BUILT, CACHED }; /* of a kernel */

/* A context: a machine, for kernels of all token counts or of the very ones. */
typedef struct place {
    const char *device;
    bool exact;
    void *ctx;
    int32_t device_type, device_id;
} place;

/* A call on a machine. */
typedef struct task {
    const kt_warm_call *call;
    size_t place;
    size_t *kernel, n;
    char *line, *error; /* of the warm list; NULL: not failed */
    bool tried;
} task;

typedef struct warm {
    const kt_warm_job *job;
    place *places;
    size_t n_places;
    task *tasks;
    size_t n_tasks;
    json_t *index; /* key of a kernel -> its number */
    char *state;   /* by number */
    size_t n_kernels;
    /* Of the threads, under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t moved;
    size_t *queue, n_queue, next, finished;
    kt_warm_progress progress;
} warm;

/* ---- places ------------------------------------------------------------------------------------------------------ */

static int open_place(warm *w, const char *device, bool exact) {
    const kt_warm_job *job = w->job;
    const kiln_context_options options = {.struct_size = sizeof options,
                                          .on_miss = KILN_ON_MISS_BUILD,
                                          .shapes = exact ? KILN_SHAPES_EXACT : KILN_SHAPES_GENERIC,
                                          .cache_dir = job->cache_dir,
                                          .cache_read_only = job->read_only,
                                          .record = ""};
    place *p = &w->places[w->n_places];
    *p = (place){.device = device, .exact = exact};
    KT_TRY(kt_status(job->lib,
                     KT_CALL(job->lib, "kiln_context_create", KT_STR(device), KT_PTR(&options), KT_PTR(&p->ctx))));
    w->n_places++;
    return kt_status(job->lib, KT_CALL(job->lib, "kiln_context_device", KT_PTR(p->ctx), KT_PTR(&p->device_type),
                                       KT_PTR(&p->device_id)));
}

static int open_places(warm *w) {
    w->places = kt_alloc(2 * w->job->devices.n, sizeof *w->places);
    for (size_t i = 0; i < w->job->devices.n; i++) {
        KT_TRY(open_place(w, w->job->devices.item[i], false));
        if (w->job->exact) KT_TRY(open_place(w, w->job->devices.item[i], true));
    }
    return KT_GOOD;
}

/* ---- planning ---------------------------------------------------------------------------------------------------- */

/* The plan of a task; NULL and *error (to be freed) where there is none. Any thread may ask. */
static json_t *plan(const warm *w, const task *t, uint32_t flags, char *buffer, char **error) {
    const place *p = &w->places[t->place];
    kt_library *lib = w->job->lib;
    kt_warm_args args;
    uint64_t needed = 0;
    kt_warm_args_fill(t->call, p->device_type, p->device_id, &args);
    int32_t status = KT_CALL(lib, "kiln_plan_json", KT_PTR(p->ctx), KT_STR(t->call->op->name), KT_PTR(args.arg),
                             KT_I32(t->call->op->n_args), KT_PTR(t->call->call.options), KT_U32(flags), KT_PTR(buffer),
                             KT_U64(PLAN_BYTES), KT_PTR(&needed));
    json_t *out = status == KILN_OK ? json_loads(buffer, 0, NULL) : NULL;
    if (!out)
        *error = kt_format("%s (%s)", kt_call_string(lib, "kiln_error_message", 0, NULL),
                           kt_call_string(lib, "kiln_status_name", 1, &KT_I32(status)));
    return out;
}

static size_t number_of(warm *w, const char *key) {
    const json_t *known = json_object_get(w->index, key);
    if (known) return (size_t)json_integer_value(known);
    json_object_set_new(w->index, key, json_integer((json_int_t)w->n_kernels));
    return w->n_kernels++;
}

/* Name the task's kernels; *fresh: one of them is named for the first time. */
static void plan_task(warm *w, task *t, char *buffer, bool *fresh) {
    size_t before = w->n_kernels, i;
    json_t *kernel, *out = plan(w, t, KILN_PLAN_LIST, buffer, &t->error);
    *fresh = false;
    if (!out) return;
    json_t *kernels = json_object_get(out, "kernels");
    t->line = json_dumps(json_object_get(out, "record"), JSON_COMPACT);
    t->kernel = kt_alloc(json_array_size(kernels), sizeof *t->kernel);
    json_array_foreach(kernels, i, kernel) {
        t->kernel[t->n++] = number_of(w, kt_json_text(kernel, "key", ""));
    }
    *fresh = w->n_kernels > before;
    json_decref(out);
}

static void plan_all(warm *w, const kt_warm_list *list) {
    char *buffer = kt_alloc(1, PLAN_BYTES);
    w->tasks = kt_alloc(w->n_places * list->n, sizeof *w->tasks);
    w->queue = kt_alloc(w->n_places * list->n, sizeof *w->queue);
    for (size_t p = 0; p < w->n_places; p++) {
        for (size_t i = 0; i < list->n; i++) {
            task *t = &w->tasks[w->n_tasks];
            bool fresh;
            *t = (task){.call = list->item[i], .place = p};
            plan_task(w, t, buffer, &fresh);
            if (fresh) w->queue[w->n_queue++] = w->n_tasks;
            w->n_tasks++;
        }
    }
    free(buffer);
    w->state = kt_alloc(w->n_kernels, 1);
    w->progress.kernels = w->n_kernels;
}

/* ---- building ---------------------------------------------------------------------------------------------------- */

static void take_result(warm *w, task *t, const json_t *out, char *error) {
    t->tried = true;
    t->error = error;
    for (size_t i = 0; out && i < t->n; i++) {
        const json_t *kernel = json_array_get(json_object_get(out, "kernels"), i);
        if (w->state[t->kernel[i]] != PENDING) continue;
        bool built = strcmp(kt_json_text(kernel, "cache", ""), "built") == 0;
        w->state[t->kernel[i]] = built ? BUILT : CACHED;
        built ? w->progress.built++ : w->progress.cached++;
    }
    if (error) w->progress.failed_calls++;
}

static void *work(void *user) {
    warm *w = user;
    char *buffer = kt_alloc(1, PLAN_BYTES);
    pthread_mutex_lock(&w->lock);
    while (w->next < w->n_queue) {
        task *t = &w->tasks[w->queue[w->next++]];
        char *error = NULL;
        pthread_mutex_unlock(&w->lock);
        json_t *out = plan(w, t, KILN_PLAN_BUILD, buffer, &error);
        pthread_mutex_lock(&w->lock);
        take_result(w, t, out, error);
        w->finished++;
        json_decref(out);
        pthread_cond_signal(&w->moved);
    }
    pthread_mutex_unlock(&w->lock);
    free(buffer);
    return NULL;
}

static int build_queue(warm *w) {
    pthread_t *threads = kt_alloc((size_t)w->job->threads, sizeof *threads);
    int64_t n = 0;
    w->next = w->finished = 0;
    while (n < w->job->threads && (size_t)n < w->n_queue && pthread_create(&threads[n], NULL, work, w) == 0) n++;
    pthread_mutex_lock(&w->lock);
    while (n > 0 && w->finished < w->n_queue) {
        struct timespec until = kt_warm_progress_draw(&w->progress);
        pthread_cond_timedwait(&w->moved, &w->lock, &until);
    }
    pthread_mutex_unlock(&w->lock);
    for (int64_t i = 0; i < n; i++) pthread_join(threads[i], NULL);
    free(threads);
    return n > 0 || w->n_queue == 0 ? KT_GOOD : kt_fail(KT_ENVIRONMENT, "no thread can be started");
}

/* Calls that were not tried, because calls before them had the same kernels, and now lack some. */
static void queue_again(warm *w) {
    w->n_queue = 0;
    for (size_t i = 0; i < w->n_tasks; i++) {
        const task *t = &w->tasks[i];
        bool lacks = false;
        for (size_t k = 0; k < t->n; k++) lacks = lacks || w->state[t->kernel[k]] == PENDING;
        if (lacks && !t->tried) w->queue[w->n_queue++] = i;
    }
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static void report_failures(const warm *w, kt_warm_result *out) {
    for (size_t i = 0; i < w->n_tasks; i++) {
        const task *t = &w->tasks[i];
        if (!t->error) continue;
        json_array_append_new(out->failures,
                              json_pack("{s:s, s:s, s:s, s:s*, s:s}", "what", t->call->what, "op", t->call->op->name,
                                        "device", w->places[t->place].device, "line", t->line, "error", t->error));
    }
}

/* How many different kernels the calls of a model (or file) and operation need, one machine at a time. */
static void report_groups(const warm *w, kt_warm_result *out) {
    char *seen = kt_alloc(w->n_kernels, 1);
    for (size_t i = 0; i < w->n_tasks;) {
        const task *first = &w->tasks[i];
        json_int_t kernels = 0;
        memset(seen, 0, w->n_kernels);
        for (; i < w->n_tasks; i++) {
            const task *t = &w->tasks[i];
            if (t->place != first->place || t->call->op != first->call->op) break;
            if (strcmp(t->call->group, first->call->group) != 0) break;
            for (size_t k = 0; k < t->n; k++) {
                kernels += !seen[t->kernel[k]];
                seen[t->kernel[k]] = 1;
            }
        }
        const place *p = &w->places[first->place];
        json_array_append_new(out->groups, json_pack("{s:s, s:s, s:s, s:s, s:I}", "group", first->call->group, "op",
                                                     first->call->op->name, "device", p->device, "shapes",
                                                     p->exact ? "exact" : "generic", "kernels", kernels));
    }
    free(seen);
}

/* What a context could not keep on the disk is a failure that no call saw. */
static int check_counters(const warm *w) {
    for (size_t i = 0; i < w->n_places; i++) {
        kiln_counters c = {.struct_size = sizeof c};
        KT_TRY(kt_status(w->job->lib,
                         KT_CALL(w->job->lib, "kiln_context_counters", KT_PTR(w->places[i].ctx), KT_PTR(&c))));
        if (c.kernels_built > 0 && !c.dir_usable)
            return kt_fail(KT_ENVIRONMENT, "kernels were built and not kept: %s", c.cache_reason);
        if (c.publish_failed > 0)
            return kt_fail(KT_ENVIRONMENT, "%llu kernels could not be written to %s",
                           (unsigned long long)c.publish_failed, c.cache_dir);
        if (c.evicted > 0)
            return kt_fail(KT_ENVIRONMENT, "%llu kernels had to leave %s again: KILN_CACHE_MAX is too small",
                           (unsigned long long)c.evicted, c.cache_dir);
    }
    return KT_GOOD;
}

static int report(const warm *w, const kt_warm_list *list, kt_warm_result *out) {
    out->calls = list->n;
    out->kernels = w->n_kernels;
    out->built = w->progress.built;
    out->cached = w->progress.cached;
    out->failed = w->job->plan_only ? 0 : out->kernels - out->built - out->cached;
    out->seconds = kt_warm_progress_seconds(&w->progress);
    report_groups(w, out);
    report_failures(w, out);
    KT_TRY(check_counters(w));
    size_t n = json_array_size(out->failures);
    return n == 0
               ? KT_GOOD
               : kt_fail(KT_CHECK, "%zu calls failed: %llu kernels are not there", n, (unsigned long long)out->failed);
}

static void close_all(warm *w) {
    for (size_t i = 0; i < w->n_places; i++)
        (void)KT_CALL(w->job->lib, "kiln_context_destroy", KT_PTR(w->places[i].ctx));
    for (size_t i = 0; i < w->n_tasks; i++) {
        free(w->tasks[i].kernel);
        free(w->tasks[i].line);
        free(w->tasks[i].error);
    }
    free(w->places);
    free(w->tasks);
    free(w->queue);
    free(w->state);
    json_decref(w->index);
}

int kt_warm_run(const kt_warm_job *job, const kt_warm_list *list, kt_warm_result *out) {
    warm w = {.job = job, .lock = PTHREAD_MUTEX_INITIALIZER, .index = json_object()};
    *out = (kt_warm_result){.groups = json_array(), .failures = json_array()};
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w.moved, &monotonic);
    pthread_condattr_destroy(&monotonic);
    kt_warm_progress_begin(&w.progress, job->on_terminal);
    int code = open_places(&w);
    if (code == KT_GOOD) {
        plan_all(&w, list);
        if (job->plan_only) w.n_queue = 0;
        code = build_queue(&w);
    }
    if (code == KT_GOOD && w.progress.failed_calls > 0) {
        queue_again(&w);
        code = build_queue(&w);
    }
    kt_warm_progress_end(&w.progress);
    if (code == KT_GOOD) code = report(&w, list, out);
    close_all(&w);
    pthread_cond_destroy(&w.moved);
    return code;
}

void kt_warm_result_free(kt_warm_result *result) {
    json_decref(result->groups);
    json_decref(result->failures);
    *result = (kt_warm_result){0};
}
