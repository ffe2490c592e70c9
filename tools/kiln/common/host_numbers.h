/* Elements of tensors as float64 and back, and random numbers. Needs libc alone: the tests compile it, too. */
#ifndef KILN_TOOL_HOST_NUMBERS_H
#define KILN_TOOL_HOST_NUMBERS_H

#include <stdint.h>

/* DLPack's codes of types. */
enum { KT_DL_INT = 0, KT_DL_UINT = 1, KT_DL_FLOAT = 2, KT_DL_BFLOAT = 4, KT_DL_BOOL = 6 };

/** The element of that type at `at`, aligned or not. */
double kt_number_load(unsigned code, unsigned bits, const void *at);
/** The inverse; rounds to nearest even. */
void kt_number_store(unsigned code, unsigned bits, void *at, double value);

/* Numbers in order from one seed. */
typedef struct kt_random {
    uint64_t state;
} kt_random;

/** 64 random bits, uniform in [0, 1), a normal number, uniform in [0, n). */
uint64_t kt_random_bits(kt_random *r);
double kt_random_uniform(kt_random *r);
double kt_random_normal(kt_random *r);
int64_t kt_random_below(kt_random *r, int64_t n);

#endif
