/* kiln: the command line tool. Finds the command, runs it, prints what failed, turns it into the exit code. */
#include "commands.h"

#include <stdio.h>
#include <string.h>

static void print_commands(FILE *to) {
    fputs("usage: kiln COMMAND [options]\n\n", to);
    for (const kt_command *c = kt_commands; c->name; c++) fprintf(to, "  %-7s %s\n", c->name, c->summary);
    fputs("\n\"kiln help COMMAND\" shows its options, \"kiln help --man\" prints a man page.\n"
          "Exit codes: 0 good, 1 a check failed, 2 usage, 3 environment.\n",
          to);
}

static char ask[] = "--help", *ask_help[] = {ask, NULL};

/* The man page kiln(1), from the same tables as the help. */
static int print_man(void) {
    printf(".TH KILN 1 \"\" \"kiln " KILN_TOOL_VERSION
           "\" \"User Commands\"\n.SH NAME\nkiln \\- kernels generated while a "
           "program runs: run, plan, warm, measure\n.SH SYNOPSIS\n.B kiln\n.I COMMAND\n[options] [operands]\n"
           ".SH DESCRIPTION\nThe command line tool of libkiln. Options may stand anywhere behind the command; "
           "\\-\\- ends them.\n.SH COMMANDS\n");
    kt_help = KT_HELP_MAN;
    for (const kt_command *c = kt_commands; c->name; c++) {
        int code = c->run(c, 1, ask_help);
        if (code != KT_HELP) return code;
    }
    printf(".SH EXIT STATUS\n0 good; 1 a check failed; 2 the command line or an input file is not valid; 3 the "
           "environment: no device, no library, no memory, a file that cannot be read or written.\n"
           ".SH ENVIRONMENT\n.B kiln env\nprints every variable with its meaning and value.\n");
    return KT_GOOD;
}

static const kt_command *find(const char *name) {
    for (const kt_command *c = kt_commands; c->name; c++)
        if (strcmp(c->name, name) == 0) return c;
    kt_fail(KT_USAGE, "\"%s\" is not a command; \"kiln help\" lists them", name);
    return NULL;
}

static int run(int argc, char **argv) {
    if (argc < 2) {
        print_commands(stderr);
        return kt_fail(KT_USAGE, "no command given");
    }
    bool help = strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0;
    if (help && argc == 2) {
        print_commands(stdout);
        return KT_GOOD;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("kiln " KILN_TOOL_VERSION);
        return KT_GOOD;
    }
    if (help && strcmp(argv[2], "--man") == 0) return print_man();
    const kt_command *command = find(argv[help ? 2 : 1]);
    if (!command) return KT_USAGE;
    if (help) return command->run(command, 1, ask_help);
    return command->run(command, argc - 2, argv + 2);
}

int main(int argc, char **argv) {
    int code = run(argc, argv);
    if (code == KT_HELP) code = KT_GOOD;
    if (fflush(stdout) != 0 && code == KT_GOOD) code = kt_fail(KT_ENVIRONMENT, "cannot write to the standard output");
    if (code != KT_GOOD) fprintf(stderr, "kiln: %s\n", kt_message());
    return code;
}
