/* What `kiln warm` builds for: calls from record files and from models by name. */
#ifndef KILN_TOOL_WARM_LIST_H
#define KILN_TOOL_WARM_LIST_H

#include "shapes/sizes.h"

/* A call that is only described. */
typedef struct kt_warm_call {
    const kt_op *op;
    char *what;  /* where it comes from: "shapes.jsonl:12", "GLM-4.5-Air T=128" */
    char *group; /* the file or the model */
    kt_call call;
    bool strided[KT_MAX_ARGS];
    int64_t strides[KT_MAX_ARGS][KT_MAX_RANK];
    uint32_t align[KT_MAX_ARGS]; /* of the address, in bytes; 0: any that may be wanted */
} kt_warm_call;

typedef struct kt_warm_list {
    kt_warm_call **item;
    size_t n;
    json_t *skipped; /* [{"model", "op", "why"}]: operations that are nothing a model does */
} kt_warm_list;

/** What is asked of models: operations (all that a model does if empty) and token counts; `sizes` adds to every call
 *  (its op and base are not looked at). */
typedef struct kt_warm_models {
    kt_list names; /* "GLM-4.5-Air", "all" */
    kt_list ops;
    const int64_t *tokens;
    size_t n_tokens;
    const kt_sizes *sizes;
} kt_warm_models;

void kt_warm_list_begin(kt_warm_list *list);
/** Calls of one file: a line each, as KILN_RECORD and KILN_ON_MISS=error give them. */
int kt_warm_list_file(kt_warm_list *list, const char *path);
int kt_warm_list_models(kt_warm_list *list, const kt_warm_models *models);
void kt_warm_list_free(kt_warm_list *list);

/* The call's tensors on one device, for one thread. */
typedef struct kt_warm_args {
    DLTensor tensor[KT_MAX_ARGS];
    const void *arg[KT_MAX_ARGS];
} kt_warm_args;
void kt_warm_args_fill(const kt_warm_call *c, int32_t device_type, int32_t device_id, kt_warm_args *out);

#endif
