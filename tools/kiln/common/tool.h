/* What all files of the command line tool share: exit codes, the error sentence, memory.
 *
 * The tool is a foreign caller of libkiln: it includes include/kiln alone, opens the library at run time and calls it
 * through libffi. Functions that can fail return an exit code, KT_GOOD (0) when they succeed; kt_fail() stores the
 * sentence that main() prints. Cross-file names start with kt_. */
#ifndef KILN_TOOL_TOOL_H
#define KILN_TOOL_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    KT_GOOD = 0,
    KT_CHECK = 1,       /* a check failed: wrong results, a fault that the simulator found, a bad cache entry */
    KT_USAGE = 2,       /* the command line or an input file is not valid */
    KT_ENVIRONMENT = 3, /* no device, no library, no memory, a file that cannot be read or written */
    KT_HELP = -1        /* help was asked for and printed: leave with KT_GOOD */
};

/** Store the sentence that says what failed and return `code`. */
int kt_fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));
/** Put `fmt` in front of the sentence that stands; returns `code`. */
int kt_prefix(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));
const char *kt_message(void); /* "" if nothing failed */

#define KT_TRY(expr)                                                                                                   \
    do {                                                                                                               \
        int kt_code_ = (expr);                                                                                         \
        if (kt_code_ != KT_GOOD) return kt_code_;                                                                      \
    } while (0)

#define KT_TRY_OUT(code, expr)                                                                                         \
    do {                                                                                                               \
        (code) = (expr);                                                                                               \
        if ((code) != KT_GOOD) goto out;                                                                               \
    } while (0)

/* Memory: never NULL; a program that is out of memory says so and leaves with KT_ENVIRONMENT. */
void *kt_alloc(size_t count, size_t size); /* zeroed */
void *kt_grow(void *p, size_t count, size_t size);
char *kt_copy(const char *s);
char *kt_format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A list of borrowed strings. */
typedef struct kt_list {
    const char **item;
    size_t n;
} kt_list;
void kt_list_add(kt_list *list, const char *item);
bool kt_list_has(const kt_list *list, const char *item);
void kt_list_free(kt_list *list);

/** Does the comma-separated `choices` contain `word`? *index (may be NULL): its place. */
bool kt_choice(const char *choices, const char *word, int *index);

#endif
