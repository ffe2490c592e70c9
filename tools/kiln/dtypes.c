/* Element types: see dtypes.h. */
#include "dtypes.h"

#include <math.h>
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

static double half_value(uint16_t h) {
    int exponent = h >> 10 & 31;
    double fraction = h & 1023;
    double size = exponent == 31 ? (fraction != 0.0 ? (double)NAN : (double)INFINITY)
                  : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                 : ldexp(fraction, -24);
    return h >> 15 ? -size : size;
}

double kt_element(const kt_dtype *dtype, const void *data, uint64_t i) {
    const unsigned char *at = (const unsigned char *)data + i * (dtype->bits / 8u);
    uint64_t raw = 0;
    memcpy(&raw, at, dtype->bits / 8u); /* little-endian, as the file is */
    float f;
    double d;
    switch (dtype->code << 8 | dtype->bits) {
    case KT_DL_BFLOAT << 8 | 16: {
        uint32_t wide = (uint32_t)raw << 16;
        memcpy(&f, &wide, sizeof f);
        return (double)f;
    }
    case KT_DL_FLOAT << 8 | 16: return half_value((uint16_t)raw);
    case KT_DL_FLOAT << 8 | 32: memcpy(&f, &raw, sizeof f); return (double)f;
    case KT_DL_FLOAT << 8 | 64: memcpy(&d, &raw, sizeof d); return d;
    case KT_DL_INT << 8 | 64: return (double)(int64_t)raw;
    case KT_DL_INT << 8 | 32: return (double)(int32_t)(uint32_t)raw;
    case KT_DL_INT << 8 | 16: return (double)(int16_t)(uint16_t)raw;
    case KT_DL_INT << 8 | 8: return (double)(int8_t)(uint8_t)raw;
    default: return (double)raw; /* unsigned bytes, bools */
    }
}
