/* Making a failing case small. */
#ifndef KILN_TOOL_FUZZ_SHRINK_H
#define KILN_TOOL_FUZZ_SHRINK_H

#include "fuzz/fuzz_run.h"

/** Change *c, which failed with *finding, into the smallest case found that fails in the same way, and *finding with
 * it. Returns how many cases were run for it, at most `most_runs`. */
int kt_fuzz_shrink(kt_fuzz_machine *machine, kt_fuzz_case *c, kt_fuzz_finding *finding, int most_runs);

#endif
