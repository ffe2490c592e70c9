/* Saved cases: see fuzz_save.h. */
#include "fuzz/fuzz_save.h"

#include <stdlib.h>
#include <string.h>

typedef struct content {
    kt_st_tensor tensor[2 * KT_MAX_ARGS];
    char *name[2 * KT_MAX_ARGS];
    void *data[2 * KT_MAX_ARGS];
    size_t n;
} content;

/* Takes `data`. */
static void add(content *file, const kt_fuzz_memory *m, const char *prefix, int arg, void *data) {
    const kt_tensor *t = &m->shapes.tensor[arg];
    file->name[file->n] = kt_format("%s.%s", prefix, m->c->op->args[arg].name);
    file->data[file->n] = data;
    kt_st_tensor *to = &file->tensor[file->n];
    *to = (kt_st_tensor){file->name[file->n], t->dtype, t->rank, {0}, t->elements, t->bytes, data};
    memcpy(to->shape, t->shape, sizeof t->shape);
    file->n++;
}

/* What the output should be, rounded to its type. */
static void *rounded(const kt_tensor *t, const double *exact) {
    void *data = kt_alloc(t->elements ? t->elements : 1, t->dtype->bits / 8u);
    int64_t elements = (int64_t)t->elements;
    DLTensor flat = {.data = data, .ndim = 1, .dtype = {t->dtype->code, t->dtype->bits, 1}, .shape = &elements};
    for (int64_t e = 0; e < elements; e++) kt_problem_put(&flat, e, exact[e]);
    return data;
}

static void gather(content *file, const kt_fuzz_memory *m, const kt_fuzz_oracle *oracle) {
    uint64_t accumulate = ((const kiln_common_options *)m->options)->accumulate;
    for (int i = 0; i < m->c->op->n_args; i++)
        if (m->host_args[i] && !kt_fuzz_is_output(m, i)) add(file, m, "in", i, kt_fuzz_memory_compact(m, i));
    for (int k = 0; k < oracle->n; k++) {
        int i = oracle->arg[k];
        if (!m->host_args[i]) continue;
        if (accumulate >> k & 1) add(file, m, "in", i, kt_fuzz_memory_compact(m, i));
        add(file, m, "out", i, rounded(&m->shapes.tensor[i], oracle->exact[k]));
    }
}

static int write_file(const content *file, const kt_fuzz_case *c, const char *path) {
    json_t *description = kt_fuzz_case_to_json(c);
    char *options = json_dumps(c->settings, JSON_SORT_KEYS), *text = json_dumps(description, JSON_SORT_KEYS);
    json_t *metadata = json_pack("{s:s, s:s, s:s}", "op", c->op->name, "options", options, "fuzz", text);
    int code = kt_safetensors_write(path, file->tensor, file->n, metadata);
    json_decref(metadata);
    json_decref(description);
    free(options);
    free(text);
    return code;
}

int kt_fuzz_save(kt_fuzz_machine *machine, const kt_fuzz_case *c, const char *path) {
    kt_fuzz_memory *m = kt_alloc(1, sizeof *m);
    kt_fuzz_oracle oracle = {0};
    content *file = kt_alloc(1, sizeof *file);
    int code = kt_fuzz_memory_make(c, machine->lib, machine->ctx[KT_FUZZ_PATH_AUTO][0], m);
    if (code == KT_GOOD) code = kt_fuzz_oracle_make(m, &oracle);
    if (code == KT_GOOD) {
        gather(file, m, &oracle);
        code = write_file(file, c, path);
    }
    for (size_t i = 0; i < file->n; i++) {
        free(file->name[i]);
        free(file->data[i]);
    }
    free(file);
    kt_fuzz_oracle_free(&oracle);
    kt_fuzz_memory_free(m);
    free(m);
    return code;
}

int kt_fuzz_load(const char *path, kt_fuzz_case *out) {
    kt_safetensors file;
    *out = (kt_fuzz_case){0};
    KT_TRY(kt_safetensors_open(path, &file));
    const char *text = kt_safetensors_metadata(&file, "fuzz");
    json_t *description = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    int code = description ? kt_fuzz_case_from_json(description, out)
                           : kt_fail(KT_USAGE, "%s has no description of a fuzz case", path);
    json_decref(description);
    kt_safetensors_close(&file);
    return code;
}
