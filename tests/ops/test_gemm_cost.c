/* ops/gemm_cost.c beside what an H200 measured (tests/data/gemm): the candidate that is the cheapest by the analytic
 * cost is nearly the fastest; and what holds of all candidates. KN_PRINT=1 prints a line a product. */
#include "support/suite.h"

#include "ops/gemm_choice.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const kn_device_facts h200 = {
    .name = "NVIDIA H200", .cc_major = 9, .multiprocessors = 132, .smem_per_block = 232448, .l2_bytes = 60 << 20};

/* "wgmma:bf16:k.n:store.bf16:64x4096x28672" */
static kn_gemm product_of(const char *key) {
    char type[8], a, b;
    long long m, n, k;
    ck_assert_msg(sscanf(key, "wgmma:%7[^:]:%c.%c:store.bf16:%lldx%lldx%lld", type, &a, &b, &m, &n, &k) == 6, "%s",
                  key);
    ck_assert_str_eq(type, "bf16");
    const kn_gemm_operand operand = {.dtype = KN_BF16, .align_log2 = 7, .stride_dim = -1, .group_dim = -1};
    kn_gemm g = {.symbol = "gemm",
                 .m = m,
                 .n = n,
                 .n_segments = 1,
                 .segment = {{operand, operand, k}},
                 .a_split = 1,
                 .b_split = 1,
                 .d = operand,
                 .epilogue = "store"};
    g.segment[0].a.depth_contiguous = a == 'k';
    g.segment[0].b.depth_contiguous = b == 'k';
    return g;
}

static json_t *measurements(void) {
    char path[1024];
    json_error_t error;
    snprintf(path, sizeof path, "%s/tests/data/gemm/h200.json", getenv("KN_SOURCE_DIR"));
    json_t *file = json_load_file(path, 0, &error);
    ck_assert_msg(file != NULL, "%s: %s", path, error.text);
    return file;
}

/* Time of the candidate that the cost prefers among those measured, over the best of them, which may share a depth
 * otherwise. */
static double loss_of(const json_t *row) {
    const char *key = json_string_value(json_object_get(row, "key")), *name;
    const kn_gemm g = product_of(key), *list[1] = {&g};
    kn_gemm_ranked all[KN_GEMM_MAX_CANDIDATES];
    int count = kn_gemm_sm90_candidates(list, 1, &h200, all);
    double best = INFINITY, chosen = 0, least = INFINITY;
    char chosen_name[KN_GEMM_NAME_CAP] = "?", best_name[KN_GEMM_NAME_CAP] = "?", own[KN_GEMM_NAME_CAP];
    json_t *value;
    json_object_foreach(json_object_get(row, "us"), name, value) {
        double us = json_number_value(value);
        if (us < best) snprintf(best_name, sizeof best_name, "%s", name);
        best = us < best ? us : best;
        for (int i = 0; i < count; i++) {
            kn_gemm_candidate_name(&all[i].c, own);
            if (strcmp(own, name) != 0 || all[i].refused || all[i].cost.clocks >= least) continue;
            least = all[i].cost.clocks;
            chosen = us;
            snprintf(chosen_name, sizeof chosen_name, "%s", own);
        }
    }
    ck_assert_msg(chosen > 0, "%s: nothing that was measured is a candidate", key);
    if (getenv("KN_PRINT"))
        printf("%5.1f%%  %-46s %-28s %8.1f  %-28s %8.1f\n", 100 * (chosen / best - 1), key, chosen_name, chosen,
               best_name, best);
    return chosen / best;
}

START_TEST(the_cheapest_candidate_is_nearly_the_fastest) {
    json_t *file = measurements(), *row;
    double sum = 0, worst = 0;
    size_t i, n = 0;
    json_array_foreach(json_object_get(file, "products"), i, row) {
        double loss = loss_of(row);
        if (loss <= 0) continue;
        sum += log(loss);
        worst = loss > worst ? loss : worst;
        n++;
    }
    printf("%zu products: %.1f%% on average, %.1f%% in the worst case\n", n, 100 * (exp(sum / (double)n) - 1),
           100 * (worst - 1));
    ck_assert_uint_ge(n, 30);
    ck_assert_double_le(exp(sum / (double)n), 1.015);
    ck_assert_double_le(worst, 1.08);
    json_decref(file);
}
END_TEST

