/* Golden cases as problems: see golden.h. */
#include "support/golden.h"

#include "base/env.h"
#include "support/safetensors_read.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

static const kn_st_tensor *find(const kn_st_file *f, const kn_op *op, int arg) {
    char name[96];
    snprintf(name, sizeof name, "%s.%s", op->args[arg].role == 'w' ? "out" : "in", op->args[arg].name);
    return kn_st_find(f, name);
}

static int64_t *size_of(kn_gen_config *c, char letter) {
    switch (letter) {
    case 'B': return &c->batch;
    case 'T': return &c->tokens;
    case 'H': return &c->hidden;
    case 'I':
    case 'F': return &c->inner;
    case 'E': return &c->experts;
    case 'L': return &c->local_experts;
    case 'K': return &c->top_k;
    case 'S': return &c->aux_rows;
    default: return NULL;
    }
}

/* Sizes and types of a problem from the shapes and types in the file. */
static void measure(const kn_st_file *f, const kn_op *op, kn_gen_config *c) {
    for (int i = 0; i < op->n_args; i++) {
        const kn_st_tensor *t = find(f, op, i);
        const char *shape = op->args[i].shape;
        if (!t) {
            c->absent |= (uint64_t)1 << i;
            continue;
        }
        c->absent &= ~((uint64_t)1 << i);
        if (strcmp(op->args[i].dtypes, "int") == 0) c->id_dtype = t->dtype;
        if (i == 0) c->dtype = t->dtype;
        for (int d = 0; d < t->ndim; d++, shape += strcspn(shape, ","), shape += *shape == ',') {
            int64_t *size = size_of(c, *shape);
            if (size && shape[1] != '+') *size = t->shape[d];
        }
    }
}

static kn_status fill(kn_gen *g, const kn_st_file *f) {
    for (int i = 0; i < g->op.n_args; i++) {
        const kn_st_tensor *t = find(f, &g->op, i);
        if (!g->args[i]) continue;
        int64_t n = kn_gen_elements(g, i), m = 1;
        for (int d = 0; d < t->ndim; d++) m *= t->shape[d];
        KN_REQUIRE(n == m, KN_E_SHAPE, "%s has %lld elements; wanted %lld", g->op.args[i].name, (long long)m,
                   (long long)n);
        if (g->op.args[i].role == 'w') continue;
        KN_REQUIRE(t->dtype == g->call.tensor[i].dtype, KN_E_DTYPE, "%s has type %s; wanted %s", g->op.args[i].name,
                   kn_dtype_name(t->dtype), kn_dtype_name(g->call.tensor[i].dtype));
        if (n > 0) memcpy(g->call.tensor[i].data, t->data, (size_t)n * kn_dtype_size(t->dtype));
    }
    KN_TRY(kn_gen_reference(g));
    for (int i = 0; i < g->op.n_outputs; i++) {
        int arg = g->op.n_args - g->op.n_outputs + i;
        const kn_st_tensor *t = find(f, &g->op, arg);
        if (!g->args[arg]) continue;
        KN_REQUIRE(t->dtype == KN_F64, KN_E_DTYPE, "%s has type %s; wanted f64", t->name, kn_dtype_name(t->dtype));
        int64_t n = kn_gen_elements(g, arg);
        if (n > 0) memcpy(g->exact[i], t->data, (size_t)n * sizeof(double));
    }
    return KN_OK;
}

kn_status kn_golden_load(const char *path, kn_dtype out_dtype, uint64_t absent, const void *options, kn_gen **out) {
    kn_st_file f;
    kn_op op;
    *out = NULL;
    KN_TRY(kn_st_read(path, &f));
    kn_status st = kn_gen_op(f.op, &op);
    if (st == KN_OK) {
        kn_gen_config c = kn_gen_defaults(op.name);
        measure(&f, &op, &c);
        c.absent |= absent;
        c.out_dtype = out_dtype;
        if (options) memcpy(&c.options, options, op.options_size);
        st = kn_gen_make(&c, out);
    }
    if (st == KN_OK) st = fill(*out, &f);
    kn_st_free(&f);
    return st;
}

int kn_golden_each(const char *op, void (*each)(const char *path, void *user), void *user) {
    char folder[512], path[1024];
    int n = 0;
    snprintf(folder, sizeof folder, "%s/tests/data/golden/%s", kn_env_system("KN_SOURCE_DIR"), op);
    DIR *dir = opendir(folder);
    if (!dir) return 0;
    for (struct dirent *e; (e = readdir(dir));) {
        if (!strstr(e->d_name, ".safetensors")) continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        each(path, user);
        n++;
    }
    closedir(dir);
    return n;
}
