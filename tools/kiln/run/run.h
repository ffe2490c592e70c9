/* `kiln run`, in three files: cmd_run.c (the flow), run_check.c (comparison), run_report.c (what is printed). */
#ifndef KILN_TOOL_RUN_H
#define KILN_TOOL_RUN_H

#include "tensors/tensors.h"

#include "kiln/kiln_tools.h"

typedef struct kt_run {
    /* the command line */
    const char *path, *library, *device, *out;
    bool check, json, no_assembler;
    int64_t sim_seeds, repeat;
    kt_list dtypes, settings; /* --dtype out=f32, --option k=v */
    /* the case */
    kt_library *lib;
    void *ctx, *stream, *start, *stop; /* stream and its two events: on a GPU alone */
    kt_safetensors file;
    const kt_op *op;
    json_t *settings_json; /* owns the strings in `options` */
    void *options;         /* the operation's option struct */
    kt_tensors tensors;
    /* what came out: the report that --json prints and that the text is made from */
    json_t *report;
} kt_run;

/** Compare the outputs with the file's or the reference's; adds "check" to the report. KT_CHECK when something fails.
 */
int kt_run_check(kt_run *run);
/** Print the report as text. */
void kt_run_print(const kt_run *run);

#endif
