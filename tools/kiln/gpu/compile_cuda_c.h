/* CUDA C to PTX, for oracles and peers: NVRTC, opened at run time. The library has its own way to NVRTC, which is not a
 * caller's. */
#ifndef KILN_TOOL_COMPILE_CUDA_C_H
#define KILN_TOOL_COMPILE_CUDA_C_H

#include "common/tool.h"

/** PTX of the CUDA C text `source`, called `name` in messages, for the architecture `arch` ("sm_90a"); free it.
 * KT_ENVIRONMENT where there is no NVRTC, or where it refuses the text: its log is the message. */
int kt_nvrtc_ptx(const char *source, const char *name, const char *arch, char **ptx);

#endif
