/* The mutation test on Kiln's own kernels: operations run on the simulator through the public interface; each kernel of
 * the row's template (mutate_rows.def) is mutated, instruction by instruction, on the memory that it was first (or with
 * LAUNCH later) launched with. Survivors must stand in tests/data/sim/harmless_mutants.txt, with the reason. */
#include "jit/backend.h"
#include "jit/expand.h"
#include "mutate_list.h"
#include "ops/api_context.h"
#include "sim/mutate.h"
#include "sim/ptx_module.h"
#include "support/problem_gen.h"
#include "support/problem_run.h"
#include "support/suite.h"

#include "base/alloc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Seeds 0, 5, 10, ..: four of them meet all lengths of a turn and all kinds of completion, twelve all their pairs. */
enum { MODULES = 64, SEEDS = 4, SEEDS_LONG = 12, STRIDE = 5 };
enum { QUICK, LONG };

typedef struct row {
    const char *template_name, *name, *op;
    int tier;
    void (*set)(kn_gen_config *c, kiln_context_options *o);
} row;

#define WITH(name) (c->absent &= ~((uint64_t)1 << kn_gen_arg(c->op, name)))
#define WITHOUT(name) (c->absent |= (uint64_t)1 << kn_gen_arg(c->op, name))
/* A candidate for a product, as a tuning file would choose it: key and name as of `kiln plan --explain`. */
static const char *chosen[2];
#define CHOOSE(product, candidate) (chosen[0] = (product), chosen[1] = (candidate))
/* Tensors whose elements grow a thousandfold along each of the last two axes behind a third and behind five sixths. */
static const char *grown[3];
#define GROW(a, b, c) (grown[0] = (a), grown[1] = (b), grown[2] = (c))
/* Of a kernel that takes several steps: which of its launches, from 0. */
static uint32_t wanted_launch;
#define LAUNCH(n) (wanted_launch = (n))
#define KN_ROW(template, name, tier, op, ...)                                                                          \
    static void set_##template##_##name(kn_gen_config *c, kiln_context_options *o) {                                   \
        (void)o;                                                                                                       \
        (void)(__VA_ARGS__);                                                                                           \
    }
#include "mutate_rows.def"
#undef KN_ROW

