/* Where a mutant of a kernel stands in its template, and the list of those that are harmless. */
#ifndef KN_TESTS_SIM_MUTATE_LIST_H
#define KN_TESTS_SIM_MUTATE_LIST_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { LIST_MAX = 256 };

/* The place of an instruction: the line of its template (or the line there that uses the macro that has it). */
typedef struct mutant_site {
    char label[64]; /* the last label above that line, "start" without */
    char line[256]; /* its text */
    uint32_t number;
} mutant_site;

typedef struct harmless {
    char *template_name, *row, *label, *parts, *change, *reason;
    uint32_t met; /* mutants of the row that is being run */
} harmless;

typedef struct harmless_list {
    char *text;
    uint32_t n;
    harmless entry[LIST_MAX];
} harmless_list;

/** The template that a line map (kn_kernel_table's, of one kernel) belongs to: "gemm_sm90", without its ending. */
void mutate_template_of(const char *map, char out[64]);
/** Where PTX line `line` comes from. */
void mutate_site(const char *map, const char *template_name, uint32_t line, mutant_site *out);

kn_status mutate_list_read(const char *path, harmless_list *out);
void mutate_list_free(harmless_list *l);
/** The entry for a mutant, NULL without; counts it. */
harmless *mutate_list_find(harmless_list *l, const char *template_name, const char *row, const mutant_site *site,
                           const char *instruction, const char *change);
/** Does the entry speak of this row? */
bool mutate_list_of_row(const harmless *h, const char *template_name, const char *row);

#endif
