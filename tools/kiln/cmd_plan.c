/* kiln plan: what a call would run, from sizes alone. */
#include "commands.h"
#include "options.h"
#include "plan_report.h"
#include "report.h"
#include "tensors.h"

#include "kiln/kiln_tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct plan_call {
    const char *library, *device, *arch, *dump;
    bool json, explain, no_assembler;
    kt_list settings, dtypes, with, without, operands;
    kt_library *lib;
    void *ctx;
    const kt_op *op;
    json_t *settings_json, *plan;
    void *options;
    kt_tensors tensors;
    char of_arch[64]; /* the device that --arch means */
} plan_call;

/* Optional inputs that a call usually has: the others come with --with. */
static bool usual(const kt_arg *arg) {
    return strcmp(arg->name, "topk_idx") == 0 || strcmp(arg->name, "topk_indices") == 0;
}

static int check_names(const plan_call *c) {
    const kt_list *lists[] = {&c->with, &c->without};
    for (int l = 0; l < 2; l++) {
        for (size_t i = 0; i < lists[l]->n; i++) {
            const kt_arg *arg = kt_op_arg(c->op, lists[l]->item[i]);
            if (!arg)
                return kt_fail(KT_USAGE, "--%s %s: %s has no such argument", l ? "without" : "with", lists[l]->item[i],
                               c->op->name);
            if (l && arg->role == KT_IN) return kt_fail(KT_USAGE, "--without %s: %s needs it", arg->name, c->op->name);
        }
    }
    return KT_GOOD;
}

/* B=130 */
static int read_axes(plan_call *c) {
    for (size_t i = 1; i < c->operands.n; i++) {
        const char *word = c->operands.item[i];
        bool known = false;
        for (int a = 0; a < c->op->n_args && word[0] >= 'A' && word[0] <= 'Z'; a++)
            known = known || c->op->args[a].shape[0] == '?' || strchr(c->op->args[a].shape, word[0]);
        if (!known || word[1] != '=')
            return kt_fail(KT_USAGE, "\"%s\" is not an axis of %s; wanted AXIS=SIZE with a letter of its shapes", word,
                           c->op->name);
        char what[] = "axis ?";
        what[5] = word[0];
        KT_TRY(kt_parse_number(word + 2, 0, INT64_MAX, what, &c->tensors.size[word[0] - 'A']));
    }
    return KT_GOOD;
}

/* --dtype ARGUMENT=TYPE wins; --dtype TYPE is for all arguments of a free type. */
static int choose_dtype(const plan_call *c, int i, const kt_dtype **dtype) {
    const kt_arg *arg = &c->op->args[i];
    const char *dtypes = arg->dtypes;
    *dtype = kt_tensors_default_dtype(&c->tensors, i);
    if (dtypes[0] == '=') dtypes = kt_op_arg(c->op, dtypes + 1)->dtypes;
    size_t n = strlen(arg->name);
    for (size_t k = 0; k < c->dtypes.n; k++) {
        const char *word = c->dtypes.item[k];
        const kt_dtype *every = kt_dtype_named(word);
        if (every && arg->dtypes[0] != '=' && strchr(dtypes, ',') && kt_dtype_allowed(every, dtypes)) *dtype = every;
    }
    for (size_t k = 0; k < c->dtypes.n; k++) {
        const char *word = c->dtypes.item[k];
        if (strncmp(word, arg->name, n) != 0 || word[n] != '=') continue;
        *dtype = kt_dtype_named(word + n + 1);
        if (!*dtype || !kt_dtype_allowed(*dtype, dtypes))
            return kt_fail(KT_USAGE, "--dtype %s: %s may be %s", word, arg->name, dtypes);
    }
    return KT_GOOD;
}

static int check_dtype_words(const plan_call *c) {
    for (size_t k = 0; k < c->dtypes.n; k++) {
        const char *word = c->dtypes.item[k], *equals = strchr(word, '=');
        char *name = equals ? strndup(word, (size_t)(equals - word)) : NULL;
        bool good = name ? kt_op_arg(c->op, name) != NULL : kt_dtype_named(word) != NULL;
        free(name);
        if (!good)
            return kt_fail(KT_USAGE, "--dtype %s: wanted TYPE, or ARGUMENT=TYPE with an argument of %s", word,
                           c->op->name);
    }
    return KT_GOOD;
}

static int make_tensors(plan_call *c) {
    kt_tensors_begin(&c->tensors, c->op, c->options);
    KT_TRY(read_axes(c));
    KT_TRY(check_dtype_words(c));
    for (int i = 0; i < c->op->n_args; i++) {
        const kt_arg *arg = &c->op->args[i];
        bool present = arg->role == KT_OPTIONAL ? usual(arg) || kt_list_has(&c->with, arg->name) : true;
        if (kt_list_has(&c->without, arg->name)) present = false;
        if (!present) continue;
        const kt_dtype *dtype;
        KT_TRY(choose_dtype(c, i, &dtype));
        KT_TRY(kt_tensors_derive(&c->tensors, i, dtype));
    }
    return KT_GOOD;
}

