/* CUPTI: see bench_cupti.h. Its callbacks take no user pointer, so the state is the file's. */
#include "bench/bench_cupti.h"
#include "gpu/tool_gpu.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER_BYTES = 4 << 20 };

typedef void request_fn(uint8_t **buffer, size_t *size, size_t *max_records);
typedef void complete_fn(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);

static struct {
    void *library;
    const char *path;
    int (*register_callbacks)(request_fn *, complete_fn *);
    int (*enable)(int kind);
    int (*disable)(int kind);
    int (*flush_all)(uint32_t flags);
    int (*next_record)(uint8_t *buffer, size_t valid, uint8_t **record);
    int (*dropped)(void *context, uint32_t stream, size_t *n);
    int (*result_string)(int rc, const char **text);
    kt_bench_kernel *kernels;
    size_t n, n_dropped;
} cupti;

static int check(int rc, const char *what) {
    if (rc == 0) return KT_GOOD;
    const char *text = NULL;
    if (cupti.result_string(rc, &text) != 0 || !text) text = "an unknown error";
    return kt_fail(KT_ENVIRONMENT, "%s: CUPTI says %d, %s", what, rc, text);
}

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

static void request(uint8_t **buffer, size_t *size, size_t *max_records) {
    *buffer = aligned_alloc(8, BUFFER_BYTES);
    *size = *buffer ? BUFFER_BYTES : 0;
    *max_records = 0; /* as many as fit */
}

static void take(const uint8_t *record) {
    uint32_t kind;
    const char *name;
    kt_bench_kernel k;
    memcpy(&kind, record, sizeof kind);
    if (kind != KT_CUPTI_KIND_CONCURRENT_KERNEL) return;
    memcpy(&k.start_ns, record + KT_CUPTI_KERNEL_START, sizeof k.start_ns);
    memcpy(&k.end_ns, record + KT_CUPTI_KERNEL_END, sizeof k.end_ns);
    memcpy(&name, record + KT_CUPTI_KERNEL_NAME, sizeof name);
    k.mark = name && strcmp(name, kt_bench_mark_name) == 0;
    if ((cupti.n & (cupti.n - 1)) == 0) /* full at every power of two */
        cupti.kernels = kt_grow(cupti.kernels, cupti.n ? 2 * cupti.n : 1, sizeof *cupti.kernels);
    cupti.kernels[cupti.n++] = k;
}

static void complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    (void)size;
    uint8_t *record = NULL;
    size_t dropped = 0;
    while (valid && cupti.next_record(buffer, valid, &record) == 0) take(record);
    if (cupti.dropped(context, stream, &dropped) == 0) cupti.n_dropped += dropped;
    free(buffer);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int find_symbols(void) {
    const struct {
        const char *name;
        void *at;
    } symbols[] = {
        {"cuptiActivityRegisterCallbacks", &cupti.register_callbacks},
        {"cuptiActivityEnable", &cupti.enable},
        {"cuptiActivityDisable", &cupti.disable},
        {"cuptiActivityFlushAll", &cupti.flush_all},
        {"cuptiActivityGetNextRecord", &cupti.next_record},
        {"cuptiActivityGetNumDroppedRecords", &cupti.dropped},
        {"cuptiGetResultString", &cupti.result_string},
    };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(cupti.library, symbols[i].name);
        if (!address) return kt_fail(KT_ENVIRONMENT, "%s has no function %s", cupti.path, symbols[i].name);
        memcpy(symbols[i].at, &address, sizeof address);
    }
    return KT_GOOD;
}

static void open_some(void) {
    static const char *const paths[] = {
        "libcupti.so.13",
        "libcupti.so.12",
        "/usr/local/cuda/lib64/libcupti.so.13",
        "/usr/local/cuda/lib64/libcupti.so.12",
        "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so",
    };
    for (size_t i = 0; i < sizeof paths / sizeof *paths && !cupti.library; i++) {
        cupti.library = dlopen(paths[i], RTLD_NOW | RTLD_LOCAL);
        cupti.path = paths[i];
    }
}

int kt_bench_cupti_open(void) {
    open_some();
    int code = KT_GOOD;
    if (!cupti.library)
        code = kt_fail(KT_ENVIRONMENT, "no libcupti.so.13 or .12 where the system looks or in /usr/local/cuda");
    if (code == KT_GOOD) code = find_symbols();
    if (code == KT_GOOD) code = check(cupti.register_callbacks(request, complete), "cuptiActivityRegisterCallbacks");
    if (code != KT_GOOD) kt_bench_cupti_close();
    return code;
}

void kt_bench_cupti_close(void) {
    /* CUPTI stays loaded: its hooks in the driver are not taken back. */
    free(cupti.kernels);
    memset(&cupti, 0, sizeof cupti);
}

const char *kt_bench_cupti_path(void) {
    return cupti.library ? cupti.path : NULL;
}

/* ---- recording --------------------------------------------------------------------------------------------------- */

int kt_bench_cupti_start(void) {
    cupti.n = cupti.n_dropped = 0;
    return check(cupti.enable(KT_CUPTI_KIND_CONCURRENT_KERNEL), "cuptiActivityEnable");
}

static int by_start(const void *a, const void *b) {
    const kt_bench_kernel *x = a, *y = b;
    return x->start_ns < y->start_ns ? -1 : x->start_ns > y->start_ns;
}

int kt_bench_cupti_stop(kt_bench_kernel **kernels, size_t *n) {
    KT_TRY(check(cupti.flush_all(KT_CUPTI_FLUSH_FORCED), "cuptiActivityFlushAll"));
    KT_TRY(check(cupti.disable(KT_CUPTI_KIND_CONCURRENT_KERNEL), "cuptiActivityDisable"));
    if (cupti.n_dropped) return kt_fail(KT_ENVIRONMENT, "CUPTI dropped %zu records", cupti.n_dropped);
    if (cupti.n) qsort(cupti.kernels, cupti.n, sizeof *cupti.kernels, by_start);
    *kernels = cupti.kernels;
    *n = cupti.n;
    cupti.kernels = NULL;
    cupti.n = 0;
    return KT_GOOD;
}
