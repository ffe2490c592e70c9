/* The pipelined TMA + wgmma kernels on the simulator: exact on integers, close to float64 on random data, the same for
 * every schedule, ragged sizes too, and fast enough. */
#include "base/clock.h"
#include "gemm_run.h"
#include "h200_rows.h"

#include <time.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const double time_for_512 = 120;
#else
static const double time_for_512 = 4; /* 2 s on two cores, however busy they are */
#endif

static void run_one(const char *file, uint32_t m, uint32_t n, uint32_t k, uint32_t ctas, bool integers, uint64_t seed) {
    gemm g;
    size_t len;
    char *ptx = run_read(file, &len);
    kn_sim_module *module = run_parse(ptx, len);
    gemm_open(&g, file, m, n, k, ctas);
    gemm_fill(&g, integers);
    g.launch.seed = seed;
    ck_assert_ok(kn_sim_run(module, NULL, &g.launch, NULL));
    double e = gemm_error(&g);
    ck_assert_msg(e <= (integers ? 0 : 1e-6), "%s %ux%ux%u seed %llu: error %g", file, m, n, k,
                  (unsigned long long)seed, e);
    gemm_close(&g);
    kn_sim_free(module);
    kn_free(ptx);
}

START_TEST(right_on_integers) {
    run_one("gemm_kk.ptx", 256, 256, 320, 2, true, 1);
    run_one("gemm_mn.ptx", 256, 256, 320, 2, true, 2);
    run_one("gemm_rs.ptx", 256, 256, 320, 2, true, 2);
    run_one("gemm_cluster.ptx", 512, 256, 320, 4, true, 3);
}
END_TEST

START_TEST(right_on_random_data) {
    run_one("gemm_kk.ptx", 200, 136, 328, 3, false, 4);
    run_one("gemm_mn.ptx", 200, 136, 328, 1, false, 5);
    run_one("gemm_cluster.ptx", 200, 136, 328, 2, false, 6);
}
END_TEST

START_TEST(right_for_every_schedule) {
    for (uint64_t seed = 0; seed < 12; seed++) {
        run_one("gemm_kk.ptx", 128, 256, 320, 1, true, seed);
        run_one("gemm_mn.ptx", 128, 256, 320, 1, true, seed);
        run_one("gemm_rs.ptx", 128, 256, 320, 1, true, seed);
        run_one("gemm_cluster.ptx", 256, 256, 320, 2, true, seed);
    }
}
END_TEST

/* Hashes of the same kernels' results on an H200: tests/data/sim/h200_gemm.txt, which says when and where. */
START_TEST(bits_of_an_h200) {
    static h200_gemm rows[H200_ROWS_MAX];
    char path[1024];
    uint32_t n;
    run_path(path, "h200_gemm.txt");
    ck_assert_ok(h200_read(path, h200_parse_gemm, rows, sizeof rows[0], &n));
    ck_assert_uint_ge(n, 17);
    for (uint32_t k = 0; k < n; k++) {
        const h200_gemm *r = &rows[k];
        gemm g;
        size_t len;
        char *ptx = run_read(r->file, &len);
        kn_sim_module *module = run_parse(ptx, len);
        gemm_open(&g, r->file, r->m, r->n, r->k, r->ctas);
        gemm_fill(&g, r->integers);
        ck_assert_ok(kn_sim_run(module, NULL, &g.launch, NULL));
        uint64_t got = run_hash(RUN_HASH_START, g.d, (size_t)g.m * g.n * 4);
        ck_assert_msg(got == r->hash, "%s %ux%ux%u, %s: %016llx, the H200 has %016llx", r->file, r->m, r->n, r->k,
                      r->integers ? "integers" : "normal data", (unsigned long long)got, r->hash);
        gemm_close(&g);
        kn_sim_free(module);
        kn_free(ptx);
    }
}
END_TEST

/* One seed is one run, to the instruction; another seed is another run with the same result. */
START_TEST(same_seed_same_run) {
    gemm g;
    size_t len;
    char *ptx = run_read("gemm_cluster.ptx", &len);
    kn_sim_module *module = run_parse(ptx, len);
    uint64_t count[3], hash[3];
    gemm_open(&g, "gemm_cluster.ptx", 512, 128, 320, 4);
    gemm_fill(&g, false);
    for (int k = 0; k < 3; k++) {
        kn_sim_stats stats;
        g.launch.seed = k == 2 ? 3 : 2;
        g.launch.threads = k == 1 ? 1 : 2;
        ck_assert_ok(kn_sim_run(module, NULL, &g.launch, &stats));
        count[k] = stats.warp_instructions;
        hash[k] = run_hash(RUN_HASH_START, g.d, (size_t)g.m * g.n * 4);
    }
    ck_assert_uint_eq(count[0], count[1]);
    ck_assert_uint_ne(count[0], count[2]);
    ck_assert(hash[0] == hash[1] && hash[0] == hash[2]);
    gemm_close(&g);
    kn_sim_free(module);
    kn_free(ptx);
}
END_TEST

START_TEST(fast_enough) {
    gemm g;
    size_t len;
    char *ptx = run_read("gemm_kk.ptx", &len);
    kn_sim_module *module = run_parse(ptx, len);
    kn_sim_stats stats;
    gemm_open(&g, "gemm_kk.ptx", 512, 512, 512, 16);
    gemm_fill(&g, false);
    uint64_t t = kn_clock_ns();
    clock_t cpu = clock();
    ck_assert_ok(kn_sim_run(module, NULL, &g.launch, &stats));
    double s = (double)(kn_clock_ns() - t) * 1e-9, used = (double)(clock() - cpu) / CLOCKS_PER_SEC;
    printf("512x512x512: %.2f s (%.2f of processors), %.2f million warp instructions, %.0f thousand a second, %.1f "
           "GFLOP/s of wgmma\n",
           s, used, (double)stats.warp_instructions * 1e-6, (double)stats.warp_instructions / s * 1e-3,
           (double)stats.mma_flops / s * 1e-9);
    ck_assert_double_le(used, time_for_512);
    ck_assert_uint_eq(stats.mma_flops, 2ull * 512 * 512 * 512);
    gemm_close(&g);
    kn_sim_free(module);
    kn_free(ptx);
}
END_TEST

int main(void) {
    Suite *s = suite_create("sim/gemm");
    TCase *t = tcase_create("gemm");
    tcase_add_test(t, right_on_integers);
    tcase_add_test(t, right_on_random_data);
    tcase_add_test(t, right_for_every_schedule);
    tcase_add_test(t, bits_of_an_h200);
    tcase_add_test(t, same_seed_same_run);
    tcase_add_test(t, fast_enough);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
