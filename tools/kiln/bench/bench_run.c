/* One benchmark case, from tensors to its result: see bench.h. */
#include "bench/bench.h"

#include "common/report.h"

#include "kiln/kiln_tools.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_SUBJECTS = 2 + KT_BENCH_MAX_PEERS };

/* Kiln's call of the case; its graph. */
typedef struct call {
    kt_bench *bench;
    const kt_bench_case *c;
    kt_tensors tensors;
    void *options;
    uint32_t transposed;
    kt_gpu_graph *graph;
    kt_bench_verdict verdict;
    bool verified, same_bits;
    json_t *plan;
    kt_bench_subject subject[MAX_SUBJECTS];
    size_t n_subjects;
} call;

static int enqueue_call(void *user, void *stream) {
    call *k = user;
    return kt_call_op(k->bench->lib, k->c->op, k->bench->ctx, k->tensors.on_device, k->options, stream);
}

static int enqueue_graph(void *user, void *stream) {
    call *k = user;
    return kt_gpu_graph_launch(k->bench->gpu, k->graph, stream);
}

static int give_workspace(call *k) {
    kt_bench *b = k->bench;
    uint64_t bytes = 0;
    KT_TRY(kt_status(b->lib, KT_CALL(b->lib, "kiln_workspace_size", KT_PTR(b->ctx), KT_STR(k->c->op->name),
                                     KT_PTR(k->tensors.on_device), KT_I32(k->c->op->n_args), KT_PTR(k->options),
                                     KT_PTR(&bytes))));
    KT_TRY(kt_bench_memory_room(&b->memory, &b->memory.workspace, bytes));
    kiln_common_options *common = k->options; /* every option struct starts with them */
    common->workspace = b->memory.workspace.device;
    common->workspace_bytes = bytes;
    return KT_GOOD;
}

static int prepare(call *k) {
    kt_bench *b = k->bench;
    KT_TRY(kt_bench_case_options(k->c, &k->options));
    KT_TRY(kt_bench_case_tensors(k->c, k->options, &k->tensors, &k->transposed));
    KT_TRY(kt_bench_patterns_make(&b->patterns, &k->tensors));
    KT_TRY(kt_bench_memory_bind(&b->memory, &k->tensors, &b->patterns, k->transposed));
    KT_TRY(give_workspace(k));
    return KT_CALL_JSON(b->lib, &k->plan, "kiln_plan_json", KT_PTR(b->ctx), KT_STR(k->c->op->name),
                        KT_PTR(k->tensors.on_device), KT_I32(k->c->op->n_args), KT_PTR(k->options),
                        KT_U32(KILN_PLAN_BUILD));
}

/* One call into poisoned outputs. */
static int call_once(call *k) {
    kt_bench *b = k->bench;
    KT_TRY(kt_bench_memory_poison(&b->memory, &k->tensors, k->options));
    KT_TRY(enqueue_call(k, b->timer.stream));
    return kt_status(b->lib, KT_CALL(b->lib, "kiln_stream_synchronize", KT_PTR(b->ctx), KT_PTR(b->timer.stream)));
}

/* One call, compared with the reference. */
static int verify(call *k, uint64_t seed) {
    kt_bench *b = k->bench;
    KT_TRY(call_once(k));
    if (!b->computes || b->no_verify) return KT_GOOD;
    k->verified = true;
    return kt_bench_verify(&b->memory, &k->tensors, &b->patterns, k->options, k->transposed, seed, &k->verdict);
}

