/* Checks of tensors and options: see validate.h. This runs in every call: plain loops over small tables. */
#include "ops/validate.h"

#include "ops/overlap.h"

#include <inttypes.h>
#include <string.h>

/* ---- options ----------------------------------------------------------------------------------------------------- */

static kn_status check_choices(const kn_op *op, const kn_options *o) {
    for (int i = 0; i < op->n_options; i++) {
        const kn_option_info *info = &op->option[i];
        if (!info->choices[0]) continue;
        int32_t value, n = 1;
        memcpy(&value, o->bytes + info->offset, sizeof value);
        for (const char *c = info->choices; *c; c++) n += *c == ',';
        KN_REQUIRE(value >= 0 && value < n, KN_E_ARG, "option %s is %d; wanted 0 to %d (%s)", info->name, value, n - 1,
                   info->choices);
    }
    return KN_OK;
}

kn_status kn_validate_options(const kn_op *op, const void *options, kn_options *out) {
    memset(out->bytes, 0, op->options_size);
    out->common.struct_size = op->options_size;
    if (!options) return KN_OK;
    uint32_t size;
    memcpy(&size, options, sizeof size);
    KN_REQUIRE(size >= sizeof(kiln_common_options) && size <= 4096, KN_E_ABI,
               "options: struct_size is %u; wanted sizeof(kiln_%s_options) = %u", size, op->name, op->options_size);
    for (uint32_t i = op->options_size; i < size; i++)
        KN_REQUIRE(((const unsigned char *)options)[i] == 0, KN_E_ABI,
                   "options: byte %u of %u is set, but this library knows %u bytes: the caller needs a newer libkiln",
                   i, size, op->options_size);
    memcpy(out->bytes, options, size < op->options_size ? size : op->options_size);
    KN_REQUIRE((out->common.flags & ~KILN_PREPARE_ONLY) == 0, KN_E_ARG,
               "options: flags is 0x%x; wanted KILN_PREPARE_ONLY (1) or 0", out->common.flags);
    KN_REQUIRE(out->common.accumulate >> op->n_outputs == 0, KN_E_ARG,
               "options: accumulate is 0x%" PRIx64 ", but there are %d outputs", out->common.accumulate, op->n_outputs);
    return check_choices(op, out);
}

/* ---- one tensor -------------------------------------------------------------------------------------------------- */

static kn_dtype dtype_of(DLDataType t) {
    switch (t.code << 8 | t.bits) {
    case 0 << 8 | 8: return KN_I8;
    case 0 << 8 | 32: return KN_I32;
    case 0 << 8 | 64: return KN_I64;
    case 1 << 8 | 8: return KN_U8;
    case 2 << 8 | 16: return KN_F16;
    case 2 << 8 | 32: return KN_F32;
    case 2 << 8 | 64: return KN_F64;
    case 4 << 8 | 16: return KN_BF16;
    case 6 << 8 | 8: return KN_BOOL;
    default: return KN_DTYPE_NONE;
    }
}

static kn_status check_dtype(const kn_call *call, int i, DLDataType t, kn_dtype *out) {
    const char *name = call->op->args[i].name;
    const kn_arg_rule *rule = &call->op->rules[i];
    char wanted[96];
    KN_REQUIRE(t.lanes == 1, KN_E_DTYPE, "%s: lanes is %d; wanted 1", name, t.lanes);
    kn_dtype dtype = dtype_of(t);
    *out = dtype;
    if (dtype == KN_DTYPE_NONE || !(rule->dtypes >> dtype & 1)) {
        kn_dtypes_write(rule->dtypes, wanted, sizeof wanted);
        if (dtype == KN_DTYPE_NONE)
            return kn_fail(KN_E_DTYPE, "%s: element type is DLPack code %d with %d bits; wanted one of %s", name,
                           t.code, t.bits, wanted);
        return kn_fail(KN_E_DTYPE, "%s: element type is %s; wanted one of %s", name, kn_dtype_name(dtype), wanted);
    }
    if (rule->same_as < 0) return KN_OK;
    const kn_tensor *like = &call->tensor[rule->same_as];
    KN_REQUIRE(like->dtype == KN_DTYPE_NONE || like->dtype == dtype, KN_E_DTYPE,
               "%s: element type is %s, but %s is %s; wanted the same", name, kn_dtype_name(dtype),
               call->op->args[rule->same_as].name, kn_dtype_name(like->dtype));
    return KN_OK;
}

