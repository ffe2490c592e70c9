/* The tensors of one call: shapes from axis letters, memory on the host and on the device, DLTensors over both. */
#ifndef KILN_TOOL_TENSORS_H
#define KILN_TOOL_TENSORS_H

#include "abi/library.h"
#include "tensors/safetensors.h"

typedef struct kt_tensor {
    bool present;
    const kt_dtype *dtype;
    int rank;
    int64_t shape[KT_MAX_RANK];
    uint64_t elements, bytes;
    void *host;   /* NULL: a tensor that is only described */
    void *device; /* `host` itself where the device is the host */
    DLTensor on_host, on_device;
} kt_tensor;

typedef struct kt_tensors {
    const kt_op *op;
    bool ragged_k;    /* of grouped_gemm: its option decides some shapes */
    int64_t size[26]; /* by axis letter; -1 = not known */
    kt_tensor tensor[KT_MAX_ARGS];
    /* What calls take: NULL where absent. on_device is filled by kt_tensors_upload and kt_tensors_describe. */
    const void *on_host[KT_MAX_ARGS], *on_device[KT_MAX_ARGS];
    bool device_is_host;
} kt_tensors;

/** `options`: the operation's option struct, filled. */
void kt_tensors_begin(kt_tensors *ts, const kt_op *op, const void *options);
/** Argument i has this type and shape. Sizes of axes that are not known yet are learned from it. */
int kt_tensors_set(kt_tensors *ts, int i, const kt_dtype *dtype, int rank, const int64_t *shape);
/** Argument i has this type and the shape that the axes known so far give it. */
int kt_tensors_derive(kt_tensors *ts, int i, const kt_dtype *dtype);
/** The type that argument i gets when nobody says otherwise: the table's only one, that of the argument that it
 * follows, or (outputs) that of the operation's first input of a free type. */
const kt_dtype *kt_tensors_default_dtype(const kt_tensors *ts, int i);

/** The words of --dtype: ARGUMENT=TYPE, and TYPE for all arguments whose type is free. A usage error if one is neither.
 */
int kt_dtype_words_check(const kt_list *words, const kt_op *op);
/** *dtype = the type that they give argument i; it stays if they give none. A usage error if it may not have that one.
 */
int kt_dtype_words_choose(const kt_list *words, const kt_op *op, int i, const kt_dtype **dtype);

/** Host memory for argument i, 256-byte aligned; copied from `data`, or all bytes 0xFF (NaN) when that is NULL. */
void kt_tensors_host(kt_tensors *ts, int i, const void *data);
/** Device memory for all tensors that have host memory, and their contents. */
int kt_tensors_upload(kt_tensors *ts, kt_library *lib, void *ctx);
/** Copy all tensors of role out to the device again (before another run that adds to them, or to erase them). */
int kt_tensors_upload_outputs(kt_tensors *ts, kt_library *lib, void *ctx);
/** Copy the outputs back to the host. */
int kt_tensors_download(kt_tensors *ts, kt_library *lib, void *ctx);
/** Device tensors without memory, for plans. */
int kt_tensors_describe(kt_tensors *ts, kt_library *lib, void *ctx);
void kt_tensors_free(kt_tensors *ts, kt_library *lib, void *ctx); /* lib and ctx may be NULL after a failure */

/** "B=130 E=100 K=3"; free it. */
char *kt_tensors_axes_text(const kt_tensors *ts);
/** "[12,7]" for element `index` of argument i, in `buf`. */
const char *kt_tensors_place(const kt_tensor *t, uint64_t index, char *buf, size_t cap);

#endif
