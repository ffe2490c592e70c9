/* Planted faults: what the table (planted.c), the seam (planted_backend.c) and the deeds share. */
#ifndef KN_TESTS_PLANTED_H
#define KN_TESTS_PLANTED_H

#include "jit/backend.h"

enum { KN_PLANTED_MAX = 32 };

/* A tensor that a program's launches were given. */
typedef struct kn_planted_tensor {
    kn_extent x;
    unsigned char *before; /* compact copy from before the first launch: of inputs, and of outputs that are added to */
    bool changed;          /* an input that program_end puts back */
} kn_planted_tensor;

typedef struct kn_planted_program {
    void *inner; /* the back end's own */
    uint32_t n, launches;
    kn_planted_tensor tensor[KN_PLANTED_MAX];
    uint64_t *counter, counter_before; /* of skipped ids */
} kn_planted_program;

/* One fault: any of four places to do it in. */
typedef struct kn_planted_fault {
    const char *name, *what;
    void (*text)(char *ptx);                                           /* of every kernel */
    bool (*launch)(kn_planted_program *p, kn_launch_args *args);       /* false: do not run it */
    void (*input)(kn_planted_tensor *t);                               /* before it is read for the first time */
    void (*output)(const kn_planted_program *p, kn_planted_tensor *t); /* when all launches have run */
    void (*map)(kn_tensor_map *map);                                   /* before a tensor map is encoded */
} kn_planted_fault;

extern const kn_planted_fault kn_planted_faults[]; /* ends with a row without a name */

/** Element `linear` of the compact order. */
unsigned char *kn_planted_at(const kn_extent *x, int64_t linear);
int64_t kn_planted_elements(const kn_extent *x);

#endif
