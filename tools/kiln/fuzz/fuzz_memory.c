/* Guarded memory of fuzz cases: see fuzz_memory.h. */
#include "fuzz/fuzz_memory.h"

#include "abi/options.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, ALIGNMENT = 256, BAND = 512 }; /* BAND: on a GPU, where no page guards */

/* ---- layout ------------------------------------------------------------------------------------------------------ */

/* Strides of argument i, innermost axis first: contiguous axis, gap, the others. */
static void set_strides(kt_fuzz_memory *m, int i) {
    const kt_tensor *t = &m->shapes.tensor[i];
    const kt_fuzz_layout *l = &m->c->layout[i];
    int order[KT_MAX_RANK] = {0}, n = t->rank;
    for (int d = 0; d < n; d++) order[d] = d;
    if (n >= 2 && l->swapped) {
        order[n - 1] = n - 2;
        order[n - 2] = n - 1;
    }
    if (n >= 3 && l->turned) {
        int first = order[0];
        order[0] = order[1];
        order[1] = first;
    }
    int64_t stride = 1 + l->spread;
    for (int at = n - 1; at >= 0; at--) {
        int d = order[at];
        m->stride[i][d] = stride;
        stride *= t->shape[d] > 0 ? t->shape[d] : 1;
        if (at == n - 1 && n > 1) stride += l->gap;
    }
    if (l->expanded && n > 0) m->stride[i][0] = 0;
}

/* Elements between the first and the last, both counted; 0 for an empty tensor. */
static uint64_t span_of(const kt_fuzz_memory *m, int i) {
    const kt_tensor *t = &m->shapes.tensor[i];
    uint64_t last = 0;
    for (int d = 0; d < t->rank; d++)
        last += (uint64_t)(t->shape[d] > 0 ? t->shape[d] - 1 : 0) * (uint64_t)m->stride[i][d];
    return t->elements ? last + 1 : 0;
}