static kn_status check_device(const char *name, DLDevice d, const kn_place_rule *place) {
    static const char *const kinds[] = {"?", "CPU", "CUDA", "CUDA host", "?", "?", "?",
                                        "?", "?",   "?",    "?",         "?", "?", "CUDA managed"};
    enum { CUDA = 2, MANAGED = 13 };
    int32_t type = (int32_t)d.device_type;
    if (type == MANAGED && place->device_type == CUDA) type = CUDA;
    if (type == place->device_type && d.device_id == place->device_id) return KN_OK;
    int shown =
        (int)d.device_type >= 0 && (int)d.device_type < (int)(sizeof kinds / sizeof *kinds) ? (int)d.device_type : 0;
    return kn_fail(KN_E_DEVICE, "%s: lives on %s device %d (DLPack type %d); the context's device is %s %d", name,
                   kinds[shown], d.device_id, (int)d.device_type, kinds[place->device_type], place->device_id);
}

/* Name of a rule's axis, "H" or "L+1", into out[8]. */
static const char *axis_name(const kn_axis_rule *a, char out[8]) {
    if (a->letter) {
        out[0] = a->letter;
        memcpy(out + 1, "+1", 3);
        if (a->add == 0) out[1] = '\0';
    } else {
        out[0] = (char)('0' + a->add);
        out[1] = '\0';
    }
    return out;
}

/* The first argument before `i` whose shape names `letter`. */
static const char *binder_of(const kn_call *call, int i, char letter) {
    for (int j = 0; j < i; j++)
        for (int d = 0; d < call->op->rules[j].ndim; d++)
            if (call->tensor[j].dtype != KN_DTYPE_NONE && call->op->rules[j].axis[d].letter == letter)
                return call->op->args[j].name;
    return "another argument";
}

static kn_status bind_axis(kn_call *call, int i, int d) {
    const char *name = call->op->args[i].name;
    const kn_axis_rule *axis = &call->op->rules[i].axis[d];
    int64_t size = call->tensor[i].shape[d];
    char text[8];
    if (!axis->letter) {
        KN_REQUIRE(size == axis->add, KN_E_SHAPE, "%s: axis %d is %" PRId64 "; wanted %" PRId64, name, d, size,
                   axis->add);
        return KN_OK;
    }
    KN_REQUIRE(size >= axis->add, KN_E_SHAPE, "%s: axis %d (%s) is %" PRId64 "; wanted at least %" PRId64, name, d,
               axis_name(axis, text), size, axis->add);
    int64_t *bound = &call->letter[axis->letter - 'A'];
    if (*bound < 0) *bound = size - axis->add;
    KN_REQUIRE(*bound == size - axis->add, KN_E_SHAPE, "%s: axis %d (%s) is %" PRId64 "; %s has %c = %" PRId64, name, d,
               axis_name(axis, text), size, binder_of(call, i, axis->letter), axis->letter, *bound);
    return KN_OK;
}

/* Strides as the caller gave them, compact ones where he gave none; those of axes that are never stepped along become
 * harmless. Fills bytes. */
