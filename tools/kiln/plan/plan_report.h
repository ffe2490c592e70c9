/* The text of a plan, for `kiln run` and `kiln plan`: made from the JSON of kiln_plan_json. */
#ifndef KILN_TOOL_PLAN_REPORT_H
#define KILN_TOOL_PLAN_REPORT_H

#include <jansson.h>

/** One row a launch: kernel, grid, threads, shared memory, PTX lines, registers, spills, times, where it came from; a
 * line about remarks and about a missing assembler below. */
void kt_print_launches(const json_t *plan);
/** Workspace and what the hardware must do at least. */
void kt_print_floor(const json_t *plan);
/** The planner's words and every kernel's parameters. */
void kt_print_choices(const json_t *plan);
/** [x, y, z] as "x", "x,y" or "x,y,z", trailing ones left out; returns buf. */
const char *kt_dims_text(const json_t *list, char *buf, size_t cap);

#endif
