/* safetensors files: 8 bytes header length, a JSON header, the tensors' bytes. Reading is strict: a file that this
 * reader accepts is one that every reader understands in the same way. */
#ifndef KILN_TOOL_SAFETENSORS_H
#define KILN_TOOL_SAFETENSORS_H

#include "tensors/dtypes.h"

#include <jansson.h>

enum { KT_MAX_RANK = 8 };

typedef struct kt_st_tensor {
    const char *name;
    const kt_dtype *dtype;
    int rank;
    int64_t shape[KT_MAX_RANK];
    uint64_t elements, bytes;
    const void *data; /* compact, row-major; aligned to nothing */
} kt_st_tensor;

typedef struct kt_safetensors {
    kt_st_tensor *tensor; /* in the order of their bytes */
    size_t n;
    json_t *header; /* owns the names */
    void *map;      /* of kt_safetensors_open */
    size_t map_bytes;
} kt_safetensors;

/** Read `bytes` (which must outlive *out). KT_USAGE and a sentence for a file that is not valid. */
int kt_safetensors_parse(const void *bytes, size_t n, kt_safetensors *out);
int kt_safetensors_open(const char *path, kt_safetensors *out);
void kt_safetensors_close(kt_safetensors *file);

const kt_st_tensor *kt_safetensors_find(const kt_safetensors *file, const char *name); /* NULL if absent */
const char *kt_safetensors_metadata(const kt_safetensors *file, const char *key);      /* NULL if absent */

/** Write a file, by way of a temporary one beside it. `metadata`: an object of strings, or NULL. */
int kt_safetensors_write(const char *path, const kt_st_tensor *tensors, size_t n, const json_t *metadata);

#endif
