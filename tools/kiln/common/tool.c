/* The error sentence, memory and small lists: see tool.h. */
#include "common/tool.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char message[8192];

const char *kt_message(void) {
    return message;
}

int kt_fail(int code, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    return code;
}

int kt_prefix(int code, const char *fmt, ...) {
    char head[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(head, sizeof head, fmt, ap);
    va_end(ap);
    size_t n = strlen(head), kept = strlen(message);
    if (kept > sizeof message - 1 - n) kept = sizeof message - 1 - n;
    memmove(message + n, message, kept);
    memcpy(message, head, n);
    message[n + kept] = '\0';
    return code;
}

static void *checked(void *p) {
    if (p) return p;
    fputs("kiln: out of memory\n", stderr);
    exit(KT_ENVIRONMENT);
}

void *kt_alloc(size_t count, size_t size) {
    return checked(calloc(count ? count : 1, size ? size : 1));
}

void *kt_grow(void *p, size_t count, size_t size) {
    return checked(reallocarray(p, count ? count : 1, size));
}

char *kt_copy(const char *s) {
    return checked(strdup(s));
}

char *kt_format(const char *fmt, ...) {
    char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    return checked(n < 0 ? NULL : text);
}

void kt_list_add(kt_list *list, const char *item) {
    list->item = kt_grow(list->item, list->n + 1, sizeof *list->item);
    list->item[list->n++] = item;
}

bool kt_list_has(const kt_list *list, const char *item) {
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->item[i], item) == 0) return true;
    return false;
}

void kt_list_free(kt_list *list) {
    free(list->item);
    *list = (kt_list){0};
}

bool kt_choice(const char *choices, const char *word, int *index) {
    size_t n = strlen(word);
    int at = 0;
    for (const char *s = choices; n && *s; at++) {
        size_t len = strcspn(s, ",");
        if (len == n && memcmp(s, word, n) == 0) {
            if (index) *index = at;
            return true;
        }
        s += len;
        if (*s == ',') s++;
    }
    return false;
}
