/* tools/kiln/bench/bench_time.c, tool_gpu.c: statistics, cutting a recording into calls, the tool's own PTX. */
#include "bench/bench_time.h"
#include "sim/sim.h"
#include "support/suite.h"

#include <string.h>

START_TEST(medians_and_quartiles) {
    double odd[] = {5, 1, 4, 2, 3}, even[] = {4, 1, 3, 2}, one[] = {7};
    kt_bench_stats s = kt_bench_stats_of(odd, 5);
    ck_assert_double_eq(s.median, 3);
    ck_assert_double_eq(s.q1, 2);
    ck_assert_double_eq(s.q3, 4);
    ck_assert_double_eq(s.min, 1);
    s = kt_bench_stats_of(even, 4);
    ck_assert_double_eq(s.median, 2.5);
    ck_assert_double_eq(s.q1, 1.75);
    ck_assert_double_eq(s.q3, 3.25);
    s = kt_bench_stats_of(one, 1);
    ck_assert_double_eq(s.q1, 7);
    ck_assert_double_eq(s.q3, 7);
    ck_assert_uint_eq(kt_bench_stats_of(one, 0).n, 0);
}
END_TEST

START_TEST(cuts_a_recording_at_the_marks) {
    /* Two calls; in the first, the second kernel starts before the first ends and ends before it, too. */
    const kt_bench_kernel k[] = {
        {0, 900, true}, {1000, 9000, false}, {2000, 5000, false}, {10000, 11000, true}, {12000, 13500, false}};
    double spans[2];
    size_t counts[2];
    ck_assert_int_eq(kt_bench_cut(k, 5, spans, counts, 2), KT_GOOD);
    ck_assert_double_eq(spans[0], 8);
    ck_assert_double_eq(spans[1], 1.5);
    ck_assert_uint_eq(counts[0], 2);
    ck_assert_uint_eq(counts[1], 1);
}
END_TEST

/* A kernel counts from the end of the one before, however early it started; one that ends earlier adds nothing. */
START_TEST(steps_add_up_to_the_span) {
    const kt_bench_kernel k[] = {{0, 900, true},       {1000, 4000, false},  {2000, 9000, false},  {2500, 8000, false},
                                 {9500, 10000, false}, {20000, 21000, true}, {30000, 31500, false}};
    static const double wanted[] = {0, 3, 5, 0, 1, 0, 1.5};
    double steps[7], spans[2];
    size_t counts[2];
    kt_bench_steps(k, 7, steps);
    for (int i = 0; i < 7; i++) ck_assert_double_eq(steps[i], wanted[i]);
    ck_assert_int_eq(kt_bench_cut(k, 7, spans, counts, 2), KT_GOOD);
    ck_assert_double_eq(spans[0], steps[1] + steps[2] + steps[3] + steps[4]);
}
END_TEST

START_TEST(refuses_a_recording_that_is_not_whole) {
    const kt_bench_kernel k[] = {{0, 1, true}, {2, 3, false}, {4, 5, true}, {6, 7, false}, {8, 9, true}};
    double spans[4];
    size_t counts[4];
    ck_assert_int_eq(kt_bench_cut(k, 4, spans, counts, 3), KT_ENVIRONMENT);
    ck_assert_str_eq(kt_message(), "CUPTI recorded 2 of 3 calls");
    ck_assert_int_eq(kt_bench_cut(k, 4, spans, counts, 1), KT_ENVIRONMENT);
    ck_assert_ptr_nonnull(strstr(kt_message(), "more than the 1 calls"));
    ck_assert_int_eq(kt_bench_cut(k, 5, spans, counts, 3), KT_ENVIRONMENT);
    ck_assert_str_eq(kt_message(), "CUPTI recorded no kernel of call 2");
    ck_assert_int_eq(kt_bench_cut(k + 1, 3, spans, counts, 1), KT_ENVIRONMENT);
    ck_assert_ptr_nonnull(strstr(kt_message(), "before the first mark"));
}
END_TEST

