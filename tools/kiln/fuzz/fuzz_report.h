/* What `kiln fuzz` says: progress, findings, and what was drawn how often. */
#ifndef KILN_TOOL_FUZZ_REPORT_H
#define KILN_TOOL_FUZZ_REPORT_H

#include "fuzz/fuzz_run.h"

typedef struct kt_fuzz_report {
    uint64_t cases, findings, known; /* findings: those that are not known */
    json_t *drawn;                   /* {what: {value: times}} */
    json_t *rows;                    /* the findings, known ones among them */
    json_t *worst;                   /* {operation: largest error as a part of its bound} */
    double start_s, shown_s;
} kt_fuzz_report;

double kt_fuzz_now(void); /* seconds */

void kt_fuzz_report_begin(kt_fuzz_report *r);
void kt_fuzz_report_free(kt_fuzz_report *r);
/** Count what the case is made of. */
void kt_fuzz_report_case(kt_fuzz_report *r, const kt_fuzz_case *c);
/** Keep the largest error of a case that passed. */
void kt_fuzz_report_worst(kt_fuzz_report *r, const kt_fuzz_case *c, double worst);
/** A line on standard error, where that is a terminal, twice a second. left: seconds or cases; unit: "s", "cases". */
void kt_fuzz_report_progress(kt_fuzz_report *r, const char *op, double left, const char *unit);
void kt_fuzz_report_clear_progress(const kt_fuzz_report *r);

/** All of it as JSON. */
json_t *kt_fuzz_report_json(const kt_fuzz_report *r, const char *device, uint64_t seed);
/** The last lines of the text. */
void kt_fuzz_report_print(const kt_fuzz_report *r);

#endif