static int measure(call *k) {
    kt_bench *b = k->bench;
    k->subject[k->n_subjects++] = (kt_bench_subject){.name = "kiln", .enqueue = enqueue_call, .user = k};
    if (b->graph && b->gpu) {
        KT_TRY(kt_gpu_graph_capture(b->gpu, b->timer.stream, enqueue_call, k, &k->graph));
        k->subject[k->n_subjects++] = (kt_bench_subject){.name = "kiln_graph", .enqueue = enqueue_graph, .user = k};
    }
    KT_TRY(kt_bench_peers_add(b->peers, &k->tensors, k->transposed, &b->timer, k->subject, &k->n_subjects));
    KT_TRY(kt_bench_time(&b->timer, k->subject, k->n_subjects));
    /* What is added to grows from call to call. */
    if (k->verified && ((const kiln_common_options *)k->options)->accumulate) KT_TRY(call_once(k));
    return k->verified ? kt_bench_same_bits(&b->memory, &k->tensors, &k->verdict, &k->same_bits) : KT_GOOD;
}

/* ---- the result -------------------------------------------------------------------------------------------------- */

static json_t *stats_json(const kt_bench_stats *s) {
    return json_pack("{s:I, s:f, s:f, s:f, s:f}", "n", (json_int_t)s->n, "median", s->median, "q1", s->q1, "q3", s->q3,
                     "min", s->min);
}

static json_t *times_json(const kt_bench *b, const kt_bench_times *t) {
    const kt_bench_stats *best = kt_bench_best(t);
    if (best->n == 0) return json_null();
    json_t *o = json_pack("{s:f, s:f}", "us", best->median, "iqr_us", best->q3 - best->q1);
    if (b->gpu) json_object_set_new(o, "timer", json_string(t->span.n ? "cupti" : "events"));
    if (t->span.n) {
        json_object_set_new(o, "span", stats_json(&t->span));
        json_object_set_new(o, "kernels", json_real(t->kernels));
    }
    json_object_set_new(o, "events", stats_json(&t->events));
    json_object_set_new(o, "host_us", json_real(t->host.median));
    return o;
}

static json_t *subject_json(const kt_bench *b, const kt_bench_subject *s) {
    return json_pack("{s:o, s:o}", "cold", times_json(b, &s->cold), "hot", times_json(b, &s->hot));
}

/* What each launch of Kiln's own call took, beside the least that its bytes take. */
static json_t *steps_json(const call *k, const kt_bench_times *times) {
    json_t *steps = json_array(), *launch;
    size_t i, n = 0;
    json_array_foreach(json_object_get(k->plan, "launches"), i, launch) {
        const json_t *grid = json_object_get(launch, "grid");
        bool skipped = false;
        for (size_t d = 0; d < 3; d++) skipped |= json_integer_value(json_array_get(grid, d)) == 0;
        if (skipped || n == times->n_steps) continue;
        const json_t *kernels = json_object_get(k->plan, "kernels");
        const json_t *kernel = json_array_get(kernels, (size_t)kt_json_number(launch, "kernel", 0));
        double bytes = kt_json_number(launch, "floor_bytes", 0);
        json_t *step = json_pack("{s:s, s:f}", "kernel", kt_json_text(kernel, "name", "?"), "us", times->step[n++]);
        if (bytes > 0) {
            json_object_set_new(step, "floor_bytes", json_real(bytes));
            json_object_set_new(step, "floor_us", json_real(1e6 * bytes / k->bench->bytes_per_s));
        }
        json_array_append_new(steps, step);
    }
    return steps;
}

static json_t *verdict_json(const call *k) {
    if (!k->verified) return json_null();
    const kt_bench_verdict *v = &k->verdict;
    /* Without a finite ratio the check has failed, and the message says why. */
    double ratio = v->max_ratio <= 1e300 ? v->max_ratio : 1e300;
    double frobenius = v->frobenius <= 1e300 ? v->frobenius : 1e300;
    return json_pack("{s:b, s:I, s:I, s:f, s:f, s:b, s:s}", "pass", v->pass, "compared", (json_int_t)v->compared,
                     "not_finite", (json_int_t)v->not_finite, "max_ratio", ratio, "frobenius", frobenius,
                     "same_bits_after_timing", k->same_bits, "message", v->message);
}

