/* Tests of CUDA C text: see cuda_c.h. */
#include "support/cuda_c.h"

#include "jit/assemble.h"
#include "support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool kn_have_nvrtc(void) {
    uint32_t version;
    const char *path, *ci = getenv("CI");
    if (kn_nvrtc_id(&version, &path) == KN_OK) return true;
    ck_assert_msg(!ci || strcmp(ci, "true") != 0, "no NVRTC under CI: %s", kn_error_message());
    printf("skipped: %s\n", kn_error_message());
    return false;
}

const char kn_swiglu_text[] = "__device__ void f(float g, float u, float dh, float *h, float *dg, float *du) {\n"
                              "    float s = 1.0f / (1.0f + expf(-g));\n"
                              "    *h = g * s * u;\n"
                              "    *du = dh * g * s;\n"
                              "    *dg = dh * u * s * (1.0f + g * (1.0f - s));\n"
                              "}\n";