START_TEST(candidates_are_told_apart_by_their_names) {
    static const char *const keys[] = {"wgmma:bf16:k.n:store.bf16:200x512x1024",
                                       "wgmma:bf16:k.k:store.bf16:64x4096x28672",
                                       "wgmma:bf16:m.n:store.bf16:4096x1408x512"};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        const kn_gemm g = product_of(keys[k]), *list[1] = {&g};
        kn_gemm_ranked all[KN_GEMM_MAX_CANDIDATES];
        char a[KN_GEMM_NAME_CAP], b[KN_GEMM_NAME_CAP];
        int count = kn_gemm_sm90_candidates(list, 1, &h200, all);
        ck_assert_int_gt(count, 20);
        for (int i = 0; i < count; i++) {
            kn_gemm_candidate_name(&all[i].c, a);
            for (int j = 0; j < i; j++) {
                kn_gemm_candidate_name(&all[j].c, b);
                ck_assert_str_ne(a, b);
            }
        }
    }
}
END_TEST

/* The choice is the first of those that are possible, and nobody is cheaper. */
START_TEST(the_choice_is_the_cheapest) {
    json_t *file = measurements(), *row;
    size_t k;
    json_array_foreach(json_object_get(file, "products"), k, row) {
        const kn_gemm g = product_of(json_string_value(json_object_get(row, "key"))), *list[1] = {&g};
        kn_gemm_ranked all[KN_GEMM_MAX_CANDIDATES];
        int count = kn_gemm_sm90_candidates(list, 1, &h200, all);
        kn_gemm_candidate c = kn_gemm_sm90_choose(list, 1, &h200);
        double clocks = kn_gemm_sm90_cost(&c, list, 1, 132).clocks;
        for (int i = 0; i < count; i++)
            ck_assert_msg(all[i].refused || all[i].cost.clocks >= clocks, "%s",
                          json_string_value(json_object_get(row, "key")));
    }
    json_decref(file);
}
END_TEST

/* Tiles of tokens that share a tile of weights are neighbours; a generic kernel walks alike for all its tokens. */
START_TEST(tiles_that_share_weights_follow_each_other) {
    static const struct {
        int64_t m;
        int bn, parts, want;
        bool swap;
    } rows[] = {{293, 64, 1, 1, true},   {512, 64, 1, 1, true},  {1571, 136, 1, 2, true},
                {3089, 136, 1, 8, true}, {293, 64, 1, 8, false}, {293, 64, 2, 8, true}};
    kn_gemm g = product_of("wgmma:bf16:k.n:store.bf16:64x1408x4096");
    g.m_is_tokens = true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kn_gemm_candidate c = {.swap = rows[i].swap, .mb = 1, .bn = rows[i].bn, .parts = rows[i].parts};
        g.m = rows[i].m;
        ck_assert_int_eq(kn_gemm_sm90_raster(&c, &g, false), rows[i].want);
    }
    kn_gemm_candidate c = {.swap = true, .mb = 1, .bn = 64, .parts = 1};
    for (g.m = 300; g.m < 20000; g.m += 331) ck_assert_int_eq(kn_gemm_sm90_raster(&c, &g, true), 4);
}
END_TEST

/* A transpose is slow to add to D: 586 us by coop-128x256-swap and 361 by lean-pingpong-128x192, in f32 (H200,
 * 2026-11-30). */
START_TEST(what_is_added_to_is_not_transposed) {
    for (int wide = 0; wide < 2; wide++) {
        kn_gemm g = product_of("wgmma:bf16:m.n:store.bf16:4096x14336x2048");
        const kn_gemm *list[1] = {&g};
        g.accumulate = true;
        if (wide) g.d.dtype = KN_F32;
        ck_assert(!kn_gemm_sm90_choose(list, 1, &h200).swap);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("ops/gemm_cost");
    TCase *t = tcase_create("cost");
    tcase_add_test(t, the_cheapest_candidate_is_nearly_the_fastest);
    tcase_add_test(t, candidates_are_told_apart_by_their_names);
    tcase_add_test(t, the_choice_is_the_cheapest);
    tcase_add_test(t, tiles_that_share_weights_follow_each_other);
    tcase_add_test(t, what_is_added_to_is_not_transposed);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
