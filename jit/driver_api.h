/* Our own declarations of the CUDA driver's interface: types, constants and structures, no more than Kiln uses. No
 * cuda.h is needed to build; tests/jit/test_cuda_headers.c compares every line here with cuda.h where that is found. */
#ifndef KN_JIT_DRIVER_API_H
#define KN_JIT_DRIVER_API_H

#include <stddef.h>
#include <stdint.h>

typedef int kn_cu_result;
typedef int kn_cu_device;
typedef unsigned long long kn_cu_ptr;
typedef struct kn_cu_context_st *kn_cu_context;
typedef struct kn_cu_module_st *kn_cu_module;
typedef struct kn_cu_function_st *kn_cu_function;
typedef struct kn_cu_stream_st *kn_cu_stream;
typedef struct kn_cu_event_st *kn_cu_event;
typedef struct kn_cu_link_st *kn_cu_link;

enum { /* results */
       KN_CUDA_SUCCESS = 0,
       KN_CUDA_ERROR_OUT_OF_MEMORY = 2,
       KN_CUDA_ERROR_NOT_INITIALIZED = 3,
       KN_CUDA_ERROR_DEINITIALIZED = 4,
       KN_CUDA_ERROR_STUB_LIBRARY = 34,
       KN_CUDA_ERROR_NO_DEVICE = 100,
       KN_CUDA_ERROR_INVALID_DEVICE = 101,
       KN_CUDA_ERROR_INVALID_IMAGE = 200,
       KN_CUDA_ERROR_INVALID_CONTEXT = 201,
       KN_CUDA_ERROR_ILLEGAL_ADDRESS = 700,
       KN_CUDA_ERROR_LAUNCH_TIMEOUT = 702,
       KN_CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
       KN_CUDA_ERROR_ASSERT = 710,
       KN_CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
       KN_CUDA_ERROR_LAUNCH_FAILED = 719,
       KN_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
       KN_CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908
};

enum { /* CUdevice_attribute */
       KN_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
       KN_CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36, /* kHz */
       KN_CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37,
       KN_CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
       KN_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
       KN_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
       KN_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
       KN_CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS = 88,
       KN_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
       KN_CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115
};

enum { /* CUfunction_attribute */
    KN_CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
    KN_CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
    KN_CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
       KN_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
       KN_CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14
};

enum { /* CUpointer_attribute, CUmemorytype */
       KN_CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
       KN_CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
       KN_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
       KN_CU_MEMORYTYPE_HOST = 1,
       KN_CU_MEMORYTYPE_DEVICE = 2
};

enum { /* CUjit_option, CUjitInputType */
       KN_CU_JIT_INFO_LOG_BUFFER = 3,
       KN_CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES = 4,
       KN_CU_JIT_ERROR_LOG_BUFFER = 5,
       KN_CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
       KN_CU_JIT_LOG_VERBOSE = 12,
       KN_CU_JIT_INPUT_PTX = 1
};

enum { /* flags and modes */
       KN_CU_STREAM_DEFAULT = 0,
       KN_CU_EVENT_DEFAULT = 0,
       KN_CU_MEMHOSTALLOC_PORTABLE = 1,
       KN_CU_MEMHOSTALLOC_DEVICEMAP = 2,
       KN_CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
       KN_CU_STREAM_CAPTURE_MODE_RELAXED = 2,
       KN_CU_STREAM_CAPTURE_STATUS_NONE = 0
};

enum { /* tensor maps */
       KN_CU_TENSOR_MAP_INTERLEAVE_NONE = 0,
       KN_CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0
};

typedef struct kn_cu_tensor_map {
    _Alignas(64) uint64_t opaque[16];
} kn_cu_tensor_map;

enum { /* CUlaunchAttributeID */
       KN_CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,
       KN_CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6
};

typedef union kn_cu_launch_value {
    char pad[64];
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
