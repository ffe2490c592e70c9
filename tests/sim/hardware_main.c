/* kn_sim_hardware TABLE: runs the table's instructions on GPU 0 and prints the table anew, with the hashes seen there.
 * This is how tests/data/sim/scalar_h200.txt is made. */
#include "base/alloc.h"
#include "jit/backend.h"
#include "support/sim_rows.h"

#include <stdio.h>
#include <string.h>

static kn_status run(kn_backend *b, const kn_sim_rows *rows, uint64_t *out, size_t bytes) {
    static uint64_t in[4 * KN_ROWS_LANES];
    kn_expansion x = {0};
    kn_buf ptx;
    kn_asm_report report;
    kn_module *m = NULL;
    void *cubin = NULL, *device[2] = {NULL, NULL};
    size_t len = 0;
    kn_buf_init(&ptx, 1 << 22);
    KN_TRY(kn_sim_rows_ptx(rows, &ptx));
    kn_sim_rows_inputs(in);
    x.ptx = ptx.data;
    x.ptx_len = ptx.len;
    x.meta = (kn_kernel_meta){
        .entry = "rows", .target = "sm_90a", .ptx_version = 83, .threads = {KN_ROWS_LANES, 1, 1}, .cluster = {1, 1, 1}};
    x.meta.n_args = 2;
    x.meta.arg[0] = (kn_kernel_arg){"in", 0, 8, 8};
    x.meta.arg[1] = (kn_kernel_arg){"out", 8, 8, 8};
    KN_TRY(b->ops->link(b, &x, &cubin, &len, &report));
    KN_TRY(b->ops->module_load(b, cubin, len, &x.meta, &m));
    KN_TRY(b->ops->alloc(b, sizeof in, &device[0]));
    KN_TRY(b->ops->alloc(b, bytes, &device[1]));
    KN_TRY(b->ops->copy_in(b, device[0], in, sizeof in));
    kn_launch_args args = {.module = m, .grid = {1, 1, 1}, .params = device, .params_len = sizeof device};
    KN_TRY(b->ops->launch(b, &args));
    KN_TRY(b->ops->stream_synchronize(b, NULL));
    return b->ops->copy_out(b, out, device[1], bytes);
}

int main(int argc, char **argv) {
    static kn_sim_rows rows;
    kn_backend *b = NULL;
    if (argc != 2) return 2;
    kn_status st = kn_sim_rows_read(argv[1], &rows);
    if (st == KN_OK) st = kn_backend_cuda_create(0, &b);
    size_t bytes = (size_t)rows.n * KN_ROWS_LANES * 8;
    uint64_t *out = kn_calloc(1, bytes + 8);
    if (st == KN_OK && out) st = run(b, &rows, out, bytes);
    if (st != KN_OK || !out) {
        fprintf(stderr, "%s\n", kn_error_message());
        return 1;
    }
    printf("# Hashes of scalar instructions on %s, driver %u, by kn_sim_hardware: see tests/support/sim_rows.h.\n",
           b->facts.name, b->facts.driver_version);
    for (uint32_t k = 0; k < rows.n; k++)
        printf("%016llx %c %s\n", (unsigned long long)kn_sim_rows_hash(out + (size_t)k * KN_ROWS_LANES), rows.kind[k],
               rows.statements[k]);
    return 0;
}