static int read_settings(plan_call *c) {
    c->settings_json = json_object();
    for (size_t i = 0; i < c->settings.n; i++) KT_TRY(kt_options_add(c->op, c->settings_json, c->settings.item[i]));
    c->options = kt_alloc(1, c->op->options_size);
    return kt_options_fill(c->op, c->settings_json, c->options);
}

static int make_plan(plan_call *c) {
    kt_library *lib = c->lib;
    kiln_context_options options = {.struct_size = sizeof options, .cache_dir = c->dump ? "off" : NULL};
    KT_TRY(kt_status(lib, KT_CALL(lib, "kiln_context_create", KT_STR(c->device), KT_PTR(&options), KT_PTR(&c->ctx))));
    KT_TRY(kt_tensors_describe(&c->tensors, lib, c->ctx));
    return KT_CALL_JSON(lib, &c->plan, "kiln_plan_json", KT_PTR(c->ctx), KT_STR(c->op->name),
                        KT_PTR(c->tensors.on_device), KT_I32(c->op->n_args), KT_PTR(c->options),
                        KT_U32(c->dump ? KILN_PLAN_BUILD : 0));
}

static void print_plan(const plan_call *c) {
    char *axes = kt_tensors_axes_text(&c->tensors);
    printf("%s  %s  for %s (%s)\n", c->op->name, axes, kt_json_text(c->plan, "target", "?"),
           kt_json_text(c->plan, "device", "?"));
    free(axes);
    kt_print_launches(c->plan);
    kt_print_floor(c->plan);
    if (c->explain) kt_print_choices(c->plan);
    if (c->dump) printf("PTX, reports and machine code (of an assembler) are in %s\n", c->dump);
}

static int run(plan_call *c) {
    if (c->arch && c->device) return kt_fail(KT_USAGE, "--arch and --device exclude each other");
    if (c->arch) {
        /* Both know the architecture's reference device; the simulator's kernels are PTX, the other's machine code. */
        bool machine_code = c->dump && !c->no_assembler;
        snprintf(c->of_arch, sizeof c->of_arch, "%s:%s", machine_code ? "offline" : "sim", c->arch);
        c->device = c->of_arch;
    }
    if (c->operands.n < 1) return kt_fail(KT_USAGE, "kiln plan needs an operation; \"kiln ops\" lists them");
    c->op = kt_op_find(c->operands.item[0]);
    if (!c->op) return KT_USAGE;
    KT_TRY(check_names(c));
    KT_TRY(read_settings(c));
    KT_TRY(make_tensors(c));
    if (c->no_assembler) setenv("KILN_LIBNVJITLINK", "off", 1);
    if (c->dump) setenv("KILN_DUMP", c->dump, 1);
    KT_TRY(kt_library_open(c->library, &c->lib));
    KT_TRY(make_plan(c));
    if (c->json) return kt_print_json(json_incref(c->plan));
    print_plan(c);
    return KT_GOOD;
}

int kt_cmd_plan(const kt_command *self, int argc, char **argv) {
    plan_call c = {0};
    const kt_option options[] = {
        {"arch", KT_TEXT, &c.arch, "ARCH", "plan for that architecture's reference device: sm_90a, sm_80"},
        {"device", KT_TEXT, &c.device, "DEVICE",
         "plan for this device, or for offline:MACHINE: h200, h100-pcie, h20, a100"},
        {"option", KT_LIST, &c.settings, "NAME=VALUE", "an option of the operation"},
        {"dtype", KT_LIST, &c.dtypes, "[ARG=]TYPE", "type of an argument, or of all whose type is free"},
        {"with", KT_LIST, &c.with, "ARG", "an optional input is present"},
        {"without", KT_LIST, &c.without, "ARG", "an optional input or an output is absent"},
        {"dump", KT_TEXT, &c.dump, "DIR", "build, and write PTX, machine code and reports to DIR"},
        {"explain", KT_FLAG, &c.explain, NULL, "say what the planner chose, and every kernel's parameters"},
        {"no-assembler", KT_FLAG, &c.no_assembler, NULL, "do not look for nvJitLink"},
        KT_OPTION_JSON(&c.json),
        KT_OPTION_LIBRARY(&c.library),
        KT_OPTIONS_END,
    };
    int code = kt_args_parse(self, options, argc, argv, &c.operands);
    if (code == KT_GOOD) code = run(&c);
    kt_tensors_free(&c.tensors, c.lib, c.ctx);
    if (c.ctx) (void)KT_CALL(c.lib, "kiln_context_destroy", KT_PTR(c.ctx));
    free(c.options);
    json_decref(c.settings_json);
    json_decref(c.plan);
    kt_list *const lists[] = {&c.settings, &c.dtypes, &c.with, &c.without, &c.operands};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) kt_list_free(lists[i]);
    kt_library_close(c.lib);
    return code;
}
