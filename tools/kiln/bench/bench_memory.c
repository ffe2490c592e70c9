/* Device memory of `kiln bench`: see bench_memory.h. */
#include "bench/bench_memory.h"

#include "kiln/kiln.h"

#include <stdlib.h>
#include <string.h>

int kt_bench_memory_begin(kt_bench_memory *m, kt_library *lib, void *ctx, kt_gpu *gpu) {
    *m = (kt_bench_memory){.lib = lib, .ctx = ctx, .gpu = gpu};
    return kt_status(lib,
                     KT_CALL(lib, "kiln_context_device", KT_PTR(ctx), KT_PTR(&m->device_type), KT_PTR(&m->device_id)));
}

void kt_bench_memory_drop(kt_bench_memory *m, kt_bench_buffer *b) {
    if (b->device) (void)KT_CALL(m->lib, "kiln_device_free", KT_PTR(m->ctx), KT_PTR(b->device));
    free(b->key);
    *b = (kt_bench_buffer){0};
}

static void release_arguments(kt_bench_memory *m) {
    for (int i = 0; i < KT_MAX_ARGS; i++) kt_bench_memory_drop(m, &m->arg[i]);
}

void kt_bench_memory_free(kt_bench_memory *m) {
    if (!m->lib) return;
    release_arguments(m);
    kt_bench_memory_drop(m, &m->workspace);
    kt_bench_memory_drop(m, &m->flush);
    *m = (kt_bench_memory){0};
}

int kt_bench_memory_room(kt_bench_memory *m, kt_bench_buffer *b, uint64_t bytes) {
    if (bytes == 0) bytes = 256;
    if (bytes <= b->capacity) return KT_GOOD;
    kt_bench_memory_drop(m, b);
    KT_TRY(kt_status(m->lib, KT_CALL(m->lib, "kiln_device_alloc", KT_PTR(m->ctx), KT_U64(bytes), KT_PTR(&b->device))));
    b->capacity = bytes;
    return KT_GOOD;
}

/* Copy what stands at the front to `at`, further on in the same buffer. */
static int repeat(kt_bench_memory *m, kt_bench_buffer *b, uint64_t at, uint64_t bytes) {
    if (m->gpu) return kt_gpu_copy(m->gpu, (char *)b->device + at, b->device, bytes, NULL);
    memcpy((char *)b->device + at, b->device, bytes);
    return KT_GOOD;
}

int kt_bench_memory_fill(kt_bench_memory *m, kt_bench_buffer *b, const kt_bench_pattern *p, uint64_t bytes) {
    KT_TRY(kt_bench_memory_room(m, b, bytes));
    if (!b->key || strcmp(b->key, p->key) != 0) {
        free(b->key);
        b->key = kt_copy(p->key);
        b->filled = 0;
    }
    if (bytes <= b->filled) return KT_GOOD;
    uint64_t block = p->period * (p->dtype->bits / 8u), n = block < bytes ? block : bytes;
    KT_TRY(kt_status(m->lib, KT_CALL(m->lib, "kiln_device_copy_in", KT_PTR(m->ctx), KT_PTR(b->device), KT_PTR(p->block),
                                     KT_U64(n))));
    /* What is there is a whole number of periods until the end: it doubles. */
    for (uint64_t more; n < bytes; n += more) {
        more = n < bytes - n ? n : bytes - n;
        KT_TRY(repeat(m, b, n, more));
    }
    b->filled = bytes;
    return KT_GOOD;
}

static void set_strides(kt_bench_memory *m, kt_tensor *t, int i) {
    m->strides[i][0] = 1;
    m->strides[i][1] = t->shape[0];
    t->on_device.strides = m->strides[i];
}

int kt_bench_memory_bind(kt_bench_memory *m, kt_tensors *ts, const kt_bench_patterns *patterns, uint32_t transposed) {
    if (m->op != ts->op) release_arguments(m); /* another operation's tensors: their room may be needed */
    m->op = ts->op;
    KT_TRY(kt_tensors_describe(ts, m->lib, m->ctx));
    for (int i = 0; i < ts->op->n_args; i++) {
        kt_tensor *t = &ts->tensor[i];
        if (!t->present) continue;
        if (ts->op->args[i].role == KT_OUT)
            KT_TRY(kt_bench_memory_room(m, &m->arg[i], t->bytes));
        else
            KT_TRY(kt_bench_memory_fill(m, &m->arg[i], &patterns->arg[i], t->bytes));
        t->on_device.data = m->arg[i].device;
        if (transposed >> i & 1) set_strides(m, t, i);
    }
    return kt_status(m->lib, KT_CALL(m->lib, "kiln_stream_synchronize", KT_PTR(m->ctx), KT_PTR(NULL)));
}

int kt_bench_memory_poison(kt_bench_memory *m, const kt_tensors *ts, const void *options) {
    uint64_t added = ((const kiln_common_options *)options)->accumulate; /* every option struct starts with them */
    for (int i = 0, k = 0; i < ts->op->n_args; i++) {
        const kt_tensor *t = &ts->tensor[i];
        if (ts->op->args[i].role != KT_OUT) continue;
        int byte = added >> k++ & 1 ? KT_BENCH_ADDEND : KT_BENCH_POISON;
        if (!t->present) continue;
        KT_TRY(kt_status(m->lib, KT_CALL(m->lib, "kiln_device_fill", KT_PTR(m->ctx), KT_PTR(t->on_device.data),
                                         KT_I32(byte), KT_U64(t->bytes), KT_PTR(NULL))));
    }
    return kt_status(m->lib, KT_CALL(m->lib, "kiln_stream_synchronize", KT_PTR(m->ctx), KT_PTR(NULL)));
}

/* The exponent bits of a word's one or two elements. */
static void exponents(const kt_dtype *dtype, uint32_t *high, uint32_t *low) {
    *high = *low = 0x7F800000;
    if (dtype->bits != 16) return;
    uint32_t half = dtype->code == KT_DL_BFLOAT ? 0x7F80 : 0x7C00;
    *high = half << 16;
    *low = half;
}

/* The last element of an odd number of 16-bit ones. */
static int scan_rest(kt_bench_memory *m, const kt_tensor *t, uint32_t high, uint32_t low, uint64_t *bad,
                     uint64_t *digest) {
    uint32_t word = 0;
    uint64_t more_bad, more, rest = t->bytes % 4;
    const char *at = (const char *)t->on_device.data + (t->bytes - rest);
    KT_TRY(kt_status(m->lib,
                     KT_CALL(m->lib, "kiln_device_copy_out", KT_PTR(m->ctx), KT_PTR(&word), KT_PTR(at), KT_U64(rest))));
    kt_gpu_scan_host(&word, 4, high, low, &more_bad, &more);
    *bad += more_bad;
    *digest = *digest * 31 + more;
    return KT_GOOD;
}

int kt_bench_memory_scan(kt_bench_memory *m, const kt_tensors *ts, int i, uint64_t *bad, uint64_t *digest) {
    const kt_tensor *t = &ts->tensor[i];
    uint32_t high, low;
    exponents(t->dtype, &high, &low);
    uint64_t bytes = t->bytes / 4 * 4;
    if (m->gpu)
        KT_TRY(kt_gpu_scan(m->gpu, t->on_device.data, bytes, high, low, bad, digest));
    else
        kt_gpu_scan_host(t->on_device.data, bytes, high, low, bad, digest);
    return t->bytes == bytes ? KT_GOOD : scan_rest(m, t, high, low, bad, digest);
}