static const row rows[] = {
#define KN_ROW(template, name, tier, op, ...) {#template, #name, #op, tier, set_##template##_##name},
#include "mutate_rows.def"
#undef KN_ROW
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static struct {
    const kn_backend_ops *ops; /* of the simulator */
    const row *row;
    struct {
        kn_module *module;
        char *ptx, *map;
        char template_name[64];
        size_t len;
        kn_kernel_meta meta;
        uint32_t launches;
    } loaded[MODULES];
    uint32_t n, kernels, sites, mutants, caught, wrong;
    harmless_list list;
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
    r->launch.seed = seed * STRIDE;
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

/* ---- what became of the mutants -------------------------------------------------------------------------- */

/* Mutant `at` of a report; turn: which of the sites with that label, that line of the template and that text. */
static void judge(const char *name, const char *ptx_map, const kn_mutate_report *m, uint32_t at) {
    const kn_mutant *x = &m->mutant[at];
    mutant_site site, other;
    char text[384];
    uint32_t turn = 1;
    mutate_site(ptx_map, all.row->template_name, x->line, &site);
    for (uint32_t k = 0; k < at; k++) {
        if (strcmp(m->mutant[k].text, x->text) != 0 || m->mutant[k].line == x->line) continue;
        mutate_site(ptx_map, all.row->template_name, m->mutant[k].line, &other);
        turn += strcmp(other.label, site.label) == 0 && strcmp(other.line, site.line) == 0 &&
                (k == 0 || m->mutant[k - 1].line != m->mutant[k].line);
    }
    snprintf(text, sizeof text, "%s #%u of %s", x->text, turn, name);
    harmless *h = mutate_list_find(&all.list, all.row->template_name, all.row->name, &site, text, x->change);
    bool verbose = getenv("KN_MUTANTS") != NULL;
    if (verbose) /* for people and for mutate_score.awk */
        printf("mutant | %s.ptxt:%u | %s | %s #%u | %s | %s | %s\n", all.row->template_name, site.number, site.label,
               x->text, turn, x->change, x->caught ? "caught" : "SURVIVES",
               x->caught ? x->sentence
               : h       ? h->reason
                         : "");
    if (x->caught && h) {
        printf("  listed as harmless (\"%s\"), but caught: %s.ptxt:%u, %s, %s: %s\n", h->reason, all.row->template_name,
               site.number, x->text, x->change, x->sentence);
        all.wrong++;
    } else if (!x->caught && h) {
        printf("  survivor: %s.ptxt:%u, %s, %s: %s\n", all.row->template_name, site.number, x->text, x->change,
               h->reason);
    } else if (!x->caught) {
        printf("  NOT CAUGHT, and no reason listed: %s.ptxt:%u: %s\n    %s | %s | %s | %s | %s | why it is harmless\n",
               all.row->template_name, site.number, site.line, all.row->template_name, all.row->name, site.label, text,
               x->change);
        all.wrong++;
    }
}

static void report(const char *name, const char *map, const kn_mutate_report *r) {
    printf("%s: %u sites, %u of them not reached; %u mutants, %u caught\n", name, r->sites, r->unreached, r->mutants,
           r->caught);
    for (uint32_t k = 0; k < r->mutants; k++) judge(name, map, r, k);
    all.kernels++;
    all.sites += r->sites;
    all.mutants += r->mutants;
    all.caught += r->caught;
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
    all.n++;
    return KN_OK;
}

static uint32_t find(const kn_module *m) {
    uint32_t k = 0;
    while (k < all.n && all.loaded[k].module != m) k++;
    ck_assert_uint_lt(k, all.n);
    return k;
}

static void line_map(kn_backend *b, kn_module *m, const char *map) {
    uint32_t k = find(m);
    all.ops->module_line_map(b, m, map);
    all.loaded[k].map = kn_strdup(map);
    mutate_template_of(map, all.loaded[k].template_name);
}

static kn_status launch(kn_backend *b, const kn_launch_args *a) {
    uint32_t k = find(a->module);
    ck_assert_ptr_nonnull(all.loaded[k].map);
    if (all.loaded[k].launches++ != wanted_launch || strcmp(all.loaded[k].template_name, all.row->template_name) != 0)
        return all.ops->launch(b, a);
    repeat r;
    kn_mutate_report m;
    begin_repeat(&r, a, &all.loaded[k].meta);
    snapshot(&r, false);
    KN_TRY(all.ops->launch(b, a));
    snapshot(&r, true);
    kn_status st = kn_sim_mutate(all.loaded[k].ptx, all.loaded[k].len, all.row->tier == LONG ? SEEDS_LONG : SEEDS,
                                 run_again, &r, &m);
    if (st == KN_OK) {
        report(all.loaded[k].meta.entry, all.loaded[k].map, &m);
        kn_sim_mutate_free(&m);
    } else { /* not every variant of a template need have one */
        ck_assert_msg(strstr(kn_error_message(), "no ordering instruction") != NULL, "%s: %s", all.loaded[k].meta.entry,
                      kn_error_message());
        printf("%s: no ordering instruction\n", all.loaded[k].meta.entry);
        all.kernels++;
    }
    restore(&r, true);
    end_repeat(&r);
    return KN_OK;
}

/* ---- rows ------------------------------------------------------------------------------------------------ */

/* The tuning file for what the row has chosen. */
static void write_choice(const char *path) {
    kiln_context_options o = {.struct_size = sizeof o, .cache_dir = "off"};
    kiln_context *ctx;
    kn_engine *e;
    ck_assert_ok(kiln_context_create("sim", &o, &ctx));
    ck_assert_ok(kn_context_enter(ctx, &e));
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fprintf(f, "kiln-tuning 1\ngpu %s\nproduct %s %s\n", e->backend->facts.name, chosen[0], chosen[1]);
    ck_assert_int_eq(fclose(f), 0);
    kn_context_leave(ctx);
    kiln_context_destroy(ctx);
}

static void grow(kn_gen *g, const char *name) {
    int arg = kn_gen_arg(g->config.op, name);
    const kn_tensor *t = &g->call.tensor[arg];
    int64_t last = t->shape[t->ndim - 1], next = t->shape[t->ndim - 2];
    for (int64_t i = 0; i < kn_gen_elements(g, arg); i++) {
        int64_t x = 6 * (i % last) / last, y = 6 * (i / last % next) / next,
                steps = (x >= 2) + (x >= 5) + (y >= 2) + (y >= 5);
        kn_gen_put(g, arg, i, ldexp(kn_gen_get(g, arg, i), (int)(10 * steps)));
    }
}

static void run_row(const row *r) {
    char tuning[64];
    kiln_context_options o = {.struct_size = sizeof o, .cache_dir = "off", .sm_limit = 1};
    kn_gen_config c = kn_gen_defaults(r->op);
    kiln_context *ctx;
    kn_engine *e = NULL;
    kn_gen *g;
    r->set(&c, &o);
    snprintf(tuning, sizeof tuning, "/tmp/kn_test_mutate_%d", (int)getpid());
    if (chosen[0]) write_choice(tuning);
    if (chosen[0]) o.tuning = tuning;
    ck_assert_ok(kiln_context_create("sim", &o, &ctx));
    if (chosen[0]) unlink(tuning);
    ck_assert_ok(kn_context_enter(ctx, &e));
    kn_backend_ops ops = *e->backend->ops;
    all.ops = e->backend->ops;
    ops.module_load = load;
    ops.module_line_map = line_map;
    ops.launch = launch;
    e->backend->ops = &ops;
    ck_assert_ok(kn_gen_make(&c, &g));
    for (int k = 0; k < 3 && grown[k]; k++) grow(g, grown[k]);
    ck_assert_ok(kn_gen_run(g, ctx));
    e->backend->ops = all.ops;
    kn_context_leave(ctx);
    kn_gen_free(g);
    kiln_context_destroy(ctx);
    for (uint32_t k = 0; k < all.n; k++) {
        kn_free(all.loaded[k].ptx);
        kn_free(all.loaded[k].map);
    }
}

START_TEST(mutants_are_caught) {
    char path[1024];
    const row *r = &rows[_i];
    memset(&all, 0, sizeof all);
    all.row = r;
    snprintf(path, sizeof path, "%s/tests/data/sim/harmless_mutants.txt", getenv("KN_SOURCE_DIR"));
    ck_assert_ok(mutate_list_read(path, &all.list));
    run_row(r);
    for (uint32_t k = 0; k < all.list.n; k++) {
        const harmless *h = &all.list.entry[k];
        if (!mutate_list_of_row(h, r->template_name, r->name) || h->met) continue;
        printf("  listed, but there is no such mutant: %s | %s | %s | %s | %s\n", h->template_name, h->row, h->label,
               h->parts, h->change);
        all.wrong++;
    }
    printf("%s, %s: %u kernels, %u sites, %u of %u mutants caught, %u.%u%%\n", r->template_name, r->name, all.kernels,
           all.sites, all.caught, all.mutants, all.mutants ? all.caught * 100 / all.mutants : 0,
           all.mutants ? all.caught * 1000 / all.mutants % 10 : 0);
    fflush(stdout); /* a failed test leaves its process at once */
    mutate_list_free(&all.list);
    ck_assert_msg(all.kernels > 0, "%s launches no kernel of %s", r->op, r->template_name);
    ck_assert_uint_eq(all.wrong, 0);
}
END_TEST

/* ---- no template is forgotten ---------------------------------------------------------------------------- */

static const char *examined;

static kn_status count_sites(void *user, uint32_t line, const kn_params *params, const char *target) {
    uint32_t *sites = user;
    kn_expansion x;
    kn_sim_module *m = NULL;
    (void)line;
    KN_TRY(kn_expand(examined, params, target, 0, &x));
    kn_status st = kn_sim_parse(x.ptx, x.ptx_len, NULL, NULL, &m);
    for (uint32_t k = 0; m && k < m->entry[0].n_code; k++) *sites += (m->entry[0].code[k].flags & KN_I_ORDER) != 0;
    if (m) kn_sim_free(m);
    kn_expansion_free(&x);
    return st;
}

START_TEST(every_template_has_a_row) {
    uint32_t templates = 0, missing = 0;
    for (const char *const *name = kn_template_names(); *name; name++) {
        size_t length = strlen(*name);
        uint32_t sites = 0, n = 0;
        if (strcmp(*name + length - 5, ".ptxt") != 0) continue;
        examined = *name;
        ck_assert_ok(kn_template_examples(*name, count_sites, &sites));
        for (size_t k = 0; k < ROWS; k++)
            n += strncmp(rows[k].template_name, *name, length - 5) == 0 && strlen(rows[k].template_name) == length - 5;
        templates++;
        if (sites == 0 || n > 0) continue;
        printf("%s has ordering instructions and no row in mutate_rows.def\n", *name);
        missing++;
    }
    fflush(stdout);
    ck_assert_uint_gt(templates, 15);
    ck_assert_uint_eq(missing, 0);
}
END_TEST

/* ARGUMENT: "quick" or "long", the rows of one tier; or the name of a template or of a row. */
int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    Suite *s = suite_create("sim/mutate_kernels");
    TCase *t = tcase_create("mutate_kernels");
    int n = 0;
    if (strcmp(what, "long") != 0) tcase_add_test(t, every_template_has_a_row);
    for (int k = 0; k < ROWS; k++) {
        bool quick = strcmp(what, "quick") == 0, slow = strcmp(what, "long") == 0;
        if (quick || slow ? rows[k].tier == (slow ? LONG : QUICK)
                          : !*what || strcmp(rows[k].template_name, what) == 0 || strcmp(rows[k].name, what) == 0) {
            tcase_add_loop_test(t, mutants_are_caught, k, k + 1);
            n++;
        }
    }
    if (n == 0) {
        fprintf(stderr, "no row and no template is called \"%s\"\n", what);
        return 2;
    }
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
