/* Command lines: a command declares its options in a table with the places that receive them, and gets its operands. */
#ifndef KILN_TOOL_ARGS_H
#define KILN_TOOL_ARGS_H

#include "common/tool.h"

typedef enum kt_option_kind {
    KT_FLAG,   /* bool: --json */
    KT_TEXT,   /* const char *: --device sim, --device=sim */
    KT_LIST,   /* kt_list, one item an occurrence */
    KT_NUMBER, /* int64_t >= 0 */
    KT_BYTES   /* int64_t >= 0 with an optional suffix K, M, G or T */
} kt_option_kind;

typedef struct kt_option {
    const char *name; /* "device"; a one-letter name is written -o */
    kt_option_kind kind;
    void *into;
    const char *value; /* what help calls the value: "DEVICE"; NULL for a flag */
    const char *help;
} kt_option;

typedef struct kt_command {
    const char *name;
    const char *operands;                                             /* "OP axis=value..." */
    const char *summary;                                              /* one line */
    int (*run)(const struct kt_command *self, int argc, char **argv); /* argv[0]: the first word after the name */
    const char *details; /* lines below the options: "word\tmeaning", or text; "" for none */
} kt_command;

/* How help is printed: as text, or as a command's part of the man page. */
typedef enum kt_help_style { KT_HELP_TEXT, KT_HELP_MAN } kt_help_style;
extern kt_help_style kt_help;

/** Fill the options' targets and *operands (borrowed from argv; kt_list_free). KT_HELP when --help was among them.
 *  `options` ends with a row whose name is NULL. */
int kt_args_parse(const kt_command *command, const kt_option *options, int argc, char **argv, kt_list *operands);

/** A whole number in [lo, hi], all of `text`. `what` names it in the error. */
int kt_parse_number(const char *text, int64_t lo, int64_t hi, const char *what, int64_t *out);

#endif
