/* ops/compare: compare an operation's outputs with its float64 reference by the tolerances of docs/numerics.md. */
#ifndef KN_OPS_COMPARE_H
#define KN_OPS_COMPARE_H

#include "jit/program.h"
#include "kiln/kiln_tools.h"

/** Compare the host output tensors of `call` with exact[i] and magnitude[i], as the reference fills them. results[i] is
 *  output i's; an output that is absent or has no exact[i] passes with nothing compared. A difference is no failure of
 *  this function: results[i].pass says it, and results[i].message where. */
kn_status kn_compare(const kn_call *call, const double *const *exact, const double *const *magnitude,
                     kiln_check_result *results);

#endif
