/* Running fuzz cases: see fuzz_run.h. */
#include "fuzz/fuzz_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const kt_fuzz_kind_names[KT_FUZZ_N_KINDS] = {"passed",  "refused", "fault",      "wrong",
                                                         "outside", "input",   "unrepeated", "counter"};

/* ---- the machine ------------------------------------------------------------------------------------------------- */

static int open_context(kt_fuzz_machine *f, kt_fuzz_path path, int again) {
    if (f->ctx[path][again]) return KT_GOOD;
    kiln_context_options options = {.struct_size = sizeof options, .cache_dir = "off"};
    options.path = path == KT_FUZZ_PATH_PORTABLE ? KILN_PATH_PORTABLE : KILN_PATH_AUTO;
    options.shapes = again ? KILN_SHAPES_GENERIC : KILN_SHAPES_EXACT;
    options.sm_limit = again ? 7 : 0;
    return kt_status(f->lib, KT_CALL(f->lib, "kiln_context_create", KT_STR(f->device), KT_PTR(&options),
                                     KT_PTR(&f->ctx[path][again])));
}

int kt_fuzz_machine_open(kt_library *lib, const char *device, kt_fuzz_machine *f) {
    *f = (kt_fuzz_machine){.lib = lib, .device = device};
    KT_TRY(open_context(f, KT_FUZZ_PATH_AUTO, 0));
    int32_t type = 0, id = 0;
    void *ctx = f->ctx[KT_FUZZ_PATH_AUTO][0];
    KT_TRY(kt_status(lib, KT_CALL(lib, "kiln_context_device", KT_PTR(ctx), KT_PTR(&type), KT_PTR(&id))));
    f->simulated = type == 1;
    if (f->simulated) return KT_GOOD;
    f->stream_ctx = ctx;
    KT_TRY(kt_status(lib, KT_CALL(lib, "kiln_stream_create", KT_PTR(ctx), KT_PTR(&f->stream))));
    int code = kt_fuzz_gpu_open(lib, ctx, id, &f->gpu);
    if (code == KT_ENVIRONMENT) f->why_host = kt_copy(kt_message());
    return code == KT_ENVIRONMENT ? KT_GOOD : code;
}

void kt_fuzz_machine_close(kt_fuzz_machine *f) {
    kt_fuzz_gpu_close(f->gpu);
    free(f->why_host);
    if (f->stream) (void)KT_CALL(f->lib, "kiln_stream_destroy", KT_PTR(f->stream_ctx), KT_PTR(f->stream));
    for (int i = 0; i < KT_FUZZ_N_PATHS * 2; i++) {
        void *ctx = f->ctx[i / 2][i % 2];
        if (ctx) (void)KT_CALL(f->lib, "kiln_context_destroy", KT_PTR(ctx));
    }
    *f = (kt_fuzz_machine){0};
}

/* ---- one call ---------------------------------------------------------------------------------------------------- */

static void found(kt_fuzz_finding *finding, kt_fuzz_kind kind, int arg) {
    finding->kind = kind;
    finding->arg = arg;
    snprintf(finding->message, sizeof finding->message, "%s", kt_message());
}

/* As much workspace as the library asks for. */
static int give_workspace(kt_fuzz_memory *m, kt_fuzz_finding *finding) {
    int code = kt_fuzz_memory_workspace(m);
    if (code != KT_USAGE && code != KT_CHECK) return code;
    found(finding, KT_FUZZ_REFUSED, -1);
    return KT_GOOD;
}

/* Call, finished, results on the host. */
static int call(kt_fuzz_machine *f, kt_fuzz_memory *m, unsigned char poison, kt_fuzz_finding *finding) {
    KT_TRY(kt_fuzz_memory_reset(m, poison));
    KT_TRY(kt_status(f->lib, KT_CALL(f->lib, "kiln_context_device_faults_reset", KT_PTR(m->ctx))));
    int code = kt_call_op(f->lib, m->c->op, m->ctx, m->device_args, m->options, f->stream);
    if (code == KT_GOOD && f->stream)
        code = kt_status(f->lib, KT_CALL(f->lib, "kiln_stream_synchronize", KT_PTR(m->ctx), KT_PTR(f->stream)));
    if (code != KT_GOOD) {
        found(finding, code == KT_USAGE ? KT_FUZZ_REFUSED : KT_FUZZ_FAULT, -1);
        return KT_GOOD;
    }
    return kt_fuzz_memory_fetch(m);
}

/* ---- counted ids ------------------------------------------------------------------------------------------------- */

/* Ids other than -1 that name nothing: how many there are, and how many of tokens that take part. */
typedef struct wild {
    int arg; /* that holds them; -1 if there is none */
    uint64_t all, of_tokens;
} wild;

static wild wild_ids(const kt_fuzz_memory *m) {
    static const char *const names[] = {"selected_experts", "topk_indices", "token_indices"};
    int mask = kt_fuzz_case_arg(m->c, "token_mask");
    wild w = {.arg = -1};
    for (int i = 0; i < 3 && w.arg < 0; i++) {
        w.arg = kt_fuzz_case_arg(m->c, names[i]);
        if (w.arg < 0) continue;
        const kt_tensor *t = &m->shapes.tensor[w.arg];
        int64_t n = m->c->size[(i == 2 ? 'B' : 'E') - 'A'], k = t->rank > 1 ? t->shape[1] : 1;
        for (int64_t e = 0; e < (int64_t)t->elements; e++) {
            double id = kt_problem_get(&m->on_host[w.arg], e);
            bool is_wild = (id < 0 && id != -1) || id >= (double)n;
            w.all += is_wild;
            w.of_tokens += is_wild && (mask < 0 || kt_problem_get(&m->on_host[mask], e / k) != 0);
        }
    }
    return w;
}

