/* Element types: see dtypes.h. */
#include "tensors/dtypes.h"

#include <string.h>

static const kt_dtype dtypes[] = {
    {"bf16", "BF16", KT_DL_BFLOAT, 16}, {"f16", "F16", KT_DL_FLOAT, 16}, {"f32", "F32", KT_DL_FLOAT, 32},
    {"f64", "F64", KT_DL_FLOAT, 64},    {"i64", "I64", KT_DL_INT, 64},   {"i32", "I32", KT_DL_INT, 32},
    {"i16", "I16", KT_DL_INT, 16},      {"i8", "I8", KT_DL_INT, 8},      {"u8", "U8", KT_DL_UINT, 8},
    {"bool", "BOOL", KT_DL_BOOL, 8},
};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

const kt_dtype *kt_dtype_named(const char *name) {
    for (int i = 0; i < N_DTYPES; i++)
        if (strcmp(dtypes[i].name, name) == 0) return &dtypes[i];
    return NULL;
}

const kt_dtype *kt_dtype_of_safetensors(const char *name) {
    for (int i = 0; i < N_DTYPES; i++)
        if (strcmp(dtypes[i].safetensors, name) == 0) return &dtypes[i];
    return NULL;
}

bool kt_dtype_allowed(const kt_dtype *dtype, const char *list) {
    if (strcmp(list, "any") == 0) return true;
    if (strcmp(list, "int") == 0) return strcmp(dtype->name, "i32") == 0 || strcmp(dtype->name, "i64") == 0;
    if (strcmp(list, "bool") == 0) return strcmp(dtype->name, "bool") == 0 || strcmp(dtype->name, "u8") == 0;
    return kt_choice(list, dtype->name, NULL);
}

double kt_element(const kt_dtype *dtype, const void *data, uint64_t i) {
    return kt_number_load(dtype->code, dtype->bits, (const unsigned char *)data + i * (dtype->bits / 8u));
}
