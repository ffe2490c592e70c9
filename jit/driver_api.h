/* Our own declarations of the CUDA driver's interface: types, constants and structures, no more than Kiln uses. No
 * cuda.h is needed to build; tests/jit/test_cuda_headers.c compares every line here with cuda.h where that is found. */
#ifndef KN_JIT_DRIVER_API_H
#define KN_JIT_DRIVER_API_H

#include <stddef.h>
#include <stdint.h>

typedef int kn_cu_result;
typedef unsigned kn_cu_enum; /* every enumeration that is passed */
typedef int kn_cu_device;
typedef unsigned long long kn_cu_ptr;
typedef struct kn_cu_context_st *kn_cu_context;
typedef struct kn_cu_module_st *kn_cu_module;
typedef struct kn_cu_function_st *kn_cu_function;
typedef struct kn_cu_stream_st *kn_cu_stream;
typedef struct kn_cu_event_st *kn_cu_event;
typedef struct kn_cu_link_st *kn_cu_link;

enum {
#define KN_CU_CONSTANT(name, value) KN_##name = value,
#include "jit/driver_constants.def"
#undef KN_CU_CONSTANT
};

typedef struct kn_cu_tensor_map {
    _Alignas(128) uint64_t opaque[16]; /* 64 until CUDA 12, 128 from 13 on */
} kn_cu_tensor_map;

typedef union kn_cu_launch_value {
    char pad[64];
    void *pointer; /* other attributes hold some: it sets the alignment */
    struct {
        unsigned x, y, z;
    } clusterDim;
    int programmaticStreamSerializationAllowed;
} kn_cu_launch_value;

typedef struct kn_cu_launch_attribute {
    int id;
    char pad[4];
    kn_cu_launch_value value;
} kn_cu_launch_attribute;

typedef struct kn_cu_launch_config {
    unsigned gridDimX, gridDimY, gridDimZ;
    unsigned blockDimX, blockDimY, blockDimZ;
    unsigned sharedMemBytes;
    kn_cu_stream hStream;
    kn_cu_launch_attribute *attrs;
    unsigned numAttrs;
} kn_cu_launch_config;

#endif
