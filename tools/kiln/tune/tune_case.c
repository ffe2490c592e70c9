/* One call's products, measured: see tune.h. */
#include "tune/tune.h"

#include "common/report.h"

#include "kiln/kiln_tools.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A call, and one context a candidate. */
typedef struct trial {
    kt_tune *tune;
    const kt_bench_case *c;
    kt_tensors tensors;
    void *options;
    uint32_t transposed;
    struct way {
        struct trial *trial;
        void *ctx;
    } way[KT_TUNE_MAX];
    size_t n;
} trial;

static int enqueue_way(void *user, void *stream) {
    const struct way *w = user;
    trial *k = w->trial;
    return kt_call_op(k->tune->bench.lib, k->c->op, w->ctx, k->tensors.on_device, k->options, stream);
}

static int plan_of(trial *k, void *ctx, uint32_t flags, json_t **plan) {
    return KT_CALL_JSON(k->tune->bench.lib, plan, "kiln_plan_json", KT_PTR(ctx), KT_STR(k->c->op->name),
                        KT_PTR(k->tensors.on_device), KT_I32(k->c->op->n_args), KT_PTR(k->options), KT_U32(flags));
}

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

/* A file that makes a context choose `name` for the product, and what is known to be best for those before it. */
static int write_scratch(kt_tune *t, const char *key, const char *name) {
    if (!t->scratch[0]) {
        snprintf(t->scratch, sizeof t->scratch, "/tmp/kiln-tune-XXXXXX");
        int fd = mkstemp(t->scratch);
        if (fd < 0) {
            t->scratch[0] = '\0';
            return kt_fail(KT_ENVIRONMENT, "no file in /tmp: %s", strerror(errno));
        }
        close(fd);
    }
    FILE *f = fopen(t->scratch, "w");
    if (!f) return kt_fail(KT_ENVIRONMENT, "%s: %s", t->scratch, strerror(errno));
    fprintf(f, "kiln-tuning 1\ngpu %s\n", kt_json_text(t->bench.device_json, "name", ""));
    for (size_t i = 0; i < t->n; i++)
        fprintf(f, "product %s %s\n", t->product[i].key, t->product[i].candidate[t->product[i].best].name);
    fprintf(f, "product %s %s\n", key, name);
    if (fclose(f) != 0) return kt_fail(KT_ENVIRONMENT, "%s cannot be written", t->scratch);
    return KT_GOOD;
}

static int open_way(trial *k, const char *key, const char *name) {
    kt_tune *t = k->tune;
    kt_library *lib = t->bench.lib;
    struct way *w = &k->way[k->n];
    json_t *plan = NULL;
    w->trial = k;
    KT_TRY(write_scratch(t, key, name));
    kiln_context_options o = {.struct_size = sizeof o, .tuning = t->scratch};
    KT_TRY(kt_status(lib,
                     KT_CALL(lib, "kiln_context_create", KT_STR(t->device), KT_PTR(&o), KT_PTR(&k->way[k->n++].ctx))));
    int code = plan_of(k, w->ctx, KILN_PLAN_BUILD, &plan);
    json_decref(plan);
    return code;
}

static void close_ways(trial *k) {
    for (size_t i = 0; i < k->n; i++)
        if (k->way[i].ctx) (void)KT_CALL(k->tune->bench.lib, "kiln_context_destroy", KT_PTR(k->way[i].ctx));
    memset(k->way, 0, sizeof k->way);
    k->n = 0;
}

/* Room for the workspace of any of them. */
static int give_workspace(trial *k) {
    kt_bench *b = &k->tune->bench;
    uint64_t most = 0;
    for (size_t i = 0; i < k->n; i++) {
        uint64_t bytes = 0;
        KT_TRY(kt_status(b->lib, KT_CALL(b->lib, "kiln_workspace_size", KT_PTR(k->way[i].ctx), KT_STR(k->c->op->name),
                                         KT_PTR(k->tensors.on_device), KT_I32(k->c->op->n_args), KT_PTR(k->options),
                                         KT_PTR(&bytes))));
        if (bytes > most) most = bytes;
    }
    KT_TRY(kt_bench_memory_room(&b->memory, &b->memory.workspace, most));
    kiln_common_options *common = k->options; /* every option struct starts with them */
    common->workspace = b->memory.workspace.device;
    common->workspace_bytes = most;
    return KT_GOOD;
}

/* ---- one product ------------------------------------------------------------------------------------------------- */

static void free_product(kt_tune_product *p) {
    char *const texts[] = {p->key, p->product, p->sizes, p->call};
    for (size_t i = 0; i < 4; i++) free(texts[i]);
    for (size_t i = 0; i < p->n; i++) free(p->candidate[i].name);
    *p = (kt_tune_product){0};
}

