/* kiln fuzz: random calls against the float64 reference. The flow; the parts are in fuzz_*.c. */
#include "commands.h"
#include "common/report.h"
#include "fuzz/fuzz_crash.h"
#include "fuzz/fuzz_known.h"
#include "fuzz/fuzz_report.h"
#include "fuzz/fuzz_save.h"
#include "fuzz/fuzz_shrink.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct fuzz {
    /* the command line */
    const char *library, *device, *out, *known_path, *replay, *scale, *work;
    bool json, no_shrink;
    int64_t seed, cases, seconds, only_case, most_findings;
    kt_fuzz_limits limits;
    const kt_op *ops[32];
    size_t n_ops;
    /* the session */
    kt_library *lib;
    kt_fuzz_machine machine;
    json_t *ledger;
    kt_fuzz_report report;
} fuzz;

enum { SHRINK_RUNS = 200, CASE_SECONDS = 120 };

/* ---- the command line -------------------------------------------------------------------------------------------- */

/* "T=64" */
static int read_size(fuzz *f, const char *word) {
    if (word[0] < 'A' || word[0] > 'Z')
        return kt_fail(KT_USAGE, "\"%s\" is not a size; wanted a capital letter, =, and a number", word);
    return kt_parse_number(word + 2, 0, INT64_MAX >> 8, word, &f->limits.fixed[word[0] - 'A']);
}

/* A size that no operation has would be given in vain: what a drawn case has is what can be given. */
static int check_sizes(const fuzz *f) {
    bool has[26] = {false};
    kt_fuzz_limits free_choice = {.work = 1e7};
    for (int i = 0; i < 26; i++) free_choice.fixed[i] = -1;
    for (size_t k = 0; k < f->n_ops; k++) {
        kt_fuzz_case c = kt_fuzz_draw(f->ops[k], 1, 0, &free_choice);
        for (int i = 0; i < 26; i++) has[i] = has[i] || c.size[i] >= 0;
        kt_fuzz_case_free(&c);
    }
    for (int i = 0; i < 26; i++)
        if (f->limits.fixed[i] >= 0 && !has[i])
            return kt_fail(KT_USAGE, "%c=%" PRId64 ": no operation that is fuzzed has a size %c", 'A' + i,
                           f->limits.fixed[i], 'A' + i);
    return KT_GOOD;
}

static int read_operands(fuzz *f, const kt_list *operands) {
    for (int i = 0; i < 26; i++) f->limits.fixed[i] = -1;
    for (size_t i = 0; i < operands->n; i++) {
        const char *word = operands->item[i];
        if (word[0] && word[1] == '=') {
            KT_TRY(read_size(f, word));
            continue;
        }
        const kt_op *op = kt_op_find(word);
        if (!op) return KT_USAGE;
        if (f->n_ops == sizeof f->ops / sizeof *f->ops) return kt_fail(KT_USAGE, "too many operations");
        f->ops[f->n_ops++] = op;
    }
    if (f->n_ops == 0)
        for (int i = 0; kt_op_at(i); i++) f->ops[f->n_ops++] = kt_op_at(i);
    return check_sizes(f);
}

/* A positive number, 0 where there is none. */
static int read_positive(const char *text, const char *name, double dflt, double *out) {
    char *end = NULL;
    *out = dflt;
    if (!text) return KT_GOOD;
    *out = strtod(text, &end);
    if (end == text || *end || !(*out > 0) || !isfinite(*out))
        return kt_fail(KT_USAGE, "%s is \"%s\"; wanted a positive number", name, text);
    return KT_GOOD;
}

/* ---- findings ---------------------------------------------------------------------------------------------------- */

static json_t *finding_row(const fuzz *f, const kt_fuzz_case *c, uint64_t number, const kt_fuzz_finding *finding) {
    const char *argument = finding->arg >= 0 ? c->op->args[finding->arg].name : "";
    char *replay = kt_format("kiln fuzz %s --seed %" PRId64 " --case %" PRIu64, c->op->name, f->seed, number);
    json_t *row = json_pack("{s:s, s:s, s:s, s:s, s:s, s:o}", "op", c->op->name, "kind",
                            kt_fuzz_kind_names[finding->kind], "argument", argument, "message", finding->message,
                            "command", replay, "case", kt_fuzz_case_to_json(c));
    free(replay);
    return row;
}

static bool seen_before(const fuzz *f, const json_t *row) {
    for (size_t i = 0; i < json_array_size(f->report.rows); i++) {
        const json_t *other = json_array_get(f->report.rows, i);
        bool same = true;
        static const char *const keys[] = {"op", "kind", "argument"};
        for (size_t k = 0; k < 3; k++)
            same = same && json_equal(json_object_get(row, keys[k]), json_object_get(other, keys[k]));
        if (same) return true;
    }
    return false;
}

