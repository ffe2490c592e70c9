/* safetensors files, reading: see safetensors.h. */
#include "tensors/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LENGTH_BYTES = 8, MAX_HEADER_BYTES = 100 << 20 };

/* A whole number >= 0 of the header. */
static int read_size(const json_t *value, const char *tensor, const char *what, uint64_t *out) {
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return kt_fail(KT_USAGE, "tensor \"%s\": %s must be a whole number >= 0", tensor, what);
    *out = (uint64_t)json_integer_value(value);
    return KT_GOOD;
}

static int read_shape(const json_t *shape, kt_st_tensor *t) {
    if (!json_is_array(shape)) return kt_fail(KT_USAGE, "tensor \"%s\" has no list \"shape\"", t->name);
    size_t rank = json_array_size(shape);
    if (rank > KT_MAX_RANK)
        return kt_fail(KT_USAGE, "tensor \"%s\" has %zu dimensions; at most %d are supported", t->name, rank,
                       KT_MAX_RANK);
    t->rank = (int)rank;
    t->elements = 1;
    for (size_t i = 0; i < rank; i++) {
        uint64_t size = 0;
        KT_TRY(read_size(json_array_get(shape, i), t->name, "a size in \"shape\"", &size));
        t->shape[i] = (int64_t)size;
        if (__builtin_mul_overflow(t->elements, size, &t->elements))
            return kt_fail(KT_USAGE, "tensor \"%s\": its shape has more than 2^64 elements", t->name);
    }
    return KT_GOOD;
}

/* Offsets count from the end of the header, `room` bytes before the end of the file. */
static int read_offsets(const json_t *offsets, kt_st_tensor *t, uint64_t room, uint64_t *begin) {
    if (!json_is_array(offsets) || json_array_size(offsets) != 2)
        return kt_fail(KT_USAGE, "tensor \"%s\" has no pair \"data_offsets\"", t->name);
    uint64_t end = 0, expected;
    KT_TRY(read_size(json_array_get(offsets, 0), t->name, "an offset", begin));
    KT_TRY(read_size(json_array_get(offsets, 1), t->name, "an offset", &end));
    if (*begin > end || end > room)
        return kt_fail(KT_USAGE,
                       "tensor \"%s\" has bytes %" PRIu64 " to %" PRIu64 "; the file has %" PRIu64 " after its header",
                       t->name, *begin, end, room);
    t->bytes = end - *begin;
    if (__builtin_mul_overflow(t->elements, (uint64_t)t->dtype->bits / 8, &expected))
        return kt_fail(KT_USAGE, "tensor \"%s\": its shape and type need more than 2^64 bytes", t->name);
    if (expected != t->bytes)
        return kt_fail(KT_USAGE, "tensor \"%s\" has %" PRIu64 " bytes; its shape and type need %" PRIu64, t->name,
                       t->bytes, expected);
    return KT_GOOD;
}

static int read_tensor(const char *name, json_t *row, uint64_t room, kt_st_tensor *t, uint64_t *begin) {
    t->name = name;
    if (!json_is_object(row)) return kt_fail(KT_USAGE, "tensor \"%s\" is not described by an object", name);
    const char *key;
    json_t *value;
    json_object_foreach(row, key, value) {
        if (!kt_choice("dtype,shape,data_offsets", key, NULL))
            return kt_fail(KT_USAGE, "tensor \"%s\" has an unknown field \"%s\"", name, key);
    }
    const char *dtype = json_string_value(json_object_get(row, "dtype"));
    if (!dtype) return kt_fail(KT_USAGE, "tensor \"%s\" has no string \"dtype\"", name);
    t->dtype = kt_dtype_of_safetensors(dtype);
    if (!t->dtype)
        return kt_fail(KT_USAGE,
                       "tensor \"%s\" has dtype \"%s\"; supported are BF16, F16, F32, F64, I64, I32, I16, I8, U8, BOOL",
                       name, dtype);
    KT_TRY(read_shape(json_object_get(row, "shape"), t));
    return read_offsets(json_object_get(row, "data_offsets"), t, room, begin);
}

static int check_metadata(json_t *metadata) {
    if (!metadata) return KT_GOOD;
    if (!json_is_object(metadata)) return kt_fail(KT_USAGE, "\"__metadata__\" is not an object");
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value) if (!json_is_string(value)) return kt_fail(
        KT_USAGE, "\"__metadata__\": the value of \"%s\" is not a string", key);
    return KT_GOOD;
}

static int by_bytes(const void *pa, const void *pb) {
    const kt_st_tensor *a = pa, *b = pb;
    uintptr_t x = (uintptr_t)a->data, y = (uintptr_t)b->data;
    if (x != y) return x < y ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1; /* empty ones first: they overlap nothing */
    return strcmp(a->name, b->name);
}

