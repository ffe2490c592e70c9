/* Our declarations of NVIDIA's interfaces against the headers of a CUDA toolkit: every constant, structure and
 * prototype that Kiln uses. Compiled against the headers where CMake finds them; otherwise the test says that it was
 * skipped. */
#include "support/suite.h"

#include <stdio.h>

#ifdef KN_HAVE_CUDA_HEADERS
#include <cuda.h>
#if CUDA_VERSION >= 12040 /* has every function of driver.def */
#define COMPARE_HEADERS
#endif
#endif

#ifdef COMPARE_HEADERS
#include "jit/assemble_nvjitlink.h"
#include "jit/driver_api.h"
#include "jit/nvrtc_api.h"

#include <nvJitLink.h>
#include <nvrtc.h>
#include <stddef.h>

/* ---- constants and structures of the driver: checked by the compiler --------------------------------------------- */

#define KN_CU_CONSTANT(name, value) _Static_assert((long long)(name) == (value), #name);
#include "jit/driver_constants.def"
#undef KN_CU_CONSTANT

#define SAME_SIZE(ours, theirs)                                                                                        \
    _Static_assert(sizeof(ours) == sizeof(theirs) && _Alignof(ours) >= _Alignof(theirs), #theirs)
#define SAME_FIELD(ours, our_field, theirs, their_field)                                                               \
    _Static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field) &&                                       \
                       sizeof(((ours *)0)->our_field) == sizeof(((theirs *)0)->their_field),                           \
                   #theirs "." #their_field)

SAME_SIZE(kn_cu_result, CUresult);
SAME_SIZE(kn_cu_enum, CUdevice_attribute);
SAME_SIZE(kn_cu_device, CUdevice);
SAME_SIZE(kn_cu_ptr, CUdeviceptr);
SAME_SIZE(kn_cu_tensor_map, CUtensorMap);
SAME_SIZE(kn_cu_launch_value, CUlaunchAttributeValue);
SAME_FIELD(kn_cu_launch_value, clusterDim, CUlaunchAttributeValue, clusterDim);
SAME_FIELD(kn_cu_launch_value, clusterDim.y, CUlaunchAttributeValue, clusterDim.y);
SAME_FIELD(kn_cu_launch_value, clusterDim.z, CUlaunchAttributeValue, clusterDim.z);
SAME_FIELD(kn_cu_launch_value, programmaticStreamSerializationAllowed, CUlaunchAttributeValue,
           programmaticStreamSerializationAllowed);
SAME_SIZE(kn_cu_launch_attribute, CUlaunchAttribute);
SAME_FIELD(kn_cu_launch_attribute, id, CUlaunchAttribute, id);
SAME_FIELD(kn_cu_launch_attribute, value, CUlaunchAttribute, value);
SAME_SIZE(kn_cu_launch_config, CUlaunchConfig);
#define SAME_CONFIG(field) SAME_FIELD(kn_cu_launch_config, field, CUlaunchConfig, field)
SAME_CONFIG(gridDimX);
SAME_CONFIG(gridDimY);
SAME_CONFIG(gridDimZ);
SAME_CONFIG(blockDimX);
SAME_CONFIG(blockDimY);
SAME_CONFIG(blockDimZ);
SAME_CONFIG(sharedMemBytes);
SAME_CONFIG(hStream);
SAME_CONFIG(attrs);
SAME_CONFIG(numAttrs);

_Static_assert((int)KN_NVJITLINK_SUCCESS == (int)NVJITLINK_SUCCESS, "NVJITLINK_SUCCESS");
_Static_assert((int)KN_NVJITLINK_INPUT_PTX == (int)NVJITLINK_INPUT_PTX, "NVJITLINK_INPUT_PTX");
_Static_assert((int)NVRTC_SUCCESS == 0, "NVRTC_SUCCESS");
SAME_SIZE(kn_nvjitlink_result, nvJitLinkResult);
SAME_SIZE(kn_nvrtc_result, nvrtcResult);

/* ---- prototypes: our argument lists, spelled with their types ---------------------------------------------------- */

#define kn_cu_result CUresult
#define kn_cu_device CUdevice
#define kn_cu_ptr CUdeviceptr
#define kn_cu_context CUcontext
#define kn_cu_module CUmodule
#define kn_cu_function CUfunction
#define kn_cu_stream CUstream
#define kn_cu_event CUevent
#define kn_cu_link CUlinkState
#define kn_cu_tensor_map CUtensorMap
#define kn_cu_launch_config CUlaunchConfig
#define kn_nvjitlink_h nvJitLinkHandle
#define kn_nvjitlink_result nvJitLinkResult
#define kn_nvrtc_p nvrtcProgram
#define kn_nvrtc_result nvrtcResult

#define KN_DRIVER(symbol, since, required, args)                                                                       \
    _Static_assert(__builtin_types_compatible_p(CUresult args, __typeof__(symbol)), #symbol);
#include "jit/driver.def"
#undef KN_DRIVER

#define X(name, args)                                                                                                  \
    _Static_assert(__builtin_types_compatible_p(nvJitLinkResult args, __typeof__(nvJitLink##name)), #name);
KN_NVJITLINK_FUNCTIONS(X)
#undef X

#define X(type, name, args) _Static_assert(__builtin_types_compatible_p(type args, __typeof__(nvrtc##name)), #name);
KN_NVRTC_FUNCTIONS(X)
#undef X

/* nvJitLinkVersion is looked up by hand in assemble_load.c. */
_Static_assert(__builtin_types_compatible_p(nvJitLinkResult(unsigned *, unsigned *), __typeof__(nvJitLinkVersion)),
               "nvJitLinkVersion");

START_TEST(compiled) {
    int constants = 0, functions = 0;
#define KN_CU_CONSTANT(name, value) constants++;
#include "jit/driver_constants.def"
#define KN_DRIVER(symbol, since, required, args) functions++;
#include "jit/driver.def"
    printf("%d constants and %d functions agree with cuda.h %d\n", constants, functions, CUDA_VERSION);
    ck_assert_int_gt(constants, 40);
    ck_assert_int_gt(functions, 45);
}
END_TEST

#else

START_TEST(compiled) {
    printf("skipped: no headers of a CUDA toolkit (12.4 or newer) were found when this was built\n");
}
END_TEST

#endif

int main(void) {
    Suite *s = suite_create("jit/cuda_headers");
    TCase *t = tcase_create("all");
    tcase_add_test(t, compiled);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
