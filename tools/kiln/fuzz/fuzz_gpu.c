/* The oracle's products on the GPU: see fuzz_gpu.h. */
#include "fuzz/fuzz_gpu.h"

#include "gpu/compile_cuda_c.h"
#include "gpu/tool_gpu.h"
#include "problems/problem_fill.h"

#include "kiln/kiln_tools.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct kt_fuzz_gpu {
    kt_library *lib;
    void *ctx;
    kt_gpu *driver;
    void *module, *function;
    void *buffer[3]; /* a, b, out */
    uint64_t capacity[3], products;
};

enum { TILE = 64, THREADS = 256 };

/* A tile of 64 by 64 a block, 4 by 4 elements a thread, sums in the order of l. */
static const char source[] =
    "extern \"C\" __global__ void kiln_oracle_product(const double *a, long long a_row, long long a_col,\n"
    "                                               const double *b, double *out, long long m, long long n,\n"
    "                                               long long k) {\n"
    "    __shared__ double as[16][65], bs[16][65];\n"
    "    long long across = (n + 63) / 64, i0 = blockIdx.x / across * 64, j0 = blockIdx.x % across * 64;\n"
    "    int tx = threadIdx.x % 16, ty = threadIdx.x / 16;\n"
    "    double sum[4][4] = {};\n"
    "    for (long long l0 = 0; l0 < k; l0 += 16) {\n"
    "        for (int e = threadIdx.x; e < 1024; e += 256) {\n"
    "            int al = e % 16, ai = e / 16, bj = e % 64, bl = e / 64;\n"
    "            bool a_in = i0 + ai < m && l0 + al < k, b_in = j0 + bj < n && l0 + bl < k;\n"
    "            as[al][ai] = a_in ? a[(i0 + ai) * a_row + (l0 + al) * a_col] : 0;\n"
    "            bs[bl][bj] = b_in ? b[(l0 + bl) * n + j0 + bj] : 0;\n"
    "        }\n"
    "        __syncthreads();\n"
    "        for (int l = 0; l < 16; l++)\n"
    "            for (int u = 0; u < 4; u++)\n"
    "                for (int v = 0; v < 4; v++) sum[u][v] += as[l][ty + 16 * u] * bs[l][tx + 16 * v];\n"
    "        __syncthreads();\n"
    "    }\n"
    "    for (int u = 0; u < 4; u++)\n"
    "        for (int v = 0; v < 4; v++) {\n"
    "            long long i = i0 + ty + 16 * u, j = j0 + tx + 16 * v;\n"
    "            if (i < m && j < n) out[i * n + j] += sum[u][v];\n"
    "        }\n"
    "}\n";

/* ---- one product ------------------------------------------------------------------------------------------------- */

static int room(kt_fuzz_gpu *g, int i, uint64_t bytes) {
    if (bytes <= g->capacity[i]) return KT_GOOD;
    if (g->buffer[i]) (void)KT_CALL(g->lib, "kiln_device_free", KT_PTR(g->ctx), KT_PTR(g->buffer[i]));
    g->buffer[i] = NULL;
    g->capacity[i] = 0;
    KT_TRY(
        kt_status(g->lib, KT_CALL(g->lib, "kiln_device_alloc", KT_PTR(g->ctx), KT_U64(bytes), KT_PTR(&g->buffer[i]))));
    g->capacity[i] = bytes;
    return KT_GOOD;
}

static int send(kt_fuzz_gpu *g, int i, const double *from, int64_t n) {
    uint64_t bytes = (uint64_t)n * sizeof *from;
    KT_TRY(room(g, i, bytes));
    return kt_status(g->lib, KT_CALL(g->lib, "kiln_device_copy_in", KT_PTR(g->ctx), KT_PTR(g->buffer[i]), KT_PTR(from),
                                     KT_U64(bytes)));
}

static int multiply(kt_fuzz_gpu *g, int64_t m, int64_t n, int64_t k, const double *a, int64_t a_row, int64_t a_col,
                    const double *b, double *out) {
    int64_t tiles = (m + TILE - 1) / TILE * ((n + TILE - 1) / TILE);
    KT_TRY(send(g, 0, a, m * k));
    KT_TRY(send(g, 1, b, k * n));
    KT_TRY(send(g, 2, out, m * n));
    void *params[] = {&g->buffer[0], &a_row, &a_col, &g->buffer[1], &g->buffer[2], &m, &n, &k};
    KT_TRY(kt_gpu_launch(g->driver, g->function, (uint32_t)tiles, THREADS, params, NULL));
    g->products++;
    return kt_status(g->lib, KT_CALL(g->lib, "kiln_device_copy_out", KT_PTR(g->ctx), KT_PTR(out), KT_PTR(g->buffer[2]),
                                     KT_U64((uint64_t)(m * n) * sizeof *out)));
}

