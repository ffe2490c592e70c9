/* Options of an operation: a JSON object <-> the operation's option struct, through the KILN_OPTION rows. */
#ifndef KILN_TOOL_OPTIONS_H
#define KILN_TOOL_OPTIONS_H

#include "abi/table.h"

#include <jansson.h>

/** Fill `options` (op->options_size bytes, zeroed here) from `object`: {"top_k": 8, "score": "sigmoid",
 *  "norm_topk_prob": true, "activation": {"alpha": 1.7}, "accumulate": ["grad_gate_weight"]}. Strings are borrowed from
 *  `object`. KT_USAGE and a sentence for what is not an option or not a value of it. */
int kt_options_fill(const kt_op *op, json_t *object, void *options);

/** "key=value" of a command line, added to `object` (in the forms above; value is JSON or a plain word). */
int kt_options_add(const kt_op *op, json_t *object, const char *assignment);

#endif
