/* Sets of problems on a device, against the reference: see problem_sets.h. */
#include "support/problem_sets.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"
#include "jit/plan.h"
#include "kiln/kiln_tools.h"
#include "ops/api_call.h"
#include "ops/api_context.h"
#include "support/problem_case.h"

#include <limits.h>
#include <malloc.h>
#include <stdlib.h>

static const kn_sets *what;
static const kn_op *op;
static int64_t sets = 304, counts = 60, first_set;
static uint64_t first_seed = 1;
static const char *device = "cuda:0"; /* or "sim" */

static int64_t drawn[KN_SETS_ROWS][KN_SETS_COLUMNS], problems, wrong, own_workspace;
static double seconds;
static int64_t finished, left; /* left: the first set that was not begun */
static uint64_t begun_ns;
static kn_mutex lock;

/* ---- drawing and counting -------------------------------------------------------------------------------- */

int64_t kn_draw_below(uint64_t *state, int64_t n) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((*state >> 33) % (uint64_t)n);
}

int64_t kn_draw_edge(uint64_t *state, int64_t most) {
    static const int64_t edges[] = {1,  2,  3,   7,   8,   9,   15,  16,  17,  31,  33,  60,  63,  64, 65,
                                    72, 96, 127, 128, 129, 136, 160, 192, 200, 256, 257, 384, 512, 700};
    int64_t v;
    do v = edges[kn_draw_below(state, sizeof edges / sizeof *edges)];
    while (v > most);
    return v;
}

static const kn_dtype types[] = {KN_BF16, KN_F16, KN_F32};

kn_dtype kn_draw_dtype(uint64_t *state) {
    return types[kn_draw_below(state, 3)];
}

int kn_sets_dtype_column(kn_dtype t) {
    int i = 0;
    while (i < 2 && types[i] != t) i++;
    return i;
}

int kn_sets_class(int64_t v, const int64_t *ends, int n) {
    int i = 0;
    while (i < n && v > ends[i]) i++;
    return i;
}

static bool has_value(const kn_param *p, const char *value) {
    char number[32];
    if (!p || !value) return p != NULL;
    if (p->is_name) return strcmp(p->text, value) == 0;
    snprintf(number, sizeof number, "%lld", (long long)p->value);
    return strcmp(number, value) == 0;
}

int kn_sets_kernels(const kn_program *p, const char *name, const char *param, const char *value) {
    int n = 0;
    for (uint32_t i = 0; i < p->n_launches; i++) {
        const kn_kernel_spec *k = &p->kernel[p->launch[i].kernel];
        n += strcmp(k->template_name, name) == 0 && (!param || has_value(kn_params_find(&k->params, param), value));
    }
    return n;
}

void kn_sets_count_products(const kn_program *p, int64_t *row) {
    static const struct {
        const char *name, *param, *value;
    } columns[] = {{"gemm_sm80.ptxt", NULL, NULL},     {"gemm_sm90.ptxt", "MODE", "pingpong"},
                   {"gemm_sm90.ptxt", "MODE", "coop"}, {"gemm_sm90.ptxt", "FRAME", "lean"},
                   {"gemm_sm90.ptxt", "SWAP", "1"},    {"gemm_sm90.ptxt", "SPLIT", "2"},
                   {"gemm_sm90.ptxt", "PAIRED", "1"},  {"gemm_sm90.ptxt", "SPLIT", "4"},
                   {"gemm_sm90.ptxt", "BOXES", "1"},   {"gemm_sm90.ptxt", "WALK", NULL},
                   {"gemm_dw_sm90.ptxt", NULL, NULL},  {"gemm_parts_sm90.ptxt", NULL, NULL}};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        row[i] += kn_sets_kernels(p, columns[i].name, columns[i].param, columns[i].value);
}

static void print_table(void) {
    printf("  %-28s the context's: %lld, the caller's: %lld\n", "workspace", (long long)(problems - own_workspace),
           (long long)own_workspace);
    for (int i = 0; i < what->n_rows; i++) {
        printf("  %-28s", what->rows[i].name);
        for (int j = 0; j < KN_SETS_COLUMNS && what->rows[i].column[j]; j++)
            printf("%s %s: %lld", j ? "," : "", what->rows[i].column[j], (long long)drawn[i][j]);
        printf("\n");
    }
}

/* ---- one problem on the device --------------------------------------------------------------------------- */

typedef struct worker {
    kiln_context *ctx, *generic, *exact; /* ctx: one of the two */
    kn_program *program;
    void *stream, *device;
    char *host;
    uint64_t bytes;
    int32_t type, id;
} worker;