/* What the library calls. */
static int32_t product(void *user, int64_t m, int64_t n, int64_t k, const double *a, int64_t a_row, int64_t a_col,
                       const double *b, double *out) {
    return multiply(user, m, n, k, a, a_row, a_col, b, out) == KT_GOOD ? KILN_OK : KILN_E_LAUNCH;
}

/* ---- the session ------------------------------------------------------------------------------------------------- */

/* A product with ragged sides, both ways of storing a, against the host's sums. */
static int compare_with_host(kt_fuzz_gpu *g) {
    enum { M = 133, N = 70, K = 51 };
    kt_random r = {1};
    double *a = kt_alloc(M * K, sizeof *a), *b = kt_alloc(K * N, sizeof *b), *out = kt_alloc(M * N, sizeof *out);
    int code = KT_GOOD;
    for (int i = 0; i < M * K; i++) a[i] = kt_random_normal(&r);
    for (int i = 0; i < K * N; i++) b[i] = kt_random_normal(&r);
    for (int turned = 0; turned < 2 && code == KT_GOOD; turned++) {
        int64_t a_row = turned ? 1 : K, a_col = turned ? M : 1;
        for (int i = 0; i < M * N; i++) out[i] = 0.5;
        code = multiply(g, M, N, K, a, a_row, a_col, b, out);
        for (int64_t i = 0; i < M * N && code == KT_GOOD; i++) {
            double sum = 0.5;
            for (int64_t l = 0; l < K; l++) sum += a[i / N * a_row + l * a_col] * b[l * N + i % N];
            if (!(fabs(out[i] - sum) <= 1e-12 * K))
                code = kt_fail(KT_CHECK, "the oracle's product on the GPU is wrong: %.17g, on the host %.17g", out[i],
                               sum);
        }
    }
    free(a);
    free(b);
    free(out);
    return code;
}

static int load(kt_fuzz_gpu *g, int id) {
    char *ptx = NULL;
    KT_TRY(kt_nvrtc_ptx(source, "oracle.cu", "sm_80", &ptx)); /* the driver makes it this GPU's */
    int code = kt_gpu_open(id, &g->driver);
    if (code == KT_GOOD) code = kt_gpu_load(g->driver, ptx, &g->module);
    if (code == KT_GOOD) code = kt_gpu_function(g->driver, g->module, "kiln_oracle_product", &g->function);
    free(ptx);
    return code;
}

int kt_fuzz_gpu_open(kt_library *lib, void *ctx, int id, kt_fuzz_gpu **out) {
    kt_fuzz_gpu *g = kt_alloc(1, sizeof *g);
    *g = (kt_fuzz_gpu){.lib = lib, .ctx = ctx};
    int code = load(g, id);
    if (code == KT_GOOD) code = compare_with_host(g);
    g->products = 0;
    if (code != KT_GOOD) {
        kt_fuzz_gpu_close(g);
        *out = NULL;
        return code;
    }
    *out = g;
    kiln_product_fn function = product;
    const void *address;
    _Static_assert(sizeof address == sizeof function, "a function's address is a pointer");
    memcpy(&address, &function, sizeof address);
    return kt_status(lib, KT_CALL(lib, "kiln_reference_products", KT_PTR(address), KT_PTR(g)));
}

void kt_fuzz_gpu_close(kt_fuzz_gpu *g) {
    if (!g) return;
    (void)KT_CALL(g->lib, "kiln_reference_products", KT_PTR(NULL), KT_PTR(NULL));
    for (int i = 0; i < 3; i++)
        if (g->buffer[i]) (void)KT_CALL(g->lib, "kiln_device_free", KT_PTR(g->ctx), KT_PTR(g->buffer[i]));
    kt_gpu_unload(g->driver, g->module);
    kt_gpu_close(g->driver);
    free(g);
}

uint64_t kt_fuzz_gpu_products(const kt_fuzz_gpu *g) {
    return g->products;
}
