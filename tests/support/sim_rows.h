/* A table of scalar instructions, run on many operands at once: on the simulator and on a GPU from the same PTX text.
 */
#ifndef KN_TESTS_SUPPORT_SIM_ROWS_H
#define KN_TESTS_SUPPORT_SIM_ROWS_H

#include "base/buf.h"

#include <stdint.h>

enum { KN_ROWS_MAX = 1024, KN_ROWS_LANES = 1024 };

/* One line of the table: "hash kind statements". kind: 'r' 'd' 'h' 'p', the width that the statements write (%rz, %dz,
 * %hz, %pz); they read %ra..%re, %da.., %ha.., %pa... The hash is of the KN_ROWS_LANES results. */
typedef struct kn_sim_rows {
    char *text; /* the file */
    uint32_t n;
    char kind[KN_ROWS_MAX];
    uint64_t hash[KN_ROWS_MAX];
    const char *statements[KN_ROWS_MAX];
} kn_sim_rows;

kn_status kn_sim_rows_read(const char *path, kn_sim_rows *out);
void kn_sim_rows_free(kn_sim_rows *r);
/** Kernel "rows(.param .u64 in, .param .u64 out)": lane t reads in[4 t ..] and writes out[row * LANES + t]. */
kn_status kn_sim_rows_ptx(const kn_sim_rows *r, kn_buf *out);
/** The operands: random bits, special values of every format, small integers, numbers of moderate size. */
void kn_sim_rows_inputs(uint64_t in[4 * KN_ROWS_LANES]);
uint64_t kn_sim_rows_hash(const uint64_t *results);

#endif
