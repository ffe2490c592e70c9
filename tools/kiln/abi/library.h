/* libkiln, opened at run time and called through libffi from the rows of kiln_abi.def, as any foreign language would.
 */
#ifndef KILN_TOOL_LIBRARY_H
#define KILN_TOOL_LIBRARY_H

#include "abi/table.h"

#include <jansson.h>

typedef struct kt_library kt_library;

/** Open `path`, or, when NULL, KILN_LIBRARY, the library next to the program, the installed one, or the system's.
 * Checks the interface's version and that every function of the table is there. */
int kt_library_open(const char *path, kt_library **out);
void kt_library_close(kt_library *lib); /* NULL is fine */
const char *kt_library_path(const kt_library *lib);

/* One argument of a call; the letters are kiln_abi.def's. */
typedef struct kt_value {
    char letter;
    union {
        int32_t i;
        int64_t I;
        uint32_t u;
        uint64_t U;
        double d;
        const void *p;
    } as;
} kt_value;

#define KT_I32(v) ((kt_value){'i', {.i = (v)}})
#define KT_I64(v) ((kt_value){'I', {.I = (v)}})
#define KT_U32(v) ((kt_value){'u', {.u = (v)}})
#define KT_U64(v) ((kt_value){'U', {.U = (v)}})
#define KT_STR(v) ((kt_value){'s', {.p = (v)}})
#define KT_PTR(v) ((kt_value){'p', {.p = (v)}})

/** Call a function of the table. A call that does not fit its row is a bug of the tool and aborts. */
int32_t kt_call_values(kt_library *lib, const char *function, size_t n, const kt_value *values);
#define KT_CALL(lib, function, ...)                                                                                    \
    kt_call_values((lib), (function), sizeof((kt_value[]){__VA_ARGS__}) / sizeof(kt_value), (kt_value[]){__VA_ARGS__})
/** Call a function that returns a string ("" for NULL). */
const char *kt_call_string(kt_library *lib, const char *function, size_t n, const kt_value *values);

/** Does this library have the operation? Libraries may be older or smaller than the tool's table. */
bool kt_library_has_op(const kt_library *lib, const kt_op *op);
/** Call an operation; tensors[i] (a DLTensor or NULL) belongs to argument i. Returns an exit code, as kt_status. */
int kt_call_op(kt_library *lib, const kt_op *op, void *ctx, const void *const *tensors, const void *options,
               void *stream);

/** The exit code that a kiln_status means; when it is not KT_GOOD, the library's sentence becomes the tool's. */
int kt_status(kt_library *lib, int32_t status);

/** Call a function whose last three arguments are (buf, cap, needed) and parse the JSON text that it writes. `values`
 *  are the arguments before them. */
int kt_call_json(kt_library *lib, const char *function, size_t n, const kt_value *values, json_t **out);
#define KT_CALL_JSON(lib, out, function, ...)                                                                          \
    kt_call_json((lib), (function), sizeof((kt_value[]){__VA_ARGS__}) / sizeof(kt_value), (kt_value[]){__VA_ARGS__},   \
                 (out))

#endif
