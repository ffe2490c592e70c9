/* Our own declarations of nvJitLink's interface (tests/jit/test_cuda_headers.c compares them with nvJitLink.h) and the
 * table of its functions, resolved from whichever library was found. */
#ifndef KN_JIT_ASSEMBLE_NVJITLINK_H
#define KN_JIT_ASSEMBLE_NVJITLINK_H

#include "jit/assemble.h"
#include "jit/dl.h"

#include <stdint.h>

typedef struct kn_nvjitlink_handle *kn_nvjitlink_h;
typedef int kn_nvjitlink_result;

enum { KN_NVJITLINK_SUCCESS = 0, KN_NVJITLINK_UNRECOGNIZED_OPTION = 1, KN_NVJITLINK_INPUT_PTX = 2 };

/* Every function carries the library's version in its symbol (__nvJitLinkCreate_12_4); a library exports the names of
 * its own version and of the older ones of its major. */
#define KN_NVJITLINK_FUNCTIONS(X)                                                                                      \
    X(Create, (kn_nvjitlink_h * handle, uint32_t n_options, const char **options))                                     \
    X(Destroy, (kn_nvjitlink_h * handle))                                                                              \
    X(AddData, (kn_nvjitlink_h handle, unsigned type, const void *data, size_t size, const char *name))                \
    X(Complete, (kn_nvjitlink_h handle))                                                                               \
    X(GetLinkedCubinSize, (kn_nvjitlink_h handle, size_t * size))                                                      \
    X(GetLinkedCubin, (kn_nvjitlink_h handle, void *cubin))                                                            \
    X(GetErrorLogSize, (kn_nvjitlink_h handle, size_t * size))                                                         \
    X(GetErrorLog, (kn_nvjitlink_h handle, char *log))                                                                 \
    X(GetInfoLogSize, (kn_nvjitlink_h handle, size_t * size))                                                          \
    X(GetInfoLog, (kn_nvjitlink_h handle, char *log))

typedef struct kn_nvjitlink {
    kn_assembler_id id;
    bool no_cache; /* the library knows -no-cache */
#define X(name, args) kn_nvjitlink_result(*name) args;
    KN_NVJITLINK_FUNCTIONS(X)
#undef X
} kn_nvjitlink;

/** The library in use, loaded on the first call and kept. */
kn_status kn_nvjitlink_get(const kn_nvjitlink **out);

#endif
