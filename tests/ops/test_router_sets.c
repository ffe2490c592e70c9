/* router_backward on a real GPU, against the float64 reference: many sets of features and options, each with many token
 * counts, all of them checked in full; and what was drawn, as a table. Skipped where there is no GPU.
 *
 *     test_ops_router_sets [SETS [COUNTS [SEED [DEVICE [SECONDS [FIRST]]]]]]       default: 304 60 1 cuda:0
 *
 * With SECONDS no set is begun after that many; how many were finished is said, and too few of them fail. FIRST, the
 * first set that was not begun, goes on from there. */
#include "router_draw.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"
#include "kiln/kiln_tools.h"
#include "ops/api_call.h"

#include <stdlib.h>

enum {
    LARGE = 5000000 /* tokens x hidden x experts of a problem, at most */,
    BATCH = 2 /* sets of a worker's turn */
};

static int64_t sets = 304, counts = 60, first_set;
static uint64_t first_seed = 1;
static const char *device = "cuda:0"; /* or "sim" */

/* ---- what was drawn -------------------------------------------------------------------------------------- */

enum { ROWS = 19, COLUMNS = 8 };
static const struct {
    const char *name, *column[COLUMNS];
} table[ROWS] = {
    {"tokens", {"0", "1-64", "65-192", "193-700", "701-2048", "2049+"}},
    {"hidden", {"1-64", "65-256", "257-700", "2048"}},
    {"experts", {"1-64", "65-128", "129-256", "257+"}},
    {"slots", {"1", "2-8", "9-16", "17+"}},
    {"hidden_states", {"bf16", "f16", "f32"}},
    {"side inputs", {"bf16", "f16", "f32"}},
    {"outputs", {"bf16", "f16", "f32"}},
    {"ids", {"int32", "int64"}},
    {"score", {"softmax", "sigmoid", "sqrtsoftplus", "selected"}},
    {"normalise", {"sum", "none", "sum_eps", "sum_clamp"}},
    {"logits_gradient", {"before", "after"}},
    {"round_dlogits", {"input", "f32"}},
    {"accumulate", {"nothing", "something"}},
    {"rows", {"compact", "with gaps"}},
    {"skipped ids", {"none", "30%"}},
    {"inputs", {"weights_sum", "grad_mask", "grad_logits", "aux", "aux_row", "z_loss", "token_mask"}},
    {"outputs wanted", {"hidden", "weight", "bias", "logits"}},
    {"launches", {"0", "1", "2", "3", "4", "5+"}},
    {"launches, fused", {"1-2", "3+"}},
};
static int64_t drawn[ROWS][COLUMNS], problems, wrong;
static double seconds;
static int64_t finished, left; /* left: the first set that was not begun */
static uint64_t begun_ns;
static kn_mutex lock;

static int dtype_column(kn_dtype t) {
    return t == KN_BF16 ? 0 : t == KN_F16 ? 1 : 2;
}

static int class_of(int64_t v, const int64_t *ends, int n) {
    int i = 0;
    while (i < n && v > ends[i]) i++;
    return i;
}

static void count(const kn_gen_config *c, int64_t launches) {
    static const int64_t tokens[] = {0, 64, 192, 700, 2048}, hidden[] = {64, 256, 700}, experts[] = {64, 128, 256},
                         slots[] = {1, 8, 16};
    static const int inputs[] = {WEIGHTS_SUM, GRAD_MASK, GRAD_LOGITS, AUX, AUX_ROW, Z_LOSS, TOKEN_MASK};
    const kiln_router_backward_options *o = &c->options.router;
    int column[] = {class_of(c->tokens, tokens, 5),
                    class_of(c->hidden, hidden, 3),
                    class_of(c->experts, experts, 3),
                    class_of(c->top_k, slots, 3),
                    dtype_column(c->dtype),
                    dtype_column(c->side_dtype),
                    dtype_column(c->out_dtype),
                    c->id_dtype == KN_I64,
                    o->score,
                    o->normalise,
                    o->logits_gradient,
                    o->round_dlogits,
                    o->common.accumulate != 0,
                    c->gap != 0,
                    c->skip_percent != 0};
    for (int i = 0; i < 15; i++) drawn[i][column[i]]++;
    for (int i = 0; i < 7; i++) drawn[15][i] += !(c->absent & bit(inputs[i]));
    for (int i = 0; i < 4; i++) drawn[16][i] += !(c->absent & bit(OUT_HIDDEN + i));
    drawn[17][launches < 5 ? launches : 5]++;
    bool fused = c->dtype != KN_F32 && !o->round_dlogits && c->experts % 8 == 0 && c->experts <= 256 &&
                 c->hidden % 8 == 0 && c->gap % 8 == 0 && c->absent & bit(TOKEN_MASK) && c->tokens > 0 &&
                 (c->absent & (bit(OUT_HIDDEN) | bit(OUT_WEIGHT))) != (bit(OUT_HIDDEN) | bit(OUT_WEIGHT));
    if (fused) drawn[18][launches > 2]++;
    problems++;
}

