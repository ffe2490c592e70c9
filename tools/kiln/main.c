/* kiln: the command line tool. Finds the command, runs it, prints what failed, turns it into the exit code. */
#include "commands.h"

#include <stdio.h>
#include <string.h>

static void print_commands(FILE *to) {
    fputs("usage: kiln COMMAND [options]\n\n", to);
    for (const kt_command *c = kt_commands; c->name; c++) fprintf(to, "  %-7s %s\n", c->name, c->summary);
    fputs("\n\"kiln help COMMAND\" shows its options.\n"
          "Exit codes: 0 good, 1 a check failed, 2 usage, 3 environment.\n",
          to);
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
    const kt_command *command = find(argv[help ? 2 : 1]);
    if (!command) return KT_USAGE;
    static char ask[] = "--help", *ask_help[] = {ask, NULL};
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
