/* kiln run: the operation of a safetensors file, on a GPU or the simulator. */
#include "abi/options.h"
#include "commands.h"
#include "common/report.h"
#include "run/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- from the file to a call ------------------------------------------------------------------------------------- */

/* Operation and options of the file's metadata, and the command line's options over them. */
static int read_operation(kt_run *run) {
    const char *name = kt_safetensors_metadata(&run->file, "op");
    if (!name) return kt_fail(KT_USAGE, "%s: its metadata has no \"op\"", run->path);
    run->op = kt_op_find(name);
    if (!run->op) return kt_prefix(KT_USAGE, "%s: metadata \"op\": ", run->path);
    const char *text = kt_safetensors_metadata(&run->file, "options");
    json_error_t error;
    run->settings_json = json_loads(text ? text : "{}", JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(run->settings_json))
        return kt_fail(KT_USAGE, "%s: metadata \"options\" is not a JSON object: %s", run->path,
                       run->settings_json ? text : error.text);
    for (size_t i = 0; i < run->settings.n; i++)
        KT_TRY(kt_options_add(run->op, run->settings_json, run->settings.item[i]));
    run->options = kt_alloc(1, run->op->options_size);
    return kt_options_fill(run->op, run->settings_json, run->options);
}

static const kt_st_tensor *find_tensor(const kt_run *run, const char *prefix, const char *name) {
    char *full = kt_format("%s.%s", prefix, name);
    const kt_st_tensor *t = kt_safetensors_find(&run->file, full);
    free(full);
    return t;
}

/* Every tensor of the file must be in.<argument> or out.<output>: a misspelt optional one must not vanish silently. */
static int check_names(const kt_run *run) {
    for (size_t i = 0; i < run->file.n; i++) {
        const char *name = run->file.tensor[i].name;
        bool in = strncmp(name, "in.", 3) == 0, out = strncmp(name, "out.", 4) == 0;
        const kt_arg *arg = in ? kt_op_arg(run->op, name + 3) : out ? kt_op_arg(run->op, name + 4) : NULL;
        if (!arg || (out && arg->role != KT_OUT))
            return kt_fail(KT_USAGE,
                           "%s: tensor \"%s\" is not in.<argument> or out.<output> of %s; \"kiln ops %s\" lists them",
                           run->path, name, run->op->name, run->op->name);
    }
    return KT_GOOD;
}

static int bind_inputs(kt_run *run) {
    const kt_op *op = run->op;
    for (int i = 0; i < op->n_args; i++) {
        if (op->args[i].role == KT_OUT) continue;
        const kt_st_tensor *t = find_tensor(run, "in", op->args[i].name);
        if (!t && op->args[i].role == KT_IN)
            return kt_fail(KT_USAGE, "%s: tensor \"in.%s\" is missing", run->path, op->args[i].name);
        if (!t) continue;
        KT_TRY(kt_tensors_set(&run->tensors, i, t->dtype, t->rank, t->shape));
        kt_tensors_host(&run->tensors, i, t->data);
    }
    return KT_GOOD;
}

/* The type of an output: --dtype, else the file's own if kernels can write it, else the default. */
static int output_dtype(kt_run *run, int i, const kt_st_tensor *expected, const kt_dtype **dtype) {
    const kt_arg *arg = &run->op->args[i];
    *dtype = expected && kt_dtype_allowed(expected->dtype, arg->dtypes) ? expected->dtype
                                                                        : kt_tensors_default_dtype(&run->tensors, i);
    size_t n = strlen(arg->name);
    for (size_t k = 0; k < run->dtypes.n; k++) {
        const char *word = run->dtypes.item[k];
        if (strncmp(word, arg->name, n) != 0 || word[n] != '=') continue;
        *dtype = kt_dtype_named(word + n + 1);
        if (!*dtype || !kt_dtype_allowed(*dtype, arg->dtypes))
            return kt_fail(KT_USAGE, "--dtype %s: %s may be %s", word, arg->name, arg->dtypes);
    }
    return KT_GOOD;
}

