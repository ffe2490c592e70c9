/* A file that is replaced as a whole: nobody sees half of it, and it stays what it was if writing fails. */
#ifndef KILN_TOOL_REPLACE_H
#define KILN_TOOL_REPLACE_H

#include <stdbool.h>
#include <stdio.h>

typedef struct kt_replacement {
    FILE *file; /* what to write to */
    char *path, *target;
} kt_replacement;

/** Begin to write `path`, in a new file beside it. A device or a pipe is written to itself. */
int kt_replace_begin(kt_replacement *r, const char *path);
/** `good`: everything was written. Put the new file in the place of the old one, or remove it and say that `path`
 * cannot be written. */
int kt_replace_end(kt_replacement *r, bool good);

#endif
