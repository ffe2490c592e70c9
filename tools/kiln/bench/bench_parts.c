/* What an operation's products took, beside the same products of a peer: see bench_peers.h. Both are measured within
 * their calls, in the state in which the kernels before them leave the L2. */
#include "bench/bench.h"

#include "common/report.h"

#include <stdio.h>
#include <string.h>

static const char *const parts[] = {"da", "dw", "dx"};
enum { PARTS = sizeof parts / sizeof *parts };

/* Kernels of Kiln's that make the part: their names say so. */
static double own_part(const json_t *steps, const char *part) {
    char word[32];
    double us = 0;
    size_t i;
    json_t *step;
    snprintf(word, sizeof word, "_%s_wgmma", part);
    json_array_foreach((json_t *)(uintptr_t)steps, i, step) {
        if (strstr(kt_json_text(step, "kernel", ""), word)) us += kt_json_number(step, "us", 0);
    }
    return us;
}

json_t *kt_bench_parts_json(const json_t *steps, const kt_bench_peers *peers, const kt_bench_times *peer) {
    json_t *list = json_array();
    for (int i = 0; i < PARTS; i++) {
        double us = own_part(steps, parts[i]), peer_us = kt_bench_peers_part(peers, peer, parts[i]);
        if (us <= 0 || peer_us <= 0) continue;
        json_array_append_new(list, json_pack("{s:s, s:f, s:f, s:f}", "part", parts[i], "us", us, "cublaslt_us",
                                              peer_us, "ratio", peer_us / us));
    }
    return list;
}

void kt_bench_print_parts(const kt_bench *b, const char *group) {
    static const char *const head[] = {"case",      ">da us", ">cublaslt", ">ratio",    ">3 dw us",
                                       ">cublaslt", ">ratio", ">dx us",    ">cublaslt", ">ratio"};
    kt_table t = {0};
    size_t i, k;
    json_t *row, *part;
    json_array_foreach(json_object_get(b->report, "cases"), i, row) {
        const json_t *list = json_object_get(row, "parts");
        if (strcmp(kt_json_text(row, "group", ""), group) != 0 || json_array_size(list) != PARTS) continue;
        if (!t.columns) t = kt_table_begin(10, head);
        kt_table_cell(&t, "%s", kt_json_text(row, "name", ""));
        json_array_foreach((json_t *)(uintptr_t)list, k, part) {
            kt_table_cell(&t, "%.2f", kt_json_number(part, "us", 0));
            kt_table_cell(&t, "%.2f", kt_json_number(part, "cublaslt_us", 0));
            kt_table_cell(&t, "%.3f", kt_json_number(part, "ratio", 0));
        }
    }
    if (!t.columns) return;
    printf("\n  the products within the calls, beside cuBLASLt's (the weight gradients: its three calls)\n");
    kt_table_end(&t, 4);
}
