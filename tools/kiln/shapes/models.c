/* Models by name: see models.h. The list is bench/cases/models.json. */
#include "shapes/models.h"

#include "common/report.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

int kt_models_read(json_t **list, const json_t **models) {
    json_error_t error;
    *list = json_loadb((const char *)kt_model_list, kt_model_list_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!*list) return kt_fail(KT_ENVIRONMENT, "the built-in list of models: %s (line %d)", error.text, error.line);
    *models = json_object_get(*list, "models");
    return KT_GOOD;
}

static bool is_called(const json_t *model, const char *name) {
    if (strcasecmp(kt_json_text(model, "model", ""), name) == 0) return true;
    size_t i;
    const json_t *alias;
    json_array_foreach(json_object_get(model, "aliases"), i, alias) {
        if (strcasecmp(json_string_value(alias), name) == 0) return true;
    }
    return false;
}

/* Names that hold `name`, or share its first letters. */
static int not_found(const json_t *models, const char *name) {
    char near[512] = "";
    size_t i, used = 0, stem = strcspn(name, "-0123456789");
    const json_t *model;
    json_array_foreach(models, i, model) {
        const char *known = kt_json_text(model, "model", "");
        bool alike = strcasestr(known, name) || (stem > 2 && strncasecmp(known, name, stem) == 0);
        if (!alike || used + strlen(known) + 3 > sizeof near) continue;
        used += (size_t)snprintf(near + used, sizeof near - used, "%s%s", used ? ", " : "", known);
    }
    return kt_fail(KT_USAGE, "no model is called \"%s\"; %s%s\"kiln warm --models\" lists them", name, near,
                   used ? " are; " : "");
}

int kt_models_find(const json_t *models, const char *name, const json_t **out) {
    size_t i;
    json_array_foreach(models, i, *out) {
        if (is_called(*out, name)) return KT_GOOD;
    }
    *out = NULL;
    return not_found(models, name);
}

/* ---- what a model gives to a call -------------------------------------------------------------------------------- */

typedef struct builder {
    const json_t *model;
    int64_t tokens;
    json_t *axes, *options, *with, *without;
} builder;

static int64_t number(const builder *b, const char *key) {
    return json_integer_value(json_object_get(b->model, key));
}

static void axis(builder *b, const char *letter, int64_t size) {
    if (size >= 0) json_object_set_new(b->axes, letter, json_integer(size));
}

/* An option where the model has the field; a field that is null is not published. */
static void option(builder *b, const char *name, const char *field) {
    json_t *value = json_object_get(b->model, field);
    if (value && !json_is_null(value)) json_object_set(b->options, name, value);
}

static void list(json_t *names, const char *name) {
    json_array_append_new(names, json_string(name));
}

static int64_t router_outputs(const builder *b) {
    int64_t n = number(b, "router_outputs");
    return n ? n : number(b, "experts");
}

static const char *load_balance(builder *b) {
    axis(b, "B", b->tokens);
    axis(b, "E", router_outputs(b));
    axis(b, "K", number(b, "top_k"));
    return NULL;
}

static const char *router(builder *b) {
    if (strcmp(kt_json_text(b->model, "score", ""), "sparsemixer") == 0)
        return "its router is trained by an estimator, not by a derivative";
    axis(b, "T", b->tokens);
    axis(b, "H", number(b, "hidden"));
    axis(b, "E", router_outputs(b));
    axis(b, "K", number(b, "top_k"));
    option(b, "score", "score");
    option(b, "normalise", "normalise");
    option(b, "eps", "eps");
    option(b, "scaling", "scaling");
    if (!json_is_true(json_object_get(b->model, "router_bias"))) list(b->without, "grad_gate_bias");
    list(b->without, "grad_logits");
    return NULL;
}

static const char *activation(builder *b) {
    if (strcmp(kt_json_text(b->model, "activation", ""), "swiglu") != 0)
        return "its experts have another activation; give sizes and activation.source instead";
    option(b, "activation.alpha", "alpha");
    option(b, "activation.limit", "limit");
    option(b, "activation.offset", "offset");
    return NULL;
}

static const char *expert_mlp(builder *b) {
    int64_t experts = number(b, "experts"), rows = b->tokens * number(b, "top_k");
    axis(b, "B", b->tokens);
    axis(b, "T", b->tokens < 0 ? -1 : (rows + experts - 1) / experts); /* an expert's share */
    axis(b, "H", number(b, "expert_hidden"));
    axis(b, "F", number(b, "intermediate"));
    return activation(b);
}

static const char *moe_layer(builder *b) {
    if (strcmp(kt_json_text(b->model, "score", ""), "sigmoid") != 0) return "its router's scores are no sigmoids";
    if (number(b, "shared_intermediate") == 0) return "it has no shared expert";
    const char *why = activation(b);
    if (why || json_object_size(b->options) > 0) return why ? why : "its shared expert has another activation";
    axis(b, "T", b->tokens);
    axis(b, "H", number(b, "hidden"));
    axis(b, "I", number(b, "shared_intermediate"));
    axis(b, "E", router_outputs(b));
    axis(b, "K", number(b, "top_k"));
    option(b, "routed_scaling_factor", "scaling");
    bool normalised = strcmp(kt_json_text(b->model, "normalise", ""), "none") != 0;
    json_object_set_new(b->options, "norm_topk_prob", json_boolean(normalised));
    json_object_set_new(b->options, "router_mode", json_string("exact"));
    list(b->with, "grad_topk_weights");
    return NULL;
}

static const char *routed_experts(builder *b) {
    axis(b, "T", b->tokens);
    axis(b, "H", number(b, "expert_hidden"));
    axis(b, "I", number(b, "intermediate"));
    axis(b, "L", number(b, "experts"));
    axis(b, "K", number(b, "top_k"));
    option(b, "weight_on", "weight_on");
    return activation(b);
}

json_t *kt_model_call(const json_t *model, const kt_op *op, int64_t tokens, const char **why) {
    static const struct {
        const char *op;
        const char *(*fill)(builder *b); /* NULL, or why the operation is not what the model does */
    } rows[] = {{"load_balance_backward", load_balance},
                {"router_backward", router},
                {"expert_mlp_backward", expert_mlp},
                {"moe_layer_backward", moe_layer},
                {"routed_experts_backward", routed_experts}};
    builder b = {model, tokens, json_object(), json_object(), json_array(), json_array()};
    json_t *call =
        json_pack("{s:o, s:o, s:o, s:o}", "axes", b.axes, "options", b.options, "with", b.with, "without", b.without);
    *why = "it is no operation of a layer";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].op, op->name) == 0) *why = rows[i].fill(&b);
    if (!*why) return call;
    json_decref(call);
    return NULL;
}
