/* For tests of CUDA C text, the caller's activation functions among it. */
#ifndef KN_TESTS_SUPPORT_CUDA_C_H
#define KN_TESTS_SUPPORT_CUDA_C_H

#include <stdbool.h>

/** Whether there is an NVRTC. Without one a line says that the test is skipped; under CI=true it fails. */
bool kn_have_nvrtc(void);

/** The built-in SwiGLU as a caller's function. */
extern const char kn_swiglu_text[];

#endif
