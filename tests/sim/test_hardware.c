/* Scalar instructions, bit by bit as an H200 computes them: hashes of 1024 results each, kept in
 * tests/data/sim/scalar_h200.txt, which says how they were taken. */
#include "base/alloc.h"
#include "sim/sim.h"
#include "support/sim_rows.h"
#include "support/suite.h"

#include <stdio.h>
#include <stdlib.h>

START_TEST(scalar_instructions) {
    static kn_sim_rows rows;
    static uint64_t in[4 * KN_ROWS_LANES];
    char path[1024];
    kn_buf ptx;
    kn_sim_module *m = NULL;
    snprintf(path, sizeof path, "%s/tests/data/sim/scalar_h200.txt", getenv("KN_SOURCE_DIR"));
    ck_assert_ok(kn_sim_rows_read(path, &rows));
    ck_assert_uint_gt(rows.n, 350);
    kn_buf_init(&ptx, 1 << 22);
    ck_assert_ok(kn_sim_rows_ptx(&rows, &ptx));
    kn_sim_rows_inputs(in);
    size_t bytes = (size_t)rows.n * KN_ROWS_LANES * 8;
    uint64_t *out = kn_calloc(1, bytes);
    ck_assert_ptr_nonnull(out);
    void *params[2] = {in, out};
    kn_sim_extent extents[2] = {{"in", in, 1, 1, {sizeof in}, {1}, false, false},
                                {"out", out, 1, 1, {(int64_t)bytes}, {1}, true, true}};
    kn_sim_launch l = {.grid = {1, 1, 1},
                       .block = {KN_ROWS_LANES, 1, 1},
                       .cluster = {1, 1, 1},
                       .params = params,
                       .params_len = sizeof params,
                       .extents = extents,
                       .n_extents = 2,
                       .threads = 1};
    ck_assert_ok(kn_sim_parse(ptx.data, ptx.len, NULL, NULL, &m));
    ck_assert_ok(kn_sim_run(m, "rows", &l, NULL));
    uint32_t wrong = 0;
    for (uint32_t k = 0; k < rows.n; k++) {
        uint64_t got = kn_sim_rows_hash(out + (size_t)k * KN_ROWS_LANES);
        if (got == rows.hash[k]) continue;
        printf("%s\n    gives %016llx, on the H200 %016llx\n", rows.statements[k], (unsigned long long)got,
               (unsigned long long)rows.hash[k]);
        wrong++;
    }
    ck_assert_msg(wrong == 0, "%u of %u instructions differ from the H200", wrong, rows.n);
    kn_sim_free(m);
    kn_free(out);
    kn_buf_free(&ptx);
    kn_sim_rows_free(&rows);
}
END_TEST

int main(void) {
    Suite *s = suite_create("sim/hardware");
    TCase *t = tcase_create("hardware");
    tcase_add_test(t, scalar_instructions);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