/* ---- the scan kernel --------------------------------------------------------------------------------------------- */

/* Run the PTX on the simulator. */
static void scan_on_simulator(const uint32_t *words, uint64_t n, uint32_t high, uint32_t low, uint64_t found[2]) {
    kn_sim_module *module = NULL;
    const struct {
        const void *words;
        uint64_t n;
        uint32_t high, low;
        uint64_t *found;
    } params = {words, n, high, low, found};
    found[0] = found[1] = 0;
    const kn_sim_extent extents[] = {{"words", (void *)(uintptr_t)words, 4, 1, {(int64_t)n}, {1}, false, false},
                                     {"found", found, 8, 1, {2}, {1}, true, false}};
    const kn_sim_launch launch = {.grid = {3, 1, 1},
                                  .block = {64, 1, 1},
                                  .cluster = {1, 1, 1},
                                  .params = &params,
                                  .params_len = sizeof params,
                                  .extents = extents,
                                  .n_extents = 2,
                                  .seed = 1,
                                  .threads = 1,
                                  .multiprocessors = 132,
                                  .smem_per_block = 232448};
    ck_assert_ok(kn_sim_parse(kt_bench_ptx, strlen(kt_bench_ptx), NULL, NULL, &module));
    ck_assert_ok(kn_sim_run(module, "kiln_bench_scan", &launch, NULL));
    kn_sim_free(module);
}

START_TEST(scans_on_the_device_as_on_the_host) {
    enum { N = 1000 };
    static uint32_t words[N];
    const struct {
        uint32_t high, low;
    } masks[] = {{0x7F800000, 0x7F800000}, {0x7F800000, 0x7F80}, {0x7C000000, 0x7C00}};
    kt_random random = {3};
    for (size_t i = 0; i < N; i++) words[i] = (uint32_t)kt_random_bits(&random);
    for (int m = 0; m < 3; m++) {
        uint64_t found[2], bad, digest, other;
        scan_on_simulator(words, N, masks[m].high, masks[m].low, found);
        kt_gpu_scan_host(words, 4 * N, masks[m].high, masks[m].low, &bad, &digest);
        ck_assert_uint_gt(bad, 0); /* random words hold some exponents of ones */
        ck_assert_uint_eq(found[0], bad);
        ck_assert_uint_eq(found[1], digest);
        /* The digest knows places: two swapped words are another one. */
        uint32_t swapped = words[10];
        words[10] = words[700];
        words[700] = swapped;
        kt_gpu_scan_host(words, 4 * N, masks[m].high, masks[m].low, &bad, &other);
        ck_assert_uint_ne(other, digest);
    }
}
END_TEST

START_TEST(scan_finds_what_is_not_finite) {
    uint64_t bad, digest;
    const uint32_t f32[] = {0x3F800000, 0x7F800000, 0xFFFFFFFF, 0x7F7FFFFF, 0};
    kt_gpu_scan_host(f32, sizeof f32, 0x7F800000, 0x7F800000, &bad, &digest);
    ck_assert_uint_eq(bad, 2);
    const uint32_t bf16[] = {0x3F803F80, 0x3F80FF80, 0x7FC03F80, 0x7F7F7F7F};
    kt_gpu_scan_host(bf16, sizeof bf16, 0x7F800000, 0x7F80, &bad, &digest);
    ck_assert_uint_eq(bad, 2);
}
END_TEST

int main(void) {
    Suite *s = suite_create("tools/bench_time");
    TCase *t = tcase_create("bench_time");
    tcase_add_test(t, medians_and_quartiles);
    tcase_add_test(t, cuts_a_recording_at_the_marks);
    tcase_add_test(t, steps_add_up_to_the_span);
    tcase_add_test(t, refuses_a_recording_that_is_not_whole);
    tcase_add_test(t, scans_on_the_device_as_on_the_host);
    tcase_add_test(t, scan_finds_what_is_not_finite);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