static void print_table(void) {
    for (int i = 0; i < ROWS; i++) {
        printf("  %-28s", table[i].name);
        for (int j = 0; j < COLUMNS && table[i].column[j]; j++)
            printf("%s %s: %lld", j ? "," : "", table[i].column[j], (long long)drawn[i][j]);
        printf("\n");
    }
}

/* ---- one problem on the device --------------------------------------------------------------------------- */

typedef struct worker {
    kiln_context *ctx;
    void *stream, *device;
    char *host;
    uint64_t bytes;
    int32_t type, id;
} worker;

/* All tensors travel in one copy each way. */
static kn_status run(worker *w, kn_gen *g) {
    const kn_op *op = kn_op_find("router_backward");
    DLTensor there[N_ARGS];
    const DLTensor *args[N_ARGS] = {0};
    uint64_t at = 0, place[N_ARGS] = {0};
    for (int i = 0; i < N_ARGS; i++) {
        place[i] = at;
        if (g->args[i]) at += (g->memory_bytes[i] + 255) / 256 * 256;
    }
    if (at > w->bytes) {
        kn_free(w->host);
        if (w->device) KN_TRY(kiln_device_free(w->ctx, w->device));
        w->device = NULL;
        w->bytes = at + at / 2;
        w->host = kn_malloc(w->bytes);
        KN_TRY(kiln_device_alloc(w->ctx, w->bytes, &w->device));
    }
    for (int i = 0; i < N_ARGS; i++) {
        if (!g->args[i]) continue;
        memcpy(w->host + place[i], g->memory[i], g->memory_bytes[i]);
        there[i] = *g->args[i];
        there[i].data = (char *)w->device + place[i] + ((char *)g->args[i]->data - (char *)g->memory[i]);
        memcpy(&there[i].device.device_type, &w->type, sizeof w->type);
        there[i].device.device_id = w->id;
        args[i] = &there[i];
    }
    if (at) KN_TRY(kiln_device_copy_in(w->ctx, w->device, w->host, at));
    KN_TRY(kn_api_run(w->ctx, op->index, args, N_ARGS, g->call.options, w->stream));
    KN_TRY(kiln_stream_synchronize(w->ctx, w->stream));
    if (at) KN_TRY(kiln_device_copy_out(w->ctx, w->host, w->device, at));
    for (int i = 0; i < N_ARGS; i++) {
        if (g->args[i]) memcpy(g->memory[i], w->host + place[i], g->memory_bytes[i]);
    }
    return KN_OK;
}

static kn_status try_one(worker *w, const kn_gen_config *c) {
    kn_gen *g;
    kiln_counters before = {.struct_size = sizeof before}, after = before;
    KN_TRY(kn_gen_make(c, &g));
    kn_status st = kn_gen_reference(g);
    if (st == KN_OK) st = kiln_context_counters(w->ctx, &before);
    if (st == KN_OK) st = run(w, g);
    if (st == KN_OK) st = kiln_context_counters(w->ctx, &after);
    if (st == KN_OK) st = kn_gen_check(g);
    char text[4096];
    kn_lock(&lock);
    count(c, (int64_t)(after.launches - before.launches));
    if (st != KN_OK && wrong++ < 20) {
        printf("WRONG: %s: %s\n", kn_error_message(), kn_case_text(g, text, sizeof text));
    }
    kn_unlock(&lock);
    kn_gen_free(g);
    return KN_OK;
}

/* ---- sets ------------------------------------------------------------------------------------------------ */

