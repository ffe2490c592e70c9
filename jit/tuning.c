/* Measured choices: see tuning.h. */
#include "jit/tuning.h"

#include "base/alloc.h"
#include "base/file.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 16 << 20 };

typedef struct choice {
    const char *key, *candidate; /* in the text */
    int line;
} choice;

struct kn_tuning {
    char *path, *text;
    choice *choices; /* sorted by key */
    size_t n;
};

static int by_key(const void *a, const void *b) {
    return strcmp(((const choice *)a)->key, ((const choice *)b)->key);
}

static const choice *find(const kn_tuning *t, const char *key) {
    const choice wanted = {.key = key};
    return t && t->n ? bsearch(&wanted, t->choices, t->n, sizeof *t->choices, by_key) : NULL;
}

const char *kn_tuning_find(const kn_tuning *t, const char *key) {
    const choice *c = find(t, key);
    return c ? c->candidate : NULL;
}

void kn_tuning_where(const kn_tuning *t, const char *key, char *out, size_t cap) {
    const choice *c = find(t, key);
    snprintf(out, cap, "%s:%d", t ? t->path : "", c ? c->line : 0);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Cut a line's end: its comment, and blanks before it. */
static void cut(char *line) {
    size_t n = strcspn(line, "#");
    while (n > 0 && strchr(" \t\r", line[n - 1])) n--;
    line[n] = '\0';
}

static kn_status read_product(kn_tuning *t, char *words, int line) {
    char *key = words + strspn(words, " "), *end = key + strcspn(key, " ");
    char *candidate = *end ? end + 1 + strspn(end + 1, " ") : end;
    KN_REQUIRE(*key && *candidate && !strchr(candidate, ' '), KN_E_FORMAT,
               "%s:%d: wanted \"product KEY CANDIDATE\", saw \"product %.200s\"", t->path, line, words);
    *end = '\0';
    t->choices[t->n++] = (choice){key, candidate, line};
    return KN_OK;
}

static kn_status read_line(kn_tuning *t, char *text, int line, const char *gpu, bool *device_seen) {
    static const char product[] = "product ", device[] = "gpu ";
    if (strncmp(text, product, sizeof product - 1) == 0) return read_product(t, text + sizeof product - 1, line);
    if (strncmp(text, device, sizeof device - 1) == 0) {
        *device_seen = true;
        KN_REQUIRE(strcmp(text + sizeof device - 1, gpu) == 0, KN_E_DEVICE,
                   "%s:%d was measured on %.100s; the context's device is %s", t->path, line, text + sizeof device - 1,
                   gpu);
        return KN_OK;
    }
    KN_REQUIRE(strncmp(text, "driver ", 7) == 0 || strncmp(text, "date ", 5) == 0, KN_E_FORMAT,
               "%s:%d: wanted gpu, driver, date or product, saw \"%.100s\"", t->path, line, text);
    return KN_OK;
}

static kn_status parse(kn_tuning *t, const char *gpu) {
    int line = 0;
    bool device_seen = false;
    for (char *at = t->text, *next; at; at = next) {
        next = strchr(at, '\n');
        if (next) *next++ = '\0';
        cut(at);
        if (++line == 1)
            KN_REQUIRE(
                strcmp(at, "kiln-tuning 1") == 0, KN_E_FORMAT,
                "%s:1: wanted \"kiln-tuning 1\", saw \"%.100s\": this is no tuning file, or one of another version",
                t->path, at);
        else if (*at)
            KN_TRY(read_line(t, at, line, gpu, &device_seen));
    }
    KN_REQUIRE(device_seen, KN_E_FORMAT, "%s has no line \"gpu NAME\"", t->path);
    qsort(t->choices, t->n, sizeof *t->choices, by_key);
    for (size_t i = 1; i < t->n; i++)
        KN_REQUIRE(strcmp(t->choices[i - 1].key, t->choices[i].key) != 0, KN_E_FORMAT,
                   "%s: lines %d and %d choose for the same product, %.200s", t->path, t->choices[i - 1].line,
                   t->choices[i].line, t->choices[i].key);
    return KN_OK;
}

static kn_status fill(kn_tuning *t, const char *path, const char *gpu) {
    size_t bytes, lines = 1;
    t->path = kn_strdup(path);
    KN_REQUIRE(t->path, KN_E_NOMEM, "out of memory for a tuning file");
    KN_TRY(kn_file_read(path, MAX_BYTES, &t->text, &bytes));
    KN_REQUIRE(strlen(t->text) == bytes, KN_E_FORMAT, "%s has a byte of zero: this is no tuning file", path);
    for (const char *c = t->text; *c; c++) lines += *c == '\n';
    KN_TRY(KN_NEW(&t->choices, lines, "a tuning file"));
    return parse(t, gpu);
}

kn_status kn_tuning_read(const char *path, const char *gpu, kn_tuning **out) {
    kn_tuning *t = NULL;
    *out = NULL;
    KN_TRY(KN_NEW(&t, 1, "a tuning file"));
    kn_status st = fill(t, path, gpu);
    if (st != KN_OK) {
        kn_tuning_free(t);
        return st;
    }
    *out = t;
    return KN_OK;
}

void kn_tuning_free(kn_tuning *t) {
    if (!t) return;
    kn_free(t->path);
    kn_free(t->text);
    kn_free(t->choices);
    kn_free(t);
}
