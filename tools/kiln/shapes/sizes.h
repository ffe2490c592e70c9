/* A call from sizes alone: which arguments it has, their types and shapes, its options. `kiln plan` takes them from the
 * command line, over what a model gives. */
#ifndef KILN_TOOL_SIZES_H
#define KILN_TOOL_SIZES_H

#include "tensors/tensors.h"

/* All strings are borrowed. */
typedef struct kt_sizes {
    const kt_op *op;
    const json_t *base; /* of kt_model_call, or NULL */
    kt_list axes;       /* "B=130" */
    kt_list settings;   /* "top_k=3" */
    kt_list dtypes;     /* "bf16", "hidden_states=f16" */
    kt_list with, without;
} kt_sizes;

/* What comes of it. */
typedef struct kt_call {
    json_t *settings; /* owns the strings in `options` */
    void *options;    /* the operation's option struct */
    kt_tensors tensors;
} kt_call;

/** Fill *out (kt_call_free it, also after a failure): tensors without memory, of a shape and a type each. */
int kt_sizes_call(const kt_sizes *sizes, kt_call *out);
void kt_call_free(kt_call *call);
/** Free the lists; `base` stays. */
void kt_sizes_free(kt_sizes *sizes);

#endif
