/* gemm and grouped_gemm over random sizes around every tile's edges: M, N and K drawn from a fixed list, all types,
 * majorness, unaligned rows, beta 1; ragged groups of 0 to 257 rows with NaN in the rows behind the last group; repeats
 * bit by bit; how precise fp32 products are. The device is KILN_DEVICE's: the GPU where there is one, else the
 * simulator. KN_ALL=1 draws all 500 triples without a bound on their size. */
#include "gemm_support.h"

#include "support/problem_run.h"

#include <math.h>

enum { TRIPLES = 500, QUICK_TRIPLES = 24, RAGGED = 84, QUICK_RAGGED = 10 };

static kiln_context *ctx, *portable;
static bool all;

static void begin(void) {
    kiln_context_options o = {.struct_size = sizeof o, .cache_dir = "off", .path = KILN_PATH_PORTABLE};
    kiln_context_options fast = {.struct_size = sizeof fast, .cache_dir = "off"};
    ck_assert_ok(kiln_context_create(NULL, &fast, &ctx));
    ck_assert_ok(kiln_context_create(NULL, &o, &portable));
    all = getenv("KN_ALL") != NULL;
}

static void end(void) {
    kiln_context_destroy(ctx);
    kiln_context_destroy(portable);
}

static const int64_t edges[] = {0, 1, 7, 8, 63, 64, 65, 127, 128, 129, 200, 255, 257, 1000};
static const int64_t group_rows[] = {0, 1, 15, 16, 17, 255, 257};

/* ---- triples ----------------------------------------------------------------------------------------------------- */

static kn_gen_config draw_triple(void) {
    kn_gen_config c = kn_gen_defaults("gemm");
    c.m = DRAW(edges), c.n = DRAW(edges), c.k = DRAW(edges);
    c.seed = draw(1u << 30);
    c.dtype = DRAW(floats), c.out_dtype = DRAW(floats);
    c.swapped = draw(4);                        /* a, b */
    c.gap = (int)(draw(3) == 0 ? draw(12) : 0); /* unaligned rows now and then */
    c.options.common.accumulate = draw(2);
    c.options.gemm.math = (int32_t)draw(3);
    return c;
}

/* Twice the same call: the same bits. */
static void check_triple(const kn_gen_config *c, kiln_context *on, bool twice) {
    kn_gen *g, *again;
    must(kn_gen_make(c, &g), c);
    must(kn_gen_reference(g), c);
    must(kn_gen_run(g, on), c);
    must(kn_gen_check(g), c);
    if (twice) {
        must(kn_gen_make(c, &again), c);
        must(kn_gen_run(again, on), c);
        for (int64_t e = 0; e < kn_gen_elements(g, 2); e++)
            ck_assert_msg(kn_gen_get(g, 2, e) == kn_gen_get(again, 2, e), "%s: other bits", describe(c));
        kn_gen_free(again);
    }
    kn_gen_free(g);
}

START_TEST(triples_of_sizes) {
    int quick = 0;
    state = 20261129;
    for (int i = 0; i < TRIPLES; i++) {
        kn_gen_config c = draw_triple();
        if (!all && (c.m * c.n * c.k > 1500000 || quick++ >= QUICK_TRIPLES)) continue;
        if (!is_mine((uint64_t)i)) continue;
        check_triple(&c, i % 2 ? portable : ctx, i % 8 < 2);
    }
}
END_TEST

/* ---- ragged groups ----------------------------------------------------------------------------------------------- */

static void put_nan(kn_gen *g, int arg, int64_t at) {
    kn_gen_put(g, arg, at, (double)NAN);
}

/* The rows behind the last group: in no sum, whatever they hold. */
static void poison_padding(kn_gen *g, bool rows, int64_t used) {
    const kn_gen_config *c = &g->config;
    int64_t lines = rows ? c->m : c->k;
    for (int64_t r = used; r < lines; r++) {
        for (int64_t i = 0; i < (rows ? c->k : c->m); i++) put_nan(g, 0, rows ? r * c->k + i : i * c->k + r);
        for (int64_t i = 0; i < c->n && !rows; i++) put_nan(g, 1, r * c->n + i);
    }
}

/* Rows of d in no group stay as they are; then they become what kn_gen_check expects. */
static void check_untouched(kn_gen *g, int64_t used, const double *before) {
    const kn_gen_config *c = &g->config;
    for (int64_t e = used * c->n; e < c->m * c->n; e++) {
        double now = kn_gen_get(g, 3, e), then = before[e];
        ck_assert_msg(now == then || (isnan(now) && isnan(then)), "%s: element %lld of d was written", describe(c),
                      (long long)e);
        if (!c->options.common.accumulate) kn_gen_put(g, 3, e, 0);
    }
}

