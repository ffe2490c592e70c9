/* kiln bench: verify the cases of a file, then time them. */
#include "bench/bench.h"
#include "commands.h"
#include "common/report.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* On a GPU the ceilings that floors are made of are measured; elsewhere they are Kiln's own facts about the device. */
static int open_machine(kt_bench *b) {
    KT_TRY(kt_bench_open_context(b, b->device, NULL));
    KT_TRY(kt_bench_open_timer(b, 5));
    b->computes = b->cuda || strcmp(kt_json_text(b->device_json, "kind", ""), "sim") == 0;
    b->bytes_per_s = kt_json_number(b->device_json, "bytes_per_s", 1);
    if (b->cuda) KT_TRY(kt_bench_copy_rate(&b->timer, &b->bytes_per_s));
    b->tensor_flops = kt_bench_tensor_flops(&b->cases, kt_json_text(b->device_json, "name", ""),
                                            kt_json_number(b->device_json, "bf16_flops", 1));
    return kt_bench_peers_open(b->peers_list, &b->memory, &b->peers);
}

static int run_cases(kt_bench *b) {
    int worst = KT_GOOD;
    bool all = b->only_case == KT_BENCH_ALL_CASES;
    size_t first = all ? 0 : (size_t)b->only_case - 1, last = all ? b->cases.n - 1 : first;
    if (first >= b->cases.n) return kt_fail(KT_USAGE, "--case %zu: there are %zu cases", first + 1, b->cases.n);
    for (size_t i = first; i <= last; i++) {
        const kt_bench_case *c = &b->cases.item[i];
        if (isatty(2)) fprintf(stderr, "\r\033[K%zu/%zu %s %s", i + 1, b->cases.n, c->group, c->name);
        int code = kt_bench_run_case(b, c, i + 1);
        if (isatty(2)) fprintf(stderr, "\r\033[K");
        if (code != KT_GOOD && code != KT_CHECK) return code;
        if (code != KT_GOOD) {
            /* A wrong result is reported, and the others are still measured. */
            fprintf(stderr, "kiln: %s\n", kt_message());
            worst = code;
        }
        kt_bench_report_means(b);
        /* What is there is there, whatever happens to the next case. */
        if (b->out) KT_TRY(kt_bench_report_write(b, b->out));
        bool ends = i == last || strcmp(c->group, b->cases.item[i + 1].group) != 0;
        if (ends && !b->json) kt_bench_print_group(b, c->group);
        if (ends && !b->json) fflush(stdout);
    }
    return worst == KT_GOOD ? KT_GOOD : kt_fail(worst, "some results are wrong");
}

static int run(kt_bench *b, const char *op) {
    if (!b->cold && !b->hot) b->cold = b->hot = true;
    if (b->iterations < 1) return kt_fail(KT_USAGE, "--iterations must be at least 1");
    if (b->only_case == 0) return kt_fail(KT_USAGE, "--case must be at least 1");
    KT_TRY(kt_bench_cases_read(b->cases_path, op, &b->cases));
    KT_TRY(open_machine(b));
    KT_TRY(kt_bench_report_begin(b));
    if (!b->json) kt_bench_print_head(b);
    int code = run_cases(b);
    if (b->json && (code == KT_GOOD || code == KT_CHECK) && kt_print_json(json_incref(b->report)) != KT_GOOD)
        code = KT_ENVIRONMENT;
    return code;
}

int kt_cmd_bench(const kt_command *self, int argc, char **argv) {
    kt_bench b = {.iterations = 25, .only_case = KT_BENCH_ALL_CASES, .report = json_object()};
    const kt_option options[] = {
        {"cases", KT_TEXT, &b.cases_path, "FILE", "the cases (default: built in, bench/cases/seeds.json)"},
        {"case", KT_NUMBER, &b.only_case, "N", "the N-th of the chosen cases alone"},
        {"device", KT_TEXT, &b.device, "DEVICE", "auto, cuda:N, sim, null (default: KILN_DEVICE, or auto)"},
        {"iterations", KT_NUMBER, &b.iterations, "N", "timed calls a case (25)"},
        {"cold", KT_FLAG, &b.cold, NULL, "only with the L2 written over before each call"},
        {"hot", KT_FLAG, &b.hot, NULL, "only call after call"},
        {"graph", KT_FLAG, &b.graph, NULL, "also time the call replayed from a CUDA graph"},
        {"peers", KT_TEXT, &b.peers_list, "LIST", "also time these: cublaslt, composed"},
        {"no-cupti", KT_FLAG, &b.no_cupti, NULL, "time by CUDA events"},
        {"no-verify", KT_FLAG, &b.no_verify, NULL, "do not compare with the float64 reference"},
        {"o", KT_TEXT, &b.out, "FILE", "write the report as JSON to FILE, after every case"},
        KT_OPTION_JSON(&b.json),
        KT_OPTION_LIBRARY(&b.library),
        KT_OPTIONS_END,
    };
    kt_list operands = {0};
    int code = kt_args_parse(self, options, argc, argv, &operands);
    if (code == KT_GOOD && operands.n > 1)
        code = kt_fail(KT_USAGE, "kiln bench takes at most one operation; it got %zu", operands.n);
    if (code == KT_GOOD) code = run(&b, operands.n ? operands.item[0] : NULL);
    kt_bench_close(&b);
    kt_list_free(&operands);
    return code;
}
