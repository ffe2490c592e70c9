/* cuBLASLt: see bench_cublaslt.h. */
#include "bench/bench_cublaslt.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { ALGORITHMS = 8, WORKSPACE_BYTES = 64 << 20 };

typedef struct functions {
#define KT_LT(symbol, result, arguments) result(*symbol) arguments;
#include "bench/bench_cublaslt.def"
#undef KT_LT
} functions;

struct kt_bench_cublaslt {
    kt_bench_memory *memory;
    void *library;
    functions lt;
    void *handle;
    kt_bench_buffer workspace;
};

struct kt_bench_cublaslt_plan {
    kt_bench_cublaslt *owner;
    kt_bench_product product;
    void *desc, *a, *b, *d; /* layouts */
    kt_lt_heuristic algorithm[ALGORITHMS];
    int n, chosen;
};

static int check(const kt_bench_cublaslt *lt, int rc, const char *what) {
    if (rc == 0) return KT_GOOD;
    return kt_fail(KT_ENVIRONMENT, "%s: cuBLASLt says %d, %s", what, rc, lt->lt.cublasLtGetStatusString(rc));
}
#define CALL(owner, symbol, ...) KT_TRY(check((owner), (owner)->lt.symbol(__VA_ARGS__), #symbol))

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int find_symbols(kt_bench_cublaslt *lt) {
    const struct {
        const char *name;
        void *at;
    } symbols[] = {
#define KT_LT(symbol, result, arguments) {#symbol, &lt->lt.symbol},
#include "bench/bench_cublaslt.def"
#undef KT_LT
    };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(lt->library, symbols[i].name);
        if (!address) return kt_fail(KT_ENVIRONMENT, "cuBLASLt has no function %s", symbols[i].name);
        memcpy(symbols[i].at, &address, sizeof address);
    }
    return KT_GOOD;
}

static int open_all(kt_bench_cublaslt *lt) {
    static const char *const paths[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                        "/usr/local/cuda/lib64/libcublasLt.so.13",
                                        "/usr/local/cuda/lib64/libcublasLt.so.12"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths && !lt->library; i++)
        lt->library = dlopen(paths[i], RTLD_NOW | RTLD_LOCAL);
    if (!lt->library)
        return kt_fail(KT_ENVIRONMENT, "no libcublasLt.so.13 or .12 where the system looks or in /usr/local/cuda");
    KT_TRY(find_symbols(lt));
    CALL(lt, cublasLtCreate, &lt->handle);
    return kt_bench_memory_room(lt->memory, &lt->workspace, WORKSPACE_BYTES);
}

int kt_bench_cublaslt_open(kt_bench_memory *memory, kt_bench_cublaslt **out) {
    kt_bench_cublaslt *lt = kt_alloc(1, sizeof *lt);
    lt->memory = memory;
    int code = open_all(lt);
    if (code != KT_GOOD) {
        kt_bench_cublaslt_close(lt);
        lt = NULL;
    }
    *out = lt;
    return code;
}

void kt_bench_cublaslt_close(kt_bench_cublaslt *lt) {
    if (!lt) return;
    if (lt->handle) (void)lt->lt.cublasLtDestroy(lt->handle);
    kt_bench_memory_drop(lt->memory, &lt->workspace);
    free(lt);
}

