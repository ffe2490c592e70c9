/* The mutation test on Kiln's own kernels: operations run on the simulator through the public interface; each kernel
 * that they launch for the first time is then mutated, instruction by instruction, on the memory that it was launched
 * with. */
#include "jit/backend.h"
#include "ops/api_context.h"
#include "sim/mutate.h"
#include "support/problem_gen.h"
#include "support/problem_run.h"
#include "support/suite.h"

#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MODULES = 64, SEEDS = 2 };

static struct {
    const kn_backend_ops *ops; /* of the simulator */
    struct {
        kn_module *module;
        char *ptx, *name;
        size_t len;
        kn_kernel_meta meta;
        bool done;
    } loaded[MODULES];
    uint32_t n, kernels, sites, mutants, caught, unexplained;
    const char *with, *without; /* parts of the names of kernels to mutate, and of those to leave alone; may be NULL */
} all;

/* ---- one launch, repeated -------------------------------------------------------------------------------- */

typedef struct repeat {
    kn_sim_launch launch;
    kn_sim_extent *extents;
    struct {
        uint8_t *at, *before, *after;
        size_t bytes;
    } part[64]; /* of each writable extent */
    uint32_t n;
} repeat;

static void span_of(const kn_sim_extent *x, uint8_t **at, size_t *bytes) {
    int64_t lo = 0, hi = x->item;
    for (uint32_t d = 0; d < x->ndim; d++) {
        int64_t reach = (x->shape[d] - 1) * x->stride[d] * x->item;
        if (x->shape[d] <= 0) hi = lo = 0;
        if (x->shape[d] <= 0) break;
        if (reach < 0)
            lo += reach;
        else
            hi += reach;
    }
    *at = (uint8_t *)x->data + lo;
    *bytes = (size_t)(hi - lo);
}

static void snapshot(repeat *r, bool after) {
    for (uint32_t k = 0; k < r->n; k++)
        memcpy(after ? r->part[k].after : r->part[k].before, r->part[k].at, r->part[k].bytes);
}

static void restore(repeat *r, bool after) {
    for (uint32_t k = 0; k < r->n; k++)
        memcpy(r->part[k].at, after ? r->part[k].after : r->part[k].before, r->part[k].bytes);
}

static kn_status run_again(void *user, const kn_sim_module *m, uint64_t seed) {
    repeat *r = user;
    restore(r, false);
    r->launch.seed = seed;
    kn_status st = kn_sim_run(m, NULL, &r->launch, NULL);
    if (st != KN_OK) return st;
    for (uint32_t k = 0; k < r->n; k++)
        if (memcmp(r->part[k].at, r->part[k].after, r->part[k].bytes) != 0)
            return kn_fail(KN_E_LAUNCH, "the result differs");
    return KN_OK;
}

static void begin_repeat(repeat *r, const kn_launch_args *a, const kn_kernel_meta *meta) {
    memset(r, 0, sizeof *r);
    r->extents = kn_calloc(a->n_extents + 1, sizeof *r->extents);
    for (uint32_t k = 0; k < a->n_extents; k++) {
        const kn_extent *x = &a->extents[k];
        r->extents[k] = (kn_sim_extent){
            .name = x->name, .data = x->data, .item = x->item, .ndim = x->ndim, .writable = x->writable};
        memcpy(r->extents[k].shape, x->shape, sizeof x->shape);
        memcpy(r->extents[k].stride, x->stride, sizeof x->stride);
        if (!x->writable) continue;
        ck_assert_uint_lt(r->n, 64);
        span_of(&r->extents[k], &r->part[r->n].at, &r->part[r->n].bytes);
        r->part[r->n].before = kn_malloc(r->part[r->n].bytes + 1);
        r->part[r->n].after = kn_malloc(r->part[r->n].bytes + 1);
        r->n++;
    }
    r->launch = (kn_sim_launch){.smem_dynamic = meta->smem_dynamic,
                                .params = a->params,
                                .params_len = a->params_len,
                                .extents = r->extents,
                                .n_extents = a->n_extents,
                                .budget = 3000000,
                                .threads = 1,
                                .multiprocessors = 132,
                                .smem_per_block = 232448};
    memcpy(r->launch.grid, a->grid, sizeof r->launch.grid);
    memcpy(r->launch.block, meta->threads, sizeof r->launch.block);
    memcpy(r->launch.cluster, meta->cluster, sizeof r->launch.cluster);
}

static void end_repeat(repeat *r) {
    for (uint32_t k = 0; k < r->n; k++) {
        kn_free(r->part[k].before);
        kn_free(r->part[k].after);
    }
    kn_free(r->extents);
}

/* ---- survivors that are harmless ------------------------------------------------------------------------- */

