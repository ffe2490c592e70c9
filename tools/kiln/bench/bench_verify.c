/* Verification of a benchmark case: see bench_verify.h. */
#include "bench/bench_verify.h"

#include "kiln/kiln_tools.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One slice as a problem of its own, on the host. */
typedef struct part {
    kt_bench_memory *memory;
    const kt_tensors *whole;
    const kt_bench_patterns *patterns;
    const kt_bench_slice *slice;
    uint32_t transposed;
    void *options;
    kt_tensors tensors;
} part;

/* ---- gathering --------------------------------------------------------------------------------------------------- */

/* Walk over the slice's elements of argument i in row-major order, in pieces that lie side by side in the whole tensor.
 */
typedef struct walk {
    int rank;
    int64_t size[KT_MAX_RANK];         /* of the slice */
    int64_t stride[KT_MAX_RANK];       /* of the whole tensor, in elements */
    const int64_t *index[KT_MAX_RANK]; /* NULL: all */
} walk;

static walk walk_of(const part *p, int i) {
    const kt_tensor *whole = &p->whole->tensor[i];
    walk w = {.rank = whole->rank};
    const char *axes = p->whole->op->args[i].shape;
    int64_t stride = 1;
    for (int d = whole->rank - 1; d >= 0; d--) {
        w.stride[d] = stride;
        stride *= whole->shape[d];
    }
    if (p->transposed >> i & 1) {
        w.stride[0] = 1;
        w.stride[1] = whole->shape[0];
    }
    for (int d = 0; d < whole->rank; d++, axes = strchr(axes, ',') ? strchr(axes, ',') + 1 : "") {
        if (*axes >= 'A' && *axes <= 'Z') w.index[d] = p->slice->index[*axes - 'A'];
        w.size[d] = p->tensors.tensor[i].shape[d];
    }
    return w;
}

static int64_t place(const walk *w, int d, int64_t i) {
    return (w->index[d] ? w->index[d][i] : i) * w->stride[d];
}

typedef int piece_fn(const part *p, int arg, uint64_t at, uint64_t from, uint64_t n);

/* Along the last axis: as many elements as lie side by side. */
static int walk_row(const part *p, int arg, const walk *w, uint64_t at, int64_t base, piece_fn *piece) {
    int d = w->rank - 1;
    for (int64_t i = 0, n; i < w->size[d]; i += n) {
        for (n = 1; i + n < w->size[d] && place(w, d, i + n) == place(w, d, i) + n; n++) continue;
        KT_TRY(piece(p, arg, at + (uint64_t)i, (uint64_t)(base + place(w, d, i)), (uint64_t)n));
    }
    return KT_GOOD;
}

static int walk_all(const part *p, int arg, piece_fn *piece) {
    walk w = walk_of(p, arg);
    uint64_t n = p->tensors.tensor[arg].elements, last = w.rank ? (uint64_t)w.size[w.rank - 1] : 1;
    for (uint64_t at = 0; at < n; at += last) {
        int64_t base = 0;
        uint64_t rest = last ? at / last : 0;
        for (int d = w.rank - 2; d >= 0; d--) {
            base += place(&w, d, (int64_t)(rest % (uint64_t)w.size[d]));
            rest /= (uint64_t)w.size[d];
        }
        KT_TRY(walk_row(p, arg, &w, at, base, piece));
    }
    return KT_GOOD;
}

/* Elements of an input, from its pattern. */
static int input_piece(const part *p, int arg, uint64_t at, uint64_t from, uint64_t n) {
    const kt_bench_pattern *pattern = &p->patterns->arg[arg];
    uint64_t width = pattern->dtype->bits / 8u;
    for (uint64_t i = 0, some; i < n; i += some) {
        uint64_t start = (from + i) % pattern->period;
        some = pattern->period - start < n - i ? pattern->period - start : n - i;
        memcpy((char *)p->tensors.tensor[arg].host + (at + i) * width, (const char *)pattern->block + start * width,
               some * width);
    }
    return KT_GOOD;
}

/* Elements of an output, from the device. */
static int output_piece(const part *p, int arg, uint64_t at, uint64_t from, uint64_t n) {
    const kt_tensor *t = &p->tensors.tensor[arg];
    uint64_t width = t->dtype->bits / 8u;
    char *to = (char *)t->host + at * width;
    const char *source = (const char *)p->whole->tensor[arg].on_device.data + from * width;
    if (!p->memory->gpu) {
        memcpy(to, source, n * width);
        return KT_GOOD;
    }
    kt_library *lib = p->memory->lib;
    return kt_status(lib, KT_CALL(lib, "kiln_device_copy_out", KT_PTR(p->memory->ctx), KT_PTR(to), KT_PTR(source),
                                  KT_U64(n * width)));
}