static kn_status read_strides(const char *name, const int64_t *strides, kn_tensor *t) {
    bool empty = false, bad = false;
    for (int d = 0; d < t->ndim; d++) empty |= t->shape[d] == 0;
    int64_t inner = 1, last = 0, item = (int64_t)kn_dtype_size(t->dtype);
    for (int d = t->ndim - 1; d >= 0; d--) {
        int64_t size = t->shape[d], stride = strides ? strides[d] : inner, span;
        if (empty || size == 1) {
            /* Rounded up so that a copy engine that insists on 16-byte strides is content with a single row. */
            stride = d == t->ndim - 1 ? 1 : (inner > INT64_MAX / 2 ? inner : (inner + 127) & ~(int64_t)127);
            if (!strides && !empty) stride = inner;
        }
        KN_REQUIRE(stride >= 0, KN_E_SHAPE, "%s: stride of axis %d is %" PRId64 "; wanted 0 or more", name, d, stride);
        t->stride[d] = stride;
        if (empty) continue;
        bad |= __builtin_mul_overflow(size - 1, stride, &span) || __builtin_add_overflow(last, span, &last) ||
               __builtin_mul_overflow(size, stride, &span);
        if (!bad && span > inner) inner = span;
    }
    t->bytes = 0;
    if (empty) return KN_OK;
    bad = bad || __builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, item, &last);
    KN_REQUIRE(!bad && (uint64_t)last <= UINT64_MAX - (uintptr_t)t->data, KN_E_SHAPE,
               "%s: its shape and strides reach beyond the address space", name);
    t->bytes = (uint64_t)last;
    return KN_OK;
}

static bool contiguous(const kn_tensor *t, int d) {
    return d < 0 || t->shape[d] <= 1 || t->stride[d] == 1;
}

static kn_status check_layout(const char *name, const kn_arg_rule *rule, const kn_tensor *t) {
    int last = t->ndim - 1;
    if (rule->layout == KN_LAYOUT_ANY || t->bytes == 0 || contiguous(t, last)) return KN_OK;
    if (rule->layout == KN_LAYOUT_COLS && contiguous(t, last - 1)) return KN_OK;
    return kn_fail(KN_E_ARG, "%s: stride of the last axis is %" PRId64 "; wanted 1%s", name, t->stride[last],
                   rule->layout == KN_LAYOUT_COLS ? " there or along the axis before" : "");
}

static kn_status read_tensor(kn_call *call, int i, const DLTensor *arg, const kn_place_rule *place) {
    const char *name = call->op->args[i].name;
    const kn_arg_rule *rule = &call->op->rules[i];
    kn_tensor *t = &call->tensor[i];
    kn_dtype dtype = KN_DTYPE_NONE;
    KN_TRY(check_dtype(call, i, arg->dtype, &dtype));
    KN_TRY(check_device(name, arg->device, place));
    if (rule->ndim >= 0)
        KN_REQUIRE(arg->ndim == rule->ndim, KN_E_SHAPE, "%s: has %d axes; wanted %d (%s)", name, arg->ndim, rule->ndim,
                   call->op->args[i].shape);
    KN_REQUIRE(arg->ndim >= 0 && arg->ndim <= 5, KN_E_SHAPE, "%s: has %d axes; wanted 0 to 5", name, arg->ndim);
    KN_REQUIRE(arg->ndim == 0 || arg->shape, KN_E_ARG, "%s: shape is NULL", name);
    t->dtype = dtype;
    t->ndim = arg->ndim;
    for (int d = 0; d < t->ndim; d++) {
        KN_REQUIRE(arg->shape[d] >= 0, KN_E_SHAPE, "%s: axis %d is %" PRId64 "; wanted 0 or more", name, d,
                   arg->shape[d]);
        t->shape[d] = arg->shape[d];
        if (rule->ndim >= 0) KN_TRY(bind_axis(call, i, d));
    }
    t->data = arg->data ? (char *)arg->data + arg->byte_offset : NULL;
    KN_TRY(read_strides(name, arg->strides, t));
    KN_REQUIRE(t->data || t->bytes == 0 || place->without_data, KN_E_ARG, "%s: data is NULL, but it has elements",
               name);
    uint32_t item = kn_dtype_size(dtype);
    KN_REQUIRE((uintptr_t)t->data % item == 0, KN_E_ALIGN, "%s: address %p is not a multiple of its element's %u bytes",
               name, t->data, item);
    return check_layout(name, rule, t);
}

/* ---- all tensors ------------------------------------------------------------------------------------------------- */

