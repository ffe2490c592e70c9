/* sim/mutate.c on the pipelined test kernels: every ordering instruction deleted or weakened in turn must be noticed.
 */
#include "sim/mutate.h"

#include "gemm_run.h"

typedef struct subject {
    gemm g;
    float *expect;
} subject;

static kn_status run_subject(void *user, const kn_sim_module *m, uint64_t seed) {
    subject *s = user;
    s->g.launch.seed = seed;
    memset(s->g.d, 0xff, (size_t)s->g.m * s->g.n * 4);
    kn_status st = kn_sim_run(m, NULL, &s->g.launch, NULL);
    if (st != KN_OK) return st;
    if (memcmp(s->g.d, s->expect, (size_t)s->g.m * s->g.n * 4) == 0) return KN_OK;
    return kn_fail(KN_E_LAUNCH, "the result differs");
}

/* A mutant that no run can tell from the kernel: instruction, change, and why. */
typedef struct harmless {
    const char *text, *change, *reason;
} harmless;

static const harmless announcement = {
    "mbarrier.arrive.expect_tx.shared::cta.b64", "made relaxed",
    "the producer has written nothing that the consumers read; the data come with the copies' own completion"};
/* All mutants but those in `known` must be caught. */
static void mutate_gemm(const char *file, uint32_t m, uint32_t n, uint32_t k, uint32_t ctas,
                        const harmless *const *known) {
    subject s;
    size_t len;
    char *ptx = run_read(file, &len);
    kn_sim_module *module = run_parse(ptx, len);
    kn_mutate_report r;
    gemm_open(&s.g, file, m, n, k, ctas);
    gemm_fill(&s.g, true);
    s.g.launch.budget = 2000000;
    ck_assert_ok(kn_sim_run(module, NULL, &s.g.launch, NULL));
    ck_assert(gemm_error(&s.g) == 0);
    s.expect = kn_malloc((size_t)m * n * 4);
    memcpy(s.expect, s.g.d, (size_t)m * n * 4);
    ck_assert_ok(kn_sim_mutate(ptx, len, 6, run_subject, &s, &r));
    printf("%s: %u sites, %u mutants, %u caught\n", file, r.sites, r.mutants, r.caught);
    uint32_t unexplained = 0;
    for (uint32_t i = 0; i < r.mutants; i++) {
        const kn_mutant *x = &r.mutant[i];
        if (getenv("KN_MUTANTS"))
            printf("  %4u %s, %s: %s\n", x->line, x->text, x->change, x->caught ? x->sentence : "SURVIVES");
        if (x->caught) continue;
        const char *reason = NULL;
        for (const harmless *const *h = known; *h; h++)
            if (strcmp((*h)->text, x->text) == 0 && strcmp((*h)->change, x->change) == 0) reason = (*h)->reason;
        printf("  survivor: line %u, %s, %s: %s\n", x->line, x->text, x->change, reason ? reason : "NOT EXPLAINED");
        unexplained += reason == NULL;
    }
    ck_assert_uint_ge(r.sites, 12);
    ck_assert_uint_eq(r.unreached, 0);
    ck_assert_uint_eq(unexplained, 0);
    ck_assert_uint_ge(r.caught * 100, r.mutants * 95);
    kn_sim_mutate_free(&r);
    kn_free(s.expect);
    gemm_close(&s.g);
    kn_sim_free(module);
    kn_free(ptx);
}

START_TEST(gemm_kk) {
    const harmless *known[] = {&announcement, NULL};
    mutate_gemm("gemm_kk.ptx", 128, 256, 320, 1, known);
}
END_TEST

START_TEST(gemm_mn) {
    const harmless *known[] = {&announcement, NULL};
    mutate_gemm("gemm_mn.ptx", 128, 256, 320, 1, known);
}
END_TEST

START_TEST(gemm_rs) {
    const harmless *known[] = {&announcement, NULL};
    mutate_gemm("gemm_rs.ptx", 128, 256, 320, 1, known);
}
END_TEST

START_TEST(gemm_cluster) {
    const harmless *known[] = {&announcement, NULL};
    mutate_gemm("gemm_cluster.ptx", 256, 256, 320, 2, known);
}
END_TEST

int main(void) {
    Suite *s = suite_create("sim/mutate");
    TCase *t = tcase_create("mutate");
    tcase_add_test(t, gemm_kk);
    tcase_add_test(t, gemm_mn);
    tcase_add_test(t, gemm_rs);
    tcase_add_test(t, gemm_cluster);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