static void check_ragged(bool rows, bool mine) {
    kn_gen_config c = kn_gen_defaults("grouped_gemm");
    int64_t count[7], used = 0, padding = (int64_t)draw(20);
    c.groups = 1 + (int64_t)draw(7);
    for (int64_t i = 0; i < c.groups; i++) used += count[i] = DRAW(group_rows);
    c.m = rows ? used + padding : DRAW(edges) % 257;
    c.k = rows ? DRAW(edges) % 257 : used + padding;
    c.n = DRAW(edges) % 257;
    c.seed = draw(1u << 30);
    c.dtype = DRAW(floats), c.out_dtype = DRAW(floats);
    c.id_dtype = draw(2) ? KN_I64 : KN_I32;
    c.options.common.accumulate = draw(2);
    c.options.grouped.math = (int32_t)draw(3);
    c.options.grouped.ragged = rows ? KILN_RAGGED_M : KILN_RAGGED_K;
    bool on_portable = draw(2);
    if (!mine || (!all && c.m * c.n * c.k > 4000000)) return;
    kn_gen *g;
    must(kn_gen_make(&c, &g), &c);
    for (int64_t i = 0, at = 0; i < c.groups; i++) kn_gen_put(g, 2, i + 1, (double)(at += count[i]));
    poison_padding(g, rows, used);
    must(kn_gen_reference(g), &c);
    int64_t elements = kn_gen_elements(g, 3);
    double *before = calloc((size_t)elements + 1, sizeof *before);
    for (int64_t e = 0; e < elements; e++) before[e] = kn_gen_get(g, 3, e);
    must(kn_gen_run(g, on_portable ? portable : ctx), &c);
    if (rows) check_untouched(g, used, before);
    must(kn_gen_check(g), &c);
    free(before);
    kn_gen_free(g);
}

START_TEST(ragged_groups_with_nan_behind_them) {
    state = 80;
    for (int i = 0; i < (all ? RAGGED : QUICK_RAGGED); i++) check_ragged(i % 2 == 0, is_mine((uint64_t)i));
}
END_TEST

/* ---- precision --------------------------------------------------------------------------------------------------- */

/* Norm of the error over the norm of the result, against fp32 operands in float64. */
static double error_of(int32_t math, int64_t k, kiln_context *on) {
    kn_gen_config c = kn_gen_defaults("gemm");
    c.m = c.n = 32;
    c.k = k;
    c.dtype = c.out_dtype = KN_F32;
    c.options.gemm.math = math;
    kn_gen *g;
    must(kn_gen_make(&c, &g), &c);
    must(kn_gen_reference(g), &c);
    must(kn_gen_run(g, on), &c);
    double error = 0, norm = 0;
    for (int64_t i = 0; i < c.m * c.n; i++) {
        double d = kn_gen_get(g, 2, i) - g->exact[0][i];
        error += d * d;
        norm += g->exact[0][i] * g->exact[0][i];
    }
    kn_gen_free(g);
    return sqrt(error / norm);
}

START_TEST(parts_of_bf16_make_fp32_products_precise) {
    static const int64_t depths[] = {256, 1024, 4096, 14336};
    for (int i = 0; i < (all ? 4 : 3); i++) {
        double balanced = error_of(KILN_MATH_BALANCED, depths[i], ctx);
        double accurate = error_of(KILN_MATH_ACCURATE, depths[i], ctx), fast = error_of(KILN_MATH_FAST, depths[i], ctx);
        printf("k=%lld: relative error fast %.2e, balanced %.2e, accurate %.2e\n", (long long)depths[i], fast, balanced,
               accurate);
        ck_assert_double_le(balanced, 2e-5);
        ck_assert_double_le(accurate, 5e-6);
        ck_assert_double_ge(fast, 1e-4); /* one bf16 product: the measure can tell them apart */
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("ops/gemm_random");
    TCase *t = tcase_create("random");
    tcase_add_checked_fixture(t, begin, end);
    tcase_set_timeout(t, 3600);
    tcase_add_test(t, triples_of_sizes);
    tcase_add_test(t, ragged_groups_with_nan_behind_them);
    tcase_add_test(t, parts_of_bf16_make_fp32_products_precise);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
