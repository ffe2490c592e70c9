/* kiln plan: what a call would run, from sizes alone. */
#include "commands.h"
#include "common/report.h"
#include "plan/plan_explain.h"
#include "plan/plan_report.h"
#include "plan/plan_variants.h"
#include "shapes/models.h"
#include "shapes/sizes.h"

#include "kiln/kiln_tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct plan_call {
    const char *library, *device, *arch, *dump, *model_name, *tokens;
    bool json, explain, no_assembler, variants;
    kt_list operands;
    kt_sizes sizes;
    kt_library *lib;
    void *ctx;
    json_t *models, *base, *plan;
    const json_t *model;
    kt_call call;
    char of_arch[64]; /* the device that --arch means */
} plan_call;

/* The model, and what it gives to the call. */
static int find_model(plan_call *c) {
    const json_t *models;
    const char *why;
    KT_TRY(kt_models_read(&c->models, &models));
    KT_TRY(kt_models_find(models, c->model_name, &c->model));
    c->base = kt_model_call(c->model, c->sizes.op, -1, &why);
    if (!c->base)
        return kt_fail(KT_USAGE, "%s is nothing that %s does: %s", c->sizes.op->name,
                       kt_json_text(c->model, "model", "?"), why);
    c->sizes.base = c->base;
    return KT_GOOD;
}

static int make_plan(plan_call *c) {
    kt_library *lib = c->lib;
    kiln_context_options options = {.struct_size = sizeof options, .cache_dir = c->dump ? "off" : NULL};
    KT_TRY(kt_status(lib, KT_CALL(lib, "kiln_context_create", KT_STR(c->device), KT_PTR(&options), KT_PTR(&c->ctx))));
    KT_TRY(kt_tensors_describe(&c->call.tensors, lib, c->ctx));
    return KT_CALL_JSON(lib, &c->plan, "kiln_plan_json", KT_PTR(c->ctx), KT_STR(c->sizes.op->name),
                        KT_PTR(c->call.tensors.on_device), KT_I32(c->sizes.op->n_args), KT_PTR(c->call.options),
                        KT_U32((c->dump ? KILN_PLAN_BUILD : 0) | (c->explain ? KILN_PLAN_EXPLAIN : 0)));
}

static void print_plan(const plan_call *c) {
    char *axes = kt_tensors_axes_text(&c->call.tensors);
    printf("%s  %s  for %s (%s)\n", c->sizes.op->name, axes, kt_json_text(c->plan, "target", "?"),
           kt_json_text(c->plan, "device", "?"));
    free(axes);
    kt_print_launches(c->plan);
    kt_print_floor(c->plan);
    if (c->explain) kt_print_choices(c->plan);
    if (c->explain) kt_print_products(c->plan, 12);
    if (c->dump) printf("PTX, reports and machine code (of an assembler) are in %s\n", c->dump);
}

/* Sizes that a model's call has only with a number of tokens are those that --tokens gives. */
static int refuse_token_axes(const plan_call *c) {
    const char *why, *word = NULL;
    json_t *call = kt_model_call(c->model, c->sizes.op, 1, &why);
    for (size_t i = 0; i < c->sizes.axes.n && !word; i++) {
        const char axis[2] = {c->sizes.axes.item[i][0], '\0'};
        if (json_object_get(json_object_get(call, "axes"), axis) &&
            !json_object_get(json_object_get(c->base, "axes"), axis))
            word = c->sizes.axes.item[i];
    }
    json_decref(call);
    return word ? kt_fail(KT_USAGE, "%s: --variants takes the numbers of tokens from --tokens", word) : KT_GOOD;
}

/* Text alone: nothing is assembled. */
static int run_variants(plan_call *c) {
    int64_t *tokens = NULL;
    size_t n = 0;
    if (!c->variants || !c->model)
        return kt_fail(KT_USAGE, "--variants and --tokens go with --model: --model NAME --variants");
    KT_TRY(refuse_token_axes(c));
    if (c->dump || c->explain) return kt_fail(KT_USAGE, "--variants lists kernels; --dump and --explain take one call");
    setenv("KILN_LIBNVJITLINK", "off", 1);
    int code = kt_parse_tokens(c->tokens ? c->tokens : KT_USUAL_TOKENS, &tokens, &n);
    if (code == KT_GOOD) code = kt_library_open(c->library, &c->lib);
    if (code == KT_GOOD) code = kt_plan_variants(c->lib, c->device, c->model, &c->sizes, tokens, n, &c->plan);
    free(tokens);
    KT_TRY(code);
    if (c->json) return kt_print_json(json_incref(c->plan));
    kt_print_variants(c->plan);
    return KT_GOOD;
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
    c->sizes.op = kt_op_find(c->operands.item[0]);
    if (!c->sizes.op) return KT_USAGE;
    for (size_t i = 1; i < c->operands.n; i++) kt_list_add(&c->sizes.axes, c->operands.item[i]);
    if (c->model_name) KT_TRY(find_model(c));
    if (c->variants || c->tokens) return run_variants(c);
    KT_TRY(kt_sizes_call(&c->sizes, &c->call));
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
        {"arch", KT_TEXT, &c.arch, "ARCH", "plan for that architecture's reference device: " KT_ARCHITECTURES},
        {"device", KT_TEXT, &c.device, "DEVICE", "plan for this device, or for offline:MACHINE: " KT_MACHINES},
        {"model", KT_TEXT, &c.model_name, "NAME",
         "sizes and options of a published model, to which AXIS=SIZE and --option add"},
        {"variants", KT_FLAG, &c.variants, NULL, "list the kernels of that model's calls across token counts"},
        {"tokens", KT_TEXT, &c.tokens, "LIST", "the token counts of --variants (" KT_USUAL_TOKENS ")"},
        {"option", KT_LIST, &c.sizes.settings, "NAME=VALUE", "an option of the operation"},
        {"dtype", KT_LIST, &c.sizes.dtypes, "[ARG=]TYPE", "type of an argument, or of all whose type is free"},
        {"with", KT_LIST, &c.sizes.with, "ARG", "an optional input is present"},
        {"without", KT_LIST, &c.sizes.without, "ARG", "an optional input or an output is absent"},
        {"dump", KT_TEXT, &c.dump, "DIR", "build, and write PTX, machine code and reports to DIR"},
        {"explain", KT_FLAG, &c.explain, NULL,
         "say what the planner chose and from which candidates, and every kernel's parameters"},
        {"no-assembler", KT_FLAG, &c.no_assembler, NULL, "do not look for nvJitLink"},
        KT_OPTION_JSON(&c.json),
        KT_OPTION_LIBRARY(&c.library),
        KT_OPTIONS_END,
    };
    int code = kt_args_parse(self, options, argc, argv, &c.operands);
    if (code == KT_GOOD) code = run(&c);
    kt_call_free(&c.call);
    if (c.ctx) (void)KT_CALL(c.lib, "kiln_context_destroy", KT_PTR(c.ctx));
    json_decref(c.plan);
    json_decref(c.base);
    json_decref(c.models);
    kt_sizes_free(&c.sizes);
    kt_list_free(&c.operands);
    kt_library_close(c.lib);
    return code;
}