/* An output that is not sliced is one piece. */
static int read_outputs(const part *p) {
    for (int i = 0; i < p->whole->op->n_args; i++) {
        const kt_tensor *t = &p->tensors.tensor[i];
        if (p->whole->op->args[i].role != KT_OUT || !t->present) continue;
        bool whole = t->elements == p->whole->tensor[i].elements;
        KT_TRY(whole ? output_piece(p, i, 0, 0, t->elements) : walk_all(p, i, output_piece));
    }
    return KT_GOOD;
}

/* The axis that an argument's values are indices of; 0 for others. */
static char axis_of_values(const kt_op *op, const char *name) {
    if (strcmp(name, "token_indices") == 0) return 'B';
    if (strcmp(op->name, "routed_experts_backward") == 0 && strcmp(name, "topk_indices") == 0) return 'L';
    return 0;
}

/* Indices into a sliced axis become places in the slice, -1 where it leaves them out. */
static void renumber(const part *p, int i) {
    kt_tensor *t = (kt_tensor *)(uintptr_t)&p->tensors.tensor[i];
    char axis = axis_of_values(p->whole->op, p->whole->op->args[i].name);
    const int64_t *index = axis ? p->slice->index[axis - 'A'] : NULL;
    if (!index) return;
    for (uint64_t e = 0; e < t->elements; e++) {
        int64_t id = (int64_t)kt_element(t->dtype, t->host, e), lo = 0, hi = p->slice->n[axis - 'A'];
        while (lo < hi) {
            int64_t middle = lo + (hi - lo) / 2;
            if (index[middle] < id)
                lo = middle + 1;
            else
                hi = middle;
        }
        bool found = lo < p->slice->n[axis - 'A'] && index[lo] == id;
        kt_bench_store(t->dtype, t->host, e, found ? (double)lo : -1);
    }
}

