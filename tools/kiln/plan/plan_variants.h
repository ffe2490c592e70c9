/* `kiln plan OP --model NAME --variants`: the kernels that a model's calls of one operation use, whatever the number of
 * tokens. */
#ifndef KILN_TOOL_PLAN_VARIANTS_H
#define KILN_TOOL_PLAN_VARIANTS_H

#include "shapes/sizes.h"

/* What is asked for when nobody names token counts. */
#define KT_USUAL_TOKENS "1,16,128,512,1024,2048,4096,8192"

/** "1,16,128" -> counts; *counts is the caller's to free. */
int kt_parse_tokens(const char *text, int64_t **counts, size_t *n);

/** {"op", "model", "target", "device", "tokens": [...], "kernels": [{"name", "template", "params", "threads",
 * "smem_bytes", "ptx_lines", "ptx_digest", "tokens": [...]}]}. `sizes`: what the command line adds to the model's call;
 * its base is not looked at. `device`: a device string of kiln_context_create. */
int kt_plan_variants(kt_library *lib, const char *device, const json_t *model, const kt_sizes *sizes,
                     const int64_t *tokens, size_t n, json_t **out);
void kt_print_variants(const json_t *variants);

#endif