/* The cheapest `top` that are possible; the analytic choice is the first of them. */
static void take_candidates(const kt_tune *t, const json_t *product, kt_tune_product *p) {
    const json_t *list = json_object_get(product, "candidates");
    const char *chosen = kt_json_text(product, "chosen", "");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *c = json_array_get(list, i);
        const char *name = kt_json_text(c, "name", "");
        bool is_chosen = strcmp(name, chosen) == 0;
        if (*kt_json_text(c, "refused", "") || p->n == KT_TUNE_MAX) continue;
        if ((int64_t)p->n >= t->top && !is_chosen) continue;
        if (is_chosen) p->planned = p->n;
        p->candidate[p->n++] = (kt_tune_candidate){.name = kt_copy(name), .planned_us = kt_json_number(c, "us", 0)};
    }
}

static int measure(trial *k, kt_tune_product *p) {
    kt_bench_subject subject[KT_TUNE_MAX];
    for (size_t i = 0; i < p->n; i++) KT_TRY(open_way(k, p->key, p->candidate[i].name));
    KT_TRY(give_workspace(k));
    for (size_t i = 0; i < p->n; i++)
        subject[i] = (kt_bench_subject){.name = p->candidate[i].name, .enqueue = enqueue_way, .user = &k->way[i]};
    KT_TRY(k->tune->measure(k->tune->measure_user, subject, p->n));
    for (size_t i = 0; i < p->n; i++) p->candidate[i].us = kt_bench_best(&subject[i].cold)->median;
    p->best = kt_tune_best(p);
    return KT_GOOD;
}

static bool is_known(const kt_tune *t, const char *key) {
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->product[i].key, key) == 0) return true;
    return false;
}

static int tune_product(trial *k, const json_t *product) {
    kt_tune *t = k->tune;
    const char *key = kt_json_text(product, "key", "");
    if (!*key || is_known(t, key)) return KT_GOOD;
    kt_tune_product p = {.key = kt_copy(key),
                         .product = kt_copy(kt_json_text(product, "product", "")),
                         .sizes = kt_copy(kt_json_text(product, "sizes", "")),
                         .call = kt_format("%s %s", k->c->op->name, k->c->name)};
    take_candidates(t, product, &p);
    int code = p.n > 1 ? measure(k, &p) : KT_GOOD;
    close_ways(k);
    if (code == KT_GOOD && p.n > 1) {
        t->product = kt_grow(t->product, t->n + 1, sizeof *t->product);
        t->product[t->n++] = p;
    } else {
        free_product(&p);
    }
    return code;
}

/* ---- one call ---------------------------------------------------------------------------------------------------- */

static int prepare(trial *k) {
    kt_bench *b = &k->tune->bench;
    KT_TRY(kt_bench_case_options(k->c, &k->options));
    KT_TRY(kt_bench_case_tensors(k->c, k->options, &k->tensors, &k->transposed));
    KT_TRY(kt_bench_patterns_make(&b->patterns, &k->tensors));
    KT_TRY(kt_bench_memory_bind(&b->memory, &k->tensors, &b->patterns, k->transposed));
    return kt_bench_memory_poison(&b->memory, &k->tensors, k->options);
}

int kt_tune_case(kt_tune *t, const kt_bench_case *c) {
    trial *k = kt_alloc(1, sizeof *k);
    json_t *plan = NULL, *product;
    size_t i;
    *k = (trial){.tune = t, .c = c};
    int code = prepare(k);
    if (code == KT_GOOD) code = plan_of(k, t->bench.ctx, KILN_PLAN_LIST | KILN_PLAN_EXPLAIN, &plan);
    json_array_foreach(json_object_get(plan, "products"), i, product) {
        if (code == KT_GOOD) code = tune_product(k, product);
    }
    if (code != KT_GOOD) kt_prefix(code, "%s, %s: ", c->group, c->name);
    kt_tensors_free(&k->tensors, NULL, NULL);
    json_decref(plan);
    free(k->options);
    free(k);
    return code;
}

/* ---- the machine ------------------------------------------------------------------------------------------------- */

static int measure_on_device(void *user, kt_bench_subject *subjects, size_t n) {
    kt_tune *t = user;
    return kt_bench_time(&t->bench.timer, subjects, n);
}

int kt_tune_open(kt_tune *t) {
    kt_bench *b = &t->bench;
    const kiln_context_options none = {.struct_size = sizeof none, .tuning = ""};
    KT_TRY(kt_bench_open_context(b, t->device, &none));
    if (!b->cuda && !t->measure)
        return kt_fail(KT_USAGE, "kiln tune measures on a GPU; the device is %s",
                       kt_json_text(b->device_json, "kind", "?"));
    b->cold = true;
    KT_TRY(kt_bench_open_timer(b, 3));
    if (!t->measure) {
        t->measure = measure_on_device;
        t->measure_user = t;
    }
    return KT_GOOD;
}

void kt_tune_close(kt_tune *t) {
    for (size_t i = 0; i < t->n; i++) free_product(&t->product[i]);
    free(t->product);
    if (t->scratch[0]) unlink(t->scratch);
    kt_bench_close(&t->bench);
    *t = (kt_tune){0};
}