static const struct {
    const char *kernel, *from, *to, *text, *change, *reason; /* parts of names of kernel, labels, instruction */
} harmless[] = {
    {"", NULL, NULL, "mbarrier.arrive.expect_tx", "made relaxed",
     "the producer writes nothing that consumers read; the copies complete by themselves"},
    {"_t", "produced", "consumer", "mbarrier.try_wait", "",
     "the producer's last waits keep it until all stages are read; without a cluster its CTA lives on through its "
     "consumers"},
    {"_rs", "block", "multiplied", "fence.proxy.async", "",
     "a stage is released one block after its weights were read: the fence of the release in between comes behind the "
     "reads"},
    {"_rs", "block", "multiplied", "bar.warp.sync", "", "as the fence beside it"},
    {"_rs", "multiplied", "chunk", "fence.proxy.async", "", "the same, for the last block of a tile"},
    {"_rs", "multiplied", "chunk", "bar.warp.sync", "", "as the fence beside it"},
    {"_t", "chunk", "next", "bar.warp.sync", "",
     "keeps the second chunk off the first one's patch; these tiles have one chunk"},
    {"_mma_", "", "", "bar.sync", "",
     "keeps the next tile's copies off the last k block's reads; each CTA has one tile here"},
    {"_gather", NULL, NULL, "bar.red", "", "a vote on token ids that are out of range; there are none here"},
    {"_router_", NULL, NULL, "bar.warp.sync", "",
     "keeps the next row of tokens off the patch; each warp has one row here"},
    {"_place", NULL, NULL, "bar.warp.sync", "",
     "the last of eight: keeps a next round off the counters; there is none here"},
    {"_combine", NULL, NULL, "bar.warp.sync", "",
     "keeps the next row off the list of pairs; each warp has one row here"},
};

/* Does `line` stand behind a label with `from` in its name, and none with `to` in between? */
static bool in_region(const char *ptx, uint32_t line, const char *from, const char *to) {
    bool inside = !from;
    for (uint32_t n = 1; from && n < line && *ptx; n++) {
        char label[128];
        size_t len = strcspn(ptx, "\n");
        snprintf(label, sizeof label, "%.*s", (int)len, ptx);
        if (len > 1 && ptx[len - 1] == ':' && strstr(label, from))
            inside = true;
        else if (len > 1 && ptx[len - 1] == ':' && strstr(label, to))
            inside = false;
        ptx += len + (ptx[len] == '\n');
    }
    return inside;
}

static const char *reason_of(const char *kernel, const char *ptx, const kn_mutant *x) {
    for (size_t k = 0; k < sizeof harmless / sizeof harmless[0]; k++)
        if (strstr(kernel, harmless[k].kernel) && in_region(ptx, x->line, harmless[k].from, harmless[k].to) &&
            strstr(x->text, harmless[k].text) && strstr(x->change, harmless[k].change))
            return harmless[k].reason;
    return NULL;
}

static void print_around(const char *ptx, uint32_t line) {
    for (uint32_t n = 1; n < line + 6 && *ptx; n++) {
        size_t len = strcspn(ptx, "\n");
        if (n + 12 > line) printf("      %u: %.*s\n", n, (int)len, ptx);
        ptx += len + (ptx[len] == '\n');
    }
}

static void print_report(const char *name, const char *ptx, const kn_mutate_report *r) {
    printf("%s: %u sites, %u of them not reached; %u mutants, %u caught\n", name, r->sites, r->unreached, r->mutants,
           r->caught);
    for (uint32_t k = 0; k < r->mutants; k++) {
        const kn_mutant *x = &r->mutant[k];
        if (getenv("KN_MUTANTS"))
            printf("  %4u %s, %s: %s\n", x->line, x->text, x->change, x->caught ? x->sentence : "SURVIVES");
        if (x->caught) continue;
        const char *reason = reason_of(name, ptx, x);
        printf("  survivor: line %u, %s, %s: %s\n", x->line, x->text, x->change, reason ? reason : "NOT EXPLAINED");
        all.unexplained += reason == NULL;
        if (!reason && getenv("KN_MUTANTS")) print_around(ptx, x->line);
    }
}

/* ---- the backend in between ------------------------------------------------------------------------------ */

static kn_status load(kn_backend *b, const void *image, size_t len, const kn_kernel_meta *meta, kn_module **out) {
    KN_TRY(all.ops->module_load(b, image, len, meta, out));
    ck_assert_uint_lt(all.n, MODULES);
    all.loaded[all.n].module = *out;
    all.loaded[all.n].ptx = kn_malloc(len + 1);
    memcpy(all.loaded[all.n].ptx, image, len);
    all.loaded[all.n].ptx[len] = 0;
    all.loaded[all.n].len = len;
    all.loaded[all.n].meta = *meta;
    all.loaded[all.n].name = kn_strdup(meta->entry);
    all.n++;
    return KN_OK;
}