/* The tensors, sorted, must fill the bytes after the header: no overlap, no gap, nothing behind. */
static int check_cover(const kt_safetensors *file, const unsigned char *data, uint64_t room) {
    uint64_t at = 0;
    for (size_t i = 0; i < file->n; i++) {
        const kt_st_tensor *t = &file->tensor[i];
        uint64_t begin = (uint64_t)((const unsigned char *)t->data - data);
        if (begin < at)
            return kt_fail(KT_USAGE, "tensors \"%s\" and \"%s\" overlap", file->tensor[i - 1].name, t->name);
        if (begin > at)
            return kt_fail(KT_USAGE, "%" PRIu64 " bytes before tensor \"%s\" belong to no tensor", begin - at, t->name);
        at = begin + t->bytes;
    }
    if (at != room) return kt_fail(KT_USAGE, "the last %" PRIu64 " bytes of the file belong to no tensor", room - at);
    return KT_GOOD;
}

static int read_header(kt_safetensors *out, const unsigned char *text, size_t n) {
    if (n == 0 || text[0] != '{') return kt_fail(KT_USAGE, "not a safetensors file: its header does not start with {");
    json_error_t error;
    out->header = json_loadb((const char *)text, n, JSON_REJECT_DUPLICATES, &error);
    if (!out->header) return kt_fail(KT_USAGE, "not a safetensors file: its header is not valid JSON: %s", error.text);
    if (!json_is_object(out->header)) return kt_fail(KT_USAGE, "the header is not a JSON object");
    return check_metadata(json_object_get(out->header, "__metadata__"));
}

static int read_tensors(kt_safetensors *out, const unsigned char *data, uint64_t room) {
    out->tensor = kt_alloc(json_object_size(out->header), sizeof *out->tensor);
    const char *name;
    json_t *row;
    json_object_foreach(out->header, name, row) {
        if (strcmp(name, "__metadata__") == 0) continue;
        uint64_t begin = 0;
        kt_st_tensor *t = &out->tensor[out->n];
        KT_TRY(read_tensor(name, row, room, t, &begin));
        t->data = data + begin;
        out->n++;
    }
    qsort(out->tensor, out->n, sizeof *out->tensor, by_bytes);
    return check_cover(out, data, room);
}

int kt_safetensors_parse(const void *bytes, size_t n, kt_safetensors *out) {
    *out = (kt_safetensors){0};
    const unsigned char *b = bytes;
    if (n < LENGTH_BYTES) return kt_fail(KT_USAGE, "not a safetensors file: it has only %zu bytes", n);
    uint64_t header = 0;
    for (int i = 0; i < LENGTH_BYTES; i++) header |= (uint64_t)b[i] << 8 * i;
    if (header > MAX_HEADER_BYTES)
        return kt_fail(KT_USAGE, "not a safetensors file: its header would have %" PRIu64 " bytes, more than %d",
                       header, MAX_HEADER_BYTES);
    if (header > n - LENGTH_BYTES)
        return kt_fail(KT_USAGE, "the file ends inside its header: %" PRIu64 " bytes of header, %zu of file", header,
                       n);
    const unsigned char *data = b + LENGTH_BYTES + header;
    int code = read_header(out, b + LENGTH_BYTES, (size_t)header);
    if (code == KT_GOOD) code = read_tensors(out, data, n - LENGTH_BYTES - header);
    if (code != KT_GOOD) kt_safetensors_close(out);
    return code;
}

int kt_safetensors_open(const char *path, kt_safetensors *out) {
    *out = (kt_safetensors){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        int err = errno;
        if (fd >= 0) close(fd);
        return kt_fail(KT_ENVIRONMENT, "%s: %s", path, strerror(err));
    }
    if (!S_ISREG(st.st_mode) || st.st_size == 0) {
        close(fd);
        return kt_fail(KT_USAGE, "%s: not a safetensors file: %s", path,
                       S_ISREG(st.st_mode) ? "it is empty" : "it is not a regular file");
    }
    size_t n = (size_t)st.st_size;
    void *map = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
    int err = errno;
    close(fd);
    if (map == MAP_FAILED) return kt_fail(KT_ENVIRONMENT, "%s: %s", path, strerror(err));
    int code = kt_safetensors_parse(map, n, out);
    if (code != KT_GOOD) {
        munmap(map, n);
        return kt_prefix(code, "%s: ", path);
    }
    out->map = map;
    out->map_bytes = n;
    return KT_GOOD;
}

void kt_safetensors_close(kt_safetensors *file) {
    free(file->tensor);
    json_decref(file->header);
    if (file->map) munmap(file->map, file->map_bytes);
    *file = (kt_safetensors){0};
}

const kt_st_tensor *kt_safetensors_find(const kt_safetensors *file, const char *name) {
    for (size_t i = 0; i < file->n; i++)
        if (strcmp(file->tensor[i].name, name) == 0) return &file->tensor[i];
    return NULL;
}

const char *kt_safetensors_metadata(const kt_safetensors *file, const char *key) {
    return json_string_value(json_object_get(json_object_get(file->header, "__metadata__"), key));
}
