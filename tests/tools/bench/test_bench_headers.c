/* What the tool declares of CUDA's driver, CUPTI and cuBLASLt against a toolkit's headers, where CMake finds them;
 * otherwise the test says that it was skipped. */
#include "support/suite.h"

#include <stdio.h>

#ifdef KN_HAVE_CUPTI_HEADERS
#include "bench/bench_cublaslt.h"
#include "bench/bench_cupti.h"

#include <cublasLt.h>
#include <cuda.h>
#include <cupti.h>
#include <stddef.h>

/* The newest kernel record of the headers; its beginning is that of the older ones. */
#if CUDA_VERSION >= 13000
typedef CUpti_ActivityKernel10 kernel_record;
#elif CUDA_VERSION >= 12000
typedef CUpti_ActivityKernel9 kernel_record;
#else
typedef CUpti_ActivityKernel4 kernel_record;
#endif

#define SAME(ours, theirs) _Static_assert((long long)(ours) == (long long)(theirs), #ours)
SAME(KT_CUPTI_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
SAME(KT_CUPTI_KERNEL_START, offsetof(kernel_record, start));
SAME(KT_CUPTI_KERNEL_END, offsetof(kernel_record, end));
SAME(KT_CUPTI_KERNEL_NAME, offsetof(kernel_record, name));
SAME(KT_CUPTI_FLUSH_FORCED, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
SAME(offsetof(kernel_record, kind), 0);
SAME(KT_LT_R_32F, CUDA_R_32F);
SAME(KT_LT_R_16F, CUDA_R_16F);
SAME(KT_LT_R_16BF, CUDA_R_16BF);
SAME(KT_LT_COMPUTE_32F, CUBLAS_COMPUTE_32F);
SAME(KT_LT_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(KT_LT_DESC_TRANSB, CUBLASLT_MATMUL_DESC_TRANSB);
SAME(KT_LT_PREF_MAX_WORKSPACE_BYTES, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(KT_LT_OP_T, CUBLAS_OP_T);
SAME(sizeof(kt_lt_heuristic), sizeof(cublasLtMatmulHeuristicResult_t));
SAME(offsetof(kt_lt_heuristic, workspace_bytes), offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
SAME(offsetof(kt_lt_heuristic, state), offsetof(cublasLtMatmulHeuristicResult_t, state));
SAME(sizeof(kt_lt_algo), sizeof(cublasLtMatmulAlgo_t));

/* ---- prototypes: our argument lists, spelled with their types ---------------------------------------------------- */

#define kt_cu_result CUresult
#define kt_cu_device CUdevice
#define kt_cu_capture_mode CUstreamCaptureMode
#define kt_cu_ptr CUdeviceptr
#define kt_cu_context CUcontext
#define kt_cu_module CUmodule
#define kt_cu_function CUfunction
#define kt_cu_stream CUstream
#define kt_cu_graph CUgraph
#define kt_cu_graph_exec CUgraphExec
#define kt_lt_status cublasStatus_t
#define kt_lt_compute cublasComputeType_t
#define kt_lt_type cudaDataType
#define kt_lt_desc_attribute cublasLtMatmulDescAttributes_t
#define kt_lt_preference_attribute cublasLtMatmulPreferenceAttributes_t
#define kt_lt_handle cublasLtHandle_t
#define kt_lt_desc cublasLtMatmulDesc_t
#define kt_lt_layout cublasLtMatrixLayout_t
#define kt_lt_preference cublasLtMatmulPreference_t
#define kt_lt_stream cudaStream_t
#define kt_lt_heuristic cublasLtMatmulHeuristicResult_t
#define kt_lt_algo cublasLtMatmulAlgo_t

#define SAME_TYPE(ours, theirs) _Static_assert(__builtin_types_compatible_p(ours, __typeof__(theirs)), #theirs)
#define KT_DRIVER(symbol, arguments) SAME_TYPE(CUresult arguments, symbol);
#include "gpu/tool_driver.def"
#undef KT_DRIVER
#define KT_LT(symbol, result, arguments) SAME_TYPE(result arguments, symbol);
#include "bench/bench_cublaslt.def"
#undef KT_LT

/* CUPTI's functions are looked up by hand in bench_cupti.c. */
SAME_TYPE(CUptiResult(CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc),
          cuptiActivityRegisterCallbacks);
SAME_TYPE(void (*)(uint8_t **, size_t *, size_t *), *(CUpti_BuffersCallbackRequestFunc *)0);
SAME_TYPE(void (*)(CUcontext, uint32_t, uint8_t *, size_t, size_t), *(CUpti_BuffersCallbackCompleteFunc *)0);
SAME_TYPE(CUptiResult(CUpti_ActivityKind), cuptiActivityEnable);
SAME_TYPE(CUptiResult(CUpti_ActivityKind), cuptiActivityDisable);
SAME_TYPE(CUptiResult(uint32_t), cuptiActivityFlushAll);
SAME_TYPE(CUptiResult(uint8_t *, size_t, CUpti_Activity **), cuptiActivityGetNextRecord);
SAME_TYPE(CUptiResult(CUcontext, uint32_t, size_t *), cuptiActivityGetNumDroppedRecords);
SAME_TYPE(CUptiResult(CUptiResult, const char **), cuptiGetResultString);

START_TEST(compiled) {
    int driver = 0, cublaslt = 0;
#define KT_DRIVER(symbol, arguments) driver++;
#include "gpu/tool_driver.def"
#define KT_LT(symbol, result, arguments) cublaslt++;
#include "bench/bench_cublaslt.def"
    printf("%d functions of the driver and %d of cuBLASLt agree with the headers of CUDA %d\n", driver, cublaslt,
           CUDA_VERSION);
    ck_assert_int_ge(driver, 22);
    ck_assert_int_ge(cublaslt, 14);
}
END_TEST

#else

START_TEST(compiled) {
    printf("skipped: no cupti.h and cublasLt.h of CUDA 12 or newer were found when this was built\n");
}
END_TEST

#endif

int main(void) {
    Suite *s = suite_create("tools/bench_headers");
    TCase *t = tcase_create("all");
    tcase_add_test(t, compiled);
    suite_add_tcase(s, t);
    return kn_run_suite(s);
}
