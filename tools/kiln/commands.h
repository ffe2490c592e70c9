/* The commands of the tool: one row each, one file cmd_<name>.c each. */
#ifndef KILN_TOOL_COMMANDS_H
#define KILN_TOOL_COMMANDS_H

#include "common/args.h"

int kt_cmd_ops(const kt_command *self, int argc, char **argv);
int kt_cmd_run(const kt_command *self, int argc, char **argv);
int kt_cmd_plan(const kt_command *self, int argc, char **argv);
int kt_cmd_warm(const kt_command *self, int argc, char **argv);
int kt_cmd_env(const kt_command *self, int argc, char **argv);
int kt_cmd_cache(const kt_command *self, int argc, char **argv);
int kt_cmd_tune(const kt_command *self, int argc, char **argv);
int kt_cmd_bench(const kt_command *self, int argc, char **argv);
int kt_cmd_fuzz(const kt_command *self, int argc, char **argv);

extern const kt_command kt_commands[]; /* ends with a row without a name */

/* What the library has facts of (jit/device_facts.c), for help; the transcript of usage compares the two. */
#define KT_ARCHITECTURES "sm_90a,sm_80,sm_86,sm_89,sm_100,sm_120"
#define KT_MACHINES "h200,h100-pcie,h20,a100,rtx-a6000,l40s,b200,rtx-5090"

/* The option that all commands have. */
#define KT_OPTION_LIBRARY(target)                                                                                      \
    {                                                                                                                  \
        "library", KT_TEXT, (target), "FILE",                                                                          \
            "the libkiln to use (default: KILN_LIBRARY, or the one beside the program)"                                \
    }
#define KT_OPTION_JSON(target)                                                                                         \
    { "json", KT_FLAG, (target), NULL, "print JSON" }
#define KT_OPTIONS_END                                                                                                 \
    { NULL, KT_FLAG, NULL, NULL, NULL }

#endif