/* The slice as it was before the call. */
static int gather(part *p) {
    const kt_op *op = p->whole->op;
    kt_tensors_begin(&p->tensors, op, p->options);
    for (int a = 0; a < 26; a++) p->tensors.size[a] = p->slice->index[a] ? p->slice->n[a] : p->whole->size[a];
    for (int i = 0; i < op->n_args; i++) {
        bool output = op->args[i].role == KT_OUT;
        if (!p->whole->tensor[i].present || (output && !(p->slice->outputs >> i & 1))) continue;
        if (p->slice->top_k && strcmp(op->args[i].name, "topk_idx") == 0) continue; /* its K would not be top_k */
        KT_TRY(kt_tensors_derive(&p->tensors, i, p->whole->tensor[i].dtype));
        kt_tensors_host(&p->tensors, i, NULL);
        if (output) {
            memset(p->tensors.tensor[i].host, KT_BENCH_ADDEND, p->tensors.tensor[i].bytes);
        } else {
            KT_TRY(walk_all(p, i, input_piece));
            renumber(p, i);
        }
    }
    return KT_GOOD;
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

typedef struct expected {
    double *exact[KT_MAX_ARGS], *magnitude[KT_MAX_ARGS];
    kiln_check_result result[KT_MAX_ARGS];
} expected;

/* The relative Frobenius error of the slice's output k. The library's own rule of it waits for 64 tokens, and slices
 * have fewer; so it is applied here with the limit of a row. Slots of grad_topk_weights are dot products that may
 * cancel: the library judges them by their factors. */
static bool frobenius_holds(const kt_tensor *t, const char *name, const double *exact, const double *magnitude,
                            double *relative) {
    const double limit = strcmp(name, "grad_topk_weights") == 0 ? 5e-2 : 1e-2, fine = 0x1p-20;
    double error = 0, size = 0, terms = 0;
    for (uint64_t i = 0; i < t->elements; i++) {
        double d = kt_element(t->dtype, t->host, i) - exact[i];
        error += d * d;
        size += exact[i] * exact[i];
        terms += magnitude[i] * magnitude[i];
    }
    *relative = size > 0 ? sqrt(error / size) : 0;
    return sqrt(error) <= limit * sqrt(size) + fine * sqrt(terms);
}

static void fail(kt_bench_verdict *verdict, const char *sentence) {
    if (verdict->pass) snprintf(verdict->message, sizeof verdict->message, "%s", sentence);
    verdict->pass = false;
}

static void judge(const part *p, const expected *e, kt_bench_verdict *verdict) {
    for (int i = 0, k = 0; i < p->whole->op->n_args; i++) {
        const kt_arg *arg = &p->whole->op->args[i];
        if (arg->role != KT_OUT) continue;
        const kiln_check_result *r = &e->result[k];
        const kt_tensor *t = &p->tensors.tensor[i];
        if (t->present) {
            double relative;
            char sentence[256];
            bool holds = frobenius_holds(t, arg->name, e->exact[k], e->magnitude[k], &relative);
            verdict->compared += t->elements;
            if (!(r->max_ratio <= verdict->max_ratio)) verdict->max_ratio = r->max_ratio;
            if (!(relative <= verdict->frobenius)) verdict->frobenius = relative;
            if (!r->pass) fail(verdict, r->message);
            snprintf(sentence, sizeof sentence, "%s: relative Frobenius error %.3g of a slice", arg->name, relative);
            if (!holds) fail(verdict, sentence);
        }
        k++;
    }
}

static int compare(part *p, kt_bench_verdict *verdict) {
    const kt_op *op = p->whole->op;
    kt_library *lib = p->memory->lib;
    expected *e = kt_alloc(1, sizeof *e);
    for (int i = 0, k = 0; i < op->n_args; i++) {
        if (op->args[i].role != KT_OUT) continue;
        e->result[k].struct_size = sizeof e->result[k];
        const kt_tensor *t = &p->tensors.tensor[i];
        if (t->present) {
            e->exact[k] = kt_alloc(t->elements, sizeof(double));
            e->magnitude[k] = kt_alloc(t->elements, sizeof(double));
        }
        k++;
    }
    kt_value name = KT_STR(op->name), args = KT_PTR(p->tensors.on_host), n = KT_I32(op->n_args);
    kt_value options = KT_PTR(p->options), exact = KT_PTR(e->exact), magnitude = KT_PTR(e->magnitude);
    int code = kt_status(lib, KT_CALL(lib, "kiln_reference", name, args, n, options, exact, magnitude));
    if (code == KT_GOOD) code = read_outputs(p);
    if (code == KT_GOOD)
        code = kt_status(lib, KT_CALL(lib, "kiln_check", name, args, n, options, exact, magnitude, KT_PTR(e->result)));
    if (code == KT_GOOD) judge(p, e, verdict);
    for (int k = 0; k < KT_MAX_ARGS; k++) {
        free(e->exact[k]);
        free(e->magnitude[k]);
    }
    free(e);
    return code;
}

static int check_slice(kt_bench_memory *memory, const kt_tensors *whole, const kt_bench_patterns *patterns,
                       const void *options, uint32_t transposed, const kt_bench_slice *slice,
                       kt_bench_verdict *verdict) {
    part *p = kt_alloc(1, sizeof *p);
    *p = (part){memory, whole, patterns, slice, transposed, kt_alloc(1, whole->op->options_size), {0}};
    memcpy(p->options, options, whole->op->options_size);
    if (slice->top_k) ((kiln_load_balance_backward_options *)p->options)->top_k = slice->top_k;
    int code = gather(p);
    if (code == KT_GOOD) code = compare(p, verdict);
    kt_tensors_free(&p->tensors, NULL, NULL);
    free(p->options);
    free(p);
    return code;
}

static int scan_outputs(kt_bench_memory *memory, const kt_tensors *ts, kt_bench_verdict *verdict) {
    for (int i = 0; i < ts->op->n_args; i++) {
        if (ts->op->args[i].role != KT_OUT || !ts->tensor[i].present) continue;
        uint64_t bad;
        KT_TRY(kt_bench_memory_scan(memory, ts, i, &bad, &verdict->digest[i]));
        verdict->not_finite += bad;
        char sentence[256];
        snprintf(sentence, sizeof sentence, "%s has %" PRIu64 " words that are not finite or were not written",
                 ts->op->args[i].name, bad);
        if (bad) fail(verdict, sentence);
    }
    return KT_GOOD;
}

int kt_bench_verify(kt_bench_memory *memory, const kt_tensors *tensors, const kt_bench_patterns *patterns,
                    const void *options, uint32_t transposed, uint64_t seed, kt_bench_verdict *verdict) {
    *verdict = (kt_bench_verdict){.pass = true};
    KT_TRY(scan_outputs(memory, tensors, verdict));
    kt_bench_slice slices[KT_BENCH_MAX_SLICES];
    int n = kt_bench_slices(tensors, patterns, seed, slices), code = n ? KT_GOOD : KT_USAGE;
    for (int i = 0; i < n && code == KT_GOOD; i++)
        code = check_slice(memory, tensors, patterns, options, transposed, &slices[i], verdict);
    for (int i = 0; i < KT_BENCH_MAX_SLICES; i++) kt_bench_slice_free(&slices[i]);
    return code;
}

int kt_bench_same_bits(kt_bench_memory *memory, const kt_tensors *ts, const kt_bench_verdict *verdict, bool *same) {
    *same = true;
    for (int i = 0; i < ts->op->n_args; i++) {
        if (ts->op->args[i].role != KT_OUT || !ts->tensor[i].present) continue;
        uint64_t bad, digest;
        KT_TRY(kt_bench_memory_scan(memory, ts, i, &bad, &digest));
        *same = *same && digest == verdict->digest[i];
    }
    return KT_GOOD;
}
