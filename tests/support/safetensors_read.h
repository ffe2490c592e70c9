/* A safetensors file as tests need it: all tensors in memory, found by name. */
#ifndef KN_TESTS_SUPPORT_SAFETENSORS_READ_H
#define KN_TESTS_SUPPORT_SAFETENSORS_READ_H

#include "jit/program.h"

enum { KN_ST_MAX = 64 };

typedef struct kn_st_tensor {
    char name[64];
    kn_dtype dtype;
    int ndim;
    int64_t shape[5];
    void *data;
} kn_st_tensor;

typedef struct kn_st_file {
    char *bytes;
    int n;
    kn_st_tensor tensor[KN_ST_MAX];
    char op[64];        /* metadata "op" */
    char options[1024]; /* metadata "options": JSON */
} kn_st_file;

kn_status kn_st_read(const char *path, kn_st_file *out);
void kn_st_free(kn_st_file *f);
/** NULL if there is none of that name. */
const kn_st_tensor *kn_st_find(const kn_st_file *f, const char *name);
/** A number of the options, true and false as 1 and 0; `dflt` if it is not there. */
double kn_st_option(const kn_st_file *f, const char *name, double dflt);

#endif
