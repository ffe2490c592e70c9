/* Reads safetensors files for tests: 8 bytes of header length, a JSON header, the data. */
#include "support/safetensors_read.h"

#include "base/alloc.h"
#include "base/file.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static kn_dtype dtype_of(const char *name) {
    static const struct {
        const char *name;
        kn_dtype dtype;
    } rows[] = {{"BF16", KN_BF16}, {"F16", KN_F16}, {"F32", KN_F32},   {"F64", KN_F64}, {"I32", KN_I32},
                {"I64", KN_I64},   {"U8", KN_U8},   {"BOOL", KN_BOOL}, {"I8", KN_I8}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].name, name) == 0) return rows[i].dtype;
    }
    return KN_DTYPE_NONE;
}

static kn_status read_tensor(const char *name, const json_t *row, char *data, size_t len, kn_st_tensor *out) {
    const json_t *shape = json_object_get(row, "shape"), *offsets = json_object_get(row, "data_offsets");
    const char *dtype = json_string_value(json_object_get(row, "dtype"));
    KN_REQUIRE(dtype && json_is_array(shape) && json_array_size(offsets) == 2 && json_array_size(shape) <= 5,
               KN_E_FORMAT, "tensor %s: dtype, shape or data_offsets is missing", name);
    snprintf(out->name, sizeof out->name, "%s", name);
    out->dtype = dtype_of(dtype);
    out->ndim = (int)json_array_size(shape);
    size_t bytes = kn_dtype_size(out->dtype);
    for (int d = 0; d < out->ndim; d++) {
        out->shape[d] = json_integer_value(json_array_get(shape, (size_t)d));
        bytes *= (size_t)out->shape[d];
    }
    size_t from = (size_t)json_integer_value(json_array_get(offsets, 0));
    size_t to = (size_t)json_integer_value(json_array_get(offsets, 1));
    KN_REQUIRE(out->dtype != KN_DTYPE_NONE && from <= to && to <= len && to - from == bytes, KN_E_FORMAT,
               "tensor %s: its %zu bytes of %s do not lie at [%zu, %zu) of %zu", name, bytes, dtype, from, to, len);
    out->data = data + from;
    return KN_OK;
}

static void copy_text(const json_t *metadata, const char *key, char *out, size_t cap) {
    const char *text = json_string_value(json_object_get(metadata, key));
    snprintf(out, cap, "%s", text ? text : "");
}

kn_status kn_st_read(const char *path, kn_st_file *out) {
    size_t len;
    uint64_t header_len = 0;
    memset(out, 0, sizeof *out);
    KN_TRY(kn_file_read(path, (size_t)1 << 30, &out->bytes, &len));
    if (len >= 8) memcpy(&header_len, out->bytes, 8);
    if (len < 8 || header_len > len - 8) return kn_fail(KN_E_FORMAT, "%s is not a safetensors file", path);
    json_error_t error;
    json_t *header = json_loadb(out->bytes + 8, header_len, 0, &error);
    KN_REQUIRE(header, KN_E_FORMAT, "%s: header: %s", path, error.text);
    kn_status st = KN_OK;
    const char *name;
    json_t *row;
    json_object_foreach(header, name, row) {
        if (strcmp(name, "__metadata__") == 0) {
            copy_text(row, "op", out->op, sizeof out->op);
            copy_text(row, "options", out->options, sizeof out->options);
            continue;
        }
        if (out->n == KN_ST_MAX) {
            st = kn_fail(KN_E_FORMAT, "%s has more than %d tensors", path, KN_ST_MAX);
            break;
        }
        st = read_tensor(name, row, out->bytes + 8 + header_len, len - 8 - header_len, &out->tensor[out->n++]);
        if (st != KN_OK) break;
    }
    json_decref(header);
    return st;
}

void kn_st_free(kn_st_file *f) {
    kn_free(f->bytes);
    memset(f, 0, sizeof *f);
}

const kn_st_tensor *kn_st_find(const kn_st_file *f, const char *name) {
    for (int i = 0; i < f->n; i++) {
        if (strcmp(f->tensor[i].name, name) == 0) return &f->tensor[i];
    }
    return NULL;
}

double kn_st_option(const kn_st_file *f, const char *name, double dflt) {
    json_t *options = json_loads(f->options, 0, NULL);
    const json_t *value = json_object_get(options, name);
    double v = dflt;
    if (json_is_number(value)) v = json_number_value(value);
    if (json_is_boolean(value)) v = json_is_true(value) ? 1 : 0;
    json_decref(options);
    return v;
}
