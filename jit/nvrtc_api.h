/* Our own declarations of NVRTC's interface; tests/jit/test_cuda_headers.c compares them with nvrtc.h. */
#ifndef KN_JIT_NVRTC_API_H
#define KN_JIT_NVRTC_API_H

#include <stddef.h>

typedef struct kn_nvrtc_program *kn_nvrtc_p;

#define KN_NVRTC_FUNCTIONS(X)                                                                                          \
    X(int, Version, (int *major, int *minor))                                                                          \
    X(const char *, GetErrorString, (int result))                                                                      \
    X(int, CreateProgram,                                                                                              \
      (kn_nvrtc_p * program, const char *source, const char *name, int n_headers, const char *const *headers,          \
       const char *const *include_names))                                                                              \
    X(int, DestroyProgram, (kn_nvrtc_p * program))                                                                     \
    X(int, CompileProgram, (kn_nvrtc_p program, int n_options, const char *const *options))                            \
    X(int, GetPTXSize, (kn_nvrtc_p program, size_t * size))                                                            \
    X(int, GetPTX, (kn_nvrtc_p program, char *ptx))                                                                    \
    X(int, GetProgramLogSize, (kn_nvrtc_p program, size_t * size))                                                     \
    X(int, GetProgramLog, (kn_nvrtc_p program, char *log))

#endif
