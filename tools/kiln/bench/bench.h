/* `kiln bench`, in files: cmd_bench.c (command line), bench_machine.c (opening and closing), bench_run.c (a case from
 * tensors to result), bench_report.c (JSON and tables), and the parts that they are made of: bench_cases,
 * bench_pattern, bench_memory, bench_slices, bench_verify, bench_time, tool_gpu, bench_cupti, bench_peers,
 * bench_cublaslt. */
#ifndef KILN_TOOL_BENCH_H
#define KILN_TOOL_BENCH_H

#include "bench/bench_cases.h"
#include "bench/bench_peers.h"
#include "bench/bench_time.h"
#include "bench/bench_verify.h"

enum { KT_BENCH_ALL_CASES = -1 }; /* instead of the number of one case, counted from 1 */

typedef struct kt_bench {
    /* the command line */
    const char *library, *device, *cases_path, *out, *peers_list;
    bool json, cold, hot, graph, no_verify, no_cupti;
    int64_t iterations, only_case;
    /* the machine */
    kt_library *lib;
    void *ctx;
    json_t *device_json; /* owned by report */
    bool cuda;           /* the device is a GPU */
    bool computes;       /* the device runs kernels: results can be verified */
    double bytes_per_s, tensor_flops;
    kt_gpu *gpu;
    kt_bench_memory memory;
    kt_bench_patterns patterns;
    kt_bench_timer timer;
    kt_bench_peers *peers;
    kt_bench_cases cases;
    /* the result */
    json_t *report;
} kt_bench;

/** Open the library and a context on `device`; fills lib, ctx, device_json, cuda. */
int kt_bench_open_context(kt_bench *b, const char *device, const kiln_context_options *options);
/** On a GPU the driver and CUPTI; memory; the timer, with the command line's iterations, cold and hot. warm_up: calls,
 * on a GPU. */
int kt_bench_open_timer(kt_bench *b, size_t warm_up);
/** Everything that is open, however far opening got. */
void kt_bench_close(kt_bench *b);

/** Verify and time one case; adds it to the report. KT_CHECK when its outputs are wrong. */
int kt_bench_run_case(kt_bench *b, const kt_bench_case *c, uint64_t number);

/** [{"part": "dw", "us", "cublaslt_us", "ratio"}] of the steps of Kiln's call and the peer's; empty where they are not
 * known. */
json_t *kt_bench_parts_json(const json_t *steps, const kt_bench_peers *peers, const kt_bench_times *peer);
/** They as a table, if there are any. */
void kt_bench_print_parts(const kt_bench *b, const char *group);

/** Fields of the report that describe machine and method. */
int kt_bench_report_begin(kt_bench *b);
/** Geometric means of the groups, over the cases that there are so far. */
void kt_bench_report_means(kt_bench *b);
int kt_bench_report_write(const kt_bench *b, const char *path);
void kt_bench_print_head(const kt_bench *b);
/** The rows of one group as a table. */
void kt_bench_print_group(const kt_bench *b, const char *group);

#endif
