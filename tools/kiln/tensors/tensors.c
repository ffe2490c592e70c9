/* The tensors of one call: see tensors.h. */
#include "tensors/tensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 256 };

void kt_tensors_begin(kt_tensors *ts, const kt_op *op, const void *options) {
    *ts = (kt_tensors){.op = op};
    for (int i = 0; i < 26; i++) ts->size[i] = -1;
    if (strcmp(op->name, "grouped_gemm") == 0)
        ts->ragged_k = ((const kiln_grouped_gemm_options *)options)->ragged == KILN_RAGGED_K;
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

/* The axes of argument i; grouped_gemm's "?" depend on which axis is ragged. */
static const char *axes_of(const kt_tensors *ts, int i) {
    const kt_arg *arg = &ts->op->args[i];
    if (strcmp(arg->shape, "?") != 0) return arg->shape;
    if (arg->role == KT_OUT) return ts->ragged_k ? "G,M,N" : "M,N";
    return ts->ragged_k ? "K,N" : "G,K,N";
}

/* One axis of a shape column: a letter (+1), or a number. */
typedef struct axis {
    int letter; /* 0..25, or -1 */
    int64_t add, number;
} axis;

static int parse_axes(const char *text, axis *out) {
    int n = 0;
    while (*text) {
        axis *a = &out[n++];
        char *end;
        if (*text >= 'A' && *text <= 'Z') {
            *a = (axis){*text++ - 'A', 0, 0};
            if (*text == '+') a->add = strtol(text + 1, (char **)&text, 10);
        } else {
            *a = (axis){-1, 0, strtol(text, &end, 10)};
            text = end;
        }
        if (*text == ',') text++;
    }
    return n;
}

static int set_shape(kt_tensors *ts, int i, const kt_dtype *dtype, int rank, const int64_t *shape) {
    kt_tensor *t = &ts->tensor[i];
    t->present = true;
    t->dtype = dtype;
    t->rank = rank;
    t->elements = 1;
    for (int d = 0; d < rank; d++) {
        t->shape[d] = shape[d];
        if (__builtin_mul_overflow(t->elements, (uint64_t)shape[d], &t->elements))
            return kt_fail(KT_USAGE, "%s would have more than 2^64 elements", ts->op->args[i].name);
    }
    if (__builtin_mul_overflow(t->elements, (uint64_t)dtype->bits / 8, &t->bytes))
        return kt_fail(KT_USAGE, "%s would have more than 2^64 bytes", ts->op->args[i].name);
    return KT_GOOD;
}

int kt_tensors_set(kt_tensors *ts, int i, const kt_dtype *dtype, int rank, const int64_t *shape) {
    axis axes[KT_MAX_RANK];
    /* Tensors of an unexpected rank teach nothing; the library says what is wrong with them. */
    if (parse_axes(axes_of(ts, i), axes) == rank) {
        for (int d = 0; d < rank; d++) {
            int letter = axes[d].letter;
            if (letter >= 0 && ts->size[letter] < 0) ts->size[letter] = shape[d] - axes[d].add;
        }
    }
    return set_shape(ts, i, dtype, rank, shape);
}

int kt_tensors_derive(kt_tensors *ts, int i, const kt_dtype *dtype) {
    const char *text = axes_of(ts, i);
    axis axes[KT_MAX_RANK];
    int64_t shape[KT_MAX_RANK];
    int rank = parse_axes(text, axes);
    for (int d = 0; d < rank; d++) {
        int letter = axes[d].letter;
        shape[d] = letter < 0 ? axes[d].number : ts->size[letter] + axes[d].add;
        if (letter < 0 || ts->size[letter] >= 0) continue;
        /* An axis that nothing gives: take the shape of an argument with the same axes. */
        for (int j = 0; j < ts->op->n_args; j++)
            if (ts->tensor[j].present && strcmp(axes_of(ts, j), text) == 0)
                return set_shape(ts, i, dtype, ts->tensor[j].rank, ts->tensor[j].shape);
        return kt_fail(KT_USAGE, "%s has shape [%s], and the size of %c is not known: it wants %c=SIZE",
                       ts->op->args[i].name, text, 'A' + letter, 'A' + letter);
    }
    return set_shape(ts, i, dtype, rank, shape);
}

/* ---- types ------------------------------------------------------------------------------------------------------- */

static const kt_dtype *first_of(const char *dtypes) {
    if (strcmp(dtypes, "int") == 0 || strcmp(dtypes, "any") == 0) return kt_dtype_named("i64");
    char first[16] = "";
    memcpy(first, dtypes, strcspn(dtypes, ",") < sizeof first ? strcspn(dtypes, ",") : 0);
    return kt_dtype_named(first);
}

const kt_dtype *kt_tensors_default_dtype(const kt_tensors *ts, int i) {
    const kt_arg *arg = &ts->op->args[i];
    if (arg->dtypes[0] == '=') {
        long j = kt_op_arg(ts->op, arg->dtypes + 1) - ts->op->args;
        return ts->tensor[j].present ? ts->tensor[j].dtype : first_of(ts->op->args[j].dtypes);
    }
    /* The benchmark's own choice where it is not that of the inputs. */
    if (strcmp(arg->name, "grad_router_weight") == 0) return kt_dtype_named("f32");
    if (arg->role == KT_OUT && strchr(arg->dtypes, ',')) {
        for (int j = 0; j < ts->op->n_args; j++) {
            const kt_tensor *t = &ts->tensor[j];
            bool free_type = ts->op->args[j].role == KT_IN && strchr(ts->op->args[j].dtypes, ',');
            if (free_type && t->present && kt_dtype_allowed(t->dtype, arg->dtypes)) return t->dtype;
        }
    }
    return first_of(arg->dtypes);
}

int kt_dtype_words_check(const kt_list *words, const kt_op *op) {
    for (size_t k = 0; k < words->n; k++) {
        const char *word = words->item[k], *equals = strchr(word, '=');
        char *name = equals ? kt_format("%.*s", (int)(equals - word), word) : NULL;
        bool good = name ? kt_op_arg(op, name) != NULL : kt_dtype_named(word) != NULL;
        free(name);
        if (!good)
            return kt_fail(KT_USAGE,
                           "--dtype %s: wanted TYPE (bf16, f16, f32, i32, i64, bool), or ARGUMENT=TYPE with an "
                           "argument of %s",
                           word, op->name);
    }
    return KT_GOOD;
}

int kt_dtype_words_choose(const kt_list *words, const kt_op *op, int i, const kt_dtype **dtype) {
    const kt_arg *arg = &op->args[i];
    bool follows = arg->dtypes[0] == '=';
    const char *dtypes = follows ? kt_op_arg(op, arg->dtypes + 1)->dtypes : arg->dtypes;
    size_t n = strlen(arg->name);
    for (size_t k = 0; k < words->n; k++) {
        const kt_dtype *every = kt_dtype_named(words->item[k]);
        if (every && !follows && strchr(dtypes, ',') && kt_dtype_allowed(every, dtypes)) *dtype = every;
    }
    for (size_t k = 0; k < words->n; k++) { /* what names the argument wins */
        const char *word = words->item[k];
        if (strncmp(word, arg->name, n) != 0 || word[n] != '=') continue;
        *dtype = kt_dtype_named(word + n + 1);
        if (!*dtype || !kt_dtype_allowed(*dtype, dtypes))
            return kt_fail(KT_USAGE, "--dtype %s: %s may be %s", word, arg->name, dtypes);
    }
    return KT_GOOD;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static DLTensor dl_tensor(const kt_tensor *t, void *data, int32_t device_type, int32_t device_id) {
    DLTensor dl = {.data = data, .ndim = t->rank};
    dl.device.device_type = (__typeof__(dl.device.device_type))device_type;
    dl.device.device_id = device_id;
    dl.dtype = (DLDataType){t->dtype->code, t->dtype->bits, 1};
    dl.shape = (int64_t *)(uintptr_t)t->shape;
    return dl;
}

void kt_tensors_host(kt_tensors *ts, int i, const void *data) {
    kt_tensor *t = &ts->tensor[i];
    size_t rounded = (t->bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT; /* never 0 */
    t->host = aligned_alloc(ALIGNMENT, rounded);
    if (!t->host) {
        fprintf(stderr, "kiln: out of memory: %s needs %" PRIu64 " bytes\n", ts->op->args[i].name, t->bytes);
        exit(KT_ENVIRONMENT);
    }
    if (data)
        memcpy(t->host, data, t->bytes);
    else
        memset(t->host, 0xFF, t->bytes);
    t->on_host = dl_tensor(t, t->host, 1, 0);
    ts->on_host[i] = &t->on_host;
}

static int context_device(kt_tensors *ts, kt_library *lib, void *ctx, int32_t *type, int32_t *id) {
    KT_TRY(kt_status(lib, KT_CALL(lib, "kiln_context_device", KT_PTR(ctx), KT_PTR(type), KT_PTR(id))));
    ts->device_is_host = *type == 1;
    return KT_GOOD;
}

int kt_tensors_upload(kt_tensors *ts, kt_library *lib, void *ctx) {
    int32_t type = 0, id = 0;
    KT_TRY(context_device(ts, lib, ctx, &type, &id));
    for (int i = 0; i < ts->op->n_args; i++) {
        kt_tensor *t = &ts->tensor[i];
        if (!t->present || !t->host) continue;
        t->device = t->host;
        if (!ts->device_is_host) {
            t->device = NULL;
            uint64_t bytes = t->bytes ? t->bytes : 1;
            KT_TRY(kt_status(lib, KT_CALL(lib, "kiln_device_alloc", KT_PTR(ctx), KT_U64(bytes), KT_PTR(&t->device))));
            KT_TRY(kt_status(lib, KT_CALL(lib, "kiln_device_copy_in", KT_PTR(ctx), KT_PTR(t->device), KT_PTR(t->host),
                                          KT_U64(t->bytes))));
        }
        t->on_device = dl_tensor(t, t->device, type, id);
        ts->on_device[i] = &t->on_device;
    }
    return KT_GOOD;
}

int kt_tensors_upload_outputs(kt_tensors *ts, kt_library *lib, void *ctx) {
    for (int i = 0; i < ts->op->n_args && !ts->device_is_host; i++) {
        kt_tensor *t = &ts->tensor[i];
        if (ts->op->args[i].role != KT_OUT || !t->device) continue;
        KT_TRY(kt_status(lib, KT_CALL(lib, "kiln_device_copy_in", KT_PTR(ctx), KT_PTR(t->device), KT_PTR(t->host),
                                      KT_U64(t->bytes))));
    }
    return KT_GOOD;
}

int kt_tensors_download(kt_tensors *ts, kt_library *lib, void *ctx) {
    for (int i = 0; i < ts->op->n_args && !ts->device_is_host; i++) {
        kt_tensor *t = &ts->tensor[i];
        if (ts->op->args[i].role != KT_OUT || !t->device) continue;
        KT_TRY(kt_status(lib, KT_CALL(lib, "kiln_device_copy_out", KT_PTR(ctx), KT_PTR(t->host), KT_PTR(t->device),
                                      KT_U64(t->bytes))));
    }
    return KT_GOOD;
}

int kt_tensors_describe(kt_tensors *ts, kt_library *lib, void *ctx) {
    int32_t type = 0, id = 0;
    KT_TRY(context_device(ts, lib, ctx, &type, &id));
    for (int i = 0; i < ts->op->n_args; i++) {
        kt_tensor *t = &ts->tensor[i];
        if (!t->present) continue;
        t->on_device = dl_tensor(t, NULL, type, id);
        ts->on_device[i] = &t->on_device;
    }
    return KT_GOOD;
}

void kt_tensors_free(kt_tensors *ts, kt_library *lib, void *ctx) {
    for (int i = 0; ts->op && i < ts->op->n_args; i++) {
        kt_tensor *t = &ts->tensor[i];
        if (t->device && t->device != t->host && lib && ctx)
            (void)KT_CALL(lib, "kiln_device_free", KT_PTR(ctx), KT_PTR(t->device));
        free(t->host);
    }
    *ts = (kt_tensors){0};
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

char *kt_tensors_axes_text(const kt_tensors *ts) {
    /* Tokens first, then matrices, features, experts: as people say them. */
    static const char order[] = "BTMNHIFELGKSACDJOPQRUVWXYZ";
    char *text = kt_copy("");
    for (const char *s = order; *s; s++) {
        int64_t size = ts->size[*s - 'A'];
        if (size < 0) continue;
        char *longer = kt_format("%s%s%c=%" PRId64, text, *text ? " " : "", *s, size);
        free(text);
        text = longer;
    }
    return text;
}

const char *kt_tensors_place(const kt_tensor *t, uint64_t index, char *buf, size_t cap) {
    uint64_t at[KT_MAX_RANK];
    for (int d = t->rank - 1; d >= 0; d--) {
        uint64_t size = t->shape[d] > 0 ? (uint64_t)t->shape[d] : 1;
        at[d] = index % size;
        index /= size;
    }
    size_t n = (size_t)snprintf(buf, cap, "[");
    for (int d = 0; d < t->rank && n < cap; d++)
        n += (size_t)snprintf(buf + n, cap - n, "%s%" PRIu64, d ? "," : "", at[d]);
    if (n < cap) snprintf(buf + n, cap - n, "]");
    return buf;
}
