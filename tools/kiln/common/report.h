/* What people read: tables with aligned columns, numbers with units; JSON in and out. */
#ifndef KILN_TOOL_REPORT_H
#define KILN_TOOL_REPORT_H

#include "common/tool.h"

#include <jansson.h>

enum { KT_MAX_COLUMNS = 12 };

typedef struct kt_table {
    int columns;
    bool right[KT_MAX_COLUMNS]; /* numbers stand right-aligned */
    char **cell;                /* rows * columns; row 0 is the head */
    size_t rows, filled;
} kt_table;

/** Start a table; a head that starts with '>' is a right-aligned column. */
kt_table kt_table_begin(int columns, const char *const *head);
void kt_table_cell(kt_table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/** Print it with `indent` spaces in front, and free it. */
void kt_table_end(kt_table *t, int indent);

/** "1.5 MiB", "12 us", "3.4 GFLOP"; the result is valid until the eighth next call. */
const char *kt_bytes_text(double bytes);
const char *kt_time_text(double seconds);
const char *kt_count_text(double n, const char *unit);

/** Print `value` (and give it up) as indented JSON. */
int kt_print_json(json_t *value);

/** The JSON document in the file at `path`; the sentence of a failure names the file, and the line where there is one.
 */
int kt_read_json(const char *path, json_t **out);

/* Fields of a JSON object; a missing one is `dflt`. */
const char *kt_json_text(const json_t *object, const char *key, const char *dflt);
double kt_json_number(const json_t *object, const char *key, double dflt);

#endif
