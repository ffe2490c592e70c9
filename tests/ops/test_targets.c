/* Plans for every architecture of the target table, not only for the GPU at hand: their kernels fit the device's shared
 * memory before anything is compiled and use no instruction that the architecture lacks, with few multiprocessors and
 * with many. Planning and expanding alone; nothing runs. */
#include "support/problem_gen.h"
#include "support/suite.h"

#include "base/alloc.h"
#include "jit/expand.h"
#include "ops/validate.h"

#include <stdlib.h>
#include <string.h>

enum { PROBLEMS = 40 };

typedef struct described {
    kn_gen *gen;
    const kn_op *op;
    kn_options options;
    kn_call call;
    kn_problem problem;
} described;

/* Sizes of every kind: odd ones, multiples of 8, one or many. */
static int64_t size_of(uint64_t bits, int64_t most) {
    int64_t n = 1 + (int64_t)(bits >> 8) % most;
    return bits % 4 == 0 ? n : (n + 7) / 8 * 8;
}

static void describe(uint64_t seed, described *d) {
    kn_gen random = {.random = seed};
    int n = 0;
    while (kn_op_at(n)) n++;
    d->op = kn_op_at((int)(seed % (uint64_t)n));
    kn_gen_config c = kn_gen_defaults(d->op->name);
    c.seed = seed;
    c.batch = size_of(kn_gen_bits(&random), 4096);
    c.tokens = size_of(kn_gen_bits(&random), 600);
    c.hidden = size_of(kn_gen_bits(&random), 512);
    c.inner = size_of(kn_gen_bits(&random), 256);
    c.m = size_of(kn_gen_bits(&random), 600);
    c.n = size_of(kn_gen_bits(&random), 600);
    if (strstr(d->op->name, "expert_mlp") && c.batch < c.tokens) c.batch = c.tokens;
    c.k = size_of(kn_gen_bits(&random), 600);
    c.experts = c.local_experts = size_of(kn_gen_bits(&random), 20) + 3;
    if (strstr(d->op->name, "router")) c.experts = size_of(kn_gen_bits(&random), 500) + 3;
    c.dtype = (kn_dtype[]){KN_BF16, KN_F16, KN_F32}[kn_gen_bits(&random) % (strstr(d->op->name, "gemm") ? 3 : 1)];
    ck_assert_ok(kn_gen_make(&c, &d->gen));
    const kn_place_rule host = {.device_type = 1};
    ck_assert_ok(kn_validate_options(d->op, d->gen->call.options, &d->options));
    d->call.options = &d->options;
    ck_assert_ok(kn_validate_tensors(d->op, d->gen->args, d->op->n_args, &host, &d->call));
    d->call.options = &d->options;
    ck_assert_ok(kn_validate_problem(&d->call, &d->problem));
    d->problem.generic = seed % 3 == 0;
}

/* One kernel: what it asks for and which instructions it has. */
static void check_kernel(const kn_kernel_spec *spec, const kn_device_facts *facts, const kn_target *target) {
    kn_expansion x;
    ck_assert_ok(kn_expand(spec->template_name, &spec->params, target->name, KN_EXPAND_LINT, &x));
    const kn_kernel_meta *m = &x.meta;
    ck_assert_msg(m->smem_dynamic + m->smem_static <= facts->smem_per_block, "%s on %s: %u bytes of shared memory, %u",
                  m->entry, target->name, m->smem_dynamic + m->smem_static, facts->smem_per_block);
    ck_assert_uint_le(m->threads[0] * m->threads[1] * m->threads[2], 1024);
    ck_assert_uint_le(m->cluster[0] * m->cluster[1] * m->cluster[2], 8);
    ck_assert_str_eq(m->target, target->name);
    static const struct {
        const char *text;
        size_t offset; /* of the target's flag */
    } needs[] = {{"wgmma.", offsetof(kn_target, wgmma)},
                 {"setmaxnreg", offsetof(kn_target, wgmma)},
                 {"cp.async.bulk", offsetof(kn_target, tma)},
                 {"shared::cluster", offsetof(kn_target, cluster)},
                 {"griddepcontrol", offsetof(kn_target, cluster)}};
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++) {
        bool has = *(const bool *)((const char *)target + needs[i].offset);
        ck_assert_msg(has || !strstr(x.ptx, needs[i].text), "%s on %s uses %s", m->entry, target->name, needs[i].text);
    }
    kn_expansion_free(&x);
}

static void check_plan(const described *d, const kn_target *target, uint32_t multiprocessors) {
    const kn_device_facts facts = {.cc_major = target->cc / 10,
                                   .cc_minor = target->cc % 10,
                                   .multiprocessors = multiprocessors,
                                   .smem_per_block = target->smem_per_block,
                                   .smem_per_sm = target->smem_per_sm,
                                   .l2_bytes = 4u << 20};
    kn_program *p;
    ck_assert_ok(KN_NEW(&p, 1, "program"));
    ck_assert_ok(d->op->plan(&d->problem, &facts, target, p));
    ck_assert_uint_gt(p->n_launches, 0);
    for (uint32_t i = 0; i < p->n_launches; i++) ck_assert(target->cluster || !p->launch[i].dependent);
    for (uint32_t k = 0; k < p->n_kernels; k++) check_kernel(&p->kernel[k], &facts, target);
    kn_free(p);
}

START_TEST(every_target_gets_kernels_that_fit) {
    described d;
    memset(&d, 0, sizeof d);
    describe((uint64_t)_i + 1, &d);
    for (int i = 0; i < kn_target_count(); i++) check_plan(&d, kn_target_at(i), _i % 2 ? 7 : 148);
    kn_gen_free(d.gen);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ops/targets");
    TCase *t = tcase_create("targets");
    tcase_add_loop_test(t, every_target_gets_kernels_that_fit, 0, PROBLEMS);
    suite_add_tcase(suite, t);
    return kn_run_suite(suite);
}
