/* ops/activation: the checks of a call's activation, for all operations that have one. */
#ifndef KN_OPS_ACTIVATION_H
#define KN_OPS_ACTIVATION_H

#include "jit/program.h"
#include "kiln/kiln.h"

/** alpha (0 stands for 1), limit (infinite: none, 0) and offset as the bits of floats, as templates take them; a
 * caller's function is kept and named in p->source. KN_E_ARG for numbers that are no finite floats, or beside a
 * function. */
kn_status kn_describe_activation(const kiln_activation *a, kn_problem *p, int64_t *alpha, int64_t *limit,
                                 int64_t *offset);

#endif