/* Make it small and keep it as a file. */
static int shrink_and_save(fuzz *f, kt_fuzz_case *c, uint64_t number, kt_fuzz_finding *finding, json_t *row) {
    if (!f->no_shrink) {
        int runs = kt_fuzz_shrink(&f->machine, c, finding, SHRINK_RUNS);
        json_object_set_new(row, "shrunk", kt_fuzz_case_to_json(c));
        json_object_set_new(row, "shrunk_message", json_string(finding->message));
        json_object_set_new(row, "shrink_runs", json_integer(runs));
    }
    const char *folder = f->out ? f->out : ".";
    char *path = kt_format("%s/fuzz-%s-%" PRId64 "-%" PRIu64 ".safetensors", folder, c->op->name, f->seed, number);
    int code = kt_fuzz_save(&f->machine, c, path);
    json_object_set_new(row, "file", json_string(path));
    if (!f->json) {
        char *text = kt_fuzz_case_text(c);
        printf("  case:   %s\n  %s\n  replay: kiln fuzz --replay %s\n  data:   kiln run %s --check\n", text,
               finding->message, path, path);
        free(text);
    }
    free(path);
    return code;
}

static int add_finding(fuzz *f, kt_fuzz_case *c, uint64_t number, kt_fuzz_finding *finding) {
    json_t *row = finding_row(f, c, number, finding);
    json_t *known = kt_fuzz_known_find(f->ledger, c, finding);
    bool again = seen_before(f, row);
    json_array_append_new(f->report.rows, row);
    if (known) {
        f->report.known++;
        json_object_set(row, "known", json_object_get(known, "why"));
        return KT_GOOD;
    }
    f->report.findings++;
    kt_fuzz_report_clear_progress(&f->report);
    if (!f->json)
        printf("finding: %s: %s\n  kiln fuzz %s --seed %" PRId64 " --case %" PRIu64 "\n",
               kt_fuzz_kind_names[finding->kind], finding->message, c->op->name, f->seed, number);
    fflush(stdout);
    return again ? KT_GOOD : shrink_and_save(f, c, number, finding, row);
}

/* ---- the session ------------------------------------------------------------------------------------------------- */

static int run_case(fuzz *f, kt_fuzz_case *c, uint64_t number) {
    kt_fuzz_finding finding;
    kt_fuzz_report_case(&f->report, c);
    kt_fuzz_crash_case(c->op->name, (uint64_t)f->seed, number);
    int code = kt_fuzz_run(&f->machine, c, &finding);
    if (code != KT_GOOD)
        return kt_prefix(code, "kiln fuzz %s --seed %" PRId64 " --case %" PRIu64 ": ", c->op->name, f->seed, number);
    if (finding.kind == KT_FUZZ_PASSED)
        kt_fuzz_report_worst(&f->report, c, finding.worst);
    else
        code = add_finding(f, c, number, &finding);
    kt_fuzz_crash_end();
    return code;
}

static bool is_over(const fuzz *f, int64_t done) {
    if (f->report.findings >= (uint64_t)f->most_findings) return true;
    if (f->seconds > 0) return kt_fuzz_now() - f->report.start_s >= (double)f->seconds;
    return done >= f->cases;
}

static int run_cases(fuzz *f) {
    int64_t first = f->only_case >= 0 ? f->only_case * (int64_t)f->n_ops : 0;
    int64_t wanted = f->only_case >= 0 ? (int64_t)f->n_ops : INT64_MAX;
    for (int64_t i = 0; i < wanted; i++) {
        if (f->only_case < 0 && is_over(f, i)) break;
        const kt_op *op = f->ops[(size_t)(first + i) % f->n_ops];
        uint64_t number = (uint64_t)(first + i) / f->n_ops;
        kt_fuzz_case c = kt_fuzz_draw(op, (uint64_t)f->seed, number, &f->limits);
        double left =
            f->seconds > 0 ? (double)f->seconds - (kt_fuzz_now() - f->report.start_s) : (double)(f->cases - i);
        kt_fuzz_report_progress(&f->report, op->name, left, f->seconds > 0 ? "s" : "cases");
        int code = run_case(f, &c, number);
        kt_fuzz_case_free(&c);
        KT_TRY(code);
    }
    return KT_GOOD;
}

static int run_replay(fuzz *f) {
    kt_fuzz_case c;
    int code = kt_fuzz_load(f->replay, &c);
    f->no_shrink = true;
    kt_fuzz_finding finding = {.kind = KT_FUZZ_PASSED};
    if (code == KT_GOOD) code = kt_fuzz_run(&f->machine, &c, &finding);
    if (code == KT_GOOD) {
        kt_fuzz_report_case(&f->report, &c);
        if (finding.kind != KT_FUZZ_PASSED) {
            f->report.findings = 1;
            json_array_append_new(f->report.rows, finding_row(f, &c, 0, &finding));
            if (!f->json) printf("finding: %s: %s\n", kt_fuzz_kind_names[finding.kind], finding.message);
        }
    }
    kt_fuzz_case_free(&c);
    return code;
}

/* Make it now: a session that has found something must be able to keep it. */
static int open_folder(const char *folder) {
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) return kt_fail(KT_ENVIRONMENT, "%s: %s", folder, strerror(errno));
    return access(folder, W_OK | X_OK) == 0 ? KT_GOOD : kt_fail(KT_ENVIRONMENT, "%s: %s", folder, strerror(errno));
}

