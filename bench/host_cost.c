/* host_cost: what Kiln costs on the host, measured with load_balance_backward.
 *
 *     host_cost [--device null|offline:h200|cuda:0] [--runs N] [--json]
 *
 *   first call, empty cache     a fresh process; the assembler library is loaded, too
 *   a further new shape         the same process, other feature axes
 *   first call, warm cache      a fresh process; its kernel is in the cache directory
 *   repeated call               the mean of many calls, when everything is there
 *
 * Each of the first three is the median of N fresh processes (10); context creation, which starts the driver, is
 * reported apart. On "null" kernels are PTX text and nothing is assembled; "offline:h200" assembles for an H200 without
 * one. */
#define _GNU_SOURCE
#include "kiln/kiln_tools.h"

#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROWS = 2048, REPEATS = 200000, MAX_RUNS = 100 };

typedef struct measurement {
    double create_us, first_us, further_us, repeat_us;
} measurement;

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static void die(const char *what) {
    fprintf(stderr, "host_cost: %s: %s\n", what, kiln_error_message());
    exit(3);
}

static void check(int32_t status, const char *what) {
    if (status != KILN_OK) die(what);
}

/* ---- one call ---------------------------------------------------------------------------------------------------- */

typedef struct call {
    kiln_context *ctx;
    void *stream;
    int64_t e[1], be[2], one[1];
    DLTensor tokens, mask, loss, training, out;
    kiln_load_balance_backward_options options;
} call;

static DLTensor make(call *c, DLDataType dtype, int ndim, int64_t *shape) {
    int32_t type, id;
    DLTensor t = {.ndim = ndim, .dtype = dtype, .shape = shape};
    uint64_t bytes = dtype.bits / 8;
    for (int i = 0; i < ndim; i++) bytes *= (uint64_t)shape[i];
    check(kiln_context_device(c->ctx, &type, &id), "kiln_context_device");
    memcpy(&t.device.device_type, &type, sizeof type); /* an enum in DLPack's header, an int32_t in ours */
    t.device.device_id = id;
    check(kiln_device_alloc(c->ctx, bytes, &t.data), "kiln_device_alloc");
    return t;
}

static void begin(call *c, kiln_context *ctx, int64_t e) {
    const DLDataType f32 = {2, 32, 1}, boolean = {6, 8, 1};
    *c = (call){.ctx = ctx, .e = {e}, .be = {ROWS, e}, .one = {1}};
    c->options = (kiln_load_balance_backward_options){.common.struct_size = sizeof c->options, .top_k = 8};
    c->tokens = make(c, f32, 1, c->e);
    c->mask = make(c, f32, 2, c->be);
    c->loss = make(c, f32, 1, c->one);
    c->training = make(c, boolean, 1, c->one);
    c->out = make(c, f32, 2, c->be);
}

static void run(call *c) {
    check(kiln_load_balance_backward(c->ctx, &c->tokens, &c->mask, &c->loss, NULL, NULL, NULL, &c->training, &c->out,
                                     &c->options, c->stream),
          "kiln_load_balance_backward");
}

static double time_one(call *c) {
    double start = now_us();
    run(c);
    return now_us() - start;
}

/* ---- a process of its own ---------------------------------------------------------------------------------------- */

static measurement measure(const char *device, const char *cache) {
    measurement m;
    call first, further;
    kiln_context *ctx = NULL;
    kiln_context_options o = {.struct_size = sizeof o, .cache_dir = cache};
    double start = now_us();
    check(kiln_context_create(device, &o, &ctx), "kiln_context_create");
    m.create_us = now_us() - start;
    begin(&first, ctx, 256);
    begin(&further, ctx, 128);
    m.first_us = time_one(&first);
    m.further_us = time_one(&further);
    for (int i = 0; i < 1000; i++) run(&first);
    start = now_us();
    for (int i = 0; i < REPEATS; i++) run(&first);
    m.repeat_us = (now_us() - start) / (double)REPEATS;
    check(kiln_stream_synchronize(ctx, NULL), "kiln_stream_synchronize");
    return m;
}