static kn_status grow(worker *w, uint64_t bytes) {
    if (bytes <= w->bytes) return KN_OK;
    kn_free(w->host);
    if (w->device) KN_TRY(kiln_device_free(w->generic, w->device));
    w->device = NULL;
    w->bytes = bytes + bytes / 2;
    KN_REQUIRE(w->host = kn_malloc(w->bytes), KN_E_NOMEM, "out of memory for a test's tensors");
    return kiln_device_alloc(w->generic, w->bytes, &w->device);
}

/* What a call of these arguments launches. */
static kn_status plan(kn_engine *e, worker *w, const DLTensor *const *args, const kn_gen *g) {
    kn_api_call c;
    KN_TRY(kn_api_describe(e, op, args, op->n_args, g->call.options, false, &c));
    kn_problem p = c.problem;
    p.generic = w->ctx == w->generic;
    return kn_plan_program(e, op, &p, w->program);
}

enum { GUARD = 256 /* bytes behind the workspace that nobody may write to */ };

/* Every other problem brings its workspace; of undefined contents, as callers' are. */
static kn_status give_workspace(worker *w, kn_gen *g, const DLTensor *const *args, uint64_t at) {
    kiln_common_options *o = &g->config.options.common;
    o->workspace = NULL;
    o->workspace_bytes = 0;
    if (g->config.seed % 2 == 0) return KN_OK;
    uint64_t bytes = 0;
    KN_TRY(kiln_workspace_size(w->ctx, op->name, args, op->n_args, g->call.options, &bytes));
    KN_TRY(grow(w, at + bytes + GUARD));
    o->workspace_bytes = bytes;
    return KN_OK;
}

static kn_status check_guard(const worker *w, uint64_t end) {
    for (uint64_t i = 0; i < GUARD; i++)
        KN_REQUIRE((unsigned char)w->host[end + i] == 0xFF, KN_E_SIM, "byte %d behind the workspace was written to",
                   (int)i);
    return KN_OK;
}

static void bind(const worker *w, kn_gen *g, const uint64_t *place, DLTensor *there) {
    for (int i = 0; i < op->n_args; i++) {
        if (!g->args[i]) continue;
        there[i] = *g->args[i];
        there[i].data = (char *)w->device + place[i] + ((char *)g->args[i]->data - (char *)g->memory[i]);
        memcpy(&there[i].device.device_type, &w->type, sizeof w->type);
        there[i].device.device_id = w->id;
    }
}

/* All tensors, and the workspace behind them, travel in one copy each way. */
static kn_status run(worker *w, kn_gen *g) {
    DLTensor there[KN_MAX_TENSORS];
    const DLTensor *args[KN_MAX_TENSORS] = {0};
    kiln_common_options *o = &g->config.options.common;
    uint64_t at = 0, place[KN_MAX_TENSORS] = {0};
    for (int i = 0; i < op->n_args; i++) {
        place[i] = at;
        if (g->args[i]) at += (g->memory_bytes[i] + 255) / 256 * 256;
        if (g->args[i]) args[i] = &there[i];
    }
    KN_TRY(grow(w, at + GUARD));
    bind(w, g, place, there);
    KN_TRY(give_workspace(w, g, args, at));
    bind(w, g, place, there); /* the memory may be another one now */
    for (int i = 0; i < op->n_args; i++)
        if (g->args[i]) memcpy(w->host + place[i], g->memory[i], g->memory_bytes[i]);
    memset(w->host + at, 0xFF, o->workspace_bytes + GUARD);
    if (o->workspace_bytes) o->workspace = (char *)w->device + at;
    kn_status st;
    KN_WITH_ENGINE(w->ctx, e, st, plan(e, w, args, g));
    KN_TRY(st);
    uint64_t end = at + o->workspace_bytes;
    KN_TRY(kiln_device_copy_in(w->ctx, w->device, w->host, end + GUARD));
    KN_TRY(kn_api_run(w->ctx, op->index, args, op->n_args, g->call.options, w->stream));
    KN_TRY(kiln_stream_synchronize(w->ctx, w->stream));
    KN_TRY(kiln_device_copy_out(w->ctx, w->host, w->device, end + GUARD));
    for (int i = 0; i < op->n_args; i++)
        if (g->args[i]) memcpy(g->memory[i], w->host + place[i], g->memory_bytes[i]);
    return check_guard(w, end);
}

