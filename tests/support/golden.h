/* Golden cases as problems: the tensors of a file in tests/data/golden, ready to run and to check. */
#ifndef KN_TESTS_SUPPORT_GOLDEN_H
#define KN_TESTS_SUPPORT_GOLDEN_H

#include "support/problem_gen.h"

/** The inputs of `path` as a problem whose outputs are of type `out_dtype` (where there is a choice): those that the
 * file has. Bit i of `absent` leaves argument i out. Options other than the defaults are set by `options` (may be NULL:
 * the struct as in kn_gen_config). g->exact holds the file's outputs, g->magnitude the reference's. */
kn_status kn_golden_load(const char *path, kn_dtype out_dtype, uint64_t absent, const void *options, kn_gen **out);

/** Call `each` with the path of every golden case of `op`, in no order; returns how many there are. Paths stand in
 *  KN_SOURCE_DIR. */
int kn_golden_each(const char *op, void (*each)(const char *path, void *user), void *user);

#endif
