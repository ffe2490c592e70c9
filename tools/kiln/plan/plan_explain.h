/* The text of how a plan's products were chosen, for `kiln plan --explain`: from "products" of kiln_plan_json. */
#ifndef KILN_TOOL_PLAN_EXPLAIN_H
#define KILN_TOOL_PLAN_EXPLAIN_H

#include <jansson.h>

/** A table a product: the `most` cheapest candidates (0: all), the chosen one marked, then those that are not possible
 * and why. */
void kt_print_products(const json_t *plan, size_t most);

#endif
