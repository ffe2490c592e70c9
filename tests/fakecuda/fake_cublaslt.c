/* A libcublasLt.so.13 for tests: column-major bf16 products, computed plainly on the fake driver's memory, each seen by
 * that driver as launches. Its heuristics offer three algorithms; the second is the fastest: it launches one kernel,
 * the others two. Shapes that do not fit are refused. */
#include "fakecuda/fake_state.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef struct layout {
    int type;
    uint64_t rows, cols;
    int64_t ld;
} layout;

typedef struct desc {
    int transposed[2]; /* of the first and second factor */
} desc;

typedef struct algo {
    uint64_t data[8];
} algo;

typedef struct heuristic {
    algo a;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} heuristic;

EXPORT size_t cublasLtGetVersion(void) {
    return 130001;
}
EXPORT const char *cublasLtGetStatusString(int status) {
    return status == 7 ? "CUBLAS_STATUS_INVALID_VALUE" : "CUBLAS_STATUS_SUCCESS";
}
EXPORT int cublasLtCreate(void **handle) {
    *handle = malloc(1);
    return 0;
}
EXPORT int cublasLtDestroy(void *handle) {
    free(handle);
    return 0;
}
EXPORT int cublasLtMatmulDescCreate(void **d, int compute, int scale) {
    *d = calloc(1, sizeof(desc));
    return compute == 68 && scale == 0 ? 0 : 7;
}
EXPORT int cublasLtMatmulDescSetAttribute(void *d, int attribute, const void *value, size_t bytes) {
    if (bytes != 4 || attribute < 3 || attribute > 4 || *(const int *)value > 1) return 7;
    ((desc *)d)->transposed[attribute - 3] = *(const int *)value;
    return 0;
}
EXPORT int cublasLtMatmulDescDestroy(void *d) {
    free(d);
    return 0;
}
EXPORT int cublasLtMatrixLayoutCreate(void **l, int type, uint64_t rows, uint64_t cols, int64_t ld) {
    layout *made = malloc(sizeof *made);
    *made = (layout){type, rows, cols, ld};
    *l = made;
    return type == 14 && ld >= (int64_t)rows ? 0 : 7;
}
EXPORT int cublasLtMatrixLayoutDestroy(void *l) {
    free(l);
    return 0;
}
EXPORT int cublasLtMatmulPreferenceCreate(void **p) {
    *p = calloc(1, sizeof(size_t));
    return 0;
}
EXPORT int cublasLtMatmulPreferenceSetAttribute(void *p, int attribute, const void *value, size_t bytes) {
    if (attribute != 1 || bytes != sizeof(size_t)) return 7;
    memcpy(p, value, bytes);
    return 0;
}
EXPORT int cublasLtMatmulPreferenceDestroy(void *p) {
    free(p);
    return 0;
}

/* op(a) is m x k, op(b) is k x n, d is m x n. */
static int fits(const desc *d, const layout *a, const layout *b, const layout *out) {
    const int *t = d->transposed;
    return (t[0] ? a->cols : a->rows) == out->rows && (t[1] ? b->rows : b->cols) == out->cols &&
           (t[0] ? a->rows : a->cols) == (t[1] ? b->cols : b->rows);
}

EXPORT int cublasLtMatmulAlgoGetHeuristic(void *handle, void *d, void *a, void *b, void *c, void *out, void *preference,
                                          int requested, heuristic *results, int *returned) {
    if (!handle || !preference || c != out || requested < 3 || !fits(d, a, b, out)) return 7;
    for (uint64_t i = 0; i < 3; i++) results[i] = (heuristic){.a = {{i == 1 ? 1 : 2}}}; /* kernels that it launches */
    *returned = 3;
    return 0;
}

static float value(const uint16_t *p, const layout *l, int transposed, uint64_t row, uint64_t col) {
    uint32_t bits = (uint32_t)p[transposed ? col + row * (uint64_t)l->ld : row + col * (uint64_t)l->ld] << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void multiply(const desc *d, const uint16_t *a, const layout *la, const uint16_t *b, const layout *lb,
                     float beta, uint16_t *out, const layout *lo) {
    uint64_t depth = d->transposed[0] ? la->rows : la->cols;
    for (uint64_t j = 0; j < lo->cols; j++) {
        for (uint64_t i = 0; i < lo->rows; i++) {
            uint16_t *at = &out[i + j * (uint64_t)lo->ld];
            float sum = beta == 0 ? 0 : beta * value(at, lo, 0, 0, 0);
            for (uint64_t k = 0; k < depth; k++)
                sum += value(a, la, d->transposed[0], i, k) * value(b, lb, d->transposed[1], k, j);
            uint32_t bits;
            memcpy(&bits, &sum, sizeof bits);
            *at = (uint16_t)((bits + 0x8000) >> 16);
        }
    }
}

/* Let the fake driver launch an empty kernel. */
static int launch(void *stream) {
    static const char ptx[] = ".version 7.0\n.target sm_80\n.visible .entry fake_gemm() { ret; }\n";
    void *driver = dlopen(getenv("KILN_LIBCUDA"), RTLD_NOW | RTLD_NOLOAD), *module, *function;
    int (*load)(void **, const void *), (*get)(void **, void *, const char *), (*unload)(void *);
    int (*run)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
    void *symbols[] = {dlsym(driver, "cuModuleLoadData"), dlsym(driver, "cuModuleGetFunction"),
                       dlsym(driver, "cuModuleUnload"), dlsym(driver, "cuLaunchKernel")};
    memcpy(&load, &symbols[0], sizeof load);
    memcpy(&get, &symbols[1], sizeof get);
    memcpy(&unload, &symbols[2], sizeof unload);
    memcpy(&run, &symbols[3], sizeof run);
    int rc = load(&module, ptx);
    if (rc == 0) rc = get(&function, module, "fake_gemm");
    if (rc == 0) rc = run(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
    if (rc == 0) rc = unload(module);
    return rc;
}

EXPORT int cublasLtMatmul(void *handle, void *d, const void *alpha, const void *a, void *la, const void *b, void *lb,
                          const void *beta, const void *c, void *lc, void *out, void *lo, const algo *chosen,
                          void *workspace, size_t workspace_bytes, void *stream) {
    if (!handle || *(const float *)alpha != 1 || c != out || lc != lo || !workspace || workspace_bytes == 0) return 7;
    if (!fits(d, la, lb, lo)) return 7;
    multiply(d, a, la, b, lb, *(const float *)beta, out, lo);
    for (uint64_t i = 0; i < chosen->data[0]; i++)
        if (launch(stream) != 0) return 7;
    return 0;
}
