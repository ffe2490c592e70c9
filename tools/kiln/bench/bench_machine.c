/* The machine that `kiln bench` and `kiln tune` measure on: see bench.h. */
#include "bench/bench.h"

#include "common/report.h"

#include <stdio.h>
#include <string.h>

int kt_bench_open_context(kt_bench *b, const char *device, const kiln_context_options *options) {
    KT_TRY(kt_library_open(b->library, &b->lib));
    KT_TRY(kt_status(b->lib, KT_CALL(b->lib, "kiln_context_create", KT_STR(device), KT_PTR(options), KT_PTR(&b->ctx))));
    KT_TRY(KT_CALL_JSON(b->lib, &b->device_json, "kiln_context_device_json", KT_PTR(b->ctx)));
    json_object_set_new(b->report, "device", b->device_json);
    b->cuda = strcmp(kt_json_text(b->device_json, "kind", ""), "cuda") == 0;
    return KT_GOOD;
}

int kt_bench_open_timer(kt_bench *b, size_t warm_up) {
    int32_t type = 0, id = 0;
    KT_TRY(kt_status(b->lib, KT_CALL(b->lib, "kiln_context_device", KT_PTR(b->ctx), KT_PTR(&type), KT_PTR(&id))));
    if (b->cuda) KT_TRY(kt_gpu_open(id, &b->gpu));
    if (b->cuda && !b->no_cupti && kt_bench_cupti_open() != KT_GOOD)
        fprintf(stderr, "kiln: %s; times are those of CUDA events\n", kt_message());
    KT_TRY(kt_bench_memory_begin(&b->memory, b->lib, b->ctx, b->gpu));
    KT_TRY(kt_bench_timer_begin(&b->timer, &b->memory, (uint64_t)kt_json_number(b->device_json, "l2_bytes", 0)));
    b->timer.iterations = (size_t)b->iterations;
    b->timer.warm_up = b->cuda ? warm_up : 0;
    b->timer.cold = b->cold;
    b->timer.hot = b->hot;
    return KT_GOOD;
}

void kt_bench_close(kt_bench *b) {
    kt_bench_peers_close(b->peers);
    if (b->timer.memory) kt_bench_timer_end(&b->timer);
    kt_bench_memory_free(&b->memory);
    kt_bench_patterns_free(&b->patterns);
    kt_bench_cases_free(&b->cases);
    kt_bench_cupti_close();
    if (b->ctx) (void)KT_CALL(b->lib, "kiln_context_destroy", KT_PTR(b->ctx));
    kt_gpu_close(b->gpu);
    json_decref(b->report);
    kt_library_close(b->lib);
}
