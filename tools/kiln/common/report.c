/* What people read: see report.h. */
#include "common/report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

kt_table kt_table_begin(int columns, const char *const *head) {
    kt_table t = {.columns = columns};
    for (int i = 0; i < columns; i++) {
        t.right[i] = head[i][0] == '>';
        kt_table_cell(&t, "%s", head[i] + t.right[i]);
    }
    return t;
}

void kt_table_cell(kt_table *t, const char *fmt, ...) {
    if (t->filled == t->rows * (size_t)t->columns) {
        t->rows++;
        t->cell = kt_grow(t->cell, t->rows * (size_t)t->columns, sizeof *t->cell);
        for (int i = 0; i < t->columns; i++) t->cell[t->filled + (size_t)i] = NULL;
    }
    char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    t->cell[t->filled++] = n < 0 ? kt_copy("?") : text;
}

/* Columns that a terminal shows: continuation bytes of UTF-8 take none. */
static int width(const char *s) {
    int n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

void kt_table_end(kt_table *t, int indent) {
    int widest[KT_MAX_COLUMNS] = {0};
    for (size_t i = 0; i < t->filled; i++) {
        int n = width(t->cell[i]), column = (int)(i % (size_t)t->columns);
        if (n > widest[column]) widest[column] = n;
    }
    for (size_t i = 0; i < t->filled; i++) {
        int column = (int)(i % (size_t)t->columns), gap = widest[column] - width(t->cell[i]);
        bool last = column == t->columns - 1;
        if (column == 0) printf("%*s", indent, "");
        if (t->right[column])
            printf("%*s%s", gap, "", t->cell[i]);
        else
            printf("%s%*s", t->cell[i], last ? 0 : gap, "");
        fputs(last ? "\n" : "  ", stdout);
        free(t->cell[i]);
    }
    free(t->cell);
    *t = (kt_table){0};
}

/* Ring of small texts, so that several may stand in one printf. */
static char *next_text(size_t *cap) {
    static char ring[8][48];
    static unsigned next;
    *cap = sizeof ring[0];
    return ring[next++ % 8];
}

static const char *scaled(double value, double step, const char *const *units, int n_units) {
    size_t cap;
    char *text = next_text(&cap);
    int i = 0;
    while (i < n_units - 1 && value >= step) {
        value /= step;
        i++;
    }
    if (i == 0 && value == (double)(long long)value)
        snprintf(text, cap, "%.0f %s", value, units[0]);
    else
        snprintf(text, cap, value < 10 ? "%.2f %s" : "%.1f %s", value, units[i]);
    return text;
}

const char *kt_bytes_text(double bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    return scaled(bytes, 1024, units, 5);
}

const char *kt_time_text(double seconds) {
    static const char *const units[] = {"ns", "us", "ms", "s"};
    return scaled(seconds * 1e9, 1000, units, 4);
}

const char *kt_count_text(double n, const char *unit) {
    static const char *const prefix[] = {"", "K", "M", "G", "T", "P"};
    char with_unit[6][24];
    const char *units[6];
    for (int i = 0; i < 6; i++) {
        snprintf(with_unit[i], sizeof with_unit[i], "%s%s", prefix[i], unit);
        units[i] = with_unit[i];
    }
    return scaled(n, 1000, units, 6);
}

int kt_print_json(json_t *value) {
    int failed = json_dumpf(value, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(value);
    return failed ? kt_fail(KT_ENVIRONMENT, "cannot write JSON to the standard output") : KT_GOOD;
}

int kt_read_json(const char *path, json_t **out) {
    json_error_t error;
    FILE *f = fopen(path, "r");
    *out = NULL;
    if (!f) return kt_fail(KT_ENVIRONMENT, "%s: %s", path, strerror(errno));
    *out = json_loadf(f, JSON_REJECT_DUPLICATES, &error);
    bool unread = ferror(f) != 0;
    fclose(f);
    if (*out) return KT_GOOD;
    return unread ? kt_fail(KT_ENVIRONMENT, "%s cannot be read", path)
                  : kt_fail(KT_USAGE, "%s:%d: %s", path, error.line, error.text);
}

const char *kt_json_text(const json_t *object, const char *key, const char *dflt) {
    const char *s = json_string_value(json_object_get(object, key));
    return s ? s : dflt;
}

double kt_json_number(const json_t *object, const char *key, double dflt) {
    const json_t *v = json_object_get(object, key);
    return json_is_number(v) ? json_number_value(v) : dflt;
}