static DLTensor dl_tensor(kt_fuzz_memory *m, int i, void *data, int32_t type, int32_t id) {
    kt_tensor *t = &m->shapes.tensor[i];
    uint64_t offset = (uint64_t)m->c->layout[i].byte_offset * (t->dtype->bits / 8u);
    DLTensor dl = {.data = (char *)data - offset, .ndim = t->rank, .byte_offset = offset};
    dl.device.device_type = (__typeof__(dl.device.device_type))type;
    dl.device.device_id = id;
    dl.dtype = (DLDataType){t->dtype->code, t->dtype->bits, 1};
    dl.shape = t->shape;
    dl.strides = m->stride[i];
    return dl;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* `bytes` of memory in whole pages, between two pages without any access. */
static int make_block(kt_fuzz_block *b, size_t bytes) {
    b->bytes = (bytes + PAGE - 1) / PAGE * PAGE;
    if (b->bytes == 0) b->bytes = PAGE;
    b->map_bytes = b->bytes + 2 * PAGE;
    b->map = mmap(NULL, b->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->map == MAP_FAILED) {
        b->map = NULL;
        return kt_fail(KT_ENVIRONMENT, "out of memory: a fuzz case needs %zu bytes", b->map_bytes);
    }
    b->host = (unsigned char *)b->map + PAGE;
    if (mprotect(b->host, b->bytes, PROT_READ | PROT_WRITE))
        return kt_fail(KT_ENVIRONMENT, "a fuzz case's memory cannot be made writable");
    memset(b->host, 0xFF, b->bytes);
    return KT_GOOD;
}

static int make_device(kt_fuzz_memory *m, kt_fuzz_block *b) {
    b->device = b->host;
    if (m->device_is_host) return KT_GOOD;
    b->device = NULL;
    return kt_status(m->lib,
                     KT_CALL(m->lib, "kiln_device_alloc", KT_PTR(m->ctx), KT_U64(b->bytes), KT_PTR(&b->device)));
}

/* Where in its block a tensor begins: at its start, or as close to its end as its alignment lets it. */
static size_t place_in_block(const kt_fuzz_memory *m, const kt_fuzz_layout *l, size_t item, size_t span) {
    size_t shift = (size_t)l->shift * item, band = m->device_is_host ? 0 : BAND;
    size_t whole = (2 * band + ALIGNMENT + shift + span * item + PAGE - 1) / PAGE * PAGE;
    if (!l->at_end) return band + shift;
    return (whole - band - span * item - shift) / ALIGNMENT * ALIGNMENT + shift;
}

static int make_tensor(kt_fuzz_memory *m, int i) {
    const kt_fuzz_layout *l = &m->c->layout[i];
    kt_fuzz_block *b = &m->block[i];
    size_t item = m->shapes.tensor[i].dtype->bits / 8u, band = m->device_is_host ? 0 : BAND;
    set_strides(m, i);
    size_t span = span_of(m, i);
    KT_TRY(make_block(b, 2 * band + ALIGNMENT + (size_t)l->shift * item + span * item));
    KT_TRY(make_device(m, b));
    size_t at = place_in_block(m, l, item, span);
    m->on_host[i] = dl_tensor(m, i, b->host + at, 1, 0);
    m->on_device[i] = dl_tensor(m, i, (char *)b->device + at, m->device_type, m->device_id);
    m->host_args[i] = &m->on_host[i];
    m->device_args[i] = &m->on_device[i];
    return KT_GOOD;
}

/* The output in the memory of the input. */
static void share(kt_fuzz_memory *m, int input, int output) {
    if (!m->host_args[input] || !m->host_args[output]) return;
    memcpy(m->stride[output], m->stride[input], sizeof m->stride[output]);
    m->on_host[output] = m->on_host[input];
    m->on_device[output] = m->on_device[input];
}

bool kt_fuzz_is_output(const kt_fuzz_memory *m, int arg) {
    return m->c->op->args[arg].role == KT_OUT;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* The gradient that a row without an end is put into: the first argument by name that is there. */
static const DLTensor *spoilt_tensor(const kt_fuzz_memory *m) {
    static const char *const names[] = {"grad_expert_mask", "grad_routing_weights", "grad_output", "a"};
    bool flat = strcmp(m->c->op->name, "load_balance_backward") == 0;
    for (size_t i = flat ? 0 : 1; i < sizeof names / sizeof *names; i++) {
        int arg = kt_problem_arg(m->c->op->name, names[i]);
        if (arg >= 0 && m->host_args[arg]) return &m->on_host[arg];
    }
    return NULL;
}

static void spoil_row(const kt_fuzz_memory *m, kt_random *r) {
    const DLTensor *t = spoilt_tensor(m);
    if (!t || kt_problem_elements(t) == 0) return;
    int64_t width = kt_problem_elements(t) / t->shape[0], row = kt_random_below(r, t->shape[0]);
    double v = m->c->poison == KT_FUZZ_NAN ? (double)NAN : (double)INFINITY;
    for (int64_t i = 0; i < width; i++) kt_problem_put(t, row * width + i, v);
}

/* Root mean square of what the operation adds to argument i, its output k; 1 where that says nothing. */
static int size_of_result(kt_fuzz_memory *m, int i, int k, double *out) {
    double *exact[KT_MAX_ARGS] = {NULL}, sum = 0;
    uint64_t n = m->shapes.tensor[i].elements;
    exact[k] = kt_alloc(n ? n : 1, sizeof(double));
    int code = kt_status(m->lib, KT_CALL(m->lib, "kiln_reference", KT_STR(m->c->op->name), KT_PTR(m->host_args),
                                         KT_I32(m->c->op->n_args), KT_PTR(m->options), KT_PTR(exact), KT_PTR(NULL)));
    for (uint64_t e = 0; e < n; e++) sum += isfinite(exact[k][e]) ? exact[k][e] * exact[k][e] : 0;
    *out = sum > 0 ? fmin(sqrt(sum / (double)n), 1e30) : 1;
    if (m->c->dtype[i]->code == KT_DL_FLOAT && m->c->dtype[i]->bits == 16) *out = fmin(*out, 4096);
    free(exact[k]);
    return code;
}

/* Outputs that are added to hold numbers as large as what is added: whichever of the two were lost would be missed. */
static int fill_sums(kt_fuzz_memory *m, kt_problem *p) {
    kiln_common_options *common = m->options;
    uint64_t accumulate = common->accumulate;
    common->accumulate = 0;
    int code = KT_GOOD;
    for (int i = 0, output = 0; i < m->c->op->n_args && code == KT_GOOD; i++) {
        if (!kt_fuzz_is_output(m, i)) continue;
        int k = output++;
        double size;
        if (!(accumulate >> k & 1) || !m->host_args[i]) continue;
        code = size_of_result(m, i, k, &size);
        if (code == KT_GOOD) kt_problem_fill_output(p, &m->on_host[i], size);
    }
    common->accumulate = accumulate;
    return code;
}

static int fill(kt_fuzz_memory *m) {
    const kt_fuzz_case *c = m->c;
    kt_problem p = {.op = c->op->name, .options = m->options, .random = {c->seed}, .scale = c->scale};
    p.values = c->values;
    p.ids = c->ids;
    p.skip_percent = c->skip_percent;
    p.wild_percent = c->wild_percent;
    p.training = c->training;
    memcpy(p.size, c->size, sizeof p.size);
    for (int i = 0; i < c->op->n_args; i++)
        if (m->host_args[i] && !kt_fuzz_is_output(m, i)) p.tensor[i] = &m->on_host[i];
    const char *error = kt_problem_fill(&p);
    if (error) return kt_fail(KT_ENVIRONMENT, "%s: %s", c->op->name, error);
    if (c->poison) spoil_row(m, &p.random);
    return fill_sums(m, &p);
}

static void remember(kt_fuzz_block *b) {
    if (!b->host) return;
    b->before = kt_alloc(1, b->bytes);
    memcpy(b->before, b->host, b->bytes);
}

int kt_fuzz_memory_make(const kt_fuzz_case *c, kt_library *lib, void *ctx, kt_fuzz_memory *m) {
    *m = (kt_fuzz_memory){.c = c, .lib = lib, .ctx = ctx};
    KT_TRY(kt_status(lib,
                     KT_CALL(lib, "kiln_context_device", KT_PTR(ctx), KT_PTR(&m->device_type), KT_PTR(&m->device_id))));
    m->device_is_host = m->device_type == 1;
    m->options = kt_alloc(1, c->op->options_size);
    KT_TRY(kt_options_fill(c->op, c->settings, m->options));
    kt_tensors_begin(&m->shapes, c->op, m->options);
    memcpy(m->shapes.size, c->size, sizeof m->shapes.size);
    for (int i = 0; i < c->op->n_args; i++) {
        if (!c->dtype[i]) continue;
        KT_TRY(kt_tensors_derive(&m->shapes, i, c->dtype[i]));
        KT_TRY(make_tensor(m, i));
    }
    if (c->in_place)
        share(m, kt_problem_arg(c->op->name, "grad_expert_mask"), kt_problem_arg(c->op->name, "grad_expert_mask_out"));
    KT_TRY(fill(m));
    for (int i = 0; i < c->op->n_args; i++) remember(&m->block[i]);
    return KT_GOOD;
}

static void free_block(kt_fuzz_memory *m, kt_fuzz_block *b) {
    if (b->device && b->device != b->host) (void)KT_CALL(m->lib, "kiln_device_free", KT_PTR(m->ctx), KT_PTR(b->device));
    if (b->map) munmap(b->map, b->map_bytes);
    free(b->before);
    *b = (kt_fuzz_block){0};
}

int kt_fuzz_memory_workspace(kt_fuzz_memory *m) {
    kiln_common_options *common = m->options;
    kt_fuzz_block *b = &m->workspace;
    uint64_t bytes = 0;
    free_block(m, b);
    KT_TRY(kt_status(m->lib,
                     KT_CALL(m->lib, "kiln_workspace_size", KT_PTR(m->ctx), KT_STR(m->c->op->name),
                             KT_PTR(m->device_args), KT_I32(m->c->op->n_args), KT_PTR(m->options), KT_PTR(&bytes))));
    size_t band = m->device_is_host ? 0 : BAND, rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    KT_TRY(make_block(b, rounded + 2 * band));
    KT_TRY(make_device(m, b));
    remember(b);
    common->workspace = (char *)b->device + (b->bytes - band - rounded);
    common->workspace_bytes = bytes;
    return KT_GOOD;
}

void kt_fuzz_memory_free(kt_fuzz_memory *m) {
    for (int i = 0; i < KT_MAX_ARGS; i++) free_block(m, &m->block[i]);
    free_block(m, &m->workspace);
    free(m->options);
    kt_tensors_free(&m->shapes, NULL, NULL);
    m->options = NULL;
}

/* ---- before and after a call ------------------------------------------------------------------------------------- */

static unsigned char *element(const DLTensor *t, uint64_t linear) {
    return kt_problem_element(t, (int64_t)linear);
}

static bool overwritten(const kt_fuzz_memory *m, int arg) {
    uint64_t accumulate = ((const kiln_common_options *)m->options)->accumulate;
    int output = 0;
    for (int i = 0; i < arg; i++) output += kt_fuzz_is_output(m, i);
    return kt_fuzz_is_output(m, arg) && !(accumulate >> output & 1) && !m->c->in_place;
}

static int send(kt_fuzz_memory *m, const kt_fuzz_block *b) {
    if (m->device_is_host || !b->host) return KT_GOOD;
    return kt_status(m->lib, KT_CALL(m->lib, "kiln_device_copy_in", KT_PTR(m->ctx), KT_PTR(b->device), KT_PTR(b->host),
                                     KT_U64(b->bytes)));
}

int kt_fuzz_memory_reset(kt_fuzz_memory *m, unsigned char poison) {
    for (int i = 0; i < m->c->op->n_args; i++) {
        kt_fuzz_block *b = &m->block[i];
        const kt_tensor *t = &m->shapes.tensor[i];
        if (!b->host) continue;
        memcpy(b->host, b->before, b->bytes);
        for (uint64_t e = 0; overwritten(m, i) && e < t->elements; e++)
            memset(element(&m->on_host[i], e), poison, t->dtype->bits / 8u);
        KT_TRY(send(m, b));
    }
    const kiln_common_options *common = m->options;
    kt_fuzz_block *w = &m->workspace;
    if (!w->host) return KT_GOOD;
    memcpy(w->host, w->before, w->bytes);
    memset(w->host + ((const unsigned char *)common->workspace - (unsigned char *)w->device), poison,
           common->workspace_bytes);
    return send(m, w);
}

static int fetch(kt_fuzz_memory *m, const kt_fuzz_block *b) {
    if (m->device_is_host || !b->host) return KT_GOOD;
    return kt_status(m->lib, KT_CALL(m->lib, "kiln_device_copy_out", KT_PTR(m->ctx), KT_PTR(b->host), KT_PTR(b->device),
                                     KT_U64(b->bytes)));
}

int kt_fuzz_memory_fetch(kt_fuzz_memory *m) {
    for (int i = 0; i < m->c->op->n_args; i++) KT_TRY(fetch(m, &m->block[i]));
    return fetch(m, &m->workspace);
}

/* ---- what must not have changed ---------------------------------------------------------------------------------- */

/* The first byte of the block that changed and that no element of `outputs` owns; b->bytes if there is none. */
static size_t first_change(const kt_fuzz_memory *m, const kt_fuzz_block *b, int output) {
    if (memcmp(b->host, b->before, b->bytes) == 0) return b->bytes;
    bool *owned = kt_alloc(b->bytes, sizeof *owned);
    size_t width = output >= 0 ? m->shapes.tensor[output].dtype->bits / 8u : 0;
    for (uint64_t e = 0; output >= 0 && e < m->shapes.tensor[output].elements; e++)
        memset(owned + (element(&m->on_host[output], e) - b->host), true, width);
    size_t at = 0;
    while (at < b->bytes && (owned[at] || b->host[at] == b->before[at])) at++;
    free(owned);
    return at;
}

/* Does the output lie in the input's block? */
static int output_in(const kt_fuzz_memory *m, int arg) {
    if (kt_fuzz_is_output(m, arg)) return arg;
    return m->c->in_place && strcmp(m->c->op->args[arg].name, "grad_expert_mask") == 0
               ? kt_problem_arg(m->c->op->name, "grad_expert_mask_out")
               : -1;
}

int kt_fuzz_memory_check(const kt_fuzz_memory *m, bool *input) {
    *input = false;
    for (int i = 0; i < m->c->op->n_args; i++) {
        const kt_fuzz_block *b = &m->block[i];
        int output = output_in(m, i);
        if (!b->host || (output == i && m->c->in_place)) continue;
        size_t at = first_change(m, b, output);
        if (at == b->bytes) continue;
        const DLTensor *t = &m->on_host[i];
        int64_t place = b->host + at - ((unsigned char *)t->data + t->byte_offset);
        *input = output < 0 && place >= 0 && (uint64_t)place < span_of(m, i) * (t->dtype.bits / 8u);
        return kt_fail(KT_CHECK, "%s %s: byte %" PRId64 " from its first element was 0x%02x and is 0x%02x",
                       m->c->op->args[i].name, *input ? "is an input and was written to" : "was written beside", place,
                       b->before[at], b->host[at]);
    }
    const kt_fuzz_block *w = &m->workspace;
    const kiln_common_options *common = m->options;
    if (!w->host) return KT_GOOD;
    size_t from = (size_t)((const unsigned char *)common->workspace - (unsigned char *)w->device);
    for (size_t at = 0; at < w->bytes; at++) {
        if ((at >= from && at < from + common->workspace_bytes) || w->host[at] == w->before[at]) continue;
        return kt_fail(KT_CHECK, "the workspace of %" PRIu64 " bytes was written beside, at byte %" PRId64,
                       common->workspace_bytes, (int64_t)at - (int64_t)from);
    }
    return KT_GOOD;
}

void *kt_fuzz_memory_compact(const kt_fuzz_memory *m, int arg) {
    const kt_tensor *t = &m->shapes.tensor[arg];
    size_t width = t->dtype->bits / 8u;
    unsigned char *all = kt_alloc(t->elements ? t->elements : 1, width);
    for (uint64_t e = 0; e < t->elements; e++) memcpy(all + e * width, element(&m->on_host[arg], e), width);
    return all;
}