static measurement measure_in_child(const char *device, const char *cache) {
    measurement m;
    int pipe_fd[2];
    if (pipe(pipe_fd) != 0) die("pipe");
    pid_t child = fork(); /* nothing of Kiln has run in this process: the child is as fresh as any */
    if (child < 0) die("fork");
    if (child == 0) {
        m = measure(device, cache);
        _exit(write(pipe_fd[1], &m, sizeof m) == (ssize_t)sizeof m ? 0 : 3);
    }
    int status;
    close(pipe_fd[1]);
    ssize_t got = read(pipe_fd[0], &m, sizeof m);
    close(pipe_fd[0]);
    waitpid(child, &status, 0);
    if (got != (ssize_t)sizeof m) exit(3);
    return m;
}

/* ---- medians ----------------------------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const measurement *all, int n, size_t field) {
    double v[MAX_RUNS];
    for (int i = 0; i < n; i++) memcpy(&v[i], (const char *)&all[i] + field, sizeof v[i]);
    qsort(v, (size_t)n, sizeof *v, compare);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static void empty(const char *dir) {
    if (kiln_cache_trim(dir, 0, NULL, NULL) != KILN_OK) die(dir);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where) {
    (void)st, (void)type, (void)where;
    return remove(path);
}

/* Everything that is measured happens in children; trimming between them is the only call of Kiln in this process. */
static void measure_all(const char *device, const char *dir, int runs, measurement *cold, measurement *warm) {
    for (int i = 0; i < runs; i++) {
        empty(dir);
        cold[i] = measure_in_child(device, dir);
        warm[i] = measure_in_child(device, dir);
    }
}

static void report(const char *device, const measurement *cold, const measurement *warm, int n, bool json) {
    double create = median(warm, n, offsetof(measurement, create_us));
    double first = median(cold, n, offsetof(measurement, first_us));
    double further = median(cold, n, offsetof(measurement, further_us));
    double hit = median(warm, n, offsetof(measurement, first_us));
    double repeat = median(warm, n, offsetof(measurement, repeat_us));
    if (json) {
        printf("{\"device\":\"%s\",\"runs\":%d,\"version\":\"%s\",\"create_us\":%.1f,\"first_empty_us\":%.1f,"
               "\"further_us\":%.1f,\"first_warm_us\":%.1f,\"repeat_us\":%.4f}\n",
               device, n, kiln_version(), create, first, further, hit, repeat);
        return;
    }
    printf("load_balance_backward on %s, medians of %d processes\n", device, n);
    printf("  context                 %10.1f us\n", create);
    printf("  first call, empty cache %10.1f us\n", first);
    printf("  a further new shape     %10.1f us\n", further);
    printf("  first call, warm cache  %10.1f us\n", hit);
    printf("  repeated call           %10.3f us\n", repeat);
}

int main(int argc, char **argv) {
    const char *device = "null";
    int runs = 10;
    bool json = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            json = true;
        } else if (strcmp(argv[i], "--device") == 0 && i + 1 < argc) {
            device = argv[++i];
        } else if (strcmp(argv[i], "--runs") == 0 && i + 1 < argc) {
            runs = atoi(argv[++i]);
        } else {
            fprintf(stderr, "usage: host_cost [--device DEVICE] [--runs N] [--json]\n");
            return 2;
        }
    }
    if (runs < 1 || runs > MAX_RUNS) {
        fprintf(stderr, "host_cost: --runs must be 1 to %d\n", MAX_RUNS);
        return 2;
    }
    static measurement cold[MAX_RUNS], warm[MAX_RUNS];
    char dir[] = "/tmp/kiln-host-cost-XXXXXX";
    if (!mkdtemp(dir)) {
        perror("host_cost: mkdtemp");
        return 3;
    }
    measure_all(device, dir, runs, cold, warm);
    report(device, cold, warm, runs, json);
    empty(dir);
    return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS) == 0 ? 0 : 3;
}
