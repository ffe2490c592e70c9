/* Element types: their names here, in safetensors files, and in DLPack. */
#ifndef KILN_TOOL_DTYPES_H
#define KILN_TOOL_DTYPES_H

#include "common/host_numbers.h"
#include "common/tool.h"

#include "kiln/kiln.h"

typedef struct kt_dtype {
    const char *name;        /* "bf16": as kiln_abi.def and --dtype spell it */
    const char *safetensors; /* "BF16" */
    uint8_t code, bits;      /* DLPack */
} kt_dtype;

const kt_dtype *kt_dtype_named(const char *name);          /* NULL if unknown */
const kt_dtype *kt_dtype_of_safetensors(const char *name); /* NULL if unknown */
/** Does the column `dtypes` of kiln_abi.def ("bf16,f16", "int", "any", ...; not "=name") contain it? */
bool kt_dtype_allowed(const kt_dtype *dtype, const char *dtypes);

/** Element `i` of `data` (aligned or not) as float64. */
double kt_element(const kt_dtype *dtype, const void *data, uint64_t i);

#endif
