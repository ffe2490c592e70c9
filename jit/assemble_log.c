/* Reading assembler logs: nvJitLink, ptxas and the driver write the same lines.
 *
 *   ptxas application ptx input, line 8; error   : Unknown field '.x'
 *   ptxas info    : (C7519) warpgroup.arrive is injected in around line 148 by compiler ... in function 'f'
 *   ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
 *   ptxas info    : Used 90 registers, used 1 barriers, 1024 bytes smem */
#include "jit/assemble.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* ---- bounded text ------------------------------------------------------------------------------------------------ */

typedef struct text_out {
    char *at;
    size_t room; /* the NUL not counted */
} text_out;

static void put(text_out *o, const char *s, size_t n) {
    if (n > o->room) n = o->room;
    memcpy(o->at, s, n);
    o->at += n;
    o->room -= n;
    *o->at = '\0';
}

/* Unsigned number at s; *end behind it. Saturates: a log is not trusted to hold sensible numbers. */
static uint32_t number(const char *s, const char **end) {
    uint64_t v = 0;
    while (isdigit((unsigned char)*s)) {
        v = v * 10 + (uint64_t)(*s++ - '0');
        if (v > UINT32_MAX) v = UINT32_MAX;
    }
    *end = s;
    return (uint32_t)v;
}

/* The number in front of `label` within a line: "0 bytes spill stores". */
static uint32_t number_before(const char *line, size_t n, const char *label) {
    size_t m = strlen(label);
    for (size_t i = 0; i + m <= n; i++) {
        if (memcmp(line + i, label, m) != 0) continue;
        size_t j = i;
        while (j > 0 && line[j - 1] == ' ') j--;
        while (j > 0 && isdigit((unsigned char)line[j - 1])) j--;
        const char *end;
        return number(line + j, &end);
    }
    return 0;
}

static bool contains(const char *line, size_t n, const char *what) {
    size_t m = strlen(what);
    for (size_t i = 0; i + m <= n; i++)
        if (memcmp(line + i, what, m) == 0) return true;
    return false;
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static void put_origin(text_out *o, const kn_expansion *x, uint32_t ptx_line) {
    char where[192];
    if (x)
        kn_expansion_origin(x, ptx_line, where, sizeof where);
    else
        snprintf(where, sizeof where, "PTX line %u", ptx_line);
    put(o, where, strlen(where));
}

/* One line with its "line N" replaced by the template line; "TEMPLATE:LINE: error: ..." when the line begins with the
 * place, and runs of blanks become one. */
static void put_mapped(text_out *o, const char *line, size_t n, const kn_expansion *x) {
    static const char input[] = "ptxas application ptx input, line ";
    const char *s = line, *end = line + n;
    if (n > sizeof input && memcmp(s, input, sizeof input - 1) == 0) {
        uint32_t at = number(s + sizeof input - 1, &s);
        put_origin(o, x, at);
        put(o, ":", 1);
        if (s < end && *s == ';') s++;
    }
    while (s < end) {
        if ((size_t)(end - s) > 5 && memcmp(s, "line ", 5) == 0 && isdigit((unsigned char)s[5])) {
            put_origin(o, x, number(s + 5, &s));
        } else if (*s == ' ' && s + 1 < end && (s[1] == ' ' || s[1] == ':')) {
            s++; /* "error   : text" */
        } else {
            put(o, s++, 1);
        }
    }
}

/* The next line: *n bytes at the returned pointer, *log moved behind it; NULL at the end. */
static const char *next_line(const char **log, size_t *n) {
    const char *line = *log;
    if (*line == '\0') return NULL;
    *n = strcspn(line, "\n");
    *log = line + *n + (line[*n] == '\n');
    return line;
}

int kn_asm_first_error(const char *log, const kn_expansion *x, char *out, size_t cap) {
    static const char *const summaries[] = {"Ptx assembly aborted", "ERROR NVJITLINK", "ERROR 9: finish"};
    int errors = 0;
    const char *any = NULL;
    size_t n, any_n = 0;
    *out = '\0';
    text_out o = {out, cap - 1};
    for (const char *line; (line = next_line(&log, &n)) != NULL;) {
        if (n == 0) continue;
        if (!any) any = line, any_n = n;
        bool summary = false;
        for (size_t i = 0; i < sizeof summaries / sizeof *summaries; i++)
            if (contains(line, n, summaries[i])) summary = true;
        if (summary || (!contains(line, n, "error") && !contains(line, n, "fatal"))) continue;
        if (errors++ == 0) put_mapped(&o, line, n, x);
    }
    if (errors == 0 && any) {
        put_mapped(&o, any, any_n, x);
        errors = 1;
    }
    return errors;
}

/* "(C7519)": the remarks about wgmma, setmaxnreg and registers are all C7 and three digits. */
static bool is_remark(const char *line, size_t n) {
    for (size_t i = 0; i + 7 <= n; i++)
        if (line[i] == '(' && line[i + 1] == 'C' && line[i + 2] == '7' && isdigit((unsigned char)line[i + 3]) &&
            isdigit((unsigned char)line[i + 4]) && isdigit((unsigned char)line[i + 5]) && line[i + 6] == ')')
            return true;
    return false;
}

static void keep_max(uint32_t *slot, uint32_t v) {
    if (v > *slot) *slot = v;
}

void kn_asm_parse_log(const char *log, const kn_expansion *x, kn_asm_report *r) {
    size_t n;
    for (const char *line; (line = next_line(&log, &n)) != NULL;) {
        if (is_remark(line, n)) {
            if (r->remarks++ == 0) {
                text_out o = {r->remark, sizeof r->remark - 1};
                put_mapped(&o, line, n, x);
            }
        } else if (contains(line, n, "bytes stack frame")) {
            keep_max(&r->stack, number_before(line, n, "bytes stack frame"));
            r->spill_stores += number_before(line, n, "bytes spill stores");
            r->spill_loads += number_before(line, n, "bytes spill loads");
        } else if (contains(line, n, "Used ") && contains(line, n, " registers")) {
            keep_max(&r->registers, number_before(line, n, "registers"));
            keep_max(&r->barriers, number_before(line, n, "barriers"));
            keep_max(&r->smem_static, number_before(line, n, "bytes smem"));
        }
    }
}