static kn_status try_one(worker *w, const kn_gen_config *c) {
    kn_gen *g;
    kiln_counters before = {.struct_size = sizeof before}, after = before;
    KN_TRY(kn_gen_make(c, &g));
    if (what->adjust) what->adjust(g);
    kn_status st = kn_gen_reference(g);
    if (st == KN_OK) st = kiln_context_counters(w->ctx, &before);
    if (st == KN_OK) st = run(w, g);
    if (st == KN_OK) st = kiln_context_counters(w->ctx, &after);
    if (st == KN_OK) st = kn_gen_check(g);
    kn_sets_problem p = {g, (int64_t)(after.launches - before.launches), w->ctx == w->exact, w->program};
    char text[4096];
    kn_lock(&lock);
    what->count(&p, drawn);
    problems++;
    own_workspace += g->config.options.common.workspace_bytes > 0;
    if (st != KN_OK && wrong++ < 20) {
        printf("WRONG: %s: %s\n", kn_error_message(), kn_case_text(g, text, sizeof text));
    }
    kn_unlock(&lock);
    kn_gen_free(g);
    return KN_OK;
}

/* ---- sets ------------------------------------------------------------------------------------------------ */

static kn_status run_set(worker *w, int64_t i) {
    uint64_t state = first_seed * 1000003 + (uint64_t)i * 7919 + 1;
    for (int k = 0; k < 4; k++) kn_draw_below(&state, 2);
    kn_gen_config c = what->draw(&state, i);
    for (int64_t n = 0; n < counts; n++) {
        what->draw_tokens(&state, i, n, &c);
        c.seed++;
        w->ctx = what->exact && what->exact(i, n) ? w->exact : w->generic;
        KN_TRY(try_one(w, &c));
    }
    kn_lock(&lock);
    if (++finished % 16 == 0)
        fprintf(stderr, "%lld sets after %.0f s\n", (long long)finished, (double)(kn_clock_ns() - begun_ns) / 1e9);
    kn_unlock(&lock);
    return KN_OK;
}

static kn_status open_worker(worker *w) {
    kiln_context_options o = {.struct_size = sizeof o, .cache_dir = "off", .shapes = KILN_SHAPES_GENERIC};
    KN_TRY(kiln_context_create(device, &o, &w->generic));
    o.shapes = KILN_SHAPES_EXACT;
    KN_TRY(kiln_context_create(device, &o, &w->exact));
    KN_TRY(kiln_context_device(w->generic, &w->type, &w->id));
    if (strcmp(device, "sim") != 0) KN_TRY(kiln_stream_create(w->generic, &w->stream));
    return KN_NEW(&w->program, 1, "a test's program");
}

static void close_worker(worker *w) {
    kn_free(w->program);
    kn_free(w->host);
    if (w->device) kiln_device_free(w->generic, w->device);
    if (w->stream) kiln_stream_destroy(w->generic, w->stream);
    if (w->exact) kiln_context_destroy(w->exact);
    if (w->generic) kiln_context_destroy(w->generic);
}

static kn_status work(void *user, int64_t turn) {
    (void)user;
    int64_t i = first_set + turn;
    worker w = {0};
    if (seconds > 0 && (double)(kn_clock_ns() - begun_ns) > seconds * 1e9) {
        kn_lock(&lock);
        if (i < left) left = i;
        kn_unlock(&lock);
        return KN_OK;
    }
    kn_status st = open_worker(&w);
    if (st == KN_OK) st = run_set(&w, i);
    close_worker(&w);
    return st;
}

int kn_sets_main(const kn_sets *of, int argc, char **argv) {
    int32_t devices = 0;
    what = of;
    op = kn_op_find(of->op);
    if (argc > 1) sets = atoll(argv[1]);
    if (argc > 2) counts = atoll(argv[2]);
    if (argc > 3) first_seed = (uint64_t)atoll(argv[3]);
    if (argc > 4) device = argv[4];
    if (argc > 5) seconds = atof(argv[5]);
    if (argc > 6) first_set = atoll(argv[6]);
    left = sets;
    /* Memory stays with the process: what every problem would give back and fault in again, all threads wait for. */
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 30);
    (void)mallopt(M_TRIM_THRESHOLD, INT_MAX);
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* a crash must not take the findings before it along */
    if (strncmp(device, "cuda", 4) == 0 && (kiln_device_count(&devices) != KN_OK || devices == 0)) {
        printf("skipped: no GPU (%s)\n", kiln_error_message());
        return 0;
    }
    kn_mutex_init(&lock);
    begun_ns = kn_clock_ns();
    kn_status st = kn_parallel_for(kn_cpu_count(), sets - first_set, work, NULL);
    if (st != KN_OK) printf("failed: %s\n", kn_error_message());
    printf("%s: %lld of %lld sets x %lld token counts, seed %llu, in %.0f s: %lld problems, %lld wrong\n", op->name,
           (long long)finished, (long long)(sets - first_set), (long long)counts, (unsigned long long)first_seed,
           (double)(kn_clock_ns() - begun_ns) / 1e9, (long long)problems, (long long)wrong);
    if (left < sets) printf("the next set is %lld\n", (long long)left);
    print_table();
    return st != KN_OK || wrong || problems != (sets - first_set) * counts;
}
