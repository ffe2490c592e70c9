/* Cases that end the process: the signal's handler names the case before the process leaves with KT_CHECK. */
#ifndef KILN_TOOL_FUZZ_CRASH_H
#define KILN_TOOL_FUZZ_CRASH_H

#include "fuzz/fuzz_case.h"

/** Watch for crashes, and for cases that take longer than `seconds`. */
void kt_fuzz_crash_watch(unsigned seconds);
/** The case that runs from now on. */
void kt_fuzz_crash_case(const char *op, uint64_t seed, uint64_t number);
void kt_fuzz_crash_end(void);

#endif