static void add_result(call *k) {
    kt_bench *b = k->bench;
    double bytes = kt_json_number(k->plan, "floor_bytes", 0), flops = kt_json_number(k->plan, "floor_flops", 0);
    double by_bytes = 1e6 * bytes / b->bytes_per_s, by_flops = 1e6 * flops / b->tensor_flops;
    const kt_bench_times *times = k->subject[0].cold.events.n ? &k->subject[0].cold : &k->subject[0].hot;
    double us = kt_bench_best(times)->median, floor_us = by_bytes > by_flops ? by_bytes : by_flops;
    json_t *axes = json_object(), *peers = json_object();
    for (int i = 0; i < 26; i++) {
        char letter[2] = {(char)('A' + i), '\0'};
        if (k->tensors.size[i] >= 0) json_object_set_new(axes, letter, json_integer(k->tensors.size[i]));
    }
    json_t *row =
        json_pack("{s:s, s:s, s:s, s:o}", "group", k->c->group, "op", k->c->op->name, "name", k->c->name, "axes", axes);
    json_object_set_new(row, "verified", verdict_json(k));
    for (size_t i = 0; i < k->n_subjects; i++) {
        json_t *o = subject_json(b, &k->subject[i]);
        if (i == 0)
            json_object_update_new(row, o);
        else if (strcmp(k->subject[i].name, "kiln_graph") == 0)
            json_object_set_new(row, "graph", o);
        else
            json_object_set_new(peers, k->subject[i].name, o);
    }
    json_object_set_new(row, "peers", peers);
    json_t *floor = json_pack("{s:f, s:f, s:f, s:s}", "bytes", bytes, "flops", flops, "us", floor_us, "by",
                              by_bytes > by_flops ? "bytes" : "flops");
    json_object_set_new(row, "floor", floor);
    if (b->gpu && us > 0 && floor_us > 0) { /* the host's time has no floor on the GPU */
        json_object_set_new(row, "times_floor", json_real(us / floor_us));
        json_object_set_new(row, "bytes_per_s", json_real(1e6 * bytes / us));
        json_object_set_new(row, "flops_per_s", json_real(1e6 * flops / us));
    }
    json_object_set_new(row, "launches",
                        json_integer((json_int_t)json_array_size(json_object_get(k->plan, "launches"))));
    if (times->n_steps) json_object_set_new(row, "steps", steps_json(k, times));
    for (size_t i = 1; i < k->n_subjects && times->n_steps; i++) {
        if (strcmp(k->subject[i].name, "cublaslt_products") != 0) continue;
        const kt_bench_times *peer = times == &k->subject[0].cold ? &k->subject[i].cold : &k->subject[i].hot;
        json_object_set_new(row, "parts", kt_bench_parts_json(json_object_get(row, "steps"), b->peers, peer));
    }
    json_object_set_new(row, "workspace_bytes", json_incref(json_object_get(k->plan, "workspace_bytes")));
    json_object_set_new(row, "plan", json_string(kt_json_text(k->plan, "note", "")));
    json_array_append_new(json_object_get(b->report, "cases"), row);
}

int kt_bench_run_case(kt_bench *b, const kt_bench_case *c, uint64_t number) {
    call *k = kt_alloc(1, sizeof *k);
    k->bench = b;
    k->c = c;
    int code = prepare(k);
    if (code == KT_GOOD) code = verify(k, number);
    if (code == KT_GOOD) code = measure(k);
    if (code == KT_GOOD) add_result(k);
    if (code == KT_GOOD && k->verified && !k->verdict.pass) code = kt_fail(KT_CHECK, "%s", k->verdict.message);
    if (code == KT_GOOD && k->verified && !k->same_bits)
        code = kt_fail(KT_CHECK, "the outputs after timing are not those of the first call");
    if (code != KT_GOOD) kt_prefix(code, "%s, %s: ", c->group, c->name);
    kt_gpu_graph_free(b->gpu, k->graph);
    kt_tensors_free(&k->tensors, NULL, NULL);
    json_decref(k->plan);
    free(k->options);
    free(k);
    return code;
}
