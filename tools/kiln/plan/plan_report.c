/* The text of a plan: see plan_report.h. */
#include "plan/plan_report.h"

#include "common/report.h"

#include <stdio.h>
#include <stdlib.h>

const char *kt_dims_text(const json_t *list, char *buf, size_t cap) {
    double d[3] = {1, 1, 1};
    for (size_t i = 0; i < 3; i++) {
        const json_t *v = json_array_get(list, i);
        if (json_is_number(v)) d[i] = json_number_value(v);
    }
    if (d[2] > 1)
        snprintf(buf, cap, "%.0f,%.0f,%.0f", d[0], d[1], d[2]);
    else if (d[1] > 1)
        snprintf(buf, cap, "%.0f,%.0f", d[0], d[1]);
    else
        snprintf(buf, cap, "%.0f", d[0]);
    return buf;
}

/* A whole number, or "-" where only an assembler would know it. */
static void cell_number(kt_table *t, const json_t *kernel, const char *key) {
    const json_t *v = json_object_get(kernel, key);
    if (json_is_number(v))
        kt_table_cell(t, "%.0f", json_number_value(v));
    else
        kt_table_cell(t, "-");
}

static void cell_time(kt_table *t, const json_t *kernel, const char *key) {
    const json_t *v = json_object_get(kernel, key);
    bool spent = json_is_number(v) && json_number_value(v) > 0; /* nothing was built: the kernel was there */
    kt_table_cell(t, "%s", spent ? kt_time_text(1e-6 * json_number_value(v)) : "-");
}

void kt_print_launches(const json_t *plan) {
    static const char *const head[] = {"kernel",     ">grid",   ">threads", ">smem",     ">PTX lines",
                                       ">registers", ">spills", ">expand",  ">assemble", "from"};
    kt_table t = kt_table_begin(10, head);
    const json_t *kernels = json_object_get(plan, "kernels");
    size_t i;
    json_t *launch;
    json_array_foreach(json_object_get(plan, "launches"), i, launch) {
        const json_t *k = json_array_get(kernels, (size_t)kt_json_number(launch, "kernel", 0));
        char buf[64];
        kt_table_cell(&t, "%s", kt_json_text(k, "name", "?"));
        kt_table_cell(&t, "%s", kt_dims_text(json_object_get(launch, "grid"), buf, sizeof buf));
        kt_table_cell(&t, "%s", kt_dims_text(json_object_get(k, "threads"), buf, sizeof buf));
        kt_table_cell(&t, "%s", kt_bytes_text(kt_json_number(k, "smem_bytes", 0)));
        cell_number(&t, k, "ptx_lines");
        cell_number(&t, k, "registers");
        cell_number(&t, k, "spill_bytes");
        cell_time(&t, k, "expand_us");
        cell_time(&t, k, "assemble_us");
        kt_table_cell(&t, "%s", kt_json_text(k, "cache", "?"));
    }
    kt_table_end(&t, 2);
    json_array_foreach(kernels, i, launch) {
        const char *remark = kt_json_text(launch, "remark", "");
        if (*remark) printf("  %s: the assembler remarks: %s\n", kt_json_text(launch, "name", "?"), remark);
    }
    if (!*kt_json_text(plan, "assembler", ""))
        printf("no assembler, so no registers: %s\n",
               kt_json_text(plan, "assembler_reason",
                            "nvJitLink comes with the CUDA toolkit and with the wheel nvidia-nvjitlink"));
}

void kt_print_floor(const json_t *plan) {
    printf("workspace %s; the least the hardware must do: %s moved, %s",
           kt_bytes_text(kt_json_number(plan, "workspace_bytes", 0)),
           kt_bytes_text(kt_json_number(plan, "floor_bytes", 0)),
           kt_count_text(kt_json_number(plan, "floor_flops", 0), "FLOP"));
    double us = kt_json_number(plan, "floor_us", 0);
    if (us > 0) printf(": %s on %s", kt_time_text(1e-6 * us), kt_json_text(plan, "device", "this device"));
    printf("\n");
}

void kt_print_choices(const json_t *plan) {
    const char *note = kt_json_text(plan, "note", "");
    if (*note) printf("%s\n", note);
    size_t i;
    json_t *k;
    json_array_foreach(json_object_get(plan, "kernels"), i, k) {
        printf("%s from %s:", kt_json_text(k, "name", "?"), kt_json_text(k, "template", "?"));
        const char *name;
        json_t *value;
        json_object_foreach(json_object_get(k, "params"), name, value) {
            char *text = json_is_string(value) ? kt_copy(json_string_value(value)) : json_dumps(value, JSON_ENCODE_ANY);
            printf(" %s=%s", name, text ? text : "?");
            free(text);
        }
        printf("\n");
    }
}
