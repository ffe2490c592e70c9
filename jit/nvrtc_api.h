/* Our own declarations of NVRTC's interface; tests/jit/test_cuda_headers.c compares them with nvrtc.h. */
#ifndef KN_JIT_NVRTC_API_H
#define KN_JIT_NVRTC_API_H

#include <stddef.h>

typedef struct kn_nvrtc_program *kn_nvrtc_p;
typedef int kn_nvrtc_result;

#define KN_NVRTC_FUNCTIONS(X)                                                                                          \
    X(kn_nvrtc_result, Version, (int *major, int *minor))                                                              \
    X(const char *, GetErrorString, (kn_nvrtc_result result))                                                          \
    X(kn_nvrtc_result, CreateProgram,                                                                                  \
      (kn_nvrtc_p * program, const char *source, const char *name, int n_headers, const char *const *headers,          \
       const char *const *include_names))                                                                              \
    X(kn_nvrtc_result, DestroyProgram, (kn_nvrtc_p * program))                                                         \
    X(kn_nvrtc_result, CompileProgram, (kn_nvrtc_p program, int n_options, const char *const *options))                \
    X(kn_nvrtc_result, GetPTXSize, (kn_nvrtc_p program, size_t * size))                                                \
    X(kn_nvrtc_result, GetPTX, (kn_nvrtc_p program, char *ptx))                                                        \
    X(kn_nvrtc_result, GetProgramLogSize, (kn_nvrtc_p program, size_t * size))                                         \
    X(kn_nvrtc_result, GetProgramLog, (kn_nvrtc_p program, char *log))

#endif
