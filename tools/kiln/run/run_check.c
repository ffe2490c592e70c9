/* Comparing the outputs of `kiln run`: see run.h. */
#include "run/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One float64 buffer an output of the operation, in order; NULL for outputs that were not computed. */
typedef struct expectation {
    int n;
    int arg[KT_MAX_ARGS]; /* the argument that output k is */
    double *exact[KT_MAX_ARGS], *magnitude[KT_MAX_ARGS];
    bool from_file;
    kiln_check_result result[KT_MAX_ARGS];
} expectation;

static void allocate(const kt_run *run, expectation *e) {
    for (int i = 0; i < run->op->n_args; i++) {
        if (run->op->args[i].role != KT_OUT) continue;
        int k = e->n++;
        e->arg[k] = i;
        e->result[k].struct_size = sizeof e->result[k];
        const kt_tensor *t = &run->tensors.tensor[i];
        if (!t->present) continue;
        e->exact[k] = kt_alloc(t->elements, sizeof(double));
        e->magnitude[k] = kt_alloc(t->elements, sizeof(double));
    }
}

static void release(expectation *e) {
    for (int k = 0; k < e->n; k++) {
        free(e->exact[k]);
        free(e->magnitude[k]);
    }
}

/* The file's outputs stand in for the reference's values; its magnitudes still scale the bounds. */
static void take_from_file(const kt_run *run, expectation *e) {
    for (int k = 0; k < e->n; k++) {
        if (!e->exact[k]) continue;
        char *name = kt_format("out.%s", run->op->args[e->arg[k]].name);
        const kt_st_tensor *t = kt_safetensors_find(&run->file, name);
        free(name);
        if (!t) continue; /* the file holds no outputs at all: see bind_outputs */
        e->from_file = true;
        for (uint64_t i = 0; i < t->elements; i++) e->exact[k][i] = kt_element(t->dtype, t->data, i);
    }
}

/* JSON has no infinities: they become the strings "inf", "-inf" and "nan". */
static void set_number(json_t *object, const char *key, double value) {
    json_t *v = isnan(value)   ? json_string("nan")
                : isinf(value) ? json_string(value > 0 ? "inf" : "-inf")
                               : json_real(value);
    json_object_set_new(object, key, v);
}

static int report(kt_run *run, const expectation *e) {
    json_t *outputs = json_array();
    bool pass = true;
    int code = KT_GOOD;
    for (int k = 0; k < e->n; k++) {
        if (!e->exact[k]) continue;
        const kiln_check_result *r = &e->result[k];
        const kt_tensor *t = &run->tensors.tensor[e->arg[k]];
        const char *name = run->op->args[e->arg[k]].name;
        char place[128];
        kt_tensors_place(t, r->worst_index, place, sizeof place);
        json_t *row = json_pack("{s:s, s:b, s:I, s:s, s:I, s:s}", "name", name, "pass", r->pass, "worst_index",
                                (json_int_t)r->worst_index, "worst_place", place, "bad_elements",
                                (json_int_t)r->bad_elements, "message", r->message);
        set_number(row, "max_error", r->max_error);
        set_number(row, "max_ratio", r->max_ratio);
        set_number(row, "frobenius", r->frobenius);
        set_number(row, "worst_slice", r->worst_slice);
        if (r->worst_index < t->elements) {
            set_number(row, "seen", kt_element(t->dtype, t->host, r->worst_index));
            set_number(row, "wanted", e->exact[k][r->worst_index]);
        }
        json_array_append_new(outputs, row);
        if (pass && !r->pass) code = kt_fail(KT_CHECK, "check failed: %s", r->message);
        pass = pass && r->pass;
    }
    json_object_set_new(
        run->report, "check",
        json_pack("{s:b, s:s, s:o}", "pass", pass, "against", e->from_file ? "file" : "reference", "outputs", outputs));
    return code;
}

int kt_run_check(kt_run *run) {
    expectation *e = kt_alloc(1, sizeof *e);
    allocate(run, e);
    kt_library *lib = run->lib;
    kt_value op = KT_STR(run->op->name), args = KT_PTR(run->tensors.on_host), n = KT_I32(run->op->n_args);
    int code = kt_status(
        lib, KT_CALL(lib, "kiln_reference", op, args, n, KT_PTR(run->options), KT_PTR(e->exact), KT_PTR(e->magnitude)));
    if (code == KT_GOOD) {
        take_from_file(run, e);
        code = kt_status(lib, KT_CALL(lib, "kiln_check", op, args, n, KT_PTR(run->options), KT_PTR(e->exact),
                                      KT_PTR(e->magnitude), KT_PTR(e->result)));
    }
    if (code == KT_GOOD) code = report(run, e);
    release(e);
    free(e);
    return code;
}