static int check_dtype_words(const kt_run *run) {
    for (size_t k = 0; k < run->dtypes.n; k++) {
        char *name = kt_copy(run->dtypes.item[k]);
        char *equals = strchr(name, '=');
        if (equals) *equals = '\0';
        const kt_arg *arg = equals ? kt_op_arg(run->op, name) : NULL;
        bool good = arg && arg->role == KT_OUT;
        free(name);
        if (!good)
            return kt_fail(KT_USAGE, "--dtype %s: wanted OUTPUT=TYPE with an output of %s", run->dtypes.item[k],
                           run->op->name);
    }
    return KT_GOOD;
}

/* The outputs that the file holds, or all of them if it holds none. */
static int bind_outputs(kt_run *run) {
    const kt_op *op = run->op;
    bool some = false;
    for (size_t i = 0; i < run->file.n; i++) some = some || strncmp(run->file.tensor[i].name, "out.", 4) == 0;
    uint64_t accumulate = ((const kiln_common_options *)run->options)->accumulate;
    for (int i = 0, output = 0; i < op->n_args; i++) {
        if (op->args[i].role != KT_OUT) continue;
        bool adds = accumulate >> output++ & 1;
        const kt_st_tensor *expected = find_tensor(run, "out", op->args[i].name);
        const kt_st_tensor *start = find_tensor(run, "in", op->args[i].name);
        if (adds != (start != NULL))
            return kt_fail(KT_USAGE, "%s: %s is %s, so the file must %shold \"in.%s\"", run->path, op->args[i].name,
                           adds ? "added to" : "overwritten", adds ? "" : "not ", op->args[i].name);
        if (some && !expected) continue;
        const kt_dtype *dtype;
        KT_TRY(output_dtype(run, i, start ? start : expected, &dtype));
        KT_TRY(kt_tensors_derive(&run->tensors, i, dtype));
        const kt_tensor *t = &run->tensors.tensor[i];
        const kt_st_tensor *shaped[] = {expected, start};
        for (int k = 0; k < 2; k++)
            if (shaped[k] && (shaped[k]->rank != t->rank ||
                              memcmp(shaped[k]->shape, t->shape, (size_t)t->rank * sizeof t->shape[0]) != 0))
                return kt_fail(KT_USAGE, "%s: tensor \"%s\" does not have the shape [%s] of these inputs", run->path,
                               shaped[k]->name, op->args[i].shape);
        if (start && start->dtype != dtype)
            return kt_fail(KT_USAGE, "%s: \"%s\" is %s, but the output is %s", run->path, start->name,
                           start->dtype->name, dtype->name);
        kt_tensors_host(&run->tensors, i, start ? start->data : NULL);
    }
    return KT_GOOD;
}