static int check_counter(kt_fuzz_machine *f, const kt_fuzz_memory *m, kt_fuzz_finding *finding) {
    uint64_t counted = 0;
    KT_TRY(kt_status(f->lib, KT_CALL(f->lib, "kiln_context_device_faults", KT_PTR(m->ctx), KT_PTR(&counted))));
    wild w = wild_ids(m);
    bool all_outputs = true; /* else what was asked for may need no ids */
    for (int i = 0; i < m->c->op->n_args; i++)
        all_outputs = all_outputs && (m->host_args[i] || !kt_fuzz_is_output(m, i));
    bool lost = counted == 0 && w.of_tokens > 0 && all_outputs, invented = counted > 0 && w.all == 0;
    if (!lost && !invented) return KT_GOOD;
    (void)kt_fail(KT_CHECK, "%" PRIu64 " ids are out of range, and the device counted %" PRIu64, w.all, counted);
    found(finding, KT_FUZZ_COUNTER, w.arg);
    return KT_GOOD;
}

/* ---- the same call again ----------------------------------------------------------------------------------------- */

static void keep(const kt_fuzz_memory *m, void **first) {
    for (int i = 0; i < m->c->op->n_args; i++)
        first[i] = m->host_args[i] && kt_fuzz_is_output(m, i) ? kt_fuzz_memory_compact(m, i) : NULL;
}

static void compare_bits(const kt_fuzz_memory *m, void *const *first, kt_fuzz_finding *finding) {
    for (int i = 0; i < m->c->op->n_args && finding->kind == KT_FUZZ_PASSED; i++) {
        if (!first[i]) continue;
        const kt_tensor *t = &m->shapes.tensor[i];
        void *now = kt_fuzz_memory_compact(m, i);
        uint64_t width = t->dtype->bits / 8u, e = 0;
        if (memcmp(first[i], now, t->bytes) != 0) {
            while (memcmp((char *)first[i] + e * width, (char *)now + e * width, width) == 0) e++;
            char place[128];
            (void)kt_fail(KT_CHECK, "%s%s was %.9g and is %.9g when the same call runs again", m->c->op->args[i].name,
                          kt_tensors_place(t, e, place, sizeof place), kt_element(t->dtype, first[i], e),
                          kt_element(t->dtype, now, e));
            found(finding, KT_FUZZ_UNREPEATED, i);
        }
        free(now);
    }
}

/* In the context that m->ctx is now. */
static int repeat(kt_fuzz_machine *f, kt_fuzz_memory *m, void *const *first, kt_fuzz_finding *finding) {
    if (f->simulated)
        KT_TRY(kt_status(f->lib, KT_CALL(f->lib, "kiln_context_sim_seed", KT_PTR(m->ctx), KT_U64(m->c->seed))));
    KT_TRY(give_workspace(m, finding));
    if (finding->kind != KT_FUZZ_PASSED) return KT_GOOD;
    KT_TRY(call(f, m, 0x4B, finding)); /* large numbers where the first run had NaN */
    if (finding->kind == KT_FUZZ_PASSED) compare_bits(m, first, finding);
    return KT_GOOD;
}

static int run_again(kt_fuzz_machine *f, kt_fuzz_memory *m, kt_fuzz_finding *finding) {
    /* Other kernels take long to assemble: on a GPU one case in four gets them, the others run again as they are. */
    int again = f->simulated || m->c->seed % 4 == 0;
    KT_TRY(open_context(f, m->c->path, again));
    void *first[KT_MAX_ARGS] = {NULL}, *ctx = m->ctx;
    keep(m, first);
    m->ctx = f->ctx[m->c->path][again];
    int code = repeat(f, m, first, finding);
    m->ctx = ctx;
    for (int i = 0; i < KT_MAX_ARGS; i++) free(first[i]);
    return code;
}

/* ---- one case ---------------------------------------------------------------------------------------------------- */

static int run_checks(kt_fuzz_machine *f, kt_fuzz_memory *m, const kt_fuzz_oracle *oracle, kt_fuzz_finding *finding) {
    KT_TRY(call(f, m, 0xFF, finding));
    if (finding->kind != KT_FUZZ_PASSED) return KT_GOOD;
    bool input;
    int arg = -1;
    if (kt_fuzz_memory_check(m, &input) != KT_GOOD)
        found(finding, input ? KT_FUZZ_INPUT : KT_FUZZ_OUTSIDE, -1);
    else if (kt_fuzz_oracle_judge(oracle, m, &arg, &finding->worst) != KT_GOOD)
        found(finding, KT_FUZZ_WRONG, arg);
    else
        KT_TRY(check_counter(f, m, finding));
    if (finding->kind != KT_FUZZ_PASSED) return KT_GOOD;
    return run_again(f, m, finding);
}

int kt_fuzz_run(kt_fuzz_machine *f, const kt_fuzz_case *c, kt_fuzz_finding *finding) {
    *finding = (kt_fuzz_finding){.kind = KT_FUZZ_PASSED, .arg = -1};
    KT_TRY(open_context(f, c->path, 0));
    kt_fuzz_memory *m = kt_alloc(1, sizeof *m);
    kt_fuzz_oracle oracle = {0};
    int code = kt_fuzz_memory_make(c, f->lib, f->ctx[c->path][0], m);
    if (code == KT_GOOD) code = kt_fuzz_oracle_make(m, &oracle);
    if (code == KT_GOOD) code = give_workspace(m, finding);
    if (code == KT_GOOD && finding->kind == KT_FUZZ_PASSED) code = run_checks(f, m, &oracle, finding);
    kt_fuzz_oracle_free(&oracle);
    kt_fuzz_memory_free(m);
    free(m);
    return code;
}