int64_t kt_bench_cublaslt_version(const kt_bench_cublaslt *lt) {
    return (int64_t)lt->lt.cublasLtGetVersion();
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

/* cuBLASLt's matrices are column-major, so it computes the transpose of ours: d' = b' * a'. A row-major [rows, cols] of
 * ours is its [cols, rows] as it stands; one that is stored the other way round is its [rows, cols], to be transposed.
 */
static int make_layout(kt_bench_cublaslt *lt, int type, int64_t rows, int64_t cols, bool transposed, void **out) {
    int64_t lead = transposed ? rows : cols, other = transposed ? cols : rows;
    CALL(lt, cublasLtMatrixLayoutCreate, out, type, (uint64_t)lead, (uint64_t)other, lead);
    return KT_GOOD;
}

static int describe(kt_bench_cublaslt_plan *plan) {
    kt_bench_cublaslt *lt = plan->owner;
    const kt_bench_product *p = &plan->product;
    int type = p->dtype->code == KT_DL_BFLOAT ? KT_LT_R_16BF : KT_LT_R_16F, transpose = KT_LT_OP_T;
    CALL(lt, cublasLtMatmulDescCreate, &plan->desc, KT_LT_COMPUTE_32F, KT_LT_R_32F);
    if (p->b_transposed)
        CALL(lt, cublasLtMatmulDescSetAttribute, plan->desc, KT_LT_DESC_TRANSA, &transpose, sizeof transpose);
    if (p->a_transposed)
        CALL(lt, cublasLtMatmulDescSetAttribute, plan->desc, KT_LT_DESC_TRANSB, &transpose, sizeof transpose);
    KT_TRY(make_layout(lt, type, p->m, p->k, p->a_transposed, &plan->a));
    KT_TRY(make_layout(lt, type, p->k, p->n, p->b_transposed, &plan->b));
    return make_layout(lt, type, p->m, p->n, false, &plan->d);
}

static int find_algorithms(kt_bench_cublaslt_plan *plan) {
    kt_bench_cublaslt *lt = plan->owner;
    void *preference = NULL;
    size_t bytes = WORKSPACE_BYTES;
    CALL(lt, cublasLtMatmulPreferenceCreate, &preference);
    int rc =
        lt->lt.cublasLtMatmulPreferenceSetAttribute(preference, KT_LT_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes);
    if (rc == 0)
        rc = lt->lt.cublasLtMatmulAlgoGetHeuristic(lt->handle, plan->desc, plan->b, plan->a, plan->d, plan->d,
                                                   preference, ALGORITHMS, plan->algorithm, &plan->n);
    (void)lt->lt.cublasLtMatmulPreferenceDestroy(preference);
    KT_TRY(check(lt, rc, "cublasLtMatmulAlgoGetHeuristic"));
    return plan->n > 0 ? KT_GOOD : kt_fail(KT_ENVIRONMENT, "cuBLASLt knows no algorithm for a product");
}

int kt_bench_cublaslt_run(void *user, void *stream) {
    kt_bench_cublaslt_plan *plan = user;
    kt_bench_cublaslt *lt = plan->owner;
    const kt_bench_product *p = &plan->product;
    const kt_lt_heuristic *h = &plan->algorithm[plan->chosen];
    float alpha = 1, beta = p->add ? 1 : 0;
    CALL(lt, cublasLtMatmul, lt->handle, plan->desc, &alpha, p->b, plan->b, p->a, plan->a, &beta, p->d, plan->d, p->d,
         plan->d, &h->algo, lt->workspace.device, WORKSPACE_BYTES, stream);
    return KT_GOOD;
}

/* The fastest by events, cold. */
static int choose(kt_bench_cublaslt_plan *plan, kt_bench_timer *timer) {
    double best = 0;
    int fastest = 0;
    for (plan->chosen = 0; plan->chosen < plan->n; plan->chosen++) {
        kt_bench_subject s = {.name = "candidate", .enqueue = kt_bench_cublaslt_run, .user = plan};
        KT_TRY(kt_bench_time_quickly(timer, &s));
        if (plan->chosen == 0 || s.cold.events.median < best) {
            best = s.cold.events.median;
            fastest = plan->chosen;
        }
    }
    plan->chosen = fastest;
    return KT_GOOD;
}

int kt_bench_cublaslt_plan_make(kt_bench_cublaslt *lt, const kt_bench_product *product, kt_bench_timer *timer,
                                kt_bench_cublaslt_plan **out) {
    kt_bench_cublaslt_plan *plan = kt_alloc(1, sizeof *plan);
    *out = plan;
    plan->owner = lt;
    plan->product = *product;
    KT_TRY(describe(plan));
    KT_TRY(find_algorithms(plan));
    return choose(plan, timer);
}

void kt_bench_cublaslt_plan_free(kt_bench_cublaslt_plan *plan) {
    if (!plan) return;
    const functions *lt = &plan->owner->lt;
    if (plan->desc) (void)lt->cublasLtMatmulDescDestroy(plan->desc);
    void *const layouts[] = {plan->a, plan->b, plan->d};
    for (int i = 0; i < 3; i++)
        if (layouts[i]) (void)lt->cublasLtMatrixLayoutDestroy(layouts[i]);
    free(plan);
}
