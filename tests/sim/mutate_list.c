/* See mutate_list.h. */
#include "mutate_list.h"

#include "base/alloc.h"
#include "base/file.h"
#include "jit/expand.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- places ---------------------------------------------------------------------------------------------- */

/* The last "NAME.ptxt:LINE" in [at, end): a row of the map names the innermost file first. */
static const char *outermost(const char *at, const char *end) {
    const char *found = NULL;
    for (; at < end; at++) {
        const char *mark = strstr(at, ".ptxt:");
        if (!mark || mark >= end) break;
        found = mark;
        at = mark;
    }
    return found;
}

static const char *row_end(const char *row) {
    return row + strcspn(row, "\n");
}

void mutate_template_of(const char *map, char out[64]) {
    const char *mark = NULL;
    out[0] = 0;
    for (const char *row = map; *row && !mark; row = row_end(row) + (*row_end(row) == '\n'))
        mark = outermost(row, row_end(row));
    if (!mark) return;
    const char *from = mark;
    while (from > map && (isalnum((unsigned char)from[-1]) || from[-1] == '_')) from--;
    snprintf(out, 64, "%.*s", (int)(mark - from), from);
}

/* The template's line for a PTX line: rows "ptx_line file:line [loops]", one for each change. */
static uint32_t template_line(const char *map, uint32_t line) {
    const char *best = NULL;
    for (const char *row = map; *row; row = row_end(row) + (*row_end(row) == '\n')) {
        if (strtoul(row, NULL, 10) > line) break;
        best = row;
    }
    const char *mark = best ? outermost(best, row_end(best)) : NULL;
    return mark ? (uint32_t)strtoul(mark + strlen(".ptxt:"), NULL, 10) : 0;
}

void mutate_site(const char *map, const char *template_name, uint32_t line, mutant_site *out) {
    char name[96], *owned = NULL;
    const char *text = NULL;
    size_t len = 0;
    *out = (mutant_site){.label = "start", .number = template_line(map, line)};
    snprintf(name, sizeof name, "%s.ptxt", template_name);
    if (kn_template_source(name, &text, &len, &owned) != KN_OK) return;
    for (uint32_t n = 1; n <= out->number && *text; n++) {
        size_t length = strcspn(text, "\n");
        snprintf(out->line, sizeof out->line, "%.*s", (int)length, text);
        if (strncmp(text, "L@", 2) == 0 && length > 3 && text[length - 1] == ':')
            snprintf(out->label, sizeof out->label, "%.*s", (int)length - 3, text + 2);
        text += length + (text[length] == '\n');
    }
    size_t skip = strspn(out->line, " \t");
    memmove(out->line, out->line + skip, strlen(out->line + skip) + 1);
    kn_free(owned);
}

/* ---- the list -------------------------------------------------------------------------------------------- */

/* The next field of a line, without the space around it. */
static char *field(char **at) {
    char *from = *at;
    if (!from) return NULL;
    char *bar = strchr(from, '|');
    *at = bar ? bar + 1 : NULL;
    if (bar) *bar = 0;
    while (*from == ' ') from++;
    for (char *end = from + strlen(from); end > from && end[-1] == ' ';) *--end = 0;
    return from;
}

kn_status mutate_list_read(const char *path, harmless_list *out) {
    size_t len;
    *out = (harmless_list){0};
    KN_TRY(kn_file_read(path, 1 << 20, &out->text, &len));
    for (char *line = out->text; *line;) {
        size_t length = strcspn(line, "\n");
        char *next = line + length + (line[length] == '\n'), *at = line;
        line[length] = 0;
        if (line[0] && line[0] != '#') {
            KN_REQUIRE(out->n < LIST_MAX, KN_E_FORMAT, "%s: too many lines", path);
            harmless *h = &out->entry[out->n++];
            h->template_name = field(&at);
            h->row = field(&at);
            h->label = field(&at);
            h->parts = field(&at);
            h->change = field(&at);
            h->reason = field(&at);
            KN_REQUIRE(h->reason && *h->reason && !at, KN_E_FORMAT, "%s: line %s...: wanted six fields", path, line);
        }
        line = next;
    }
    return KN_OK;
}

void mutate_list_free(harmless_list *l) {
    kn_free(l->text);
    *l = (harmless_list){0};
}

/* Do all parts ("a ... b") stand in one of the two texts? */
static bool has_parts(const char *parts, const char *line, const char *instruction) {
    while (*parts) {
        char part[256];
        const char *dots = strstr(parts, " ... ");
        snprintf(part, sizeof part, "%.*s", dots ? (int)(dots - parts) : (int)strlen(parts), parts);
        if (!strstr(line, part) && !strstr(instruction, part)) return false;
        parts = dots ? dots + 5 : "";
    }
    return true;
}

bool mutate_list_of_row(const harmless *h, const char *template_name, const char *row) {
    if (strcmp(h->template_name, template_name) != 0) return false;
    size_t length = strlen(row);
    for (const char *word = h->row; *word; word += strspn(word, " ")) {
        size_t n = strcspn(word, " ");
        if ((n == 1 && *word == '*') || (n == length && strncmp(word, row, n) == 0)) return true;
        word += n;
    }
    return false;
}

harmless *mutate_list_find(harmless_list *l, const char *template_name, const char *row, const mutant_site *site,
                           const char *instruction, const char *change) {
    for (uint32_t k = 0; k < l->n; k++) {
        harmless *h = &l->entry[k];
        if (!mutate_list_of_row(h, template_name, row)) continue;
        if (strcmp(h->label, "*") != 0 && strcmp(h->label, site->label) != 0) continue;
        if (strcmp(h->change, "*") != 0 && strcmp(h->change, change) != 0) continue;
        if (!has_parts(h->parts, site->line, instruction)) continue;
        h->met++;
        return h;
    }
    return NULL;
}