static int read_case(kt_run *run) {
    KT_TRY(kt_safetensors_open(run->path, &run->file));
    KT_TRY(read_operation(run));
    KT_TRY(check_names(run));
    KT_TRY(check_dtype_words(run));
    kt_tensors_begin(&run->tensors, run->op, run->options);
    KT_TRY(bind_inputs(run));
    return bind_outputs(run);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int open_context(kt_run *run) {
    kt_library *lib = run->lib;
    KT_TRY(kt_status(lib, KT_CALL(lib, "kiln_context_create", KT_STR(run->device), KT_PTR(NULL), KT_PTR(&run->ctx))));
    int32_t type = 0, id = 0;
    KT_TRY(kt_status(lib, KT_CALL(lib, "kiln_context_device", KT_PTR(run->ctx), KT_PTR(&type), KT_PTR(&id))));
    json_t *facts = NULL;
    KT_TRY(KT_CALL_JSON(lib, &facts, "kiln_context_device_json", KT_PTR(run->ctx)));
    json_object_set_new(run->report, "device", facts);
    if (type == 1) {
        if (run->sim_seeds == 0) run->sim_seeds = 1;
        return KT_GOOD;
    }
    if (run->sim_seeds) return kt_fail(KT_USAGE, "--sim-seeds is for the simulator; this context runs on a GPU");
    KT_TRY(kt_status(lib, KT_CALL(lib, "kiln_stream_create", KT_PTR(run->ctx), KT_PTR(&run->stream))));
    KT_TRY(kt_status(lib, KT_CALL(lib, "kiln_event_create", KT_PTR(run->ctx), KT_PTR(&run->start))));
    return kt_status(lib, KT_CALL(lib, "kiln_event_create", KT_PTR(run->ctx), KT_PTR(&run->stop)));
}

static int record(kt_run *run, void *event) {
    if (!run->stream) return KT_GOOD;
    return kt_status(run->lib,
                     KT_CALL(run->lib, "kiln_event_record", KT_PTR(run->ctx), KT_PTR(event), KT_PTR(run->stream)));
}

/* One call, finished: its outputs are on the device. Time: the GPU's between two events, or the simulator's wall time.
 */
static int run_once(kt_run *run, double *seconds) {
    kt_library *lib = run->lib;
    double start = now(), us = 0;
    KT_TRY(record(run, run->start));
    KT_TRY(kt_call_op(lib, run->op, run->ctx, run->tensors.on_device, run->options, run->stream));
    KT_TRY(record(run, run->stop));
    *seconds = now() - start;
    if (!run->stream) return KT_GOOD;
    KT_TRY(kt_status(lib, KT_CALL(lib, "kiln_stream_synchronize", KT_PTR(run->ctx), KT_PTR(run->stream))));
    KT_TRY(kt_status(lib, KT_CALL(lib, "kiln_event_elapsed_us", KT_PTR(run->ctx), KT_PTR(run->start), KT_PTR(run->stop),
                                  KT_PTR(&us))));
    *seconds = 1e-6 * us;
    return KT_GOOD;
}

/* Copies of the outputs: the state before the first call, or the first call's results. NULL where there is none. */
static void keep_outputs(const kt_run *run, void **copies) {
    for (int i = 0; i < run->op->n_args; i++) {
        const kt_tensor *t = &run->tensors.tensor[i];
        if (run->op->args[i].role != KT_OUT || !t->host) continue;
        copies[i] = kt_alloc(1, t->bytes);
        memcpy(copies[i], t->host, t->bytes);
    }
}

static int same_bits(const kt_run *run, void *const *first, const char *what) {
    for (int i = 0; i < run->op->n_args; i++) {
        const kt_tensor *t = &run->tensors.tensor[i];
        if (!first[i] || memcmp(first[i], t->host, t->bytes) == 0) continue;
        uint64_t width = t->dtype->bits / 8u, e = 0;
        while (memcmp((char *)first[i] + e * width, (char *)t->host + e * width, width) == 0) e++;
        char place[128];
        return kt_fail(KT_CHECK, "%s: %s%s differs from the first run's: %.9g and %.9g", what, run->op->args[i].name,
                       kt_tensors_place(t, e, place, sizeof place), kt_element(t->dtype, t->host, e),
                       kt_element(t->dtype, first[i], e));
    }
    return KT_GOOD;
}

/* Run again from the same start; the outputs must have the same bits. */
static int run_again(kt_run *run, void *const *before, void *const *first, const char *what, double *seconds) {
    for (int i = 0; i < run->op->n_args; i++)
        if (before[i]) memcpy(run->tensors.tensor[i].host, before[i], run->tensors.tensor[i].bytes);
    KT_TRY(kt_tensors_upload_outputs(&run->tensors, run->lib, run->ctx));
    KT_TRY(run_once(run, seconds));
    KT_TRY(kt_tensors_download(&run->tensors, run->lib, run->ctx));
    return same_bits(run, first, what);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int run_repeats(kt_run *run, void *const *before, void *const *first, double first_s) {
    size_t n = (size_t)run->repeat;
    double *times = kt_alloc(n, sizeof *times);
    times[0] = first_s;
    int code = KT_GOOD;
    for (size_t i = 1; i < n && code == KT_GOOD; i++) {
        char what[48];
        snprintf(what, sizeof what, "run %zu", i + 1);
        code = run_again(run, before, first, what, &times[i]);
    }
    for (int64_t seed = 2; seed <= run->sim_seeds && code == KT_GOOD; seed++) {
        char what[48];
        double seconds;
        snprintf(what, sizeof what, "seed %" PRId64, seed);
        code =
            kt_status(run->lib, KT_CALL(run->lib, "kiln_context_sim_seed", KT_PTR(run->ctx), KT_U64((uint64_t)seed)));
        if (code == KT_GOOD) code = run_again(run, before, first, what, &seconds);
        if (code != KT_GOOD) kt_prefix(code, "with simulator seed %" PRId64 ": ", seed);
    }
    qsort(times, n, sizeof *times, by_value);
    json_object_set_new(run->report, "run",
                        json_pack("{s:I, s:I, s:f, s:f}", "runs", (json_int_t)run->repeat, "seeds",
                                  (json_int_t)run->sim_seeds, "first_us", first_s * 1e6, "median_us",
                                  times[n / 2] * 1e6));
    free(times);
    return code;
}

static int run_all(kt_run *run) {
    kt_library *lib = run->lib;
    KT_TRY(kt_tensors_upload(&run->tensors, lib, run->ctx));
    json_t *plan = NULL;
    KT_TRY(KT_CALL_JSON(lib, &plan, "kiln_plan_json", KT_PTR(run->ctx), KT_STR(run->op->name),
                        KT_PTR(run->tensors.on_device), KT_I32(run->op->n_args), KT_PTR(run->options),
                        KT_U32(KILN_PLAN_BUILD)));
    json_object_set_new(run->report, "plan", plan);

    void *before[KT_MAX_ARGS] = {NULL}, *first[KT_MAX_ARGS] = {NULL};
    keep_outputs(run, before);
    double seconds = 0;
    int code = run_once(run, &seconds);
    if (code == KT_GOOD) code = kt_tensors_download(&run->tensors, lib, run->ctx);
    if (code == KT_GOOD) {
        keep_outputs(run, first);
        code = run_repeats(run, before, first, seconds);
    }
    for (int i = 0; i < KT_MAX_ARGS; i++) {
        free(before[i]);
        free(first[i]);
    }
    return code;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static int add_counters(kt_run *run) {
    kiln_counters c = {.struct_size = sizeof c};
    uint64_t faults = 0;
    KT_TRY(kt_status(run->lib, KT_CALL(run->lib, "kiln_context_counters", KT_PTR(run->ctx), KT_PTR(&c))));
    KT_TRY(kt_status(run->lib, KT_CALL(run->lib, "kiln_context_device_faults", KT_PTR(run->ctx), KT_PTR(&faults))));
    json_t *counters = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:s, s:s, s:f, s:f, s:f, s:I, s:f, s:I}", "launches",
        (json_int_t)c.launches, "built", (json_int_t)c.kernels_built, "memory", (json_int_t)c.hits_memory, "read_only",
        (json_int_t)c.hits_read_only, "disk", (json_int_t)c.hits_dir, "published", (json_int_t)c.published,
        "publish_failed", (json_int_t)c.publish_failed, "cache_usable", c.dir_usable != 0, "cache_dir", c.cache_dir,
        "cache_reason", c.cache_reason, "expand_us", (double)c.expand_ns / 1e3, "assemble_us",
        (double)c.assemble_ns / 1e3, "load_us", (double)c.load_ns / 1e3, "sim_instructions",
        (json_int_t)c.sim_instructions, "sim_us", (double)c.sim_ns / 1e3, "skipped_ids", (json_int_t)faults);
    json_object_set_new(run->report, "counters", counters);
    return KT_GOOD;
}

static void add_case(kt_run *run) {
    json_t *axes = json_object(), *outputs = json_array();
    for (int i = 0; i < 26; i++) {
        char letter[2] = {(char)('A' + i), '\0'};
        if (run->tensors.size[i] >= 0) json_object_set_new(axes, letter, json_integer(run->tensors.size[i]));
    }
    for (int i = 0; i < run->op->n_args; i++)
        if (run->op->args[i].role == KT_OUT && run->tensors.tensor[i].present)
            json_array_append_new(outputs, json_pack("{s:s, s:s}", "name", run->op->args[i].name, "dtype",
                                                     run->tensors.tensor[i].dtype->name));
    json_object_set_new(run->report, "file", json_string(run->path));
    json_object_set_new(run->report, "op", json_string(run->op->name));
    json_object_set_new(run->report, "options", json_incref(run->settings_json));
    json_object_set_new(run->report, "axes", axes);
    json_object_set_new(run->report, "outputs", outputs);
}

/* The case again, with this run's outputs: a file that `kiln run --check` accepts. */
static int write_outputs(const kt_run *run) {
    kt_st_tensor *all = kt_alloc(2 * KT_MAX_ARGS, sizeof *all);
    char *names[2 * KT_MAX_ARGS] = {NULL};
    size_t n = 0;
    for (size_t i = 0; i < run->file.n; i++)
        if (strncmp(run->file.tensor[i].name, "in.", 3) == 0) all[n++] = run->file.tensor[i];
    for (int i = 0; i < run->op->n_args; i++) {
        const kt_tensor *t = &run->tensors.tensor[i];
        if (run->op->args[i].role != KT_OUT || !t->present) continue;
        names[n] = kt_format("out.%s", run->op->args[i].name);
        all[n] = (kt_st_tensor){names[n], t->dtype, t->rank, {0}, t->elements, t->bytes, t->host};
        memcpy(all[n].shape, t->shape, sizeof t->shape);
        n++;
    }
    char *options = json_dumps(run->settings_json, JSON_SORT_KEYS);
    json_t *metadata = json_pack("{s:s, s:s}", "op", run->op->name, "options", options);
    int code = kt_safetensors_write(run->out, all, n, metadata);
    json_decref(metadata);
    free(options);
    for (size_t i = 0; i < 2 * KT_MAX_ARGS; i++) free(names[i]);
    free(all);
    return code;
}

static int run_case(kt_run *run) {
    if (run->no_assembler) setenv("KILN_LIBNVJITLINK", "off", 1);
    KT_TRY(kt_library_open(run->library, &run->lib));
    KT_TRY(read_case(run));
    add_case(run);
    KT_TRY(open_context(run));
    KT_TRY(run_all(run));
    KT_TRY(add_counters(run));
    return run->out ? write_outputs(run) : KT_GOOD;
}

static void close_run(kt_run *run) {
    kt_tensors_free(&run->tensors, run->lib, run->ctx);
    void *const events[] = {run->start, run->stop};
    for (int i = 0; i < 2; i++)
        if (events[i]) (void)KT_CALL(run->lib, "kiln_event_destroy", KT_PTR(run->ctx), KT_PTR(events[i]));
    if (run->stream) (void)KT_CALL(run->lib, "kiln_stream_destroy", KT_PTR(run->ctx), KT_PTR(run->stream));
    if (run->ctx) (void)KT_CALL(run->lib, "kiln_context_destroy", KT_PTR(run->ctx));
    free(run->options);
    json_decref(run->settings_json);
    json_decref(run->report);
    kt_safetensors_close(&run->file);
    kt_list_free(&run->dtypes);
    kt_list_free(&run->settings);
    kt_library_close(run->lib);
}

int kt_cmd_run(const kt_command *self, int argc, char **argv) {
    kt_run run = {.repeat = 1, .report = json_object()};
    const kt_option options[] = {
        {"device", KT_TEXT, &run.device, "DEVICE", "auto, cuda:N, sim, sim:ARCH (default: KILN_DEVICE, or auto)"},
        {"o", KT_TEXT, &run.out, "FILE", "write inputs and outputs to FILE"},
        {"check", KT_FLAG, &run.check, NULL, "compare with the file's outputs, or with the float64 reference"},
        {"dtype", KT_LIST, &run.dtypes, "OUTPUT=TYPE", "type of an output: bf16, f16, f32"},
        {"option", KT_LIST, &run.settings, "NAME=VALUE", "an option of the operation, over the file's"},
        {"repeat", KT_NUMBER, &run.repeat, "N", "run N times; all must give the same bits"},
        {"sim-seeds", KT_NUMBER, &run.sim_seeds, "N", "run under N schedules of the simulator, the same"},
        {"no-assembler", KT_FLAG, &run.no_assembler, NULL, "do not look for nvJitLink"},
        KT_OPTION_JSON(&run.json),
        KT_OPTION_LIBRARY(&run.library),
        KT_OPTIONS_END,
    };
    kt_list operands = {0};
    int code = kt_args_parse(self, options, argc, argv, &operands);
    if (code == KT_GOOD && operands.n != 1) code = kt_fail(KT_USAGE, "kiln run takes one file; it got %zu", operands.n);
    if (code == KT_GOOD && run.repeat < 1) code = kt_fail(KT_USAGE, "--repeat must be at least 1");
    if (code == KT_GOOD) {
        run.path = operands.item[0];
        code = run_case(&run);
        if (code == KT_GOOD && run.check) code = kt_run_check(&run);
        bool complete = json_object_get(run.report, "counters") != NULL;
        if (complete && run.json) {
            json_object_set_new(run.report, "exit_code", json_integer(code));
            if (kt_print_json(json_incref(run.report)) != KT_GOOD) code = KT_ENVIRONMENT;
        } else if (complete) {
            kt_run_print(&run);
        }
    }
    kt_list_free(&operands);
    close_run(&run);
    return code;
}