/* Most are small; each eighth has a model's number of columns. Half have what the fused kernel takes. */
static kn_gen_config draw_set(uint64_t *state, int64_t i) {
    int64_t hidden, experts;
    do {
        hidden = i % 8 == 0 ? 2048 : draw_edge(state, 700);
        experts = draw_edge(state, 512);
        if (i % 2 == 0) hidden = (hidden + 7) / 8 * 8;
        if (i % 2 == 0) experts = (experts < 249 ? experts + 7 : 256) / 8 * 8;
    } while (hidden * experts > 100000 && i % 8 != 0);
    if (i % 8 == 0) experts = experts < 128 ? experts : 128;
    kn_gen_config c = draw_features(state, hidden, experts);
    if (i % 2 != 0) return c;
    c.dtype = draw_below(state, 2) ? KN_BF16 : KN_F16;
    c.options.router.round_dlogits = KILN_ROUND_DLOGITS_INPUT;
    c.gap = c.gap / 8 * 8;
    c.absent |= bit(TOKEN_MASK);
    if (i % 4 == 0 && c.top_k > 8) c.top_k = 8;
    return c;
}

/* A third of the sets have few tokens, a third fewer than fill all stages. */
static int64_t draw_tokens(uint64_t *state, const kn_gen_config *c, int64_t i) {
    int64_t most = LARGE / (c->hidden * c->experts), top = i % 3 == 0 ? 192 : i % 3 == 1 ? 2048 : 6050, t;
    do {
        int64_t kind = draw_below(state, 16);
        t = kind == 0   ? draw_below(state, 2)
            : kind == 1 ? 2047 + draw_below(state, 3)
            : kind == 2 ? 2050 + draw_below(state, 4000)
            : kind == 3 ? 700 + draw_below(state, 1348)
            : kind < 8  ? draw_edge(state, 700)
                        : 1 + draw_below(state, 300);
    } while (t > top || (t > most && t > 40));
    return t;
}

static kn_status sets_of_worker(void *user, int64_t turn) {
    (void)user;
    worker w = {0};
    kiln_context_options o = {.struct_size = sizeof o, .cache_dir = "off", .shapes = KILN_SHAPES_GENERIC};
    KN_TRY(kiln_context_create(device, &o, &w.ctx));
    kn_status st = kiln_context_device(w.ctx, &w.type, &w.id);
    if (st == KN_OK && strcmp(device, "sim") != 0) st = kiln_stream_create(w.ctx, &w.stream);
    int64_t begin = first_set + turn * BATCH;
    for (int64_t i = begin; st == KN_OK && i < begin + BATCH && i < sets; i++) {
        if (seconds > 0 && (double)(kn_clock_ns() - begun_ns) > seconds * 1e9) {
            kn_lock(&lock);
            if (i < left) left = i;
            kn_unlock(&lock);
            break;
        }
        uint64_t state = first_seed * 1000003 + (uint64_t)i * 7919 + 1;
        for (int k = 0; k < 4; k++) draw_below(&state, 2);
        kn_gen_config c = draw_set(&state, i);
        for (int64_t n = 0; st == KN_OK && n < counts; n++) {
            c.tokens = draw_tokens(&state, &c, i);
            c.seed++;
            st = try_one(&w, &c);
        }
        kn_lock(&lock);
        finished++;
        kn_unlock(&lock);
    }
    kn_free(w.host);
    if (w.device) kiln_device_free(w.ctx, w.device);
    if (w.stream) kiln_stream_destroy(w.ctx, w.stream);
    kiln_context_destroy(w.ctx);
    return st;
}

int main(int argc, char **argv) {
    int32_t devices = 0;
    if (argc > 1) sets = atoll(argv[1]);
    if (argc > 2) counts = atoll(argv[2]);
    if (argc > 3) first_seed = (uint64_t)atoll(argv[3]);
    if (argc > 4) device = argv[4];
    if (argc > 5) seconds = atof(argv[5]);
    if (argc > 6) first_set = atoll(argv[6]);
    left = sets;
    if (strcmp(device, "sim") != 0 && (kiln_device_count(&devices) != KN_OK || devices == 0)) {
        printf("skipped: no GPU (%s)\n", kiln_error_message());
        return 0;
    }
    kn_mutex_init(&lock);
    begun_ns = kn_clock_ns();
    int64_t turns = (sets - first_set + BATCH - 1) / BATCH;
    kn_status st = kn_parallel_for(kn_cpu_count(), turns, sets_of_worker, NULL);
    if (st != KN_OK) printf("failed: %s\n", kn_error_message());
    printf("%lld of %lld sets x %lld token counts, seed %llu, in %.0f s: %lld problems, %lld wrong\n",
           (long long)finished, (long long)(sets - first_set), (long long)counts, (unsigned long long)first_seed,
           (double)(kn_clock_ns() - begun_ns) / 1e9, (long long)problems, (long long)wrong);
    if (left < sets) printf("the next set is %lld\n", (long long)left);
    print_table();
    return st != KN_OK || wrong || problems != (sets - first_set) * counts;
}