static kn_status launch(kn_backend *b, const kn_launch_args *a) {
    uint32_t k = 0;
    while (k < all.n && all.loaded[k].module != a->module) k++;
    ck_assert_uint_lt(k, all.n);
    const char *name = all.loaded[k].name;
    if (all.loaded[k].done || (all.with && !strstr(name, all.with)) || (all.without && strstr(name, all.without)))
        return all.ops->launch(b, a);
    all.loaded[k].done = true;
    repeat r;
    kn_mutate_report report;
    begin_repeat(&r, a, &all.loaded[k].meta);
    snapshot(&r, false);
    KN_TRY(all.ops->launch(b, a));
    snapshot(&r, true);
    kn_status st = kn_sim_mutate(all.loaded[k].ptx, all.loaded[k].len, SEEDS, run_again, &r, &report);
    if (st == KN_OK) {
        print_report(all.loaded[k].name, all.loaded[k].ptx, &report);
        all.kernels++;
        all.sites += report.sites;
        all.mutants += report.mutants;
        all.caught += report.caught;
        kn_sim_mutate_free(&report);
    } else {
        ck_assert_msg(strstr(kn_error_message(), "no ordering instruction") != NULL, "%s: %s", all.loaded[k].name,
                      kn_error_message());
        printf("%s: no ordering instruction\n", all.loaded[k].name);
    }
    restore(&r, true);
    end_repeat(&r);
    return KN_OK;
}

static void mutate_op(const kn_gen_config *c, const char *with, const char *without) {
    kiln_context_options o = {.struct_size = sizeof o, .cache_dir = "off", .sm_limit = 1};
    kiln_context *ctx;
    kn_engine *e = NULL;
    kn_gen *g;
    memset(&all, 0, sizeof all);
    all.with = with;
    all.without = without;
    ck_assert_ok(kiln_context_create("sim", &o, &ctx));
    ck_assert_ok(kn_context_enter(ctx, &e));
    kn_backend_ops ops = *e->backend->ops;
    all.ops = e->backend->ops;
    ops.module_load = load;
    ops.launch = launch;
    e->backend->ops = &ops;
    ck_assert_ok(kn_gen_make(c, &g));
    ck_assert_ok(kn_gen_run(g, ctx));
    e->backend->ops = all.ops;
    kn_context_leave(ctx);
    kn_gen_free(g);
    kiln_context_destroy(ctx);
    for (uint32_t k = 0; k < all.n; k++) {
        kn_free(all.loaded[k].ptx);
        kn_free(all.loaded[k].name);
    }
    printf("%s: %u kernels, %u sites, %u of %u mutants caught\n", c->op, all.kernels, all.sites, all.caught,
           all.mutants);
    fflush(stdout); /* a failed test leaves its process at once */
    ck_assert_uint_eq(all.unexplained, 0);
}

/* The TMA + wgmma kernel, whichever operand is K-major, with and without swapped roles: many k blocks, several tiles.
 */
START_TEST(pipelined_product) {
    kn_gen_config c = kn_gen_defaults("gemm");
    c.m = 40, c.n = 136, c.k = 848;
    c.dtype = KN_BF16;
    c.out_dtype = _i ? KN_F32 : KN_BF16;
    c.swapped = _i ? 3 : 0;
    mutate_op(&c, "_wgmma_", NULL);
}
END_TEST

/* The portable kernels: cp.async and mma.sync, and plain fp32. */
START_TEST(portable_product) {
    kn_gen_config c = kn_gen_defaults("gemm");
    c.m = 70, c.n = 131, c.k = 171;
    c.dtype = _i ? KN_F32 : KN_BF16;
    mutate_op(&c, NULL, "_wgmma_");
}
END_TEST

/* fp32 weights through registers. */
START_TEST(weights_product) {
    kn_gen_config c = kn_gen_defaults("routed_experts_backward");
    c.tokens = 12, c.experts = c.local_experts = 2, c.top_k = 2;
    c.hidden = 200, c.inner = 136;
    mutate_op(&c, "_rs", NULL);
}
END_TEST

/* Everything else that the operations launch. */
START_TEST(other_kernels) {
    static const char *const names[] = {"grouped_gemm", "router_backward", "load_balance_backward",
                                        "expert_mlp_backward", "moe_layer_backward"};
    kn_gen_config c = kn_gen_defaults(names[_i]);
    mutate_op(&c, NULL, "_wgmma_");
}
END_TEST

START_TEST(routed_kernels) {
    kn_gen_config c = kn_gen_defaults("routed_experts_backward");
    mutate_op(&c, NULL, "_t128x");
}
END_TEST

int main(void) {
    Suite *s = suite_create("sim/mutate_kernels");
    TCase *t = tcase_create("mutate_kernels");
    tcase_add_loop_test(t, pipelined_product, 0, 2);
    tcase_add_loop_test(t, portable_product, 0, 2);
    tcase_add_test(t, weights_product);
    tcase_add_loop_test(t, other_kernels, 0, 5);
    tcase_add_test(t, routed_kernels);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
