/* Other programs' times for a case, in the same process and the same rounds.
 *
 *   cublaslt           gemm by cuBLASLt
 *   cublaslt_products  for expert_mlp_backward and moe_layer_backward: their large matrix products alone, one after the
 * other, without gathering, activations, router or scattering
 *   composed           the whole operation, of cuBLASLt's products and plain kernels (bench_composed.h) */
#ifndef KILN_TOOL_BENCH_PEERS_H
#define KILN_TOOL_BENCH_PEERS_H

#include "bench/bench_time.h"

typedef struct kt_bench_peers kt_bench_peers;

enum { KT_BENCH_MAX_PEERS = 4 };

/** Open the peers that the comma-separated `list` names ("cublaslt,composed"); *out is NULL for an empty list.
 * KT_ENVIRONMENT where one is not to be had. */
int kt_bench_peers_open(const char *list, kt_bench_memory *memory, kt_bench_peers **out);
void kt_bench_peers_close(kt_bench_peers *peers); /* NULL is fine */
/** The peers' versions as JSON: {"cublaslt": 130100}. */
json_t *kt_bench_peers_json(const kt_bench_peers *peers);

/** Make ready what the peers can do of the case, and add it to `subjects` (room for KT_BENCH_MAX_PEERS more). What was
 * made lives until the next call or the close. Nothing overwrites Kiln's tensors. */
int kt_bench_peers_add(kt_bench_peers *peers, const kt_tensors *tensors, uint32_t transposed, kt_bench_timer *timer,
                       kt_bench_subject *subjects, size_t *n);

/** us of the products of one part ("da", "dw" or "dx") within the calls that `times` tells of; 0 if that is not known.
 */
double kt_bench_peers_part(const kt_bench_peers *peers, const kt_bench_times *times, const char *part);

#endif
