/* jit/backend_planted: where a test build plants faults, to prove that `kiln fuzz` finds them. A library that is built
 * without KILN_PLANTED_FAULTS, as every shipped one is, has nothing here. The faults: tests/planted/planted.c. */
#ifndef KN_JIT_BACKEND_PLANTED_H
#define KN_JIT_BACKEND_PLANTED_H

#include "jit/backend.h"

#ifdef KILN_PLANTED_FAULTS
/** Let the fault that KILN_PLANTED_FAULT names into the back end; none if it is not set. */
kn_status kn_planted_install(kn_backend *b);
#else
static inline kn_status kn_planted_install(kn_backend *b) {
    (void)b;
    return KN_OK;
}
#endif

#endif