static int run_all(fuzz *f) {
    if (f->out) KT_TRY(open_folder(f->out));
    setenv("KILN_SIM_BUDGET", "500000000", 0); /* a kernel that never ends is found in seconds */
    KT_TRY(kt_fuzz_known_read(f->known_path, &f->ledger));
    KT_TRY(kt_library_open(f->library, &f->lib));
    KT_TRY(kt_fuzz_machine_open(f->lib, f->device ? f->device : "sim", &f->machine));
    KT_TRY(read_positive(f->work, "--work", f->machine.simulated ? 1e7 : 2e9, &f->limits.work));
    if (f->machine.gpu) f->limits.large_work = 30 * f->limits.work;
    kt_fuzz_crash_watch(CASE_SECONDS);
    KT_TRY(f->replay ? run_replay(f) : run_cases(f));
    return f->report.findings
               ? kt_fail(KT_CHECK, "%" PRIu64 " of %" PRIu64 " cases failed", f->report.findings, f->report.cases)
               : KT_GOOD;
}

static void print_unseen(const fuzz *f) {
    for (size_t i = 0; i < json_array_size(f->ledger); i++) {
        const json_t *row = json_array_get(f->ledger, i);
        if (!json_object_get(row, "seen")) printf("not seen: %s\n", kt_json_text(row, "why", "?"));
    }
}

/* Who made the oracle's large products. */
static void print_oracle(const fuzz *f) {
    if (f->machine.gpu)
        printf("oracle: the host, and the GPU for %" PRIu64 " large products\n", kt_fuzz_gpu_products(f->machine.gpu));
    else if (f->machine.why_host)
        printf("oracle: the host alone: %s\n", f->machine.why_host);
}

static json_t *report_json(const fuzz *f) {
    json_t *report = kt_fuzz_report_json(&f->report, f->machine.device, (uint64_t)f->seed);
    uint64_t products = f->machine.gpu ? kt_fuzz_gpu_products(f->machine.gpu) : 0;
    json_object_set_new(report, "gpu_products", json_integer((json_int_t)products));
    if (f->machine.why_host) json_object_set_new(report, "oracle_on_host_because", json_string(f->machine.why_host));
    return report;
}

int kt_cmd_fuzz(const kt_command *self, int argc, char **argv) {
    fuzz *f = kt_alloc(1, sizeof *f);
    *f = (fuzz){.seed = 1, .cases = 100, .only_case = -1, .most_findings = 8};
    const kt_option options[] = {
        {"device", KT_TEXT, &f->device, "DEVICE", "auto, cuda:N, sim, sim:ARCH (default: sim)"},
        {"seed", KT_NUMBER, &f->seed, "N", "what all cases are drawn from (1)"},
        {"cases", KT_NUMBER, &f->cases, "N", "run N cases (100)"},
        {"seconds", KT_NUMBER, &f->seconds, "N", "run for N seconds instead"},
        {"case", KT_NUMBER, &f->only_case, "N", "run case N of the seed alone"},
        {"scale", KT_TEXT, &f->scale, "S", "scale of gradients, hidden states and weights (drawn)"},
        {"work", KT_TEXT, &f->work, "N", "multiply-adds of a case at most (1e7 on the simulator, 2e9 on a GPU)"},
        {"findings", KT_NUMBER, &f->most_findings, "N", "stop after N findings (8)"},
        {"no-shrink", KT_FLAG, &f->no_shrink, NULL, "keep failing cases as they are"},
        {"o", KT_TEXT, &f->out, "FOLDER", "where failing cases are kept (here)"},
        {"known", KT_TEXT, &f->known_path, "FILE", "ledger of known findings, which do not count"},
        {"replay", KT_TEXT, &f->replay, "FILE", "run the case of a file that was kept"},
        KT_OPTION_JSON(&f->json),
        KT_OPTION_LIBRARY(&f->library),
        KT_OPTIONS_END,
    };
    kt_list operands = {0};
    int code = kt_args_parse(self, options, argc, argv, &operands);
    if (code == KT_GOOD) code = read_operands(f, &operands);
    if (code == KT_GOOD) code = read_positive(f->scale, "--scale", 0, &f->limits.scale);
    if (code == KT_GOOD && f->most_findings < 1) code = kt_fail(KT_USAGE, "--findings must be at least 1");
    if (code == KT_GOOD && f->cases < 1) code = kt_fail(KT_USAGE, "--cases must be at least 1");
    if (code == KT_GOOD) {
        kt_fuzz_report_begin(&f->report);
        code = run_all(f);
        kt_fuzz_report_clear_progress(&f->report);
        bool complete = code == KT_GOOD || code == KT_CHECK;
        if (complete && f->json) {
            if (kt_print_json(report_json(f)) != KT_GOOD) code = KT_ENVIRONMENT;
        } else if (complete) {
            print_unseen(f);
            print_oracle(f);
            kt_fuzz_report_print(&f->report);
        }
        kt_fuzz_report_free(&f->report);
    }
    kt_fuzz_machine_close(&f->machine);
    json_decref(f->ledger);
    kt_library_close(f->lib);
    kt_list_free(&operands);
    free(f);
    return code;
}
