/* kiln tune: measure the ways in which products may be made, and write down the best ones. */
#include "commands.h"
#include "common/report.h"
#include "tune/tune.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct tune_call {
    kt_tune tune;
    const char *out, *record;
    bool json;
    int64_t only_case;
    kt_list operands, dtypes, settings, transposed;
} tune_call;

static int find_cases(tune_call *c) {
    kt_bench *b = &c->tune.bench;
    if (c->record) {
        if (c->operands.n || b->cases_path)
            return kt_fail(KT_USAGE, "--record stands alone: the recording has all sizes");
        return kt_tune_cases_of_record(c->record, &b->cases);
    }
    if (c->operands.n > 1) {
        const kt_tune_call call = {&c->operands, &c->dtypes, &c->settings, &c->transposed};
        return kt_tune_cases_of_call(&call, &b->cases);
    }
    return kt_bench_cases_read(b->cases_path, c->operands.n ? c->operands.item[0] : NULL, &b->cases);
}

static int run(tune_call *c) {
    kt_tune *t = &c->tune;
    kt_bench *b = &t->bench;
    if (b->iterations < 1) return kt_fail(KT_USAGE, "--iterations must be at least 1");
    if (t->top < 2 || t->top > KT_TUNE_MAX) return kt_fail(KT_USAGE, "--top must be 2 to %d", KT_TUNE_MAX);
    if (c->only_case == 0) return kt_fail(KT_USAGE, "--case must be at least 1");
    KT_TRY(find_cases(c));
    bool all = c->only_case == KT_BENCH_ALL_CASES;
    if (!all && (size_t)c->only_case > b->cases.n)
        return kt_fail(KT_USAGE, "--case %" PRId64 ": there are %zu cases", c->only_case, b->cases.n);
    KT_TRY(kt_tune_open(t));
    for (size_t i = 0; i < b->cases.n; i++) {
        if (!all && i + 1 != (size_t)c->only_case) continue;
        if (isatty(2))
            fprintf(stderr, "\r\033[K%zu/%zu %s %s", i + 1, b->cases.n, b->cases.item[i].group, b->cases.item[i].name);
        int code = kt_tune_case(t, &b->cases.item[i]);
        if (isatty(2)) fprintf(stderr, "\r\033[K");
        KT_TRY(code);
        /* What is there is there, whatever happens to the next case. */
        if (c->out) KT_TRY(kt_tune_write(t, c->out));
    }
    if (c->json) return kt_print_json(kt_tune_json(t));
    kt_tune_print(t);
    if (c->out) printf("%s has the choices; a context follows it when KILN_TUNING names it\n", c->out);
    return KT_GOOD;
}

int kt_cmd_tune(const kt_command *self, int argc, char **argv) {
    tune_call c = {.tune = {.bench = {.iterations = 15, .report = json_object()}, .top = 8},
                   .only_case = KT_BENCH_ALL_CASES};
    kt_bench *b = &c.tune.bench;
    const kt_option options[] = {
        {"o", KT_TEXT, &c.out, "FILE", "write the choices to FILE, after every call"},
        {"record", KT_TEXT, &c.record, "FILE", "the calls of a recording (KILN_RECORD)"},
        {"cases", KT_TEXT, &b->cases_path, "FILE", "the calls of a case file (default: those of kiln bench)"},
        {"case", KT_NUMBER, &c.only_case, "N", "the N-th of the chosen calls alone"},
        {"dtype", KT_LIST, &c.dtypes, "[ARG=]TYPE", "type of an argument, or of all whose type is free"},
        {"option", KT_LIST, &c.settings, "NAME=VALUE", "an option of the operation"},
        {"transposed", KT_LIST, &c.transposed, "ARG", "a matrix whose first axis is the contiguous one"},
        {"device", KT_TEXT, &c.tune.device, "DEVICE", "cuda:N (default: KILN_DEVICE, or auto)"},
        {"top", KT_NUMBER, &c.tune.top, "N", "measure the N cheapest candidates of a product (8)"},
        {"iterations", KT_NUMBER, &b->iterations, "N", "timed calls a candidate (15)"},
        {"no-cupti", KT_FLAG, &b->no_cupti, NULL, "time by CUDA events"},
        KT_OPTION_JSON(&c.json),
        KT_OPTION_LIBRARY(&b->library),
        KT_OPTIONS_END,
    };
    int code = kt_args_parse(self, options, argc, argv, &c.operands);
    if (code == KT_GOOD) code = run(&c);
    kt_tune_close(&c.tune);
    kt_list *const lists[] = {&c.operands, &c.dtypes, &c.settings, &c.transposed};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) kt_list_free(lists[i]);
    return code;
}
