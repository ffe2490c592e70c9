/* The kernels of a model's operation across token counts: see plan_variants.h. */
#include "plan/plan_variants.h"

#include "common/args.h"
#include "common/report.h"
#include "plan/plan_report.h"
#include "shapes/models.h"

#include "kiln/kiln_tools.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int kt_parse_tokens(const char *text, int64_t **counts, size_t *n) {
    char *copy = kt_copy(text), *rest = copy, *word;
    int code = KT_GOOD;
    *counts = NULL;
    *n = 0;
    while (code == KT_GOOD && (word = strsep(&rest, ","))) {
        *counts = kt_grow(*counts, *n + 1, sizeof **counts);
        code = kt_parse_number(word, 0, INT64_MAX, "--tokens", &(*counts)[(*n)++]);
    }
    free(copy);
    return code;
}

/* Note that calls of `tokens` tokens use this kernel. */
static void add_kernel(json_t *kernels, json_t *kernel, int64_t tokens) {
    static const char *const kept[] = {"name",       "template",  "params",    "threads",
                                       "smem_bytes", "ptx_lines", "ptx_digest"};
    size_t i;
    json_t *known;
    json_array_foreach(kernels, i, known) {
        if (strcmp(kt_json_text(known, "ptx_digest", ""), kt_json_text(kernel, "ptx_digest", "?")) != 0) continue;
        json_t *list = json_object_get(known, "tokens");
        if (json_integer_value(json_array_get(list, json_array_size(list) - 1)) != tokens)
            json_array_append_new(list, json_integer(tokens));
        return;
    }
    json_t *row = json_object();
    for (i = 0; i < sizeof kept / sizeof *kept; i++) json_object_set(row, kept[i], json_object_get(kernel, kept[i]));
    json_object_set_new(row, "tokens", json_pack("[I]", (json_int_t)tokens));
    json_array_append_new(kernels, row);
}

/* Plan one call and add its kernels. */
static int add_call(kt_library *lib, void *ctx, const json_t *model, const kt_sizes *sizes, int64_t tokens,
                    json_t *out) {
    kt_sizes of_model = *sizes;
    const char *why;
    json_t *base = kt_model_call(model, sizes->op, tokens, &why), *plan = NULL, *kernel;
    if (!base)
        return kt_fail(KT_USAGE, "%s is nothing that %s does: %s", sizes->op->name, kt_json_text(model, "model", "?"),
                       why);
    kt_call call;
    of_model.base = base;
    int code = kt_sizes_call(&of_model, &call);
    if (code == KT_GOOD) code = kt_tensors_describe(&call.tensors, lib, ctx);
    if (code == KT_GOOD)
        code = KT_CALL_JSON(lib, &plan, "kiln_plan_json", KT_PTR(ctx), KT_STR(sizes->op->name),
                            KT_PTR(call.tensors.on_device), KT_I32(sizes->op->n_args), KT_PTR(call.options), KT_U32(0));
    size_t i;
    json_array_foreach(json_object_get(plan, "kernels"), i, kernel) {
        add_kernel(json_object_get(out, "kernels"), kernel, tokens);
    }
    if (plan && !json_object_get(out, "target")) {
        json_object_set(out, "target", json_object_get(plan, "target"));
        json_object_set(out, "device", json_object_get(plan, "device"));
    }
    json_decref(plan);
    kt_call_free(&call);
    json_decref(base);
    return code;
}

int kt_plan_variants(kt_library *lib, const char *device, const json_t *model, const kt_sizes *sizes,
                     const int64_t *tokens, size_t n, json_t **out) {
    const kiln_context_options options = {
        .struct_size = sizeof options, .shapes = KILN_SHAPES_GENERIC, .cache_dir = "off"};
    void *ctx = NULL;
    KT_TRY(kt_status(lib, KT_CALL(lib, "kiln_context_create", KT_STR(device), KT_PTR(&options), KT_PTR(&ctx))));
    *out = json_pack("{s:s, s:O, s:[], s:[]}", "op", sizes->op->name, "model", json_object_get(model, "model"),
                     "tokens", "kernels");
    int code = KT_GOOD;
    for (size_t i = 0; i < n && code == KT_GOOD; i++) {
        json_array_append_new(json_object_get(*out, "tokens"), json_integer(tokens[i]));
        code = add_call(lib, ctx, model, sizes, tokens[i], *out);
    }
    (void)KT_CALL(lib, "kiln_context_destroy", KT_PTR(ctx));
    if (code == KT_GOOD) return KT_GOOD;
    json_decref(*out);
    *out = NULL;
    return code;
}

/* "1 16 128", or "all". */
static void cell_tokens(kt_table *t, const json_t *list, size_t all) {
    char text[256] = "";
    size_t used = 0, i;
    const json_t *tokens;
    if (json_array_size(list) == all) {
        kt_table_cell(t, "all");
        return;
    }
    json_array_foreach(list, i, tokens) {
        if (used > sizeof text - 32) break;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%" JSON_INTEGER_FORMAT, used ? " " : "",
                                 json_integer_value(tokens));
    }
    kt_table_cell(t, "%s", text);
}

void kt_print_variants(const json_t *variants) {
    const json_t *kernels = json_object_get(variants, "kernels");
    size_t all = json_array_size(json_object_get(variants, "tokens")), i;
    printf("%s  %s  for %s (%s): %zu kernels for %zu token counts\n", kt_json_text(variants, "op", "?"),
           kt_json_text(variants, "model", "?"), kt_json_text(variants, "target", "?"),
           kt_json_text(variants, "device", "?"), json_array_size(kernels), all);
    kt_table t = kt_table_begin(5, (const char *const[]){"kernel", ">threads", ">smem", ">PTX lines", "tokens"});
    json_t *k;
    char dims[64];
    json_array_foreach(kernels, i, k) {
        kt_table_cell(&t, "%s", kt_json_text(k, "name", "?"));
        kt_table_cell(&t, "%s", kt_dims_text(json_object_get(k, "threads"), dims, sizeof dims));
        kt_table_cell(&t, "%s", kt_bytes_text(kt_json_number(k, "smem_bytes", 0)));
        kt_table_cell(&t, "%.0f", kt_json_number(k, "ptx_lines", 0));
        cell_tokens(&t, json_object_get(k, "tokens"), all);
    }
    kt_table_end(&t, 2);
}
