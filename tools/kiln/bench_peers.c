/* Peers in the same process: see bench_peers.h. */
#include "bench_peers.h"

struct kt_bench_peers {
    kt_bench_memory *memory;
};

int kt_bench_peers_open(const char *list, kt_bench_memory *memory, kt_bench_peers **out) {
    (void)memory;
    *out = NULL;
    if (!list || !*list) return KT_GOOD;
    return kt_fail(KT_USAGE, "--peers %s: no such peer", list);
}

void kt_bench_peers_close(kt_bench_peers *peers) {
    (void)peers;
}

json_t *kt_bench_peers_json(const kt_bench_peers *peers) {
    (void)peers;
    return json_object();
}

int kt_bench_peers_add(kt_bench_peers *peers, const kt_tensors *tensors, uint32_t transposed, void *stream,
                       kt_bench_subject *subjects, size_t *n) {
    (void)peers, (void)tensors, (void)transposed, (void)stream, (void)subjects, (void)n;
    return KT_GOOD;
}