static kn_status check_overlap(const kn_call *call, int out) {
    const kn_op *op = call->op;
    const kn_tensor *w = &call->tensor[out];
    int first_output = op->n_args - op->n_outputs;
    if (w->dtype == KN_DTYPE_NONE || w->bytes == 0) return KN_OK;
    KN_REQUIRE(!kn_tensor_overlaps_itself(w), KN_E_OVERLAP,
               "%s: an output with a stride that is smaller than what lies inside it writes elements more than once",
               op->args[out].name);
    if (!w->data) return KN_OK;
    bool may_alias = op->may_alias >> (out - first_output) & 1;
    for (int i = 0; i < out; i++) {
        const kn_tensor *t = &call->tensor[i];
        if (t->dtype == KN_DTYPE_NONE || !t->data || !kn_tensors_overlap(w, t)) continue;
        if (may_alias && i < first_output && kn_tensors_identical(w, t)) continue;
        return kn_fail(KN_E_OVERLAP, "%s at %p (%" PRIu64 " bytes) shares memory with %s at %p (%" PRIu64 " bytes)%s",
                       op->args[out].name, w->data, w->bytes, op->args[i].name, t->data, t->bytes,
                       may_alias && i < first_output ? "; wanted the same tensor or none of it" : "");
    }
    return KN_OK;
}

kn_status kn_validate_tensors(const kn_op *op, const DLTensor *const *args, int32_t n_args, const kn_place_rule *place,
                              kn_call *out) {
    KN_REQUIRE(n_args == op->n_args, KN_E_ARG, "got %d tensors; wanted %d", n_args, op->n_args);
    KN_REQUIRE(args, KN_E_ARG, "the array of tensors is NULL");
    out->op = op;
    out->n_tensors = n_args;
    memset(out->letter, 0xff, sizeof out->letter);
    for (int i = 0; i < n_args; i++) {
        out->tensor[i].dtype = KN_DTYPE_NONE;
        out->tensor[i].data = NULL;
        out->tensor[i].bytes = 0;
        if (args[i])
            KN_TRY(read_tensor(out, i, args[i], place));
        else
            KN_REQUIRE(op->args[i].role != 'i', KN_E_ARG, "%s is NULL; it is required", op->args[i].name);
    }
    for (int i = n_args - op->n_outputs; i < n_args; i++) KN_TRY(check_overlap(out, i));
    return KN_OK;
}

/* ---- the problem ------------------------------------------------------------------------------------------------- */

static uint8_t layout_of(const kn_tensor *t) {
    if (contiguous(t, t->ndim - 1)) return KN_LAYOUT_ROWS;
    return contiguous(t, t->ndim - 2) ? KN_LAYOUT_COLS : KN_LAYOUT_ANY;
}

/* Rows that repeat or overlap (a stride of 0: an expanded gradient) count as aligned to nothing but their elements: a
 * tensor map, which aligned tensors may be read through, promises rows that lie apart. */
static uint8_t align_of(const kn_tensor *t, uint8_t layout) {
    uint64_t bits = (uintptr_t)t->data | 128;
    int inner = layout == KN_LAYOUT_ROWS ? t->ndim - 1 : layout == KN_LAYOUT_COLS ? t->ndim - 2 : -1;
    for (int d = 0; d < t->ndim; d++) {
        if (d == inner || t->shape[d] <= 1) continue;
        bool apart = inner < 0 || t->stride[d] >= t->shape[inner];
        bits |= (apart ? (uint64_t)t->stride[d] : 1) * kn_dtype_size(t->dtype);
    }
    return (uint8_t)__builtin_ctzll(bits);
}

kn_status kn_validate_problem(const kn_call *call, kn_problem *p) {
    const kn_op *op = call->op;
    memset(p, 0, sizeof *p);
    p->op = (uint16_t)op->index;
    uint64_t wanted = 0;
    for (int i = 0; i < call->n_tensors; i++) {
        const kn_tensor *t = &call->tensor[i];
        if (t->dtype == KN_DTYPE_NONE) continue;
        p->dtype[i] = (uint8_t)t->dtype;
        p->layout[i] = layout_of(t);
        p->align_log2[i] = align_of(t, p->layout[i]);
        int output = i - (op->n_args - op->n_outputs);
        if (output >= 0) wanted |= (uint64_t)1 << output;
    }
    p->accumulate = ((const kiln_common_options *)call->options)->accumulate & wanted;
    return op->describe(call, p);
}
