/* Command lines: see args.h. */
#include "common/args.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int kt_parse_number(const char *text, int64_t lo, int64_t hi, const char *what, int64_t *out) {
    char *end = NULL;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno || end == text || *end || n < lo || n > hi)
        return kt_fail(KT_USAGE, "%s is \"%s\"; wanted a whole number from %" PRId64 " to %" PRId64, what, text, lo,
                       hi);
    *out = n;
    return KT_GOOD;
}

static int parse_bytes(const char *text, const char *what, int64_t *out) {
    char *end = NULL;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    int shift = 0;
    if (!errno && end != text && *end) {
        const char *suffix = strchr("KMGT", *end);
        if (suffix) {
            shift = 10 * (int)(suffix - "KMGT" + 1);
            end++;
        }
    }
    if (errno || end == text || *end || n < 0 || n > INT64_MAX >> shift)
        return kt_fail(KT_USAGE, "%s is \"%s\"; wanted bytes, or a number with a suffix K, M, G or T", what, text);
    *out = (int64_t)n << shift;
    return KT_GOOD;
}

static const kt_option *find(const kt_option *options, const char *name, size_t n) {
    for (const kt_option *o = options; o->name; o++)
        if (strlen(o->name) == n && memcmp(o->name, name, n) == 0) return o;
    return NULL;
}

static int store(const kt_option *o, const char *spelled, const char *value) {
    switch (o->kind) {
    case KT_FLAG: *(bool *)o->into = true; return KT_GOOD;
    case KT_TEXT: *(const char **)o->into = value; return KT_GOOD;
    case KT_LIST: kt_list_add(o->into, value); return KT_GOOD;
    case KT_NUMBER: return kt_parse_number(value, 0, INT64_MAX, spelled, o->into);
    case KT_BYTES: return parse_bytes(value, spelled, o->into);
    }
    return KT_GOOD;
}

kt_help_style kt_help = KT_HELP_TEXT;

/* Print `text` as a man page's, with what troff would take for its own escaped. */
static void print_troff(const char *text) {
    if (*text == '.' || *text == '\'') fputs("\\&", stdout);
    for (; *text; text++) {
        if (*text == '-' || *text == '\\') putchar('\\');
        putchar(*text == '\\' ? 'e' : *text);
    }
}

/* Lines of details: with a tab, what stands in front of it is a word that is explained. */
static void print_details(const char *details) {
    bool man = kt_help == KT_HELP_MAN;
    if (*details && !man) putchar('\n');
    for (const char *s = details; *s; s += strcspn(s, "\n"), s += *s == '\n') {
        size_t len = strcspn(s, "\n"), word = strcspn(s, "\t\n");
        char *first = strndup(s, word), *rest = word < len ? strndup(s + word + 1, len - word - 1) : NULL;
        if (!first) abort();
        if (!man) {
            rest ? printf("  %-8s %s\n", first, rest) : printf("%s\n", first);
        } else {
            fputs(rest ? ".TP\n.B " : ".PP\n", stdout);
            print_troff(first);
            putchar('\n');
            if (rest) print_troff(rest);
            if (rest) putchar('\n');
        }
        free(first);
        free(rest);
    }
}

static void print_man(const kt_command *command, const kt_option *options) {
    printf(".SS kiln %s%s ", command->name, options->name ? " [options]" : "");
    print_troff(command->operands);
    putchar('\n');
    print_troff(command->summary);
    putchar('\n');
    for (const kt_option *o = options; o->name; o++) {
        printf(".TP\n.B ");
        print_troff(o->name[1] ? "--" : "-");
        print_troff(o->name);
        if (o->value) {
            fputs(" \\fI", stdout);
            print_troff(o->value);
            fputs("\\fR", stdout);
        }
        putchar('\n');
        print_troff(o->help);
        putchar('\n');
    }
    print_details(command->details);
}

static void print_help(const kt_command *command, const kt_option *options) {
    if (kt_help == KT_HELP_MAN) {
        print_man(command, options);
        return;
    }
    printf("usage: kiln %s%s%s%s\n%s\n", command->name, options->name ? " [options]" : "",
           *command->operands ? " " : "", command->operands, command->summary);
    int widest = 0;
    for (const kt_option *o = options; o->name; o++) {
        int n = (int)(strlen(o->name) + (o->value ? strlen(o->value) + 1 : 0));
        if (n > widest) widest = n;
    }
    for (const kt_option *o = options; o->name; o++) {
        const char *dashes = o->name[1] ? "--" : "-";
        int n = printf("  %s%s%s%s", dashes, o->name, o->value ? " " : "", o->value ? o->value : "");
        printf("%*s%s\n", widest + 6 - n, "", o->help);
    }
    print_details(command->details);
}

/* One word that starts with '-'; *at moves on when the value is the next word. */
static int parse_option(const kt_command *command, const kt_option *options, int argc, char **argv, int *at) {
    const char *word = argv[*at];
    const char *name = word + (word[1] == '-' ? 2 : 1);
    const char *equals = word[1] == '-' ? strchr(name, '=') : NULL;
    const kt_option *o = find(options, name, equals ? (size_t)(equals - name) : strlen(name));
    if (!o || (o->name[1] != '\0') != (word[1] == '-'))
        return kt_fail(KT_USAGE, "%s is not an option of kiln %s; \"kiln help %s\" lists them", word, command->name,
                       command->name);
    if (o->kind == KT_FLAG) {
        if (equals) return kt_fail(KT_USAGE, "--%s takes no value", o->name);
        return store(o, word, NULL);
    }
    if (equals) return store(o, word, equals + 1);
    if (*at + 1 >= argc) return kt_fail(KT_USAGE, "%s needs a value: %s", word, o->value);
    return store(o, word, argv[++*at]);
}

int kt_args_parse(const kt_command *command, const kt_option *options, int argc, char **argv, kt_list *operands) {
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) break;
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help(command, options);
            return KT_HELP;
        }
    }
    bool only_operands = false;
    for (int i = 0; i < argc; i++) {
        if (!only_operands && strcmp(argv[i], "--") == 0) {
            only_operands = true;
        } else if (!only_operands && argv[i][0] == '-' && argv[i][1]) {
            KT_TRY(parse_option(command, options, argc, argv, &i));
        } else {
            kt_list_add(operands, argv[i]);
        }
    }
    return KT_GOOD;
}
