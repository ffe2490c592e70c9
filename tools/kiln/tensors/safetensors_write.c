/* safetensors files, writing: see safetensors.h. */
#include "tensors/safetensors.h"

#include "common/replace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Wide elements first, so that every tensor is aligned to its element; then by name. */
static int by_width(const void *pa, const void *pb) {
    const kt_st_tensor *a = *(const kt_st_tensor *const *)pa, *b = *(const kt_st_tensor *const *)pb;
    if (a->dtype->bits != b->dtype->bits) return a->dtype->bits > b->dtype->bits ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* The header as text, padded so that the tensors start at a multiple of 8. */
static char *header_text(const kt_st_tensor *const *sorted, size_t n, const json_t *metadata, size_t *bytes) {
    json_t *header = json_object();
    if (metadata) json_object_set_new(header, "__metadata__", json_deep_copy(metadata));
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const kt_st_tensor *t = sorted[i];
        json_t *shape = json_array();
        for (int d = 0; d < t->rank; d++) json_array_append_new(shape, json_integer(t->shape[d]));
        json_t *offsets = json_array();
        json_array_append_new(offsets, json_integer((json_int_t)at));
        json_array_append_new(offsets, json_integer((json_int_t)(at + t->bytes)));
        json_t *row = json_object();
        json_object_set_new(row, "dtype", json_string(t->dtype->safetensors));
        json_object_set_new(row, "shape", shape);
        json_object_set_new(row, "data_offsets", offsets);
        json_object_set_new(header, t->name, row);
        at += t->bytes;
    }
    char *text = json_dumps(header, JSON_COMPACT);
    json_decref(header);
    if (!text) return NULL;
    size_t length = strlen(text), padded = (length + 7) / 8 * 8;
    text = kt_grow(text, 1, padded + 1);
    memset(text + length, ' ', padded - length);
    text[padded] = '\0';
    *bytes = padded;
    return text;
}

static bool write_all(FILE *file, const char *header, size_t header_bytes, const kt_st_tensor *const *sorted,
                      size_t n) {
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)header_bytes >> 8 * i);
    bool good = fwrite(length, 1, sizeof length, file) == sizeof length;
    good = good && fwrite(header, 1, header_bytes, file) == header_bytes;
    for (size_t i = 0; good && i < n; i++)
        good = sorted[i]->bytes == 0 || fwrite(sorted[i]->data, 1, sorted[i]->bytes, file) == sorted[i]->bytes;
    return good;
}

int kt_safetensors_write(const char *path, const kt_st_tensor *tensors, size_t n, const json_t *metadata) {
    const kt_st_tensor **sorted = kt_alloc(n, sizeof *sorted);
    for (size_t i = 0; i < n; i++) sorted[i] = &tensors[i];
    qsort(sorted, n, sizeof *sorted, by_width);
    size_t header_bytes = 0;
    char *header = header_text(sorted, n, metadata, &header_bytes);
    kt_replacement r;
    int code = header ? kt_replace_begin(&r, path)
                      : kt_fail(KT_ENVIRONMENT, "cannot write %s: a name is not valid UTF-8", path);
    if (code == KT_GOOD) code = kt_replace_end(&r, write_all(r.file, header, header_bytes, sorted, n));
    free(header);
    free(sorted);
    return code;
}
