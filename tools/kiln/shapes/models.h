/* Published mixture-of-experts models by name: the sizes and options that a model gives to a call of an operation. */
#ifndef KILN_TOOL_MODELS_H
#define KILN_TOOL_MODELS_H

#include "abi/table.h"

#include <jansson.h>

/* The built-in copy of bench/cases/models.json. */
extern const unsigned char kt_model_list[];
extern const size_t kt_model_list_bytes;

/** Parse the list (free it with json_decref); *models: its rows, an array that belongs to it. */
int kt_models_read(json_t **list, const json_t **models);
/** The row of that name or alias, whatever its case; KT_USAGE and a sentence with the names that come near. */
int kt_models_find(const json_t *models, const char *name, const json_t **out);

/** What the model gives to a call of `op`: {"axes": {"H": 4096, ...}, "options": {...}, "with": [...], "without":
 * [...]}, arguments as a training step has them. tokens: the number of tokens of the layer, or -1 to leave token axes
 * out. NULL and *why where the operation is not what the model does. */
json_t *kt_model_call(const json_t *model, const kt_op *op, int64_t tokens, const char **why);

#endif
